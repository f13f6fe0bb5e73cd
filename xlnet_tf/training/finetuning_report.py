"""What a fine-tuned model gets right, class by class: tables and pictures.

Legend: R examples, C classes.
"""

import io
import pathlib
import warnings

import numpy as np

from xlnet_tf.files import write_bytes
from xlnet_tf.tasks.metric_functions import check_lengths
from xlnet_tf.tasks.metric_functions import entity_tags
from xlnet_tf.tasks.metric_functions import find_metric
from xlnet_tf.training.finetuning_fonts import families_for

_SCORES = ("precision", "recall", "f1", "support")
_MOST_NUMBERED_CLASSES = 40
_LONGEST_NAME = 28  # letters on an axis


def classification_report(targets, predictions, labels=None):
    """Precision, recall and F1 of each class.

    Args:
        targets: [R] integers.
        predictions: [R] integers.
        labels: sequence of C names; default the numbers from 0 on.

    Returns:
        dict: "accuracy"; "macro_average", over the classes that occur in the
        targets or predictions; "classes", a dict by name. Each but the accuracy
        has "precision", "recall", "f1" and "support", the number of targets.
        What would be a division by zero is 0.

    Raises:
        ValueError: if lengths differ, there is nothing, or a class has no
            label.
    """
    from sklearn.metrics import precision_recall_fscore_support

    targets, predictions, labels = _classes(targets, predictions, labels)
    columns = precision_recall_fscore_support(
        targets, predictions, labels=range(len(labels)), zero_division=0
    )
    macro = precision_recall_fscore_support(
        targets, predictions, average="macro", zero_division=0
    )
    return {
        "accuracy": find_metric("accuracy")(targets, predictions),
        "macro_average": _scores(*macro[:3], len(targets)),
        "classes": {
            label: _scores(*row)
            for label, row in zip(
                labels, zip(*columns, strict=True), strict=True
            )
        },
    }


def entity_report(targets, predictions):
    """Precision, recall and F1 of each type of entity, as conlleval counts.

    Args:
        targets: list of lists of str, tags such as "B-person", "I-person", "O".
        predictions: the same.

    Returns:
        dict: "micro_average", over all entities; "macro_average", over the
        types; "classes", a dict by type. Each is as in `classification_report`.

    Raises:
        ValueError: see `xlnet_tf.tasks.metric_functions.entity_f1`.
    """
    from seqeval import metrics
    from seqeval.metrics.sequence_labeling import get_entities

    targets, predictions = entity_tags(targets, predictions)
    names = ("micro avg", "macro avg")
    if get_entities(targets) or get_entities(predictions):
        rows = metrics.classification_report(
            targets, predictions, output_dict=True, zero_division=0
        )
        rows.pop("weighted avg")
    else:
        rows = {name: dict.fromkeys("prfs", 0) for name in names}
    rows = {name: _scores(*row.values()) for name, row in rows.items()}
    micro, macro = (rows.pop(name) for name in names)
    return {"micro_average": micro, "macro_average": macro, "classes": rows}


def _scores(precision, recall, f1, support):
    return {
        "precision": float(precision),
        "recall": float(recall),
        "f1": float(f1),
        "support": int(support),
    }


def _classes(targets, predictions, labels):
    """The arrays, checked, and the names of the classes."""
    check_lengths(targets, predictions)
    targets, predictions = np.asarray(targets), np.asarray(predictions)
    both = np.concatenate([targets, predictions])
    if labels is None:
        labels = range(both.max() + 1)
    if both.min() < 0 or both.max() >= len(labels):
        raise ValueError(
            f"classes from 0 to {len(labels) - 1} are expected, as there are "
            f"labels. Received: classes from {both.min()} to {both.max()}"
        )
    return targets, predictions, [str(label) for label in labels]


def report_text(report, numbered=False):
    """A report as an aligned table.

    Args:
        report: dict, of `classification_report` or `entity_report`.
        numbered: bool, whether classes have their numbers before their names,
            the key to a picture without names. Default False.

    Returns:
        str, lines without an end of line after the last.
    """
    averages = [
        (name.replace("_", " "), report[name])
        for name in ("micro_average", "macro_average")
        if name in report
    ]
    classes = list(report["classes"].items())
    if numbered:
        classes = [
            (f"{i} {name}", row) for i, (name, row) in enumerate(classes)
        ]
    rows = [*classes, *averages]
    width = max(len(name) for name, _ in [("class", None), *rows])
    counts = max(len("support"), *(len(f"{r['support']:,}") for _, r in rows))
    lines = [
        f"{'class':<{width}}  precision  recall     f1  {'support':>{counts}}"
    ]
    for name, row in rows:
        lines.append(
            f"{name:<{width}}  {row['precision']:9.3f}  {row['recall']:6.3f}  "
            f"{row['f1']:5.3f}  {row['support']:>{counts},}"
        )
    if "accuracy" in report:
        lines.append(f"{'accuracy':<{width}}  {report['accuracy']:9.3f}")
    return "\n".join(lines)


def draw_confusion_matrix(file, targets, predictions, labels=None, title=None):
    """Draws how often each class was taken for which.

    The colour is the share of the class; the number of examples is written
    where there are any, up to 40 classes. Where no installed font has the
    letters of the names, classes stand by their numbers, with a warning.

    Args:
        file: path of the PNG to write, whole or not at all.
        targets: [R] integers.
        predictions: [R] integers.
        labels: sequence of C names; default the numbers from 0 on.
        title: str; default the accuracy and R.

    Returns:
        bool, whether the names of the classes were drawn.

    Raises:
        ValueError: see `classification_report`.
    """
    targets, predictions, labels = _classes(targets, predictions, labels)
    counts = np.zeros((len(labels), len(labels)), np.int64)
    np.add.at(counts, (targets, predictions), 1)
    if title is None:
        accuracy = find_metric("accuracy")(targets, predictions)
        title = f"accuracy {accuracy:.3f} of {len(targets):,} examples"
    names = [_shortened(label) for label in labels]
    families = families_for("".join(names))
    if families is None:
        warnings.warn(
            f"no installed font has all letters of the names of the classes, "
            f"so {pathlib.Path(file).name} shows their numbers. A font such as "
            "Noto Sans CJK would mend it.",
            stacklevel=2,
        )
        names = [str(number) for number in range(len(labels))]
    _save(_confusion_figure(counts, names, families, title), file)
    return families is not None


def _confusion_figure(counts, names, families, title):
    from matplotlib.colors import PowerNorm
    from matplotlib.figure import Figure

    shares = counts / np.maximum(counts.sum(1, keepdims=True), 1)
    numbered = len(names) <= _MOST_NUMBERED_CLASSES
    size = 7 if numbered else 5  # of letters
    letter = 0.0115 * size  # inches
    longest = letter * max(map(len, names))
    cell = 0.12
    if numbered:
        digits = len(str(counts.max()))
        cell = max(letter * (digits + 1), 0.26, 2.6 / len(names))
    side = len(names) * cell
    large = max(8, 0.7 * side)
    figure = Figure(
        figsize=(side + longest + 0.1 * large, side + longest + 0.08 * large),
        layout="compressed",
    )
    axes = figure.subplots()
    # The square root, so that a few per cent can be told from none.
    norm = PowerNorm(0.5, vmin=0, vmax=1)
    image = axes.imshow(shares, cmap="Blues", norm=norm)
    bar = figure.colorbar(image, ax=axes, aspect=25, pad=0.02)
    bar.set_ticks([0, 0.02, 0.1, 0.25, 0.5, 1])
    bar.set_label("share of the true class", fontsize=large)
    bar.ax.tick_params(labelsize=large - 1)
    places = range(len(names))
    rotation = 0 if longest + letter < cell else 90
    style = {"fontsize": size, "parse_math": False}
    if families is not None:
        style["fontfamily"] = families
    axes.set_xticks(places, names, rotation=rotation, **style)
    axes.set_yticks(places, names, **style)
    axes.tick_params(length=2)
    axes.set_xlabel("predicted class", fontsize=large)
    axes.set_ylabel("true class", fontsize=large)
    axes.spines[:].set_visible(False)
    axes.set_title(title, fontsize=large + 1, loc="left", parse_math=False)
    if numbered:
        for row, column in zip(*np.nonzero(counts), strict=True):
            axes.text(
                column,
                row,
                str(counts[row, column]),
                ha="center",
                va="center",
                fontsize=size,
                color="white" if shares[row, column] > 0.3 else "#222222",
            )
    return figure


def draw_regression(file, targets, predictions, title=None):
    """Draws predicted numbers against true ones.

    Args:
        file: path of the PNG to write, whole or not at all.
        targets: [R] numbers.
        predictions: [R] numbers.
        title: str; default the correlations and R.

    Raises:
        ValueError: if lengths differ, or there is nothing.
    """
    from matplotlib.figure import Figure

    check_lengths(targets, predictions)
    targets = np.asarray(targets, np.float64)
    predictions = np.asarray(predictions, np.float64)
    if title is None:
        both = (targets, predictions)
        title = ", ".join(
            f"{name} {find_metric(name)(*both):.3f}"
            for name in ("pearson", "spearman")
        )
        title += f", {len(targets):,} examples"
    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    ends = [np.min([targets, predictions]), np.max([targets, predictions])]
    axes.plot(ends, ends, color="#888888", linewidth=1, zorder=0)
    axes.scatter(
        targets,
        predictions,
        s=12,
        alpha=max(0.15, min(0.8, 100 / len(targets))),
        color="#1b6ca8",
        linewidths=0,
    )
    axes.set_aspect("equal")
    axes.set_xlabel("true value")
    axes.set_ylabel("predicted value")
    axes.set_title(title, fontsize=9, loc="left", parse_math=False)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    _save(figure, file)


def _shortened(name):
    if len(name) <= _LONGEST_NAME:
        return name
    half = _LONGEST_NAME // 2
    return f"{name[:half]}…{name[1 - half :]}"


def _save(figure, file):
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150)
    write_bytes(pathlib.Path(file), data.getvalue())
