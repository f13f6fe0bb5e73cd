"""Pretraining on Keras' JAX backend, by the command, in a process of its own.

What no quick test holds: that the same command gives the same run there, on one
device and on two, and goes on to the bit.
"""

import importlib.util
import json
import math
import os
import re

import numpy as np
import pytest

import saved_models
import xlnet_tf
from data_pipeline.base.files import read_json_lines
from saved_models import check
from saved_models.settings import ExportSettings
from tests.support import artefacts
from tests.support.commands import python
from tests.support.equality import assert_equal
from tests.support.killed_runs import end_of
from tests.support.replicas import two_replicas
from tests.support.samples import tiny_sentences
from tests.support.training_fixtures import one_device
from xlnet_tf import train
from xlnet_tf.loading import open_model
from xlnet_tf.training import devices

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)
STEPS = 50

PROGRAM = """
import os, pathlib, signal, sys, threading, time
from data_pipeline.base import command_line
from xlnet_tf import train
from xlnet_tf.training import on_jax

def make_step(*arguments, make=on_jax.make_step):
    step = make(*arguments)

    def checked(weights, moments, *others):
        found = step(weights, moments, *others)
        # Their memory was given to the new ones.
        assert all(x.is_deleted() for x in (*weights, *moments))
        return found

    return checked

on_jax.make_step = make_step
directory, *options = sys.argv[1:]
directory = pathlib.Path(directory)
compiled = directory / "compiled"
# The resumed run is the same program.
options += ["--compilation-cache", str(compiled)]

def run(name, *more):
    argv = [*options, "--output", str(directory / name), *more]
    return command_line.run(train.main, argv)

def stop_at(log, lines):
    while not log.exists() or len(log.read_text().splitlines()) < lines:
        time.sleep(0.002)
    os.kill(os.getpid(), signal.SIGTERM)

assert run("whole/run", "--strategy", "one_device") == 0
assert run("two/run") == 0
def run_in_parts(name, *more):
    log = directory / name / "metrics.jsonl"
    threading.Thread(target=stop_at, args=(log, 5), daemon=True).start()
    assert run(name, *more) == 143
    assert run(name, *more) == 0

steps = {*compiled.glob("jit_step*")}
assert steps
run_in_parts("parts/run", "--strategy", "one_device")
assert steps == {*compiled.glob("jit_step*")}
run_in_parts("divided/run", "--shard-optimizer")
more = ["--objective", "masked", "--next-sentence-weight", "1"]
more += ["--precision", "bfloat16", "--steps", "2", "--warmup-steps", "0"]
assert run("masked/run", *more) == 0
assert run("masked/run", *more, "--steps", "3") == 0  # goes on
more = ["--export", str(directory / "exports"), "--steps", "2"]
assert run("exported/run", *more, "--warmup-steps", "0") == 0
for more in (["--profile"], ["--precision", "float16"], ["--tpu", "pod"]):
    assert run("refused", *more) == 1
assert run("refused", "--strategy", "tpu") == 1
os.environ["TF_CONFIG"] = '{"cluster": {"worker": ["a:1", "b:1"]}}'
assert run("refused") == 1
assert not (directory / "refused").exists()
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """Directory of the runs of both backends, from the same weights."""
    directory = tmp_path_factory.mktemp("jax")
    records = artefacts.Artefacts(directory / "input").get("records")
    config = xlnet_tf.XLNetConfig(
        **{**artefacts.MODEL, "hidden_dim": 32},
        memory_length=24,
        reuse_length=16,
        dropout=0.1,
        attention_dropout=0.1,
    )
    start = xlnet_tf.XLNetPretrainer(xlnet_tf.XLNetBackbone(config, seed=0))
    start.save_to_preset(directory / "start")
    settings = directory / "training.json"
    training = {
        **artefacts.TRAINING,
        "steps_per_loop": 5,
        "evaluation_interval": 25,
        "checkpoint_interval": 10,
        "gradient_accumulation_steps": 2,
    }
    settings.write_text(json.dumps(training))
    options = ["--records", records, "--preset", directory / "start"]
    options += ["--training", settings, "--steps", STEPS, "--batch-size", 4]
    options = [str(x) for x in options]
    for name, make in (("one", one_device), ("replicas", two_replicas)):
        argv = [*options, "--output", str(directory / name / "run")]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(devices, "make_strategy", lambda *_, m=make: m())
            assert train.main(argv) == 0
    result = python(
        "-c",
        PROGRAM,
        directory,
        *options,
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        XLA_FLAGS=os.environ.get("XLA_FLAGS", "")
        + " --xla_force_host_platform_device_count=2",
        JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS="0",
    )
    return directory, result


def curve(directory):
    """list of dict, loss and gradient norm of each line."""
    names = ("loss", "gradient_norm")
    lines = read_json_lines(directory / "run/metrics.jsonl")
    return [{k: x[k] for k in names if k in x} for x in lines]


def assert_near(found, expected, tolerance):
    assert len(found) == len(expected) == STEPS // 5 + 2
    for one, other in zip(found, expected, strict=True):
        assert one.keys() == other.keys()
        for name in one:
            assert one[name] == pytest.approx(other[name], rel=tolerance)


def test_the_curve_is_that_of_tensorflow(runs):
    """On one device and two; dropout, memory, two micro-batches included."""
    directory, result = runs
    assert "JAX, 2 device(s) of CPU" in result.stdout
    for found, other in (("whole", "one"), ("two", "replicas")):
        expected = curve(directory / other)
        assert expected[0]["loss"] > 1.2 * expected[-2]["loss"]  # it learns
        assert_near(curve(directory / found), expected, 1e-4)
    # Each replica draws its own dropout masks.
    assert curve(directory / "two") != curve(directory / "whole")


def test_a_stopped_run_goes_on_to_the_bit(runs):
    directory, result = runs
    assert result.stdout.count("resume    from") == 3
    expected, found = (end_of(directory / x) for x in ("whole", "parts"))
    assert len(found) > 20
    assert_equal(found, expected)


def test_divided_moments_give_equal_runs(runs):
    """Each of two devices keeps a half, also after the run was resumed."""
    directory, result = runs
    found = re.findall(r"(\S+) MB of Adam's moments", result.stdout)
    model = xlnet_tf.load(directory / "divided/run/preset")
    half = 4e-6 * sum(math.prod(x.shape) for x in model.trainable_weights)
    assert len(found) == 2
    assert [*map(float, found)] == pytest.approx([half] * 2, abs=0.006)
    assert_near(curve(directory / "divided"), curve(directory / "two"), 1e-5)
    one, other = (
        xlnet_tf.load(directory / x / "run/preset") for x in ("divided", "two")
    )
    assert_equal(one.weights, other.weights, atol=1e-4)


def test_a_resumed_run_keeps_what_its_objective_does_not_train(runs):
    directory, _ = runs
    before, after = (
        xlnet_tf.load(directory / x).backbone.mask_embedding.numpy()
        for x in ("start", "masked/run/preset")
    )
    np.testing.assert_array_equal(after, before.astype(after.dtype))


def test_presets_are_read_by_the_other_backend(runs):
    directory, _ = runs
    one, other = (
        xlnet_tf.load(directory / x / "run/preset") for x in ("one", "whole")
    )
    assert_equal(one.weights, other.weights, atol=2e-3)


def test_an_export_of_the_run_is_as_its_model(runs, monkeypatch):
    directory, _ = runs
    stored = open_model(directory / "exported/run")
    model, tokenizer = stored.load(), stored.tokenizer()
    settings = ExportSettings(sequence_length=artefacts.LENGTH)
    monkeypatch.setitem(check.TOLERANCES, "float32", 1e-5)
    found = check.check(
        *(model, tokenizer, settings),
        *(saved_models.load(directory / "exports/2"), None),
        list(tiny_sentences(3)),
    )
    assert len(found) == 3 and all(close for _, close in found.values()), found


def test_what_tensorflow_alone_does_is_refused(runs):
    """Each line names what does it, or what is there instead."""
    _, result = runs
    errors = [x for x in result.stderr.splitlines() if x.startswith("error: ")]
    names = ["--profile", "--precision", "--tpu"]
    assert [x.split()[1] for x in errors[:3]] == names
    assert "finds no TPU" in errors.pop(3)
    assert all("KERAS_BACKEND=tensorflow" in x for x in errors)
    assert "TF_CONFIG names several workers" in errors[3]
