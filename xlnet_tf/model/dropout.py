"""Dropout with explicit seeds, so that every mask can be drawn again.

All random numbers of a step follow from one seed, and layers have no random
state. A resumed run, a recomputed layer and each replica therefore draw
reproducible values.

Each element of a mask follows from a hash of the mask's seed and the element's
index. The hash needs two multiplications. A compiler fuses the hash into the
operation that reads the mask, in the forward pass and again in the backward
pass, so no random number is stored. The counter-based generators of TensorFlow
and JAX take several times as long as the other element-wise operations of a
layer.

Seeds form a chain: forward pass -> layer -> mask. `fold_in` derives each
seed from the seed before it and a number. No two masks have the same seed.
"""

import math

import keras
import numpy as np
from keras import ops

from xlnet_tf.model.sizes import sizes_of

# Odd constants of "lowbias32". Among the known 32-bit mixers with two
# multiplications it has the least bias
# (https://github.com/skeeto/hash-prospector).
MULTIPLIER_1 = 0x7FEB352D
MULTIPLIER_2 = 0x846CA68B
GOLDEN = 0x9E3779B9  # 2**32 / golden ratio
_PLASTIC = 0xC13FA9A9  # 2**32 / plastic number, odd

# Numbers for `fold_in` of the masks outside the layers. The layers have the
# numbers 0 to L - 1, and each layer numbers its own masks from 0.
EMBEDDING_MASK, POSITION_MASK, OUTPUT_MASK, HEAD_MASK = -1, -2, -3, -4
_MASKS_OF_LAYER = 4


def _uint32(number):
    # TensorFlow would turn an int into a constant and cast it.
    return ops.convert_to_tensor(np.uint32(number & 0xFFFFFFFF))


def _mixer():
    """Make a function that hashes a uint32 tensor with "lowbias32".

    Every bit of the hash depends on all bits of the tensor's element. All calls
    of the function share its constants. In TensorFlow each constant is an
    operation, which takes time to trace and to compile.
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
    """Multiply an int or an int tensor by an int; return a uint32 tensor."""
    if isinstance(number, int):
        return _uint32(number * factor)
    return ops.cast(number, "uint32") * _uint32(factor)


def fold_in(seed, number):
    """Derive a new seed from a seed and a number.

    The new seed is a hash, so that chains of calls with different numbers give
    different seeds. For example, chains with the numbers (1, 2), (2, 1) and (3)
    give three different seeds.

    Args:
        seed: int tensor of shape [..., 2], or None for no dropout.
        number: int, or int tensor whose shape can be broadcast with
            `seed.shape[:-1]`. Distinct numbers give distinct seeds.

    Returns:
        uint32 tensor of shape [..., 2], or None if `seed` is None.
    """
    if seed is None:
        return None
    mix = _mixer()
    # Every backend accepts uint32 seeds. If one of the two words of the seed
    # is fixed, distinct values of the other word give distinct results. Every
    # bit of the result depends on all bits of the seed.
    first, second = ops.unstack(ops.cast(seed, "uint32"), 2, axis=-1)
    first = mix(first + _product(number, GOLDEN))
    second = second + _product(number, _PLASTIC)
    second = mix(ops.bitwise_xor(second, first))
    first = mix(ops.bitwise_xor(first, second))
    return ops.stack([first, second], axis=-1)


def seeds_of_layers(seed, num_layers):
    """Derive the seeds of all layers' dropout masks from one seed.

    Args:
        seed: int tensor of shape [2], or None for no dropout.
        num_layers: int, L.

    Returns:
        list of L uint32 tensors of shape [4, 2], a seed for each of a layer's
        four masks. If `seed` is None, a list of L times None.
    """
    if seed is None:
        return [None] * num_layers
    layers = fold_in(seed, ops.arange(num_layers, dtype="int32"))
    masks = ops.arange(_MASKS_OF_LAYER, dtype="int32")
    seeds = fold_in(ops.expand_dims(layers, 1), masks)  # [L, 4, 2]
    return ops.unstack(seeds, num_layers)


def seed_of_replica(seed):
    """Derive the seed of this replica from the seed of the step.

    Args:
        seed: int tensor of shape [2].

    Returns:
        int tensor of shape [2], different for each replica of a
        `tf.distribute.Strategy`. With one replica, `seed` itself.
    """
    if keras.backend.backend() != "tensorflow":
        return seed
    import tensorflow as tf

    context = tf.distribute.get_replica_context()
    if context is None or context.num_replicas_in_sync == 1:
        return seed
    return fold_in(seed, context.replica_id_in_sync_group)


def random_bits(shape, seed):
    """Draw 32 random bits for each element of a tensor.

    Args:
        shape: sequence of ints or scalar tensors, the shape of the tensor.
        seed: int tensor of shape [2], a seed from `fold_in` for this draw
            alone.

    Returns:
        uint32 tensor.
    """
    *lengths, width = shape
    return _bits_of_rows(hash_rows(lengths, seed), width, _mixer())


def hash_rows(lengths, seeds, mix=None):
    """Hash the row numbers of one or more masks with the masks' seeds.

    A row consists of the elements along the last axis of a mask. A row's number
    is its index among all rows of the mask, in row-major order.

    Args:
        lengths: sequence of ints or scalar tensors, the lengths of a mask's
            axes before the last axis.
        seeds: int tensor of shape [..., 2], a seed from `fold_in` for each
            mask.
        mix: function made by `_mixer`. Default: a new function.

    Returns:
        uint32 tensor of shape [..., *lengths, 1].
    """
    mix = mix or _mixer()
    seeds = ops.cast(seeds, "uint32")
    before = sizes_of(seeds)[:-1]
    if before:
        ones = [1] * (len(lengths) + 1)
        seeds = ops.reshape(seeds, [*before, *ones, 2])
    first, second = ops.unstack(seeds, 2, axis=-1)
    index = ops.arange(math.prod(lengths), dtype="int32")
    index = ops.reshape(ops.cast(index, "uint32"), [*lengths, 1])
    # Each row's hash depends on all 64 bits of the seed.
    return mix(ops.bitwise_xor(mix(index + first), second))


def _bits_of_rows(rows, width, mix):
    """Extend the rows' hashes to random bits for W columns, uint32 [..., W]."""
    if isinstance(width, int):  # a constant costs no tracing
        column = np.arange(width, dtype="uint32") * np.uint32(GOLDEN)
        column = ops.convert_to_tensor(column)
    else:
        column = _product(ops.arange(width, dtype="int32"), GOLDEN)
    return mix(rows + column)


def keep_mask_of_rows(rows, width, rate, mix=None):
    """Draw the first W columns of some or all rows of a dropout mask.

    Args:
        rows: uint32 tensor of shape [..., 1], hashes of the rows, see
            `hash_rows`.
        width: int or scalar tensor, W.
        rate: float in [0, 1), the share that is dropped.
        mix: function made by `_mixer`. Default: a new function.

    Returns:
        bool tensor of shape [..., W], True = kept.
    """
    bits = _bits_of_rows(rows, width, mix or _mixer())
    return bits >= _uint32(least_kept(rate))


def least_kept(rate):
    """Return the smallest hash with which dropout keeps an element, int.

    Dropout keeps an element if its 32-bit hash is at least this number.

    Args:
        rate: float in [0, 1), the share that is dropped.
    """
    return min(round(rate * 2**32), 2**32 - 1)


def keep_mask(shape, rate, seed):
    """Draw a dropout mask.

    Args:
        shape, seed: see `random_bits`.
        rate: float in [0, 1), the share that is dropped.

    Returns:
        bool tensor, True = kept.
    """
    *lengths, width = shape
    return keep_mask_of_rows(hash_rows(lengths, seed), width, rate)


def dropout(inputs, rate, seed):
    """Set a share of the values to zero and scale up all other values.

    Args:
        inputs: float tensor.
        rate: float in [0, 1), the share that is zeroed.
        seed: int tensor of shape [2], a seed from `fold_in` for this mask
            alone, or None for no dropout (inference).

    Returns:
        float tensor with the shape and type of `inputs`.
    """
    if seed is None or not rate:
        return inputs
    keep = keep_mask(sizes_of(inputs), rate, seed)
    return _drop(inputs, keep, rate)


def _drop(inputs, keep, rate):
    scaled = inputs * (1 / (1 - rate))
    return ops.where(keep, scaled, ops.zeros((), inputs.dtype))


def dropouts(count, rate, seeds, lengths):
    """Make several dropout functions for tensors with equally many rows.

    Each function draws the mask that `dropout` draws with the same seed. The
    rows of all masks are hashed together, because each TensorFlow operation
    takes time to trace and to compile.

    Args:
        count: int, number of masks.
        rate: float in [0, 1), the share that is zeroed.
        seeds: int tensor of shape [count, 2], a seed from `fold_in` for each
            mask, or None for no dropout.
        lengths: sequence of ints or scalar tensors, the lengths of the tensors'
            axes before the last axis.

    Returns:
        list of functions. Each function applies dropout to a float tensor of
        shape [*lengths, W] with any width W.
    """
    if seeds is None or not rate:
        return [lambda inputs: inputs] * count
    mix = _mixer()
    rows = ops.unstack(hash_rows(lengths, seeds, mix), count)

    def drop_by(rows):
        def drop(inputs):
            width = sizes_of(inputs)[-1]
            keep = keep_mask_of_rows(rows, width, rate, mix)
            return _drop(inputs, keep, rate)

        return drop

    return [drop_by(of_mask) for of_mask in rows]
