"""Rows of ragged tensors, in graph ops."""

import tensorflow as tf


def row_ids(ragged):
    """Row of each value of a ragged tensor.

    The memory of `RaggedTensor.value_rowids` grows with the number of rows
    times the longest row: gigabytes if one of many words is long.

    Args:
        ragged: ragged tensor [N, (T)].

    Returns:
        int64 tensor [values].
    """
    splits = tf.cast(ragged.row_splits, tf.int64)
    places = tf.range(splits[-1])
    return tf.searchsorted(splits, places, side="right", out_type=tf.int64) - 1
