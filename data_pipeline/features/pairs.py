"""Packing of source and target texts into sequences, as TensorFlow ops.

A target follows its source: `source sep target sep`. BERT's layout has a `cls`
at the front. Only TensorFlow's own ops are used, so that TensorFlow Serving can
load an export.

Shapes: B pairs, T tokens of a sequence, P tokens of a target.
"""

import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import SECOND_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import find_layout


def check_lengths(sequence_length, target_length):
    """Refuse lengths that leave no room for a source or a target.

    Raises:
        ValueError: a length is too small.
    """
    if target_length < 2:
        raise ValueError(
            "`target_length` must be at least 2: a token and its end. "
            f"Received: target_length={target_length}."
        )
    if sequence_length - target_length < 3:
        raise ValueError(
            "`sequence_length` holds a source and its target, so it must be at "
            "least 3 above `target_length`: [CLS], a token and [SEP]. "
            f"Received: sequence_length={sequence_length}, "
            f"target_length={target_length}."
        )


def pack_sources(sources, room, layout="xlnet"):
    """Add [SEP], and [CLS] for BERT, to sources; cut long sources at the end.

    Args:
        sources: int32 ragged tensor [B, (T)].
        room: int, maximum number of tokens of a source, including the added
            [SEP] and [CLS].
        layout: str, "xlnet" (default) or "bert".

    Returns:
        int32 ragged tensor [B, (T)].
    """
    begin = [CLS_ID] * find_layout(layout).class_first
    kept = sources[:, : room - len(begin) - 1]
    count = sources.nrows()
    symbols = [column(begin, count), kept, column([SEP_ID], count)]
    return tf.concat(symbols, axis=1)


def pack_pairs(sources, targets, sequence_length, target_length, layout):
    """Join each source and its target into one sequence.

    Args:
        sources, targets: int32 ragged tensors [B, (T)].
        sequence_length: int, maximum number of tokens of a source and its
            target together.
        target_length: int, P, maximum number of tokens of a target with its
            final [SEP]. A longer target is truncated, but keeps the [SEP].
        layout: str, "xlnet" or "bert".

    Returns:
        sequences: dict of int32 ragged tensors [B, (T)]: `token_ids` and
            `segment_ids`.
        targets: dict of tensors [B, P]: `target_ids` (int32),
            `target_positions` (int32, positions in the sequence) and
            `target_weights` (float32, 0 for padding).
    """
    sources = pack_sources(sources, sequence_length - target_length, layout)
    end = column([SEP_ID], sources.nrows())
    targets = tf.concat([targets[:, : target_length - 1], end], axis=1)
    begins = tf.cast(sources.row_lengths(), tf.int32)[:, None]
    lengths = tf.cast(targets.row_lengths(), tf.int32)[:, None]
    places = tf.range(target_length)[None]
    is_real = places < lengths
    sequences = {
        "token_ids": tf.concat([sources, targets], axis=1),
        "segment_ids": tf.concat(
            [
                tf.zeros_like(sources) + FIRST_SEGMENT,
                tf.zeros_like(targets) + SECOND_SEGMENT,
            ],
            axis=1,
        ),
    }
    of_targets = {
        "target_ids": targets.to_tensor(shape=[None, target_length]),
        # Padding has the position of the last token and weight 0.
        "target_positions": begins + tf.minimum(places, lengths - 1),
        "target_weights": tf.cast(is_real, tf.float32),
    }
    return sequences, of_targets


def column(ids, count):
    """Make `count` rows of the same ids, int32 ragged [count, (len(ids))]."""
    values = tf.tile(tf.constant(ids, tf.int32), [count])
    lengths = tf.fill([count], tf.constant(len(ids), tf.int64))
    return tf.RaggedTensor.from_row_lengths(values, lengths, validate=False)
