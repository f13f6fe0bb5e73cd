"""Packing of token ids into sequences of the model, as TensorFlow ops.

The layouts are the same as in the releases of XLNet and BERT. XLNet's layout is
`A sep cls` for one segment, and `A sep B sep cls` for a pair of segments.
BERT's layout has the `cls` at the front. Only TensorFlow's own ops are used, so
that TensorFlow Serving can load an export.

Shapes: B sequences, T tokens of a sequence or of one of its segments, W words.
"""

import reprlib

import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import PADDING_ID
from data_pipeline.tokenization.symbols import SECOND_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import UNKNOWN_ID
from data_pipeline.tokenization.symbols import find_layout

_SIDES = ("left", "right")
# Numbers of tokens that the segments of a pair always keep, for any length of
# the other segment.
_LEAST_KEPT = {
    "longest_first": lambda room: ((room + 1) // 2, room // 2),
    "only_first": lambda room: (0, room),
    "only_second": lambda room: (room, 0),
}


def check_packing(sequence_length, truncate, num_symbols=3):
    """Refuse settings that leave no room for text.

    Args:
        sequence_length: int, T.
        truncate: str, see `kept_lengths`.
        num_symbols: int, number of [SEP] and [CLS] tokens of a sequence.

    Raises:
        ValueError: a setting is out of range.
    """
    if truncate not in _LEAST_KEPT:
        raise ValueError(
            f"`truncate` must be one of {', '.join(_LEAST_KEPT)}. Received: "
            f"truncate={reprlib.repr(truncate)}."
        )
    if sequence_length <= num_symbols:
        raise ValueError(
            f"`sequence_length` must be above {num_symbols}: [SEP], [CLS] and "
            f"a token. Received: sequence_length={sequence_length}."
        )


def pack(
    first,
    second=None,
    sequence_length=512,
    truncate="longest_first",
    pad_side="left",
    pad_to_longest=False,
    check_size=None,
    layout="xlnet",
):
    """Pack one or two segments into each sequence.

    Args:
        first: int32 ragged tensor [B, (T)], segment A.
        second: int32 ragged tensor [B, (T)], segment B, or None.
        sequence_length: int, maximum of T, including [SEP] and [CLS].
        truncate: str, the segment of a pair to truncate, see `kept_lengths`.
        pad_side: "left" (default) or "right".
        pad_to_longest: bool. False (default): T is `sequence_length`. True: T
            is the length of the longest sequence, but at least 2.
        check_size: function that refuses too many tokens before memory is
            allocated, see `checked_size`. Default None.
        layout: str, "xlnet" (default) or "bert".

    Returns:
        dict of int32 tensors [B, T]: `token_ids`, `segment_ids` and
        `padding_mask` (1 for real tokens).

    Raises:
        ValueError: a setting is out of range.

    Source: `convert_single_example` of the released classifier_utils.py.
    """
    num_symbols = 2 if second is None else 3
    check_packing(sequence_length, truncate, num_symbols)
    if pad_side not in _SIDES:
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
        # Make an empty batch two tokens wide: reshapes need a size above 0.
        width = tf.reduce_max(tf.concat([lengths, [2]], 0))
    lengths = checked_size(lengths, check_size, first.nrows(), width)
    return _lay_out(
        first,
        second,
        (first_lengths[:, None], second_lengths[:, None], lengths[:, None]),
        width,
        pad_side,
        find_layout(layout),
    )


def checked_size(values, check_size, count, num_tokens):
    """Copy a tensor; the copy is computed only after a size check.

    Args:
        values: tensor to copy.
        check_size: None for no check, or a function of `count` and `num_tokens`
            that returns an operation. The operation fails if there are too many
            tokens.
        count: int64 tensor [], number of sequences.
        num_tokens: int or int tensor [], length of the longest sequence.
    """
    if check_size is None:
        return values
    check = check_size(count, tf.cast(num_tokens, tf.int64))
    with tf.control_dependencies([check]):
        return tf.identity(values)


def _lay_out(first, second, lengths, width, pad_side, layout):
    """Make the features of sequences that are padded to `width` tokens.

    `lengths` has three int32 tensors [B, 1]: the lengths of A, of B and of the
    whole sequence.
    """
    first_lengths, second_lengths, lengths = lengths
    # Position of each column in its sequence. Below 0: left padding.
    places = tf.range(width)[None] + tf.zeros_like(lengths)  # [B, T]
    if pad_side == "left":
        places += lengths - width
    is_real = (places >= 0) & (places < lengths)
    is_cls = places == (0 if layout.class_first else lengths - 1)
    places -= layout.text_begin
    token_ids = _at(first, places, first_lengths, SEP_ID)
    if second is not None:
        token_ids = _at(
            second, places - first_lengths - 1, second_lengths, token_ids
        )
    segment_ids = tf.where(
        places > first_lengths, SECOND_SEGMENT, FIRST_SEGMENT
    )
    token_ids = tf.where(is_cls, CLS_ID, token_ids)
    segment_ids = tf.where(is_cls, layout.class_segment, segment_ids)
    padding = layout.padding_segments[pad_side]
    return {
        "token_ids": tf.where(is_real, token_ids, PADDING_ID),
        "segment_ids": tf.where(is_real, segment_ids, padding),
        "padding_mask": tf.cast(is_real, tf.int32),
    }


def kept_lengths(first_lengths, second_lengths, room, truncate="longest_first"):
    """Compute the lengths of both segments of each pair after truncation.

    Args:
        first_lengths: int32 tensor [B].
        second_lengths: int32 tensor [B].
        room: int, maximum number of tokens of a pair, at least 0.
        truncate: "longest_first", "only_first" or "only_second".
            With "longest_first", the longer segment loses its last token,
            again and again, until the pair fits. If both segments are equally
            long, the second segment loses its last token. With "only_first" and
            "only_second", the named segment loses its last tokens. The other
            segment loses tokens only after the named segment is empty.

    Returns:
        tuple of two int32 tensors [B], for the first and second segments.

    Source: `_truncate_seq_pair` of the released classifier_utils.py. The
        release uses a loop; this function uses a formula.
    """
    least = _LEAST_KEPT[truncate](room)
    return (
        tf.minimum(first_lengths, room - tf.minimum(second_lengths, least[1])),
        tf.minimum(second_lengths, room - tf.minimum(first_lengths, least[0])),
    )


def last_tokens(values, longest, sequence_length):
    """Keep the last tokens of second segments.

    In multiple choice, a second segment is a question with an answer option.
    The option is usually at the end, so the end is kept.

    Args:
        values: ragged tensor [B, (T)], the second segments of pairs.
        longest: int, maximum number of tokens to keep per segment.
        sequence_length: int, T. At most T - 4 tokens are kept. This leaves room
            for three symbols and one token of the first segment.

    Returns:
        ragged tensor [B, (T)].
    """
    lengths = values.row_lengths()
    lost = lengths - min(longest, max(sequence_length - 4, 0))
    is_kept = tf.ragged.range(lengths) >= lost[:, None]
    return tf.ragged.boolean_mask(values, is_kept)


def align(values, width, default=0, begin=0):
    """Pad values of segment A, one per token, to the length of the sequence.

    Args:
        values: ragged tensor [B, (T)].
        width: int or int32 scalar, T of the sequences.
        default: value of all tokens outside of segment A.
        begin: int, position of the segment's first token. Default 0.

    Returns:
        tensor [B, T].
    """
    lengths = tf.cast(values.row_lengths(), tf.int32)[:, None]
    places = tf.range(width)[None] - begin + tf.zeros_like(lengths)
    return _at(values, places, lengths, default)


def unpack(features):
    """Remove the padding from padded sequences.

    Args:
        features: dict of tensors [..., T] with a `padding_mask` (1 for real
            tokens). Tensors whose number of axes differs from `padding_mask`'s
            are left out of the result.

    Returns:
        dict of ragged tensors [S, (T)] without `padding_mask`. S is the product
        of all axes except T.
    """
    is_real = tf.cast(features["padding_mask"], tf.bool)
    lengths = tf.reduce_sum(tf.cast(is_real, tf.int64), axis=-1)
    return {
        name: tf.RaggedTensor.from_row_lengths(
            tf.boolean_mask(value, is_real),
            tf.reshape(lengths, [-1]),
            validate=False,
        )
        for name, value in features.items()
        if name != "padding_mask" and value.shape.rank == is_real.shape.rank
    }


def word_pieces(tokenize, words):
    """Tokenize single words; every word except "" has at least one piece.

    Args:
        tokenize: function of a string tensor [W] that returns ids [W, (T)].
        words: string tensor [W]. "" stands for no word and has no pieces.

    Returns:
        int32 ragged tensor [W, (T)]. A word for which `tokenize` returns no
        ids, such as a control character, becomes an unknown piece, so that its
        label has a token.
    """
    ids = tokenize(words)
    is_dropped = (ids.row_lengths() == 0) & (words != "")
    counts = tf.cast(is_dropped, tf.int64)
    unknown = tf.RaggedTensor.from_row_lengths(
        tf.fill([tf.reduce_sum(counts)], tf.constant(UNKNOWN_ID, ids.dtype)),
        counts,
        validate=False,
    )
    return tf.concat([ids, unknown], axis=1)


def _at(rows, places, lengths, otherwise):
    """Gather values by index in each row; an index outside gives a default.

    Args:
        rows: ragged tensor [B, (T)].
        places: int32 tensor [B, T], indices of values in the row. An index that
            is not from 0 to `lengths` - 1 gives the default.
        lengths: int32 tensor [B, 1], number of valid tokens of each row.
        otherwise: the default, a value or a tensor [B, T].
    """
    is_there = (places >= 0) & (places < lengths)
    starts = tf.cast(rows.row_starts(), tf.int32)[:, None]
    # Add a value, because all rows may be empty.
    values = tf.concat([rows.flat_values, tf.zeros([1], rows.dtype)], 0)
    index = tf.where(is_there, starts + places, tf.size(rows.flat_values))
    return tf.where(
        is_there, tf.gather(values, index), tf.cast(otherwise, rows.dtype)
    )
