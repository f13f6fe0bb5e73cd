"""A build that is killed at any moment ends byte for byte as an unbroken one.

SIGKILL ends the command alone, as the system does for want of memory; the same
command is then given again, at once.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import time

from tests.support.record_fixtures import PART
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import record_options
from tests.support.record_fixtures import write_corpus

TRIALS = 60
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TIMEOUT = 120
# The command in small parts. With a number, it kills itself when so many files
# of the set have got their names, and with 0 not.
_PROGRAM = f"""
import json, os, pathlib, signal, sys
from data_pipeline import build_records
from data_pipeline.base import command_line
from data_pipeline.text import documents

documents.PartPlanner.__init__.__defaults__ = ({PART},)
options, left = json.loads(sys.argv[1]), int(sys.argv[2])
replace = pathlib.Path.replace

def counted(source, target):
    global left
    renamed = replace(source, target)
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    return renamed

if __name__ == "__main__":
    pathlib.Path.replace = counted
    sys.exit(command_line.run(build_records.main, options))
"""


def trials(count, directory, generator):
    """Yields (label, problem) of each trial; see `tests.torture`."""
    builds = _Builds(directory)
    kinds = (_while_building, _while_renaming, _twice, _while_overwriting)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        output = directory / f"set-{number}"
        yield kind.__doc__, kind(builds, output, generator)
    if count >= len(kinds):
        yield _two_at_once.__doc__, _two_at_once(builds, directory / "two")


class _Builds:
    """Builds of one text, and what an unbroken one has made of it."""

    def __init__(self, directory):
        self.corpus = write_corpus(directory / "corpus", files=2)
        self._program = directory / "build.py"
        self._program.write_text(_PROGRAM, encoding="utf-8")
        whole, begun = directory / "whole", time.monotonic()
        error = self.finish(whole)
        if error:
            raise RuntimeError(error)
        self.seconds = time.monotonic() - begun
        self.files = _files(whole)

    def start(self, output, *more, renames=0):
        options = record_options(
            self.corpus, output, "--both-directions", "--processes", 2, *more
        )
        return subprocess.Popen(
            [sys.executable, self._program, json.dumps(options), str(renames)],
            cwd=_ROOT,
            env=os.environ | {"PYTHONPATH": str(_ROOT)},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def kill(self, output, seconds, *more):
        """Kills a build after so many seconds, unless it is done before."""
        with self.start(output, *more) as process:
            try:
                process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
        return process.pid

    def finish(self, output, *more):
        """Builds to the end; returns the error, str, or None."""
        with self.start(output, *more) as process:
            error = process.communicate(timeout=_TIMEOUT)[1]
        return error if process.returncode else None

    def problem(self, output, *more):
        """What is wrong after the same command was given again, or None."""
        error = self.finish(output, *more)
        # A build that was complete already leaves nothing either.
        error = error or self.finish(output)
        if error:
            return error
        return self.difference(output)

    def difference(self, output):
        """Names of the files that differ from those of an unbroken build."""
        found = _files(output).items() ^ self.files.items()
        names = sorted({name for name, _ in found})
        return f"other than unbroken: {', '.join(names)}" if names else None


def _files(directory):
    """What a directory holds: digests of its files, names of hidden ones."""
    hidden = {x.name: "" for x in directory.iterdir() if x.name[0] == "."}
    return digests(directory) | hidden


def _while_building(builds, output, generator):
    """killed while it built"""
    group = builds.kill(output, generator.uniform(0, builds.seconds))
    problem = builds.problem(output)
    alive = _alive(group)
    if alive:
        return f"workers outlived it: {alive}"
    return problem


def _while_renaming(builds, output, generator):
    """killed while its files got their names"""
    number = generator.randint(1, len(builds.files))
    with builds.start(output, renames=number) as process:
        process.wait(_TIMEOUT)
    if process.returncode != -signal.SIGKILL:
        return f"not killed at rename {number}: {process.returncode}"
    return builds.problem(output)


def _twice(builds, output, generator):
    """killed, and killed again when it went on"""
    for _ in range(2):
        builds.kill(output, generator.uniform(0.3, 1) * builds.seconds)
    return builds.problem(output)


def _while_overwriting(builds, output, generator):
    """killed while it replaced a set of more shards"""
    error = builds.finish(output, "--validation-fraction", "0.3")
    if error:
        return error
    number = generator.randint(1, len(builds.files))
    with builds.start(output, "--overwrite", renames=number) as process:
        process.wait(_TIMEOUT)
    if process.returncode != -signal.SIGKILL:
        return f"not killed at rename {number}: {process.returncode}"
    return builds.problem(output, "--overwrite")


def _two_at_once(builds, output):
    """two at once: the second is refused"""
    with builds.start(output) as first:
        deadline = time.monotonic() + _TIMEOUT
        while not (output / ".building" / "owner").exists():
            if first.poll() is not None or time.monotonic() > deadline:
                return "the first has not begun"
            time.sleep(0.01)
        error = builds.finish(output)
        first.communicate(timeout=_TIMEOUT)
    if not error or "is writing records to" not in error:
        return f"the second was not refused: {error}"
    if error.count("\n") != 1:
        return f"an error of several lines: {error}"
    return builds.difference(output)


def _alive(group):
    """Processes of a group that run still, list of int."""
    found = []
    for status in pathlib.Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = status.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        # State, parent, group; a zombie runs no more.
        if int(fields[2]) == group and fields[0] not in "ZX":
            found.append(int(status.parent.name))
    return found
