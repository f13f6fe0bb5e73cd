"""Labels of question windows: positions of the answers.

See `windows` for contexts and windows.

Shapes: N questions, A answers of all questions, W windows, T tokens per window.
"""

import tensorflow as tf

from data_pipeline.features.answers import strip
from data_pipeline.features.answers import valid_utf8
from data_pipeline.tokenization.ragged import row_ids

# RE2 pattern for a text without visible characters, see `has_text` of
# `data_pipeline.tasks.examples`.
_NO_TEXT = r"[\p{Cc}\p{Cf}\p{Me}\p{Mn}\p{Z}]*"


def answer_pieces(windows, contexts, starts, texts, rows=None):
    """Find the first and the last context piece of each answer.

    Args:
        windows: QuestionWindows.
        contexts: string tensor [N], the context of each question.
        starts: int tensor [A], offset of each answer in the context, in
            characters. Below 0: no answer.
        texts: string tensor [A], the answers.
        rows: int tensor [A], index of each answer's question. Default None: one
            answer per question.

    Returns:
        first, last: int32 [A], indices of each answer's first and last piece in
            the context.
        is_found: bool [A], whether the answer is in the context at its offset
            and has at least one piece.
        is_exact: bool [A], whether the first piece begins where the answer
            begins, and the last piece ends where the answer ends.
    """
    piece_begins, piece_ends = windows.context_begins, windows.context_ends
    contexts = valid_utf8(contexts)
    if rows is not None:
        contexts, piece_begins, piece_ends = (
            tf.gather(x, rows) for x in (contexts, piece_begins, piece_ends)
        )
    texts, begins = strip(valid_utf8(texts), tf.cast(starts, tf.int32))
    lengths = tf.strings.length(texts, unit="UTF8_CHAR")
    sizes = tf.strings.length(contexts, unit="UTF8_CHAR")
    there = tf.strings.substr(
        contexts, tf.clip_by_value(begins, 0, sizes), lengths, unit="UTF8_CHAR"
    )
    is_found = (starts >= 0) & (lengths > 0) & (texts == there)
    answer = row_ids(piece_begins)
    offsets = tf.cast(piece_begins.row_starts(), tf.int32)
    # Add a piece, because contexts may have no pieces.
    piece_begins, piece_ends = (
        tf.concat([x.flat_values, [-1]], 0) for x in (piece_begins, piece_ends)
    )
    ends = begins + lengths
    # A piece that is only the blank before a word is not part of an answer.
    is_inside = (
        (piece_begins < piece_ends)[:-1]
        & (piece_ends[:-1] > tf.gather(begins, answer))
        & (piece_begins[:-1] < tf.gather(ends, answer))
    )
    places = tf.cast(tf.where(is_inside)[:, 0], tf.int32)
    answer = tf.gather(answer, places)
    first = tf.math.unsorted_segment_min(places, answer, tf.size(begins))
    last = tf.math.unsorted_segment_max(places, answer, tf.size(begins))
    is_found &= first <= last
    first, last = (tf.where(is_found, x, offsets) for x in (first, last))
    is_exact = (
        is_found
        & (tf.gather(piece_begins, first) == begins)
        & (tf.gather(piece_ends, last) == ends)
    )
    return first - offsets, last - offsets, is_found, is_exact


def window_labels(windows, rows, first, last, is_found):
    """Find the start and end of a whole answer in each window.

    If a window has several whole answers, the answer with the smallest index is
    chosen.

    Args:
        windows: QuestionWindows.
        rows: int tensor [A], index of each answer's question, ascending.
        first, last, is_found: tensors [A] from `answer_pieces`.

    Returns:
        start, end: int32 [W], positions in the window, ends inclusive. -1 if no
            answer lies wholly in the window.
    """
    count = windows.context_begins.nrows()
    rows = tf.cast(rows, tf.int64)
    answers = tf.RaggedTensor.from_row_splits(
        tf.range(tf.size(rows)),
        tf.searchsorted(rows, tf.range(count + 1), out_type=tf.int64),
        validate=False,
    )
    # All pairs of a window and an answer to the window's question.
    pairs = tf.gather(answers, windows.window_row)
    window, answer = row_ids(pairs), pairs.flat_values
    first_piece = tf.gather(windows.first_piece, window)
    start, end = (tf.gather(x, answer) - first_piece for x in (first, last))
    holds = (
        tf.gather(is_found, answer)
        & (start >= 0)
        & (end < tf.gather(windows.num_pieces, window))
    )
    begin = tf.gather(windows.context_position, window)
    # Add a pair, which stands for no answer.
    start, end = (tf.concat([x + begin, [-1]], 0) for x in (start, end))
    none = tf.size(answer)
    chosen = tf.math.unsorted_segment_min(
        tf.where(holds, tf.range(none), none),
        window,
        tf.size(windows.window_row),
    )
    chosen = tf.minimum(chosen, none)  # the largest int32 without a pair
    return tf.gather(start, chosen), tf.gather(end, chosen)


@tf.autograph.experimental.do_not_convert
def training_windows(windows, contexts, answer_starts, answer_texts):
    """Choose one window per question and make its labels.

    Among the windows with the whole answer, the window with the most context
    around the answer is chosen. If several windows are equally good, the first
    of these windows is chosen. If no window has the whole answer, the first
    window is chosen and labelled as having no answer.

    Args:
        windows: QuestionWindows.
        contexts: string tensor [N], the context of each question.
        answer_starts: int tensor [N], offset of each answer in the context, in
            characters. Below 0: no answer.
        answer_texts: string tensor [N]. A text without visible characters means
            that there is no answer.

    Returns:
        features: dict of tensors [N, T] and [N]: the features of the chosen
            windows and `start_positions`.
        labels: dict of `start_positions` (int32 [N]), `end_positions` (int32
            [N]) and `is_impossible` (float32 [N]).
        weights: float32 [N], 0 for a question whose answer is not at its offset
            in the context or has no piece, else 1. The weight 0 excludes the
            question from the loss.
    """
    with tf.device("CPU:0"):
        first, last, is_found, _ = answer_pieces(
            windows, contexts, answer_starts, answer_texts
        )
        count, rows = tf.size(first), windows.window_row
        start, end = window_labels(
            windows, tf.range(count), first, last, is_found
        )
        begin = windows.context_position
        last_piece = windows.num_pieces - 1
        context = tf.where(
            start >= 0,
            tf.minimum(start - begin, last_piece - (end - begin)),
            -1,
        )
        best = tf.math.unsorted_segment_max(context, rows, count)
        numbers = tf.range(tf.size(rows))
        chosen = tf.math.unsorted_segment_min(
            tf.where(
                context == tf.gather(best, rows), numbers, numbers.dtype.max
            ),
            rows,
            count,
        )
        features = {
            name: tf.gather(value, chosen)
            for name, value in windows.features.items()
        }
        start, end = tf.gather(start, chosen), tf.gather(end, chosen)
        holds, index = start >= 0, features["class_index"]
        start = tf.where(holds, start, index)
        labels = {
            "start_positions": start,
            "end_positions": tf.where(holds, end, index),
            "is_impossible": tf.cast(~holds, tf.float32),
        }
        is_none = (answer_starts < 0) | tf.strings.regex_full_match(
            valid_utf8(answer_texts), _NO_TEXT
        )
        weights = tf.cast(is_found | is_none, tf.float32)
        return {**features, "start_positions": start}, labels, weights
