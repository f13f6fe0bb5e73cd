"""Where the time of our pretraining step goes: parts changed, in turn.

    python benchmarks/breakdown.py
    python benchmarks/breakdown.py --no-xla --change dropout --change backward
    python benchmarks/breakdown.py --size small --change vocabulary_by_example

The whole step and steps with one part left out, or done as it was done before,
run alternately, each in a process of its own; what a step without a part saves
is what the part costs. The floor is the time of the necessary matrix products
(`flops.py`) at the rate that large ones reach in the same run.
"""

import argparse
import dataclasses
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import contest
from benchmarks import flops
from benchmarks import machine
from benchmarks import measurements
from benchmarks import report
from benchmarks import run
from benchmarks import workload

CHANGES = {
    "nothing": "the whole step",
    "dropout": "without any dropout",
    "attention_dropout": "without dropout of attention probabilities",
    "hidden_dropout": "without dropout of hidden states",
    "optimizer": "without the optimizer",
    "clipping": "without clipping of gradients",
    "memory": "without memory",
    "segments": "without segment scores",
    "mask": "without the mask",
    "shift": "without the relative shift",
    "vocabulary": "without the product with the vocabulary",
    "vocabulary_by_example": "the vocabulary's product example by example",
    "keras_adam": "the optimizer in Keras' operations",
    "update_apart": "mean, clipping and optimizer not compiled together",
    "backward": "forward pass alone",
    "backward_and_dropout": "forward pass alone, without dropout",
}

_SIZES = {"base": workload.Sizes(), "small": workload.SMALL_SIZES}


def main(argv=None):
    """Measures from the command line.

    Args:
        argv: list of str, or None for the process's.

    Returns:
        int, the exit status.
    """
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], allow_abbrev=False
    )
    run.add_contest_options(parser)
    add = parser.add_argument
    add(
        "--size",
        choices=_SIZES,
        default="base",
        help="base (default): 2 x 512 tokens; small: 16 x 128, 3 layers of 128",
    )
    add("--layers", type=run.positive, metavar="N", help="instead of all")
    add("--no-xla", action="store_true")
    add(
        "--change",
        action="append",
        choices=[name for name in CHANGES if name != "nothing"],
        help="of a part; default all, one after the other",
    )
    add(
        "--output",
        default=str(contest.ROOT / "runs" / "breakdown"),
        metavar="DIR",
    )
    settings = parser.parse_args(argv)
    settings.matmul_size = 256 if settings.tiny else 2048
    output = pathlib.Path(settings.output).resolve()
    sizes = workload.TINY_SIZES if settings.tiny else _SIZES[settings.size]
    if settings.layers:
        model = {**sizes.model, "num_layers": settings.layers}
        sizes = dataclasses.replace(sizes, model=model)
    measurement = variants(
        sizes, not settings.no_xla, settings.change or list(CHANGES)[1:]
    )
    print(measurement.title, flush=True)
    rows = contest.hold(measurement, settings, output / "logs", say=run.say)
    lines = table(rows, measurement.flops)
    output.mkdir(parents=True, exist_ok=True)
    results = {
        "machine": machine.describe(),
        "title": measurement.title,
        "flops": measurement.flops,
        "variants": rows,
    }
    name = "breakdown_no_xla" if settings.no_xla else "breakdown"
    (output / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    page = "\n".join([f"# {measurement.title}", "", *lines]) + "\n"
    (output / f"{name}.md").write_text(page)
    print("\n".join(lines))
    return int(any(row["status"] == "failed" for row in rows))


def variants(sizes, jit_compile, changes):
    """The whole step and its variants as a Measurement."""
    shape = {
        "model": sizes.model,
        "batch_size": sizes.batch_size,
        "num_tokens": sizes.num_tokens,
        "num_targets": sizes.num_targets,
        "memory_length": sizes.memory_length,
    }
    step = measurements.training_step(sizes, sizes.memory_length)
    return measurements.Measurement(
        name="breakdown",
        group="breakdown",
        title=f"{step.title}, {sizes.model['num_layers']} layers of "
        f"{sizes.model['hidden_dim']}, {'XLA' if jit_compile else 'no XLA'}",
        item=step.item,
        items=step.items,
        flops=flops.training_step_flops(**shape),
        contenders=tuple(
            measurements.Contender(
                CHANGES[name],
                measurements.OURS,
                "variants:step",
                {**shape, "jit_compile": jit_compile, "change": name},
            )
            for name in ["nothing", *changes]
        ),
    )


def table(rows, necessary):
    """The lines of the table: what each part costs, and the floor.

    Args:
        rows: of `contest.hold`, the whole step first.
        necessary: number, floating-point operations of the whole step.

    Returns:
        list of str.
    """
    lines = [
        "| variant | time | saves | of the whole (quartiles) |",
        "| --- | ---: | ---: | ---: |",
    ]
    whole = rows[0]["seconds_quartiles"]
    for row in rows:
        if row["status"] != "measured":
            lines.append(f"| {row['name']} | {row['reason']} | | |")
            continue
        cells = [
            row["name"],
            report.time_text(row["seconds_quartiles"][1]),
            "",
            "",
        ]
        if row is not rows[0] and row["ratio_quartiles"]:
            high, median, low = (1 - r for r in row["ratio_quartiles"])
            cells[2] = report.time_text(median * whole[1])
            cells[3] = f"{median:.1%} ({low:.1%} to {high:.1%})"
        lines.append(f"| {' | '.join(cells)} |")
    rates = report.matmul_rates(rows).values()
    if rates and whole:
        floor = necessary / max(rates)
        lines.append(
            f"| floor: {necessary / 1e9:.4g} GFLOP at "
            f"{max(rates) / 1e9:.4g} GFLOP/s | {report.time_text(floor)} "
            f"| {report.time_text(whole[1] - floor)} "
            f"| {1 - floor / whole[1]:.1%} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
