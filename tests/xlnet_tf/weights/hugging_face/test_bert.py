"""BERT's files: ours, Hugging Face's and UniLM's, read and written.

`golden/peers/bert` was written by transformers; `tests/slow/peers` holds more
of its classes and configs to ours.
"""

import json

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

import xlnet_tf
from tests.conftest import ROOT
from tests.support.bert_models import WITH_BIAS
from tests.support.bert_models import bert_backbone
from tests.support.bert_models import bert_config
from tests.support.bert_models import bert_features
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.weight_models import assert_same
from xlnet_tf import BertBackbone
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetSpanClassifier
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor
from xlnet_tf import XLNetTokenClassifier
from xlnet_tf import convert
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.preset import open_source
from xlnet_tf.weights.preset import read_config
from xlnet_tf.weights.released import save_tf1

STORED = ROOT / "tests" / "golden" / "peers" / "bert"
SUMMARY = dict(summary="first", num_classes=3, labels=["no", "maybe", "yes"])
# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def model_of(cls, backbone=None, **arguments):
    backbone = backbone or bert_backbone()
    if cls is BertBackbone:
        return backbone
    return randomize(cls(backbone, **arguments))


def edit(directory, change, **values):
    """Changes the tensors and the config of a directory."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")
    file = directory / "config.json"
    file.write_text(json.dumps({**json.loads(file.read_text()), **values}))
    (directory / "SHA256SUMS").unlink(missing_ok=True)


def test_a_stored_model_gives_the_same_logits():
    expected = dict(np.load(STORED / "expected.npz"))
    model = XLNetPretrainer.from_preset(STORED)
    assert isinstance(model.backbone, BertBackbone)
    assert model.head.has_transform
    features = {x: expected[x] for x in ("token_ids", "segment_ids")}
    mask = expected["padding_mask"]
    # Theirs count padding too, where it stands on the left.
    place = np.tile(np.arange(mask.shape[1]), (len(mask), 1))
    padded = {**features, "padding_mask": mask, "position_ids": place}
    found = model.logits(model(padded)["content"])
    real = mask == 1  # padding sees itself here
    logits = expected["logits"]
    np.testing.assert_allclose(as_numpy(found)[real], logits[real], 0, 1e-5)
    for name in ("perm_mask", "position_ids"):
        features[name] = expected[name]
    found = model.logits(model(features)["content"])
    logits = expected["literal_logits"]
    np.testing.assert_allclose(found, logits, rtol=0, atol=1e-5)
    assert np.std(logits) > 0.1
    assert open_source(STORED).gelu.startswith("Hugging Face's code computes")


def test_presets_and_keras_files_keep_everything(tmp_path):
    features = bert_features()
    for number, (cls, overrides, arguments) in enumerate(
        [
            (BertBackbone, WITH_BIAS, {}),
            (BertBackbone, {"num_segments": 0}, {}),
            (XLNetPretrainer, WITH_BIAS, {"has_transform": True}),
            (XLNetTextClassifier, {}, SUMMARY),
        ]
    ):
        model = model_of(cls, bert_backbone(**overrides), **arguments)
        path = tmp_path / str(number)
        model.save_to_preset(path)
        model.save(tmp_path / "model.keras")
        for again in (
            cls.from_preset(path),
            keras.models.load_model(tmp_path / "model.keras"),
            xlnet_tf.load(tmp_path / "model.keras"),
        ):
            assert type(again) is cls
            assert_same(model, again, str(cls))
            one, two = as_numpy(model(features)), as_numpy(again(features))
            keras.tree.map_structure(np.testing.assert_array_equal, one, two)
        loaded = xlnet_tf.load(path)
        wanted = XLNetPretrainer if cls is BertBackbone else cls
        assert type(loaded) is wanted
        assert isinstance(loaded.trainable_weights, list)
        assert read_config(path) == model.config


def test_a_task_makes_the_backbone_of_the_config(tmp_path):
    bert_backbone(**WITH_BIAS).save_to_preset(tmp_path / "bert")
    XLNetBackbone(
        xlnet_tf.XLNetConfig(97, 1, 2, 8, 4, intermediate_dim=5)
    ).save_to_preset(tmp_path / "xlnet")
    model = XLNetTextClassifier.from_preset(
        tmp_path / "bert", num_classes=2, dropout=0.25, rematerialize=True
    )
    assert isinstance(model.backbone, BertBackbone)
    assert model.backbone.rematerialize and model.config.dropout == 0.25
    assert len(model.trainable_weights) == len(model.weights)
    for cls, name, message in [
        (BertBackbone, "xlnet", "BertBackbone.from_preset.*a XLNetConfig"),
        (XLNetBackbone, "bert", "XLNetBackbone.from_preset.*a BertConfig"),
    ]:
        with pytest.raises(ValueError, match=message):
            cls.from_preset(tmp_path / name)
    message = "BertConfig has no field memory_length. Its fields are"
    with pytest.raises(ValueError, match=message):
        XLNetPretrainer.from_preset(tmp_path / "bert", memory_length=5)


def test_hugging_face_directories_are_written_and_read(tmp_path):
    labels = SUMMARY["labels"]
    for number, (cls, arguments) in enumerate(
        [
            (BertBackbone, {}),
            (XLNetPretrainer, {"has_transform": True}),
            (XLNetTextClassifier, SUMMARY),
            (XLNetTextRegressor, {"summary": "first"}),
            (XLNetMultipleChoice, {"summary": "first"}),
            (XLNetTokenClassifier, {"num_classes": 3, "labels": labels}),
            (XLNetSpanClassifier, {"dropout": 0.0}),
        ]
    ):
        for gelu in ("erf", "tanh"):
            model = model_of(cls, bert_backbone(gelu=gelu), **arguments)
            path = tmp_path / f"{number}-{gelu}"
            save_hugging_face(model, path)
            assert_same(model, cls.from_preset(path), str(cls))
            if cls is not BertBackbone:
                assert type(xlnet_tf.load(path)) is cls


def test_what_hugging_face_has_not_is_refused(tmp_path):
    for model, message in [
        (bert_backbone(**WITH_BIAS), "relative_position_buckets=8. Choose an"),
        (bert_backbone(num_segments=0), "num_segments=0, relative_position"),
        (
            bert_backbone(head_dim=3),
            "BERT needs heads that share .* 5 heads of",
        ),
        (model_of(XLNetPretrainer), "no head like that of XLNetPretrainer"),
        (
            model_of(XLNetTextClassifier, num_classes=3, summary="last"),
            "no head like that of XLNetTextClassifier",
        ),
        (model_of(XLNetQuestionAnswering), "no head like that of XLNetQuest"),
    ]:
        with pytest.raises(ValueError, match=message):
            save_hugging_face(model, tmp_path / "x")
        assert not (tmp_path / "x").exists()
    with pytest.raises(ValueError, match="holds an XLNet. Received: a BertBa"):
        save_tf1(bert_backbone(), tmp_path)


@pytest.fixture
def saved(tmp_path):
    """(language model of ours, the directory that holds it)."""
    model = model_of(XLNetPretrainer, has_transform=True)
    save_hugging_face(model, tmp_path / "saved")
    return model, tmp_path / "saved"


def test_names_of_the_first_files_are_read(saved):
    model, path = saved

    def rename(tensors):
        for name in list(tensors):
            old = name.replace("LayerNorm.weight", "LayerNorm.gamma")
            old = old.replace("LayerNorm.bias", "LayerNorm.beta")
            tensors[old] = tensors.pop(name)
        tensors["cls.seq_relationship.bias"] = np.zeros(2, "float32")
        tensors["bert.embeddings.position_ids"] = np.arange(13)[None]

    edit(path, rename)
    assert_same(model, XLNetPretrainer.from_preset(path))
    values = json.loads((path / "config.json").read_text())
    for name in ("model_type", "architectures"):
        del values[name]
    (path / "config.json").write_text(json.dumps(values))
    assert_same(model, xlnet_tf.load(path))


def test_a_tokenizer_of_word_pieces_is_passed_over(saved, tmp_path):
    model, path = saved
    values = {"model": {"type": "WordPiece", "vocab": {"[PAD]": 0}}}
    (path / "tokenizer.json").write_text(json.dumps(values))
    again = XLNetPretrainer.from_preset(path)
    assert_same(model, again)
    assert again.preprocessor is None
    for form in ("keras", "hf"):
        new = tmp_path / form
        convert.main(["--from", str(path), "--to", str(new), "--format", form])
        assert_same(model, xlnet_tf.load(new))
        bare = tmp_path / f"{form}-backbone"
        options = ["--format", form, "--task", "BertBackbone"]
        convert.main(["--from", str(path), "--to", str(bare), *options])
        assert_same(model.backbone, BertBackbone.from_preset(bare))


def fuse(tensors):
    """One projection of queries, keys and values, no bias of the keys."""
    for name in [x for x in tensors if x.endswith("self.query.weight")]:
        scope = name.removesuffix("query.weight")
        parts = [
            tensors.pop(f"{scope}{kind}.weight")
            for kind in ("query", "key", "value")
        ]
        tensors[f"{scope}qkv_linear.weight"] = np.concatenate(parts)
        del tensors[f"{scope}key.bias"]
        for kind in ("query", "value"):
            bias = tensors.pop(f"{scope}{kind}.bias")
            tensors[f"{scope}{kind[0]}_bias"] = bias[None, None]


def test_unilm_is_read_with_its_table_and_its_projection_of_all(saved):
    model, path = saved
    for block in model.backbone.blocks:
        bias = block.attention.key_projection.bias
        bias.assign(np.zeros(bias.shape))
    table = np.random.default_rng(0).normal(size=(5, 8)).astype("float32")

    def change(tensors):
        fuse(tensors)
        tensors["bert.rel_pos_bias.weight"] = table

    edit(path, change, model_type="unilm", rel_pos_bins=8, max_rel_pos=6)
    again = XLNetPretrainer.from_preset(path)
    assert again.config == bert_config(**WITH_BIAS)
    found = as_numpy(again.backbone.relative_position_bias.table)
    np.testing.assert_array_equal(found, table.T)
    others = [x for x in again.weights if "relative" not in x.path]
    for one, two in zip(model.weights, others, strict=True):
        if "seed" not in one.path:
            np.testing.assert_array_equal(as_numpy(one), as_numpy(two))


def test_what_does_not_fit_is_named(saved):
    _, path = saved

    def take_away(tensors):
        del tensors["bert.encoder.layer.0.attention.self.key.bias"]
        tensors["bert.encoder.layer.7.output.dense.bias"] = np.ones(35)

    edit(path, take_away)
    message = (
        "missing: bert.encoder.layer.0.attention.self.key.bias; unexpected: "
        "bert.encoder.layer.7.output.dense.bias"
    )
    with pytest.raises(ValueError, match=message):
        XLNetPretrainer.from_preset(path)

    def own_decoder(tensors):
        tensors["cls.predictions.decoder.weight"] = np.ones((97, 35), "float32")

    edit(path, own_decoder, tie_word_embeddings=False)
    with pytest.raises(ValueError, match="LM head of its own"):
        XLNetPretrainer.from_preset(path)

    def rename(tensors):
        for name in list(tensors):
            tensors[name.replace("bert.", "roberta.")] = tensors.pop(name)

    edit(path, rename)
    with pytest.raises(ValueError, match="names begin with 'roberta.', not 'b"):
        XLNetPretrainer.from_preset(path)
