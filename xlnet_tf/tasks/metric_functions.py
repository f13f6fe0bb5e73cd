"""Metrics by well-known libraries: functions (targets, predictions) -> float.

Legend: R examples.
"""

import functools
import re
import warnings

import numpy as np

_ENTITY_TAG = re.compile(r"O|[BIES]-.+")


def accuracy(targets, predictions):
    """Share of predictions that are right."""
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(targets, predictions))


def f1(targets, predictions):
    """F1 of class 1 of two; 0 where there is none and none is predicted."""
    from sklearn.metrics import f1_score

    targets, predictions = np.asarray(targets), np.asarray(predictions)
    for name, values in (("targets", targets), ("predictions", predictions)):
        if not np.isin(values, (0, 1)).all():
            raise ValueError(
                "f1 is that of class 1 of the classes 0 and 1; name macro_f1 "
                f"for more classes. Received: {name} with "
                f"{np.setdiff1d(values, (0, 1))[:5].tolist()}"
            )
    return float(
        f1_score(targets.astype(int), predictions.astype(int), zero_division=0)
    )


def macro_f1(targets, predictions):
    """Mean of the classes' F1, over those in the targets or predictions."""
    from sklearn.metrics import f1_score

    return float(
        f1_score(targets, predictions, average="macro", zero_division=0)
    )


def matthews(targets, predictions):
    """Matthews' correlation; 0 where either is constant."""
    from sklearn.metrics import matthews_corrcoef

    return float(matthews_corrcoef(targets, predictions))


def pearson(targets, predictions):
    """Pearson's correlation; 0, and a warning, where either is constant."""
    from scipy.stats import pearsonr

    return _correlation("pearson", pearsonr, targets, predictions)


def spearman(targets, predictions):
    """Spearman's correlation; 0, and a warning, where either is constant."""
    from scipy.stats import spearmanr

    return _correlation("spearman", spearmanr, targets, predictions)


def _correlation(name, function, targets, predictions):
    targets = np.asarray(targets, np.float64)
    predictions = np.asarray(predictions, np.float64)
    for what, values in (("targets", targets), ("predictions", predictions)):
        if np.ptp(values) == 0:
            warnings.warn(
                f"{name} is undefined, and given as 0: all {len(values)} "
                f"{what} are {values[0]:g}.",
                stacklevel=3,
            )
            return 0.0
    return float(function(targets, predictions)[0])


def mean_squared_error(targets, predictions):
    """Mean of the squared differences, in the targets' unit squared."""
    from sklearn import metrics

    return float(metrics.mean_squared_error(targets, predictions))


def entity_f1(targets, predictions):
    """F1 of whole entities, as conlleval counts them.

    Args:
        targets: list of lists of str, tags such as "B-person", "I-person", "O".
        predictions: the same.

    Returns:
        float; 0 where there are no entities.

    Raises:
        ValueError: if a tag says no place, or lengths differ.
    """
    return _of_entities("f1_score", targets, predictions)


def entity_precision(targets, predictions):
    """Share of the predicted entities that are right; see `entity_f1`."""
    return _of_entities("precision_score", targets, predictions)


def entity_recall(targets, predictions):
    """Share of the entities that were found; see `entity_f1`."""
    return _of_entities("recall_score", targets, predictions)


def _of_entities(function, targets, predictions):
    from seqeval import metrics

    targets, predictions = entity_tags(targets, predictions)
    return float(
        getattr(metrics, function)(targets, predictions, zero_division=0)
    )


def entity_tags(targets, predictions):
    """Checks tags and gives them as seqeval takes them.

    Returns:
        two lists of lists of str.

    Raises:
        ValueError: see `entity_f1`.
    """
    check_sentences(targets, predictions)
    both = []
    for name, sentences in (("targets", targets), ("predictions", predictions)):
        both.append([[str(tag) for tag in tags] for tags in sentences])
        for tag in sorted({tag for tags in both[-1] for tag in tags}):
            if not _ENTITY_TAG.fullmatch(tag):
                raise ValueError(
                    'entities need tags such as "B-person", "I-person" and '
                    f'"O"; name accuracy or macro_f1 for others. Received: '
                    f"{name} with {tag!r}"
                )
    return both


def ndcg(relevances, scores, k=None):
    """Normalized discounted cumulative gain, the mean over queries.

    A document's gain is its relevance, as in trec_eval (a negative one counts
    as 0); documents of equal score share their places, so that constant scores
    earn what chance does. A query without a relevant document scores 0, as in
    trec_eval, and a single document 1 if it is relevant.

    Args:
        relevances: list of arrays of numbers, one a query.
        scores: list of arrays of the same lengths.
        k: int, how many places count; default all.

    Returns:
        float.

    Source: Järvelin and Kekäläinen, 2002; McSherry and Najork, 2008 (ties).
    """
    from sklearn.metrics import ndcg_score

    check_lengths(relevances, scores)
    values = []
    for relevance, score in zip(relevances, scores, strict=True):
        relevance = np.maximum(np.asarray(relevance, np.float64), 0)
        check_lengths(relevance, score)
        if len(relevance) == 1:
            values.append(float(relevance[0] > 0))
        else:
            values.append(ndcg_score([relevance], [np.asarray(score)], k=k))
    return float(np.mean(values))


METRICS = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
    "mean_squared_error": mean_squared_error,
    "entity_f1": entity_f1,
    "entity_precision": entity_precision,
    "entity_recall": entity_recall,
    "ndcg": ndcg,
}


def find_metric(name):
    """The function (targets, predictions) -> float of a metric.

    Args:
        name: str, of `METRICS`, or such as "ndcg@20".

    Raises:
        ValueError: if there is no such metric; lists those there are.
    """
    cut = re.fullmatch(r"ndcg@([1-9]\d*)", name)
    if cut:
        return functools.partial(ndcg, k=int(cut[1]))
    if name not in METRICS:
        raise ValueError(
            f"there is no such metric. Expected one of {', '.join(METRICS)}, "
            f"ndcg@K. Received: name={name!r}"
        )
    return METRICS[name]


def check_lengths(targets, outputs):
    """Raises a ValueError where there is nothing, or not as many of both."""
    if len(targets) != len(outputs) or not len(targets):
        raise ValueError(
            "as many targets (or groups) as outputs are expected, at least "
            f"one. Received: {len(targets)} and {len(outputs)}"
        )


def check_sentences(targets, predictions):
    """Raises a ValueError where sentences differ in number or length."""
    check_lengths(targets, predictions)
    for row, (wanted, given) in enumerate(
        zip(targets, predictions, strict=True)
    ):
        if len(wanted) != len(given):
            raise ValueError(
                f"sentence {row} has {len(wanted)} tags and {len(given)} "
                "predicted ones; a word that was cut off is predicted as O."
            )
