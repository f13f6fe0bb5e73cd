"""Benchmark of the start of each command with `--help`: `make startup`.

For each command and for `import xlnet_tf`, the program starts several new
processes and prints the median of their seconds. Medians of one second or more
are marked.
"""

import argparse
import pathlib
import statistics
import subprocess
import sys
import time

from xlnet_tf.__main__ import COMMANDS

ROOT = pathlib.Path(__file__).resolve().parents[1]
LIMIT = 1.0


def seconds(arguments):
    """Measure the seconds of a new Python process with the arguments."""
    begin = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - begin


def main(argv=None):
    """Measure all commands; return 1 if a command is too slow."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args(argv).rounds
    measured = {
        f"python -m {name} --help": ["-m", name, "--help"]
        for name, _ in COMMANDS.values()
    }
    measured["import xlnet_tf"] = ["-c", "import xlnet_tf"]
    is_slow = False
    for name, arguments in measured.items():
        found = statistics.median(seconds(arguments) for _ in range(rounds))
        is_slow |= found >= LIMIT
        mark = "" if found < LIMIT else f"   {LIMIT:g} s or more"
        print(f"{found:6.2f} s  {name}{mark}", flush=True)
    return int(is_slow)


if __name__ == "__main__":
    sys.exit(main())
