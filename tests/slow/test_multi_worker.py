"""Two processes on loopback train as one process on the whole batch."""

import json
import os
import socket
import subprocess
import sys

import pytest

import xlnet_tf
from tests.conftest import ROOT
from tests.support import finetuning_fixtures
from tests.support.equality import assert_equal
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import run_train
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records


def free_ports(count):
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def run_workers(argv, count=2, module="xlnet_tf.train"):
    """Runs a command as `count` workers; returns what each printed."""
    workers = [f"127.0.0.1:{port}" for port in free_ports(count)]
    processes = []
    for index in range(count):
        config = {
            "cluster": {"worker": workers},
            "task": {"type": "worker", "index": index},
        }
        environment = {
            **os.environ,
            "TF_CONFIG": json.dumps(config),
            "TF_CPP_MIN_LOG_LEVEL": "3",
        }
        processes.append(
            subprocess.Popen(
                [sys.executable, "-m", module, *argv],
                cwd=ROOT,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
            )
        )
    try:
        outputs = [p.communicate(timeout=300)[0] for p in processes]
    finally:
        for process in processes:
            process.kill()
    for process, output in zip(processes, outputs, strict=True):
        assert process.returncode == 0, output
    return outputs


def check_equal(one, other):
    one = xlnet_tf.XLNetPretrainer.from_preset(one / "preset")
    other = xlnet_tf.XLNetPretrainer.from_preset(other / "preset")
    # float32 sums in another order, over six steps of Adam
    assert_equal(one.trainable_variables, other.trainable_variables, atol=1e-5)


def test_two_workers_equal_one_and_go_on_together(tmp_path):
    records = write_records(tmp_path / "data")
    # Replicas draw their own dropout, so only without it are they one.
    model = {"dropout": 0.0, "attention_dropout": 0.0}
    configs = write_configs(tmp_path, model, max_gradient_norm=0.5)
    one, two = tmp_path / "one", tmp_path / "two"

    assert run_train(*arguments(records, one, *configs, steps=6)) == 0
    argv = arguments(records, two, *configs, steps=6)
    argv[argv.index("one_device")] = "multi_worker"
    outputs = run_workers(argv)

    assert "4 sequences = 2 replica(s) x 1 part(s) x 2" in outputs[0]
    assert "step 6/6" in outputs[0]
    assert "step 6/6" not in outputs[1]  # only the chief reports
    names = {p.name for p in (two / "checkpoints").glob("memory-6-*")}
    assert names == {"memory-6-rows-0-2.npz", "memory-6-rows-2-4.npz"}
    assert (two / "model.keras").is_file()
    check_equal(one, two)

    # Both start again and go on from the checkpoint before.
    for file in (two / "checkpoints").glob("*-6*"):
        file.unlink()
    outputs = run_workers(argv)
    assert "resume    from" in outputs[0]
    check_equal(one, two)


def test_two_workers_finetune_as_one(tmp_path):
    preset = finetuning_fixtures.write_preset(tmp_path / "preset")
    data = finetuning_fixtures.write_task(tmp_path / "data", "classification")
    training = finetuning_fixtures.write_training(
        tmp_path, dropout=0.0, attention_dropout=0.0
    )

    def options(output, strategy):
        values = {
            "--task": "classification",
            "--data": data,
            "--preset": preset,
            "--output": tmp_path / output,
            "--training": training,
            "--strategy": strategy,
            "--predict": data / "dev.tsv",
        }
        return [str(x) for pair in values.items() for x in pair]

    assert finetuning_fixtures.run(*options("one", "one_device")) == 0
    outputs = run_workers(
        options("two", "multi_worker"), module="xlnet_tf.finetune"
    )
    assert "wrote" in outputs[0]
    assert "wrote" not in outputs[1]
    found = [
        [
            json.loads(line)
            for line in (tmp_path / name / "predictions.jsonl")
            .read_text("utf-8")
            .splitlines()
        ]
        for name in ("one", "two")
    ]
    assert len(found[0]) == 20
    for a, b in zip(*found, strict=True):
        # float32 sums in another order, over six steps of Adam
        assert a["probabilities"] == pytest.approx(b["probabilities"], abs=1e-4)
