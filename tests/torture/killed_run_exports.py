"""A run that is killed while it writes what it learnt resumes all the same.

As `killed_training`, with SIGKILL most often in the middle of an export, a
preset or the model.
"""

from tests.support import killed_runs

TRIALS = 20


def trials(count, directory, generator):
    """Trials of this kind of fault, see `tests/torture/__init__.py`."""
    command = killed_runs.pretraining(directory / "input", exports=True)
    aims = {"export": 9, "save": 1}
    return killed_runs.killed_trials(
        command, count, directory, generator, aims=aims
    )
