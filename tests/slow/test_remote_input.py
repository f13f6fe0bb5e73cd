"""What the host of a remote device reads, and does not write."""

import socket
import subprocess
import sys

from tests.support.commands import python

SERVER = """
import sys, tensorflow as tf
cluster = {"worker": [sys.argv[1]]}
tf.distribute.Server(cluster, job_name="worker", task_index=0).join()
"""
CLIENT = """
import os, sys, numpy as np, tensorflow as tf
from data_pipeline.features.batches import Batches, EncodedExamples
from xlnet_tf.training.devices import checkpoint_options

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
os.chdir(sys.argv[2])  # where the server is not
with tf.device("/job:worker/replica:0/task:0/device:CPU:0"):
    variable = tf.Variable(3.0)
checkpoint = tf.train.Checkpoint(variable=variable)
options = checkpoint_options(tf.distribute.OneDeviceStrategy("CPU:0"))
path = checkpoint.write("ckpt", options)
variable.assign(0)
checkpoint.read(path, options)
print(sorted(os.listdir())[-1:], float(variable))
"""


def test_the_host_of_a_remote_device_reads_the_same_batches(tmp_path):
    """Checkpoints of what it holds are written and read by this process."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    mine = tmp_path / "mine"
    mine.mkdir()
    server = subprocess.Popen(
        [sys.executable, "-c", SERVER, address],
        cwd=tmp_path,
        stderr=subprocess.DEVNULL,
    )
    try:
        client = python("-c", CLIENT, address, mine, status=None)
    finally:
        server.kill()
        server.wait()
    expected = "6 steps\n['ckpt.index'] 3.0\n"
    assert client.stdout == expected, client.stderr
