"""Results of a fine-tuning run, and the summary of runs with several seeds."""

import importlib.metadata
import math
import platform

import numpy as np

from data_pipeline.base.checksums import write_listed
from data_pipeline.base.files import as_path
from data_pipeline.base.files import write_json
from data_pipeline.base.models import RESULTS_FILE
from data_pipeline.base.models import SEEDS_FILE
from xlnet_tf.tasks.squad import NO_ANSWERS
from xlnet_tf.version import __version__

_PACKAGES = (
    "tensorflow",
    "keras",
    "tf-models-official",
    "numpy",
    "scipy",
    "scikit-learn",
    "seqeval",
)


def make_results(
    *,
    task,
    metrics,
    seed,
    steps,
    examples,
    preset,
    started_from,
    details=None,
    analysis=None,
    **facts,
):
    """Make the contents of `results.json`.

    Args:
        task: str, name of the task.
        metrics: dict of str to float, made by `TaskKind.score`, with the main
            metric first.
        seed: int, seed of the run.
        steps: int, number of training steps.
        examples: int, number of training examples.
        preset: str or None, the preset of the model.
        started_from: str, "pretrained" or "random".
        details: dict made by `TaskKind.details`, or None.
        analysis: dict made by `analyse`, or None.
        **facts: other entries of the results.

    Returns:
        dict of JSON values.

    Raises:
        ValueError: if there is no metric, or if a metric is NaN.
    """
    metrics = {name: float(value) for name, value in metrics.items()}
    if not metrics:
        raise ValueError("expected at least one metric. Received: metrics={}")
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
    if analysis:
        results["analysis"] = analysis
    return results


def write_results(directory, results):
    """Write `results.json` of a run.

    Args:
        directory: path of an existing directory.
        results: dict made by `make_results`.
    """
    write_listed(directory, {RESULTS_FILE: results})


def written(metrics, comma=", "):
    """Format metrics as a line of text.

    Args:
        metrics: dict of str to float. The lowest float32 is a threshold of
            SQuAD at which no question is answered. It is written as "never
            answers".
        comma: str, text between two metrics. Default ", ".
    """
    return comma.join(
        f"{name} {'never answers' if value <= NO_ANSWERS else f'{value:.4g}'}"
        for name, value in metrics.items()
    )


def versions():
    """Return the versions of Python and of packages that affect the results."""
    versions_by_package = {
        "python": platform.python_version(),
        "xlnet_tf": __version__,
    }
    for package in _PACKAGES:
        try:
            versions_by_package[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions_by_package


def seeds_summary(values):
    """Compute the median and the extremes of a metric over several seeds.

    Args:
        values: list of float, at least one.

    Returns:
        dict of "median", "min", "max" and "all", the list of values.

    Raises:
        ValueError: if there are no values.
    """
    values = [float(value) for value in values]
    if not values:
        raise ValueError("expected at least one value. Received: values=[]")
    return {
        "median": float(np.median(values)),
        "min": min(values),
        "max": max(values),
        "all": values,
    }


def write_summary(directory, results, write):
    """Write `seeds.json`; print each metric's median and extremes over seeds.

    Args:
        directory: path of the directory with all runs.
        results: list of dict, the results of each run, see `read_results`.
        write: function that prints a line of text.
    """
    summary = {
        name: seeds_summary([x["metrics"][name] for x in results])
        for name in results[0]["metrics"]
        # Some metrics are not defined for all sets of held-out examples.
        if all(name in x["metrics"] for x in results)
    }
    write_json(as_path(directory) / SEEDS_FILE, summary)
    for name, values in summary.items():
        if values["min"] <= NO_ANSWERS:
            continue
        write(
            f"{name}: median {values['median']:.4g} of {len(results)} seeds, "
            f"{values['min']:.4g} to {values['max']:.4g}"
        )
