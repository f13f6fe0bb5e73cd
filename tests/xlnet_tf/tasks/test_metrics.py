"""Metrics against their formulae and literal values."""

import math

import numpy as np
import pytest

from xlnet_tf import tasks
from xlnet_tf.tasks import metrics
from xlnet_tf.tasks.metrics import METRICS

# Of 11 examples: 4 true positives, 2 false positives, 1 false negative.
TARGETS = [1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
PREDICTIONS = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]


def evaluate(kind, names, targets, predictions, groups=None):
    found = tasks.task_kind(kind)
    return metrics.evaluate(found, names, targets, predictions, groups)


def test_classes_by_counts():
    tp, fp, fn, tn = 4, 2, 1, 4
    names = ("matthews", "accuracy", "f1", "mean")
    found = evaluate("classification", names, TARGETS, PREDICTIONS)
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    expected = {
        "matthews": (tp * tn - fp * fn) / math.sqrt(product),
        "accuracy": (tp + tn) / 11,
        "f1": 2 * tp / (2 * tp + fp + fn),
    }
    expected["mean"] = sum(expected.values()) / 3
    assert found == pytest.approx(expected, rel=1e-12)
    assert list(found) == list(names)
    assert all(type(value) is float for value in found.values())
    # Each of the classes 0, 1, 2 has an F1 of 2 / 3, 4 of 0; 3 never occurs.
    value = METRICS["macro_f1"]([0, 0, 1, 2, 2], [0, 1, 1, 2, 4])
    assert value == pytest.approx(0.5, rel=1e-12)
    assert METRICS["f1"]([0, 0, 0], [0, 0, 0]) == 0
    assert METRICS["f1"]([1, 1], [1, 1]) == 1
    assert METRICS["matthews"]([0, 1, 0], [1, 1, 1]) == 0


def test_metrics_of_numbers():
    numbers = [0.0, 1.0, 2.0, 3.0], [1.0, 0.0, 3.0, 3.0]
    for name, value in (
        ("pearson", 4.5 / math.sqrt(5 * 6.75)),
        ("spearman", 3.5 / math.sqrt(5 * 4.5)),
        ("mean_squared_error", 0.75),
    ):
        assert METRICS[name](*numbers) == pytest.approx(value, rel=1e-9), name


def test_correlations_with_a_constant_are_zero():
    for name in ("pearson", "spearman"):
        for targets, predictions, told in (
            ([1.0, 2.0, 3.0], [2.5] * 3, "predictions are 2.5"),
            ([1.0] * 3, [1.0, 2.0, 3.0], "targets are 1"),
            ([1.0], [2.0], "all 1 targets are 1"),
        ):
            message = f"{name} is undefined.*{told}"
            with pytest.warns(UserWarning, match=message):
                assert METRICS[name](targets, predictions) == 0


ENTITY_TARGETS = [
    ["B-person", "I-person", "O", "B-group"],
    ["O", "B-person", "B-person"],
    ["B-creative-work", "I-creative-work"],
]
# Right: the first person and the work. Wrong: a group of two words, and one
# person of two words for two.
ENTITY_PREDICTIONS = [
    ["B-person", "I-person", "B-group", "I-group"],
    ["O", "B-person", "I-person"],
    ["B-creative-work", "I-creative-work"],
]


def test_entities_count_whole(recwarn):
    found = evaluate(
        "token_classification",
        ("entity_f1", "entity_precision", "entity_recall", "accuracy"),
        ENTITY_TARGETS,
        ENTITY_PREDICTIONS,
    )
    expected = {
        "entity_f1": 2 * 2 / (5 + 4),
        "entity_precision": 2 / 4,
        "entity_recall": 2 / 5,
        "accuracy": 6 / 9,
    }
    assert found == pytest.approx(expected)
    assert METRICS["entity_f1"]([["O", "O"]], [["O", "O"]]) == 0
    assert METRICS["entity_f1"]([["O", "O"]], [["O", "B-x"]]) == 0
    assert not recwarn


def discounted(gains):
    return sum(gain / math.log2(i + 2) for i, gain in enumerate(gains))


def test_ndcg_by_formula():
    relevances = [[3.0, 0.0, 2.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    scores = [[0.1, 0.9, 0.8, 0.2, -4.0], [1.0, 3.0, 2.0]]
    first = discounted([0, 2, 1]) / discounted([3, 2, 1])
    found = evaluate("ranking", ("ndcg@3",), relevances, scores)
    assert found == {"ndcg@3": pytest.approx((first + 1) / 2, rel=1e-12)}
    whole = discounted([0, 2, 1, 3, 0]) / discounted([3, 2, 1, 0, 0])
    assert METRICS["ndcg"](relevances, scores) == pytest.approx((whole + 1) / 2)


def test_ndcg_where_the_formula_says_nothing():
    ndcg = METRICS["ndcg"]
    assert ndcg([[0, 0, 0]], [[1.0, 2.0, 3.0]]) == 0
    assert ndcg([[2]], [[-1.0]]) == 1
    assert ndcg([[0]], [[-1.0]]) == 0
    # A negative relevance, such as that of junk, counts as none.
    assert ndcg([[1, -2]], [[2.0, 1.0]]) == ndcg([[1, 0]], [[2.0, 1.0]]) == 1
    # Equal scores: the mean over the orders of two documents.
    by_chance = (1 + 1 / math.log2(3)) / 2
    assert ndcg([[1, 0]], [[5.0, 5.0]]) == pytest.approx(by_chance)


def test_the_first_metric_is_given_by_group():
    targets, predictions = np.array([2, 0, 1, 3, 1]), np.array([2, 0, 0, 3, 3])
    groups = ["middle", "high", "high", "middle", "high"]
    names = ("accuracy",)
    found = evaluate("multiple_choice", names, targets, predictions, groups)
    assert found == {
        "accuracy": 3 / 5,
        "accuracy_middle": 1,
        "accuracy_high": pytest.approx(1 / 3),
    }
    assert list(found)[0] == "accuracy"


def test_better():
    is_better = metrics.is_better
    assert is_better("accuracy", 0.9, 0.8)
    assert not is_better("accuracy", 0.8, 0.8)
    assert not is_better("accuracy", 0.7, 0.8)
    for name in ("mean_squared_error", "loss"):
        assert is_better(name, 0.7, 0.8)
        assert not is_better(name, 0.8, 0.7)
    for name in ("accuracy", "mean_squared_error"):
        assert is_better(name, 0.5, None)
        assert is_better(name, 0.5, math.nan)
        assert not is_better(name, math.nan, 0.5)
        assert not is_better(name, math.nan, None)
        assert not is_better(name, math.nan, math.nan)


def test_probabilities_of_large_logits():
    found = metrics.probabilities([[1000.0, 1000.0], [0.0, math.log(3)]])
    np.testing.assert_allclose(found, [[0.5, 0.5], [0.25, 0.75]], rtol=1e-12)


def test_errors():
    two = ([0, 1], [0, 1])
    for arguments, message in (
        (("sorting", ("accuracy",), *two), "no such kind.*'sorting'"),
        (("classification", ("pearson",), *two), "not a metric of classif"),
        (("ranking", ("ndcg@0",), *two), "'ndcg@0'"),
        (("classification", ("mean",), *two), "only together with metrics"),
        (("regression", ("mean", "mean_squared_error"), *two), "more is bett"),
        (("classification", ("accuracy",), [], []), "0 and 0"),
        (("classification", ("accuracy",), [1], [0, 1]), "1 and 2"),
        (("multiple_choice", ("accuracy",), *two, ["a"]), "1 and 2"),
        (("classification", ("f1",), [0, 2], [0, 1]), "targets with .2."),
        (
            ("token_classification", ("accuracy",), [["O"]], [["O", "O"]]),
            "sentence 0 has 1 tags and 2",
        ),
        (
            ("token_classification", ("entity_f1",), [["NOUN"]], [["O"]]),
            "targets with 'NOUN'",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            evaluate(*arguments)
    with pytest.raises(ValueError, match="ndcg@K.*'meteor'"):
        metrics.find_metric("meteor")
    message = "1 of 2 examples are not numbers.*Lower the learning rate"
    for wrong in (math.nan, math.inf, -math.inf):
        with pytest.raises(ValueError, match=message):
            metrics.check_numbers([[1.0, 2.0], [wrong, 1.0]])
