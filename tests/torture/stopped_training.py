"""A run that is stopped by a signal at any moment resumes to what it would be.

By SIGTERM or Ctrl-C, pretraining or fine-tuning, it ends with the status of the
signal within the grace period, starting, tracing, computing, evaluating or
saving; then the same command.
"""

import signal

from tests.support import killed_runs

TRIALS = 80


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    kinds = [
        (make, number)
        for make in (killed_runs.pretraining, killed_runs.finetuning)
        for number in (signal.SIGTERM, signal.SIGINT)
    ]
    for place, (make, number) in enumerate(kinds):
        share = count // len(kinds) + (place < count % len(kinds))
        if share:
            of_kind = directory / f"{make.__name__}-{number.name}"
            command = make(of_kind / "input")
            yield from killed_runs.killed_trials(
                command, share, of_kind, generator, number=number
            )
