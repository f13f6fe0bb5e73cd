"""BERT and MPNet of transformers and ours: equal numbers, both ways.

Padding attends to itself in ours and not in theirs: real tokens are compared.
"""

import json

import numpy as np
import pytest

import xlnet_tf
from tests.slow.peers.hugging_face_models import TOLERANCE
from tests.slow.peers.hugging_face_models import agree
from tests.slow.peers.hugging_face_models import random_weights
from tests.support.bert_models import B
from tests.support.bert_models import T
from tests.support.bert_models import bert_features
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from xlnet_tf import BertBackbone
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetSpanClassifier
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor
from xlnet_tf import XLNetTokenClassifier
from xlnet_tf.model.bert.position_bias import relative_position_buckets

torch = pytest.importorskip("torch", reason="compares with Hugging Face's code")
transformers = pytest.importorskip(
    "transformers", reason="compares with Hugging Face's code"
)
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")

SIZES = dict(
    vocab_size=97,
    num_hidden_layers=2,
    num_attention_heads=5,
    hidden_size=35,
    intermediate_size=23,
)
CONFIGS = (
    {},
    {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    {"hidden_act": "relu", "type_vocab_size": 3, "num_hidden_layers": 3},
    {"num_attention_heads": 1, "max_position_embeddings": 11},
)


def theirs(name, seed=0, **values):
    """A model of theirs, by the name of its class, every weight random."""
    kind = "MPNetConfig" if name.startswith("MPNet") else "BertConfig"
    config = getattr(transformers, kind)(**{**SIZES, **values})
    arguments = {"add_pooling_layer": False} if name.endswith("Model") else {}
    model = getattr(transformers, name)(config, **arguments)
    return random_weights(model, seed)


def call(model, features):
    """The first output of a model of theirs for features of ours."""
    arguments = {"input_ids": torch.tensor(features["token_ids"]).long()}
    if "segment_ids" in features:
        segments = torch.tensor(features["segment_ids"]).long()
        arguments["token_type_ids"] = segments
    if "position_ids" in features:
        positions = torch.tensor(features["position_ids"]).long()
        arguments["position_ids"] = positions
    if "perm_mask" in features:
        # With an axis of heads that code takes it as it is.
        hidden = torch.tensor(features["perm_mask"][:, None])
        arguments["attention_mask"] = hidden == 0
    elif "padding_mask" in features:
        mask = torch.tensor(features["padding_mask"])
        arguments["attention_mask"] = mask.long()
    with torch.no_grad():
        return model(**arguments)[0].numpy()


def inputs(num_segments):
    """Features of every kind that both know: masks of two and three axes."""
    features = bert_features()
    features["segment_ids"] %= num_segments
    # Theirs count padding too, where it stands on the left.
    place = np.tile(np.arange(T, dtype="int32"), (B, 1))
    padded = dict(features, position_ids=place)
    mask = features.pop("padding_mask")
    hidden = np.random.default_rng(1).uniform(size=(B, T, T)) < 0.4
    hidden &= ~np.eye(T, dtype=bool)
    positions = np.random.default_rng(2).integers(0, T, (B, T))
    literal = dict(features, perm_mask=hidden.astype("int32"))
    return [
        (padded, mask == 1),
        (literal, np.ones((B, T), bool)),
        (dict(literal, position_ids=positions), np.ones((B, T), bool)),
        ({"token_ids": features["token_ids"]}, np.ones((B, T), bool)),
    ]


def content(backbone, features):
    return as_numpy(backbone(features)["content"])


def logits(model, features):
    return as_numpy(model.logits(model(features)["content"]))


@pytest.mark.parametrize(
    ("name", "cls", "outputs", "loading"),
    [
        ("BertModel", BertBackbone, content, {"add_pooling_layer": False}),
        ("BertForMaskedLM", XLNetPretrainer, logits, {}),
    ],
)
def test_pretrained_models_agree_both_ways(
    tmp_path, name, cls, outputs, loading
):
    worst = 0
    for number, values in enumerate(CONFIGS):
        given = inputs(values.get("type_vocab_size", 2))

        def compare(their_model, model, given=given):
            pairs = [
                (call(their_model, x)[real], outputs(model, x)[real])
                for x, real in given
            ]
            return tuple(zip(*pairs, strict=True))

        model, path = theirs(name, **values), tmp_path / str(number)
        found = agree(model, cls, path, compare, loading=loading)
        worst = max(worst, *found)
    print(f"largest difference of {name}: {worst:.1e}")


def test_fine_tuned_models_agree_both_ways(tmp_path):
    given = inputs(2)[0][0]
    # The pooler reads the first token.
    given["padding_mask"] = np.sort(given["padding_mask"])[:, ::-1].copy()
    real = given["padding_mask"] == 1

    def of_rows(their_model, model):
        return call(their_model, given), as_numpy(model(given))

    def of_tokens(their_model, model):
        outputs = model(given)
        if isinstance(outputs, dict):  # theirs gives the starts first
            outputs = outputs["start_logits"]
        return call(their_model, given)[real], as_numpy(outputs)[real]

    for name, cls, compare, values in (
        ("SequenceClassification", XLNetTextClassifier, of_rows, 3),
        ("TokenClassification", XLNetTokenClassifier, of_tokens, 3),
        ("QuestionAnswering", XLNetSpanClassifier, of_tokens, 2),
    ):
        model = theirs(f"BertFor{name}", num_labels=values)
        agree(model, cls, tmp_path / name, compare)


def test_a_new_classifier_begins_with_the_pooler(tmp_path):
    """As Hugging Face's does."""
    model = theirs("BertForPreTraining")
    model.save_pretrained(tmp_path)
    task = XLNetTextClassifier.from_preset(tmp_path, num_classes=2)
    pooler = model.bert.pooler.dense
    kernel, bias = task.head.summary_dense.get_weights()
    np.testing.assert_array_equal(kernel, pooler.weight.detach().T)
    np.testing.assert_array_equal(bias, pooler.bias.detach())


def test_mpnet_is_read(tmp_path):
    """Its bias by relative position is that of UniLMv2."""
    values = dict(
        max_position_embeddings=202, relative_attention_num_buckets=32
    )
    # 1 is padding there, from which its positions follow.
    tokens = np.random.default_rng(0).integers(2, 97, (B, 200)).astype("int32")
    mask = np.ones_like(tokens)
    for row in range(B):
        tokens[row, 200 - 17 * row :] = 1
        mask[row, 200 - 17 * row :] = 0
    features, real = {"token_ids": tokens, "padding_mask": mask}, mask == 1
    for number, act in enumerate(("gelu", "relu")):
        model = theirs("MPNetModel", hidden_act=act, **values)
        path = tmp_path / str(number)
        model.save_pretrained(path)
        mine = BertBackbone.from_preset(path)
        assert mine.config.relative_position_buckets == 32
        found, expected = content(mine, features), call(model, features)
        difference = largest_difference(found[real], expected[real])
        print(f"largest difference of MPNetModel: {difference:.1e}")
        assert difference < TOLERANCE
        mine.relative_position_bias.table.assign(np.zeros((32, 5)))
        other = content(mine, features)[real]
        assert largest_difference(other, expected[real]) > 100 * TOLERANCE
    # Its LM head has the erf form beside layers of any activation.
    for act in ("gelu", "gelu_new", "gelu_pytorch_tanh", "relu"):
        model = theirs("MPNetForMaskedLM", hidden_act=act, **values)
        model.save_pretrained(tmp_path / act)
        if act == "relu":
            with pytest.raises(ValueError, match="computes GELU beside layers"):
                XLNetPretrainer.from_preset(tmp_path / act)
            continue
        mine = xlnet_tf.load(tmp_path / act)
        found = as_numpy(mine.logits(mine(features)["content"]))
        expected = call(model, features)[real]
        difference = largest_difference(found[real], expected)
        assert difference < 10 * TOLERANCE, act  # of logits up to about 10


def test_a_token_classifier_with_a_pooler_is_one(tmp_path):
    """As in files of the first versions of transformers."""
    model = theirs("BertForTokenClassification", num_labels=3)
    pooler = transformers.models.bert.modeling_bert.BertPooler(model.config)
    model.bert.pooler = pooler
    model.save_pretrained(tmp_path)
    mine = xlnet_tf.load(tmp_path)
    assert isinstance(mine, XLNetTokenClassifier)
    features = inputs(2)[1][0]
    difference = largest_difference(
        as_numpy(mine(features)), call(model, features)
    )
    assert difference < TOLERANCE
    with pytest.raises(ValueError, match="has no head 'other'"):
        XLNetTokenClassifier.from_preset(tmp_path, head="other")


def test_fine_tuned_mpnets_are_read(tmp_path):
    tokens = np.random.default_rng(0).integers(2, 97, (B, T)).astype("int32")
    features = {"token_ids": tokens, "padding_mask": np.ones_like(tokens)}
    for name, cls, values in (
        ("SequenceClassification", XLNetTextClassifier, {"num_labels": 3}),
        ("SequenceClassification", XLNetTextRegressor, {"num_labels": 1}),
        ("TokenClassification", XLNetTokenClassifier, {"num_labels": 3}),
        ("QuestionAnswering", XLNetSpanClassifier, {}),
    ):
        model = theirs(f"MPNetFor{name}", **values)
        path = tmp_path / cls.__name__
        model.save_pretrained(path)
        mine = xlnet_tf.load(path)
        assert type(mine) is cls
        found = mine(features)
        if isinstance(found, dict):
            found = found["start_logits"]
        expected = call(model, features)
        expected = expected.reshape(found.shape)
        assert largest_difference(as_numpy(found), expected) < TOLERANCE, cls
    model = theirs("MPNetForMultipleChoice")
    model.save_pretrained(tmp_path / "choice")
    mine = xlnet_tf.load(tmp_path / "choice")
    assert type(mine) is XLNetMultipleChoice
    file = tmp_path / "choice" / "config.json"
    values = json.loads(file.read_text())
    file.write_text(json.dumps({**values, "architectures": None}))
    assert type(xlnet_tf.load(tmp_path / "choice")) is XLNetMultipleChoice
    options = {name: value[None] for name, value in features.items()}
    found, expected = as_numpy(mine(options)), call(model, options)
    assert largest_difference(found, expected) < TOLERANCE


def test_buckets_are_those_of_mpnet_at_every_distance():
    positions = np.arange(1200, dtype="int32")[None]
    found = as_numpy(relative_position_buckets(positions, 32, 128))[0]
    encoder = transformers.models.mpnet.modeling_mpnet.MPNetEncoder
    offset = torch.arange(1200)[None, :] - torch.arange(1200)[:, None]
    expected = encoder.relative_position_bucket(offset, 32, 128).numpy()
    np.testing.assert_array_equal(found, expected)


def test_torch_files_are_read(tmp_path):
    model = theirs("BertForMaskedLM")
    model.config.architectures = ["BertForMaskedLM"]
    model.config.save_pretrained(tmp_path)
    torch.save(model.state_dict(), tmp_path / "pytorch_model.bin")
    mine = XLNetPretrainer.from_preset(tmp_path)
    features = inputs(2)[1][0]
    found = as_numpy(mine.logits(mine(features)["content"]))
    assert largest_difference(found, call(model, features)) < TOLERANCE
