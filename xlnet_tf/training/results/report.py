"""Report of a fine-tuning run as a self-contained HTML page.

The page contains its pictures and loads no other files. Its content security
policy forbids network access.

Shapes: X examples, C classes.
"""

import base64
import re
import warnings
import xml.etree.ElementTree as ElementTree

import numpy as np

from data_pipeline.base.files import as_path
from data_pipeline.base.files import write_bytes
from data_pipeline.base.limits import in_a_line
from xlnet_tf.pictures import draw_curves
from xlnet_tf.training.results.analysis import calibration_bins
from xlnet_tf.training.results.analysis import notes_of
from xlnet_tf.training.results.influence import influence_of_words
from xlnet_tf.training.results.predictions import ANSWERS_FILE
from xlnet_tf.training.results.predictions import CONFUSION_FILE
from xlnet_tf.training.results.predictions import REGRESSION_FILE
from xlnet_tf.training.results.predictions import REPORT_FILE
from xlnet_tf.training.results.predictions import png
from xlnet_tf.training.results.predictions import prediction_rows

PAGE_FILE = "report.html"
MOST_ERRORS = 100
_MOST_CHARACTERS = 2000  # largest number of characters in a cell
_OF_TEXTS = ("classification", "multi_label", "regression")
_FIRST = ("row", "where", "text", "text_pair")
_LEFT_OUT = {"id", "label", "labels", "right", "n_best", "probabilities"}
_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; color: #222; margin: 2em auto;
  max-width: 75em; padding: 0 1em; }
h1 { font-size: 1.5em; } h2 { font-size: 1.2em; margin-top: 2em; }
table { border-collapse: collapse; } td, th { padding: .25em .7em;
  border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
td.text { max-width: 45em; overflow-wrap: anywhere; }
img { max-width: 100%; } pre { overflow-x: auto; }
p.note, p.caption { color: #555; }
"""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufffe\uffff]")


def write_page(directory, results, task, kind, examples, decoded, labels=None):
    """Write the page `report.html`; warn of parts that fail and are left out.

    Args:
        directory: path of the run, which contains the pictures made by
            `write_report`.
        results: dict made by `make_results`.
        task: TaskSpec.
        kind: TaskKind with its model.
        examples: list of X examples with labels.
        decoded: list of X dicts, results of `TaskKind.decode`.
        labels: tuple of C str, the classes, or None.
    """
    directory = as_path(directory)
    rows = prediction_rows(examples, decoded)
    content = [_summary(results, len(rows))]
    found = results.get("analysis", {})
    content += [_element("p", note, class_="note") for note in notes_of(found)]
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
        # An error in the report must not lose the results of a run.
        except Exception as error:  # noqa: BLE001
            warnings.warn(
                f"{PAGE_FILE} has no section {title!r}: {in_a_line(error)}",
                stacklevel=2,
            )
            continue
        if parts:
            content += [_element("h2", title), *parts]
    title = f"{results['task']}: fine-tuning run"
    write_bytes(directory / PAGE_FILE, _page(title, content))


def _summary(results, count):
    facts = [
        ["held-out examples", count],
        ["training examples", results["examples"]],
        ["steps", results["steps"]],
        ["started from", f"{results['preset']}, {results['started_from']}"],
        ["seed", results["seed"]],
    ]
    metrics = [[name, value] for name, value in results["metrics"].items()]
    return _table(["", ""], metrics + facts)


def _course(directory, metric):
    figures = [draw_curves([directory], name) for name in ("loss", metric)]
    return [_picture(png(x), "values by step") for x in figures]


def _answers(directory):
    parts = []
    for name, what in (
        (CONFUSION_FILE, "confusion matrix"),
        (REGRESSION_FILE, "predicted numbers against true ones"),
        (ANSWERS_FILE, "F1 by the length of the true answer"),
    ):
        if (directory / name).is_file():
            parts.append(_picture((directory / name).read_bytes(), what))
    report = directory / REPORT_FILE
    if report.is_file():
        parts.append(_element("pre", report.read_text("utf-8")))
    return parts


def _probabilities(rows, found):
    if "calibration_error" not in found:
        return []
    confidence = [max(row["probabilities"].values()) for row in rows]
    figures = [_draw_calibration(confidence, [row["right"] for row in rows])]
    if "positive" in found:
        positive = found["positive"]
        figures += _draw_ranked(
            np.array([row["true_label"] == positive for row in rows]),
            np.array([row["probabilities"][positive] for row in rows]),
        )
    names = ("calibration", "ROC curve", "precision and recall")
    shown = [
        _picture(png(figure), name)
        for figure, name in zip(figures, names, strict=False)
    ]
    caption = "Calibration: the numbers count examples."
    if "positive" in found:
        caption += f" ROC, precision and recall are for {found['positive']}."
    return [*shown, _element("p", caption, class_="caption")]


def _draw_calibration(confidence, right):
    """Draw the share of right answers as a function of the confidence.

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


def _draw_ranked(is_positive, probability):
    """Draw the ROC curve and the precision-recall curve for two classes.

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


def _errors(task, kind, examples, rows, labels):
    """Make the page's section about wrong answers, largest error first."""
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
        _table(
            [name.replace("_", " ") for name in header],
            [[cells.get(name) for name in header] for cells in shown],
        )
    ]
    if influences:
        caption = (
            "The words that the model read: red ones speak for the prediction, "
            "green ones for what is true, by gradient times embedding."
        )
        parts.insert(0, _element("p", caption, class_="caption"))
    return parts


def _size_of_error(row):
    """Measure how wrong a prediction is, float; 0 for a right answer."""
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
    """Make one row of the table of errors: a dict of column names to cells."""
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
    """Make the weights of the logits for `influence_of_words`.

    The weight is 1 for a class that is predicted but not true, -1 for a class
    that is true but not predicted, and otherwise 0. For regression tasks, the
    weight is 1 if the predicted number is too large, and -1 if it is too small.
    """
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
        parts += [_element("span", word, style=style), " "]
    return _element("span", *parts)


def _element(tag, *content, **attributes):
    """Make an HTML element.

    Args:
        tag: str, name of the element.
        *content: strs, numbers and elements. Each None is left out.
        **attributes: strs, the attributes. Pass the attribute "class" as
            `class_`, because `class` is a keyword of Python.

    Returns:
        xml.etree.ElementTree.Element.
    """
    attributes = {k.rstrip("_"): str(v) for k, v in attributes.items()}
    made, last = ElementTree.Element(tag, attributes), None
    for part in content:
        if part is None:
            continue
        if isinstance(part, ElementTree.Element):
            made.append(part)
            last = part
            continue
        # Replace characters that browsers do not show or UTF-8 cannot encode.
        text = _CONTROL.sub("\N{REPLACEMENT CHARACTER}", str(part))
        if last is None:
            made.text = (made.text or "") + text
        else:
            last.tail = (last.tail or "") + text
    return made


def _table(header, rows):
    """Make an HTML table.

    Args:
        header: list of str.
        rows: list of lists of cells. A cell is a str, an element or a number.
            Numbers are aligned on the right.
    """
    return _element(
        "table",
        _element("tr", *(_element("th", name) for name in header)),
        *(_element("tr", *map(_cell, row)) for row in rows),
    )


def _cell(value):
    if isinstance(value, float):
        return _element("td", f"{value:.4g}", class_="number")
    if isinstance(value, int) and not isinstance(value, bool):
        return _element("td", f"{value:,}", class_="number")
    return _element("td", value, class_="text")


def _picture(data, alternative):
    """Make an HTML element with an inline picture.

    Args:
        data: bytes of a PNG.
        alternative: str, a description of the picture.
    """
    source = "data:image/png;base64," + base64.b64encode(data).decode()
    return _element("img", src=source, alt=alternative)


def _page(title, content):
    """Make the bytes of the whole HTML page.

    Args:
        title: str.
        content: list of elements.
    """
    head = _element(
        "head",
        _element("meta", charset="utf-8"),
        _element(
            "meta", **{"http-equiv": "Content-Security-Policy"}, content=_POLICY
        ),
        _element("title", title),
        _element("style", _STYLE),
    )
    body = _element("body", _element("h1", title), *content)
    root = _element("html", head, body, lang="en")
    text = ElementTree.tostring(root, encoding="unicode", method="html")
    return f"<!DOCTYPE html>\n{text}\n".encode()
