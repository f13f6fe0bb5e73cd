"""Backend of a run, which computes its steps with TensorFlow or JAX."""

import dataclasses

import keras

from xlnet_tf.training import devices


def with_precision(settings, backend):
    """Replace the precision "auto" in settings by the precision it selects.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
        backend: backend made by `make_backend`.
    """
    if settings.precision != "auto":
        return settings
    precision = "bfloat16" if backend.multiplies_bfloat16 else "float32"
    return dataclasses.replace(settings, precision=precision)


def make_backend(settings):
    """Make the backend for the steps and evaluations of a run.

    Args:
        settings: PretrainingSettings or FinetuningSettings.

    Returns:
        Jax if Keras' backend is JAX, else TensorFlow.

    Raises:
        ValueError: if the backend does not support the settings.
        RuntimeError: if the machine lacks the requested devices.
    """
    if keras.backend.backend() == "jax":
        from xlnet_tf.training.on_jax import Jax

        return Jax(settings)
    from xlnet_tf.training.on_tensorflow import TensorFlow

    return TensorFlow(
        devices.make_strategy(
            settings.strategy, settings.tpu, settings.worker_timeout
        )
    )
