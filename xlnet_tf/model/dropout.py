"""Dropout as a function of an explicit seed.

All random numbers of a step follow from one seed, so that a resumed run, a
recomputed layer and each replica draw reproducible values, with no state in
the layers.

The mask is a hash of the seed and of an element's index, two multiplications
each. A compiler fuses it into the operation that reads the mask, in the
forward and again in the backward pass, so that no random number is stored; the
counter-based generators of TensorFlow and JAX cost several times the other
element-wise work of a layer.

Seeds form a chain: step -> segment -> layer -> mask. `fold_in` hashes each from
the one before and a number.
"""

import math

import keras
import numpy as np
from keras import ops

# Odd constants of "lowbias32", the 32-bit mixer with the least bias among
# those with two multiplications (https://github.com/skeeto/hash-prospector).
MULTIPLIER_1 = 0x7FEB352D
MULTIPLIER_2 = 0x846CA68B
GOLDEN = 0x9E3779B9  # 2**32 / golden ratio
_PLASTIC = 0xC13FA9A9  # 2**32 / plastic number, odd

# The masks of a backbone and its head; its layers have the numbers from 0 on.
DRAW_EMBEDDING, DRAW_POSITION, DRAW_OUTPUT, DRAW_HEAD = -1, -2, -3, -4


def _uint32(number):
    # Of an int, TensorFlow would make a constant and cast it.
    return ops.convert_to_tensor(np.uint32(number & 0xFFFFFFFF))


def _mixer():
    """Make a function that mixes a uint32 tensor by "lowbias32".

    Every bit of its result depends on all bits. All its calls share the
    constants, because each operation takes its time to trace and to compile.
    """
    shift_1, shift_2 = _uint32(16), _uint32(15)
    multiplier_1, multiplier_2 = _uint32(MULTIPLIER_1), _uint32(MULTIPLIER_2)

    def mix(bits):
        bits = ops.bitwise_xor(bits, ops.right_shift(bits, shift_1))
        bits = bits * multiplier_1
        bits = ops.bitwise_xor(bits, ops.right_shift(bits, shift_2))
        bits = bits * multiplier_2
        return ops.bitwise_xor(bits, ops.right_shift(bits, shift_1))

    return mix


def _product(number, factor):
    """uint32 tensor, the product of an int or int tensor and an int."""
    if isinstance(number, int):
        return _uint32(number * factor)
    return ops.cast(number, "uint32") * _uint32(factor)


def _hash(seed, number, mix):
    """Two uint32 tensors of the shape of `number`, all bits of all inputs.

    With one of the two inputs fixed it is one-to-one in the other.
    """
    # uint32 is what every backend takes as a seed.
    first, second = ops.unstack(ops.cast(seed, "uint32"), 2)
    first = mix(first + _product(number, GOLDEN))
    second = second + _product(number, _PLASTIC)
    second = mix(ops.bitwise_xor(second, first))
    return mix(ops.bitwise_xor(first, second)), second


def fold_in(seed, number):
    """Derive a new seed from a seed and a number.

    A hash, so that seeds derived in several steps, in any order, do not meet:
    folding in 1 and then 2 is neither folding in 2 and then 1 nor folding in 3.

    Args:
        seed: int tensor of shape [2].
        number: int, or int tensor; distinct numbers give distinct seeds.

    Returns:
        uint32 tensor of shape [2], or [..., 2] for numbers of shape [...].
    """
    return ops.stack(_hash(seed, number, _mixer()), axis=-1)


def seed_of_replica(seed):
    """Derive the seed of this replica from one that all replicas have.

    Args:
        seed: int tensor of shape [2].

    Returns:
        int tensor of shape [2]: of each replica of a `tf.distribute.Strategy`
        its own; `seed` itself where there is one replica.
    """
    if keras.backend.backend() != "tensorflow":
        return seed
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, context.replica_id_in_sync_group)


def keep_mask(shape, rate, seed, draw=0, slice_of=None):
    """Draw a dropout mask.

    Args:
        rate: float in [0, 1), the share that is dropped.
        shape, seed, draw, slice_of: see `random_bits`.

    Returns:
        bool tensor, True = kept.
    """
    bits = random_bits(shape, seed, draw, slice_of)
    return bits >= _uint32(round(rate * 2**32))


def random_bits(shape, seed, draw=0, slice_of=None):
    """Draw 32 random bits for each element of a tensor.

    Args:
        shape: sequence of ints, or of scalars of the backend.
        seed: int tensor of shape [2].
        draw: int, distinguishes independent draws from one seed. Default 0.
        slice_of: list of (offset, full length) per axis when `shape` is a
            slice of a larger tensor: the slice gets the same bits as the full
            tensor would. Offsets are ints or int scalars. Default None.

    Returns:
        uint32 tensor.
    """
    mix = _mixer()
    first, second = _hash(seed, draw, mix)
    *lengths, width = shape
    if slice_of is None:
        row = _row_index(lengths)
    else:
        row = _row_index_of_slice(lengths, slice_of[:-1])
    # All axes but the last make a row, hashed once with all 64 bits.
    row = mix(ops.bitwise_xor(mix(row + first), second))
    column = ops.arange(width, dtype="int32")
    if slice_of is not None:
        column = column + slice_of[-1][0]
    return mix(row + _product(column, GOLDEN))


def _row_index(lengths):
    """uint32 [..., 1], the index of each row."""
    index = ops.arange(math.prod(lengths), dtype="int32")
    return ops.reshape(ops.cast(index, "uint32"), [*lengths, 1])


def _row_index_of_slice(lengths, slice_of):
    """The same numbers for a slice of the tensor, axis by axis."""
    row = _uint32(0)
    for axis, (length, (offset, full_length)) in enumerate(
        zip(lengths, slice_of, strict=True)
    ):
        index = ops.arange(length, dtype="int32") + offset
        index = ops.reshape(
            ops.cast(index, "uint32"), [-1] + [1] * (len(lengths) - axis)
        )
        row = row * ops.cast(full_length, "uint32") + index
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
    keep = keep_mask(ops.shape(inputs), rate, seed, draw)
    scaled = inputs * (1 / (1 - rate))
    return ops.where(keep, scaled, ops.zeros((), inputs.dtype))
