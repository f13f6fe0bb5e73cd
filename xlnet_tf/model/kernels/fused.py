"""Attention in kernels of an accelerator, which write no scores by key.

Of a TPU on Keras' JAX backend, and by `jax2tf` in TensorFlow's step; of a GPU
on JAX alone. Sizes that the kernels do not take are computed by
`memory_efficient`, which is said once.

Shapes: as of `plain`.
"""

import importlib
import re
import warnings

import keras

from xlnet_tf.model.kernels import memory_efficient

# The folder of the kernels, imported where they are used: they import JAX.
_PALLAS = "xlnet_tf.model.kernels.pallas"
# "tpu" or "gpu", to compute its kernel in Pallas' interpreter, or to compile it
# for such a chip, on a machine that has none. For tests and benchmarks.
INTERPRET = None
COMPILE_FOR = None


def attend(inputs, rules):
    """Softmax of content, position and segment scores, times the values.

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to nothing
        gets zeros.
    """
    num_keys = inputs.key.shape[2]
    num_tokens = inputs.position.shape[2]
    if None not in (num_tokens, num_keys):
        num_tokens -= num_keys
    dtype = keras.backend.standardize_dtype(inputs.query.dtype)
    sizes = (tuple(inputs.query.shape), num_tokens, num_keys, dtype)
    problem = why_unsupported(*sizes)
    if problem:
        _warn_once(problem)
        return memory_efficient.attend(inputs, rules)
    return _kernel().attend(inputs, rules, interpret=INTERPRET is not None)


def has_accelerator():
    """Whether this process computes on a chip that has a kernel here."""
    return _accelerator() is not None


def _accelerator():
    """Return "tpu" or "gpu" if a kernel runs there, else None."""
    backend = keras.backend.backend()
    if backend == "jax":
        import jax

        platform = jax.default_backend()
        return platform if platform in ("tpu", "gpu") else None
    if backend == "tensorflow" and "TPU" in _tensorflow_devices():
        return "tpu"
    return None


def _tensorflow_devices():
    import tensorflow as tf

    return {device.device_type for device in tf.config.list_logical_devices()}


def _kernel():
    """Module of the kernel of this process's chip, which may be pretended."""
    platform = INTERPRET or COMPILE_FOR or _accelerator()
    return importlib.import_module(f"{_PALLAS}.{platform}")


def why_unsupported(query_shape, num_tokens, num_keys, dtype):
    """Return why the kernel cannot compute attention, as str, or None.

    Args:
        query_shape: ints B, N, Q and H.
        num_tokens, num_keys: ints, T and K.
        dtype: str, of the query.
    """
    backend = keras.backend.backend()
    if backend not in ("jax", "tensorflow"):
        return f"Keras' backend is {backend}"
    if not (INTERPRET or COMPILE_FOR or has_accelerator()):
        if backend == "tensorflow" and "GPU" in _tensorflow_devices():
            return "TensorFlow cannot call a kernel of a GPU; Keras' JAX can"
        return "there is no TPU or GPU that it could run on"
    if keras.distribution.distribution() is not None:
        return "JAX cannot divide it as `keras.distribution` divides tensors"
    try:
        kernel = _kernel()
    except ImportError as error:
        return f"JAX's Pallas cannot be imported: {error}"
    sizes = (*query_shape, num_tokens, num_keys)
    if not all(isinstance(size, int) for size in sizes):
        return "sizes are not known when it is traced"
    if 0 in sizes:
        return "there are no rows"
    return kernel.why_unsupported(query_shape, num_tokens, num_keys, dtype)


_warned: set[str] = set()


def _warn_once(problem):
    """Warn of a problem, unless it was one of other sizes before."""
    kind = re.sub(r"\d+", "", problem)
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(
            "the kernel `memory_efficient` computes attention instead of "
            f"`fused`: {problem}.",
            stacklevel=4,
        )
