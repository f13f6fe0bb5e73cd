"""Predictions of a run as JSON lines, with tables and pictures.

Shapes: X examples, C classes.
"""

import contextlib
import io
import json
import re
import warnings

import numpy as np

from data_pipeline.base.command_line import printable
from data_pipeline.base.command_line import warnings_in_a_line
from data_pipeline.base.files import as_path
from data_pipeline.base.files import json_line
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import written_whole
from data_pipeline.tasks.examples import QuestionExample
from xlnet_tf.tasks.multi_label_classifier import multi_hot
from xlnet_tf.tasks.squad import scores_as_answered

PREDICTIONS_FILE = "predictions.jsonl"
REPORT_FILE = "report.txt"
CONFUSION_FILE = "confusion_matrix.png"
REGRESSION_FILE = "scores.png"
ANSWERS_FILE = "answers.png"
# Key in an answer to a question -> name of the file for SQuAD's scripts.
OFFICIAL_FILES = {
    "answer": "predictions.json",
    "n_best": "nbest_predictions.json",
    "no_answer_odds": "null_odds.json",
}
# Largest number of words of a true answer -> name of the group in the picture.
_LENGTHS = {0: "none", 1: "1", 2: "2", 4: "3 to 4", 8: "5 to 8"}
_LONGER = "9 or more"
_MOST_COUNTED_CLASSES = 40
_LONGEST_NAME = 28  # characters of a name on an axis

# Fields of examples that are part of the predictions.
_CONTENT = ("text", "text_pair", "question", "options", "query", "source")
# (field of an example with the truth, key of the prediction in the result of
# `TaskKind.decode`, displayed name of the truth).
_TRUTHS = (
    ("label", "label", "true_label"),
    ("label", "labels", "true_labels"),
    ("label", "score", "true_score"),
    ("relevance", "score", "true_relevance"),
    ("tags", "tags", "true_tags"),
    ("answer", "answer", "true_answer"),
    ("target", "text", "true_text"),
)


def write_predictions(file, predictions):
    """Write predictions to a file of JSON lines, atomically.

    Args:
        file: path of the file.
        predictions: list of dict.
    """
    write_bytes(file, "".join(map(json_line, predictions)).encode())


def prediction_rows(examples, decoded):
    """Combine examples with predicted answers and, if known, true answers.

    Args:
        examples: list of X examples.
        decoded: list of X dicts, results of `TaskKind.decode`.

    Returns:
        list of X dicts. A dict begins with the example's place: `row` (the row
        number in a file) or `where` (any other place). The next entries are the
        content, such as `text`, and the true answer, such as `true_label`. The
        last entries are `predicted_label`, `right` (whether the prediction is
        right) and the entries of the decoded dict.
    """
    return [
        {**_shown(example, one), **one}
        for example, one in zip(examples, decoded, strict=True)
    ]


def _shown(example, one):
    """Make a dict of an example's place, content and true answer."""
    shown = {}
    row = re.fullmatch(r".*, row (\d+)", example.where, re.DOTALL)
    if row:
        shown["row"] = int(row[1])
    elif example.where:
        shown["where"] = example.where
    fields = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in example._asdict().items()
    }
    for name in _CONTENT:
        if fields.get(name) not in (None, []):
            shown[name] = fields[name]
    for name, answer, truth in _TRUTHS:
        true = fields.get(name)
        if answer not in one:
            continue
        if true is not None:
            shown[truth] = str(true) if answer == "label" else true
        if answer == "label":
            shown["predicted_label"] = one["label"]
        if true is not None and answer != "score":
            shown["right"] = one[answer] == shown[truth]
            if answer == "labels":  # the order of labels does not matter
                shown["right"] = set(one[answer]) == set(shown[truth])
    if isinstance(example, QuestionExample):
        if example.answers or example.is_impossible:
            shown["true_answers"] = [x.text for x in example.answers]
    return shown


def write_report(directory, task, examples, decoded, labels=None):
    """Write tables and pictures of a model's answers.

    For question answering, the function also writes the files for SQuAD's
    official scripts. For some kinds of tasks, such as multiple choice, it
    writes nothing.

    Args:
        directory: path of the directory for the files.
        task: TaskSpec.
        examples: list of X examples with labels.
        decoded: list of X dicts, results of `TaskKind.decode`.
        labels: tuple of C str, the classes, or None.
    """
    directory, title = as_path(directory), f"{task.name}, held out"
    if task.kind == "classification":
        places = {label: place for place, label in enumerate(labels)}
        both = (
            np.array([places[str(x.label)] for x in examples]),
            np.array([places[one["label"]] for one in decoded]),
        )
        with warnings_in_a_line():
            has_names = draw_confusion(
                directory / CONFUSION_FILE, *both, labels, title
            )
        if not has_names:
            labels = [f"{i} {name}" for i, name in enumerate(labels)]
        text = classes_text(*both, labels)
    elif task.kind == "multi_label":
        targets, chosen, _ = multi_hot(examples, decoded)
        text = classes_text(targets, chosen, list(decoded[0]["probabilities"]))
    elif task.kind == "token_classification":
        tags = [list(x.tags) for x in examples], [x["tags"] for x in decoded]
        text = entities_text(*tags)
    elif task.kind == "regression":
        targets = [float(x.label) for x in examples]
        scores = [one["score"] for one in decoded]
        draw_regression(directory / REGRESSION_FILE, targets, scores, title)
        return
    elif task.kind == "question_answering":
        _write_official(directory, decoded)
        by_length = answers_by_length(examples, decoded)
        draw_answers(directory / ANSWERS_FILE, by_length, title)
        return
    else:
        return
    write_bytes(directory / REPORT_FILE, text.encode(errors="backslashreplace"))


def _write_official(directory, decoded):
    """Write the files that SQuAD's official scripts read, all or none."""
    with contextlib.ExitStack() as stack:
        for key, name in OFFICIAL_FILES.items():
            by_id = {one["id"]: one[key] for one in decoded}
            text = json.dumps(by_id, indent=4, ensure_ascii=False) + "\n"
            file = stack.enter_context(written_whole(directory / name))
            # Lone surrogates are written in the form that `json_line` uses.
            file.write_bytes(text.encode(errors="backslashreplace"))


def answers_by_length(examples, decoded):
    """Compute the F1 of answers, grouped by the true answer's number of words.

    Args:
        examples: list of X QuestionExample. The first true answer defines the
            number of words.
        decoded: list of X dicts with `answer`, which is "" for no answer.

    Returns:
        dict from a range of word counts, such as "3 to 4", to (number of
        questions, mean F1). SQuAD's official script computes the F1, in
        percent. The ranges are in increasing order. The key "none" is for
        questions without an answer. Ranges without questions are left out.
    """
    groups = {name: [] for name in (*_LENGTHS.values(), _LONGER)}
    for example, one in zip(examples, decoded, strict=True):
        words = 0
        if example.answers and not example.is_impossible:
            words = max(1, len(example.answers[0].text.split()))
        names = (name for most, name in _LENGTHS.items() if words <= most)
        groups[next(names, _LONGER)].append((example, one))
    by_length = {}
    for name, group in groups.items():
        if group:
            scores = scores_as_answered(*zip(*group, strict=True))
            by_length[name] = len(group), scores["squad_f1_as_answered"]
    return by_length


def classes_text(targets, predictions, labels):
    """Make a table of precision, recall and F1 of the classes that occur.

    scikit-learn computes the table.

    Args:
        targets, predictions: [X] integers. For tasks with several classes per
            text, [X, C] of 0 and 1.
        labels: sequence of C names.

    Returns:
        str, the table with the accuracy and the averages.
    """
    from sklearn.metrics import classification_report

    occur = np.union1d(targets, predictions)
    if np.ndim(targets) == 2:
        occur = np.flatnonzero((targets + predictions).any(axis=0))
        if not len(occur):
            return "there are no classes, and none are predicted\n"
    return classification_report(
        targets,
        predictions,
        labels=occur,
        target_names=[printable(labels[place]) for place in occur],
        digits=3,
        zero_division=0,
    )


def entities_text(targets, predictions):
    """Make a table of precision, recall and F1 of the types of entities.

    seqeval computes the table.

    Args:
        targets, predictions: lists of lists of tags.

    Returns:
        str, the table with the averages.
    """
    from seqeval.metrics import classification_report
    from seqeval.metrics.sequence_labeling import get_entities

    from xlnet_tf.tasks.metrics import entity_tags

    both = [
        [list(map(printable, tags)) for tags in rows]
        for rows in entity_tags(targets, predictions)
    ]
    if not any(map(get_entities, both)):
        return "there are no entities, and none are predicted\n"
    return classification_report(*both, digits=3, zero_division=0)


def draw_confusion(file, targets, predictions, labels, title):
    """Draw the confusion matrix, with counts if there are at most 40 classes.

    The shade of a cell is its number of examples, divided by the number of all
    examples with the same true class. Matplotlib draws names with the fonts of
    its setting `font.family`. If these fonts lack a letter, the picture shows
    numbers instead of names.

    Args:
        file: path of the PNG, which is written atomically.
        targets, predictions: [X] integers.
        labels: sequence of C names.
        title: str.

    Returns:
        bool, whether the names of the classes were drawn.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure
    from sklearn.metrics import ConfusionMatrixDisplay
    from sklearn.metrics import confusion_matrix

    places = range(len(labels))
    # scikit-learn warns of a single class; the run has warned of this already.
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="A single label was found")
        counts = confusion_matrix(targets, predictions, labels=places)
    # The shares of a class that does not occur are 0.
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)

    def draw(names):
        # A "$" in a name must not start a formula.
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
        picture = draw([_shortened(printable(x)) for x in labels])
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
    """Draw predicted numbers against true numbers.

    Args:
        file: path of the PNG, which is written atomically.
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
    """Draw the F1 of answers against the true answer's number of words.

    Args:
        file: path of the PNG, which is written atomically.
        by_length: dict made by `answers_by_length`.
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
    """Convert a matplotlib.figure.Figure to the bytes of a PNG."""
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150)
    return data.getvalue()
