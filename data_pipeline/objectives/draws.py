"""Random draws as functions of integers: seed, epoch and record.

So a batch depends on (seed, step) alone, not on the reader or the worker.

Shapes: B batch, T tokens of the sequence.
"""

import hashlib

import tensorflow as tf

# The golden ratio in 32 bits; its multiples differ in all bits.
SPREAD = 0x9E3779B9


def fmix32(x):
    """MurmurHash3's 32-bit finalizer: every output bit depends on all bits.

    Args:
        x: uint32 tensor.

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
    """32-bit hash of integers, in order.

    Args:
        seed: int, of any size.
        *words: int64 tensors that broadcast; low and high 32 bits are hashed.

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
    """Uniform numbers in [0, 1), one for each element.

    Args:
        state: uint32 tensor of `hash_words`.
        *words: int64 tensors that broadcast with it, which number the draws.

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
    """The low 32 bits of int64, uint32 tensor."""
    # A cast of a number out of range is undefined on some devices.
    mask = tf.constant(0xFFFFFFFF, tf.int64)
    return tf.cast(tf.bitwise.bitwise_and(x, mask), tf.uint32)
