"""Heads of the released code: its numbers, and checkpoints fine-tuned by it.

Fine-tuned checkpoints are made from those in `golden/` by renaming variables
and adding what an optimizer leaves.
"""

import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.support.equality import assert_equal
from tests.support.oracle import as_numpy
from tests.support.released_numbers import CHECKPOINT
from tests.support.released_numbers import GOLDEN
from tests.support.released_numbers import NAMES
from tests.support.released_numbers import TOLERANCE
from tests.support.released_numbers import check_heads
from tests.support.released_numbers import features_of
from tests.support.released_numbers import load
from tests.support.released_numbers import numbers_of
from tests.support.released_numbers import question_features
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetTextClassifier

# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


@pytest.mark.parametrize("name", NAMES)
def test_heads_agree(name):
    check_heads(name, lambda model, features: model(features))


def test_summaries_agree():
    # One layer for each: TensorFlow numbers scopes that are entered again.
    for summary, end in {"last": "", "first": "_1", "mean": "_2"}.items():
        for name in NAMES:
            model = load(XLNetTextClassifier, name, summary=summary)
            scope = f"model/sequnece_summary{end}/summary"
            reader = tf.train.load_checkpoint(str(GOLDEN / name / CHECKPOINT))
            model.head.summary_dense.set_weights(
                [reader.get_tensor(f"{scope}/{x}") for x in ("kernel", "bias")]
            )
            content = model.backbone(features_of(name))["content"]
            np.testing.assert_allclose(
                as_numpy(model.head.summarize(content)),
                numbers_of(name)[f"summary_{summary}"],
                err_msg=f"{name} {summary}",
                **TOLERANCE,
            )


def released_tensors():
    reader = tf.train.load_checkpoint(str(GOLDEN / "base" / CHECKPOINT))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names}


def write(directory, tensors, checkpoint=CHECKPOINT):
    """A directory with these variables, as TensorFlow 1 saves them."""
    directory.mkdir(exist_ok=True)
    shutil.copy(GOLDEN / "base" / "xlnet_config.json", directory)
    tf.raw_ops.SaveV2(
        prefix=str(directory / checkpoint),
        tensor_names=list(tensors),
        shape_and_slices=[""] * len(tensors),
        tensors=list(tensors.values()),
    )
    return directory


def renamed(tensors, old, new):
    return {name.replace(old, new): value for name, value in tensors.items()}


def with_slots(tensors, *names):
    """Slots that an optimizer leaves beside every variable."""
    slots = {
        f"{name}/{slot}": np.full_like(value, 7)
        for name, value in tensors.items()
        for slot in names
    }
    return {**tensors, **slots, "global_step": np.int64(4000)}


POWERS = {"beta1_power": np.float32(0.9), "beta2_power": np.float32(0.99)}


def without_mask(tensors):
    return {k: v for k, v in tensors.items() if "mask_emb" not in k}


FINE_TUNED = {
    "with slots": lambda x: with_slots(x, "adam_m", "adam_v"),
    "with slots of TensorFlow's Adam": lambda x: {
        **with_slots(x, "Adam", "Adam_1", "ExponentialMovingAverage"),
        **POWERS,
    },
    "without scope": lambda x: renamed(x, "model/", ""),
    "in an outer scope": lambda x: with_slots(
        {f"xlnet/{name}": value for name, value in x.items()}, "adam_m"
    ),
    "in another scope": lambda x: renamed(x, "model/", "my_xlnet/"),
    "spelling corrected": lambda x: renamed(x, "sequnece", "sequence"),
    # What its scripts write: there are no targets, so no mask embedding.
    "without targets": lambda x: without_mask(with_slots(x, "adam_m")),
}


def test_fine_tuned_checkpoints_are_read(tmp_path):
    numbers, features = numbers_of("base"), features_of("base")
    questions = question_features("base")
    for kind, change in FINE_TUNED.items():
        path = tmp_path / kind
        write(path, change(released_tensors()), f"{CHECKPOINT}-4000")
        logits = XLNetTextClassifier.from_preset(path)(features)
        np.testing.assert_allclose(
            logits, numbers["classification_logits"], err_msg=kind, **TOLERANCE
        )
        if kind == "in another scope":
            continue  # heads for questions are outside of it
        answers = XLNetQuestionAnswering.from_preset(path)(questions)
        np.testing.assert_allclose(
            answers["class_logits"],
            numbers["qa_infer_cls_logits"],
            err_msg=kind,
            **TOLERANCE,
        )


def test_only_a_pretrainer_needs_a_mask_embedding(tmp_path):
    write(tmp_path, without_mask(released_tensors()), CHECKPOINT)
    expected = XLNetBackbone.from_preset(GOLDEN / "base")
    found = XLNetBackbone.from_preset(tmp_path)
    for one, two in zip(found.weights, expected.weights, strict=True):
        if "seed" not in one.path and one is not found.mask_embedding:
            np.testing.assert_array_equal(as_numpy(one), as_numpy(two))
    message = "missing: model/transformer/mask_emb/mask_emb. .* pretraining"
    with pytest.raises(ValueError, match=message):
        XLNetPretrainer.from_preset(tmp_path)
    with pytest.warns(UserWarning, match="in part: missing: .*mask_emb"):
        XLNetPretrainer.from_preset(tmp_path, strict=False)


def test_the_head_for_choices_is_read(tmp_path):
    tensors = released_tensors()
    for part in ("kernel", "bias"):
        logit = tensors.pop(f"model/regression_demo/logit/{part}")
        tensors[f"logits/dense/{part}"] = logit
    write(tmp_path, tensors)
    features = {
        name: tf.reshape(value, [2, 2, 16])
        for name, value in features_of("base").items()
    }
    logits = XLNetMultipleChoice.from_preset(tmp_path)(features)
    expected = numbers_of("base")["regression_logits"].reshape(2, 2)
    np.testing.assert_allclose(logits, expected, **TOLERANCE)


def test_a_summary_without_a_layer_has_no_activation(tmp_path):
    """`--use_summ_proj=False` of the released code: logits of the state."""
    tensors = {
        name: value
        for name, value in released_tensors().items()
        if "summary" not in name
    }
    write(tmp_path, tensors)
    logits = XLNetTextClassifier.from_preset(tmp_path)(features_of("base"))
    kernel = tensors["model/classification_demo/logit/kernel"]
    bias = tensors["model/classification_demo/logit/bias"]
    state = numbers_of("base")["sequence_output"][:, -1]
    np.testing.assert_allclose(logits, state @ kernel + bias, **TOLERANCE)


def test_one_of_several_heads_is_chosen_by_its_name(tmp_path):
    tensors = released_tensors()
    for part in ("kernel", "bias"):
        demo = tensors[f"model/classification_demo/logit/{part}"]
        tensors[f"model/classification_mnli/logit/{part}"] = 2 * demo[..., :2]
    write(tmp_path, tensors)
    expected = numbers_of("base")["classification_logits"]
    for name, logits in (("demo", expected), ("mnli", 2 * expected[:, :2])):
        model = XLNetTextClassifier.from_preset(tmp_path, head=name)
        found = model(features_of("base"))
        np.testing.assert_allclose(found, logits, err_msg=name, **TOLERANCE)
    for arguments, message in [
        ({}, "several heads for XLNetTextClassifier: 'demo', 'mnli'. Choose"),
        (
            dict(head="sst"),
            "no head 'sst' for XLNetTextClassifier. .*: 'demo', 'mnli'",
        ),
        (
            dict(head="mnli", num_classes=5),
            "head 'mnli' .* does not fit .*num_classes=5, not 2. Leave `head`",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            XLNetTextClassifier.from_preset(tmp_path, **arguments)


def same_backbone(model):
    other = XLNetBackbone.from_preset(GOLDEN / "base")
    assert_equal(model.backbone.trainable_weights, other.trainable_weights)


def test_the_checkpoint_of_a_bert_is_named(tmp_path):
    """No config of an XLNet is asked for, which it does not have."""
    tensors = {
        "bert/embeddings/word_embeddings": np.zeros([7, 4], "float32"),
        "bert/pooler/dense/bias": np.zeros([4], "float32"),
    }
    path = write(tmp_path / "bert", tensors, "bert_model.ckpt")
    (path / "xlnet_config.json").rename(path / "bert_config.json")
    for place in (path, path / "bert_model.ckpt"):
        with pytest.raises(ValueError, match="of a BERT.*transformers-cli con"):
            XLNetBackbone.from_preset(place)
    other = write(tmp_path / "other", {"electra/a": np.zeros(3, "float32")})
    (other / "xlnet_config.json").unlink()
    with pytest.raises(ValueError, match="not the checkpoint of an XLNet.*ele"):
        XLNetBackbone.from_preset(other)


def test_a_pretrained_checkpoint_gets_a_new_head(tmp_path):
    kept = ("model/transformer/", "model/lm_loss/")
    tensors = {
        name: value
        for name, value in released_tensors().items()
        if name.startswith(kept)
    }
    write(tmp_path, tensors)
    models = [
        XLNetTextClassifier.from_preset(tmp_path, **arguments)
        for arguments in (dict(num_classes=2), dict(labels=["a", "b"]))
    ]
    for model in models:
        same_backbone(model)
        assert model(features_of("base")).shape == (4, 2)
        assert not as_numpy(model.head.logits_dense.bias).any()
    kernels = [as_numpy(model.head.logits_dense.kernel) for model in models]
    assert np.abs(kernels[0] - kernels[1]).max() > 0
    message = "no head for XLNetTextClassifier, so its arguments .*num_classes"
    with pytest.raises(ValueError, match=message) as error:
        XLNetTextClassifier.from_preset(tmp_path)
    assert len(str(error.value).splitlines()) == 1
    # The language model is that of the fine-tuned checkpoint too.
    one, two = (
        XLNetPretrainer.from_preset(path)
        for path in (GOLDEN / "base", tmp_path)
    )
    assert as_numpy(one.head.bias).any()
    assert_equal(one.trainable_weights, two.trainable_weights)


def test_the_number_of_classes_decides_whether_a_head_is_kept():
    model = load(XLNetTextClassifier, "base", num_classes=5)
    same_backbone(model)
    assert model(features_of("base")).shape == (4, 5)
    assert not as_numpy(model.head.logits_dense.bias).any()
    labels = ["no", "maybe", "yes"]
    model = load(XLNetTextClassifier, "base", num_classes=3, labels=labels)
    np.testing.assert_allclose(
        model(features_of("base")),
        numbers_of("base")["classification_logits"],
        **TOLERANCE,
    )
    assert model.labels == labels


def test_labels_must_fit_the_head(tmp_path):
    message = "must name all 3 classes .* 2 labels, a, b. .*`num_classes=2` too"
    with pytest.raises(ValueError, match=message):
        load(XLNetTextClassifier, "base", labels=["a", "b"])
    model = load(XLNetTextClassifier, "base", labels=["a", "b", "c"])
    model.save_to_preset(tmp_path)
    message = "in the order of the head .*: a, b, c. Received: c, b, a"
    with pytest.raises(ValueError, match=message):
        XLNetTextClassifier.from_preset(tmp_path, labels=["c", "b", "a"])
    again = XLNetTextClassifier.from_preset(tmp_path, labels=["x", "y", "z"])
    assert again.labels == ["x", "y", "z"]


def test_half_a_head_is_refused(tmp_path):
    tensors = released_tensors()
    del tensors["model/classification_demo/logit/bias"]
    write(tmp_path, tensors)
    with pytest.raises(ValueError, match="missing: .*demo/logit/bias"):
        XLNetTextClassifier.from_preset(tmp_path)
