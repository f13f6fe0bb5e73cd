"""How good the outputs of a fine-tuned model are.

Legend: R examples, C classes, O options of a question.
"""

import itertools

import numpy as np

from xlnet_tf.tasks.metric_functions import METRICS
from xlnet_tf.tasks.metric_functions import check_lengths
from xlnet_tf.tasks.metric_functions import check_sentences
from xlnet_tf.tasks.metric_functions import find_metric

__all__ = [
    "MEAN",
    "METRICS",
    "METRICS_OF_KIND",
    "balanced_class_weights",
    "drop_padding",
    "evaluate",
    "find_metric",
    "is_better",
    "predictions_of",
]

MEAN = "mean"
LESS_IS_BETTER = frozenset({"mean_squared_error", "loss"})
METRICS_OF_KIND = {
    "classification": ("accuracy", "f1", "macro_f1", "matthews"),
    "regression": ("pearson", "spearman", "mean_squared_error"),
    "multiple_choice": ("accuracy",),
    "question_answering": ("squad_f1", "exact_match"),
    "token_classification": (
        "entity_f1",
        "entity_precision",
        "entity_recall",
        "accuracy",
        "macro_f1",
    ),
    "ranking": ("ndcg",),
}


def is_better(name, a, b):
    """Whether the value `a` of a metric is better than `b`.

    Args:
        name: str.
        a: float.
        b: float or None, nothing yet. Anything is better than None or nan, and
            nan is better than nothing.

    Returns:
        bool.
    """
    if np.isnan(a):
        return False
    if b is None or np.isnan(b):
        return True
    return bool(a < b if name in LESS_IS_BETTER else a > b)


def evaluate(
    kind,
    metric_names,
    targets,
    outputs,
    labels=None,
    groups=None,
    score_answers=None,
):
    """The metrics of what a model put out for examples without padding.

    Args:
        kind: str, the kind of task.
        metric_names: tuple of str, the main metric first. "mean" is the mean of
            the others named.
        targets: classification and multiple choice: [R] integers; regression
            and ranking: [R] numbers; token classification: a list of lists of
            tags (or ids, given `labels`); question answering: whatever
            `score_answers` takes.
        outputs: classification: logits [R, C]; multiple choice: logits [R, O],
            -inf where there is no option; regression and ranking: [R] or
            [R, 1]; token classification: a list of lists of tags (or ids);
            question answering: whatever `score_answers` takes.
        labels: tuple of str, names of the classes; default none.
        groups: sequence of R names. Ranking: the query of each document. Else
            the first metric is also given for each group, as "accuracy_high".
        score_answers: function (targets, outputs) -> dict of floats, the scores
            of question answering.

    Returns:
        dict of str to float, in the order of the names, then the groups'.

    Raises:
        ValueError: if a metric is not of this kind of task, there are no
            examples, lengths differ, or an output is not a number.
    """
    plain = [name for name in metric_names if name != MEAN]
    _check_names(kind, metric_names, plain)
    if kind == "question_answering":
        values = _answer_scores(score_answers, plain, targets, outputs)
    else:
        check_lengths(targets, outputs)
        if groups is not None:
            check_lengths(groups, outputs)
        if kind == "ranking":
            by_query = _by_query(targets, outputs, groups)
            values = {name: find_metric(name)(*by_query) for name in plain}
        else:
            values = _with_groups(kind, plain, targets, outputs, labels, groups)
    if MEAN in metric_names:
        values[MEAN] = float(np.mean([values[name] for name in plain]))
    ordered = [*metric_names, *(n for n in values if n not in metric_names)]
    return {name: values[name] for name in ordered}


def _check_names(kind, metric_names, plain):
    if kind not in METRICS_OF_KIND:
        raise ValueError(
            f"there is no such kind of task. Expected one of "
            f"{', '.join(METRICS_OF_KIND)}. Received: kind={kind!r}"
        )
    known = METRICS_OF_KIND[kind]
    for name in plain:
        if name.split("@")[0] not in known:
            raise ValueError(
                f"this is no metric of {kind}. Expected one of "
                f"{', '.join(known)}. Received: metric={name!r}"
            )
        if kind != "question_answering":
            find_metric(name)
    mixed = MEAN in metric_names and not LESS_IS_BETTER.isdisjoint(plain)
    if not plain or mixed:
        raise ValueError(
            f'name metrics, and "{MEAN}" only beside metrics of which more is '
            f"better. Received: metric_names={tuple(metric_names)}"
        )


def _answer_scores(score_answers, names, targets, outputs):
    if score_answers is None:
        raise ValueError(
            "question answering needs `score_answers`, a function (targets, "
            "outputs) -> dict of floats. Received: score_answers=None"
        )
    scores = score_answers(targets, outputs)
    return {name: float(scores[name]) for name in names}


def _by_query(targets, outputs, queries):
    """Lists of relevances and scores, a query each."""
    if queries is None:
        raise ValueError(
            "ranking needs the query of each document. Received: groups=None"
        )
    targets, scores = np.asarray(targets), _numbers(outputs)
    rows = [rows for _, rows in _rows_of_groups(queries)]
    return [targets[r] for r in rows], [scores[r] for r in rows]


def _rows_of_groups(groups):
    rows = {}
    for row, group in enumerate(() if groups is None else groups):
        rows.setdefault(group, []).append(row)
    return [(group, np.asarray(rows[group])) for group in rows]


def _take(values, rows):
    if isinstance(values, np.ndarray):
        return values[rows]
    return [values[row] for row in rows]


def _with_groups(kind, names, targets, outputs, labels, groups):
    """The metrics of all, and the first of each group."""
    predictions = predictions_of(kind, outputs, labels)
    if kind == "token_classification":
        targets = _tags(targets, labels)
        check_sentences(targets, predictions)
    else:
        targets = np.asarray(targets)
    values = _values(kind, names, targets, predictions)
    for group, rows in _rows_of_groups(groups):
        of_group = [_take(part, rows) for part in (targets, predictions)]
        value = _values(kind, names[:1], *of_group)[names[0]]
        values[f"{names[0]}_{group}"] = value
    return values


def _values(kind, names, targets, predictions):
    values = {}
    for name in names:
        parts = targets, predictions
        if kind == "token_classification" and not name.startswith("entity"):
            parts = [list(itertools.chain(*part)) for part in parts]
        values[name] = find_metric(name)(*parts)
    return values


def predictions_of(kind, outputs, labels=None):
    """What a model's outputs say: the best class or option, number or tags.

    Args:
        kind: str, all but question answering and ranking.
        outputs: see `evaluate`.
        labels: see `evaluate`.

    Returns:
        [R] array, or a list of lists of str.

    Raises:
        ValueError: if an output is not a number, or classes and labels differ
            in number.
    """
    if kind == "token_classification":
        return _tags(outputs, labels)
    if kind == "regression":
        return _numbers(outputs)
    outputs = np.asarray(outputs)
    no_option = kind == "multiple_choice"
    wrong = np.isnan(outputs) | np.isposinf(outputs)
    wrong |= np.isneginf(outputs) & (
        not no_option or np.isneginf(outputs).all(-1, keepdims=True)
    )
    _check_finite(~wrong)
    if kind == "classification" and labels is not None:
        if outputs.shape[-1] != len(labels):
            raise ValueError(
                f"as many labels as classes are expected. Received: "
                f"{len(labels)} labels and outputs of {outputs.shape[-1]} "
                "classes"
            )
    return outputs.argmax(-1)


def _numbers(outputs):
    outputs = np.asarray(outputs, np.float64).reshape(len(outputs))
    _check_finite(np.isfinite(outputs))
    return outputs


def _check_finite(right):
    rows = int((~right.reshape(len(right), -1)).any(-1).sum())
    if rows:
        raise ValueError(
            f"the outputs of {rows} of {len(right)} examples are not numbers: "
            "the training has diverged. Lower the learning rate, or warm up "
            "for longer."
        )


def _tags(sentences, labels):
    if labels is None:
        return [list(tags) for tags in sentences]
    return [
        [tag if isinstance(tag, str) else labels[tag] for tag in tags]
        for tags in sentences
    ]


def drop_padding(weights, *arrays):
    """Leaves out the rows that only fill a batch up.

    Args:
        weights: [R] numbers, 0 for a row that is padding.
        *arrays: arrays [R, ...], or lists of R.

    Returns:
        tuple of arrays and lists, without those rows.
    """
    rows = np.flatnonzero(np.asarray(weights) > 0)
    return tuple(_take(array, rows) for array in arrays)


def balanced_class_weights(labels, num_classes):
    """Weights that give every class the same say in the loss.

    A class of n of R examples weighs R / (n * classes that occur), so the mean
    over the examples is 1. One that does not occur weighs 1.

    Args:
        labels: [R] integers.
        num_classes: int, C.

    Returns:
        [C] float32.

    Raises:
        ValueError: if there are no labels, or one is not a class.
    """
    from sklearn.utils.class_weight import compute_class_weight

    labels = np.asarray(labels)
    classes = np.unique(labels)
    if not len(classes) or classes[0] < 0 or classes[-1] >= num_classes:
        raise ValueError(
            f"labels from 0 to {num_classes - 1} are expected. Received: "
            f"{classes[:3].tolist()} to {classes[-1:].tolist()}"
        )
    weights = np.ones(num_classes, np.float32)
    weights[classes] = compute_class_weight(
        "balanced", classes=classes, y=labels
    )
    return weights
