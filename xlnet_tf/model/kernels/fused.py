"""Attention in accelerator kernels that write no scores by key to memory.

They run on a TPU on Keras' JAX backend and, by `jax2tf`, in TensorFlow's step;
on a GPU only on JAX. `memory_efficient` computes unsupported sizes, with one
warning.

Shapes: see `plain`.
"""

import importlib
import re
import warnings

import keras

from xlnet_tf.model.kernels import memory_efficient

# Package of the kernels, imported only for use: it imports JAX.
_PALLAS = "xlnet_tf.model.kernels.pallas"
# "tpu" or "gpu": run its kernel in Pallas' interpreter, or compile it for such
# a chip, on a machine without one. For tests and benchmarks.
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
    """Whether this process computes on a chip with a kernel."""
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
    """Module of the kernel for this process's chip, real or pretended."""
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
    """Warn of a problem once, whatever the sizes."""
    kind = re.sub(r"\d+", "", problem)
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(
            "the kernel `memory_efficient` computes attention instead of "
            f"`fused`: {problem}.",
            stacklevel=4,
        )
