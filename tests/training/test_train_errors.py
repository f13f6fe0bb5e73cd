"""What `python -m xlnet_tf.train` says of what it cannot use, or runs into."""

import json
import pathlib
import re

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.records.schema import RecordSettings
from tests.support.run_fixtures import LENGTH
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import one_line
from tests.support.run_fixtures import run_train
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return write_records(tmp_path_factory.mktemp("records"))


@pytest.fixture(scope="module")
def configs(tmp_path_factory):
    return write_configs(tmp_path_factory.mktemp("configs"))


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--batch-size", "100000"], "batch_size.*number of records"),
        (["--config", "huge"], "tiny, small, base, large"),
        (["--config", "missing.json"], "no config file at missing.json"),
        (["--training", "missing.json"], "no training config"),
        (["--precision", "float16"], "precision.*float32"),
        (["--steps", "0"], "steps.*positive"),
        (["--learning-rate", "-1"], "learning_rate.*positive"),
        (["--records", "nowhere"], "manifest"),
        (["--preset", "nowhere"], "no directory nowhere"),
        (["--strategy", "gpu"], "strategy.*must be one of"),
        (["--strategy", "tpu"], "no TPU answers.*--strategy=auto"),
        (["--memory-length", "-3"], "memory_length.*at least 0"),
    ],
)
def test_bad_input_is_one_clear_line(
    records, configs, tmp_path, capfd, more, message
):
    argv = arguments(records, tmp_path / "run", *configs)
    capfd.readouterr()
    assert run_train(*argv, *more) == 1
    assert re.search(message, one_line(capfd))
    assert not (tmp_path / "run/checkpoints").exists()


def test_a_batch_that_does_not_divide(records, tmp_path, capfd):
    configs = write_configs(tmp_path, gradient_accumulation_steps=3)
    argv = arguments(records, tmp_path / "run", *configs, batch_size=4)
    assert run_train(*argv) == 1
    assert re.search(r"multiple of 3 = 1 replicas x 3", one_line(capfd))


def test_a_config_of_another_vocabulary_or_reuse(
    records, configs, tmp_path, capfd
):
    for change, message in (
        ({"vocabulary_size": 301}, "301 tokens and the tokenizer .* has 300"),
        ({"reuse_length": 8}, "`reuse_length` is 8 in the config and 16"),
    ):
        config = json.loads(pathlib.Path(configs[1]).read_text())
        file = tmp_path / "other.json"
        file.write_text(json.dumps({**config, **change}))
        argv = arguments(records, tmp_path / "run", *configs[2:])
        assert run_train(*argv, "--config", str(file)) == 1
        assert re.search(message, one_line(capfd))


def test_held_out_records_of_another_length(records, configs, tmp_path, capfd):
    other = write_records(tmp_path, RecordSettings(sequence_length=24))
    argv = arguments(records, tmp_path / "run", *configs)
    assert run_train(*argv, "--eval-records", str(other)) == 1
    assert "another length or tokenizer" in one_line(capfd)


def test_fewer_held_out_records_than_replicas(
    records, configs, tmp_path, capfd
):
    few = write_records(
        tmp_path, RecordSettings(sequence_length=LENGTH), num_sentences=1
    )
    # Two records, of which one is damaged.
    shard = few / "train-00000.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 4] ^= 0x10
    shard.write_bytes(bytes(data))
    argv = arguments(records, tmp_path / "run", *configs)
    argv += ["--eval-records", str(few), "--skip-corrupt"]
    assert run_train(*argv, "--strategy", "mirrored") == 1
    message = "holds 1 record.* to evaluate on, and there are 2 replicas"
    assert re.search(message, one_line(capfd))


def test_a_damaged_record_is_named_or_skipped(configs, tmp_path, capfd):
    records = write_records(tmp_path / "copy")
    shard = records / "train-00000.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 0x10
    shard.write_bytes(bytes(data))
    argv = arguments(records, tmp_path / "run", *configs, steps=200)
    assert run_train(*argv) == 1
    lines = capfd.readouterr().err.strip().splitlines()
    message = lines[-1]
    assert re.search(r"train-00000\.tfrecord.*record \d+.*byte", message)
    assert "--skip-corrupt" in message
    argv = arguments(records, tmp_path / "skipping", *configs, steps=2)
    assert run_train(*argv, "--skip-corrupt") == 0
    assert "skipped   1 damaged record" in capfd.readouterr().out


@pytest.mark.slow
def test_a_damaged_held_out_record_is_named_or_skipped(
    configs, tmp_path, capfd
):
    records = write_records(tmp_path / "copy")
    shard = records / "validation-00000.tfrecord"
    data = bytearray(shard.read_bytes())
    data[len(data) // 100] ^= 0x10
    shard.write_bytes(bytes(data))
    argv = arguments(records, tmp_path / "run", *configs)
    assert run_train(*argv) == 1
    message = capfd.readouterr().err.strip().splitlines()[-1]
    assert re.search(r"validation-00000\.tfrecord.*record \d+.*byte", message)
    # and a shard that is cut, which only shows in its size
    shard = records / "train-00000.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-10])
    argv = arguments(records, tmp_path / "skipping", *configs)
    assert run_train(*argv, "--skip-corrupt") == 0
    assert capfd.readouterr().out.count("skipped   1 damaged record") == 2


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (tf.errors.ResourceExhaustedError, "out of memory.*batch-size"),
        pytest.param(
            tf.errors.UnavailableError,
            "a worker stopped answering",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            tf.errors.InternalError, "something else", marks=pytest.mark.slow
        ),
    ],
)
def test_tensorflow_errors_are_one_line(
    records, configs, tmp_path, capfd, monkeypatch, error, message
):
    def fail(*args, **kwargs):
        raise error(None, None, "something else\nat this place")

    monkeypatch.setattr(tf.train.CheckpointManager, "save", fail)
    argv = arguments(records, tmp_path / "run", *configs)
    assert run_train(*argv) == 1
    last = capfd.readouterr().err.strip().splitlines()[-1]
    assert re.search(message, last)


@pytest.mark.slow
def test_a_full_disk_below_tensorflow(
    records, configs, tmp_path, capfd, monkeypatch
):
    def full(*args, **kwargs):
        raise tf.errors.ResourceExhaustedError(
            None, None, "ckpt; No space left on device"
        )

    monkeypatch.setattr(tf.train.CheckpointManager, "save", full)
    argv = arguments(records, tmp_path / "run", *configs)
    assert run_train(*argv) == 1
    assert "the disk is full" in capfd.readouterr().err


def test_half_batches_backwards_need_records_that_are(
    records, configs, tmp_path, capfd
):
    config = json.loads(pathlib.Path(configs[1]).read_text())
    file = tmp_path / "half.json"
    file.write_text(json.dumps({**config, "reverse_half_batch": True}))
    argv = arguments(records, tmp_path / "run", *configs[2:])
    assert run_train(*argv, "--config", str(file)) == 1
    assert "--both-directions" in one_line(capfd)


def test_a_full_disk(records, configs, tmp_path, capfd, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "ckpt")

    monkeypatch.setattr(np, "savez", full)
    argv = arguments(records, tmp_path / "run", *configs, steps=4)
    assert run_train(*argv) == 1
    assert "the disk is full" in capfd.readouterr().err
