"""Names that options take, checked before anything heavy is loaded."""

import os

from data_pipeline.command_line import near
from xlnet_tf.config.fields import SIZES
from xlnet_tf.files import as_path

STRATEGIES = ("auto", "one_device", "mirrored", "multi_worker", "tpu")


def check_strategy(name):
    """Refuse the name of a distribution strategy that is unknown.

    Args:
        name: str.

    Raises:
        ValueError: it is none of `STRATEGIES`.
    """
    if name not in STRATEGIES:
        raise ValueError(
            f"`strategy` must be one of {', '.join(STRATEGIES)}. Received: "
            f"strategy={name!r}{near(name, STRATEGIES) or '.'}"
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
    hint = near(name, SIZES)
    if as_path(name).is_dir():
        hint = f"; to start from the weights of a preset give --preset {name}."
    raise ValueError(
        f"--config is one of {', '.join(SIZES)}, or a JSON file. Received: "
        f"--config {name[:200]}{hint or '.'}"
    )
