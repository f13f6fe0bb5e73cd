"""Attention in kernels of an accelerator, which write no scores by key.

Of a TPU on Keras' JAX backend, and by `jax2tf` in TensorFlow's step; of a GPU
on JAX alone. Sizes that the kernels do not take are computed by
`memory_efficient`, which is said once.

Shapes: as of `plain`.
"""

import functools
import importlib
import warnings

import keras

from xlnet_tf.model.kernels import memory_efficient

# "tpu" or "gpu": compute its kernel without one, in Pallas' interpreter. For
# tests.
INTERPRET = None


def attend(
    query,
    content_bias,
    position_bias,
    segment_bias,
    segment_direction,
    key,
    value,
    position,
    rules,
):
    """Softmax of content, position and segment scores, times the values.

    Args:
        query, content_bias, position_bias, segment_bias, segment_direction,
            key, value, position: float tensors, as `plain.attend` takes them.
        rules: ScoreRules.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to nothing
        gets zeros.
    """
    problem = misfit(query, key, position)
    if problem:
        _warn_once(problem)
        kernel = memory_efficient.attend
    else:
        kernel = functools.partial(
            _kernel().attend, interpret=INTERPRET is not None
        )
    return kernel(
        *(query, content_bias, position_bias, segment_bias),
        *(segment_direction, key, value, position, rules),
    )


def has_accelerator():
    """Whether this process computes on a chip that has a kernel here."""
    backend = keras.backend.backend()
    if backend == "jax":
        return _jax_platform() in ("tpu", "gpu")
    if backend == "tensorflow":
        import tensorflow as tf

        return bool(tf.config.list_logical_devices("TPU"))
    return False


def _computes_on_gpu():
    import tensorflow as tf

    kinds = {device.device_type for device in tf.config.list_logical_devices()}
    return "GPU" in kinds and "TPU" not in kinds


def _jax_platform():
    import jax

    return jax.default_backend()


def _kernel():
    """The module of the kernel: of a TPU, unless JAX computes on a GPU."""
    platform = INTERPRET
    if platform is None:
        on_jax = keras.backend.backend() == "jax"
        platform = "gpu" if on_jax and _jax_platform() == "gpu" else "tpu"
    return importlib.import_module(f"{__name__}.{platform}")


def misfit(query, key, position):
    """Why the kernel does not compute these tensors, str, or None."""
    backend = keras.backend.backend()
    if backend not in ("jax", "tensorflow"):
        return f"Keras' backend is {backend}"
    if backend == "tensorflow" and _computes_on_gpu():
        return "TensorFlow cannot call a GPU's kernel (set KERAS_BACKEND=jax)"
    try:
        kernel = _kernel()
    except ImportError as error:
        return f"JAX cannot be used (pip install 'xlnet_tf[tpu]'): {error}"
    num_keys, num_distances = key.shape[2], position.shape[2]
    sizes = (*query.shape, num_keys, num_distances)
    if not all(isinstance(size, int) for size in sizes):
        return "sizes are not known when it is traced"
    return kernel.misfit(
        tuple(query.shape),
        num_distances - num_keys,
        num_keys,
        keras.backend.standardize_dtype(query.dtype),
    )


@functools.cache
def _warn_once(problem):
    warnings.warn(
        f"the kernel `memory_efficient` computes attention instead of `fused`: "
        f"{problem}.",
        stacklevel=4,
    )
