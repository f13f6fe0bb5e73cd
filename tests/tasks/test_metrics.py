"""Metrics are what their formulae say, and padding is never counted."""

import math

import numpy as np
import pytest

from xlnet_tf.tasks import metrics as finetuning_metrics
from xlnet_tf.tasks.metrics import METRICS
from xlnet_tf.tasks.metrics import evaluate

RANDOM = np.random.default_rng(7)

# Of 11 examples: 4 true positives, 2 false positives, 1 false negative.
BINARY_TARGETS = [1, 1, 1, 1, 0, 0, 1, 0, 0, 0, 0]
BINARY_PREDICTIONS = [1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0]


def logits_of(classes, num_classes):
    """Logits whose largest is at the class; the others are noise."""
    logits = RANDOM.uniform(-3, 1, (len(classes), num_classes))
    logits[np.arange(len(classes)), classes] = 2.0
    return logits


def test_accuracy_f1_and_matthews_by_counts():
    tp, fp, fn, tn = 4, 2, 1, 4
    metrics = evaluate(
        "classification",
        ("matthews", "accuracy", "f1", "mean"),
        BINARY_TARGETS,
        logits_of(BINARY_PREDICTIONS, 2),
        labels=("0", "1"),
    )
    product = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
    expected = {
        "matthews": (tp * tn - fp * fn) / math.sqrt(product),
        "accuracy": (tp + tn) / 11,
        "f1": 2 * tp / (2 * tp + fp + fn),
    }
    expected["mean"] = sum(expected.values()) / 3
    assert metrics == pytest.approx(expected, rel=1e-12)
    assert list(metrics) == ["matthews", "accuracy", "f1", "mean"]
    assert all(type(value) is float for value in metrics.values())


def test_macro_f1_is_the_mean_over_classes_that_occur():
    targets, predictions = [0, 0, 1, 2, 2], [0, 1, 1, 2, 4]
    one_each = [2 / 3, 2 / 3, 2 / 3, 0]  # classes 0, 1, 2 and 4; never 3
    value = METRICS["macro_f1"](targets, predictions)
    assert value == pytest.approx(sum(one_each) / 4, rel=1e-12)


def test_f1_and_matthews_without_positives_are_zero():
    assert METRICS["f1"]([0, 0, 0], [0, 0, 0]) == 0
    assert METRICS["f1"]([1, 1], [1, 1]) == 1
    assert METRICS["matthews"]([0, 1, 0], [1, 1, 1]) == 0


def correlation(a, b):
    a, b = a - a.mean(), b - b.mean()
    return (a * b).sum() / math.sqrt((a * a).sum() * (b * b).sum())


def ranks(values):
    """Places from 1; equal values share the mean of theirs."""
    return np.array(
        [
            (values < v).sum() + ((values == v).sum() + 1) / 2
            for v in np.asarray(values)
        ]
    )


def test_correlations_and_squared_error_by_formulae():
    targets = np.array([0.0, 1.5, 1.5, 2.25, 4.0, 5.0, 3.5])
    outputs = np.array([0.3, 1.0, 2.5, 2.5, 3.0, 9.0, 2.6], np.float32)
    metrics = evaluate(
        "regression",
        ("pearson", "spearman", "mean_squared_error"),
        targets,
        outputs[:, None],
    )
    assert metrics["pearson"] == pytest.approx(correlation(targets, outputs))
    assert metrics["spearman"] == pytest.approx(
        correlation(ranks(targets), ranks(outputs))
    )
    assert metrics["mean_squared_error"] == pytest.approx(
        sum((t - o) ** 2 for t, o in zip(targets, outputs, strict=True)) / 7
    )


@pytest.mark.parametrize("name", ["pearson", "spearman"])
@pytest.mark.parametrize(
    ("targets", "predictions", "what"),
    [
        ([1.0, 2.0, 3.0], [2.5] * 3, "predictions are 2.5"),
        ([1.0] * 3, [1.0, 2.0, 3.0], "targets are 1"),
        ([1.0], [2.0], "all 1 targets are 1"),
    ],
)
def test_correlations_with_a_constant_are_zero(
    name, targets, predictions, what
):
    with pytest.warns(UserWarning, match=f"{name} is undefined.*{what}"):
        assert METRICS[name](targets, predictions) == 0


ENTITY_TARGETS = [
    ["B-person", "I-person", "O", "B-group"],
    ["O", "B-person", "B-person"],
    ["B-creative-work", "I-creative-work"],
]
# Right: the first person, one of two in the second sentence, the work. Wrong:
# a group of two words; a person that begins too late.
ENTITY_PREDICTIONS = [
    ["B-person", "I-person", "B-group", "I-group"],
    ["O", "B-person", "I-person"],
    ["B-creative-work", "I-creative-work"],
]


def spans(sentences):
    """Entities by a walk over B- and I- tags."""
    found = set()
    for row, tags in enumerate(sentences):
        for start, tag in enumerate(tags):
            if tag.startswith("B-"):
                end = start + 1
                while end < len(tags) and tags[end] == "I-" + tag[2:]:
                    end += 1
                found.add((row, start, end, tag[2:]))
    return found


def test_entities_count_whole():
    wanted, given = spans(ENTITY_TARGETS), spans(ENTITY_PREDICTIONS)
    right = len(wanted & given)
    assert (len(wanted), len(given), right) == (5, 4, 2)
    metrics = evaluate(
        "token_classification",
        ("entity_f1", "entity_precision", "entity_recall", "accuracy"),
        ENTITY_TARGETS,
        tuple(map(tuple, ENTITY_PREDICTIONS)),
    )
    assert metrics == pytest.approx(
        {
            "entity_f1": 2 * right / (5 + 4),
            "entity_precision": right / 4,
            "entity_recall": right / 5,
            "accuracy": 6 / 9,
        }
    )


def test_tags_may_be_ids():
    labels = sorted({tag for tags in ENTITY_TARGETS for tag in tags})
    labels += ["I-group"]
    ids = [
        [
            np.array([labels.index(tag) for tag in tags], np.int32)
            for tags in sentences
        ]
        for sentences in (ENTITY_TARGETS, ENTITY_PREDICTIONS)
    ]
    names = ("entity_f1", "macro_f1")
    assert evaluate("token_classification", names, *ids, labels=labels) == (
        evaluate(
            "token_classification", names, ENTITY_TARGETS, ENTITY_PREDICTIONS
        )
    )


def test_no_entities_are_zero_without_a_warning(recwarn):
    assert METRICS["entity_f1"]([["O", "O"]], [["O", "O"]]) == 0
    assert METRICS["entity_f1"]([["O", "O"]], [["O", "B-x"]]) == 0
    assert not recwarn


def discounted(gains):
    return sum(gain / math.log2(i + 2) for i, gain in enumerate(gains))


def test_ndcg_by_formula():
    relevances = [[3.0, 0.0, 2.0, 1.0, 0.0], [0.0, 1.0, 0.0]]
    scores = [[0.1, 0.9, 0.8, 0.2, -4.0], [1.0, 3.0, 2.0]]
    first = discounted([0, 2, 1]) / discounted([3, 2, 1])
    assert evaluate(
        "ranking",
        ("ndcg@3",),
        sum(relevances, []),
        sum(scores, []),
        groups=["q7"] * 5 + ["q2"] * 3,
    ) == {"ndcg@3": pytest.approx((first + 1) / 2, rel=1e-12)}
    whole = discounted([0, 2, 1, 3, 0]) / discounted([3, 2, 1, 0, 0])
    assert METRICS["ndcg"](relevances, scores) == pytest.approx((whole + 1) / 2)


def test_ndcg_of_queries_whose_documents_are_not_in_a_row():
    relevance, scores = np.array([1, 0, 0, 2, 1]), np.array([1.0, 3, 2, 4, 5])
    queries = ["a", "b", "a", "b", "a"]
    a = discounted([1, 0, 1]) / discounted([1, 1])
    metrics = evaluate(
        "ranking", ("ndcg@10",), relevance, scores, None, queries
    )
    assert metrics["ndcg@10"] == pytest.approx((a + 1) / 2)


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


def test_multiple_choice_by_group_and_without_missing_options():
    targets = [2, 0, 1, 3, 1]
    outputs = np.array(
        [
            [0.1, 0.2, 0.9, 0.3],
            [-5.0, -6.0, -np.inf, -np.inf],
            [1.0, 0.0, -1.0, -np.inf],
            [1.0, 2.0, 3.0, 4.0],
            [1.0, 2.0, 3.0, 4.0],
        ]
    )
    groups = ["middle", "high", "high", "middle", "high"]
    metrics = evaluate(
        "multiple_choice", ("accuracy",), targets, outputs, groups=groups
    )
    assert metrics == {
        "accuracy": 3 / 5,
        "accuracy_middle": 1,
        "accuracy_high": pytest.approx(1 / 3),
    }
    assert list(metrics)[0] == "accuracy"


def test_answers_are_scored_by_the_function_given():
    def score_answers(targets, outputs):
        assert (targets, outputs) == ("examples", "spans")
        return {"exact_match": np.float32(0.5), "squad_f1": 0.75, "total": 8}

    assert evaluate(
        "question_answering",
        ("squad_f1", "exact_match"),
        "examples",
        "spans",
        score_answers=score_answers,
    ) == {"squad_f1": 0.75, "exact_match": 0.5}


PADDED = {
    "classification": (
        ("macro_f1", "accuracy"),
        RANDOM.integers(0, 5, 13),
        RANDOM.normal(size=(13, 5)),
        None,
    ),
    "regression": (
        ("pearson", "spearman", "mean_squared_error"),
        RANDOM.normal(size=13),
        RANDOM.normal(size=13),
        None,
    ),
    "multiple_choice": (
        ("accuracy",),
        RANDOM.integers(0, 3, 13),
        RANDOM.normal(size=(13, 3)),
        np.array(["middle", "high", "high"] * 5)[:13],
    ),
    "token_classification": (
        ("entity_f1", "accuracy"),
        (ENTITY_TARGETS * 5)[:13],
        (ENTITY_PREDICTIONS * 5)[:13],
        None,
    ),
    "ranking": (
        ("ndcg@2",),
        np.array([5.0, 0, 1, 2, 0, 3, 0, 0, 1, 1, 2, 0, 1]),
        RANDOM.normal(size=13),
        np.arange(13) // 5,
    ),
}


@pytest.mark.parametrize("kind", PADDED)
def test_a_padded_last_batch_changes_no_metric(kind):
    names, *arrays = PADDED[kind]
    targets, outputs, groups = arrays
    expected = evaluate(kind, names, targets, outputs, groups=groups)
    padded = []
    for array in arrays:
        if isinstance(array, np.ndarray):  # as batches repeat their first row
            array = np.concatenate([array, array[[0, 0, 0]]])
        elif array is not None:
            array = array + [["B-person"]] * 3
        padded.append(array)
    weights = np.array([1.0] * 13 + [0.0] * 3)
    if groups is None:
        padded = padded[:2]
    targets, outputs, *groups = finetuning_metrics.drop_padding(
        weights, *padded
    )
    groups = groups[0] if groups else None
    assert evaluate(kind, names, targets, outputs, groups=groups) == expected
    if kind == "token_classification":
        padded[1] = padded[1][:-1] + [["O"]]
    metrics = evaluate(
        kind,
        names,
        *padded[:2],
        groups=padded[2] if groups is not None else None,
    )
    assert metrics != expected  # so that the padding above was felt


def test_padding_in_the_middle_and_small_weights():
    weights = [0, 0.25, 0, 3]
    rows, names = finetuning_metrics.drop_padding(
        weights, np.arange(8).reshape(4, 2), ["a", "b", "c", "d"]
    )
    assert rows.tolist() == [[2, 3], [6, 7]]
    assert names == ["b", "d"]


def test_better():
    is_better = finetuning_metrics.is_better
    assert is_better("accuracy", 0.9, 0.8)
    assert not is_better("accuracy", 0.8, 0.8)
    assert not is_better("accuracy", 0.7, 0.8)
    assert is_better("mean_squared_error", 0.7, 0.8)
    assert not is_better("mean_squared_error", 0.8, 0.7)
    assert is_better("loss", 0.7, 0.8)
    for name in ("accuracy", "mean_squared_error"):
        assert is_better(name, 0.5, None)
        assert is_better(name, 0.5, math.nan)
        assert not is_better(name, math.nan, 0.5)
        assert not is_better(name, math.nan, None)


def test_class_weights_balance_the_classes():
    labels = [0] * 6 + [1] * 3 + [3]
    weights = finetuning_metrics.balanced_class_weights(labels, 5)
    assert weights.dtype == np.float32
    # 10 examples, 3 classes that occur; classes 2 and 4 do not.
    expected = [10 / 18, 10 / 9, 1, 10 / 3, 1]
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    assert weights[labels].mean() == pytest.approx(1)


TWO = ([0, 1], np.eye(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sorting", ("accuracy",), *TWO), "no such kind.*'sorting'"),
        (("classification", ("pearson",), *TWO), "no metric of classification"),
        (("ranking", ("ndcg@0",), *TWO, None, [1, 1]), "'ndcg@0'"),
        (("classification", ("mean",), *TWO), "only beside metrics"),
        (
            ("regression", ("mean", "mean_squared_error"), [1], [1]),
            "more is better",
        ),
        (("classification", ("accuracy",), [], []), "0 and 0"),
        (("classification", ("accuracy",), [1], np.eye(2)), "1 and 2"),
        (("classification", ("f1",), [0, 2], np.eye(2)), "targets with .2."),
        (
            ("classification", ("accuracy",), *TWO, ("a", "b", "c")),
            "3 labels and outputs of 2",
        ),
        (
            ("classification", ("accuracy",), [0, 1], [[1, 2], [1, math.nan]]),
            "1 of 2 examples are not numbers",
        ),
        (
            ("classification", ("accuracy",), [0, 1], [[1, 2], [1, -math.inf]]),
            "1 of 2 examples are not numbers",
        ),
        (
            ("multiple_choice", ("accuracy",), [0], [[-math.inf, -math.inf]]),
            "not numbers.*Lower the learning rate",
        ),
        (("regression", ("pearson",), [0, 1], [1, math.inf]), "not numbers"),
        (("ranking", ("ndcg",), [0, 1], [1, 2]), "the query of each document"),
        (("ranking", ("ndcg",), [0, 1], [1, 2], None, [1]), "1 and 2"),
        (("question_answering", ("squad_f1",), [0], [1]), "score_answers"),
        (
            ("token_classification", ("accuracy",), [["O"]], [["O", "O"]]),
            "sentence 0 has 1 tags and 2",
        ),
        (
            ("token_classification", ("entity_f1",), [["NOUN"]], [["O"]]),
            "targets with 'NOUN'",
        ),
    ],
)
def test_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        evaluate(*arguments)


def test_errors_of_the_rest():
    with pytest.raises(ValueError, match="ndcg@K.*'bleu'"):
        finetuning_metrics.find_metric("bleu")
    for labels in ([0, 3], [], [-1, 0]):
        with pytest.raises(ValueError, match="labels from 0 to 2"):
            finetuning_metrics.balanced_class_weights(labels, 3)
