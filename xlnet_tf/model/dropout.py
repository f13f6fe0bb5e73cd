"""Dropout as a function of an explicit seed.

A step's random numbers follow from one seed, so that a resumed run, a
recomputed layer and a replica each draw exactly what they should, with no
state in the layers.

The mask is a hash of the seed and of an element's index, two multiplications
each. A compiler fuses it into whatever reads the mask, forwards and again
backwards, so that no random number is ever stored; the counter-based
generators of TensorFlow and JAX cost several times a layer's other
element-wise work (BUILD.md, "What was tried").
"""

import math

from keras import ops

# Odd constants of "lowbias32", the 32-bit mixer with the least bias among
# those with two multiplications (https://github.com/skeeto/hash-prospector).
_MULTIPLIER_1 = 0x7FEB352D
_MULTIPLIER_2 = 0x846CA68B
_GOLDEN = 0x9E3779B9  # 2**32 / golden ratio
# The backbone folds numbers from 0 up, and -1 to -3, into its seed.
DRAW_HEAD = -4


def _uint32(number):
    return ops.convert_to_tensor(number & 0xFFFFFFFF, dtype="uint32")


def _mix(bits):
    """Every bit of the result depends on every bit of a uint32 tensor."""
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, 16)) * _uint32(
        _MULTIPLIER_1
    )
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, 15)) * _uint32(
        _MULTIPLIER_2
    )
    return ops.bitwise_xor(bits, ops.right_shift(bits, 16))


def fold_in(seed, number):
    """A new seed from a seed and a number.

    Args:
        seed: int tensor of shape [2].
        number: int, distinct numbers give distinct seeds.

    Returns:
        uint32 tensor of shape [2].
    """
    # uint32 is what every backend takes as a seed.
    seed = ops.cast(seed, "uint32")
    return seed + ops.convert_to_tensor(
        [(number * _GOLDEN) & 0xFFFFFFFF, 0], dtype="uint32"
    )


def keep_mask(shape, rate, seed, first=None):
    """Which elements of a tensor dropout keeps.

    Args:
        shape: sequence of ints, or of scalars of the backend.
        rate: float in [0, 1), the share that is not kept.
        seed: int tensor of shape [2].
        first: for each axis where the tensor begins, int or int scalar, and
            its full length, so that the parts of a tensor draw what the whole
            would. A list of (begin, length), or None for the whole tensor.

    Returns:
        bool tensor.
    """
    seed = ops.cast(seed, "uint32")
    key = _mix(_mix(seed[0]) + seed[1])
    # All axes but the last make a key of the row, hashed once a row.
    *lengths, width = shape
    row = key
    if lengths:
        index = _row_index if first is None else _row_index_in_part
        row = _mix(index(key, lengths, first))
    column = ops.arange(width, dtype="int32")
    if first is not None:
        column = column + first[-1][0]
    bits = _mix(row + ops.cast(column, "uint32") * _uint32(_GOLDEN))
    return bits >= _uint32(round(rate * 2**32))


def _row_index(key, lengths, first):
    """uint32 [..., 1], which row an element is in, counted from the key on."""
    index = ops.arange(math.prod(lengths), dtype="int32")
    index = ops.reshape(ops.cast(index, "uint32"), [*lengths, 1])
    return key * ops.cast(math.prod(lengths[1:]), "uint32") + index


def _row_index_in_part(key, lengths, first):
    """As `_row_index`, for a part of the tensor: axis by axis."""
    row = key
    for axis, (length, (begin, whole)) in enumerate(
        zip(lengths, first[:-1], strict=True)
    ):
        index = ops.arange(length, dtype="int32") + begin
        index = ops.reshape(
            ops.cast(index, "uint32"), [-1] + [1] * (len(lengths) - axis)
        )
        row = row * ops.cast(whole, "uint32") + index if axis else row + index
    return row


def dropout(inputs, rate, seed, number):
    """Zeroes a share of the values and scales up the others.

    Args:
        inputs: float tensor.
        rate: float in [0, 1), the share that is zeroed.
        seed: int tensor of shape [2], or None for no dropout (inference).
        number: int, which of the draws from this seed this one is.

    Returns:
        float tensor of the same shape and type.
    """
    if seed is None or not rate:
        return inputs
    keep = keep_mask(ops.shape(inputs), rate, fold_in(seed, number))
    scaled = inputs * (1 / (1 - rate))
    return ops.where(keep, scaled, ops.zeros((), inputs.dtype))
