"""Division of long texts into overlapping windows, as TensorFlow ops.

All ops are TensorFlow's or SentencePiece's. So an exported model can contain
these ops and accept raw text.

A context is a text to search for the answer to a question. A window is a
question with a section of its context, or a section of a single text.

Shapes: N texts or questions, W windows of all texts together, T tokens of a
window, P pieces of a context, C pieces of a context in one window.
"""

import typing

import tensorflow as tf

from data_pipeline.features.packing import checked_size
from data_pipeline.tokenization.ragged import row_ids
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import SECOND_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import find_layout


class QuestionWindows(typing.NamedTuple):
    """Windows of several questions, in the order of the questions.

    Attributes:
        window_row: int32 [W], index of each window's question.
        begins, ends: int32 ragged [W, (C)], offsets at which each context piece
            of the window begins and ends in the context, in characters. Ends
            are exclusive.
        is_max_context: bool ragged [W, (C)], True if the window has the most
            context around the piece, see `max_context`.
        features: dict of int32 tensors: `token_ids`, `segment_ids`,
            `padding_mask` and `answer_mask` [W, T], and `class_index` [W].
        first_piece: int32 [W], index of the window's first context piece among
            all pieces of its context.
        context_begins, context_ends: int32 ragged [N, (P)], offsets like
            `begins` and `ends`, but for all pieces of each question's context.
        question_lengths: int32 [N], number of pieces of each question before
            truncation.
    """

    window_row: tf.Tensor
    begins: tf.RaggedTensor
    ends: tf.RaggedTensor
    is_max_context: tf.RaggedTensor
    features: dict | None = None
    first_piece: tf.Tensor | None = None
    context_begins: tf.RaggedTensor | None = None
    context_ends: tf.RaggedTensor | None = None
    question_lengths: tf.Tensor | None = None

    @property
    def num_pieces(self):
        """Number of context pieces in each window, int32 [W]."""
        return tf.cast(self.begins.row_lengths(), tf.int32)

    @property
    def context_position(self):
        """Position of the context's first token in the window, int32 [W].

        The position is 1 after a class token at the front, else 0.
        """
        return tf.cast(tf.equal(self.features["class_index"], 0), tf.int32)


def check_windows(sequence_length, stride, max_question_length):
    """Refuse settings of `make_windows` that leave no room for a context.

    Args:
        sequence_length, stride, max_question_length: see `make_windows`.

    Raises:
        ValueError: a setting is out of range.
    """
    if stride < 1:
        raise ValueError(
            f"`stride` must be at least 1 piece. Received: stride={stride}."
        )
    if max_question_length < 0:
        raise ValueError(
            "`max_question_length` must not be negative. Received: "
            f"max_question_length={max_question_length}."
        )
    if sequence_length < max_question_length + 4:
        raise ValueError(
            "`sequence_length` must hold a question, 3 symbols and a piece of "
            f"the context: expected at least {max_question_length + 4}. "
            f"Received: sequence_length={sequence_length} with "
            f"max_question_length={max_question_length}."
        )


@tf.autograph.experimental.do_not_convert
def make_windows(
    tokenizer,
    questions,
    contexts,
    sequence_length=512,
    stride=128,
    max_question_length=64,
    pad_to_longest=False,
    check_size=None,
    layout="xlnet",
):
    """Make windows `context sep question sep cls`, padded on the right.

    Args:
        tokenizer: GraphTokenizer.
        questions: string tensor [N].
        contexts: string tensor [N]. Equal contexts are tokenized once.
        sequence_length: int, T. Default 512.
        stride: int, number of pieces between the starts of two windows. Default
            128.
        max_question_length: int, maximum number of pieces of a question.
            Default 64. Longer questions are truncated at the end.
        pad_to_longest: bool, whether T is the length of the longest window.
            Default False.
        check_size: see `features.packing.checked_size`. Default None.
        layout: str, "xlnet" (default), or "bert" for `cls` at the front.

    Returns:
        QuestionWindows, with at least one window per question.

    Raises:
        ValueError: a setting is out of range.

    Source: `convert_examples_to_features` of the released run_squad. The
        released code cannot predict the last piece of a context; here the last
        piece can be an answer.
    """
    check_windows(sequence_length, stride, max_question_length)
    question_ids = tokenizer(questions)
    question_lengths = tf.cast(question_ids.row_lengths(), tf.int32)
    question_ids = question_ids[:, :max_question_length]
    with tf.device("CPU:0"):  # GPUs have no strings
        distinct, numbers = tf.unique(tf.convert_to_tensor(contexts, tf.string))
    ids, begins, ends = (
        tf.gather(x, numbers) for x in tokenizer.tokenize_with_offsets(distinct)
    )
    room = sequence_length - 3 - question_ids.row_lengths()
    places, rows, first = window_places(
        ids.row_lengths(),
        ids.row_starts(),
        room,
        tf.minimum(room, tf.constant(stride, tf.int64)),
        check_size,
    )

    def in_windows(values):
        values = tf.gather(values.flat_values, places.flat_values)
        return places.with_flat_values(values)

    return QuestionWindows(
        window_row=tf.cast(rows, tf.int32),
        begins=in_windows(begins),
        ends=in_windows(ends),
        is_max_context=places.with_flat_values(max_context(places)),
        features=_features(
            in_windows(ids),
            tf.gather(question_ids, rows),
            None if pad_to_longest else sequence_length,
            find_layout(layout),
        ),
        first_piece=tf.cast(first, tf.int32),
        context_begins=begins,
        context_ends=ends,
        question_lengths=question_lengths,
    )


def _features(pieces, questions, width, layout):
    """Make the features of windows from ids of contexts and questions."""
    fillers = layout.fillers("right")
    count = pieces.nrows()

    def symbol(index):
        return tf.RaggedTensor.from_tensor(tf.fill([count, 1], index))

    parts = [pieces, symbol(SEP_ID), questions, symbol(SEP_ID)]
    parts.insert(0 if layout.class_first else len(parts), symbol(CLS_ID))
    ids = tf.concat(parts, axis=1)
    # XLA needs a static shape, which a known width gives.
    token_ids = ids.to_tensor(fillers["token_ids"], shape=[None, width])
    places = tf.range(tf.shape(token_ids)[1], dtype=tf.int32)[None]
    lengths = tf.cast(ids.row_lengths(), tf.int32)
    class_index = tf.zeros_like(lengths) if layout.class_first else lengths - 1
    size = tf.cast(pieces.row_lengths(), tf.int32)[:, None]
    is_class = places == class_index[:, None]
    is_real = places < lengths[:, None]
    places -= layout.text_begin
    segment_ids = tf.where(places <= size, FIRST_SEGMENT, SECOND_SEGMENT)
    segment_ids = tf.where(is_class, layout.class_segment, segment_ids)
    return {
        "token_ids": token_ids,
        "segment_ids": tf.where(is_real, segment_ids, fillers["segment_ids"]),
        "padding_mask": tf.cast(is_real, tf.int32),
        "answer_mask": tf.cast((places < size) | is_class, tf.int32),
        "class_index": class_index,
    }


def max_context(places):
    """Mark each piece in the one window with the most context around the piece.

    The amount of context is min(left, right) + 0.01 x length. `left` and
    `right` are the numbers of context pieces before and after the piece in the
    window. `length` is the number of all context pieces in the window. If
    several windows have equal amounts, the piece is marked in the first of
    these windows.

    Args:
        places: int64 ragged tensor [W, (C)], indices of the windows' context
            pieces among the pieces of all contexts.

    Returns:
        bool tensor with one value per context piece of each window.

    Source: `_check_is_max_context` of the released run_squad.
    """
    piece = places.flat_values
    left = tf.ragged.range(places.row_lengths()).flat_values
    length = tf.gather(places.row_lengths(), row_ids(places))
    # Use float64 as in the released code, for the same ties.
    score = tf.cast(tf.minimum(left, length - 1 - left), tf.float64)
    score += tf.constant(0.01, tf.float64) * tf.cast(length, tf.float64)
    count = tf.reduce_max(tf.concat([[-1], piece], 0)) + 1
    best = tf.math.unsorted_segment_max(score, piece, count)
    numbers = tf.range(tf.size(piece))
    is_best = score == tf.gather(best, piece)
    first = tf.math.unsorted_segment_min(
        tf.where(is_best, numbers, numbers.dtype.max), piece, count
    )
    return numbers == tf.gather(first, piece)


def window_places(lengths, starts, room, stride, check_size=None):
    """Divide texts into windows and return the indices of the windows' ids.

    A text of at most `room` ids has one window. A longer text has one more
    window for each further `stride` ids, and a last window for remaining ids.

    Args:
        lengths: int64 tensor [N], number of ids of each text.
        starts: int64 tensor [N], index of each text's first id among all ids.
        room: int64 tensor [N], maximum number of ids of a window, above 0.
        stride: int64 tensor [N], number of ids between the starts of two
            windows, from 1 to `room`.
        check_size: see `features.packing.checked_size`. Default None.

    Returns:
        places: ragged int64 tensor [W, (room)], indices of each window's ids
            among all ids.
        rows: int64 tensor [W], index of each window's text.
        first: int64 tensor [W], index of each window's first id among the ids
            of its text.

    Source: `doc_spans` of the released run_squad.
    """
    counts = 1 + (tf.maximum(lengths - room, 0) + stride - 1) // stride
    longest = tf.reduce_max(tf.concat([[0], room], 0))
    counts = checked_size(counts, check_size, tf.reduce_sum(counts), longest)
    rows = tf.repeat(tf.range(tf.size(counts, tf.int64)), counts)
    first = tf.ragged.range(counts).flat_values * tf.gather(stride, rows)
    size = tf.minimum(tf.gather(room, rows), tf.gather(lengths, rows) - first)
    begins = tf.gather(starts, rows) + first
    return tf.ragged.range(begins, begins + size), rows, first


def windows_of_texts(ids, room, stride, check_size=None):
    """Divide texts into windows and return the windows' token ids.

    Args:
        ids: ragged int32 tensor [N, (tokens)].
        room: int, maximum number of ids of a window.
        stride: int, number of ids between the starts of two windows, from 1 to
            `room`.
        check_size: see `features.packing.checked_size`. Default None.

    Returns:
        windows: ragged int32 tensor [W, (room)], the ids of each window.
        rows: int64 tensor [W], index of each window's text.
    """
    lengths = ids.row_lengths()
    places, rows, _ = window_places(
        lengths,
        ids.row_starts(),
        tf.fill(tf.shape(lengths), tf.constant(room, tf.int64)),
        tf.fill(tf.shape(lengths), tf.constant(stride, tf.int64)),
        check_size,
    )
    windows = places.with_flat_values(
        tf.gather(ids.flat_values, places.flat_values)
    )
    return windows, rows
