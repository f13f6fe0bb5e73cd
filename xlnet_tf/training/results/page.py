"""Report of a run as a self-contained page of HTML.

Shapes: X examples, C classes.
"""

import warnings

import numpy as np

from data_pipeline.base.files import as_path
from data_pipeline.base.files import write_bytes
from data_pipeline.base.limits import in_a_line
from xlnet_tf.training.results import analysis
from xlnet_tf.training.results import curves
from xlnet_tf.training.results.influence import influence_of_words
from xlnet_tf.training.results.markup import element
from xlnet_tf.training.results.markup import page
from xlnet_tf.training.results.markup import picture
from xlnet_tf.training.results.markup import table
from xlnet_tf.training.results.pictures import png
from xlnet_tf.training.results.report import ANSWERS_FILE
from xlnet_tf.training.results.report import CONFUSION_FILE
from xlnet_tf.training.results.report import REGRESSION_FILE
from xlnet_tf.training.results.report import REPORT_FILE
from xlnet_tf.training.results.report import prediction_rows

PAGE_FILE = "report.html"
MOST_ERRORS = 100
_MOST_CHARACTERS = 2000  # of a cell
_OF_TEXTS = ("classification", "multi_label", "regression")
_FIRST = ("row", "where", "text", "text_pair")
_LEFT_OUT = {"id", "label", "labels", "right", "n_best", "probabilities"}


def write_page(directory, results, task, kind, examples, decoded, labels=None):
    """Write `report.html`. What cannot be drawn is left out with a warning.

    Args:
        directory: path of the run, with the pictures of `write_report`.
        results: dict of `make_results`.
        task: TaskSpec.
        kind: TaskKind around the model.
        examples: list of X examples with labels.
        decoded: list of X dicts, of `Task.decode`.
        labels: tuple of C str, the classes, or None.
    """
    directory = as_path(directory)
    rows = prediction_rows(examples, decoded)
    content = [_summary(results, len(rows))]
    found = results.get("analysis", {})
    content += [
        element("p", note, class_="note") for note in analysis.notes_of(found)
    ]
    for title, draw in (
        ("Course", lambda: _course(directory, results["metric"])),
        ("Answers", lambda: _answers(directory)),
        ("Probabilities", lambda: _probabilities(rows, found)),
        (
            "Worst errors",
            lambda: _errors(task, kind, examples, rows, labels),
        ),
    ):
        try:
            parts = draw()
        # No error here may cost a run its results.
        except Exception as error:  # noqa: BLE001
            warnings.warn(
                f"{PAGE_FILE} has no section {title!r}: {in_a_line(error)}",
                stacklevel=2,
            )
            continue
        if parts:
            content += [element("h2", title), *parts]
    title = f"{results['task']}: fine-tuning run"
    write_bytes(directory / PAGE_FILE, page(title, content))


def _summary(results, count):
    facts = [
        ["held-out examples", count],
        ["training examples", results["examples"]],
        ["steps", results["steps"]],
        ["started from", f"{results['preset']}, {results['started_from']}"],
        ["seed", results["seed"]],
    ]
    metrics = [[name, value] for name, value in results["metrics"].items()]
    return table(["", ""], metrics + facts)


def _course(directory, metric):
    figures = curves.draw_course(directory, metric)
    return [picture(png(x), "values by step") for x in figures]


def _answers(directory):
    parts = []
    for name, what in (
        (CONFUSION_FILE, "confusion matrix"),
        (REGRESSION_FILE, "predicted numbers against true ones"),
        (ANSWERS_FILE, "F1 by the length of the true answer"),
    ):
        if (directory / name).is_file():
            parts.append(picture((directory / name).read_bytes(), what))
    report = directory / REPORT_FILE
    if report.is_file():
        parts.append(element("pre", report.read_text("utf-8")))
    return parts


def _probabilities(rows, found):
    if "calibration_error" not in found:
        return []
    confidence = [max(row["probabilities"].values()) for row in rows]
    figures = [
        curves.draw_calibration(confidence, [row["right"] for row in rows])
    ]
    if "positive" in found:
        positive = found["positive"]
        figures += curves.draw_ranked(
            np.array([row["true_label"] == positive for row in rows]),
            np.array([row["probabilities"][positive] for row in rows]),
        )
    names = ("calibration", "ROC curve", "precision and recall")
    shown = [
        picture(png(figure), name)
        for figure, name in zip(figures, names, strict=False)
    ]
    caption = "Calibration: numbers are those of the examples."
    if "positive" in found:
        caption += f" ROC, precision and recall are of {found['positive']}."
    return [*shown, element("p", caption, class_="caption")]


def _errors(task, kind, examples, rows, labels):
    """The worst errors, the worst first."""
    sizes = [_size_of_error(row) for row in rows]
    order = sorted(range(len(rows)), key=lambda i: (-sizes[i], i))
    order = [i for i in order if sizes[i] > 0][:MOST_ERRORS]
    if not order:
        return []
    shown = [_cells(rows[i]) for i in order]
    influences = None
    if task.kind in _OF_TEXTS:
        weights = [_weights(rows[i], labels) for i in order]
        influences = influence_of_words(
            kind, [examples[i] for i in order], labels, weights
        )
    for cells, words in zip(
        shown, influences or [None] * len(shown), strict=True
    ):
        if words is not None:
            cells["words"] = _coloured(words)
    header = list(dict.fromkeys(name for cells in shown for name in cells))
    parts = [
        table(
            [name.replace("_", " ") for name in header],
            [[cells.get(name) for name in header] for cells in shown],
        )
    ]
    if influences:
        caption = (
            "Words, as far as they were read: red ones speak for what was "
            "predicted, green ones for what is true, by gradient times "
            "embedding."
        )
        parts.insert(0, element("p", caption, class_="caption"))
    return parts


def _size_of_error(row):
    """float, above 0 for errors, and larger for worse ones."""
    if "true_score" in row:
        return abs(row["score"] - row["true_score"])
    if "true_labels" in row:
        return max(
            abs((name in row["true_labels"]) - x)
            * ((name in row["true_labels"]) != (name in row["labels"]))
            for name, x in row["probabilities"].items()
        )
    if "true_answers" in row:
        is_right = row["answer"] in (row["true_answers"] or [""])
        return 0.0 if is_right else 1.0
    if row.get("right", True):
        return 0.0
    if "tags" in row:
        pairs = zip(row["tags"], row["true_tags"], strict=True)
        return float(sum(a != b for a, b in pairs))
    values = row.get("probabilities", [1.0])
    return max(values.values() if isinstance(values, dict) else values)


def _cells(row):
    """dict of name to cell, of what an error shows."""
    cells = {name: row[name] for name in _FIRST if name in row}
    for name, value in row.items():
        if name not in cells and name not in _LEFT_OUT:
            cells[name] = value
    probabilities = row.get("probabilities")
    if isinstance(probabilities, dict) and "labels" in row:
        cells["predicted_labels"] = row["labels"]
        cells["probabilities"] = {
            k: round(v, 3) for k, v in probabilities.items()
        }
    elif probabilities:
        values = probabilities
        if isinstance(probabilities, dict):
            values = probabilities.values()
        cells["probability"] = float(max(values))
    return {name: _cut(value) for name, value in cells.items()}


def _cut(value):
    if isinstance(value, dict):
        value = ", ".join(f"{k} {x}" for k, x in value.items())
    elif isinstance(value, list):
        value = ", ".join(map(str, value))
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return value[:_MOST_CHARACTERS] + "…"
    return value


def _weights(row, labels):
    """Weights of the logits whose sum speaks for the error."""
    if "true_score" in row:
        return float(np.sign(row["score"] - row["true_score"]))
    if "true_labels" in row:
        return [
            float(name in row["labels"]) - float(name in row["true_labels"])
            for name in labels
        ]
    return [
        float(name == row["predicted_label"]) - float(name == row["true_label"])
        for name in labels
    ]


def _coloured(words):
    most = max((abs(x) for _, x in words), default=0.0) or 1.0
    parts = []
    for word, value in words:
        colour = "214,39,40" if value > 0 else "44,160,44"
        style = f"background: rgba({colour},{abs(value) / most * 0.7:.2f})"
        parts += [element("span", word, style=style), " "]
    return element("span", *parts)
