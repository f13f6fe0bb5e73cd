"""Dropout as a function of an explicit seed.

All random numbers of a step follow from one seed, so that a resumed run, a
recomputed layer and each replica draw reproducible values, with no state in
the layers.

The mask is a hash of the seed and of an element's index, two multiplications
each. A compiler fuses it into the operation that reads the mask, in the
forward and again in the backward pass, so that no random number is stored; the
counter-based generators of TensorFlow and JAX cost several times the other
element-wise work of a layer.
"""

import math

from keras import ops

# Odd constants of "lowbias32", the 32-bit mixer with the least bias among
# those with two multiplications (https://github.com/skeeto/hash-prospector).
_MULTIPLIER_1 = 0x7FEB352D
_MULTIPLIER_2 = 0x846CA68B
_GOLDEN = 0x9E3779B9  # 2**32 / golden ratio

# Every dropout mask of a step has a number of its own, folded into the seed:
# layer l takes DRAWS_PER_LAYER numbers from l * DRAWS_PER_LAYER on.
DRAWS_PER_LAYER = 4
DRAW_EMBEDDING, DRAW_POSITION, DRAW_OUTPUT, DRAW_HEAD = -1, -2, -3, -4


def _uint32(number):
    return ops.convert_to_tensor(number & 0xFFFFFFFF, dtype="uint32")


def _mix(bits):
    """Mix a uint32 tensor: every bit of the result depends on all bits."""
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, 16)) * _uint32(
        _MULTIPLIER_1
    )
    bits = ops.bitwise_xor(bits, ops.right_shift(bits, 15)) * _uint32(
        _MULTIPLIER_2
    )
    return ops.bitwise_xor(bits, ops.right_shift(bits, 16))


def fold_in(seed, number):
    """Derive a new seed from a seed and a number.

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


def keep_mask(shape, rate, seed, slice_of=None):
    """Draw a dropout mask.

    Args:
        shape: sequence of ints, or of scalars of the backend.
        rate: float in [0, 1), the share that is dropped.
        seed: int tensor of shape [2].
        slice_of: list of (offset, full length) per axis when `shape` is a
            slice of a larger tensor: the slice gets the same mask values as
            the full tensor would. Offsets are ints or int scalars. Default
            None.

    Returns:
        bool tensor, True = kept.
    """
    seed = ops.cast(seed, "uint32")
    key = _mix(_mix(seed[0]) + seed[1])
    # All axes but the last make a key of the row, hashed once a row.
    *lengths, width = shape
    row = key
    if lengths:
        if slice_of is None:
            row = _mix(_row_index(key, lengths))
        else:
            row = _mix(_row_index_of_slice(key, lengths, slice_of[:-1]))
    column = ops.arange(width, dtype="int32")
    if slice_of is not None:
        column = column + slice_of[-1][0]
    bits = _mix(row + ops.cast(column, "uint32") * _uint32(_GOLDEN))
    return bits >= _uint32(round(rate * 2**32))


def _row_index(key, lengths):
    """uint32 [..., 1], the index of each row plus a multiple of the key."""
    index = ops.arange(math.prod(lengths), dtype="int32")
    index = ops.reshape(ops.cast(index, "uint32"), [*lengths, 1])
    return key * ops.cast(math.prod(lengths[1:]), "uint32") + index


def _row_index_of_slice(key, lengths, slice_of):
    """The same numbers for a slice of the tensor, axis by axis."""
    row = key
    for axis, (length, (offset, full_length)) in enumerate(
        zip(lengths, slice_of, strict=True)
    ):
        index = ops.arange(length, dtype="int32") + offset
        index = ops.reshape(
            ops.cast(index, "uint32"), [-1] + [1] * (len(lengths) - axis)
        )
        if axis:
            row = row * ops.cast(full_length, "uint32")
        row = row + index
    return row


def dropout(inputs, rate, seed, draw):
    """Zero a share of the values and scale up the others.

    Args:
        inputs: float tensor.
        rate: float in [0, 1), the share that is zeroed.
        seed: int tensor of shape [2], or None for no dropout (inference).
        draw: int, distinguishes independent masks made from one seed.

    Returns:
        float tensor of the same shape and type.
    """
    if seed is None or not rate:
        return inputs
    keep = keep_mask(ops.shape(inputs), rate, fold_in(seed, draw))
    scaled = inputs * (1 / (1 - rate))
    return ops.where(keep, scaled, ops.zeros((), inputs.dtype))
