"""The digit-comma rule of the released preprocessing, as a table of ids.

A piece that ends with a digit and a comma, such as "70,", is split again into
the pieces of the digits and a comma. So is a run of unknown characters, in a
vocabulary that has no comma: into two unknown pieces.

Shapes: n texts, N ids of all texts together, V vocabulary.

Source: `prepro_utils.encode_pieces`.
"""

import functools
import typing

import numpy as np

from data_pipeline.tokenization.cleaning import character_ranges
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import UNKNOWN_ID

# In `CommaTable.totals`, for the part behind the digits.
COMMA = -2


class CommaTable(typing.NamedTuple):
    """The S ids that the rule splits, and their parts, flat.

    Attributes:
        pieces: int32 array [S + 1], the ids in order; a larger number last,
            for a run of unknown characters.
        splits: int32 array [S + 2], the first part of each.
        ids: int32 array [parts].
        begins, widths: int32 arrays [parts], in characters of the piece
            without its blank.
        totals: int32 array [parts], characters of all digits, -1 if not known;
            COMMA for the part behind them.
    """

    pieces: np.ndarray
    splits: np.ndarray
    ids: np.ndarray
    begins: np.ndarray
    widths: np.ndarray
    totals: np.ndarray


class DigitCommas:
    """Splits commas off the digits before them.

    Args:
        pieces: list of V str.
        encode_pieces: callable, str -> list of str: the model without the rule.

    Attributes:
        table: CommaTable.
        splits_unknown: bool, whether the vocabulary has no comma, so that runs
            of unknown characters can end with one.
    """

    def __init__(self, pieces, encode_pieces):
        self._ids = {}
        self._widths = {}
        numbers = {piece: index for index, piece in enumerate(pieces)}
        # A character for private use stands for the unknown ones.
        last = encode_pieces("\U000f00003,")[-1]
        self.splits_unknown = last.endswith(",") and last not in numbers
        for index, piece in enumerate(pieces):
            parts = split_comma(piece, encode_pieces)
            if parts:
                self._ids[index] = [
                    numbers.get(part, UNKNOWN_ID) for part in parts
                ]
                self._widths[index] = [
                    len(part.removeprefix(BLANK)) for part in parts[:-1]
                ]
        self.table = self._make_table()
        self._is_split = np.zeros(len(pieces), bool)
        self._is_split[list(self._ids)] = True

    def replace(self, ids):
        """Put the parts in place of every id that has some.

        Args:
            ids: list of int.

        Returns:
            list of int.
        """
        if self._ids.keys().isdisjoint(ids):
            return ids
        return [p for index in ids for p in self._ids.get(index, (index,))]

    def replace_flat(self, ids, lengths):
        """Put the parts in place of ids of many texts.

        Args:
            ids: int32 array [N] of texts one after the other.
            lengths: int64 array [n], the ids of each text.

        Returns:
            tuple of ids and lengths, likewise.
        """
        places = np.flatnonzero(self._is_split[ids])
        if not len(places):
            return ids, lengths
        table = self.table
        rows = np.searchsorted(table.pieces, ids[places])
        begins, counts = table.splits[rows], np.diff(table.splits)[rows]
        ends = np.cumsum(counts, dtype=np.int64)
        within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        # Where the parts of each begin among the new ids.
        target = places + (ends - counts) - np.arange(len(places))
        repeats = np.ones(len(ids), np.int64)
        repeats[places] = counts
        result = np.repeat(ids, repeats)
        result[np.repeat(target, counts) + within] = table.ids[
            np.repeat(begins, counts) + within
        ]
        text = np.searchsorted(np.cumsum(lengths), places, side="right")
        more = np.bincount(text, counts - 1, len(lengths)).astype(np.int64)
        return result, lengths + more

    def replace_with_spans(self, index, piece, begin, comma, end):
        """Split one id and its characters.

        Args:
            index: int.
            piece: str, what SentencePiece took for it.
            begin: int, the first character.
            comma: int, the last character but for marks on it.
            end: int, exclusive.

        Returns:
            list of (id, (begin, end)).
        """
        is_unknown = self.splits_unknown and index == UNKNOWN_ID
        if is_unknown and ends_in_digit_comma(piece):
            return [(index, (begin, comma)), (index, (comma, end))]
        if index not in self._ids:
            return [(index, (begin, end))]
        widths = self._widths[index]
        if sum(widths) == comma - begin:
            limits = begin + np.cumsum([0, *widths])
            limits = limits.tolist()
            spans = list(zip(limits[:-1], limits[1:], strict=True))
        else:
            spans = [(begin, comma)] * len(widths)
        return list(zip(self._ids[index], [*spans, (comma, end)], strict=True))

    def _make_table(self):
        pieces = sorted(self._ids)
        parts = []
        splits = [0]
        for index in pieces:
            *digits, comma = self._ids[index]
            widths = self._widths[index]
            parts += [
                (part, sum(widths[:place]), widths[place], sum(widths))
                for place, part in enumerate(digits)
            ]
            parts.append((comma, 0, 0, COMMA))
            splits.append(len(parts))
        parts += [(UNKNOWN_ID, 0, 0, -1), (UNKNOWN_ID, 0, 0, COMMA)]
        columns = np.array(parts, np.int32).reshape(-1, 4).T
        return CommaTable(
            np.array([*pieces, np.iinfo(np.int32).max], np.int32),
            np.array([*splits, len(parts)], np.int32),
            *columns,
        )


def split_comma(piece, encode_pieces):
    """Split the comma off a piece that ends with a digit and a comma.

    Args:
        piece: str.
        encode_pieces: callable, str -> list of str: the model without the rule.

    Returns:
        list of str, or None where the rule does not apply.
    """
    if not ends_in_digit_comma(piece):
        return None
    parts = encode_pieces(piece[:-1].replace(BLANK, ""))
    if parts and piece[0] != BLANK and parts[0][0] == BLANK:
        parts = ([parts[0][1:]] if len(parts[0]) > 1 else []) + parts[1:]
    return [*parts, ","]


@functools.cache
def digit_comma_pattern():
    """RE2 pattern of the pieces that the rule splits."""
    digits = [c for c in map(chr, range(0x20000)) if c.isdigit()]
    return f"(?s).*[{character_ranges(digits)}],"


def ends_in_digit_comma(piece):
    """bool, whether the rule splits a piece, such as "70,"."""
    return len(piece) > 1 and piece[-1] == "," and piece[-2].isdigit()
