"""Benchmark of training in bfloat16 and float32, for each objective.

    make demo
    python benchmarks/precision.py --records runs/demo/records \\
        --output runs/precision

The program trains the demo's model in both precisions with `python -m
xlnet_tf.train`, and writes the held-out bits per token to OUTPUT/results.md. A
finished run is not repeated.
"""

import argparse
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from data_pipeline.base import command_line
from data_pipeline.base.files import read_json_lines
from examples import demo
from examples.commands import run_once

ROOT = pathlib.Path(__file__).resolve().parents[1]

PRECISIONS = ("float32", "bfloat16")


def held_out_bits(options, objective, precision):
    """Train a model; return the held-out bits per token after training."""
    name = f"{objective}-{precision}-{options.steps}-{options.seed}"
    run = options.output / name
    run_once(
        run,
        *("-m", "xlnet_tf.train", "--records", options.records),
        *("--recipe", "quick", "--output", run, "--steps", options.steps),
        *("--seed", options.seed),
        *("--objective", objective, "--precision", precision),
        *("--evaluation-interval", options.steps),
        *("--checkpoint-interval", options.steps),
        *demo.options_of(objective, options.steps),
    )
    lines = read_json_lines(run / "metrics.jsonl")
    return demo.bits_per_token([x for x in lines if x["kind"] == "eval"][-1])


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--records", required=True, type=pathlib.Path)
    add("--output", type=pathlib.Path, default=ROOT / "runs" / "precision")
    add("--steps", type=int, default=300)
    add("--seed", type=int, default=0)
    add("--objective", action="append", choices=demo.OBJECTIVES)
    options = parser.parse_args(argv)
    options.records = options.records.resolve()
    options.output = options.output.resolve()
    options.output.mkdir(parents=True, exist_ok=True)
    lines = [
        "| objective | float32 | bfloat16 | difference |",
        "| --- | ---: | ---: | ---: |",
    ]
    for objective in options.objective or demo.OBJECTIVES:
        one, other = (
            held_out_bits(options, objective, precision)
            for precision in PRECISIONS
        )
        cells = f"{one:.3f} | {other:.3f} | {other / one - 1:+.2%}"
        lines.append(f"| {objective} | {cells} |")
    table = "\n".join(lines)
    (options.output / "results.md").write_text(table + "\n")
    print(f"\n{table}")
    return 0


if __name__ == "__main__":
    sys.exit(command_line.run(main))
