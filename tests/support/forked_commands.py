"""Commands in separate processes, which start with TensorFlow imported.

Importing TensorFlow takes longer than a short run. The server of
`multiprocessing` imports it once and forks for every command. Unlike in
`preloaded.py`, the process that starts here is the command itself, so that
signals reach the command.
"""

import contextlib
import importlib
import multiprocessing
import os
import signal
import tempfile

from data_pipeline.base import command_line
from tests.support.preloaded import divide_cpu

_IMPORTS = [
    "keras",
    "tensorflow",
    "tensorflow_text",
    "sentencepiece",
    "saved_models.export",
    "xlnet_tf.training.finetune",
    "xlnet_tf.training.pretrain",
]


def start(module, argv, log, devices=1, environment=None):
    """Start a command and return at once.

    Args:
        module: str, such as "xlnet_tf.train".
        argv: list of str.
        log: path of the file to which the output is appended.
        devices: int, logical CPU devices.
        environment: dict of str, further variables.

    Returns:
        multiprocessing.Process; its `exitcode` is negative after a signal.
    """
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_IMPORTS)
    arguments = module, [str(x) for x in argv], str(log), devices
    process = context.Process(
        target=_run, args=(*arguments, environment or {}), daemon=True
    )
    process.start()
    return process


@contextlib.contextmanager
def started(*arguments, **named):
    """Context of `start`; its end kills the process if it still runs."""
    process = start(*arguments, **named)
    try:
        yield process
    finally:
        process.kill()
        process.join()


def _run(module, argv, log, devices, environment):
    os.environ.update(environment)
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(file, 1)
    os.dup2(file, 2)
    # What TensorFlow leaves there when it is killed.
    tempfile.tempdir = os.path.dirname(log)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    if devices > 1:
        divide_cpu(devices)
    main = importlib.import_module(module).main
    raise SystemExit(command_line.run(main, argv))
