"""Token ids -> sequences of the model, in graph ops.

Only TensorFlow's own ops are used, so that TensorFlow Serving loads an export
of them. Layouts are the released ones: `A sep cls` or `A sep B sep cls`.

Shapes: B sequences, T tokens.
"""

import tensorflow as tf

from data_pipeline.features.packing_settings import check_settings
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import PADDING_ID
from data_pipeline.tokenization.symbols import PADDING_SEGMENTS
from data_pipeline.tokenization.symbols import SECOND_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID


def pack(
    first,
    second=None,
    sequence_length=512,
    truncate="longest_first",
    pad_side="left",
    pad_to_longest=False,
):
    """Makes sequences of one or two segments each.

    Args:
        first: int32 ragged tensor [B, (T)], segment A.
        second: int32 ragged tensor [B, (T)], segment B, or None.
        sequence_length: int, T at most, the symbols included.
        truncate: str, which segment of a pair loses its end; see
            `kept_lengths`.
        pad_side: "left" (default) or "right".
        pad_to_longest: bool, whether T is the length of the longest sequence,
            at least 2, rather than `sequence_length`. Default False.

    Returns:
        dict of int32 tensors [B, T]: `token_ids`, `segment_ids` and
        `padding_mask`, 1 = a real token.

    Raises:
        ValueError: if a setting is out of range.

    Source: `convert_single_example` of the released classifier_utils.py.
    """
    num_symbols = 2 if second is None else 3
    check_settings(sequence_length, truncate, num_symbols)
    if pad_side not in PADDING_SEGMENTS:
        raise ValueError(
            '`pad_side` must be "left" or "right". Received: '
            f"pad_side={pad_side!r}."
        )
    room = sequence_length - num_symbols
    first_lengths = tf.cast(first.row_lengths(), tf.int32)
    if second is None:
        first_lengths = tf.minimum(first_lengths, room)
        second_lengths = tf.zeros_like(first_lengths)
    else:
        second_lengths = tf.cast(second.row_lengths(), tf.int32)
        first_lengths, second_lengths = kept_lengths(
            first_lengths, second_lengths, room, truncate
        )
    lengths = first_lengths + second_lengths + num_symbols
    width = sequence_length
    if pad_to_longest:
        # Two columns where there is no row: reshapes need a size above 0.
        width = tf.reduce_max(tf.concat([lengths, [2]], 0))
    return _lay_out(
        first,
        second,
        (first_lengths[:, None], second_lengths[:, None], lengths[:, None]),
        width,
        pad_side,
    )


def _lay_out(first, second, lengths, width, pad_side):
    """Features of width T; lengths int32 [B, 1] of A, B and the sequence."""
    first_lengths, second_lengths, lengths = lengths
    # Where each column stands in its sequence.
    places = tf.range(width)[None] + tf.zeros_like(lengths)  # [B, T]
    if pad_side == "left":
        places += lengths - width
    is_real = (places >= 0) & (places < lengths)
    is_cls = places == lengths - 1
    token_ids = _at(first, places, first_lengths, SEP_ID)
    if second is not None:
        token_ids = _at(
            second, places - first_lengths - 1, second_lengths, token_ids
        )
    segment_ids = tf.where(
        places > first_lengths, SECOND_SEGMENT, FIRST_SEGMENT
    )
    token_ids = tf.where(is_cls, CLS_ID, token_ids)
    segment_ids = tf.where(is_cls, CLS_SEGMENT, segment_ids)
    padding = PADDING_SEGMENTS[pad_side]
    return {
        "token_ids": tf.where(is_real, token_ids, PADDING_ID),
        "segment_ids": tf.where(is_real, segment_ids, padding),
        "padding_mask": tf.cast(is_real, tf.int32),
    }


def kept_lengths(first_lengths, second_lengths, room, truncate="longest_first"):
    """How many tokens of each segment of a pair are kept.

    Args:
        first_lengths: int32 tensor [B].
        second_lengths: int32 tensor [B].
        room: int, tokens of both at most, at least 0.
        truncate: "longest_first": the longer one loses its last token, the
            second where both are as long, until the pair fits. "only_first"
            and "only_second": that one loses its end, and the other only when
            nothing of that one is left.

    Returns:
        two int32 tensors [B].

    Source: `_truncate_seq_pair` of the released classifier_utils.py, whose
        loop this is in closed form.
    """
    # What each may keep, however long the other one is.
    least = {
        "longest_first": ((room + 1) // 2, room // 2),
        "only_first": (0, room),
        "only_second": (room, 0),
    }[truncate]
    return (
        tf.minimum(first_lengths, room - tf.minimum(second_lengths, least[1])),
        tf.minimum(second_lengths, room - tf.minimum(first_lengths, least[0])),
    )


def last_tokens(values, longest, sequence_length):
    """The ends of second segments that must not lose theirs.

    Args:
        values: ragged tensor [B, (T)].
        longest: int, tokens that a row keeps at most.
        sequence_length: int, T of the sequences, in which a token of the first
            segment and three symbols have room too.

    Returns:
        ragged tensor [B, (T)].
    """
    lengths = values.row_lengths()
    lost = lengths - min(longest, max(sequence_length - 4, 0))
    is_kept = tf.ragged.range(lengths) >= lost[:, None]
    return tf.ragged.boolean_mask(values, is_kept)


def align(values, width, default=0):
    """Lays values of the tokens of A below sequences padded on the right.

    Args:
        values: ragged tensor [B, (T)], one value a token.
        width: int or int32 scalar, T of the sequences.
        default: value where there is none.

    Returns:
        tensor [B, T].
    """
    lengths = tf.cast(values.row_lengths(), tf.int32)[:, None]
    places = tf.range(width)[None] + tf.zeros_like(lengths)
    return _at(values, places, lengths, default)


def _at(rows, places, lengths, otherwise):
    """The value at each place [B, T] of rows, or another one beyond them.

    Args:
        rows: ragged tensor [B, (T)].
        places: int32 tensor [B, T].
        lengths: int32 tensor [B, 1], how many tokens of each row count.
        otherwise: value, or tensor [B, T].
    """
    is_there = (places >= 0) & (places < lengths)
    starts = tf.cast(rows.row_starts(), tf.int32)[:, None]
    # One value more, for there may be none at all.
    values = tf.concat([rows.flat_values, tf.zeros([1], rows.dtype)], 0)
    index = tf.where(is_there, starts + places, tf.size(rows.flat_values))
    return tf.where(
        is_there, tf.gather(values, index), tf.cast(otherwise, rows.dtype)
    )
