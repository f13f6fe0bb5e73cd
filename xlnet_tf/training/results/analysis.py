"""Statistics of answers: thresholds, calibration and spread.

Shapes: X examples.
"""

import math

import numpy as np

from xlnet_tf.tasks.multi_label_classifier import multi_hot

BINS = 10  # number of bins for the calibration
LEAST_SPREAD = 0.05


def analyse(task, examples, decoded, labels=None):
    """Compute statistics of the answers to labelled examples.

    Args:
        task: TaskSpec.
        examples: list of X examples with labels.
        decoded: list of X dicts, results of `TaskKind.decode`.
        labels: tuple of str, the classes, or None.

    Returns:
        dict of JSON values. For tasks with one class per text, the dict has
        `calibration_error`. If such a task has two classes, the dict also has
        the entries of `ranked`, and `positive`, the name of the positive class.
        For tasks with several classes per text, the entries of `ranked` are
        computed from all pairs of a text and a class, and `positive` is "all
        classes together". These entries and `positive` are left out if the true
        answers are all positive or all negative. For regression tasks, the dict
        has `spread`, the standard deviation of the predictions divided by the
        standard deviation of the true numbers, or None if the true numbers are
        equal. For all other tasks the dict is empty.
    """
    if task.kind == "regression":
        targets = np.array([float(x.label) for x in examples])
        scores = np.array([one["score"] for one in decoded])
        spread = np.std(targets)
        return {"spread": float(np.std(scores) / spread) if spread else None}
    if task.kind == "multi_label":
        targets, _, probability = multi_hot(examples, decoded)
        if 0 < targets.sum() < targets.size:
            together = ranked(targets.ravel() > 0, probability.ravel())
            return {"positive": "all classes together", **together}
        return {}
    if task.kind != "classification":
        return {}
    truth = [str(x.label) for x in examples]
    rows = [one["probabilities"] for one in decoded]
    right = [one["label"] == x for one, x in zip(decoded, truth, strict=True)]
    confidence = [max(row.values()) for row in rows]
    figures = {"calibration_error": calibration_error(confidence, right)}
    if len(labels) == 2 and len(set(truth)) == 2:
        positive = labels[1]
        is_positive = np.array([x == positive for x in truth])
        probability = np.array([row[positive] for row in rows])
        figures |= {"positive": positive, **ranked(is_positive, probability)}
    return figures


def calibration_bins(confidence, right):
    """Compute the mean confidence and the accuracy of each confidence bin.

    Args:
        confidence: [X], probabilities of the predicted classes.
        right: [X] bool, whether the predicted classes are right.

    Returns:
        Three arrays with a value for each non-empty bin: mean confidence, share
        of right answers, and number of examples.
    """
    confidence = np.asarray(confidence, np.float64)
    right = np.asarray(right, np.float64)
    place = np.minimum((confidence * BINS).astype(int), BINS - 1)
    count = np.bincount(place, minlength=BINS)
    kept = count > 0
    sums = (np.bincount(place, x, BINS)[kept] for x in (confidence, right))
    return (*(x / count[kept] for x in sums), count[kept])


def calibration_error(confidence, right):
    """Compute the expected calibration error, from 0 (best) to 1.

    Args: see `calibration_bins`.

    Returns:
        float, a mean over all examples. The value of an example is the distance
        between two numbers: the mean confidence and the accuracy of the
        example's bin.

    Source: Naeini et al., 2015; ten bins of equal width.
    """
    mean, accuracy, count = calibration_bins(confidence, right)
    return float(np.sum(np.abs(mean - accuracy) * count) / np.sum(count))


def ranked(is_positive, probability):
    """Compute metrics of binary predictions over all thresholds.

    Args:
        is_positive: [X] bool, whether the positive class is the true class.
            Both values must occur.
        probability: [X], probability of the positive class.

    Returns:
        dict of `roc_auc`, `average_precision`, `best_threshold` and `best_f1`.
        `best_f1` is the highest F1. It is reached if examples with a
        probability of at least `best_threshold` count as positive. This
        threshold is half way to the next lower probability, or to 0. So
        rounding does not change the predictions.
    """
    from sklearn.metrics import average_precision_score
    from sklearn.metrics import precision_recall_curve
    from sklearn.metrics import roc_auc_score

    precision, recall, thresholds = precision_recall_curve(
        is_positive, probability
    )
    both = precision[:-1] + recall[:-1]  # the last point has no threshold
    f1 = 2 * precision[:-1] * recall[:-1] / np.where(both > 0, both, 1)
    best = int(np.argmax(f1))
    lower = thresholds[best - 1] if best else 0.0
    return {
        "roc_auc": float(roc_auc_score(is_positive, probability)),
        "average_precision": float(
            average_precision_score(is_positive, probability)
        ),
        "best_threshold": float((lower + thresholds[best]) / 2),
        "best_f1": float(f1[best]),
    }


def notes_of(analysis):
    """Describe the results of `analyse` in a list of lines."""
    lines = []
    if "best_threshold" in analysis:
        lines.append(
            f"held out, the F1 of {analysis['positive']} is highest, "
            f"{analysis['best_f1']:.4g}, from a probability of "
            f"{analysis['best_threshold']:.4g} on; ROC AUC "
            f"{analysis['roc_auc']:.4g}, average precision "
            f"{analysis['average_precision']:.4g}"
        )
    if "calibration_error" in analysis:
        lines.append(
            "probabilities differ from the share of right answers by "
            f"{analysis['calibration_error']:.4g} on average (expected "
            "calibration error)"
        )
    spread = analysis.get("spread", math.inf)
    if spread is not None and spread < LEAST_SPREAD:
        lines.append(
            "the predictions hardly vary: their standard deviation is "
            f"{spread:.2%} of the true values', so that a correlation means "
            "little"
        )
    return lines
