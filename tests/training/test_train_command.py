"""`python -m xlnet_tf.train` from records to a model that can be loaded."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.records.schema import RecordSettings
from tests.support.run_fixtures import LENGTH
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import one_line
from tests.support.run_fixtures import run_train
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return write_records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    return write_configs(tmp_path_factory.mktemp("configs"))


@pytest.fixture(scope="module")
def finished(tmp_path_factory, records, configs):
    """Output directory of a run of 6 steps, exported as well."""
    output = tmp_path_factory.mktemp("run") / "model"
    export = output.parent / "export"
    argv = arguments(records, output, *configs, "--export", export, steps=6)
    assert run_train(*argv) == 0
    return output


def weights_at(output, step):
    reader = tf.train.load_checkpoint(str(output / f"checkpoints/ckpt-{step}"))
    return {
        name: reader.get_tensor(name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype == tf.float32 and "metric" not in name
    }


def metrics(output):
    lines = (output / "metrics.jsonl").read_text().splitlines()
    return [json.loads(line) for line in lines]


def test_says_the_arithmetic_aloud(records, configs, tmp_path, capfd):
    argv = arguments(records, tmp_path / "run", *configs, steps=2)
    assert run_train(*argv) == 0
    printed = capfd.readouterr()
    assert re.search(r"model +XLNet of 1 layers x 16.* parameters", printed.out)
    assert "4 sequences = 1 replica(s) x 1 part(s) x 4" in printed.out
    assert f"{4 * LENGTH} tokens a step" in printed.out
    assert re.search(r"\d+ steps an epoch, 2 steps are", printed.out)
    assert re.search(r"24 tokens remembered, 16 reused.*GB", printed.out)
    assert re.search(r"held out +\d+ sequences", printed.out)
    assert "restoring" not in printed.out  # Orbit's own chatter
    progress = r"step 2/2 +loss \d\.\d+ +bits/token .* tokens/s"
    assert re.search(progress, printed.err)


def test_leaves_a_model_its_tokenizer_and_its_curves(finished):
    model = keras.models.load_model(finished / "model.keras")
    preset = xlnet_tf.XLNetPretrainer.from_preset(finished / "preset")
    for one, other in zip(
        model.trainable_variables, preset.trainable_variables, strict=True
    ):
        np.testing.assert_array_equal(one.numpy(), other.numpy())
    assert (finished / "spiece.model").is_file()
    assert (finished / "preset/assets/tokenizer/vocabulary.spm").is_file()
    kinds = [(m["kind"], m["step"]) for m in metrics(finished)]
    assert kinds == [
        ("train", 2),
        ("train", 4),
        ("eval", 4),
        ("train", 6),
        ("eval", 6),
    ]
    for name in ("train", "eval"):
        events = list((finished / name).glob("events.out.tfevents.*"))
        tags = {
            value.tag
            for event in events
            for record in tf.compat.v1.train.summary_iterator(str(event))
            for value in record.summary.value
        }
        assert {"loss", "bits_per_token", "accuracy"} <= tags
    training_only = {"gradient_norm", "learning_rate", "tokens_per_second"}
    assert training_only <= set(metrics(finished)[0])


def test_exports_at_the_best_evaluation_and_at_the_end(finished):
    versions = {p.name for p in (finished.parent / "export").iterdir()}
    assert "6" in versions
    assert (finished / "best/config.json").is_file()
    assert (finished.parent / "export/6/saved_model.pb").is_file()


@pytest.mark.parametrize(
    "stopped_at", [2, pytest.param(4, marks=pytest.mark.slow)]
)
def test_the_same_command_goes_on_where_it_stopped(
    finished, records, configs, tmp_path, capfd, stopped_at
):
    """Bit for bit: order, permutations, dropout, memory, optimizer."""
    output = tmp_path / "run"
    # The schedule needs the final number of steps, so the first part is
    # stopped, not shortened.
    from xlnet_tf.training import progress as progress

    calls = []

    def stop(self, output):
        # After each loop of two steps, and before the evaluation at 4.
        calls.append(output)
        if 2 * len(calls) == stopped_at:
            raise progress.Stopped

    argv = arguments(records, output, *configs, steps=6)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(progress.StopRequest, "__call__", stop)
        assert run_train(*argv) == 143
    assert "the same command goes on" in capfd.readouterr().err
    assert not (output / "model.keras").exists()
    assert run_train(*argv) == 0
    assert "resume    from" in capfd.readouterr().out
    whole, resumed = weights_at(finished, 6), weights_at(output, 6)
    assert whole.keys() == resumed.keys()
    for name, value in whole.items():
        np.testing.assert_array_equal(value, resumed[name], err_msg=name)
    # The same evaluations, at the same steps, with the same losses.
    names = ("kind", "step", "loss")
    assert [[m[name] for name in names] for m in metrics(output)] == [
        [m[name] for name in names] for m in metrics(finished)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(
    "during",
    ["training.PretrainingEvaluator.eval_begin", "training_run.Run._keep"],
)
def test_an_evaluation_that_a_kill_prevented_is_made_up_for(
    records, configs, tmp_path, monkeypatch, during
):
    def killed(*arguments):
        raise RuntimeError("killed")

    argv = arguments(records, tmp_path / "run", *configs, steps=4)
    with monkeypatch.context() as patch:
        patch.setattr(f"xlnet_tf.{during}", killed)
        assert run_train(*argv) == 1
    kinds = [(m["kind"], m["step"]) for m in metrics(tmp_path / "run")]
    assert kinds == [("train", 2), ("train", 4)]
    for _ in range(2):
        assert run_train(*argv) == 0
        kinds = [(m["kind"], m["step"]) for m in metrics(tmp_path / "run")]
        assert kinds == [("train", 2), ("train", 4), ("eval", 4)]
    assert (tmp_path / "run/best/config.json").is_file()


def test_a_finished_run_is_not_run_again(finished, records, configs, capfd):
    before = weights_at(finished, 6)
    assert run_train(*arguments(records, finished, *configs, steps=6)) == 0
    for name, value in weights_at(finished, 6).items():
        np.testing.assert_array_equal(before[name], value)
    assert "step 6/6  loss" not in capfd.readouterr().err


def test_starts_from_a_preset(finished, records, configs, tmp_path):
    argv = arguments(
        records,
        tmp_path / "run",
        *configs,
        "--preset",
        finished / "preset",
        "--learning-rate",
        "1e-12",
        steps=2,
    )
    assert run_train(*argv) == 0
    before = xlnet_tf.XLNetPretrainer.from_preset(finished / "preset")
    after = xlnet_tf.XLNetPretrainer.from_preset(tmp_path / "run/preset")
    for one, other in zip(
        before.trainable_variables, after.trainable_variables, strict=True
    ):
        np.testing.assert_allclose(one.numpy(), other.numpy(), atol=1e-6)


def other_preset(finished, directory, **head):
    """The weights of a run in another model."""
    model = xlnet_tf.XLNetPretrainer.from_preset(
        finished / "preset", reuse_length=0
    )
    config = model.config.replace(reuse_length=LENGTH // 2 - 1)
    other = xlnet_tf.XLNetPretrainer(xlnet_tf.XLNetBackbone(config), **head)
    other.save_to_preset(directory)
    return directory


def test_starts_from_another_head_and_reuse(
    finished, records, configs, tmp_path, capfd
):
    preset = other_preset(
        finished, tmp_path / "preset", has_transform=True, transform_gelu="erf"
    )
    argv = arguments(records, tmp_path / "run", *configs, steps=2)
    assert run_train(*argv, "--preset", str(preset)) == 0
    after = xlnet_tf.XLNetPretrainer.from_preset(tmp_path / "run/preset")
    assert after.head.has_transform
    assert after.get_config()["transform_gelu"] == "erf"
    # The same directory does not go on from other weights.
    other_preset(finished, preset, has_transform=True, transform_gelu="erf")
    capfd.readouterr()
    assert run_train(*argv, "--preset", str(preset)) == 1
    assert "the weights of another --preset" in one_line(capfd)


def test_a_run_without_a_step_can_be_mended(
    records, configs, tmp_path, monkeypatch, capfd
):
    argv = arguments(records, tmp_path / "run", *configs, steps=2)
    with monkeypatch.context() as patch:
        patch.setattr("xlnet_tf.training.pretraining.Run.train", lambda run: 1)
        assert run_train(*argv) == 1
        assert (tmp_path / "run/run.json").is_file()
        assert run_train(*argv, "--batch-size", "2") == 1
    run = json.loads((tmp_path / "run/run.json").read_text())
    assert run["training"]["batch_size"] == 2
    # A model is something to lose, whatever became of its checkpoints.
    (tmp_path / "run/model.keras").touch()
    capfd.readouterr()
    assert run_train(*argv) == 1
    assert "batch_size: 2 there" in one_line(capfd)


def start(argv):
    environment = {**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"}
    return subprocess.Popen(
        [sys.executable, "-m", "xlnet_tf.train", *argv],
        cwd=ROOT,
        env=environment,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        encoding="utf-8",
    )


@pytest.mark.parametrize(
    ("number", "status"),
    [
        (signal.SIGTERM, 143),
        pytest.param(signal.SIGINT, 130, marks=pytest.mark.slow),
    ],
)
def test_a_signal_stops_it_with_a_checkpoint(records, tmp_path, number, status):
    configs = write_configs(tmp_path / "configs", checkpoint_interval=10**6)
    output = tmp_path / "run"
    process = start(arguments(records, output, *configs, steps=10**6))
    try:
        for line in process.stderr:
            if line.startswith("step "):
                process.send_signal(number)
                break
        errors = process.stderr.read()
        assert process.wait(timeout=120) == status, errors
    finally:
        process.kill()
    step = int(re.search(r"stopped at step (\d+)", errors)[1])
    assert (output / f"checkpoints/ckpt-{step}.index").is_file()
    assert list((output / "checkpoints").glob(f"memory-{step}-rows-*.npz"))


def test_a_directory_of_another_run_is_refused(
    finished, records, configs, tmp_path, capfd
):
    config = json.loads(pathlib.Path(configs[1]).read_text())
    file = tmp_path / "other.json"
    file.write_text(json.dumps({**config, "num_layers": 2}))
    argv = arguments(records, finished, *configs[2:], "--config", file)
    assert run_train(*argv) == 1
    assert re.search("num_layers: 1 there, 2 now", one_line(capfd))


@pytest.mark.slow
def test_memory_length_is_as_given_or_three_quarters(
    records, configs, tmp_path, capfd
):
    config = json.loads(pathlib.Path(configs[1]).read_text())
    file = tmp_path / "none.json"
    file.write_text(json.dumps({**config, "memory_length": 0}))
    argv = arguments(records, tmp_path / "run", *configs[2:], steps=2)
    assert run_train(*argv, "--config", str(file)) == 0
    assert "memory    0 tokens remembered" in capfd.readouterr().out


@pytest.mark.slow
def test_both_directions_and_frozen_records_train(tmp_path, configs):
    records = write_records(
        tmp_path,
        RecordSettings(
            sequence_length=LENGTH, both_directions=True, frozen=True
        ),
    )
    argv = arguments(records, tmp_path / "run", *configs, steps=2)
    assert run_train(*argv) == 0


def test_what_runs_on_replicas_is_compiled(
    records, configs, tmp_path, monkeypatch
):
    """TPUs refuse `strategy.run` outside of a tf.function."""
    original = tf.distribute.OneDeviceStrategy.run

    def run(self, function, *args, **kwargs):
        assert not tf.executing_eagerly(), function
        return original(self, function, *args, **kwargs)

    monkeypatch.setattr(tf.distribute.OneDeviceStrategy, "run", run)
    argv = arguments(records, tmp_path / "run", *configs, steps=4)
    assert run_train(*argv) == 0
