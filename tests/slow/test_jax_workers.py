"""Workers on Keras' JAX backend, on loopback, with two CPU devices each."""

import contextlib
import importlib.util
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from data_pipeline.base.files import read_json_lines
from tests.conftest import ROOT
from tests.slow.test_multi_worker import free_ports
from tests.support import finetuning_fixtures
from tests.support.backend_runs import environment_of_jax
from tests.support.equality import assert_equal
from tests.support.killed_runs import end_of
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)
STEPS = 40
_SECONDS = 60  # that a worker may take to end once another is lost
_LIMIT = 300


class Process:
    """A command on JAX; its output is in files.

    Args:
        place: path, directory of the files.
        argv: module and options.
        devices: int, of the CPU.
        **environment: further variables.
    """

    def __init__(self, place, argv, devices, **environment):
        place.mkdir(parents=True, exist_ok=True)
        self._files = [place / name for name in ("stdout", "stderr")]
        with contextlib.ExitStack() as stack:
            out, error = (stack.enter_context(x.open("w")) for x in self._files)
            self._process = subprocess.Popen(
                [sys.executable, "-m", *map(str, argv)],
                cwd=ROOT,
                env=environment_of_jax(devices, **environment),
                stdout=out,
                stderr=error,
            )
        self.signal = self._process.send_signal

    def __enter__(self):
        return self

    def __exit__(self, *exception):
        self._process.kill()
        self._process.wait()

    @property
    def runs(self):
        """bool."""
        return self._process.poll() is None

    @property
    def said(self):
        """(standard output, standard error), strs."""
        return tuple(x.read_text() for x in self._files)

    def status(self, seconds=_LIMIT):
        """int, once the process has ended."""
        return self._process.wait(seconds)

    def error(self, seconds=_LIMIT):
        """The one line of an error, str; nothing follows it."""
        assert self.status(seconds) not in (0, None)
        time.sleep(1)  # the line may come from the process beside
        lines = self.said[1].splitlines()
        errors = [x for x in lines if x.startswith("error: ")]
        assert len(errors) == 1 and lines[-1] == errors[0], lines
        return errors[0]


@contextlib.contextmanager
def workers(place, argv, more=((), ())):
    """Context of the processes of a command, one for each of `more`."""
    (port,) = free_ports(1)
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Process(
                    place / f"worker-{index}",
                    [
                        *argv,
                        *("--coordinator", f"127.0.0.1:{port}"),
                        *("--num-workers", len(more), "--worker-index", index),
                        *options,
                    ],
                    devices=2,
                )
            )
            for index, options in enumerate(more)
        ]


@contextlib.contextmanager
def tasks_of_slurm(place, argv):
    """Context of two processes with the variables of a Slurm step."""
    # JAX takes the port from the number of the job.
    job = os.getpid() * 4096 + free_ports(1)[0] % 4096
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(
                Process(
                    place / f"worker-{index}",
                    argv,
                    devices=2,
                    SLURM_JOB_ID=str(job),
                    SLURM_STEP_NODELIST="localhost",
                    SLURM_NTASKS="2",
                    SLURM_PROCID=str(index),
                    SLURM_LOCALID=str(index),
                )
            )
            for index in range(2)
        ]


def finish(place, argv, start=workers):
    """Run both workers to the end; returns the output of worker 0."""
    with start(place, argv) as both:
        for process in both:
            assert process.status() == 0, process.said
        said = [process.said for process in both]
    # Only the chief reports.
    assert said[1][0] == "" and "step" not in said[1][1]
    return said[0][0]


def lines(run):
    return [
        {k: x for k, x in line.items() if not k.endswith("_per_second")}
        for line in read_json_lines(run / "metrics.jsonl")
    ]


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory):
    """(directory, command): the run of two workers is in `two/run`.

    Each of their devices keeps a part of Adam's moments.
    """
    directory = tmp_path_factory.mktemp("jax")
    records = write_records(directory / "data")
    configs = write_configs(
        directory,
        {"hidden_dim": 32},
        evaluation_interval=20,
        gradient_accumulation_steps=2,
    )
    command = ["xlnet_tf.train", "--records", records, *configs]
    command += ["--steps", STEPS, "--batch-size", 8]
    argv = [*command, "--shard-optimizer", "--output", directory / "two/run"]
    said = finish(directory, argv)
    assert "JAX, 4 device(s) of CPU in 2 workers" in said
    assert " MB of Adam's moments on each device" in said
    assert "= 4 replica(s) x 2 part(s) x 1" in said
    return directory, command


def test_two_workers_pretrain_as_one(pretraining):
    directory, command = pretraining
    argv = [*command, "--output", directory / "one/run"]
    with Process(directory / "one", argv, devices=4) as process:
        assert process.status() == 0, process.said
    one, two = (directory / x / "run" for x in ("one", "two"))
    found, expected = lines(two), lines(one)
    assert len(found) == len(expected) == STEPS // 2 + 2
    for line, wanted in zip(found, expected, strict=True):
        # float32 sums in another order
        assert line == pytest.approx(wanted, rel=1e-5, abs=1e-6)
    memory = [
        [
            dict(np.load(file))
            for file in sorted(run.glob(f"checkpoints/memory-{STEPS}-*"))
        ]
        for run in (one, two)
    ]
    assert [len(x) for x in memory] == [1, 2]
    for name, rows in memory[0][0].items():
        parts = np.concatenate([x[name] for x in memory[1]])
        np.testing.assert_allclose(parts, rows, atol=1e-4)


def test_two_workers_of_slurm_finetune_as_one(tmp_path):
    preset = finetuning_fixtures.write_preset(tmp_path / "preset")
    data = finetuning_fixtures.write_task(tmp_path / "data", "classification")
    training = finetuning_fixtures.write_training(tmp_path)
    command = ["xlnet_tf.finetune", "--task", "classification", "--data", data]
    command += ["--preset", preset, "--training", training]
    command += ["--predict", data / "dev.tsv"]
    one, two = (tmp_path / x for x in ("one", "two"))
    argv = [*command, "--output", one]
    with Process(tmp_path, argv, devices=4) as process:
        assert process.status() == 0, process.said
    said = finish(tmp_path, [*command, "--output", two], tasks_of_slurm)
    assert "in 2 workers" in said and "wrote" in said
    for found, expected in zip(lines(two), lines(one), strict=True):
        assert found == pytest.approx(expected, rel=1e-5, abs=1e-6)
    names = [
        {x.name for x in run.rglob("*") if "tfevents" not in x.name}
        for run in (one, two)
    ]
    assert names[0] == names[1]
    answers = [read_json_lines(x / "predictions.jsonl") for x in (one, two)]
    assert len(answers[0]) == 20
    for a, b in zip(*answers, strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-5)


def test_a_lost_worker_ends_the_other_and_they_go_on(pretraining, tmp_path):
    """To the bit, also after SIGTERM to one of them."""
    directory, command = pretraining
    argv = [*command, "--shard-optimizer", "--output", tmp_path / "run"]
    for step, lost, number in (
        (4, 0, signal.SIGKILL),
        (12, 1, signal.SIGKILL),
        (22, 1, signal.SIGSTOP),
    ):
        with workers(tmp_path, argv) as both:
            wait_for_step(both, tmp_path / "run", step)
            both[lost].signal(number)
            error = both[1 - lost].error(_SECONDS)
        assert error.startswith("error: a worker stopped answering")
        assert "go on from the last checkpoint. JAX says: " in error
    with workers(tmp_path, argv) as both:
        wait_for_step(both, tmp_path / "run", 30)
        both[1].signal(signal.SIGTERM)
        assert [process.status(_SECONDS) for process in both] == [143, 143]
        said = [process.said[1].splitlines()[-1] for process in both]
    assert said[0] == said[1] and said[0].startswith("stopped at step ")
    assert "resume    from" in finish(tmp_path, argv)
    assert_equal(end_of(tmp_path), end_of(directory / "two"))


def wait_for_step(processes, run, step):
    begun, file = time.monotonic(), run / "metrics.jsonl"
    while not (file.exists() and f'"step": {step},' in file.read_text()):
        is_late = time.monotonic() - begun > _LIMIT
        has_ended = any(not process.runs for process in processes)
        assert not (is_late or has_ended), [x.said for x in processes]
        time.sleep(0.01)


def test_workers_that_do_not_fit_are_refused(pretraining, tmp_path):
    _, command = pretraining
    command = [*command, "--output", tmp_path / "run"]
    alone = ["--coordinator", f"127.0.0.1:{free_ports(1)[0]}"]
    alone += ["--num-workers", 2, "--worker-timeout", 8, "--worker-index", 1]
    with Process(tmp_path / "alone", [*command, *alone], 2) as process:
        assert "did not all meet at 127.0.0.1:" in process.error()
        assert "waiting for the other workers at 127." in process.said[1]
    others = ["--seed", 1, "--output", tmp_path / "other", "--num-workers", 3]
    with workers(tmp_path, command, ((), others)) as both:
        for process in both:
            error = process.error()
            assert "other values of num_workers, output, seed: " in error
    batch = ["--batch-size", 4]
    with workers(tmp_path, command, (batch, batch)) as both:
        error = both[0].error()
        assert "must be a multiple of 8 = 4 replicas x 2 accum" in error
        both[1].error()  # the same, or that worker 0 is gone
    assert not (tmp_path / "run").exists()
