"""Features of a model from ragged ids, and checks of ready ones.

Shapes: N texts, T tokens.
"""

import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID

IDS = ("token_ids", "segment_ids", "padding_mask")


def padded(ids, minimum=1):
    """Ragged ids -> features, padded on the right.

    Args:
        ids: int32 ragged tensor [N, (T)].
        minimum: int, columns where every text is shorter: reshapes need a size
            above 0.

    Returns:
        dict of int32 [N, T]: `token_ids`, `segment_ids` (2 for [CLS], as in
        pretraining, else 0), `padding_mask`.
    """
    token_ids = ids.to_tensor()
    missing = tf.maximum(minimum - tf.shape(token_ids)[1], 0)
    token_ids = tf.pad(token_ids, [[0, 0], [0, missing]])
    return {
        "token_ids": token_ids,
        "segment_ids": tf.where(
            token_ids == CLS_ID, CLS_SEGMENT, FIRST_SEGMENT
        ),
        "padding_mask": tf.sequence_mask(
            ids.row_lengths(), tf.shape(token_ids)[1], dtype=tf.int32
        ),
    }


def with_ends(ids, sequence_length):
    """Ragged ids -> `[ids sep cls]` of at most `sequence_length` tokens."""
    ids = ids[:, : sequence_length - 2]
    rows = ids.nrows(out_type=tf.int32)
    ends = tf.tile([[SEP_ID, CLS_ID]], [rows, 1])
    return tf.concat([ids, tf.RaggedTensor.from_tensor(ends)], axis=1)


def id_specs():
    """dict of tf.TensorSpec, what signatures of ready ids take."""
    return {
        name: tf.TensorSpec([None, None], tf.int32, name=name) for name in IDS
    }


ID_MEANING = {
    "token_ids": "int32 [N, T], all rows of one length",
    "segment_ids": "int32 [N, T], 0 for text and 2 for the final [CLS]",
    "padding_mask": "int32 [N, T], 1 = a real token",
}


def checked(features, vocabulary_size):
    """The same features, refused with a clear line where they do not fit.

    Args:
        features: dict of int32 [N, T], `token_ids` among them.
        vocabulary_size: int.

    Returns:
        dict.
    """
    token_ids = features["token_ids"]
    shape = tf.shape(token_ids)
    checks = [
        tf.debugging.assert_equal(
            tf.shape(features[name]),
            shape,
            f"`{name}` must have the shape of `token_ids`",
        )
        for name in IDS[1:]
        if name in features
    ]
    for fits, message in (
        (token_ids >= 0, "negative"),
        (token_ids < vocabulary_size, "too large"),
    ):
        checks.append(
            tf.debugging.Assert(
                tf.reduce_all(fits),
                [
                    f"`token_ids` must be from 0 to {vocabulary_size - 1}; "
                    f"some are {message}. Received:",
                    token_ids,
                ],
            )
        )
    features = after(checks, features)
    # No column at all would leave nothing to reshape.
    missing = tf.maximum(1 - shape[1], 0)
    return {
        name: tf.pad(value, [[0, 0], [0, missing]]) if name in IDS else value
        for name, value in features.items()
    }


def after(checks, features):
    """The same features, read by nobody before the checks have passed."""
    with tf.control_dependencies(checks):
        return {name: tf.identity(value) for name, value in features.items()}
