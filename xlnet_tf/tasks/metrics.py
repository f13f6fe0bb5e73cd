"""Metrics of tasks, from scikit-learn, SciPy, seqeval, sacreBLEU, rouge-score.

SQuAD's metrics are in `squad.py`.

Shapes: R examples, C classes.
"""

import importlib
import itertools
import re
import warnings

import numpy as np

MEAN = "mean"
LESS_IS_BETTER = frozenset(
    {
        "mean_squared_error",
        "root_mean_squared_error",
        "mean_absolute_error",
        "loss",
    }
)

_ENTITY_TAG = re.compile(r"O|[BIES]-.+")


def _from_library(module, function, **options):
    """Wrap a library's metric; the first call imports the library."""

    def metric(targets, predictions):
        score = getattr(importlib.import_module(module), function)
        return float(score(targets, predictions, **options))

    return metric


def f1(targets, predictions):
    """F1 of class 1 in binary classification; 0 if class 1 does not occur."""
    from sklearn.metrics import f1_score

    for name, values in (("targets", targets), ("predictions", predictions)):
        others = np.setdiff1d(values, (0, 1))
        if len(others):
            raise ValueError(
                "f1 measures class 1 of the classes 0 and 1; name macro_f1 "
                f"for more classes. Received: {name} with "
                f"{others[:5].tolist()}"
            )
    both = (np.asarray(x).astype(int) for x in (targets, predictions))
    return float(f1_score(*both, zero_division=0))


def _correlation(function):
    """Wrap a SciPy correlation; a constant input gives 0 and a warning."""

    def metric(targets, predictions):
        from scipy import stats

        both = {"targets": targets, "predictions": predictions}
        both = {k: np.asarray(v, np.float64) for k, v in both.items()}
        for name, values in both.items():
            if np.ptp(values) == 0:
                warnings.warn(
                    f"{function[:-1]} is undefined, and given as 0: all "
                    f"{len(values)} {name} are {values[0]:g}.",
                    stacklevel=3,
                )
                return 0.0
        return float(getattr(stats, function)(*both.values())[0])

    return metric


def r2(targets, predictions):
    """Coefficient of determination: at most 1, and 0 for predicting the mean.

    If all targets are equal, the coefficient is undefined and the result is 0.
    """
    from sklearn.metrics import r2_score

    if np.ptp(np.asarray(targets, np.float64)) == 0:
        return 0.0
    return float(r2_score(targets, predictions))


def average_precision(targets, probabilities):
    """Average precision over all classes together; 0 if no target is 1.

    Args:
        targets: [R, C], 1 = the example has the class, 0 = it has not.
        probabilities: [R, C].
    """
    from sklearn.metrics import average_precision_score

    if not np.any(targets):
        return 0.0
    score = average_precision_score(targets, probabilities, average="micro")
    return float(score)


def _of_entities(function):
    """Wrap a metric of whole entities, as in conlleval; 0 without entities."""
    metric = _from_library("seqeval.metrics", function, zero_division=0)

    def checked(targets, predictions):
        return metric(*entity_tags(targets, predictions))

    return checked


def entity_tags(targets, predictions):
    """Convert tags such as "B-person", "I-person" and "O" to seqeval's form.

    Args:
        targets, predictions: lists of lists of str.

    Raises:
        ValueError: if a tag other than "O" lacks the prefix B, I, E or S, or
            targets and predictions have different lengths.
    """
    check_sentences(targets, predictions)
    both = []
    for name, sentences in (("targets", targets), ("predictions", predictions)):
        both.append([[str(tag) for tag in tags] for tags in sentences])
        for tag in sorted(set(itertools.chain(*both[-1]))):
            if not _ENTITY_TAG.fullmatch(tag):
                raise ValueError(
                    'entities need tags such as "B-person", "I-person" and '
                    f'"O"; name accuracy or macro_f1 for others. Received: '
                    f"{name} with {tag!r}"
                )
    return both


def ndcg(relevances, scores, k=None):
    """Mean normalized discounted cumulative gain over queries.

    The gain of a document is its relevance, or 0 if the relevance is negative.
    A query without a relevant document has the value 0. Both rules are as in
    trec_eval. Documents of equal score get the mean discount of their places.
    So if all scores are equal, the value is the expected value of a random
    order. A query with one document has the value 1 if the document is
    relevant.

    Args:
        relevances, scores: lists with one array of numbers per query.
        k: int, number of first places that count. Default: all places.

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


def _of_corpus(function):
    """Wrap a sacreBLEU metric: one value, 0 to 100, for all texts together."""

    def metric(targets, predictions):
        import sacrebleu

        return float(getattr(sacrebleu, function)(predictions, [targets]).score)

    return metric


def _rouge(name):
    """Make a ROUGE metric: mean F1 over texts, from 0 to 1, with stemming."""

    def metric(targets, predictions):
        from rouge_score.rouge_scorer import RougeScorer

        score = RougeScorer([name], use_stemmer=True).score
        pairs = zip(targets, predictions, strict=True)
        return float(np.mean([score(*pair)[name].fmeasure for pair in pairs]))

    return metric


METRICS = {
    "accuracy": _from_library("sklearn.metrics", "accuracy_score"),
    "f1": f1,
    "macro_f1": _from_library(
        "sklearn.metrics", "f1_score", average="macro", zero_division=0
    ),
    "micro_f1": _from_library(
        "sklearn.metrics", "f1_score", average="micro", zero_division=0
    ),
    "average_precision": average_precision,
    "matthews": _from_library("sklearn.metrics", "matthews_corrcoef"),
    "pearson": _correlation("pearsonr"),
    "spearman": _correlation("spearmanr"),
    "mean_squared_error": _from_library(
        "sklearn.metrics", "mean_squared_error"
    ),
    "root_mean_squared_error": _from_library(
        "sklearn.metrics", "root_mean_squared_error"
    ),
    "mean_absolute_error": _from_library(
        "sklearn.metrics", "mean_absolute_error"
    ),
    "r2": r2,
    "entity_f1": _of_entities("f1_score"),
    "entity_precision": _of_entities("precision_score"),
    "entity_recall": _of_entities("recall_score"),
    "ndcg": ndcg,
    "bleu": _of_corpus("corpus_bleu"),
    "chrf": _of_corpus("corpus_chrf"),
    "rouge1": _rouge("rouge1"),
    "rouge2": _rouge("rouge2"),
    "rouge_l": _rouge("rougeL"),
}


def find_metric(name):
    """Find the function of a metric: (targets, predictions) -> float.

    Args:
        name: str, a key of `METRICS`, or "ndcg@K" with a number K, such as
            "ndcg@20".

    Raises:
        ValueError: if no metric has this name; the message lists the valid
            names.
    """
    cut = re.fullmatch(r"ndcg@([1-9]\d*)", name)
    if cut:
        return lambda targets, scores: ndcg(targets, scores, int(cut[1]))
    if name not in METRICS:
        raise ValueError(
            f"there is no such metric. Expected one of {', '.join(METRICS)}, "
            f"ndcg@K. Received: name={name!r}"
        )
    return METRICS[name]


def is_better(name, a, b):
    """Whether the value `a` of a metric is better than `b`.

    Args:
        name: str, name of the metric.
        a: float. NaN is never better than `b`.
        b: float, or None for no value yet. Any number is better than None or
            NaN.
    """
    if np.isnan(a):
        return False
    if b is None or np.isnan(b):
        return True
    return bool(a < b if name in LESS_IS_BETTER else a > b)


def evaluate(kind, names, targets, predictions, groups=None):
    """Compute the metrics of predictions.

    Args:
        kind: TaskKind; `names` must be in its `metric_names`.
        names: tuple of str, the main metric first. "mean" is the average of the
            other metrics.
        targets, predictions: [R] classes, numbers or texts. For R sentences,
            both are R lists of tags. For R queries, the targets are R lists of
            relevances, and the predictions are R lists of scores.
        groups: sequence of R names of groups, or None (default). The first
            metric is also computed for each group, with a name such as
            "accuracy_high".

    Returns:
        dict of str to float: the metrics of `names`, then one for each group.

    Raises:
        ValueError: if a metric does not fit this kind of task, there are no
            examples, or targets and predictions have different lengths.
    """
    plain = [name for name in names if name != MEAN]
    _check_names(kind, names, plain)
    check_lengths(targets, predictions)
    values = {name: _value(name, targets, predictions) for name in plain}
    rows_of = {}
    if groups is not None:
        check_lengths(groups, predictions)
        for row, group in enumerate(groups):
            rows_of.setdefault(group, []).append(row)
    for group, rows in rows_of.items():
        parts = ([x[row] for row in rows] for x in (targets, predictions))
        values[f"{plain[0]}_{group}"] = _value(plain[0], *parts)
    if MEAN in names:
        values[MEAN] = float(np.mean([values[name] for name in plain]))
    return {name: values[name] for name in dict.fromkeys([*names, *values])}


def _check_names(kind, names, plain):
    for name in plain:
        if name.split("@")[0] not in kind.metric_names:
            raise ValueError(
                f"this is not a metric of {kind.name}. Expected one of "
                f"{', '.join(kind.metric_names)}. Received: metric={name!r}"
            )
        find_metric(name)
    mixed = MEAN in names and not LESS_IS_BETTER.isdisjoint(plain)
    if not plain or mixed:
        raise ValueError(
            f'name at least one metric, and "{MEAN}" only together with '
            "metrics where more is better. Received: "
            f"metric_names={tuple(names)}"
        )


def _value(name, *parts):
    # Here each tag counts by itself; metrics of entities need whole sentences.
    if name in ("accuracy", "macro_f1") and isinstance(parts[0][0], list):
        check_sentences(*parts)
        parts = [list(itertools.chain(*part)) for part in parts]
    return find_metric(name)(*parts)


def check_numbers(values):
    """Refuse outputs [R, ...] that are infinite or NaN."""
    is_number = np.isfinite(np.asarray(values)).reshape(len(values), -1)
    rows = int((~is_number).any(-1).sum())
    if rows:
        raise ValueError(
            f"the outputs of {rows} of {len(values)} examples are not numbers: "
            "the training has diverged. Lower the learning rate, or warm up "
            "for longer."
        )


def check_lengths(targets, outputs):
    """Refuse empty targets, and targets and outputs of different lengths."""
    if len(targets) != len(outputs) or not len(targets):
        raise ValueError(
            "expected as many targets (or groups) as outputs, and at least "
            f"one. Received: {len(targets)} and {len(outputs)}"
        )


def check_sentences(targets, predictions):
    """Refuse predictions with more or fewer sentences or tags than targets."""
    check_lengths(targets, predictions)
    for row, both in enumerate(zip(targets, predictions, strict=True)):
        wanted, given = map(len, both)
        if wanted != given:
            raise ValueError(
                f"sentence {row} has {wanted} tags and {given} "
                "predicted ones; a word that was cut off is predicted as O."
            )


def sigmoid(logits):
    """Compute the sigmoid of logits, float64."""
    from scipy.special import expit

    return expit(np.asarray(logits, np.float64))


def probabilities(logits):
    """Compute the softmax of logits [..., C], float64."""
    from scipy.special import softmax

    return softmax(np.asarray(logits, np.float64), axis=-1)
