"""Questions about contexts in graph ops: windows, labels and answers.

Only TensorFlow's own ops and SentencePiece's, so that an export answers raw
strings. In Python `question_answering` and `span_merging` do the same.

Shapes: N questions, W windows of all of them, T tokens of a window, P pieces
of a context, S starts of a window, E ends of a start.
"""

import typing

import tensorflow as tf

from data_pipeline.features.packing import align
from data_pipeline.features.windows import window_places
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import CLS_SEGMENT
from data_pipeline.tokenization.symbols import FIRST_SEGMENT
from data_pipeline.tokenization.symbols import PADDING_ID
from data_pipeline.tokenization.symbols import PADDING_SEGMENTS
from data_pipeline.tokenization.symbols import SECOND_SEGMENT
from data_pipeline.tokenization.symbols import SEP_ID


class GraphWindows(typing.NamedTuple):
    """Windows of questions, in the order of the questions.

    Attributes:
        features: dict of `token_ids`, `segment_ids`, `padding_mask` and
            `answer_mask`, int32 [W, T], and `class_index`, int32 [W].
        window_row: int32 [W], the question of each window.
        first_piece: int32 [W], the context's piece at position 0.
        num_pieces: int32 [W], pieces of the context in the window.
        is_max_context: bool [W, T], where a token of the context has more
            context on both sides than in any other window.
        begins: int32 ragged [N, (P)], in characters of the context.
        ends: int32 ragged [N, (P)], likewise, exclusive.
    """

    features: dict
    window_row: tf.Tensor
    first_piece: tf.Tensor
    num_pieces: tf.Tensor
    is_max_context: tf.Tensor
    begins: tf.RaggedTensor
    ends: tf.RaggedTensor


@tf.autograph.experimental.do_not_convert
def make_windows(
    tokenizer,
    questions,
    contexts,
    sequence_length=512,
    stride=128,
    max_question_length=64,
    pad_to_longest=False,
):
    """Makes windows `context sep question sep cls`, padded on the right.

    Args:
        tokenizer: GraphTokenizer.
        questions: string tensor [N].
        contexts: string tensor [N].
        sequence_length: int, T. Default 512.
        stride: int, pieces of the context between the starts of windows.
            Default 128.
        max_question_length: int, pieces; longer questions lose their end.
            Default 64.
        pad_to_longest: bool, whether T is the length of the longest window.
            Default False.

    Returns:
        GraphWindows, at least one window for each question.

    Raises:
        ValueError: a setting is out of range.

    Source: `convert_examples_to_features` of the released run_squad.
    """
    check_settings(sequence_length, stride, max_question_length)
    question_ids = tokenizer(questions)[:, :max_question_length]
    ids, begins, ends = tokenizer.tokenize_with_offsets(contexts)
    room = sequence_length - 3 - question_ids.row_lengths()
    places, rows, first = window_places(
        ids.row_lengths(),
        ids.row_starts(),
        room,
        tf.minimum(room, tf.constant(stride, tf.int64)),
    )
    pieces = places.with_flat_values(
        tf.gather(ids.flat_values, places.flat_values)
    )
    features = _features(
        pieces,
        tf.gather(question_ids, rows),
        None if pad_to_longest else sequence_length,
    )
    is_max_context = places.with_flat_values(_max_context(places))
    return GraphWindows(
        features,
        tf.cast(rows, tf.int32),
        tf.cast(first, tf.int32),
        tf.cast(places.row_lengths(), tf.int32),
        align(
            is_max_context,
            sequence_length
            if not pad_to_longest
            else tf.shape(features["token_ids"])[1],
            default=False,
        ),
        begins,
        ends,
    )


def check_settings(sequence_length, stride, max_question_length):
    """Refuses settings with which no windows can be made.

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


def _features(pieces, questions, width):
    """Windows of ragged ids [W, (pieces)] and [W, (question)]."""
    count = pieces.nrows()

    def symbol(index):
        return tf.RaggedTensor.from_tensor(tf.fill([count, 1], index))

    parts = (pieces, symbol(SEP_ID), questions, symbol(SEP_ID), symbol(CLS_ID))
    ids = tf.concat(parts, axis=1)
    # The shape is known where the width is, for XLA.
    token_ids = ids.to_tensor(PADDING_ID, shape=[None, width])
    places = tf.range(tf.shape(token_ids)[1], dtype=tf.int32)[None]
    class_index = tf.cast(ids.row_lengths(), tf.int32) - 1
    size = tf.cast(pieces.row_lengths(), tf.int32)[:, None]
    is_class = places == class_index[:, None]
    is_real = places <= class_index[:, None]
    segment_ids = tf.where(places <= size, FIRST_SEGMENT, SECOND_SEGMENT)
    segment_ids = tf.where(is_class, CLS_SEGMENT, segment_ids)
    return {
        "token_ids": token_ids,
        "segment_ids": tf.where(
            is_real, segment_ids, PADDING_SEGMENTS["right"]
        ),
        "padding_mask": tf.cast(is_real, tf.int32),
        "answer_mask": tf.cast((places < size) | is_class, tf.int32),
        "class_index": class_index,
    }


def _max_context(places):
    """Which pieces have the most context here, of the first of equals.

    Args:
        places: int64 ragged tensor [W, (pieces)], numbers of the pieces among
            those of all contexts.

    Returns:
        bool tensor [all pieces of all windows].

    Source: `_check_is_max_context` of the released run_squad.
    """
    piece = places.flat_values
    left = tf.ragged.range(places.row_lengths()).flat_values
    length = tf.gather(places.row_lengths(), places.value_rowids())
    # In float64, as the released code adds them: equals depend on it.
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
