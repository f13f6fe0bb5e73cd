"""Weights & Biases and MLflow, by their real clients, without a server.

A client that changed is found by nothing else: the quick tests stand in for
them. Like those of test_s3.py, they bring too many packages for the tests.
"""

import importlib.util
import json
import struct

import pytest
import tensorflow as tf

from xlnet_tf.training import trackers
from xlnet_tf.training.log import MetricsLog
from xlnet_tf.training.settings import PretrainingSettings

# What the clients' own packages warn of is not ours.
pytestmark = pytest.mark.filterwarnings("ignore")


def needs(name):
    return pytest.mark.skipif(
        importlib.util.find_spec(name) is None, reason=f"pip install {name}"
    )


def run_steps(directory, service, steps, fail=False):
    """Log steps of a run, beginning with those of a lost checkpoint."""
    config = PretrainingSettings(steps=100, log_to=service)
    global_step = tf.Variable(steps[0] - 1, dtype=tf.int64)
    with MetricsLog(
        directory, config, global_step, lambda *_: "", quiet=True
    ) as log:
        for step in steps:
            global_step.assign(step)
            log.train({"loss": 1 / step})
            log.evaluate({"loss": 2 / step})
        if fail:
            raise RuntimeError


@pytest.fixture
def tracked(tmp_path):
    """Function that logs a run of a service, stopped and resumed."""

    def make(service):
        directory = tmp_path / "run"
        directory.mkdir()
        run_steps(directory, service, [2, 4, 6])
        run_steps(directory, service, [4, 6, 8])
        file = directory / trackers.TRACKER_FILE
        return directory, json.loads(file.read_text())[service]

    return make


def history(file):
    """The rows that W&B logged, of its file, which is a log of LevelDB's kind.

    Blocks of 32 KiB of pieces: checksum, length, type (1 whole; 2 first,
    3 middle, 4 last); the first seven bytes are W&B's own.
    """
    from wandb.proto import wandb_internal_pb2

    data, place, record = file.read_bytes(), 7, b""
    while place + 7 <= len(data):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
        _, size, kind = struct.unpack_from("<IHB", data, place)
        piece = data[place + 7 : place + 7 + size]
        record = piece if kind in (1, 2) else record + piece
        place += 7 + size
        if kind in (1, 4) and size:
            read = wandb_internal_pb2.Record.FromString(record)
            if read.WhichOneof("record_type") == "history":
                yield {
                    item.key or item.nested_key[0]: json.loads(item.value_json)
                    for item in read.history.item
                }


@needs("wandb")
def test_wandb(tracked, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    directory, number = tracked("wandb")
    files = sorted((directory / "wandb").glob(f"*-{number}/run-{number}.wandb"))
    assert len(files) == 2
    logged = [row for file in files for row in history(file)]
    steps = [2, 4, 6, 4, 6, 8]
    losses = [(x["step"], x["train/loss"]) for x in logged if "train/loss" in x]
    assert losses == [(step, pytest.approx(1 / step)) for step in steps]


@needs("mlflow")
def test_mlflow(tracked, tmp_path, monkeypatch):
    import mlflow

    uri = f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", uri)
    directory, number = tracked("mlflow")
    client = mlflow.MlflowClient(uri)
    run = client.get_run(number)
    assert run.info.status == "FINISHED"
    assert run.info.run_name == directory.name
    assert run.data.params["log_to"] == "mlflow"
    history = client.get_metric_history(number, "eval/loss")
    steps = [2, 4, 4, 6, 6, 8]
    assert sorted(x.step for x in history) == steps
    assert all(x.value == pytest.approx(2 / x.step) for x in history)
    with pytest.raises(RuntimeError):
        run_steps(directory, "mlflow", [10], fail=True)
    assert client.get_run(number).info.status == "FAILED"
    # Another place, which does not know the run.
    mlflow.set_tracking_uri(f"sqlite:///{tmp_path}/other.db")
    with pytest.raises(
        ValueError, match=r"not found\. It is the run of .*json"
    ):
        run_steps(directory, "mlflow", [12])
