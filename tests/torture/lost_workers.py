"""Where one of two workers is lost, the other ends; together they go on.

One is killed or stopped (SIGSTOP) while they train, or starts too late or
never. The other ends by itself with one line, within `_SECONDS` or, where its
peer never comes, soon after `worker_timeout`. Both started again end as a run
that nobody disturbed, to the bit.
"""

import json
import os
import signal
import socket
import time

from tests.support import forked_commands
from tests.support import killed_runs

TRIALS = 12
_SECONDS = 60  # that the other may take; TensorFlow's heartbeat takes 10
_TIMEOUT = 20  # worker_timeout where a peer does not start
_LIMIT = 600


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    command = killed_runs.pretraining(
        directory / "input", strategy="multi_worker"
    )
    problem = together(command, directory / "whole")
    if problem:
        raise RuntimeError(f"workers that nobody disturbs: {problem}")
    expected = killed_runs.end_of(directory / "whole")
    kinds = list(_KINDS)
    for number in range(count):
        kind = kinds[number % len(kinds)]
        place = directory / str(number)
        lost = generator.randrange(2)
        problem = _KINDS[kind](command, place, lost, generator)
        problem = (
            problem
            or together(command, place)
            or killed_runs.differs(expected, place)
        )
        label = f"{kind}, worker {lost}"
        yield label, problem and f"{problem} ({place})"


def together(command, directory):
    """Runs both workers to the end; a str that says what broke, or None."""
    workers = _Workers(command, directory)
    with workers.started(0) as one, workers.started(1) as other:
        for process in (one, other):
            process.join(_LIMIT)
        if (one.exitcode, other.exitcode) != (0, 0):
            return (
                f"status {one.exitcode} and {other.exitcode}: "
                f"{workers.said(0)} {workers.said(1)}"
            )
    return None


class _Workers:
    """Two workers of a command on loopback."""

    def __init__(self, command, directory, *options):
        self._command = command
        self._options = options
        self.directory = directory
        directory.mkdir(parents=True, exist_ok=True)
        sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(2)]
        self._addresses = []
        for each in sockets:
            self._addresses.append(f"127.0.0.1:{each.getsockname()[1]}")
            each.close()

    def started(self, index):
        """Context of a process."""
        cluster = {
            "cluster": {"worker": self._addresses},
            "task": {"type": "worker", "index": index},
        }
        output = ["--output", self.directory / "run"]
        return forked_commands.started(
            self._command.module,
            [*self._command.options, *output, *self._options],
            self.directory / f"log{index}",
            environment={"TF_CONFIG": json.dumps(cluster)},
        )

    def said(self, index):
        """The last line of a worker, str."""
        file = self.directory / f"log{index}"
        lines = file.read_text().splitlines() if file.exists() else []
        return lines[-1] if lines else ""

    def wait_for_step(self, step):
        """Whether the run comes to a step in time, bool."""
        deadline = time.monotonic() + _LIMIT
        file = self.directory / "run" / "metrics.jsonl"
        while time.monotonic() < deadline:
            if file.exists() and f'"step": {step},' in file.read_text():
                return True
            time.sleep(0.02)
        return False

    def ending(self, process, index, seconds):
        """Waits for a worker; a str that says what is wrong, or None."""
        begun = time.monotonic()
        process.join(seconds)
        waited = time.monotonic() - begun
        if process.exitcode is None:
            return f"worker {index} still waits after {waited:.0f} s"
        if process.exitcode != 1:
            return f"worker {index} ends with status {process.exitcode}"
        said = self.said(index)
        if not said.startswith("error: ") or "worker" not in said:
            return f"worker {index} says {said[:300]!r}"
        return None


def _signalled(number):
    def lose(command, directory, lost, generator):
        workers = _Workers(command, directory)
        with workers.started(0) as one, workers.started(1) as other:
            if not workers.wait_for_step(generator.randint(1, 4)):
                return f"no step: {workers.said(0)} {workers.said(1)}"
            time.sleep(generator.uniform(0, 0.3))
            processes = one, other
            os.kill(processes[lost].pid, number)
            left = 1 - lost
            return workers.ending(processes[left], left, _SECONDS)

    return lose


def never_started(command, directory, lost, generator, seconds=_TIMEOUT):
    """Starts one worker alone; a str that says what broke, or None."""
    workers = _Workers(command, directory, "--worker-timeout", seconds)
    left = 1 - lost
    with workers.started(left) as process:
        return workers.ending(process, left, seconds + _SECONDS)


def _terminated_alone(command, directory, lost, generator):
    """SIGTERM to a worker that waits holds once the other has started."""
    workers = _Workers(command, directory)
    left = 1 - lost
    with workers.started(left) as process:
        time.sleep(10)
        process.terminate()
        time.sleep(generator.uniform(0, 2))
        with workers.started(lost) as other:
            process.join(_LIMIT)
            if process.exitcode != 143:
                return f"status {process.exitcode} after SIGTERM"
            return workers.ending(other, lost, _SECONDS)


def _late(command, directory, lost, generator):
    workers = _Workers(command, directory)
    with workers.started(1 - lost) as one:
        time.sleep(generator.uniform(5, 15))
        with workers.started(lost) as other:
            for process in (one, other):
                process.join(_LIMIT)
            if (one.exitcode, other.exitcode) != (0, 0):
                return f"status {one.exitcode} and {other.exitcode}"
    return None


_KINDS = {
    "killed": _signalled(signal.SIGKILL),
    "never started": never_started,
    "stopped": _signalled(signal.SIGSTOP),
    "SIGTERM to one that waits for it to start": _terminated_alone,
    "late": _late,
}
