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
            `xlnet_tf.finetuning_metrics` gives them.
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


def results_table(runs):
    """Runs as a Markdown table, a row for what differs in the seed only.

    Args:
        runs: list of dict, of `read_results`.

    Returns:
        str, without an end of line after the last. Rows are in the order in
        which tasks, and then starts, first occur.

    Raises:
        ValueError: if a seed occurs twice in a row, or there are no runs.
    """
    if not runs:
        raise ValueError("a run at least is expected. Received: runs=[]")
    tasks = {}
    for run in runs:
        row = (
            _name_of(run["preset"]),
            run["started_from"],
            run["examples"],
            run["metric"],
        )
        tasks.setdefault(run["task"], {}).setdefault(row, []).append(run)
    lines = [
        "| Task | Model | Start | Trained on | Metric | Median | Min to max "
        "| Seeds |",
        "| --- | --- | --- | ---: | --- | ---: | ---: | ---: |",
    ]
    for task, rows in tasks.items():
        for (model, start, examples, metric), row_runs in rows.items():
            seeds = [run["seed"] for run in row_runs]
            if len(set(seeds)) < len(seeds):
                raise ValueError(
                    "every run of a row must have a seed of its own. Received: "
                    f"seeds {sorted(seeds)} of {task}, {model}, {start}, "
                    f"{examples} examples"
                )
            summary = seeds_summary([run["value"] for run in row_runs])
            spread = "-"
            if len(seeds) > 1:
                spread = f"{summary['min']:.3f} to {summary['max']:.3f}"
            lines.append(
                f"| {task} | {model} | {start} | {examples:,} | {metric} "
                f"| {summary['median']:.3f} | {spread} | {len(seeds)} |"
            )
    return "\n".join(lines)


def _name_of(preset):
    return "-" if preset is None else pathlib.PurePath(preset).name


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
    }
    write_json(pathlib.Path(directory) / SEEDS_FILE, summary)
    for name, values in summary.items():
        write(
            f"{name}: median {values['median']:.4g} of {len(results)} seeds, "
            f"{values['min']:.4g} to {values['max']:.4g}\n"
        )
