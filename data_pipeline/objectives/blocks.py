"""Halves of a sequence and the blocks in them that are permuted as a whole."""


def half_lengths(sequence_length, reuse_length):
    """The independently permuted parts of a sequence: (reused, new).

    With `reuse_length` 0 there is one.
    """
    halves = (reuse_length, sequence_length - reuse_length)
    return tuple(length for length in halves if length)


def block_length(half, permutation_length):
    """The length of the blocks that share one shuffle in a half.

    A half that is shorter than `permutation_length` is one block.
    """
    return min(half, permutation_length)
