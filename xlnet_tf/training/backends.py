"""The backend that computes a run: that of Keras, by its settings."""

import dataclasses

import keras

from xlnet_tf.training import devices


def with_precision(settings, backend):
    """The settings with the precision that "auto" stands for.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
        backend: of `make_backend`.
    """
    if settings.precision != "auto":
        return settings
    precision = "bfloat16" if backend.multiplies_bfloat16 else "float32"
    return dataclasses.replace(settings, precision=precision)


def make_backend(settings):
    """The backend that computes the steps and evaluations of a run.

    Args:
        settings: PretrainingSettings or FinetuningSettings.

    Returns:
        Jax on Keras' JAX backend, else TensorFlow.

    Raises:
        ValueError: if the settings ask for what the backend does not do.
        RuntimeError: if the machine lacks the devices.
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
