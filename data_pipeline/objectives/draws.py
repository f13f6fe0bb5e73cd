"""Random draws as functions of the seed, the epoch and the record.

Therefore a batch depends only on (seed, step), not on the process that reads
the batch.

Shapes: B batch, T tokens of the sequence.
"""

import hashlib

import tensorflow as tf

# The golden ratio in 32 bits. Its multiples differ in all bits.
SPREAD = 0x9E3779B9


def fmix32(x):
    """Compute MurmurHash3's 32-bit finalizer, which mixes all bits.

    Args:
        x: uint32 tensor. Every output bit depends on all bits of `x`.

    Returns:
        uint32 tensor of the same shape.

    Source: Austin Appleby, MurmurHash3.cpp, `fmix32` (public domain).
    """
    x = tf.bitwise.bitwise_xor(x, _shift_right(x, 16))
    x = x * tf.constant(0x85EBCA6B, tf.uint32)
    x = tf.bitwise.bitwise_xor(x, _shift_right(x, 13))
    x = x * tf.constant(0xC2B2AE35, tf.uint32)
    return tf.bitwise.bitwise_xor(x, _shift_right(x, 16))


def hash_words(seed, *words):
    """Hash integers to 32 bits; the order of the integers matters.

    Args:
        seed: int of any size.
        *words: int64 tensors whose shapes broadcast. Their low and high 32 bits
            are hashed.

    Returns:
        uint32 tensor.
    """
    digest = hashlib.blake2b(str(seed).encode(), digest_size=4).digest()
    state = tf.constant(int.from_bytes(digest, "little"), tf.uint32)
    for word in words:
        high = tf.bitwise.right_shift(word, tf.constant(32, tf.int64))
        for part in (word, high):
            state = fmix32(state * tf.constant(5, tf.uint32) + low_bits(part))
    return state


def uniform(state, *words):
    """Draw uniform numbers in [0, 1) from hashes.

    Args:
        state: uint32 tensor from `hash_words`.
        *words: int64 tensors whose shapes broadcast, the indices of the draws.

    Returns:
        float32 tensor, multiples of 2 ** -24.
    """
    for word in words:
        state = fmix32(state * tf.constant(5, tf.uint32) + low_bits(word))
    high = _shift_right(state, 8)
    return tf.cast(high, tf.float32) * 2.0**-24


def _shift_right(x, bits):
    return tf.bitwise.right_shift(x, tf.constant(bits, tf.uint32))


def low_bits(x):
    """Return the low 32 bits of an int64 tensor, as a uint32 tensor."""
    # Use a mask: on some devices the cast of a large number is undefined.
    mask = tf.constant(0xFFFFFFFF, tf.int64)
    return tf.cast(tf.bitwise.bitwise_and(x, mask), tf.uint32)
