"""Lengths of the halves and permutation blocks of a sequence.

The reused half is the first `reuse_length` tokens, which the memory keeps for
the next sequence. The new half is all tokens after the reused half.
"""


def half_lengths(sequence_length, reuse_length):
    """Lengths of the reused and the new half, which are permuted separately.

    With `reuse_length` 0, only the new half exists.
    """
    halves = (reuse_length, sequence_length - reuse_length)
    return tuple(length for length in halves if length)


def block_length(half, permutation_length):
    """Length of the permutation blocks of a half, int.

    All blocks of a half are permuted by one shuffle. A half that is shorter
    than `permutation_length` is a single block.
    """
    return min(half, permutation_length)
