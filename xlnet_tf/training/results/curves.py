"""Pictures over thresholds, of probabilities and of a run's course.

Each function returns a matplotlib Figure, or a list of them.

Shapes: X examples.
"""

import numpy as np

from xlnet_tf.pictures import draw_curves
from xlnet_tf.training.results.analysis import calibration_bins


def draw_course(directory, metric):
    """Draw the training loss and the main metric of a run, by step.

    Args:
        directory: path of the run.
        metric: str, its name in `metrics.jsonl`.

    Returns:
        list of figures.
    """
    return [draw_curves([directory], name) for name in ("loss", metric)]


def draw_calibration(confidence, right):
    """Draw the share of right answers against the confidence.

    Args: see `calibration_bins`.
    """
    mean, accuracy, count = calibration_bins(confidence, right)
    figure, axes = _square("confidence", "share of right answers")
    axes.plot([0, 1], [0, 1], color="#888888", linewidth=1)
    axes.plot(mean, accuracy, marker="o")
    for place in zip(mean, accuracy, count, strict=True):
        axes.annotate(f"{place[2]:.0f}", place[:2], fontsize=7)
    axes.set(xlim=(0, 1), ylim=(-0.03, 1.03))
    return figure


def draw_ranked(is_positive, probability):
    """Draw the ROC and the precision-recall curve of two classes.

    Args: see `analysis.ranked`.

    Returns:
        list of two figures.
    """
    from sklearn.metrics import precision_recall_curve
    from sklearn.metrics import roc_curve

    false, true, _ = roc_curve(is_positive, probability)
    roc, axes = _square("false positives, share", "true positives, share")
    axes.plot([0, 1], [0, 1], color="#888888", linewidth=1)
    axes.plot(false, true)
    precision, recall, _ = precision_recall_curve(is_positive, probability)
    other, axes = _square("recall", "precision")
    axes.axhline(float(np.mean(is_positive)), color="#888888", linewidth=1)
    axes.plot(recall, precision)
    axes.set(xlim=(-0.03, 1.03), ylim=(-0.03, 1.03))
    return [roc, other]


def _square(xlabel, ylabel):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 4), layout="constrained")
    axes = figure.subplots()
    axes.set(xlabel=xlabel, ylabel=ylabel)
    axes.grid(alpha=0.3)
    return figure, axes
