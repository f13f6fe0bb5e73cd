"""The characters that the pieces of texts came from, in graph ops.

Shapes: N texts, P pieces of all texts, C characters.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.tokenization.commas import COMMA
from data_pipeline.tokenization.ragged import row_ids
from data_pipeline.tokenization.symbols import BLANK

# Kinds of characters by what the cleaning leaves of them; those of _DROPPED are
# dropped by the model's own map.
_TEXT, _BLANK, _MARK, _DROPPED = range(4)


class PieceOffsets:
    """Offsets of pieces, as `Tokenizer.encode_with_offsets` gives them.

    Args:
        tokenizer: Tokenizer.
        table: CommaTable of tensors.
    """

    def __init__(self, tokenizer, table):
        self._table = table
        self._kind_ranges = _kind_ranges(tokenizer.cleaning)
        self._blank_ids = np.array(
            [
                index
                for index in range(tokenizer.vocabulary_size)
                if not tokenizer.id_to_piece(index).strip(BLANK)
            ],
            np.int32,
        )

    def of_pieces(self, codes, pieces, starts, limits, begins_chunk):
        """Begin, last character and end of each piece, without blanks around.

        Args:
            codes: int32 ragged [N, (C)], the characters of the texts, each
                followed by a blank.
            pieces: int32 ragged [N, (pieces)].
            starts, limits: int64 [P], in bytes of all texts, limits exclusive.
            begins_chunk: bool [P], whether SentencePiece put a blank before
                the piece.

        Returns:
            list of int64 [P] in characters of the piece's text: begin, last
            character, end (exclusive).
        """
        rows = row_ids(pieces)
        is_blank = tf.reduce_any(
            pieces.flat_values[:, None] == self._blank_ids, axis=1
        )
        # Else the blank lies inside a character that became several words.
        is_blank &= begins_chunk | (starts < limits)
        characters = _characters_of_bytes(codes.flat_values)
        starts, limits = (tf.gather(characters, x) for x in (starts, limits))
        kinds = tf.gather(
            self._kind_ranges[1],
            tf.searchsorted(
                self._kind_ranges[0], codes.flat_values, side="right"
            ),
        )
        is_text = kinds == _TEXT
        next_text = _next_place(is_text)
        # Marks belong to the letter that they follow.
        letters = tf.maximum(_last_limit(kinds != _MARK)[1:] - 1, 0)
        last_solid = _last_limit(tf.gather(is_text, letters))
        begins = tf.gather(next_text, starts)
        # If no character is left, SentencePiece stopped inside the next one.
        is_inside = begins >= limits
        ends = tf.where(is_inside, begins + 1, tf.gather(last_solid, limits))
        lasts = tf.gather(_last_limit(is_text), limits) - 1
        lasts = tf.where(is_inside, begins, lasts)
        # A blank stands behind the text before it.
        firsts = tf.gather(codes.row_splits, rows)
        behind = tf.gather(last_solid, starts)
        first_seen = tf.gather(
            _next_place(is_text | (kinds == _DROPPED)), firsts
        )
        blanks = tf.where(
            behind > firsts, tf.minimum(behind, starts), first_seen
        )
        return [
            tf.where(is_blank, blanks, x) - firsts
            for x in (begins, lasts, ends)
        ]

    def of_parts(self, places, sources, spans):
        """Offsets of what the digit-comma rule made of the pieces.

        Args:
            places: int32 [parts], in the CommaTable; beyond it for a piece that
                stays.
            sources: int64 [parts], the piece that each came from.
            spans: from `of_pieces`.

        Returns:
            begins and ends, int32 [parts].
        """
        begins, lasts, ends = (
            tf.cast(tf.gather(span, sources), tf.int32) for span in spans
        )
        table = self._table
        size = tf.size(table.ids)
        is_part = places < size
        places = tf.minimum(places, size - 1)
        totals, before, widths = (
            tf.gather(column, places)
            for column in (table.totals, table.begins, table.widths)
        )
        is_comma = is_part & (totals == COMMA)
        is_digits = is_part & (totals != COMMA)
        fits = is_digits & (totals == lasts - begins)
        part_ends = tf.where(fits, begins + before + widths, lasts)
        begins = tf.where(fits, begins + before, begins)
        begins = tf.where(is_comma, lasts, begins)
        return begins, tf.where(is_digits, part_ends, ends)


def is_first(rows):
    """True for the first value of each row of a ragged tensor, flat."""
    places = tf.range(tf.size(rows.flat_values, rows.row_splits.dtype))
    return places == tf.gather(rows.row_splits, row_ids(rows))


def _characters_of_bytes(codes):
    """The character of each byte of characters [C] in UTF-8."""
    sizes = 1 + sum(
        tf.cast(codes >= code, tf.int64) for code in (0x80, 0x800, 0x10000)
    )
    return tf.repeat(tf.range(tf.size(codes, tf.int64)), sizes)


def _kind_ranges(cleaning):
    """First codes of ranges, and the kind of character before and in each."""
    kinds = {}
    for characters, kind in (
        (cleaning.blanks, _BLANK),
        (cleaning.marks, _MARK),
        (cleaning.dropped, _DROPPED),
    ):
        kinds.update((ord(character), kind) for character in characters)
    limits, found = [], [_TEXT]
    for code in sorted(kinds.keys() | {code + 1 for code in kinds}):
        if kinds.get(code, _TEXT) != found[-1]:
            limits.append(code)
            found.append(kinds.get(code, _TEXT))
    return np.array(limits, np.int32), np.array(found, np.int32)


def _next_place(mask):
    """For each of the n + 1 boundaries, the first True from there on, or n."""
    places = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], 0)
    return tf.gather(places, _counts(mask))


def _last_limit(mask):
    """For each of the n + 1 boundaries, one past the last True before it."""
    limits = tf.concat([[0], tf.where(mask)[:, 0] + 1], 0)
    return tf.gather(limits, _counts(mask))


def _counts(mask):
    return tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)
