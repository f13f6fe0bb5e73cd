"""Refusals of runs on JAX. Slow tests have the runs."""

import contextlib
import math
import types

import pytest

from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.training.settings import PretrainingSettings

WORKER = {"coordinator": "host0:2222", "num_workers": 2, "worker_index": 1}


def test_what_is_not_there_on_jax_is_refused(monkeypatch):
    """Each line names what is there instead, for runs of both kinds."""
    pytest.importorskip("jax")
    from xlnet_tf.training.on_jax import Jax

    for given, message in (
        ({"precision": "float16"}, "--precision float16 .*bfloat16, or set "),
        ({"profile": True}, "--profile .*leave it out, or set "),
        ({"tpu": "pod"}, "--tpu pod .*on the TPU VM, without --tpu, or set "),
        ({"strategy": "tpu"}, "finds no TPU, but a .*--strategy auto"),
        ({"strategy": "mirrored", **WORKER}, "no other workers: .*multi_work"),
        ({**WORKER, "coordinator": "host0"}, "HOST:PORT. Received: .*'host0'"),
        ({**WORKER, "coordinator": ""}, "HOST:PORT. Received: .*''"),
    ):
        for cls in (PretrainingSettings, FinetuningSettings):
            with pytest.raises(ValueError, match=message):
                Jax(cls(**given))
    workers = '{"cluster": {"worker": ["a:1", "b:1"]}}'
    monkeypatch.setenv("TF_CONFIG", workers)
    for given in ({}, {"strategy": "multi_worker"}, WORKER):
        with pytest.raises(
            ValueError, match="TF_CONFIG .*--coordinator.*KERAS"
        ):
            Jax(FinetuningSettings(**given))


def test_a_step_that_is_not_finite_only_counts():
    jax = pytest.importorskip("jax")
    from xlnet_tf.training.on_jax import _updated

    optimizer = types.SimpleNamespace(
        iterations="iterations",
        variables=["iterations", "moment"],
        stateless_apply=lambda moments, gradient, weights: (
            [weights[0] - gradient[0]],
            [moments[0] + 1, moments[1] + gradient[0]],
        ),
    )
    settings = FinetuningSettings(max_gradient_norm=0.0)
    update = jax.jit(lambda *args: _updated(*args, optimizer, settings))
    for gradient, loss, expected in (
        (2.0, 4.0, (9.0, [6, 1.0], True)),  # both are divided by the weight
        (math.inf, 4.0, (10.0, [6, 0.0], False)),
        (2.0, math.nan, (10.0, [6, 0.0], False)),
    ):
        weights, moments, report = update(
            *([jax.numpy.array(10.0)], [jax.numpy.array(5), 0.0]),
            *([jax.numpy.array(gradient)], {"loss": loss}, 2.0),
        )
        assert (weights[0], moments, report["is_finite"]) == expected


def test_workers_meet_where_they_are_told_or_where_jax_finds(monkeypatch):
    pytest.importorskip("jax")
    from xlnet_tf.training import jax_workers

    calls, error = [], None

    def initialize(
        *address,
        initialization_timeout,
        heartbeat_timeout_seconds,
        shutdown_timeout_seconds,
    ):
        calls.append((address, initialization_timeout))
        if error:
            raise error

    def deadline(seconds, message):
        calls.append((seconds, message))
        return contextlib.nullcontext()

    monkeypatch.setattr("jax.distributed.initialize", initialize)
    monkeypatch.setattr("jax.config.update", lambda *_: None)
    monkeypatch.setattr(jax_workers, "_has_joined", False)
    monkeypatch.setattr(jax_workers, "_pass_on_output", lambda: None)
    monkeypatch.setattr(jax_workers, "deadline", deadline)
    settings = FinetuningSettings(**WORKER, worker_timeout=90)
    jax_workers.join(settings)
    (seconds, message), (address, latest) = calls
    assert address == ("host0:2222", 2, 1) and latest > seconds == 90
    assert "did not all meet at host0:2222 within 90 s" in message
    found = FinetuningSettings(strategy="multi_worker")
    for given, error, message in (
        (settings, RuntimeError("no port"), "at host0:2222.*JAX says: no port"),
        (found, ValueError("no address"), "JAX finds no other.*--coordinator"),
        (found, RuntimeError("no port"), "the address that JAX finds.*no port"),
    ):
        with pytest.raises(type(error), match=message):
            jax_workers.join(given)
    assert calls[-1][0] == (None, None, None)
    monkeypatch.setattr("jax.distributed.initialize", lambda address: None)
    with pytest.raises(ValueError, match="newer JAX, .*3.11.*Received: jax "):
        jax_workers.join(found)


def test_when_a_run_has_several_workers(monkeypatch):
    pytest.importorskip("jax")
    from xlnet_tf.training.jax_workers import are_several

    names = ("SLURM_NTASKS", "SLURM_STEP_NODELIST")
    names += ("TPU_WORKER_HOSTNAMES", "TPU_PROCESS_BOUNDS")
    step = {"SLURM_NTASKS": "2", "SLURM_STEP_NODELIST": "node[1-2]"}
    slice_ = {"TPU_WORKER_HOSTNAMES": "host0,host1"}
    several = {"multi_worker": True}
    for variables, expected in (
        ({}, several),
        ({"SLURM_NTASKS": "2"}, several),  # of a job, outside of a step
        ({**step, "SLURM_NTASKS": "1"}, several),
        (step, {**several, "auto": True}),
        ({"TPU_WORKER_HOSTNAMES": "host0"}, several),
        ({**slice_, "TPU_PROCESS_BOUNDS": "1,1,1"}, several),
        (slice_, {**several, "auto": True, "tpu": True}),
    ):
        for name in names:
            monkeypatch.delenv(name, raising=False)
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        for strategy in ("auto", "one_device", "mirrored", "tpu", *several):
            settings = FinetuningSettings(strategy=strategy)
            assert are_several(settings) == expected.get(strategy, False)
    assert are_several(FinetuningSettings(**WORKER))
