"""How long the first training step takes, compiled and compiled before.

    python benchmarks/first_step.py
    python benchmarks/first_step.py --scan-layers

Processes that do the same step, each in a fresh compilation cache or in that of
the one before (`--compilation-cache` of the commands), in turns.
"""

import argparse
import pathlib
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks import contest
from benchmarks import machine
from benchmarks import measurements
from benchmarks import run
from benchmarks import workload
from benchmarks.quartiles import quartiles
from xlnet_tf.training.compilation_cache import compilation_cache


def main(argv=None):
    """Measures from the command line.

    Args:
        argv: list of str, or None for the process's.

    Returns:
        int, the exit status.
    """
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("--rounds", type=run.positive, default=3)
    add("--timeout", type=float, default=1200.0, metavar="SECONDS")
    add("--scan-layers", action="store_true", help="compile one layer for all")
    add("--tiny", action="store_true", help="a tiny model, to try this program")
    settings = parser.parse_args(argv)
    sizes = workload.TINY_SIZES if settings.tiny else workload.Sizes()
    measurement = measurements.training_step(sizes, sizes.memory_length)
    name = "XLA, layers in a loop" if settings.scan_layers else "XLA"
    (contender,) = (
        x
        for x in measurement.contenders
        if x.name == f"{measurements.OURS}, {name}"
    )
    print(f"{measurement.title}, {name}, {machine.num_cores()} cores\n")
    ways = ("compiled", "compiled before")
    found = {way: [] for way in ways}
    for _ in range(settings.rounds):
        with tempfile.TemporaryDirectory() as cache:
            for way in ways:
                found[way].append(measure(contender, cache, settings.timeout))
    print("\n".join(table(found)))
    return 0


def measure(contender, cache, timeout):
    """One process.

    Args:
        contender: Contender of `measurements`.
        cache: path of the compilation cache.
        timeout: float, seconds to wait for one answer.

    Returns:
        dict of seconds and bytes.
    """
    # The process finds it in its environment.
    with compilation_cache(cache):
        log = pathlib.Path(cache) / "log"
        process = contest.Process(contender, log, None, timeout)
        try:
            step = process.run()
            memory = process.finish()
        except BaseException:
            process.kill()
            raise
    files = [x for x in pathlib.Path(cache).rglob("*.xla")]
    return {
        "first step": process.set_up["first_seconds"],
        "step": step,
        "memory": memory["peak_bytes"],
        "kept": sum(file.stat().st_size for file in files),
    }


def table(found):
    """The lines of the table, medians and extremes.

    Args:
        found: dict of str to list of what `measure` returns.

    Returns:
        list of str.
    """
    lines = [
        "| | first step | a step | memory | kept on disk |",
        "| --- | ---: | ---: | ---: | ---: |",
    ]
    for way, results in found.items():
        cells = [way]
        for name, unit, scale in (
            ("first step", "s", 1),
            ("step", "s", 1),
            ("memory", "MiB", 2**20),
            ("kept", "MB", 1e6),
        ):
            values = [result[name] / scale for result in results]
            low, middle, high = min(values), quartiles(values)[1], max(values)
            digits = 1 if middle < 100 else 0
            cells.append(
                f"{middle:,.{digits}f} {unit} "
                f"({low:,.{digits}f} to {high:,.{digits}f})"
            )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


if __name__ == "__main__":
    sys.exit(main())
