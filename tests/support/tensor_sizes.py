"""Sizes of the tensors that eager TensorFlow makes."""

import contextlib

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import op_callbacks


@contextlib.contextmanager
def recorded_sizes():
    """Context that yields a list of the sizes of all new tensors, in bytes.

    Each number counts as 8 bytes. In the context, functions run eagerly.
    """
    sizes = []
    before = tf.config.functions_run_eagerly()

    def record(op_type, inputs, attributes, outputs, *others):
        sizes.extend(
            sum(map(len, x.numpy().ravel()))
            if x.dtype == tf.string
            else np.prod(x.shape) * 8
            for x in outputs
        )

    tf.config.run_functions_eagerly(True)
    op_callbacks.add_op_callback(record)
    try:
        yield sizes
    finally:
        tf.config.run_functions_eagerly(before)
        op_callbacks.remove_op_callback(record)
