"""A server never sees a version of an export that is not whole."""

import multiprocessing
import sys
import threading
import time

from data_pipeline.base import command_line
from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import is_unfinished
from data_pipeline.base.files import names_below
from saved_models import export
from saved_models.versions import is_version
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer

TRIALS = 100
_REPLACED = 0.3  # of the trials, where an earlier version is replaced


def trials(count, directory, generator):
    """Kills `count` exports; see `tests.torture`."""
    model, served = directory / "model", directory / "served"
    shared_model().save_to_preset(model, tokenizer=tiny_tokenizer())
    served.mkdir()
    argv = ["--model", str(model), "--output"]
    first = served / "1"
    (writing, whole), problem = _watched([*argv, str(first)], served)
    yield "not killed", problem
    for number in range(count):
        # Half of them while files are written.
        seconds = generator.uniform(writing if number % 2 else 0.0, whole)
        if generator.random() < _REPLACED:
            label, output = "while one is replaced", [str(first), "--overwrite"]
        else:
            label, output = "while a new one is written", [str(served)]
        _, problem = _watched([*argv, *output], served, seconds)
        yield label, problem
    # What the killed ones left is in nobody's way.
    _, problem = _watched([*argv, str(served)], served)
    yield "not killed", problem


def _watched(argv, served, seconds=None):
    """Makes an export while a server looks at its name.

    Args:
        argv: list of str, of the command.
        served: path of the name.
        seconds: float, when it is killed; None = never.

    Returns:
        ((seconds to its first file, to its end), problem): a pair of float and
        a str or None.
    """
    # Forked by a process that has done the imports, which take longest.
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    before = set(served.iterdir())
    process = context.Process(target=_export, args=(argv,))
    with _Server(served) as server:
        process.start()
        begun, writing = time.monotonic(), None
        while process.is_alive():
            passed = time.monotonic() - begun
            if seconds is not None and passed > seconds:
                process.kill()
                process.join()
            elif writing is None and set(served.iterdir()) - before:
                writing = passed
            time.sleep(0.002)
    whole = time.monotonic() - begun
    problem = server.problem
    if seconds is None and process.exitcode:
        problem = f"the exit status is {process.exitcode}"
    return (writing, whole), problem


def _export(argv):
    sys.exit(command_line.run(export.main, argv))


class _Server:
    """Context of a thread that looks for versions, and checks each it sees.

    Attributes:
        problem: str, what was not whole, or None.
    """

    def __init__(self, served):
        self.problem = None
        self._served = served
        self._checked = {}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._look)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._is_over.set()
        self._thread.join()

    def _look(self):
        is_last = False
        while not is_last:
            is_last = self._is_over.wait(0.002)
            for path in self._served.iterdir():
                if is_version(path):
                    self._check(path)
                elif not is_unfinished(path):
                    self.problem = f"there is {path.name}"
            if not (self._served / "1").is_dir() and self._checked:
                self.problem = "the version that is replaced is gone"

    def _check(self, path):
        """Checks a version, unless it is checked already."""
        number = path.stat().st_ino
        if self._checked.get(path) == number:
            return
        try:
            listed = (path / CHECKSUMS_FILE).read_text().splitlines()
            verify_checksums(path)
            lacking = {line.split("  ")[1] for line in listed}
            lacking ^= set(names_below(path)) - {CHECKSUMS_FILE}
            problem = (
                f"not listed, or not there: {lacking}" if lacking else None
            )
        except (OSError, ValueError) as error:
            problem = str(error)
        if path.stat().st_ino != number:
            return  # exchanged meanwhile: looked at again
        self._checked[path] = number
        if problem:
            self.problem = f"{path.name}: {problem}"
