"""Factorization orders of whole batches, as TensorFlow operations.

Shapes: B batch, T tokens of the sequence, P targets. H is the length of one
independently permuted half.

The released `perm_mask` and the compact `factorization_rank` are two forms of
one thing. With the ranks, one rule serves both streams and both halves: the
content stream of i sees j iff rank j <= rank i, its query stream iff rank j <
rank i.
"""

import hashlib

import tensorflow as tf

from data_pipeline.objectives.blocks import block_length
from data_pipeline.objectives.blocks import half_lengths
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID

# The golden ratio in 32 bits: multiples of it spread well over all bits.
_SPREAD = 0x9E3779B9


def fmix32(x):
    """MurmurHash3's 32-bit finaliser: every bit of x moves every bit out.

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
    """A 32-bit hash of integers, in order.

    Args:
        seed: int, of any size.
        *words: int64 tensors that broadcast; each takes part with its low and
            its high 32 bits.

    Returns:
        uint32 tensor.
    """
    digest = hashlib.blake2b(str(seed).encode(), digest_size=4).digest()
    state = tf.constant(int.from_bytes(digest, "little"), tf.uint32)
    for word in words:
        high = tf.bitwise.right_shift(word, tf.constant(32, tf.int64))
        for part in (word, high):
            state = fmix32(state * tf.constant(5, tf.uint32) + _low_bits(part))
    return state


def draw_shuffles(
    seed, epoch, record_index, sequence_length, reuse_length, permutation_length
):
    """Draws a shuffle for each half of each record.

    Depends on nothing but the seed, the epoch and the record's index: not on
    the batch that the record is in, nor on who reads it. Positions are sorted
    by a hash, which makes a uniform shuffle up to equal hashes (about one pair
    in 130,000 halves of 256 tokens).

    Args:
        seed: int.
        epoch: int64 tensor [B].
        record_index: int64 tensor [B].
        sequence_length: int, T.
        reuse_length: int.
        permutation_length: int; blocks of this length in a half share one
            shuffle, as in the release.

    Returns:
        int32 tensor [B, T]: for each half the released shuffled `index`, 0 ..
        H - 1, one half after the other.

    Source: `tf.random_shuffle(index)` in `_local_perm`.
    """
    epoch = tf.cast(epoch, tf.int64)
    record_index = tf.cast(record_index, tf.int64)
    state = hash_words(seed, epoch, record_index)[:, None]
    shuffles, begin = [], 0
    for half in half_lengths(sequence_length, reuse_length):
        block = block_length(half, permutation_length)
        counter = tf.range(begin + 1, begin + 1 + block, dtype=tf.int64)
        keys = fmix32(
            state + _low_bits(counter) * tf.constant(_SPREAD, tf.uint32)
        )
        # argsort sorts signed numbers faster; which order does not matter.
        shuffle = tf.argsort(tf.bitcast(keys, tf.int32), axis=-1)
        if block < half:
            offset = tf.range(0, half, block)[:, None]
            shuffle = tf.reshape(offset + shuffle[:, None, :], [-1, half])
        shuffles.append(shuffle)
        begin += half
    return tf.ensure_shape(tf.concat(shuffles, axis=1), [None, sequence_length])


def draw_ranks(
    seed,
    epoch,
    record_index,
    token_ids,
    is_target,
    reuse_length,
    permutation_length,
):
    """Draws a factorization order and gives the ranks in it.

    What `factorization_rank` makes of `draw_shuffles`, at a third of the cost:
    only targets, <sep> and <cls> are shuffled, about one token in six, as the
    order of the others decides nothing. Ranks of a half have no gaps.

    Args:
        seed: int.
        epoch: int64 tensor [B].
        record_index: int64 tensor [B].
        token_ids: int tensor [B, T].
        is_target: bool tensor [B, T].
        reuse_length: int.
        permutation_length: int; blocks of this length in a half are in the
            order of the text, and tokens at the same places of two blocks in
            the same order.

    Returns:
        int32 tensor [B, T], as from `factorization_rank`.
    """
    length = token_ids.shape[1]
    in_order = tf.logical_or(is_target, functional_tokens(token_ids))
    counter, block, is_shared = _blocks(
        length, reuse_length, permutation_length
    )
    state = hash_words(
        seed, tf.cast(epoch, tf.int64), tf.cast(record_index, tf.int64)
    )
    # I tokens of the batch are in an order; `where` is [I, 2], row and place.
    where = tf.where(in_order)
    row, place = where[:, 0], where[:, 1]
    keys = fmix32(tf.gather(state, row) + tf.gather(counter, place))
    # No block comes before the one to its left.
    keys = tf.bitwise.bitwise_or(
        tf.gather(block, place), tf.cast(keys, tf.int64)
    )
    count = tf.reduce_sum(tf.cast(in_order, tf.int64), axis=1)
    rows = tf.RaggedTensor.from_row_lengths(keys, count, validate=False)
    order = tf.argsort(rows.to_tensor(tf.int64.max), axis=-1)
    if is_shared:
        # Its inverse is as good a shuffle, but not the same in all blocks.
        order = tf.argsort(order, axis=-1)
    within = tf.range(tf.shape(where, tf.int64)[0]) - tf.gather(
        rows.row_starts(), row
    )
    widest = tf.shape(order, tf.int64)[1]
    rank = tf.gather(tf.reshape(order, [-1]), row * widest + within)
    context = tf.fill(tf.shape(in_order), -1)
    if reuse_length:
        in_first = in_order[:, :reuse_length]
        first = tf.reduce_sum(tf.cast(in_first, tf.int32), axis=1)
        shift = reuse_length + 1 - tf.gather(first, row)
        rank += tf.where(place < reuse_length, 0, shift)
        context += tf.where(
            tf.range(length) < reuse_length, 0, reuse_length + 1
        )
    return tf.tensor_scatter_nd_update(context, where, rank)


def _blocks(sequence_length, reuse_length, permutation_length):
    """For each place its part of the hash, uint32 [T], and its block, counted
    in the upper half of int64 [T]; and whether two blocks share a shuffle."""
    counter, block, is_shared = [], [], False
    for half in half_lengths(sequence_length, reuse_length):
        size = block_length(half, permutation_length)
        is_shared = is_shared or size < half
        begin = len(counter)
        first_block = block[-1] + 1 if block else 0
        counter.extend(begin + 1 + i % size for i in range(half))
        block.extend(first_block + i // size for i in range(half))
    spread = [place * _SPREAD % (1 << 32) for place in counter]
    return (
        tf.constant(spread, tf.uint32),
        tf.constant([number << 32 for number in block], tf.int64),
        is_shared,
    )


def functional_tokens(token_ids):
    """bool tensor [B, T]: <sep> and <cls>, which are part of the order but
    never predicted."""
    return tf.logical_or(
        tf.equal(token_ids, SEP_ID), tf.equal(token_ids, CLS_ID)
    )


def factorization_rank(token_ids, is_target, shuffled_index, reuse_length):
    """The step at which each token is revealed.

    In the first half, context has the rank -1 and targets, <sep> and <cls>
    their place 0 .. H - 1 in the order. The ranks of the second half are
    those plus `reuse_length + 1`: above all of the first half, so it sees
    the whole first half and the first half sees nothing of it.

    Args:
        token_ids: int tensor [B, T].
        is_target: bool tensor [B, T].
        shuffled_index: int32 tensor [B, T], from `draw_shuffles`.
        reuse_length: int; with 0 there is one half, whose context has -1.

    Returns:
        int32 tensor [B, T].

    Source: `rev_index` in `_local_perm`; the two halves of `parser`.
    """
    in_order = tf.logical_or(is_target, functional_tokens(token_ids))
    rank = tf.where(in_order, shuffled_index, -1)
    if not reuse_length:
        return rank
    position = tf.range(token_ids.shape[1])
    return rank + tf.where(position < reuse_length, 0, reuse_length + 1)


def perm_mask(rank, is_target):
    """The released mask from the ranks.

    Targets do not see themselves in it, <sep> and <cls> do; the released model
    lets the content stream see itself on top.

    Args:
        rank: int32 tensor [B, T].
        is_target: bool tensor [B, T], without <sep> and <cls>.

    Returns:
        float32 tensor [B, T, T], 1 = i may NOT attend to j.

    Source: `perm_mask`, `self_rev_index` in `_local_perm`.
    """
    # As integers: i may attend to j iff rank j <= rank i - (i is a target).
    highest = rank - tf.cast(is_target, rank.dtype)
    return tf.cast(rank[:, None, :] > highest[:, :, None], tf.float32)


def target_mapping(target_positions, target_weights, sequence_length):
    """The released one-hot rows from the positions.

    Args:
        target_positions: int32 tensor [B, P].
        target_weights: float32 tensor [B, P], 0 = padding.
        sequence_length: int, T.

    Returns:
        float32 tensor [B, P, T], rows of zeros for padding.

    Source: `target_mapping` in `parser`.
    """
    one_hot = tf.one_hot(target_positions, sequence_length, dtype=tf.float32)
    return one_hot * target_weights[:, :, None]


def real_targets(token_ids, is_target):
    """`is_target` without <sep> and <cls>, which "subwords" can draw.

    Args:
        token_ids: int tensor [B, T].
        is_target: bool tensor [B, T].

    Returns:
        bool tensor [B, T].

    Source: `target_tokens` in `_local_perm`.
    """
    return tf.logical_and(
        is_target, tf.logical_not(functional_tokens(token_ids))
    )


def select_targets(token_ids, is_target, num_predict):
    """The first P targets in text order.

    Args:
        token_ids: int32 tensor [B, T].
        is_target: bool tensor [B, T], without <sep> and <cls>.
        num_predict: int, P.

    Returns:
        tuple of target_positions int32 [B, P], target_ids int32 [B, P] and
        target_weights float32 [B, P]; all 0 in padding.
    """
    where = tf.where(is_target)
    count = tf.reduce_sum(tf.cast(is_target, tf.int32), axis=1)
    # Four times as fast as a top_k over the positions.
    rows = tf.RaggedTensor.from_row_lengths(where[:, 1], count, validate=False)
    positions = rows.to_tensor(0, shape=[None, num_predict])
    positions = tf.cast(positions, tf.int32)
    is_real = tf.range(num_predict) < count[:, None]
    ids = tf.gather(token_ids, positions, batch_dims=1)
    return positions, tf.where(is_real, ids, 0), tf.cast(is_real, tf.float32)


def _shift_right(x, bits):
    return tf.bitwise.right_shift(x, tf.constant(bits, tf.uint32))


def _low_bits(x):
    # A cast that is too big for its type is not defined everywhere.
    mask = tf.constant(0xFFFFFFFF, tf.int64)
    return tf.cast(tf.bitwise.bitwise_and(x, mask), tf.uint32)
