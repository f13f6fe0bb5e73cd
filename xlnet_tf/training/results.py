"""The results of fine-tuning, run by run, and what several seeds say."""

import importlib.metadata
import math
import pathlib
import platform

import numpy as np

from xlnet_tf.files import read_json
from xlnet_tf.files import write_json
from xlnet_tf.version import __version__

SEEDS_FILE = "seeds.json"
RESULTS_FILE = "results.json"

_KEYS = (
    "task",
    "metric",
    "value",
    "metrics",
    "seed",
    "steps",
    "examples",
    "preset",
    "started_from",
    "versions",
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
):
    """Writes `results.json` of a run, whole or not at all.

    Args:
        directory: path that exists.
        task: str, its name.
        metrics: dict of str to float, the main metric first, as `evaluate` of
            `xlnet_tf.tasks.metrics` gives them.
        seed: int.
        steps: int, steps trained.
        examples: int, examples trained on.
        preset: str or None, where the model came from.
        started_from: str, "pretrained" or "random".
        details: dict or None, anything else worth keeping, as JSON has it.

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
        "versions": versions(),
    }
    if details is not None:
        results["details"] = details
    write_json(pathlib.Path(directory) / RESULTS_FILE, results)
    return results


def read_results(directory):
    """What `write_results` wrote.

    Args:
        directory: path.

    Returns:
        dict.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not JSON, or lacks an entry.
    """
    file = pathlib.Path(directory) / RESULTS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {RESULTS_FILE}; a run writes it when it has "
            f"evaluated. Received: directory={directory}"
        )
    results = read_json(file)
    known = results if isinstance(results, dict) else {}
    missing = [key for key in _KEYS if key not in known]
    if missing:
        raise ValueError(f"{file} has no {', '.join(missing)}: not of a run.")
    return results


def versions():
    """Versions of Python, this library and what its numbers depend on."""
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


def starts_table(runs, also=()):
    """What pretraining is worth: both starts beside each other, in Markdown.

    Args:
        runs: list of dict, of `read_results`, of one or more seeds of each task
            from either start.
        also: names of metrics that get a row of their own below the task's
            main one, where its runs have them.

    Returns:
        str, without an end of line after the last: a row for each task in the
        order in which they first occur, with the median over seeds, the spread
        where there are several, and what the pretrained start gains.

    Raises:
        ValueError: if a seed occurs twice, or a task lacks a start.
    """
    tasks = {}
    for run in runs:
        starts = tasks.setdefault(run["task"], {})
        starts.setdefault(run["started_from"], []).append(run)
    lines = [
        "| Task | Trained on | Metric | Random start | Pretrained | Gain |",
        "| --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for task, starts in tasks.items():
        for start in ("random", "pretrained"):
            seeds = sorted(run["seed"] for run in starts.get(start, []))
            if not seeds or len(set(seeds)) < len(seeds):
                raise ValueError(
                    "both starts of a task are expected, and every run with a "
                    f"seed of its own. Received: seeds {seeds} of {task}, "
                    f"{start} start"
                )
        some = starts["random"][0]
        others = [
            name
            for name in also
            if all(name in run["metrics"] for x in starts.values() for run in x)
        ]
        for metric in (some["metric"], *others):
            random, pretrained = (
                seeds_summary([run["metrics"][metric] for run in starts[start]])
                for start in ("random", "pretrained")
            )
            lines.append(
                f"| {task} | {some['examples']:,} | {metric} "
                f"| {_cell(random)} | {_cell(pretrained)} "
                f"| {pretrained['median'] - random['median']:+.3f} |"
            )
    return "\n".join(lines)


def _cell(summary):
    text = f"{summary['median']:.3f}"
    if len(summary["all"]) > 1:
        text += f" ({summary['min']:.3f} to {summary['max']:.3f})"
    return text


def write_summary(directory, results, write):
    """Writes and says the median and the spread over seeds.

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
    write_json(pathlib.Path(directory) / SEEDS_FILE, summary)
    for name, values in summary.items():
        write(
            f"{name}: median {values['median']:.4g} of {len(results)} seeds, "
            f"{values['min']:.4g} to {values['max']:.4g}\n"
        )
