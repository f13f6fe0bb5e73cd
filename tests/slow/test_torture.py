"""A few trials of the faults of runs; `make torture` makes all of them.

What no quick test holds: that a process which is really killed, a disk that is
really full and a peer that is not there leave a run that goes on.
"""

import random

import pytest

from tests.support import killed_runs
from tests.support.commands import python
from tests.torture import damaged_checkpoints
from tests.torture import full_disks
from tests.torture import lost_workers
from tests.torture import stopped_commands

GENERATOR = random.Random(0)


def check(trials):
    problems = [problem for _, problem in trials if problem]
    assert not problems, "\n".join(problems)


def test_a_killed_run_ends_as_if_nothing_had_been(tmp_path):
    """Of fine-tuning, exports and replicas `make torture` has the trials."""
    command = killed_runs.pretraining(tmp_path)
    check(killed_runs.killed_trials(command, 1, tmp_path, GENERATOR))


def test_a_run_on_jax_that_is_killed_or_stopped_goes_on(tmp_path):
    """Pretraining and fine-tuning, by the program of `make torture`."""
    pytest.importorskip("jax", reason="jax is not installed")
    done = python(
        *("-m", "tests.torture", "--trials", "2", "--output", tmp_path),
        *("--only", "killed_finetuning", "stopped_training"),
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
    )
    assert done.stdout.count(" min | 2 | 2 |") == 2


def test_damaged_checkpoints_are_named(tmp_path):
    check(damaged_checkpoints.trials(20, tmp_path, GENERATOR))


def test_a_full_disk_ends_a_run_with_one_line(tmp_path):
    try:
        check(full_disks.trials(2, tmp_path, GENERATOR))
    except PermissionError as error:
        pytest.skip(str(error))


def test_a_stopped_command_ends_with_the_status_of_its_signal(tmp_path):
    check(stopped_commands.trials(2, tmp_path, GENERATOR))


def test_a_worker_does_not_wait_for_ever_for_one_that_never_starts(tmp_path):
    command = killed_runs.pretraining(tmp_path, strategy="multi_worker")
    wait = lost_workers.never_started
    assert wait(command, tmp_path, 1, GENERATOR, seconds=4) is None
