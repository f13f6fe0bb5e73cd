"""Runs that are stopped, killed or damaged, as processes and with commands."""

import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.base import command_line
from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_lines
from tests.conftest import ROOT
from tests.support import artefacts
from tests.support import run_fixtures
from tests.support.equality import assert_equal
from tests.support.record_fixtures import flip_byte
from xlnet_tf import train
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.training import on_tensorflow
from xlnet_tf.training import pretrain
from xlnet_tf.training.checkpoints import has_steps


@pytest.fixture
def arguments(records, tmp_path):
    """The command line of the artefact `pretrained`, in a directory."""

    def make(records=records, steps=artefacts.STEPS, **training):
        training = {**artefacts.TRAINING, **training}
        training["warmup_steps"] = min(2, steps - 1)
        files = run_fixtures.write_configs(tmp_path, **training)
        output = tmp_path / "run"
        return run_fixtures.arguments(records, output, *files, steps=steps)

    return make


def start(argv):
    return subprocess.Popen(
        [sys.executable, "-m", "xlnet_tf.train", *argv],
        cwd=ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        encoding="utf-8",
    )


def run_train(argv):
    return command_line.run(train.main, argv)


def lines(output):
    return read_json_lines(output / "metrics.jsonl")


def weights_at(output, step):
    # `tf.train.load_checkpoint` looks for local files.
    reader = tf.compat.v1.train.NewCheckpointReader(
        str(output / f"checkpoints/ckpt-{step}")
    )
    return {
        name: reader.get_tensor(name)
        for name, dtype in reader.get_variable_to_dtype_map().items()
        if dtype == tf.float32 and "metric" not in name
    }


def test_control_c_stops_it_with_a_checkpoint(arguments, tmp_path):
    """SIGTERM stops the runs below."""
    process = start(arguments(steps=10**6, checkpoint_interval=10**6))
    try:
        for line in process.stderr:
            if line.startswith("step "):
                process.send_signal(signal.SIGINT)
                break
        errors = process.stderr.read()
        assert process.wait(timeout=120) == 130, errors
    finally:
        process.kill()
    step = int(re.search(r"stopped at step (\d+)", errors)[1])
    checkpoints = tmp_path / "run" / "checkpoints"
    assert (checkpoints / f"ckpt-{step}.index").is_file()
    assert list(checkpoints.glob(f"memory-{step}-rows-*.npz"))


@pytest.mark.parametrize(
    ("owner", "name"),
    [(XLNetPretrainer, "loss_sums"), (on_tensorflow.MeanLoss, "evaluate")],
)
def test_a_run_in_a_bucket_stops_in_time_and_goes_on(
    arguments, pretrained, bucket, monkeypatch, owner, name
):
    """In a step, and in an evaluation, which is made again."""
    terminated, calls = getattr(owner, name), []

    def terminate(*values, **named):
        if not calls:  # after a second signal it would save nothing
            os.kill(os.getpid(), signal.SIGTERM)
        calls.append(values)
        return terminated(*values, **named)

    output = f"{bucket}/run"
    argv = [*arguments(), "--output", output]
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, terminate)
        assert run_train(argv) == 143
    output = as_path(output)
    # Traced at the first of the two steps of a loop, the signal ends it there.
    stopped_at = 1 if name == "loss_sums" else 2
    assert has_steps(output / "checkpoints")
    assert (output / f"checkpoints/ckpt-{stopped_at}.index").is_file()
    assert not (output / "best").exists()
    assert {x["kind"] for x in lines(output)} == {"train"}
    # It is as if there were no time at all.
    assert run_train([*argv, "--time-limit", "30.001"]) == 143
    assert run_train(argv) == 0
    found = [
        [(x["step"], x["loss"]) for x in lines(run) if x["kind"] == "eval"]
        for run in (pretrained, output)
    ]
    assert found[0] == found[1]
    assert_equal(weights_at(output, 6), weights_at(pretrained, 6))
    # The listing of ram:// takes the folder "train" for a part of
    # "training.json".
    for path in pretrained.iterdir():
        assert (output / path.name).exists(), path
    assert (output / "preset" / "config.json").is_file()
    assert not list(pathlib.Path.cwd().glob("ram:*"))


@pytest.mark.parametrize(
    ("owner", "name"),
    [(on_tensorflow.MeanLoss, "evaluate"), (pretrain, "save")],
)
def test_an_evaluation_that_a_kill_prevented_is_made_on_resume(
    arguments, tmp_path, monkeypatch, owner, name
):
    def killed(*arguments, **named):
        raise RuntimeError("killed")

    argv = arguments(steps=4, evaluation_interval=4)
    with monkeypatch.context() as patch:
        patch.setattr(owner, name, killed)
        assert run_train(argv) == 1
    output = tmp_path / "run"
    kinds = [(m["kind"], m["step"]) for m in lines(output)]
    assert kinds == [("train", 2), ("train", 4)]
    for _ in range(2):
        assert run_train(argv) == 0
        kinds = [(m["kind"], m["step"]) for m in lines(output)]
        assert kinds == [("train", 2), ("train", 4), ("eval", 4)]
    assert (output / "best/config.json").is_file()


@pytest.mark.parametrize("split", ["train", "validation"])
def test_a_damaged_record_is_named_or_skipped(
    arguments, records, tmp_path, capfd, split
):
    copy = shutil.copytree(records, tmp_path / "copy")
    shard = copy / f"{split}-00000.tfrecord"
    flip_byte(shard, shard.stat().st_size // 100)
    often = {"validation": 2, "train": 1000}[split]
    argv = arguments(
        copy,
        steps=1000,
        steps_per_loop=often // 2,
        evaluation_interval=often,
        evaluation_steps=100,
        checkpoint_interval=1000,
    )
    assert run_train(argv) == 1
    message = capfd.readouterr().err.strip().splitlines()[-1]
    assert re.search(rf"{split}-00000\.tfrecord.*record \d+.*byte", message)
    assert "--skip-corrupt" in message
    shutil.rmtree(tmp_path / "run")
    # A shard that is cut only shows in its size.
    other = {"train": "validation", "validation": "train"}[split]
    shard = copy / f"{other}-00000.tfrecord"
    shard.write_bytes(shard.read_bytes()[:-10])
    assert run_train([*arguments(copy, steps=2), "--skip-corrupt"]) == 0
    said = capfd.readouterr().out
    assert said.count("skipped   1 damaged record") == 2


def test_a_full_disk(arguments, tmp_path, capfd, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(28, "No space left on device", "ckpt")

    monkeypatch.setattr(np, "savez", full)
    assert run_train(arguments(steps=4)) == 1
    assert "the disk is full" in capfd.readouterr().err


def test_records_of_both_directions_stored_orders_and_no_held_out_split(
    arguments, tmp_path
):
    from data_pipeline import build_records

    records = tmp_path / "both"
    text = tmp_path / "text.txt"
    text.write_text("\n\n".join(artefacts.tiny_sentences(200)))
    options = ["--input", text, "--text-format", "sentences"]
    options += ["--tokenizer", artefacts.TOKENIZER, "--output", records]
    options += ["--sequence-length", 32, "--both-directions", "--frozen"]
    options += ["--processes", 1]
    assert not build_records.main([str(x) for x in options])
    assert run_train(arguments(records, steps=2)) == 0
    assert {x["kind"] for x in lines(tmp_path / "run")} == {"train"}
    assert (tmp_path / "run" / "model.keras").is_file()


def test_compiled_programs_are_kept(arguments, tmp_path):
    """Twice the same command; the second finds what XLA compiled."""
    cache = tmp_path / 'a "cache" of programs'
    argv = [*arguments(steps=2, jit_compile=True), "--compilation-cache"]
    process = start([*argv, str(cache)])
    assert process.wait(timeout=300) == 0, process.stderr.read()
    files = sorted(cache.rglob("*"))
    assert files
    shutil.rmtree(tmp_path / "run")
    times = [x.stat().st_mtime_ns for x in files]
    process = start([*argv, str(cache)])
    assert process.wait(timeout=300) == 0, process.stderr.read()
    assert sorted(cache.rglob("*")) == files
    assert [x.stat().st_mtime_ns for x in files] == times
