"""Dropout as a function of an explicit seed.

A step's random numbers follow from one seed, so that a resumed run, a
recomputed layer and a replica each draw exactly what they should, with no
state in the layers.
"""

import keras
from keras import ops


class _GivenSeed(keras.random.SeedGenerator):
    """Hands a seed tensor to `keras.random`, which takes only generators."""

    def __init__(self, seed):
        # No state of its own: the base class would make a variable.
        self.seed = seed

    def next(self, ordered=True):
        return self.seed


def fold_in(seed, number):
    """A new seed from a seed and a number.

    Args:
        seed: int tensor of shape [2].
        number: int, distinct numbers give distinct seeds.

    Returns:
        uint32 tensor of shape [2].
    """
    # 2**32 / golden ratio spreads small numbers over all bits; uint32 is what
    # every backend takes as a seed.
    step = (number * 0x9E3779B9) & 0xFFFFFFFF
    seed = ops.cast(seed, "uint32")
    return seed + ops.convert_to_tensor([step, 0], dtype="uint32")


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
    return keras.random.dropout(
        inputs, rate, seed=_GivenSeed(fold_in(seed, number))
    )
