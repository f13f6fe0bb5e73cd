"""Pictures of training curves, from the `metrics.jsonl` of runs."""

import contextlib
import os
from collections.abc import Sequence

from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_lines
from data_pipeline.base.models import METRICS_FILE
from data_pipeline.base.models import read_run

_MARGIN = 0.12  # share of the height that labels need


def draw_curves(runs: Sequence[str | os.PathLike], metric: str = "loss"):
    """Draw a metric of one or several runs against the step.

    Args:
        runs: list of paths of run directories.
        metric: str, a key in the lines of `metrics.jsonl`. Default "loss".

    Returns:
        matplotlib.figure.Figure, with training as lines and evaluations as
        dots. For a single run the title includes the model's size and the
        number of records.

    Raises:
        FileNotFoundError: if a directory has no `metrics.jsonl`.
        ValueError: if a run does not have the metric, or has no lines yet.
    """
    import matplotlib
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    colours = matplotlib.colormaps["tab10"](range(10))
    for number, run in enumerate(runs):
        lines = [_numbers(line) for line in _read(as_path(run))]
        colour = colours[number % len(colours)]
        if metric == "kind" or not any(metric in line for line in lines):
            names = {name for line in lines for name in line}
            known = sorted(names - {"kind", "step"})
            raise ValueError(
                f"{run} has no {metric!r} in its {METRICS_FILE}, but "
                f"{', '.join(known) or 'no lines yet'}."
            )
        for kind, style, suffix in (
            ("train", {"alpha": 0.6}, ""),
            ("eval", {"marker": "o", "markersize": 4}, ", held out"),
        ):
            points = [x for x in lines if x["kind"] == kind and metric in x]
            if points:
                axes.plot(
                    [x["step"] for x in points],
                    [x[metric] for x in points],
                    color=colour,
                    label=f"{as_path(run).name}{suffix}",
                    linestyle="-" if kind == "train" else "--",
                    **style,
                )
            if points and kind == "eval":
                _annotate(axes, points[-1]["step"], points[-1][metric], colour)
    axes.margins(y=_MARGIN)
    axes.set_title(_title(runs), fontsize=9, loc="left", parse_math=False)
    axes.set_xlabel("step")
    axes.set_ylabel(metric.replace("_", " "))
    axes.legend(fontsize=8, loc="upper right")
    axes.grid(alpha=0.3)
    return figure


def _title(runs):
    """Make a title of the run names; for a single run, add facts about it."""
    if len(runs) > 1:
        return ", ".join(as_path(run).name for run in runs)
    run = as_path(runs[0])
    title = "/".join([run.parent.name, run.name]).strip("/")
    # `run.json` may be missing, or come from another program.
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        facts = read_run(run)
        model, records = facts["model"], facts.get("records")
        title += f": {model['num_layers']} layers of {model['hidden_dim']}"
        if records:
            title += (
                f", {records['records']:,} records of "
                f"{records['sequence_length']} tokens"
            )
    return title


def _numbers(line):
    """Remove the strings, except `kind`, from a line of metrics."""
    return {
        name: value
        for name, value in line.items()
        if name == "kind" or not isinstance(value, str)
    }


def _annotate(axes, step, value, colour):
    """Write the last value of a curve above the last point."""
    axes.annotate(
        f"{value:.3g}",
        (step, value),
        xytext=(0, 6),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color=colour,
    )


def _read(run):
    file = run / METRICS_FILE
    if not file.is_file():
        raise FileNotFoundError(
            f"there is no {METRICS_FILE} in {run}; a run writes it while it "
            "trains."
        )
    return read_json_lines(file)
