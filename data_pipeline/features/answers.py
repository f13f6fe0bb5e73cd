"""Choice of the best answers to questions by the scores of windows.

A context is a text to search for the answer to a question. An answer is a slice
of the context. A window is a question with a section of its context, see
`features.windows`.

Shapes: N questions, W windows of all questions, S starts per window, E ends per
start, K spans, n answers to keep per question.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.tokenization.cleaning import blanks_class

# Score of an end if no span is possible, as in the release.
_NO_END_SCORE = -1e6
# Base of the hashes, odd and large, so that different texts have different
# hashes.
_BASE = 6364136223846793005
_ROW_FACTOR = 1442695040888963407
# For each code point up to one after the last blank, True if it is a blank.
_IS_BLANK = np.array([chr(code).isspace() for code in range(0x3002)])
_NO_ANSWER = {
    "begin": -1,
    "end": -1,
    "score": 2 * _NO_END_SCORE,
    "start_score": _NO_END_SCORE,
    "end_score": _NO_END_SCORE,
}


@tf.autograph.experimental.do_not_convert
def best_spans(outputs, windows, contexts, n_best=5, max_answer_length=64):
    """Find the best answer spans of each question over all its windows.

    A span lies in the context and has at most `max_answer_length` pieces. A
    window's span counts only if this window has the most context around the
    span's first piece. From several spans with the same text, only the best
    span is kept. Among spans with equal scores, the first span is best.

    Args:
        outputs: dict, the outputs of `XLNetQuestionAnswering` for inputs
            without `start_positions`: `start_top_scores` and
            `start_top_positions` [W, S], `end_top_scores` and
            `end_top_positions` [W, S, E], `class_logits` [W].
        windows: QuestionWindows. Only `window_row`, `begins`, `ends`,
            `is_max_context` and the feature `class_index` are used.
        contexts: string tensor [N], UTF-8, the context of each question.
        n_best: int, n, number of answers to keep. Default 5.
        max_answer_length: int, maximum number of pieces. Default 64.

    Returns:
        dict of tensors, the best answers first:
            text: string [N, n], slices of the contexts, "" for no answer.
            begin, end: int32 [N, n], the slice in code points (ends are
                exclusive), -1 for no answer.
            score: float32 [N, n], sum of the natural log-probabilities of start
                and end, -2e6 for no answer.
            start_score, end_score: float32 [N, n], the two terms of `score`,
                -1e6 for no answer.
            null_score: float32 [N], logit that the question has no answer: the
                minimum of `class_logits` over the question's windows.

    Raises:
        ValueError: a setting is out of range.

    Source: `write_predictions` of the released run_squad. The release also
        skips spans that contain the last piece of a window.
    """
    if n_best < 1 or max_answer_length < 1:
        raise ValueError(
            "`n_best` and `max_answer_length` must be at least 1. Received: "
            f"n_best={n_best}, max_answer_length={max_answer_length}."
        )
    with tf.device("CPU:0"):  # GPUs have no strings
        # Questions share contexts. Decode each context once.
        contexts, numbers = tf.unique(valid_utf8(contexts))
        characters = _Characters(contexts)
        spans = _spans(outputs, windows, max_answer_length)
        best = _best_texts(spans, characters, numbers, n_best)
        count = tf.size(numbers)
        texts = characters.texts(
            tf.repeat(numbers, n_best),
            tf.reshape(best["begin"], [-1]),
            tf.reshape(best["end"], [-1]),
        )
        null_score = tf.math.unsorted_segment_min(
            outputs["class_logits"], windows.window_row, count
        )
        return {
            "text": tf.reshape(texts, [count, n_best]),
            **best,
            "null_score": null_score,
        }


def _best_texts(spans, characters, numbers, n_best):
    """Find the n best spans with different texts for each question.

    `numbers` has the index of each question's context in `characters`.

    Returns:
        dict of tensors [N, n], with the keys of `_NO_ANSWER`.
    """
    rows = spans.pop("row")
    spans["begin"], spans["end"], is_text = characters.strip(
        tf.gather(numbers, rows), spans["begin"], spans["end"]
    )
    rows = tf.boolean_mask(rows, is_text)
    spans = {k: tf.boolean_mask(x, is_text) for k, x in spans.items()}
    digests = characters.digests(
        tf.gather(numbers, rows), spans["begin"], spans["end"]
    )
    order = _best_of_rows(
        rows, digests, spans["score"], tf.size(numbers), n_best
    )
    spans["score"] = tf.cast(spans["score"], tf.float32)
    return _chosen(spans, order)


class _Characters:
    """Characters of contexts, to compare spans and to extract their texts.

    `digests` hashes the texts of spans without extracting the texts. So time
    and memory grow with the number of characters plus the number of spans, not
    with the sum of the lengths of all spans.

    Args:
        contexts: string tensor [M], UTF-8, the M different contexts.
    """

    def __init__(self, contexts):
        codes = tf.strings.unicode_decode(contexts, "UTF-8")
        self._codes = codes.flat_values
        self._starts = tf.cast(codes.row_starts(), tf.int64)

    def strip(self, rows, begins, ends):
        """Remove the blanks at both ends of spans, as `str.strip` does.

        Args:
            rows: int tensor [K], index of each span's context.
            begins, ends: int32 tensors [K], in code points, ends exclusive.

        Returns:
            tuple of begins, ends, and a bool tensor [K], False for a span of
            only blanks.
        """
        is_blank = tf.gather(
            _IS_BLANK, tf.minimum(self._codes, len(_IS_BLANK) - 1)
        )
        places = tf.where(~is_blank)[:, 0]
        # Number of non-blank characters before each place.
        before = tf.concat(
            [[0], tf.cumsum(tf.cast(~is_blank, tf.int64))], axis=0
        )
        starts = tf.gather(self._starts, rows)
        first = tf.gather(before, starts + tf.cast(begins, tf.int64))
        limit = tf.gather(before, starts + tf.cast(ends, tf.int64))
        # Add a value, because there may be no places.
        places = tf.concat([places, [-1]], 0)
        begins = tf.gather(places, first) - starts
        ends = tf.gather(places, tf.maximum(limit - 1, 0)) + 1 - starts
        return tf.cast(begins, tf.int32), tf.cast(ends, tf.int32), first < limit

    def digests(self, rows, begins, ends):
        """Hash the texts of spans, int64 [K]; see `strip` for the arguments."""
        powers = tf.fill([tf.size(self._codes)], tf.constant(_BASE, tf.int64))
        powers = tf.math.cumprod(powers, exclusive=True)  # modulo 2^64
        sums = tf.cumsum(tf.cast(self._codes + 1, tf.int64) * powers)
        sums = tf.concat([tf.constant([0], tf.int64), sums], 0)
        starts = tf.gather(self._starts, rows)
        begins = starts + tf.cast(begins, tf.int64)
        ends = starts + tf.cast(ends, tf.int64)
        digests = tf.gather(sums, ends) - tf.gather(sums, begins)
        # Scale each hash as if the span began at the last character.
        last = tf.size(self._codes, tf.int64) - 1
        return digests * tf.gather(powers, last - begins)

    def texts(self, rows, begins, ends):
        """Extract the texts of spans, string [K]; "" for a begin of -1."""
        starts = tf.gather(self._starts, rows)
        begins, ends = (
            starts + tf.cast(tf.maximum(x, 0), tf.int64) for x in (begins, ends)
        )
        places = tf.ragged.range(begins, ends)
        codes = tf.gather(self._codes, places.flat_values)
        return tf.strings.unicode_encode(
            places.with_flat_values(codes), "UTF-8"
        )


def _chosen(spans, order):
    """Gather the values of spans at indices [N, n]; -1 stands for no answer."""
    chosen = {}
    for name, default in _NO_ANSWER.items():
        values = spans[name]
        values = tf.concat([values, tf.constant([default], values.dtype)], 0)
        place = tf.where(order >= 0, order, tf.size(values) - 1)
        chosen[name] = tf.gather(values, place)
    return chosen


def _spans(outputs, windows, max_answer_length):
    """List the possible spans, dict of tensors [K]."""
    begin = windows.context_position
    starts = outputs["start_top_positions"] - begin[:, None]
    ends = outputs["end_top_positions"] - begin[:, None, None]
    limits = windows.num_pieces[:, None]
    # Index of a window's first piece among the pieces of all windows.
    first = tf.cast(windows.begins.row_starts(), tf.int32)[:, None]
    is_start = (starts >= 0) & (starts < limits)
    # Add a value, because there may be no pieces.
    is_max_context = tf.concat([windows.is_max_context.flat_values, [False]], 0)
    is_start &= tf.gather(
        is_max_context,
        tf.where(is_start, first + starts, tf.size(is_max_context) - 1),
    )
    starts = starts[:, :, None] + tf.zeros_like(ends)
    is_span = (
        is_start[:, :, None]
        & (ends >= starts)
        & (ends < limits[:, :, None])
        & (ends - starts < max_answer_length)
    )
    window = tf.where(is_span)[:, 0]
    first = tf.gather(first[:, 0], window)
    start_scores = outputs["start_top_scores"][:, :, None] + tf.zeros_like(
        outputs["end_top_scores"]
    )
    starts, ends, start_scores, end_scores = (
        tf.boolean_mask(x, is_span)
        for x in (starts, ends, start_scores, outputs["end_top_scores"])
    )
    return {
        "row": tf.gather(windows.window_row, window),
        "begin": tf.gather(windows.begins.flat_values, first + starts),
        "end": tf.gather(windows.ends.flat_values, first + ends),
        "start_score": start_scores,
        "end_score": end_scores,
        # Use float64 as in the released code.
        "score": tf.cast(start_scores, tf.float64)
        + tf.cast(end_scores, tf.float64),
    }


def _best_of_rows(rows, digests, scores, count, n_best):
    """Find each question's best spans with different texts, int32 [N, n].

    The values are indices of spans, -1 for no answer.
    """
    splits = tf.searchsorted(rows, tf.range(count + 1))
    # Do not make a matrix: a single question with many spans would make it
    # large.
    places = tf.argsort(scores, direction="DESCENDING", stable=True)
    by_row = tf.argsort(tf.gather(rows, places), stable=True)
    places = tf.gather(places, by_row)
    order = tf.RaggedTensor.from_row_splits(places, splits, validate=False)
    # Keep the first span of each text of a question, which is the best span.
    keys = tf.gather(digests, places)
    keys += tf.cast(tf.gather(rows, places), tf.int64) * _ROW_FACTOR
    keys, numbers = tf.unique(keys)
    positions = tf.range(tf.size(places))
    first = tf.math.unsorted_segment_min(positions, numbers, tf.size(keys))
    is_first = order.with_flat_values(tf.gather(first, numbers) == positions)
    order = tf.ragged.boolean_mask(order, is_first)
    return order.to_tensor(-1, shape=[None, n_best])


def strip(texts, begins):
    """Remove the blanks at both ends of texts, as `str.strip` does.

    Args:
        texts: string tensor [K], UTF-8.
        begins: int32 tensor [K], offset of each text in its context, in code
            points.

    Returns:
        tuple of the stripped texts and their offsets.
    """
    blank = blanks_class()
    from_first = tf.strings.regex_replace(texts, f"^{blank}+", "")
    begins += tf.strings.length(texts, unit="UTF8_CHAR")
    begins -= tf.strings.length(from_first, unit="UTF8_CHAR")
    return tf.strings.regex_replace(from_first, f"{blank}+$", ""), begins


def valid_utf8(texts):
    """Replace invalid UTF-8 in texts by U+FFFD, as the tokenizer does.

    Args:
        texts: string tensor.

    Returns:
        string tensor of the same shape.
    """
    return tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")


def n_best_answers(spans, contexts):
    """List the n best answers of each question with their probabilities.

    Args:
        spans: dict from `best_spans`.
        contexts: list of N str.

    Returns:
        list of N lists of dict with `text`, `probability`, `start_log_prob` and
        `end_log_prob`, the best answer first. The probabilities of a question's
        answers have the sum 1. For a question without a possible span, the only
        answer is "".

    Source: `write_predictions` of the released run_squad.
    """
    names = ("begin", "end", "start_score", "end_score")
    columns = [np.asarray(spans[name]).tolist() for name in names]
    answers = []
    for context, *rows in zip(contexts, *columns, strict=True):
        best = [
            (context[begin:end], start_score, end_score)
            for begin, end, start_score, end_score in zip(*rows, strict=True)
            if begin >= 0
        ] or [("", _NO_END_SCORE, _NO_END_SCORE)]
        scores = np.array([start + end for _, start, end in best])
        odds = np.exp(scores - scores.max())
        answers.append(
            [
                {
                    "text": text,
                    "probability": probability,
                    "start_log_prob": start,
                    "end_log_prob": end,
                }
                for (text, start, end), probability in zip(
                    best, (odds / odds.sum()).tolist(), strict=True
                )
            ]
        )
    return answers
