"""Halves of a sequence, and their blocks of tokens permuted together."""


def half_lengths(sequence_length, reuse_length):
    """Lengths of the independently permuted halves: (reused, new).

    With `reuse_length` 0 there is only the new half.
    """
    halves = (reuse_length, sequence_length - reuse_length)
    return tuple(length for length in halves if length)


def block_length(half, permutation_length):
    """Length of the blocks of a half; all blocks share one shuffle.

    A half shorter than `permutation_length` is one block.
    """
    return min(half, permutation_length)
