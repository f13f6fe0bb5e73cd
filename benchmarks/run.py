"""Command that measures this library and its peers on one machine.

    python benchmarks/run.py --list
    python benchmarks/run.py --only training_step --only export
    make bench

The command writes `results.md` and `results.json` to --output after each
measurement. Peers that are not installed are skipped, with a note; `make bench`
installs all peers. Use an idle machine. Other programs disturb contenders most
if their threads wait for each other, as in PyTorch.
"""

import argparse
import dataclasses
import fnmatch
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from benchmarks.contest import machine
from benchmarks.contest import report
from benchmarks.contest import rounds
from benchmarks.contest.process import ROOT
from benchmarks.measurements.catalog import all_measurements
from benchmarks.workload import texts
from benchmarks.workload.sizes import TINY_SIZES
from benchmarks.workload.sizes import Sizes
from data_pipeline.base import command_line

# Memory of a contender between its turns: a training step of XLNet-Base.
_CONTENDER_BYTES = 8 * 2**30


def main(argv=None):
    """Run the command; see the module docstring.

    Args:
        argv: list of str. None: the arguments of the process.

    Returns:
        int, the exit status: 1 if a contender failed.
    """
    settings = _parser().parse_args(argv)
    settings.matmul_size = 256 if settings.tiny else 2048
    output = pathlib.Path(settings.output).resolve()
    work = output / "work"
    sizes = TINY_SIZES if settings.tiny else Sizes()
    chosen = choose(
        all_measurements(sizes, texts.files_in(work)),
        settings.only,
        settings.contender,
    )
    if settings.list:
        for measurement in chosen:
            print(f"{measurement.name}: {measurement.title}")
            for contender in measurement.contenders:
                print(f"    {contender.name}")
        return 0
    text = None
    if any(measurement.needs_text for measurement in chosen):
        text = texts.prepare(
            work,
            sizes.megabytes,
            settings.text,
            settings.tokenizer,
            vocabulary=400 if settings.tiny else None,
        )
    results = {
        "machine": machine.describe(),
        "settings": {
            "rounds": settings.rounds,
            "alongside": settings.alongside,
            "limit_seconds": settings.limit_seconds,
            "matmul_size": settings.matmul_size,
            "tiny": settings.tiny,
            "text": text,
        },
        "measurements": [],
    }
    if results["machine"]["load_before"] > 0.5:
        say("warning: other programs are running; this is no measurement")
    for measurement in chosen:
        say(measurement.title)
        results["measurements"].append(
            measure(measurement, settings, output / "logs")
        )
        report.add_shares(results["measurements"])
        report.write(output, results)
        print("\n".join(report.table(results["measurements"][-1])[4:]) + "\n")
    print(f"wrote {output / 'results.md'}")
    return int(has_failures(results))


def measure(measurement, settings, log_directory):
    """Run one measurement; return a dict of the results."""
    rows = rounds.hold(measurement, settings, log_directory, say=say)
    return {
        "name": measurement.name,
        "group": measurement.group,
        "title": measurement.title,
        "item": measurement.item,
        "items": measurement.items,
        "flops": measurement.flops,
        "contenders": rows,
    }


def choose(available, only=None, contender=None):
    """Select the requested measurements and contenders.

    Args:
        available: list of Measurement.
        only: list of str, names or groups of measurements. None: all.
        contender: list of str, patterns for names of contenders. None: all.

    Returns:
        list of Measurement.

    Raises:
        SystemExit: if a name is unknown, or no contender matches a pattern.
    """
    known = {name for m in available for name in (m.name, m.group)}
    unknown = sorted(set(only or ()) - known)
    if unknown:
        sys.exit(
            f"error: there is no measurement {', '.join(unknown)}. There are: "
            f"{', '.join(sorted(known))}."
        )
    chosen = []
    for measurement in available:
        if only and not {measurement.name, measurement.group} & set(only):
            continue
        contenders = tuple(
            one
            for one in measurement.contenders
            if not contender
            or any(fnmatch.fnmatch(one.name, pattern) for pattern in contender)
        )
        if contenders:
            chosen.append(
                dataclasses.replace(measurement, contenders=contenders)
            )
    if not chosen:
        sys.exit("error: no contender's name fits --contender; see --list.")
    return chosen


def has_failures(results):
    """Whether a contender failed; skipped contenders do not count."""
    return any(
        row["status"] == "failed"
        for measurement in results["measurements"]
        for row in measurement["contenders"]
    )


def say(text):
    """Print a line and flush, so that redirected output appears immediately."""
    print(text, flush=True)


def positive(text):
    """Parse the value of an option that must be an int above 0."""
    number = int(text)
    if number < 1:
        raise ValueError(text)
    return number


def two_or_more(text):
    """Parse the value of an option that must be an int above 1."""
    number = int(text)
    if number < 2:
        raise ValueError(text)
    return number


def _parser():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], allow_abbrev=False
    )
    add = parser.add_argument
    add("--list", action="store_true", help="list all measurements, and stop")
    add(
        "--only",
        action="append",
        metavar="NAME",
        help="a measurement or a group; may be repeated",
    )
    add(
        "--contender",
        action="append",
        metavar="PATTERN",
        help="pattern of names, such as 'xlnet_tf*'; may be repeated",
    )
    add_contest_options(parser)
    add("--output", default=str(ROOT / "runs" / "bench"), metavar="DIR")
    add("--text", metavar="GLOB", help="UTF-8 files; default: made up")
    add("--tokenizer", metavar="FILE", help="SentencePiece model")
    return parser


def contenders_alongside(available):
    """Number of contenders that fit into memory together, from two to four.

    Args:
        available: int, bytes of available memory, or None if unknown.
    """
    return min(4, max(2, (available or 0) // _CONTENDER_BYTES))


def add_contest_options(parser):
    """Add the options about rounds, memory and time to a parser."""
    add = parser.add_argument
    add("--rounds", type=positive, default=7, metavar="N")
    add("--tiny", action="store_true", help="tiny model and shapes, as a check")
    add(
        "--alongside",
        type=two_or_more,
        default=contenders_alongside(machine.available_bytes()),
        metavar="N",
        help="contenders in memory at the same time, at least 2 (default: as "
        "many as fit)",
    )
    add(
        "--limit-seconds",
        type=float,
        default=900,
        metavar="S",
        help="seconds after which no round starts, except the first three",
    )
    add(
        "--timeout",
        type=float,
        default=1800,
        metavar="S",
        help="seconds without an answer after which a contender is stopped",
    )


if __name__ == "__main__":
    sys.exit(command_line.run(main))
