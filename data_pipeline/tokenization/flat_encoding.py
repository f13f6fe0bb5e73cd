"""Many texts at once: what `Tokenizer` does to one, without a loop of Python.

Shapes: n texts, N ids of all texts together, V vocabulary.
"""

import numpy as np

from data_pipeline.tokenization.cleaning import strip_accents


def preprocess_all(texts, lowercase=False):
    """Cleans texts as `normalization.preprocess` cleans each.

    Args:
        texts: list of str.
        lowercase: bool, default False.

    Returns:
        list of str.
    """
    # No text has a line end now, and no rule reaches across one.
    joined = "\n".join([" ".join(text.split()) for text in texts])
    if "``" in joined or "''" in joined:
        joined = joined.replace("``", '"').replace("''", '"')
    if not joined.isascii():
        joined = "\n".join(
            [
                line if line.isascii() else strip_accents(line)
                for line in joined.split("\n")
            ]
        )
    if lowercase:
        joined = joined.lower()
    return joined.split("\n") if texts else []


class CommaTable:
    """The digit-comma rule as a table: id -> the ids in its place.

    Args:
        comma_ids: dict of int to list of int, the ids that are replaced.
        vocabulary_size: int, V.
    """

    def __init__(self, comma_ids, vocabulary_size):
        self._counts = np.ones(vocabulary_size, np.int64)
        self._begins = np.zeros(vocabulary_size, np.int64)
        self._is_replaced = np.zeros(vocabulary_size, bool)
        parts = []
        for index, ids in comma_ids.items():
            self._is_replaced[index] = True
            self._counts[index] = len(ids)
            self._begins[index] = len(parts)
            parts.extend(ids)
        self._parts = np.array(parts, np.int32)

    def replace(self, ids, lengths):
        """Puts the parts in place of every id that has some.

        Args:
            ids: int32 array [N] of texts one after the other.
            lengths: int64 array [n], the ids of each text.

        Returns:
            tuple of ids and lengths, likewise.
        """
        places = np.flatnonzero(self._is_replaced[ids])
        if not len(places):
            return ids, lengths
        old = ids[places]
        counts = self._counts[old]
        ends = np.cumsum(counts)
        within = np.arange(ends[-1]) - np.repeat(ends - counts, counts)
        # Where the parts of each begin among the new ids.
        target = places + (ends - counts) - np.arange(len(places))
        result = np.repeat(ids, self._counts[ids])
        result[np.repeat(target, counts) + within] = self._parts[
            np.repeat(self._begins[old], counts) + within
        ]
        text = np.searchsorted(np.cumsum(lengths), places, side="right")
        more = np.bincount(text, counts - 1, len(lengths)).astype(np.int64)
        return result, lengths + more
