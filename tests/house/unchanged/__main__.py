"""Records of what the library computes and writes, to compare two versions.

    python -m tests.house.unchanged record --output DIR
    python -m tests.house.unchanged compare --with DIR

Record before a large change and compare after each step of it. `compare` makes
another record and prints a line for each comparison: "equal", or what differs.
The exit status is 1 if something differs that no line of `--expect FILE` names.

Only public names, commands and files of runs are used, so that this program
runs on any version. A record is `record.json` (values, digests of arrays) and
`arrays.npz`. Its bits hold for one processor and one set of packages.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import pathlib
import shutil
import sys
import tempfile
import time

from tests.house.unchanged import comparing
from tests.house.unchanged import jobs

JOBS = 2  # at a time
# Sums of one thread have one order, on any number of cores.
ENVIRONMENT = {
    "TF_CPP_MIN_LOG_LEVEL": "3",
    "TF_NUM_INTRAOP_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "CUDA_VISIBLE_DEVICES": "",
    "COLUMNS": "80",  # of --help
}
# Imported once for all processes. Not the library: it decides when to import.
PRELOADED = ["tensorflow", "keras", "tensorflow_text", "h5py"]


def record(directory, say=print):
    """Make a record.

    Args:
        directory: path; its folder `work` has the files until all is done.
        say: function of a str, for progress.

    Returns:
        dict of the comparisons.
    """
    work = directory.resolve() / "work"
    if (directory / "record.json").exists() or work.exists():
        raise FileExistsError(
            f"{directory} holds a record, or one that was not finished: remove "
            "it, or name another directory."
        )
    work.mkdir(parents=True)
    os.environ.update(ENVIRONMENT)
    made = {}
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOADED)
    begun = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(
        JOBS, context, max_tasks_per_child=1
    ) as pool:
        for stage in jobs.STAGES:
            waiting = [pool.submit(jobs.attempt, work, *job) for job in stage]
            for future in concurrent.futures.as_completed(waiting):
                name, comparisons, seconds = future.result()
                made |= comparisons
                say(f"{name}: {len(comparisons)} in {seconds:.1f} s")
        say(f"{time.monotonic() - begun:.0f} s")
    comparing.save(made, directory)
    failures = [name for name in made if name.startswith(jobs.FAILURES)]
    for name in failures:
        say(f"{name}: {made[name]['error']}")
    if not failures:
        shutil.rmtree(work)
    return comparing.load(directory)


def main(argv=None):
    """Run the command.

    Args:
        argv: list of str, default None for those of the process.

    Returns:
        int, the exit status.
    """
    parser = argparse.ArgumentParser(prog="python -m tests.house.unchanged")
    subparsers = parser.add_subparsers(dest="command", required=True)
    parsed = subparsers.add_parser("record", help="make a record")
    parsed.add_argument("--output", type=pathlib.Path, required=True)
    parsed = subparsers.add_parser("compare", help="compare with a record")
    parsed.add_argument(
        "--with", dest="old", type=pathlib.Path, required=True, metavar="DIR"
    )
    parsed.add_argument(
        "--output",
        type=pathlib.Path,
        metavar="DIR",
        help="keep the new record; one that is there already is compared",
    )
    parsed.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        metavar="X",
        help="largest difference of floating values, absolute, and relative "
        "above 1 (default 0: bit for bit)",
    )
    parsed.add_argument(
        "--expect",
        type=pathlib.Path,
        metavar="FILE",
        help="lines of PATTERN # REASON: comparisons, or single differences "
        "such as options/train/--profile, that are meant to differ",
    )
    options = parser.parse_args(argv)
    if options.command == "record":
        made = record(options.output)
        return int(any(name.startswith(jobs.FAILURES) for name in made))
    old = comparing.load(options.old)
    lines = (
        options.expect.read_text("utf-8").splitlines() if options.expect else []
    )
    expected = comparing.Expected(lines)
    with tempfile.TemporaryDirectory() as temporary:
        output = options.output or pathlib.Path(temporary)
        if (output / "record.json").exists():
            new = comparing.load(output)
        else:
            new = record(output, lambda text: print(text, file=sys.stderr))
    is_same = comparing.report(old, new, options.tolerance, expected)
    return 0 if is_same else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (OSError, ValueError) as error:
        sys.exit(f"error: {error}")
