"""Encoded examples in memory: flat arrays, no Python object a token.

Shapes: R rows, O sequences of a row (1, or the options of a question), S = R x
O sequences, T tokens.
"""

import numpy as np


class Ragged:
    """Sequences of different lengths, one after the other in one array.

    Args:
        values: array [all tokens].
        row_splits: int64 array [S + 1]; sequence i is
            `values[row_splits[i] : row_splits[i + 1]]`.
    """

    def __init__(self, values, row_splits):
        self.values = np.asarray(values)
        self.row_splits = np.asarray(row_splits, np.int64)

    @classmethod
    def from_lengths(cls, values, lengths):
        """From the length of each sequence."""
        lengths = np.asarray(lengths, np.int64)
        return cls(values, np.concatenate([[0], np.cumsum(lengths)]))

    @classmethod
    def from_lists(cls, rows, dtype=np.int32):
        """From a list of lists."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        values = np.fromiter(
            (x for row in rows for x in row), dtype, int(lengths.sum())
        )
        return cls.from_lengths(values, lengths)

    @classmethod
    def full(cls, lengths, value, dtype=np.int32):
        """Sequences that hold one value."""
        lengths = np.asarray(lengths, np.int64)
        return cls.from_lengths(
            np.full(int(lengths.sum()), value, dtype), lengths
        )

    def __len__(self):
        return len(self.row_splits) - 1

    def __getitem__(self, index):
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        return self.values[self.row_splits[index] : self.row_splits[index + 1]]

    @property
    def lengths(self):
        """int64 array [S]."""
        return np.diff(self.row_splits)

    def gather(self, indices):
        """The sequences of these indices, in their order."""
        indices = np.asarray(indices, np.int64)
        lengths = self.lengths[indices]
        return Ragged.from_lengths(
            self.values[ranges(self.row_splits[indices], lengths)], lengths
        )

    def head(self, lengths):
        """The first `lengths[i]` tokens of each sequence."""
        lengths = np.minimum(self.lengths, lengths)
        return Ragged.from_lengths(
            self.values[ranges(self.row_splits[:-1], lengths)], lengths
        )

    def tail(self, lengths):
        """The last `lengths[i]` tokens of each sequence."""
        lengths = np.minimum(self.lengths, lengths)
        starts = self.row_splits[1:] - lengths
        return Ragged.from_lengths(
            self.values[ranges(starts, lengths)], lengths
        )


def join(parts):
    """Puts sequence i of all parts one after the other, for each i.

    Args:
        parts: list of Ragged of equally many sequences.

    Returns:
        Ragged.
    """
    lengths = np.stack([part.lengths for part in parts])  # [parts, S]
    splits = np.concatenate([[0], np.cumsum(lengths.sum(axis=0))])
    values = np.empty(splits[-1], parts[0].values.dtype)
    offsets = np.cumsum(lengths, axis=0) - lengths
    for part, offset in zip(parts, offsets, strict=True):
        values[ranges(splits[:-1] + offset, part.lengths)] = part.values
    return Ragged(values, splits)


def ranges(starts, lengths):
    """Indices starts[i], ..., starts[i] + lengths[i] - 1, for each i in turn.

    Args:
        starts, lengths: int arrays [S].

    Returns:
        int array [sum of lengths].
    """
    total = int(lengths.sum())
    before = np.cumsum(lengths) - lengths
    return np.arange(total) + np.repeat(starts - before, lengths)


class Rows:
    """Rows of a task, ready to be batched.

    Args:
        sequences: dict of str to Ragged of S = R x O sequences, one value a
            token; `token_ids` is one of them.
        dense: dict of str to array [R, ...].
        fillers: dict of str to the value that pads a sequence of that name.
        side: "left" or "right", where sequences are padded.
        options: int, O, or None for sequences without that axis.

    Raises:
        ValueError: the columns have different numbers of rows.
    """

    def __init__(self, sequences, dense, fillers, side, options=None):
        self.sequences = sequences
        self.dense = {k: np.asarray(v) for k, v in dense.items()}
        self.fillers = fillers
        self.side = side
        self.options = options
        self.notes = []
        counts = {len(x) // (options or 1) for x in sequences.values()}
        counts |= {len(x) for x in self.dense.values()}
        if len(counts) != 1:
            raise ValueError(
                "all columns must have equally many rows. Received: "
                f"{sorted(counts)}."
            )
        self._count = counts.pop()

    def __len__(self):
        return self._count

    @property
    def lengths(self):
        """int64 array [R], tokens of the longest sequence of each row."""
        lengths = self.sequences["token_ids"].lengths
        return lengths.reshape(len(self), self.options or 1).max(axis=1)
