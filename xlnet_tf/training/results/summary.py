"""Files of a fine-tuning run: results, predictions, reports and pictures.

Shapes: X examples, C classes.
"""

import contextlib
import importlib.metadata
import io
import json
import math
import platform
import warnings

import numpy as np

from data_pipeline.command_line import warnings_in_a_line
from xlnet_tf.files import as_path
from xlnet_tf.files import read_json
from xlnet_tf.files import write_bytes
from xlnet_tf.files import write_json
from xlnet_tf.files import written_whole
from xlnet_tf.files.checksums import add_checksums
from xlnet_tf.files.checksums import verify_checksums
from xlnet_tf.version import __version__

SEEDS_FILE = "seeds.json"
RESULTS_FILE = "results.json"
PREDICTIONS_FILE = "predictions.jsonl"
REPORT_FILE = "report.txt"
CONFUSION_FILE = "confusion_matrix.png"
REGRESSION_FILE = "scores.png"
# Of a dict that answers a question -> the file that SQuAD's scripts read.
OFFICIAL_FILES = {
    "answer": "predictions.json",
    "n_best": "nbest_predictions.json",
    "no_answer_odds": "null_odds.json",
}

_MOST_COUNTED_CLASSES = 40
_LONGEST_NAME = 28  # letters on an axis
_KEYS = (
    *("task", "metric", "value", "metrics", "seed", "steps", "examples"),
    *("preset", "started_from", "versions"),
)
_PACKAGES = (
    "tensorflow",
    "keras",
    "tf-models-official",
    "numpy",
    "scipy",
    "scikit-learn",
    "seqeval",
)


def write_results(
    directory,
    *,
    task,
    metrics,
    seed,
    steps,
    examples,
    preset,
    started_from,
    details=None,
    **facts,
):
    """Writes `results.json` of a run, whole or not at all, and its digest.

    Args:
        directory: path that exists.
        task: str, its name.
        metrics: dict of str to float, the main metric first, of `Task.score`.
        seed: int.
        steps: int, steps trained.
        examples: int, examples trained on.
        preset: str or None, where the model came from.
        started_from: str, "pretrained" or "random".
        details: dict or None, of `Task.details`.
        **facts: further entries.

    Returns:
        dict, what was written.

    Raises:
        ValueError: if there is no metric, or one is not a number.
    """
    metrics = {name: float(value) for name, value in metrics.items()}
    if not metrics:
        raise ValueError("a metric is expected. Received: metrics={}")
    for name, value in metrics.items():
        if not math.isfinite(value):
            raise ValueError(
                f"metrics must be numbers, which JSON can hold. Received: "
                f"{name}={value}"
            )
    main = next(iter(metrics))
    results = {
        "task": str(task),
        "metric": main,
        "value": metrics[main],
        "metrics": metrics,
        "seed": int(seed),
        "steps": int(steps),
        "examples": int(examples),
        "preset": None if preset is None else str(preset),
        "started_from": str(started_from),
        **facts,
        "versions": versions(),
    }
    if details is not None:
        results["details"] = details
    write_json(as_path(directory) / RESULTS_FILE, results)
    add_checksums(directory, [RESULTS_FILE])
    return results


def read_results(directory):
    """The content of a file of `write_results`.

    Args:
        directory: path.

    Returns:
        dict.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is damaged, is not JSON, or lacks an entry.
    """
    file = as_path(directory) / RESULTS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {RESULTS_FILE}; a run writes it when it has "
            f"evaluated. Received: directory={directory}"
        )
    verify_checksums(directory, [RESULTS_FILE])
    results = read_json(file)
    known = results if isinstance(results, dict) else {}
    missing = [key for key in _KEYS if key not in known]
    if missing:
        raise ValueError(f"{file} has no {', '.join(missing)}: not of a run.")
    return results


def versions():
    """Versions of Python and of the packages that decide the numbers."""
    found = {"python": platform.python_version(), "xlnet_tf": __version__}
    for package in _PACKAGES:
        try:
            found[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def seeds_summary(values):
    """Median and spread of a metric over seeds.

    Args:
        values: list of float, at least one.

    Returns:
        dict: "median", "min", "max", and "all", as given.

    Raises:
        ValueError: if there are none.
    """
    values = [float(value) for value in values]
    if not values:
        raise ValueError("a value at least is expected. Received: values=[]")
    return {
        "median": float(np.median(values)),
        "min": min(values),
        "max": max(values),
        "all": values,
    }


def write_summary(directory, results, write):
    """Writes `seeds.json`, and reports the median and extremes over seeds.

    Args:
        directory: path.
        results: list of dict, of `read_results`.
        write: callable that takes str.
    """
    summary = {
        name: seeds_summary([x["metrics"][name] for x in results])
        for name in results[0]["metrics"]
        # Some depend on what was held out.
        if all(name in x["metrics"] for x in results)
    }
    write_json(as_path(directory) / SEEDS_FILE, summary)
    for name, values in summary.items():
        write(
            f"{name}: median {values['median']:.4g} of {len(results)} seeds, "
            f"{values['min']:.4g} to {values['max']:.4g}\n"
        )


def write_predictions(file, predictions):
    """Writes JSON lines, whole or not at all.

    Args:
        file: path.
        predictions: list of dict.
    """
    lines = [json.dumps(x, ensure_ascii=False) + "\n" for x in predictions]
    write_bytes(file, "".join(lines).encode())


def write_report(directory, task, examples, decoded, labels=None):
    """Writes tables and pictures of answers, where a kind of task has any.

    Args:
        directory: path.
        task: TaskSpec.
        examples: list of X examples with labels.
        decoded: list of X dicts, of `Task.decode`.
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
        return
    else:
        return
    write_bytes(directory / REPORT_FILE, text.encode())


def _write_official(directory, decoded):
    """Writes the files that the official scripts of SQuAD read, all or none."""
    with contextlib.ExitStack() as stack:
        for key, name in OFFICIAL_FILES.items():
            by_id = {one["id"]: one[key] for one in decoded}
            text = json.dumps(by_id, indent=4, ensure_ascii=False) + "\n"
            file = stack.enter_context(written_whole(directory / name))
            file.write_bytes(text.encode())


def classes_text(targets, predictions, labels):
    """Precision, recall and F1 of the classes that occur, by scikit-learn.

    Args:
        targets, predictions: [X] integers.
        labels: C names.

    Returns:
        str, a table with the accuracy and the averages.
    """
    from sklearn.metrics import classification_report

    occur = np.union1d(targets, predictions)
    return classification_report(
        targets,
        predictions,
        labels=occur,
        target_names=[str(labels[place]) for place in occur],
        digits=3,
        zero_division=0,
    )


def entities_text(targets, predictions):
    """Precision, recall and F1 of the types of entities, by seqeval.

    Args:
        targets, predictions: lists of lists of tags.

    Returns:
        str, a table with the averages.
    """
    from seqeval.metrics import classification_report
    from seqeval.metrics.sequence_labeling import get_entities

    from xlnet_tf.tasks.metrics import entity_tags

    both = entity_tags(targets, predictions)
    if not any(map(get_entities, both)):
        return "there are no entities, and none are predicted\n"
    return classification_report(*both, digits=3, zero_division=0)


def draw_confusion(file, targets, predictions, labels, title):
    """Draws the confusion matrix; up to 40 classes with its counts.

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
            return _png(figure)

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
    """Draws predicted numbers against true ones.

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
    write_bytes(file, _png(figure))


def _shortened(name):
    if len(name) <= _LONGEST_NAME:
        return name
    half = _LONGEST_NAME // 2
    return f"{name[:half]}…{name[1 - half :]}"


def _png(figure):
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=150)
    return data.getvalue()
