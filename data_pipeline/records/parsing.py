"""Serialized records -> tensors, as TensorFlow operations.

Shapes: b records, T tokens of the sequence, P targets.
"""

import tensorflow as tf


def parse_records(serialized, manifest):
    """Parse a batch of records of a set.

    Args:
        serialized: string tensor [b].
        manifest: Manifest.

    Returns:
        dict: `token_ids` and `segment_ids` int32 [b, T], `is_target` bool
        [b, T], `is_reversed` and `is_next` bool [b]; if the form is "frozen",
        also `perm_mask` uint8 [b, T, T], 1 = may NOT attend, and
        `target_mapping` uint8 [b, P, T].
    """
    parsed = tf.io.parse_example(
        serialized,
        {
            name: tf.io.FixedLenFeature([], tf.string)
            for name in manifest.features
        },
    )
    values = {}
    for name, feature in manifest.features.items():
        value = tf.io.decode_raw(parsed[name], tf.as_dtype(feature.dtype))
        if feature.packed:
            value = _unpack_bits(
                tf.ensure_shape(value, [None, feature.num_bytes])
            )[:, : feature.num_values]
        values[name] = tf.reshape(
            tf.ensure_shape(value, [None, feature.num_values]),
            [tf.shape(value)[0], *feature.shape],
        )
        values[name].set_shape([serialized.shape[0], *feature.shape])
    return {
        **values,
        "token_ids": tf.cast(values["token_ids"], tf.int32),
        "segment_ids": tf.cast(values["segment_ids"], tf.int32),
        "is_target": tf.cast(values["is_target"], tf.bool),
        "is_reversed": tf.cast(values["is_reversed"][:, 0], tf.bool),
        "is_next": tf.cast(values["is_next"][:, 0], tf.bool),
    }


def _unpack_bits(packed):
    """`numpy.unpackbits` of each row: uint8 [b, n] to uint8 [b, 8 n]."""
    shifts = tf.constant([7, 6, 5, 4, 3, 2, 1, 0], tf.uint8)
    bits = tf.bitwise.right_shift(packed[:, :, None], shifts)
    bits = tf.bitwise.bitwise_and(bits, tf.constant(1, tf.uint8))
    return tf.reshape(bits, [-1, 8 * packed.shape[1]])
