"""Table and picture of the results of a comparison.

A difference between two systems counts only if all seeds of one system are
above all seeds of the other system.
"""

import math

from data_pipeline.base.files import read_json
from data_pipeline.base.files import read_json_lines
from data_pipeline.base.files import write_json
from data_pipeline.base.files import written_whole
from data_pipeline.base.models import read_results as results_of_run
from examples.demo import bits_per_token
from xlnet_tf.training.results.summary import SEEDS_FILE

PAPER = ("RACE", "SQuAD 2.0 F1", "MNLI", "SST-2")
NOTE = (
    "Median of {seeds}, and the lowest and the highest. `+` and `-`: every "
    "seed is above, or below, every seed of the system that the row is held "
    "against: {against}. Seeds are those of fine-tuning; each system was "
    "pretrained once, and what another seed of pretraining would change is "
    "not in these figures. Bits per target are of each objective's own "
    "targets (of UniLMv2's two losses, autoencoding), and cannot be compared "
    "between objectives."
)


def seconds_per_step(directory, sequence_length):
    """Compute the seconds per pretraining step from a run's median rate."""
    config = read_json(directory / "training.json")
    rates = sorted(
        line["tokens_per_second"]
        for line in read_json_lines(directory / "metrics.jsonl")
        if line["kind"] == "train"
    )
    tokens = config["batch_size"] * sequence_length
    return tokens / rates[len(rates) // 2]


def read_results(output, systems, tasks, sequence_length):
    """Read the results of the pretrained systems.

    Args:
        output: path of the comparison.
        systems: dict from the name of a system to settings.
        tasks: iterable of str.
        sequence_length: int, tokens of a record.

    Returns:
        dict from the name of a system to a dict. The keys `title`, `against`
        and `paper` come from the settings of the system. The other keys are
        `parameters`, `tokens`, `curve` (list of (tokens, bits per target on
        held-out text)) and `tasks`. `tasks` is a dict from task to a dict of
        `metric`, `median`, `min`, `max` and `all`.
    """
    found = {}
    for name, system in systems.items():
        place = output / name / "pretrained"
        if not (place / "preset").is_dir():
            continue
        training = read_json(place / "training.json")
        of_step = training["batch_size"] * sequence_length
        found[name] = {
            "title": system["title"],
            "against": system.get("against"),
            "paper": system.get("paper"),
            "parameters": _count_parameters(place / "preset"),
            "tokens": training["steps"] * of_step,
            "curve": [
                (line["step"] * of_step, bits_per_token(line))
                for line in read_json_lines(place / "metrics.jsonl")
                if line["kind"] == "eval"
            ],
            "tasks": {
                task: summary
                for task in tasks
                if (summary := _task_summary(output / name / task))
            },
        }
    return found


def _count_parameters(preset):
    import h5py

    total = 0

    def add(path, item):
        nonlocal total
        if isinstance(item, h5py.Dataset) and "seed_generator" not in path:
            total += math.prod(item.shape)

    for file in preset.glob("*.weights.h5"):
        with h5py.File(file) as weights:
            weights.visititems(add)
    return total


def _task_summary(directory):
    """Read a dict of the main metric's values; None if a task is unfinished."""
    file = directory / SEEDS_FILE
    if not file.is_file():
        return None
    first = sorted(directory.glob("seed-*"))[0]
    metric = results_of_run(first)["metric"]
    return {"metric": metric, **read_json(file)[metric]}


def verdict(summary, other):
    """Compare two ranges: "+" for above, "-" for below, "" for an overlap."""
    if other is None or summary is other:
        return ""
    if summary["min"] > other["max"]:
        return "+"
    return "-" if summary["max"] < other["min"] else ""


def table(results, tasks):
    """Make the table in Markdown, with the results of the paper if available.

    Args:
        results: dict from `read_results`.
        tasks: iterable of str.

    Returns:
        str.
    """
    names, summaries = {}, []
    for result in results.values():
        for task, summary in result["tasks"].items():
            names[task] = f"{task}, {summary['metric']}"
            summaries.append(summary)
    shown = [task for task in tasks if task in names]
    paper = any(result["paper"] for result in results.values())
    heads = ["System", "parameters", "bits per target"]
    heads += [names[task] for task in shown]
    heads += [f"paper: {name}" for name in PAPER] if paper else []
    lines = [_row(heads), _row(["---", *["---:"] * (len(heads) - 1)])]
    for result in results.values():
        curve = result["curve"]
        cells = [
            result["title"],
            f"{result['parameters'] / 1e6:.2f} M",
            f"{curve[-1][1]:.2f}" if curve else "",
        ]
        against = results.get(result["against"], {"tasks": {}})
        for task in shown:
            summary = result["tasks"].get(task)
            cells.append("")
            if summary:
                mark = verdict(summary, against["tasks"].get(task))
                cells[-1] = (
                    f"{summary['median']:.3f} ({summary['min']:.3f} to "
                    f"{summary['max']:.3f}) {mark}".rstrip()
                )
        if paper:
            cells += result["paper"] or [""] * len(PAPER)
        lines.append(_row(cells))
    if summaries:
        counts = {len(x["all"]) for x in summaries}
        seeds = " or ".join(f"{x} seeds" for x in sorted(counts))
        against = {
            result["title"]: results[result["against"]]["title"]
            for result in results.values()
            if result["against"] in results
        }
        pairs = "; ".join(f"{one} by {other}" for one, other in against.items())
        lines += ["", NOTE.format(seeds=seeds, against=pairs or "none")]
    return "\n".join(lines)


def _row(cells):
    return "| " + " | ".join(map(str, cells)) + " |"


def draw(results, tasks):
    """Draw the loss curves on held-out text, and the ranges of task metrics.

    Args:
        results: dict of `read_results`.
        tasks: iterable of str.

    Returns:
        matplotlib.figure.Figure.
    """
    import matplotlib
    from matplotlib.figure import Figure

    shown = [
        task
        for task in tasks
        if any(task in x["tasks"] for x in results.values())
    ]
    colours = matplotlib.colormaps["tab20"].colors
    figure = Figure(figsize=(6 + 3 * len(shown), 5), layout="constrained")
    axes = figure.subplots(
        1, 1 + len(shown), width_ratios=[2, *[1] * len(shown)], squeeze=False
    )[0]
    for colour, result in zip(colours, results.values(), strict=False):
        if result["curve"]:
            tokens, bits = zip(*result["curve"], strict=True)
            axes[0].plot(
                tokens, bits, color=colour, marker=".", label=result["title"]
            )
    axes[0].set_xlabel("tokens of pretraining")
    axes[0].set_ylabel("bits per target of its own, held-out text")
    axes[0].legend(fontsize=7, loc="upper right")
    axes[0].grid(alpha=0.3)
    places = range(len(results))
    for one, task in zip(axes[1:], shown, strict=True):
        for place, colour, result in zip(
            places, colours, results.values(), strict=False
        ):
            summary = result["tasks"].get(task)
            if summary is None:
                continue
            middle = summary["median"]
            spread = [[middle - summary["min"]], [summary["max"] - middle]]
            one.errorbar(
                [middle], [place], xerr=spread, fmt="o", color=colour, capsize=3
            )
            one.set_xlabel(summary["metric"])
        one.set_title(task, loc="left", fontsize=9)
        one.set_yticks(list(places))
        one.set_yticklabels(
            [x["title"] for x in results.values()] if one is axes[1] else [],
            fontsize=7,
        )
        one.invert_yaxis()
        one.grid(alpha=0.3, axis="x")
    return figure


def write(output, results, tasks):
    """Write `comparison.json`, `table.md`, `comparison.png` and `.svg`.

    Args:
        output: path of the comparison.
        results: dict of `read_results`.
        tasks: iterable of str.
    """
    write_json(output / "comparison.json", results)
    with written_whole(output / "table.md") as file:
        file.write_text(table(results, tasks) + "\n", encoding="utf-8")
    figure = draw(results, tasks)
    for suffix in ("png", "svg"):
        with written_whole(output / f"comparison.{suffix}") as file:
            figure.savefig(file, dpi=150, format=suffix)
