"""Benchmark of fine-tuning adapters (LoRA) and of fine-tuning all weights.

    python -m benchmarks.lora --batch-size 8 --num-tokens 128 --rounds 5

The program trains a classifier of XLNet-Base's size with AdamW. Each contender
runs in a separate process, and the contenders take turns. The table has the
seconds of a step, the peak memory during steps, and the bytes of the optimizer.
In the last row, each step adds the product of the adapters to the kernels, as
Keras does.
"""

import argparse
import pathlib
import statistics
import sys

from benchmarks.contest.process import Ended
from benchmarks.contest.process import Process
from benchmarks.measurements.measurement import Contender
from benchmarks.workload.sizes import BASE
from benchmarks.workload.sizes import SMALL
from benchmarks.workload.sizes import TINY

SIZES = {"base": BASE, "small": SMALL, "tiny": TINY}


def contenders(options):
    """Make a list of Contender: one for all weights, and two for LoRA."""
    model = dict(SIZES[options.size])
    if options.num_layers:
        model["num_layers"] = options.num_layers
    shared = {
        "model": model,
        "batch_size": options.batch_size,
        "num_tokens": options.num_tokens,
        "jit_compile": not options.no_xla,
    }
    rank = options.rank
    ways = {
        "all weights": {},
        f"LoRA, rank {rank}": {"lora_rank": rank},
        f"LoRA, rank {rank}, as Keras": {"lora_rank": rank, "as_keras": True},
    }
    return [
        Contender(name, "xlnet_tf", "ours:fine_tuning_step", {**shared, **way})
        for name, way in ways.items()
    ]


def measured(options):
    """Measure contenders; return a list of (name, set-up, seconds, bytes)."""
    found = contenders(options)
    processes = []
    try:
        for contender in found:
            log = options.logs / f"{contender.name}.log"
            processes.append(Process(contender, log, None, 3600))
        # Contenders take turns, so that other programs disturb all alike.
        rounds = [
            [process.run() for process in processes]
            for _ in range(options.rounds)
        ]
        memory = [process.finish() for process in processes]
    except Ended as error:
        raise SystemExit(f"error: {error}") from error
    finally:
        for process in processes:
            process.kill()
    return [
        (contender.name, process.set_up, seconds, held)
        for contender, process, seconds, held in zip(
            found, processes, zip(*rounds, strict=True), memory, strict=True
        )
    ]


def table(rows):
    """Make the table in Markdown."""
    lines = [
        "| trained | step | ratio | parameters | optimizer | memory |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    reference = rows[0][2]
    for name, set_up, seconds, held in rows:
        ratio = statistics.median(
            x / y for x, y in zip(seconds, reference, strict=True)
        )
        facts = set_up["facts"]
        running = held["running_bytes"] or held["peak_bytes"]
        lines.append(
            f"| {name} | {statistics.median(seconds):.3f} s | {ratio:.2f} | "
            f"{facts['trained_parameters']:,} | "
            f"{facts['optimizer_bytes'] / 2**20:,.0f} MiB | "
            f"{running / 2**20:,.0f} MiB |"
        )
    return "\n".join(lines)


def main(argv=None):
    """Run the command; see the module docstring."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--size", choices=SIZES, default="base")
    add("--num-layers", type=int, help="default: all layers of the size")
    add("--rank", type=int, default=8)
    add("--batch-size", type=int, default=8)
    add("--num-tokens", type=int, default=128)
    add("--rounds", type=int, default=5)
    add("--no-xla", action="store_true")
    add("--logs", type=pathlib.Path, default=pathlib.Path("runs/lora"))
    sys.stdout.write(table(measured(parser.parse_args(argv))) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
