"""How fast a framework multiplies large float32 matrices on all cores."""

import time

_PRODUCTS = 8


def measure(framework, size):
    """Floating-point operations a second, of the best of some products.

    Args:
        framework: "tensorflow" or "torch".
        size: int, rows and columns.

    Returns:
        float.
    """
    multiply = {"tensorflow": _tensorflow, "torch": _torch}[framework](size)
    multiply()
    seconds = []
    for _ in range(_PRODUCTS):
        begun = time.perf_counter()
        multiply()
        seconds.append(time.perf_counter() - begun)
    return 2 * size**3 / min(seconds)


def _tensorflow(size):
    import tensorflow as tf

    matrix = tf.random.stateless_normal([size, size], seed=[0, 0])
    function = tf.function(lambda: tf.reduce_max(tf.matmul(matrix, matrix)))
    return lambda: function().numpy()


def _torch(size):
    import torch

    matrix = torch.randn(size, size)
    return lambda: torch.matmul(matrix, matrix).max().item()
