"""Checks and variables of a command before it imports TensorFlow."""

import ctypes
import os
import platform

from data_pipeline.base import command_line
from data_pipeline.base.files import as_path
from data_pipeline.base.suggestions import did_you_mean
from xlnet_tf.config.fields import SIZES

# Of glibc's malloc.h.
_M_TRIM_THRESHOLD = -1
_M_MMAP_MAX = -4
_M_ARENA_MAX = -8
_MAX_CORES = 8
_MOST_HEAPS = 4
_VARIABLES = (
    "MALLOC_ARENA_MAX",
    "MALLOC_MMAP_MAX_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
)


def check_backend(work, names=("tensorflow",)):
    """Import Keras, and refuse a backend that cannot do some work.

    Args:
        work: str, the work, for the message.
        names: strs, the backends that can.

    Returns:
        str, the name of the backend.

    Raises:
        ValueError: if the backend is another, or is not installed.
    """
    try:
        import keras
    except ModuleNotFoundError as error:  # of a backend
        raise ValueError(
            f"KERAS_BACKEND={os.getenv('KERAS_BACKEND')} needs the package "
            f"{error.name}, which is not installed: pip install {error.name}."
        ) from None
    backend = keras.backend.backend()
    if backend not in names:
        raise ValueError(
            f"{work} needs Keras' backend {' or '.join(names)}. Received: "
            f"KERAS_BACKEND={backend}. Presets are read by every backend."
        )
    return backend


def check_config(name):
    """Refuse a `--config` that is neither a size nor a JSON file by its name.

    Args:
        name: str.

    Raises:
        ValueError: it is another.
    """
    if name in SIZES or as_path(name).suffix == ".json":
        return
    hint = did_you_mean(name, SIZES)
    if as_path(name).is_dir():
        hint = f"; to start from the weights of a preset give --preset {name}."
    raise ValueError(
        f"--config is one of {', '.join(SIZES)}, or a JSON file. Received: "
        f"--config {name[:200]}{hint or '.'}"
    )


def keep_programs(directory):
    """Let TensorFlow keep what XLA compiles, for the next start.

    Call it before TensorFlow is imported.

    Args:
        directory: path, or None or "" to keep nothing.
    """
    if not directory:
        return
    path = str(directory).replace("\\", "\\\\").replace('"', '\\"')
    flag = f'--tf_xla_persistent_cache_directory="{path}"'
    others = os.environ.get("TF_XLA_FLAGS", "")
    os.environ["TF_XLA_FLAGS"] = f"{others} {flag}".strip()


def keep_freed_memory():
    """Let this process keep memory that it has freed, for its next step.

    A step allocates the same large tensors as the one before. By default,
    glibc returns each of them to the system when it is freed, and the system
    clears all of its pages again when the next step asks for them. Only the
    main heap can keep large tensors, so few heaps are allowed; with a single
    one, the threads that compile would wait for each other. On machines with
    many cores, glibc's own heaps per thread are left as they are.

    Call it before threads are started, so before TensorFlow is imported. Does
    nothing without glibc, on more than eight cores, or if the user has set one
    of these options of the allocator by an environment variable.

    Returns:
        bool, whether the allocator was told so.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    if command_line.available_cores() > _MAX_CORES:
        return False
    chosen = any(name in os.environ for name in _VARIABLES)
    chosen |= "glibc.malloc." in os.environ.get("GLIBC_TUNABLES", "")
    if chosen:
        return False
    mallopt = ctypes.CDLL(None).mallopt
    options = (
        (_M_ARENA_MAX, _MOST_HEAPS),
        (_M_MMAP_MAX, 0),  # no blocks apart from the heaps
        (_M_TRIM_THRESHOLD, -1),  # which never shrink
    )
    return all([mallopt(option, value) for option, value in options])
