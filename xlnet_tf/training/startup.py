"""Checks and variables of a command before it imports TensorFlow."""

import os

from data_pipeline.base.files import as_path
from data_pipeline.base.suggestions import did_you_mean
from xlnet_tf.config.fields import SIZES

BACKENDS = ("tensorflow", "jax")


def check_backend(work):
    """Import Keras, and refuse a backend that cannot do some work.

    Beside JAX, TensorFlow reads data and writes files, on the CPU.

    Args:
        work: str, the work, for the message.

    Returns:
        str, the name of the backend.

    Raises:
        ValueError: if the backend is none of `BACKENDS`, or is not installed.
    """
    try:
        import keras
    except ModuleNotFoundError as error:  # of a backend
        raise ValueError(
            f"KERAS_BACKEND={os.getenv('KERAS_BACKEND')} needs the package "
            f"{error.name}, which is not installed: pip install {error.name}."
        ) from None
    backend = keras.backend.backend()
    if backend not in BACKENDS:
        raise ValueError(
            f"{work} needs Keras' backend {' or '.join(BACKENDS)}. Received: "
            f"KERAS_BACKEND={backend}. Presets are read by every backend."
        )
    if backend == "jax":
        import tensorflow as tf

        # It would take the memory that JAX needs.
        tf.config.set_visible_devices([], "GPU")
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
