"""A run that is stopped by SIGTERM at any moment resumes to what it would be.

It ends with status 143 within the grace period, starting, tracing, computing,
evaluating or saving; then the same command.
"""

import signal

from tests.support import killed_runs

TRIALS = 40


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    command = killed_runs.pretraining(directory / "input")
    return killed_runs.killed_trials(
        command, count, directory, generator, number=signal.SIGTERM
    )
