"""Pictures of answers: the confusion matrix, predicted numbers, F1 of spans.

Shapes: X examples, C classes.
"""

import io
import warnings

import numpy as np

from data_pipeline.base.files import write_bytes

_MOST_COUNTED_CLASSES = 40
_LONGEST_NAME = 28  # letters on an axis


def draw_confusion(file, targets, predictions, labels, title):
    """Draw the confusion matrix; up to 40 classes with its counts.

    A cell is as dark as its share of the examples of the true class.
    Matplotlib takes the letters of the names from the families of its setting
    `font.family`. Where these lack one, classes are shown by their numbers.

    Args:
        file: path of the PNG to write, whole or not at all.
        targets, predictions: [X] integers.
        labels: C names.
        title: str.

    Returns:
        bool, whether the names of the classes were drawn.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay
    from sklearn.metrics import confusion_matrix

    places = range(len(labels))
    with warnings.catch_warnings():  # of one class; the run has said so
        warnings.filterwarnings("ignore", message="A single label was found")
        counts = confusion_matrix(targets, predictions, labels=places)
    # Of a class that does not occur, each share is 0.
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def draw(names):
        # A name may hold a "$", which is no formula.
        with rc_context({"text.parse_math": False, "font.size": 7}):
            side = 2.5 + 0.26 * len(names)
            figure = Figure(figsize=(side + 1, side), layout="constrained")
            shown = ConfusionMatrixDisplay(shares, display_labels=names).plot(
                ax=figure.subplots(),
                include_values=len(names) <= _MOST_COUNTED_CLASSES,
                cmap="Blues",
                im_kw={"vmin": 0, "vmax": 1},
                xticks_rotation="vertical",
            )
            for place, text in np.ndenumerate(shown.text_):
                if text is not None:
                    text.set_text(f"{counts[place]}")
            figure.axes[0].set_title(title, loc="left")
            return png(figure)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        picture = draw([_shortened(str(label)) for label in labels])
    has_names = not any("missing from font" in str(x.message) for x in caught)
    if not has_names:
        warnings.warn(
            f"no font has all letters of the names of the classes, so "
            f"{file.name} shows their numbers. Name a font that has them in "
            "Matplotlib's setting `font.family`.",
            stacklevel=2,
        )
        picture = draw([str(place) for place in places])
    write_bytes(file, picture)
    return has_names


def draw_regression(file, targets, predictions, title):
    """Draw predicted numbers against true ones.

    Args:
        file: path of the PNG to write, whole or not at all.
        targets, predictions: [X] numbers.
        title: str.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 5), layout="constrained")
    axes = figure.subplots()
    axes.axline((targets[0], targets[0]), slope=1, color="#888888", zorder=0)
    axes.scatter(targets, predictions, s=12, alpha=0.5)
    axes.set(xlabel="true value", ylabel="predicted value")
    axes.set_title(title, loc="left", parse_math=False)
    write_bytes(file, png(figure))


def draw_answers(file, by_length, title):
    """Draw the F1 of answers to questions by the length of the true answer.

    Args:
        file: path of the PNG to write, whole or not at all.
        by_length: dict of str, a number of words, to (number of questions,
            F1 in percent).
        title: str.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 3.2), layout="constrained")
    axes = figure.subplots()
    bars = axes.bar(list(by_length), [f1 for _, f1 in by_length.values()])
    counts = [f"{count:,}" for count, _ in by_length.values()]
    axes.bar_label(bars, counts, fontsize=7)
    axes.set(
        xlabel="words of the true answer (above: number of questions)",
        ylabel="F1, percent",
        ylim=(0, 105),
    )
    axes.set_title(title, loc="left", parse_math=False)
    write_bytes(file, png(figure))


def _shortened(name):
    if len(name) <= _LONGEST_NAME:
        return name
    half = _LONGEST_NAME // 2
    return f"{name[:half]}…{name[1 - half :]}"


def png(figure):
    """A matplotlib.figure.Figure as bytes of a PNG."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150)
    return data.getvalue()
