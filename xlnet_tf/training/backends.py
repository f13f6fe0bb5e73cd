"""Backend of a run, which computes the run's steps on TensorFlow or JAX."""

import contextlib
import dataclasses

import keras

from data_pipeline.base.command_line import warnings_in_a_line
from xlnet_tf.training import devices


def with_precision(settings, backend):
    """Replace the precision "auto" in settings by the backend's precision.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
        backend: backend made by `make_backend`.
    """
    if settings.precision != "auto":
        return settings
    precision = "bfloat16" if backend.multiplies_bfloat16 else "float32"
    return dataclasses.replace(settings, precision=precision)


@contextlib.contextmanager
def opened_backend(settings):
    """Context that makes the backend of a command; see `make_backend`.

    On JAX, a worker that fails in the context ends without waiting for the
    other workers. JAX then ends the other workers; see `jax_workers`.
    """
    with contextlib.ExitStack() as stack:
        if keras.backend.backend() == "jax":
            from xlnet_tf.training.jax_workers import together

            stack.enter_context(together())
        with warnings_in_a_line():
            backend = make_backend(settings)
        yield backend


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

    if settings.coordinator is not None:
        raise ValueError(
            "--coordinator is for Keras' JAX backend: set KERAS_BACKEND=jax, "
            "or list the workers in TF_CONFIG, with --strategy multi_worker. "
            f"Received: --coordinator {settings.coordinator}."
        )
    if settings.shard_optimizer:
        raise ValueError(
            "--shard-optimizer is for Keras' JAX backend: set "
            "KERAS_BACKEND=jax, or leave the option out."
        )
    return TensorFlow(
        devices.make_strategy(
            settings.strategy, settings.tpu, settings.worker_timeout
        )
    )
