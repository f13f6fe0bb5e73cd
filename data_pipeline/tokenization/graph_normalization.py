"""The cleaning before SentencePiece as a TensorFlow graph, with offsets.

Only TensorFlow's own ops; Python's Unicode tables travel as constants.

Letters: N texts, C characters of a text before and after the cleaning.
"""

import tensorflow as tf

from data_pipeline.tokenization.unicode_tables import BLOCK
from data_pipeline.tokenization.unicode_tables import CAPITAL_SIGMA
from data_pipeline.tokenization.unicode_tables import CASED
from data_pipeline.tokenization.unicode_tables import IGNORABLE
from data_pipeline.tokenization.unicode_tables import SMALL_SIGMA
from data_pipeline.tokenization.unicode_tables import blanks
from data_pipeline.tokenization.unicode_tables import blanks_pattern
from data_pipeline.tokenization.unicode_tables import case_kinds
from data_pipeline.tokenization.unicode_tables import decompositions
from data_pipeline.tokenization.unicode_tables import lower_shifts
from data_pipeline.tokenization.unicode_tables import two_levels

_FINAL_SIGMA = 0x3C2
_SPACE, _GRAVE, _APOSTROPHE = map(ord, " `'")


class GraphNormalizer(tf.Module):
    """Cleans texts in graph ops, as `normalization.preprocess` and `align`.

    Bytes that are not UTF-8 count as U+FFFD, as many as Python's
    `decode(errors="replace")` makes of them.

    Args:
        lowercase: bool.
        name: str, default None.

    Call arguments:
        texts: string tensor [N].

    Returns:
        string tensor [N], UTF-8.
    """

    def __init__(self, lowercase, name=None):
        super().__init__(name=name)
        self.lowercase = lowercase
        # Strings live on the host; tables anywhere else would be copied back
        # for each batch.
        with tf.device("CPU:0"):
            index, blocks, values, splits = decompositions()
            self._decompositions = constants((index, blocks))
            self._decomposed = constants((values, splits))
            self._blanks = constants(two_levels(blanks()))
            if self.lowercase:
                self._lower = constants(two_levels(lower_shifts()))
                self._kinds = constants(two_levels(case_kinds()))

    def __call__(self, texts):
        texts = tf.strings.regex_replace(texts, blanks_pattern(), " ")
        texts = tf.strings.strip(texts)
        texts = tf.strings.regex_replace(texts, "``|''", '"')
        is_ascii = tf.strings.regex_full_match(texts, r"[\x00-\x7f]*")
        rows = tf.where(~is_ascii)
        codes = _decode(tf.gather(texts, rows[:, 0]))
        codes = replace(codes, *self._without_accents(codes.flat_values))
        if self.lowercase:
            codes = self._lowercase(codes)
        decoded = tf.strings.unicode_encode(codes, "UTF-8")
        texts = tf.tensor_scatter_nd_update(texts, rows, decoded)
        return tf.strings.lower(texts) if self.lowercase else texts

    def align(self, texts):
        """Cleans texts and says which characters each result came from.

        Args:
            texts: string tensor [N].

        Returns:
            codes: int32 ragged [N, (C)], code points of the cleaned texts.
            begins: int64 [sum of C], the character of its text that each
                code came from, flat.
            ends: int64 [sum of C], likewise, exclusive.
        """
        codes, begins, ends = self._units(_decode(texts))
        starts, limits, values = self._without_accents(codes.flat_values)
        is_kept = limits > starts
        # Dropped accents belong to the letter before them.
        rows = codes.value_rowids()
        count = tf.size(rows, tf.int64)
        next_kept = tf.minimum(
            next_place(is_kept)[1:], tf.gather(codes.row_splits[1:], rows)
        )
        with_marks = tf.gather(ends, tf.maximum(next_kept - 1, 0))
        cleaned = replace(codes, starts, limits, values)
        sources = tf.repeat(tf.range(count), limits - starts)
        is_last = tf.concat([sources[1:] != sources[:-1], [True]], 0)
        takes_marks = is_last[: tf.size(sources)] & (
            cleaned.flat_values != _SPACE
        )
        begins = tf.gather(begins, sources)
        ends = tf.where(
            takes_marks,
            tf.gather(with_marks, sources),
            tf.gather(ends, sources),
        )
        return (
            self._lowercase(cleaned) if self.lowercase else cleaned,
            begins,
            ends,
        )

    def _units(self, codes):
        """Joins blanks and quotes, and says what each result came from."""
        flat = codes.flat_values
        rows = codes.value_rowids()
        count = tf.size(rows, tf.int64)
        firsts = tf.gather(codes.row_splits, rows)
        places = tf.range(count)
        like_last = tf.concat(
            [[False], (flat[1:] == flat[:-1]) & (rows[1:] == rows[:-1])], 0
        )[:count]
        like_next = tf.concat([like_last[1:], [False]], 0)[:count]

        is_quote = (flat == _GRAVE) | (flat == _APOSTROPHE)
        run_starts = last_limit(is_quote & ~like_last)[1:] - 1
        is_odd = (places - run_starts) % 2 == 1
        is_pair = is_quote & ~is_odd & like_next
        is_second = is_quote & is_odd

        is_blank = look_up(self._blanks, flat) == 1
        after_blanks = next_place(~is_blank)[:-1]
        is_inner = (
            (places > firsts)
            & ~tf.concat([[True], is_blank[:-1]], 0)[:count]
            & (after_blanks < tf.gather(codes.row_splits[1:], rows))
        )
        flat = tf.where(is_pair, ord('"'), tf.where(is_blank, _SPACE, flat))
        ends = tf.where(is_blank, after_blanks, places + 1)
        ends = tf.where(is_pair, places + 2, ends)
        is_kept = ~is_second & (is_inner | ~is_blank)
        kept = tf.where(is_kept)[:, 0]
        sums = tf.cumsum(tf.cast(is_kept, tf.int64))
        sums = tf.concat([[0], sums], 0)
        return (
            tf.RaggedTensor.from_row_splits(
                tf.gather(flat, kept),
                tf.gather(sums, codes.row_splits),
                validate=False,
            ),
            tf.gather(places - firsts, kept),
            tf.gather(ends - firsts, kept),
        )

    def _without_accents(self, flat):
        """Where the decomposed form of each code stands, and in what."""
        values, splits = self._decomposed
        entries = look_up(self._decompositions, flat)
        # Codes that stay are read from behind the table, where they follow.
        itself = tf.size(values) + tf.range(tf.size(flat))
        stays = entries == 0
        starts = tf.where(stays, itself, tf.gather(splits, entries))
        limits = tf.where(stays, itself + 1, tf.gather(splits, entries + 1))
        return starts, limits, tf.concat([values, flat], 0)

    def _lowercase(self, codes):
        flat = codes.flat_values
        sigmas = tf.where(flat == CAPITAL_SIGMA)
        lowered = tf.tensor_scatter_nd_update(
            flat + look_up(self._lower, flat),
            sigmas,
            tf.cond(
                tf.size(sigmas) > 0,
                lambda: self._lower_sigmas(codes, sigmas[:, 0]),
                lambda: tf.zeros([0], tf.int32),
            ),
        )
        return codes.with_flat_values(lowered)

    def _lower_sigmas(self, codes, sigmas):
        """Chooses between the two small sigmas as `str.lower` does."""
        kinds = look_up(self._kinds, codes.flat_values)
        rows = codes.value_rowids()
        solid = tf.where(kinds != IGNORABLE)[:, 0]
        # Sigma itself is cased, so `solid` holds it and its neighbours.
        places = tf.cumsum(tf.cast(kinds != IGNORABLE, tf.int64)) - 1
        places = tf.gather(places, sigmas)

        def is_cased(places):
            last = tf.size(solid, tf.int64) - 1
            at = tf.gather(solid, tf.clip_by_value(places, 0, last))
            return (
                (places >= 0)
                & (places <= last)
                & (tf.gather(rows, at) == tf.gather(rows, sigmas))
                & (tf.gather(kinds, at) == CASED)
            )

        is_final = is_cased(places - 1) & ~is_cased(places + 1)
        return tf.where(is_final, _FINAL_SIGMA, SMALL_SIGMA)


def replace(rows, starts, limits, values):
    """Puts `values[start:limit]` in place of every flat value of `rows`.

    Args:
        rows: ragged tensor [N, (T)].
        starts: int tensor [sum of T].
        limits: likewise.
        values: tensor [any].

    Returns:
        ragged tensor [N, (T)] of the type of `values`.
    """
    lengths = limits - starts
    positions = tf.ragged.range(starts, limits).flat_values
    ends = tf.concat([[0], tf.cumsum(tf.cast(lengths, tf.int64))], 0)
    return tf.RaggedTensor.from_row_splits(
        tf.gather(values, positions),
        tf.gather(ends, rows.row_splits),
        validate=False,
    )


def next_place(mask):
    """For each of the n + 1 boundaries, the first True from there on, or n.

    Args:
        mask: bool tensor [n].

    Returns:
        int64 tensor [n + 1].
    """
    places = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], 0)
    return tf.gather(places, _counts(mask))


def last_limit(mask):
    """For each of the n + 1 boundaries, one past the last True before it, or 0.

    Args:
        mask: bool tensor [n].

    Returns:
        int64 tensor [n + 1].
    """
    limits = tf.concat([[0], tf.where(mask)[:, 0] + 1], 0)
    return tf.gather(limits, _counts(mask))


def _counts(mask):
    return tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)


def _decode(texts):
    return tf.strings.unicode_decode(texts, "UTF-8", errors="replace")


def look_up(levels, codes):
    """What a table of `unicode_tables.two_levels` says of each code."""
    index, blocks = levels
    return tf.gather(
        blocks, tf.gather(index, codes // BLOCK) * BLOCK + codes % BLOCK
    )


def constants(arrays):
    """Arrays as int32 tensors."""
    return tuple(tf.constant(array, tf.int32) for array in arrays)
