"""Checks and environment variables for commands, before TensorFlow loads."""

import os

from data_pipeline.base.files import as_path
from data_pipeline.base.limits import in_a_line
from data_pipeline.base.suggestions import did_you_mean
from xlnet_tf.config.fields import SIZES

BACKENDS = ("tensorflow", "jax")


def check_backend(work, names=BACKENDS):
    """Import Keras, and refuse a backend that the command does not support.

    If the backend is JAX, this function hides the GPUs from TensorFlow.
    TensorFlow then reads data and writes files on the CPU.

    Args:
        work: str, noun for the error message, such as "pretraining".
        names: sequence of str, the supported backends. An empty sequence means
            all backends of Keras.

    Returns:
        str, the name of the backend.

    Raises:
        ValueError: if the backend is not supported, not installed or unknown
            to Keras, or if Keras cannot read its settings file.
    """
    file = os.path.join(os.environ.get("KERAS_HOME", "~/.keras"), "keras.json")
    where = f'"backend" of {file}'
    if os.environ.get("KERAS_BACKEND"):
        where = "the environment variable KERAS_BACKEND"
    try:
        import keras
    except ModuleNotFoundError as error:  # the backend is not installed
        raise ValueError(
            f"the backend that {where} names needs the package {error.name}, "
            f"which is not installed: pip install {error.name}."
        ) from None
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            f"Keras cannot be imported ({in_a_line(error)}): correct its "
            f"settings, {where} or another value of {file}. This package "
            f"needs Keras' backend {' or '.join(BACKENDS)}."
        ) from error
    backend = keras.backend.backend()
    if names and backend not in names:
        raise ValueError(
            f"{work} needs Keras' backend {' or '.join(names)}. Received: "
            f"{backend}, from {where}. Presets are read by every backend."
        )
    if backend == "jax":
        import tensorflow as tf

        # TensorFlow would allocate memory of the GPU that JAX needs.
        tf.config.set_visible_devices([], "GPU")
    return backend


def check_config(name):
    """Refuse a `--config` that is neither a named size nor a JSON file.

    Args:
        name: str, the value of `--config`.

    Raises:
        ValueError: if `name` is neither a size nor such a file.
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
    """Make TensorFlow store XLA's compiled programs for the next start.

    Call this function before TensorFlow is imported.

    Args:
        directory: path, or None or "" to store no programs.
    """
    if not directory:
        return
    path = str(directory).replace("\\", "\\\\").replace('"', '\\"')
    flag = f'--tf_xla_persistent_cache_directory="{path}"'
    flags = os.environ.get("TF_XLA_FLAGS", "")
    os.environ["TF_XLA_FLAGS"] = f"{flags} {flag}".strip()
