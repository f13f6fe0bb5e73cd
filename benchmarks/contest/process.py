"""Handle of a contender's process, which runs the contender on request."""

import json
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading

ROOT = pathlib.Path(__file__).resolve().parents[2]
# Minimum seconds of a round; short calls are repeated.
_ROUND_SECONDS = 0.5


class Ended(Exception):
    """Error for a contender whose process has ended too early.

    Attributes:
        status: "skipped" if the contender or a package is not available, else
            "failed".
    """

    def __init__(self, reason, status):
        super().__init__(reason)
        self.status = status


class Process:
    """Process in which a contender is set up and waits for requests.

    Args:
        contender: Contender of `measurements.measurement`.
        log: path of a file for the output of the process.
        matmul_size: int, number of rows of the matrices whose product
            measures the machine's rate. None: the rate is not measured.
        timeout: float, maximum seconds for one answer.

    Raises:
        Ended: if the contender cannot be set up.
    """

    def __init__(self, contender, log, matmul_size, timeout):
        self._log = pathlib.Path(log)
        self._timeout = timeout
        self._timed_out = False
        self._log.parent.mkdir(parents=True, exist_ok=True)
        paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
        with self._log.open("w") as stderr:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.contest.worker"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=stderr,
                encoding="utf-8",
                cwd=ROOT,
                env={
                    **os.environ,
                    **contender.environment,
                    "PYTHONPATH": os.pathsep.join(paths),
                },
            )
        self.set_up = self._ask(
            factory=contender.factory,
            options=contender.options,
            matmul_size=matmul_size,
        )
        warm = max(self.set_up["warm_seconds"], 1e-6)
        self.calls = max(1, math.ceil(_ROUND_SECONDS / warm))

    def run(self):
        """Run a round of calls; return the mean seconds of a call."""
        return self._ask(calls=self.calls)["seconds"]

    def finish(self):
        """End the process; return the memory use, a dict of bytes."""
        self._process.stdin.close()
        memory = self._answer()
        self._process.wait()
        return memory

    def kill(self):
        """Kill the process immediately."""
        self._process.kill()
        self._process.wait()

    def _ask(self, **request):
        try:
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # `_answer` raises the error with the reason.
        return self._answer()

    def _answer(self):
        timer = threading.Timer(self._timeout, self._time_out)
        timer.start()
        try:
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        if not line:
            raise self._ended()
        return json.loads(line)

    def _time_out(self):
        self._timed_out = True
        self._process.kill()

    def _ended(self):
        status = self._process.wait()
        if self._timed_out:
            return Ended(f"no answer in {self._timeout:.0f} s", "failed")
        if status < 0:
            name = signal.Signals(-status).name
            return Ended(f"ended by {name} (out of memory?)", "failed")
        lines = self._log.read_text(errors="replace").strip().splitlines()
        return _explained(lines[-1] if lines else f"exit status {status}")


def _explained(last_line):
    """Convert the last line of a traceback to an `Ended` error."""
    missing = re.match(
        r"ModuleNotFoundError: No module named '(.*)'", last_line
    )
    if missing:
        return Ended(f"{missing[1].split('.')[0]} is not installed", "skipped")
    absent = re.match(r"(?:\w+\.)*NotAvailable: (.*)", last_line)
    if absent:
        return Ended(absent[1], "skipped")
    return Ended(last_line.strip(), "failed")
