"""Heads of the released code: its numbers, and checkpoints fine-tuned by it.

Numbers are those of `golden/*/golden.npz`, held to 1e-5 absolute in float32
(see `tests/test_reference_numbers.py`). Fine-tuned checkpoints are made from
the ones there by renaming variables and adding what an optimizer leaves.
"""

import functools
import json
import pathlib
import shutil

import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import as_numpy
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
NAMES = sorted(file.parent.name for file in GOLDEN.glob("*/xlnet_config.json"))
CHECKPOINT = "xlnet_model.ckpt"
TOLERANCE = dict(rtol=0, atol=1e-5)
# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
every_configuration = pytest.mark.parametrize("name", NAMES)
# Compiled once: `tests/test_reference_numbers.py` compiles every backbone.
each_way = pytest.mark.parametrize(
    "name, xla",
    [("base", True), *((name, False) for name in NAMES)],
    ids=lambda value: {True: "xla", False: "eager"}.get(value, value),
)


def load(cls, name, **arguments):
    run = json.loads((GOLDEN / name / "run.json").read_text())["run"]
    clamp_length = max(run["clamp_len"], 0)
    return cls.from_preset(
        GOLDEN / name, clamp_length=clamp_length, **arguments
    )


@functools.cache
def numbers_of(name):
    with np.load(GOLDEN / name / "golden.npz") as numbers:
        return dict(numbers)


def features_of(name):
    numbers = numbers_of(name)
    return {
        "token_ids": tf.constant(numbers["pad_input_ids"]),
        "segment_ids": tf.constant(numbers["pad_segment_ids"]),
        "padding_mask": tf.constant(1 - numbers["pad_mask"]),
    }


def run(model, features, xla):
    function = tf.function(model, jit_compile=True) if xla else model
    return as_numpy(function(features))


@each_way
def test_classification_and_regression_agree(name, xla):
    numbers = numbers_of(name)
    for cls, key in (
        (XLNetTextClassifier, "classification_logits"),
        (XLNetTextRegressor, "regression_logits"),
    ):
        logits = run(load(cls, name), features_of(name), xla)
        assert np.std(numbers[key]) > 1e-3
        np.testing.assert_allclose(logits, numbers[key], **TOLERANCE)


# One layer for each: TensorFlow numbers scopes that are entered again.
SUMMARIES = {"last": "", "first": "_1", "mean": "_2"}


@pytest.mark.parametrize("summary", SUMMARIES)
@every_configuration
def test_summaries_agree(name, summary):
    model = load(XLNetTextClassifier, name, summary=summary)
    scope = f"model/sequnece_summary{SUMMARIES[summary]}/summary"
    reader = tf.train.load_checkpoint(str(GOLDEN / name / CHECKPOINT))
    model.head.summary_dense.set_weights(
        [reader.get_tensor(f"{scope}/{part}") for part in ("kernel", "bias")]
    )
    content = model.backbone(features_of(name))["content"]
    np.testing.assert_allclose(
        as_numpy(model.head.summarize(content)),
        numbers_of(name)[f"summary_{summary}"],
        **TOLERANCE,
    )


def question_features(name):
    numbers = numbers_of(name)
    return {
        **features_of(name),
        "answer_mask": tf.constant(1 - numbers["qa_p_mask"]),
        "class_index": tf.constant(numbers["qa_cls_index"]),
    }


@each_way
def test_the_best_answers_agree(name, xla):
    numbers = numbers_of(name)
    model = load(XLNetQuestionAnswering, name, num_starts=3, num_ends=2)
    answers = run(model, question_features(name), xla)
    for key, value in {
        "start_top_log_probs": answers["start_top_scores"],
        "start_top_index": answers["start_top_positions"],
        "end_top_log_probs": answers["end_top_scores"].reshape(4, 6),
        "end_top_index": answers["end_top_positions"].reshape(4, 6),
        "cls_logits": answers["class_logits"],
    }.items():
        expected = numbers[f"qa_infer_{key}"]
        np.testing.assert_allclose(value, expected, err_msg=key, **TOLERANCE)


@each_way
def test_training_for_questions_agrees(name, xla):
    numbers = numbers_of(name)
    features = question_features(name)
    features["start_positions"] = tf.constant(numbers["qa_start_positions"])
    answers = run(load(XLNetQuestionAnswering, name), features, xla)
    allowed = numbers["qa_p_mask"] == 0
    for key in ("start", "end"):
        scores = answers[f"{key}_scores"]
        expected = numbers[f"qa_train_{key}_log_probs"]
        np.testing.assert_allclose(
            scores[allowed], expected[allowed], err_msg=key, **TOLERANCE
        )
        assert (scores[~allowed] < -1e29).all()
    np.testing.assert_allclose(
        answers["class_logits"], numbers["qa_train_cls_logits"], **TOLERANCE
    )


def released_tensors():
    reader = tf.train.load_checkpoint(str(GOLDEN / "base" / CHECKPOINT))
    names = reader.get_variable_to_shape_map()
    return {name: reader.get_tensor(name) for name in names}


def write(directory, tensors, checkpoint=CHECKPOINT):
    """A directory with these variables, as TensorFlow 1 saves them."""
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


def with_slots(tensors):
    """What the released optimizer leaves beside every variable."""
    slots = {}
    for name, value in tensors.items():
        slots[f"{name}/adam_m"] = np.full_like(value, 7)
        slots[f"{name}/adam_v"] = np.full_like(value, 8)
    return {**tensors, **slots, "global_step": np.int64(4000)}


def with_tf1_adam(tensors):
    """What `tf.train.AdamOptimizer` and averaging leave."""
    slots = {}
    for name, value in tensors.items():
        slots[f"{name}/Adam"] = np.full_like(value, 7)
        slots[f"{name}/Adam_1"] = np.full_like(value, 8)
        slots[f"{name}/ExponentialMovingAverage"] = np.full_like(value, 9)
    powers = {"beta1_power": np.float32(0.9), "beta2_power": np.float32(0.99)}
    return {**tensors, **slots, **powers, "global_step": np.int64(4000)}


FINE_TUNED = {
    "weights alone": lambda tensors: tensors,
    "with slots": with_slots,
    "with slots of TensorFlow's Adam": with_tf1_adam,
    "without scope": lambda tensors: renamed(tensors, "model/", ""),
    "in an outer scope": lambda tensors: with_slots(
        {f"xlnet/{name}": value for name, value in tensors.items()}
    ),
    "in another scope": lambda tensors: renamed(tensors, "model/", "my_xlnet/"),
    "spelling corrected": lambda tensors: renamed(
        tensors, "sequnece", "sequence"
    ),
}


@pytest.mark.parametrize("kind", FINE_TUNED)
def test_fine_tuned_checkpoints_are_read(tmp_path, kind):
    tensors = FINE_TUNED[kind](released_tensors())
    write(tmp_path, tensors, f"{CHECKPOINT}-4000")
    numbers, features = numbers_of("base"), features_of("base")
    logits = XLNetTextClassifier.from_preset(tmp_path)(features)
    np.testing.assert_allclose(
        logits, numbers["classification_logits"], **TOLERANCE
    )
    if kind != "in another scope":  # heads for questions are outside of it
        model = XLNetQuestionAnswering.from_preset(tmp_path)
        answers = model(question_features("base"))
        np.testing.assert_allclose(
            answers["class_logits"], numbers["qa_infer_cls_logits"], **TOLERANCE
        )


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


@pytest.fixture
def several(tmp_path):
    """A checkpoint with two heads for classes, "demo" and "mnli"."""
    tensors = released_tensors()
    for part in ("kernel", "bias"):
        demo = tensors[f"model/classification_demo/logit/{part}"]
        tensors[f"model/classification_mnli/logit/{part}"] = 2 * demo[..., :2]
    return write(tmp_path, tensors)


def test_of_several_heads_none_is_guessed(several):
    message = "several heads for XLNetTextClassifier: 'demo', 'mnli'. Choose"
    with pytest.raises(ValueError, match=message):
        XLNetTextClassifier.from_preset(several)


def test_a_head_is_chosen_by_name(several):
    expected = numbers_of("base")["classification_logits"]
    for name, logits in (("demo", expected), ("mnli", 2 * expected[:, :2])):
        model = XLNetTextClassifier.from_preset(several, head=name)
        np.testing.assert_allclose(
            model(features_of("base")), logits, **TOLERANCE
        )


def test_a_head_of_an_unknown_name_is_refused(several):
    message = "no head 'sst' for XLNetTextClassifier. .*: 'demo', 'mnli'"
    with pytest.raises(ValueError, match=message):
        XLNetTextClassifier.from_preset(several, head="sst")


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory):
    """A checkpoint with no head but that of the language model."""
    kept = ("model/transformer/", "model/lm_loss/")
    tensors = {
        name: value
        for name, value in released_tensors().items()
        if name.startswith(kept)
    }
    return write(tmp_path_factory.mktemp("pretrained"), tensors)


def same_backbone(model):
    other = XLNetBackbone.from_preset(GOLDEN / "base")
    return all(
        np.array_equal(as_numpy(one), as_numpy(two))
        for one, two in zip(
            model.backbone.trainable_weights,
            other.trainable_weights,
            strict=True,
        )
    )


def test_a_pretrained_checkpoint_gets_a_fresh_head(pretrained):
    models = [
        XLNetTextClassifier.from_preset(pretrained, num_classes=2)
        for _ in range(2)
    ]
    for model in models:
        assert same_backbone(model)
        assert model(features_of("base")).shape == (4, 2)
        assert not as_numpy(model.head.logits_dense.bias).any()
    kernels = [as_numpy(model.head.logits_dense.kernel) for model in models]
    assert np.abs(kernels[0] - kernels[1]).max() > 0


def test_the_number_of_classes_must_be_known(pretrained):
    message = "no head for XLNetTextClassifier, so its arguments .*num_classes"
    with pytest.raises(ValueError, match=message) as error:
        XLNetTextClassifier.from_preset(pretrained)
    assert len(str(error.value).splitlines()) == 1


def test_another_number_of_classes_means_a_fresh_head():
    model = load(XLNetTextClassifier, "base", num_classes=5)
    assert same_backbone(model)
    assert model(features_of("base")).shape == (4, 5)
    assert not as_numpy(model.head.logits_dense.bias).any()


def test_the_same_number_of_classes_keeps_the_head():
    labels = ["no", "maybe", "yes"]
    model = load(XLNetTextClassifier, "base", num_classes=3, labels=labels)
    np.testing.assert_allclose(
        model(features_of("base")),
        numbers_of("base")["classification_logits"],
        **TOLERANCE,
    )
    assert model.labels == labels


def test_a_language_model_is_read_from_a_fine_tuned_checkpoint(pretrained):
    models = [
        XLNetPretrainer.from_preset(path)
        for path in (GOLDEN / "base", pretrained)
    ]
    assert as_numpy(models[0].head.bias).any()
    for one, two in zip(
        *(model.trainable_weights for model in models), strict=True
    ):
        np.testing.assert_array_equal(as_numpy(one), as_numpy(two))


def test_half_a_head_is_refused(tmp_path):
    tensors = released_tensors()
    del tensors["model/classification_demo/logit/bias"]
    write(tmp_path, tensors)
    with pytest.raises(ValueError, match="missing: .*demo/logit/bias"):
        XLNetTextClassifier.from_preset(tmp_path)
