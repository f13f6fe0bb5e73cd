"""A pretraining run that is killed resumes to what it would have been.

SIGKILL, most often in the middle of a save; then the same command. Weights,
memory, optimizer, curves, best weights and results are those of a run that
nobody disturbed, to the bit, and nothing half written is left.
"""

from tests.support import killed_runs

TRIALS = 100


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    command = killed_runs.pretraining(directory / "input", exports=True)
    return killed_runs.killed_trials(command, count, directory, generator)
