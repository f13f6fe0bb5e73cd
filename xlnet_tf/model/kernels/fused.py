"""Attention in Pallas kernels for TPUs and GPUs.

The kernels do not write the scores [B, N, Q, K] to memory. On a TPU they run on
Keras' JAX backend and, by `jax2tf`, on its TensorFlow backend. On a GPU they
run only on JAX. If a kernel does not support a call, a warning is given once
and `memory_efficient` computes the attention.

Shapes: see `plain`.
"""

import importlib
import re
import warnings

import keras

from xlnet_tf.model.kernels import memory_efficient

# Package of the kernels. It is imported only when a kernel is used, because it
# imports JAX.
_PALLAS = "xlnet_tf.model.kernels.pallas"
# "tpu" or "gpu", set by tests and benchmarks on machines without such a chip:
# run the chip's kernel in Pallas' interpreter, or compile the kernel for the
# chip.
INTERPRET = None
COMPILE_FOR = None


def attend(inputs, rules):
    """Multiply the values by softmax(content + position + segment scores).

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to no key gets
        zeros.
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
    """Whether this process computes on a chip that has a fused kernel."""
    return _accelerator() is not None


def _accelerator():
    """Return the chip that the fused kernel runs on: "tpu", "gpu" or None."""
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
    """Import the module with the fused kernel of a chip.

    Tests and benchmarks name the chip in `INTERPRET` or `COMPILE_FOR`. The
    default is the chip that this process computes on.
    """
    platform = INTERPRET or COMPILE_FOR or _accelerator()
    return importlib.import_module(f"{_PALLAS}.{platform}")


def why_unsupported(query_shape, num_tokens, num_keys, dtype):
    """Return the reason (str) why the kernel cannot compute a call, or None.

    Args:
        query_shape: tuple of ints, (B, N, Q, H).
        num_tokens, num_keys: ints, T and K.
        dtype: str, type of the query.
    """
    backend = keras.backend.backend()
    if backend not in ("jax", "tensorflow"):
        return f"Keras' backend is {backend}"
    if not (INTERPRET or COMPILE_FOR or has_accelerator()):
        if backend == "tensorflow" and "GPU" in _tensorflow_devices():
            return "TensorFlow cannot call a kernel of a GPU; Keras' JAX can"
        return "there is no TPU or GPU that it could run on"
    if keras.distribution.distribution() is not None:
        return "JAX cannot divide a kernel's work as `keras.distribution` does"
    try:
        kernel = _kernel()
    except ImportError as error:
        return f"JAX's Pallas cannot be imported: {error}"
    sizes = (*query_shape, num_tokens, num_keys)
    if not all(isinstance(size, int) for size in sizes):
        return "sizes are not known when the call is traced"
    if 0 in sizes:
        return "there are no rows"
    return kernel.why_unsupported(query_shape, num_tokens, num_keys, dtype)


_warned: set[str] = set()


def _warn_once(problem):
    """Warn of a problem once, even if it occurs again with other sizes."""
    kind = re.sub(r"\d+", "", problem)
    if kind not in _warned:
        _warned.add(kind)
        warnings.warn(
            "the kernel `memory_efficient` computes attention instead of "
            f"`fused`: {problem}.",
            stacklevel=4,
        )
