"""Row indices of ragged tensors, as graph ops."""

import tensorflow as tf


def row_ids(ragged):
    """Compute the row index of each value of a ragged tensor.

    We avoid `RaggedTensor.value_rowids` because its memory grows with the
    number of rows times the length of the longest row. For many short rows and
    a single long row, this memory may be gigabytes.

    Args:
        ragged: ragged tensor [N, (T)].

    Returns:
        int64 tensor with one index per value.
    """
    splits = tf.cast(ragged.row_splits, tf.int64)
    places = tf.range(splits[-1])
    return tf.searchsorted(splits, places, side="right", out_type=tf.int64) - 1
