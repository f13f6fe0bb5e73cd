"""Models and outputs of the released code's heads, from `golden/`."""

import json
import pathlib

import numpy as np
import tensorflow as tf

from tests.support.oracle import as_numpy
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
NAMES = sorted(file.parent.name for file in GOLDEN.glob("*/golden.npz"))
CHECKPOINT = "xlnet_model.ckpt"
# Float32, see tests/xlnet_tf/model/test_reference_numbers.py.
TOLERANCE = dict(rtol=0, atol=1e-5)


def load(cls, name, **arguments):
    run = json.loads((GOLDEN / name / "run.json").read_text())["run"]
    clamp_length = max(run["clamp_len"], 0)
    return cls.from_preset(
        GOLDEN / name, clamp_length=clamp_length, **arguments
    )


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


def question_features(name):
    numbers = numbers_of(name)
    return {
        **features_of(name),
        "answer_mask": tf.constant(1 - numbers["qa_p_mask"]),
        "class_index": tf.constant(numbers["qa_cls_index"]),
    }


def check_heads(name, run):
    """Compare the heads for classes, numbers and questions with the outputs.

    Args:
        name: str, name of a directory in `golden/`.
        run: function of (model, features) that returns the outputs.
    """
    numbers = numbers_of(name)
    for cls, key in (
        (XLNetTextClassifier, "classification_logits"),
        (XLNetTextRegressor, "regression_logits"),
    ):
        logits = as_numpy(run(load(cls, name), features_of(name)))
        assert np.std(numbers[key]) > 1e-3
        np.testing.assert_allclose(logits, numbers[key], **TOLERANCE)

    model = load(XLNetQuestionAnswering, name, num_starts=3, num_ends=2)
    answers = as_numpy(run(model, question_features(name)))
    for key, value in {
        "start_top_log_probs": answers["start_top_scores"],
        "start_top_index": answers["start_top_positions"],
        "end_top_log_probs": answers["end_top_scores"].reshape(4, 6),
        "end_top_index": answers["end_top_positions"].reshape(4, 6),
        "cls_logits": answers["class_logits"],
    }.items():
        expected = numbers[f"qa_infer_{key}"]
        np.testing.assert_allclose(value, expected, err_msg=key, **TOLERANCE)

    starts = tf.constant(numbers["qa_start_positions"])
    features = {**question_features(name), "start_positions": starts}
    answers = as_numpy(run(model, features))
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
