"""Batches of fine-tuning read by the host of a remote device."""

import pathlib
import socket
import subprocess
import sys

import pytest

pytestmark = pytest.mark.slow

ROOT = pathlib.Path(__file__).resolve().parents[2]
SERVER = """
import sys, tensorflow as tf
cluster = {"worker": [sys.argv[1]]}
tf.distribute.Server(cluster, job_name="worker", task_index=0).join()
"""
CLIENT = """
import sys, numpy as np, tensorflow as tf
from data_pipeline.features.batches import Batches, EncodedExamples

tf.config.experimental_connect_to_host(sys.argv[1], job_name="worker")
rows = EncodedExamples(
    {"token_ids": tf.ragged.constant([[i] * (i % 9) for i in range(1, 51)])},
    {"label": np.arange(50)}, {"token_ids": 0}, "left",
)
batches = Batches(rows, 8, (5, 10))
for read in (batches.evaluation, lambda: batches.training(range(3, 9))):
    here = list(read().as_numpy_iterator())
    with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
        iterator = iter(read())
        there = [next(iterator) for _ in here]
    for one, other in zip(here, there):
        for name, value in one.items():
            assert "job:worker" in other[name].device
            np.testing.assert_array_equal(value, other[name])
print(len(here), "steps")
"""


def test_the_host_of_a_remote_device_reads_the_same_batches():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, address], stderr=subprocess.DEVNULL
    )
    try:
        client = subprocess.run(
            [sys.executable, "-c", CLIENT, address],
            cwd=ROOT,
            capture_output=True,
            encoding="utf-8",
            timeout=300,
        )
    finally:
        server.kill()
        server.wait()
    assert client.stdout == "6 steps\n", client.stderr
