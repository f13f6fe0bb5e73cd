"""Runs of commands on either backend of Keras, from the same weights.

    KERAS_BACKEND=jax python -m tests.support.backend_runs < runs.json

The program reads a JSON list of runs, each a list of a module and its
arguments. It writes a line with the exit status of each run. Each backend draws
heads and adapters by its own random numbers; here they start with equal values.
"""

import importlib
import json
import os
import signal
import subprocess
import sys
import zlib

import numpy as np

from tests.conftest import ROOT

# In front of a module: this run is stopped at its second line of metrics.
STOPPED = "stopped:"


def main(runs):
    """Make runs in this process; yield their exit statuses."""
    from data_pipeline.base import command_line
    from xlnet_tf.training import finetune
    from xlnet_tf.training import log

    made, logged = finetune._make_model, log.MetricsLog.train

    def make_model(task):
        model = made(task)
        for variable in model.head.weights + adapters(model):
            variable.assign(numbers(variable))
        return model

    def train(self, figures):
        logged(self, figures)
        if stops and self._global_step.numpy() >= 4:
            os.kill(os.getpid(), signal.SIGTERM)

    finetune._make_model, log.MetricsLog.train = make_model, train
    try:
        for module, *argv in runs:
            stops = module.startswith(STOPPED)
            module = importlib.import_module(module.removeprefix(STOPPED))
            yield command_line.run(module.main, [str(x) for x in argv])
    finally:
        finetune._make_model, log.MetricsLog.train = made, logged


def adapters(model):
    return [x for x in model.trainable_variables if "lora" in x.path]


def numbers(variable):
    """Values of a weight: random numbers, seeded by the weight's path."""
    path = variable.path.partition("/")[2]
    draw = np.random.default_rng(zlib.crc32(path.encode()))
    return draw.normal(0, 0.1, variable.shape).astype("float32")


def environment_of_jax(devices, **others):
    """Environment of a process of JAX with some CPU devices, dict."""
    count = f" --xla_force_host_platform_device_count={devices}"
    return {
        **os.environ,
        "KERAS_BACKEND": "jax",
        "JAX_PLATFORMS": "cpu",
        "XLA_FLAGS": os.environ.get("XLA_FLAGS", "") + count,
        "TF_CPP_MIN_LOG_LEVEL": "3",
        **others,
    }


def run_on_jax(runs, devices=1, **environment):
    """Make runs in a process of JAX on CPU devices.

    Returns:
        (list of int, the exit statuses; subprocess.CompletedProcess).
    """
    process = subprocess.run(
        [sys.executable, "-m", "tests.support.backend_runs"],
        cwd=ROOT,
        env=environment_of_jax(devices, **environment),
        input=json.dumps([[str(x) for x in run] for run in runs]),
        capture_output=True,
        text=True,
    )
    lines = process.stdout.splitlines()
    statuses = [int(x.split()[1]) for x in lines if x.startswith("status ")]
    return statuses, process


if __name__ == "__main__":
    for status in main(json.load(sys.stdin)):
        sys.stdout.write(f"status {status}\n")
        sys.stdout.flush()
