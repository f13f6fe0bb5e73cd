"""Answers as characters and as pieces of windows, in graph ops.

Shapes: N questions, W windows of all of them, P pieces of a context, S starts
of a window, E ends of a start, K spans of a question, n answers kept.
"""

import tensorflow as tf

from data_pipeline.tokenization.cleaning import blanks_class

# Released score of the answer where no span is possible: -1e6 for each end.
NO_ANSWER_SCORE = -2e6


@tf.autograph.experimental.do_not_convert
def best_spans(outputs, windows, contexts, n_best=5, max_answer_length=64):
    """Chooses the best spans of each question over all its windows.

    A span lies in the context, has at most `max_answer_length` pieces and
    begins where its window has the most context. Of spans that read the same
    the best counts.

    Args:
        outputs: dict as `XLNetQuestionAnswering` gives it without
            `start_positions`: `start_top_scores` and `start_top_positions`
            [W, S], `end_top_scores` and `end_top_positions` [W, S, E],
            `class_logits` [W].
        windows: GraphWindows.
        contexts: string tensor [N], UTF-8, what the windows were made of.
        n_best: int, n. Default 5.
        max_answer_length: int, pieces. Default 64.

    Returns:
        dict of tensors, the best answers first:
            text: string [N, n], slices of the contexts, "" = no more answers.
            begin, end: int32 [N, n], the slice in code points, the end
                exclusive; -1 where there is no answer.
            score: float32 [N, n], log-probability of the start plus that of
                the end, natural logarithms; -2e6 where there is no answer.
            null_score: float32 [N], logit that there is no answer, of the
                window that thinks so least.

    Raises:
        ValueError: a setting is out of range.

    Source: `write_predictions` of the released run_squad, which also leaves
        out spans with the last piece of a window.
    """
    if n_best < 1 or max_answer_length < 1:
        raise ValueError(
            "`n_best` and `max_answer_length` must be at least 1. Received: "
            f"n_best={n_best}, max_answer_length={max_answer_length}."
        )
    with tf.device("CPU:0"):  # where strings live
        contexts = valid_utf8(contexts)
        rows, begins, ends, scores = _spans(outputs, windows, max_answer_length)
        texts = tf.strings.substr(
            tf.gather(contexts, rows), begins, ends - begins, unit="UTF8_CHAR"
        )
        texts, begins = strip(texts, begins)
        is_text = texts != ""
        rows, texts, begins, scores = (
            tf.boolean_mask(x, is_text) for x in (rows, texts, begins, scores)
        )
        count = tf.shape(contexts)[0]
        order = _best_of_rows(rows, texts, scores, count, n_best)  # [N, n]
        has_answer = order >= 0

        def chosen(values, default):
            default = tf.constant(default, values.dtype)
            values = tf.concat([values, default[None]], 0)
            place = tf.where(has_answer, order, tf.size(values) - 1)
            return tf.gather(values, place)

        ends = begins + tf.strings.length(texts, unit="UTF8_CHAR")
        return {
            "text": chosen(texts, ""),
            "begin": chosen(begins, -1),
            "end": chosen(ends, -1),
            "score": tf.cast(chosen(scores, NO_ANSWER_SCORE), tf.float32),
            "null_score": tf.math.unsorted_segment_min(
                outputs["class_logits"], windows.window_row, count
            ),
        }


def _spans(outputs, windows, max_answer_length):
    """Possible spans [K]: row, begin, end (characters), score (float64)."""
    starts = outputs["start_top_positions"]
    ends = outputs["end_top_positions"]
    limits = windows.num_pieces[:, None]
    is_start = (starts >= 0) & (starts < limits)
    is_start &= tf.gather(
        windows.is_max_context, tf.where(is_start, starts, 0), batch_dims=1
    )
    starts = starts[:, :, None] + tf.zeros_like(ends)
    is_span = (
        is_start[:, :, None]
        & (ends >= starts)
        & (ends < limits[:, :, None])
        & (ends - starts < max_answer_length)
    )
    # In float64, as the released code adds them.
    scores = tf.cast(outputs["start_top_scores"], tf.float64)[:, :, None]
    scores += tf.cast(outputs["end_top_scores"], tf.float64)
    window = tf.where(is_span)[:, 0]
    rows = tf.gather(windows.window_row, window)
    first = tf.cast(
        tf.gather(windows.begins.row_starts(), rows), tf.int32
    ) + tf.gather(windows.first_piece, window)
    starts, ends = (tf.boolean_mask(x, is_span) for x in (starts, ends))
    return (
        rows,
        tf.gather(windows.begins.flat_values, first + starts),
        tf.gather(windows.ends.flat_values, first + ends),
        tf.boolean_mask(scores, is_span),
    )


def _best_of_rows(rows, texts, scores, count, n_best):
    """The places of the best of different texts, int32 [N, n], or -1."""
    splits = tf.searchsorted(rows, tf.range(count + 1))
    ragged = tf.RaggedTensor.from_row_splits(scores, splits, validate=False)
    least = tf.constant(scores.dtype.min, scores.dtype)
    scores = ragged.to_tensor(least)
    # Of equals the first stays the first.
    order = tf.math.top_k(scores, tf.shape(scores)[1]).indices  # [N, K]
    order = tf.ragged.boolean_mask(
        order + splits[:-1, None], order < (splits[1:] - splits[:-1])[:, None]
    )
    places = order.flat_values
    # The first of each text in each row, the best as they are sorted.
    keys = tf.strings.join(
        [
            tf.strings.as_string(tf.gather(rows, places)),
            tf.gather(texts, places),
        ],
        " ",
    )
    keys, numbers = tf.unique(keys)
    positions = tf.range(tf.size(places))
    first = tf.math.unsorted_segment_min(positions, numbers, tf.size(keys))
    is_first = order.with_flat_values(tf.gather(first, numbers) == positions)
    order = tf.ragged.boolean_mask(order, is_first)
    return order.to_tensor(-1, shape=[None, n_best])


def strip(texts, begins):
    """Takes blanks off both ends, as `str.strip` does.

    Args:
        texts: string tensor [K], UTF-8.
        begins: int32 tensor [K], where they begin, in code points.

    Returns:
        texts and begins without the blanks.
    """
    blank = blanks_class()
    from_first = tf.strings.regex_replace(texts, f"^{blank}+", "")
    begins += tf.strings.length(texts, unit="UTF8_CHAR")
    begins -= tf.strings.length(from_first, unit="UTF8_CHAR")
    return tf.strings.regex_replace(from_first, f"{blank}+$", ""), begins


def valid_utf8(texts):
    """Texts with U+FFFD for what is not UTF-8, as the tokenizer counts them.

    Args:
        texts: string tensor.

    Returns:
        string tensor of the same shape.
    """
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


def answer_pieces(windows, contexts, answer_starts, answer_texts):
    """Finds the pieces that hold the answer to each question.

    Args:
        windows: GraphWindows.
        contexts: string tensor [N].
        answer_starts: int tensor [N], in characters of the context; below 0 =
            no answer.
        answer_texts: string tensor [N].

    Returns:
        first, last: int32 [N], pieces of the context, the last inclusive.
        is_found: bool [N], whether the text is there and has pieces.
    """
    contexts = valid_utf8(contexts)
    texts = valid_utf8(answer_texts)
    texts, begins = strip(texts, tf.cast(answer_starts, tf.int32))
    lengths = tf.strings.length(texts, unit="UTF8_CHAR")
    sizes = tf.strings.length(contexts, unit="UTF8_CHAR")
    there = tf.strings.substr(
        contexts, tf.clip_by_value(begins, 0, sizes), lengths, unit="UTF8_CHAR"
    )
    is_found = (answer_starts >= 0) & (lengths > 0) & (texts == there)
    rows = windows.begins.value_rowids()
    # A piece that is only the blank before a word is part of no answer.
    is_inside = (
        (windows.begins.flat_values < windows.ends.flat_values)
        & (windows.ends.flat_values > tf.gather(begins, rows))
        & (windows.begins.flat_values < tf.gather(begins + lengths, rows))
    )
    places = tf.ragged.range(windows.begins.row_lengths()).flat_values
    places = tf.cast(tf.boolean_mask(places, is_inside), tf.int32)
    rows = tf.boolean_mask(rows, is_inside)
    count = tf.size(begins)
    first = tf.math.unsorted_segment_min(places, rows, count)
    last = tf.math.unsorted_segment_max(places, rows, count)
    is_found &= first <= last
    return tf.where(is_found, first, 0), tf.where(is_found, last, 0), is_found


@tf.autograph.experimental.do_not_convert
def training_windows(windows, contexts, answer_starts, answer_texts):
    """One window a question with its labels.

    It is the window that holds the whole answer, of several the one with the
    most context around it, of equals the first; else the first window, labelled
    as without an answer.

    Args:
        windows: GraphWindows.
        contexts, answer_starts, answer_texts: as `answer_pieces` takes them.

    Returns:
        features: dict of tensors [N, T] and [N], with `start_positions`.
        labels: dict of `start_positions` and `end_positions`, int32 [N], and
            `is_impossible`, float32 [N].
        weights: float32 [N], 0 where an answer is given that is not in the
            context at its place or has no piece; such a question teaches
            nothing.
    """
    with tf.device("CPU:0"):
        first, last, is_found = answer_pieces(
            windows, contexts, answer_starts, answer_texts
        )
        rows = windows.window_row
        start = tf.gather(first, rows) - windows.first_piece
        end = tf.gather(last, rows) - windows.first_piece
        context = tf.minimum(start, windows.num_pieces - 1 - end)
        holds = tf.gather(is_found, rows) & (context >= 0)
        context = tf.where(holds, context, -1)
        count = tf.size(first)
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
        holds = tf.gather(holds, chosen)
        index = features["class_index"]
        start = tf.where(holds, tf.gather(start, chosen), index)
        end = tf.where(holds, tf.gather(end, chosen), index)
        labels = {
            "start_positions": start,
            "end_positions": end,
            "is_impossible": tf.cast(~holds, tf.float32),
        }
        weights = tf.cast(is_found | (answer_starts < 0), tf.float32)
        return {**features, "start_positions": start}, labels, weights
