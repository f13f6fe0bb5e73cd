"""Windows over long texts, in graph ops.

Shapes: N texts, W windows.
"""

import tensorflow as tf


def window_places(lengths, starts, room, stride):
    """Which ids of a ragged tensor each window reads.

    A text has one window more for each stride begun beyond the first window,
    and one if it is empty.

    Args:
        lengths: int64 tensor [N], of the texts.
        starts: int64 tensor [N], where each begins among all ids.
        room: int64 tensor [N], ids of a window at most, above 0.
        stride: int64 tensor [N], from the start of one window to that of the
            next, from 1 to `room`.

    Returns:
        (places, rows, first): ragged int64 tensor [W, (room)] of places among
        all ids, int64 tensor [W], the text of each window, and int64 tensor
        [W], where in that text it begins.
    """
    counts = 1 + (tf.maximum(lengths - room, 0) + stride - 1) // stride
    rows = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    first = tf.ragged.range(counts).flat_values * tf.gather(stride, rows)
    size = tf.minimum(tf.gather(room, rows), tf.gather(lengths, rows) - first)
    begins = tf.gather(starts, rows) + first
    return tf.ragged.range(begins, begins + size), rows, first


def windows_of_texts(ids, room, stride):
    """Windows of texts as ragged ids.

    Args:
        ids: ragged int32 tensor [N, (tokens)].
        room: int, ids of a window at most.
        stride: int, from 1 to `room`.

    Returns:
        (ragged int32 tensor [W, (room)], int64 tensor [W], the text of each).
    """
    lengths = ids.row_lengths()
    places, rows, _ = window_places(
        lengths,
        ids.row_starts(),
        tf.fill(tf.shape(lengths), tf.constant(room, tf.int64)),
        tf.fill(tf.shape(lengths), tf.constant(stride, tf.int64)),
    )
    windows = places.with_flat_values(
        tf.gather(ids.flat_values, places.flat_values)
    )
    return windows, rows
