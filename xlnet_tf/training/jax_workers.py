"""Connection of workers on Keras' JAX backend, and failures of workers.

A worker is one of several processes that train together. `jax.distributed`
connects the workers. If a worker fails, JAX ends all other workers: at once if
a connection breaks, else after `_HEARTBEAT` seconds.
"""

import atexit
import contextlib
import inspect
import os
import re
import signal
import subprocess
import sys
import threading
import time

import jax

from data_pipeline.base import command_line
from data_pipeline.base.limits import first_line
from data_pipeline.base.limits import shown
from xlnet_tf.training.devices import deadline
from xlnet_tf.training.devices import is_address

_HEARTBEAT = 30  # seconds without a sign of life
_WAIT = 5  # seconds before a line about waiting
# A worker whose run has ended waits for the others, such as one that exports.
_DAY = 86400
_LOST = (
    "a worker stopped answering, or two have the same index; start all of them "
    "again and they go on from the last checkpoint. JAX says:"
)
_CONNECTION = re.compile(
    r"gloo|nccl|UNAVAILABLE|DEADLINE_EXCEEDED|connection", re.IGNORECASE
)
_has_joined = False
# Passes on what libraries write; a stack trace of JAX becomes one line.
_BESIDE = """\
import sys
for line in sys.stdin.buffer:
    is_end = b"JAX distributed service detected fatal errors" in line
    if is_end:
        reason = line.rpartition(b"absl::Status: ")[2]
        line = sys.argv[1].encode() + b" " + reason
    if not line.startswith(b"[Gloo] "):
        sys.stderr.buffer.write(line)
        sys.stderr.flush()
    if is_end:
        sys.stdin.buffer.read()
"""


def are_several(settings):
    """Whether a run has several workers, bool.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
    """
    if settings.coordinator is not None or settings.strategy == "multi_worker":
        return True
    hosts = os.environ.get("TPU_WORKER_HOSTNAMES", "").count(",")
    if os.environ.get("TPU_PROCESS_BOUNDS") == "1,1,1":
        hosts = 0
    if settings.strategy == "tpu":
        return hosts > 0
    tasks = os.environ.get("SLURM_NTASKS", "1")
    is_step = "SLURM_STEP_NODELIST" in os.environ and tasks != "1"
    return settings.strategy == "auto" and (hosts > 0 or is_step)


def join(settings):
    """Connect this process to the other workers, before JAX finds devices.

    Args:
        settings: PretrainingSettings or FinetuningSettings.

    Raises:
        ValueError: if the address is wrong or missing, or JAX is too old.
        RuntimeError: if not all workers connect to the address.
    """
    global _has_joined
    timeouts = {
        "initialization_timeout": int(settings.worker_timeout) + 60,
        "heartbeat_timeout_seconds": _HEARTBEAT,
        "shutdown_timeout_seconds": _DAY,
    }
    known = inspect.signature(jax.distributed.initialize).parameters
    if not timeouts.keys() <= known.keys():  # the last JAX for Python 3.10
        raise ValueError(
            "several workers need a newer JAX, for Python 3.11 or newer, or "
            f"KERAS_BACKEND=tensorflow. Received: jax {jax.__version__}."
        )
    if jax.distributed.is_initialized():
        return
    given = settings.coordinator
    if given is not None and not is_address(given):
        raise ValueError(
            "`coordinator` must be an address of the form HOST:PORT. "
            f"Received: coordinator={shown(given)}."
        )
    where = given or "the address that JAX finds"
    seconds = settings.worker_timeout
    _pass_on_output()
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    # It would take SIGTERM, which stops a run with a checkpoint.
    jax.config.update("jax_enable_preemption_service", False)
    _has_joined = True
    note = threading.Timer(
        _WAIT,
        command_line.print_notes,
        [
            f"waiting for the other workers at {where}, at most {seconds:g} s "
            "(--worker-timeout)"
        ],
    )
    note.daemon = True
    note.start()
    try:
        with deadline(
            seconds,
            f"the workers did not all meet at {where} within {seconds:g} s "
            "(worker_timeout). Start them together; the address is of worker "
            "0, and each has an index of its own.",
        ):
            jax.distributed.initialize(
                given, settings.num_workers, settings.worker_index, **timeouts
            )
            jax.devices()
    except (ValueError, RuntimeError) as error:
        if not given and isinstance(error, ValueError):
            raise ValueError(
                "JAX finds no other workers here (it looks for Cloud TPU, "
                "Slurm and Open MPI): give --coordinator HOST:PORT, "
                "--num-workers N and --worker-index K, or another --strategy."
            ) from error
        raise RuntimeError(
            f"the workers cannot meet at {where}, which must be an address of "
            f"worker 0 with a free port. JAX says: {first_line(error)}"
        ) from error
    finally:
        note.cancel()


@contextlib.contextmanager
def together():
    """Context that lets a failed worker end without waiting for other workers.

    The context passes errors on. After an error, JAX would wait for the other
    workers before the process ends, while the other workers wait in a step for
    the failed worker. The context prevents JAX's wait.

    Raises:
        RuntimeError: if the connection to another worker broke.
    """
    try:
        yield
    except (Exception, KeyboardInterrupt) as error:
        if not _has_joined:
            raise
        status = 1
        if isinstance(error, KeyboardInterrupt):
            status = 128 + (command_line.take_signal() or signal.SIGINT)
        atexit.register(os._exit, status)
        is_of_jax = isinstance(error, jax.errors.JaxRuntimeError)
        if is_of_jax and _CONNECTION.search(str(error)):
            time.sleep(1)  # if worker 0 is lost, JAX is ending this process
            raise RuntimeError(f"{_LOST} {first_line(error)}") from error
        raise


def _pass_on_output():
    """Filter the output of C++ libraries through a small second process.

    The second process drops the lines of Gloo, JAX's library for communication
    between CPUs. It shortens JAX's stack trace for a lost worker to one line.
    All other lines are written to standard error.
    """
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        stream.flush()
        copy = open(
            os.dup(1 if name == "stdout" else 2),
            "w",
            encoding=stream.encoding,
            errors=stream.errors,
            buffering=1,
        )
        setattr(sys, name, copy)
    beside = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", _BESIDE, f"error: {_LOST}"],
        stdin=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C does not reach it
    )
    for number in (1, 2):
        os.dup2(beside.stdin.fileno(), number)
    beside.stdin.close()
