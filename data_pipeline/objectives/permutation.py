"""Reader of permutation language modelling, and factorization orders.

Shapes: B batch, T tokens of the sequence, P targets. H is the length of one
independently permuted half, see `blocks`.

A factorization order has two forms: the released `perm_mask` and the compact
`factorization_rank`. With ranks, one rule holds for both halves. The content
stream of token i attends to token j iff rank j <= rank i. The query stream of i
attends to j iff rank j < rank i.

Orders are drawn in two ways. `draw_shuffles` shuffles all positions, as the
release does, and `factorization_rank` computes the ranks from the shuffles.
`build_records --frozen` uses these ranks and stores the permutation masks in
the records. For other records, `draw_ranks` draws the ranks while the records
are read. `draw_ranks` is faster, because it shuffles only the tokens whose
order matters. The orders from both ways have the same distribution, but are not
equal.

The masks of the model are in `xlnet_tf/model/masks.py`, and the loss is in
`xlnet_tf/objectives/permutation.py`. All functions are TensorFlow ops for whole
batches.
"""

import dataclasses
from collections.abc import Callable

import tensorflow as tf

from data_pipeline.objectives.blocks import block_length
from data_pipeline.objectives.blocks import half_lengths
from data_pipeline.objectives.draws import SPREAD
from data_pipeline.objectives.draws import fmix32
from data_pipeline.objectives.draws import hash_words
from data_pipeline.objectives.draws import low_bits
from data_pipeline.objectives.reader import ObjectiveReader
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID

ORDERS = ("random", "forward", "backward", "block")


@dataclasses.dataclass(frozen=True)
class PermutationReader(ObjectiveReader):
    """Reader that gives the targets of records and draws factorization orders.

    Args:
        order: str or function, the order of the targets within each half of a
            sequence. "random" (default) is the released order. "forward" is the
            order of the text, and "backward" the reversed order. "block"
            predicts adjacent targets together, as a group, and predicts the
            groups in a random order. A function given as `order` has the
            arguments (token_ids int32 [B, T], is_target bool [B, T]) and
            returns the ranks, int32 [B, T]. Targets, <sep> and <cls> may have
            any rank from 0. All other tokens are the context. Without a reused
            half, give the context the rank -1. With a reused half, give the
            rank -1 only to the context of the reused half. In the new half, all
            ranks, including the ranks of context, must be above all ranks of
            the reused half. Otherwise the states in memory would depend on
            later tokens.
    """

    order: str | Callable = "random"

    name = "permutation"

    @property
    def takes_literal(self):
        # Released masks cannot hide targets of one block from each other.
        return not callable(self.order) and self.order != "block"

    def __post_init__(self):
        if not callable(self.order) and self.order not in ORDERS:
            raise ValueError(
                f"`order` must be one of {', '.join(ORDERS)}, or a function. "
                f"Received: order={self.order!r}."
            )

    def check(self, manifest):
        if manifest.form == "frozen" and self.order != "random":
            raise ValueError(
                "the records hold permutations of random order, drawn when "
                "they were built. Build them without --frozen for another "
                f"`order`. Received: order={self.order!r}."
            )

    def first_half_length(self, manifest):
        # The ranks from a user's function are not checked.
        return 0 if callable(self.order) else manifest.reuse_length

    def features(self, records, manifest, draw, literal=False):
        token_ids = records["token_ids"]
        is_target = real_targets(token_ids, records["is_target"])
        positions, ids, weights = select_targets(
            token_ids, is_target, manifest.num_predict
        )
        features = {"target_ids": ids, "target_weights": weights}
        if manifest.form == "frozen":
            for name in ("perm_mask", "target_mapping"):
                features[name] = tf.cast(records[name], tf.float32)
            return features
        if callable(self.order):
            rank = self.order(token_ids, is_target)
        else:
            rank = draw_ranks(
                *draw,
                token_ids,
                records["is_target"],
                manifest.reuse_length,
                manifest.permutation_length,
                self.order,
            )
        if literal:
            return features | {
                "perm_mask": perm_mask(rank, is_target),
                "target_mapping": target_mapping(
                    positions, weights, manifest.sequence_length
                ),
            }
        return features | {
            "factorization_rank": rank,
            "target_positions": positions,
        }


def draw_shuffles(
    seed, epoch, record_index, sequence_length, reuse_length, permutation_length
):
    """Draw a shuffle for each half of each record.

    A shuffle depends on the seed, the epoch and the index of the record, not on
    the batch or the process that reads the record. Positions are sorted by a
    hash. If all hashes of a half differ, the shuffle is uniform. Two hashes are
    equal in about one of 130,000 halves of 256 tokens.

    Args:
        seed: int.
        epoch: int64 tensor [] or [B].
        record_index: int64 tensor [B].
        sequence_length: int, T.
        reuse_length: int.
        permutation_length: int, length of a block. Each block of a half is
            permuted by the same shuffle, as in the release.

    Returns:
        int32 tensor [B, T], one half after the other. For each half, the
        shuffled `index` of the release, 0 .. H - 1.

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
            state + low_bits(counter) * tf.constant(SPREAD, tf.uint32)
        )
        # Convert to signed numbers, for which argsort is faster. Any order of
        # hashes is right.
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
    order="random",
):
    """Draw the ranks of a factorization order, in a fast way.

    The orders have the same distribution as orders from `draw_shuffles` and
    `factorization_rank`, but the ranks of a half have no gaps. `draw_ranks`
    takes a third of the time, because only targets, <sep> and <cls> (about one
    token in six) are shuffled. The order of all other tokens has no effect.

    Args:
        seed, reuse_length: ints.
        epoch: int64 tensor [] or [B].
        record_index: int64 tensor [B].
        token_ids: int tensor [B, T].
        is_target: bool tensor [B, T].
        permutation_length: int, length of a block. The blocks of a half stay in
            the order of the text, and all have the same shuffle.
        order: str, one of `ORDERS`. Default "random".

    Returns:
        int32 tensor [B, T], see `factorization_rank`. If `order` is "block", a
        group of adjacent targets has the rank of the group's first target.
    """
    length = token_ids.shape[1]
    in_order = tf.logical_or(is_target, functional_tokens(token_ids))
    counter, block, is_shared = _blocks(
        length, reuse_length, permutation_length
    )
    state = hash_words(
        seed, tf.cast(epoch, tf.int64), tf.cast(record_index, tf.int64)
    )
    # I tokens of the batch have a rank; `index` [I, 2]: their row and position.
    index = tf.where(in_order)
    row, position = index[:, 0], index[:, 1]
    block = tf.gather(block, position)
    first = number = tf.range(tf.shape(index)[0])
    if order == "block":
        real = real_targets(token_ids, is_target)
        first = _first_of_run(index, block, real)
    if order in ("random", "block"):
        drawn = tf.gather(counter, tf.gather(position, first))
        keys = fmix32(tf.gather(state, row) + drawn)
    else:
        keys = position if order == "forward" else length - position
    # With the block in the high bits, blocks stay in the order of the text.
    keys = tf.bitwise.bitwise_or(block, tf.cast(keys, tf.int64))
    count = tf.reduce_sum(tf.cast(in_order, tf.int64), axis=1)
    rows = tf.RaggedTensor.from_row_lengths(keys, count, validate=False)
    sorting = tf.argsort(rows.to_tensor(tf.int64.max), axis=-1, stable=True)
    if is_shared or order != "random":
        # `sorting` is the inverse of the ranks. For a single random shuffle the
        # inverse has the same distribution, but blocks that share a shuffle
        # need the ranks.
        sorting = tf.argsort(sorting, axis=-1)
    within = tf.cast(number, tf.int64) - tf.gather(rows.row_starts(), row)
    rank = tf.gather_nd(sorting, tf.stack([row, within], axis=1))
    rank -= number - first  # the rank of the run's first token
    context = tf.fill(tf.shape(in_order), -1)
    if reuse_length:
        in_first = in_order[:, :reuse_length]
        first = tf.reduce_sum(tf.cast(in_first, tf.int32), axis=1)
        shift = reuse_length + 1 - tf.gather(first, row)
        rank += tf.where(position < reuse_length, 0, shift)
        context += tf.where(
            tf.range(length) < reuse_length, 0, reuse_length + 1
        )
    return tf.tensor_scatter_nd_update(context, index, rank)


def _first_of_run(index, block, is_target):
    """Find, for each token, the first token of its run of adjacent targets.

    A run ends at the end of a permutation block. <sep> and <cls> are runs of a
    single token.

    Args:
        index: int64 tensor [I, 2], row and position of each token of the batch
            that is a target, <sep> or <cls>. I is the number of these tokens.
        block: int64 tensor [I], permutation block of each token.
        is_target: bool tensor [B, T].

    Returns:
        int32 tensor [I], for each token the number (0 to I - 1) of the first
        token of its run.
    """
    row, position = index[:, 0], index[:, 1]
    target = tf.gather_nd(is_target, index)
    follows = (
        target[1:]
        & target[:-1]
        & (row[1:] == row[:-1])
        & (position[1:] == position[:-1] + 1)
        & (block[1:] == block[:-1])
    )
    starts = tf.concat([tf.ones_like(target[:1]), ~follows], axis=0)
    number = tf.cumsum(tf.cast(starts, tf.int32)) - 1
    return tf.gather(tf.cast(tf.where(starts)[:, 0], tf.int32), number)


def _blocks(sequence_length, reuse_length, permutation_length):
    """Describe the permutation blocks of a sequence as tensors.

    Returns:
        counter: uint32 [T], number to hash for each position. The number
            depends only on the half and the offset in the block, so all blocks
            of a half have the same shuffle.
        block: int64 [T], block number of each position, shifted to the upper 32
            bits.
        is_shared: bool, whether a half has several blocks. They have the same
            shuffle.
    """
    counter, block, is_shared = [], [], False
    for half in half_lengths(sequence_length, reuse_length):
        size = block_length(half, permutation_length)
        is_shared = is_shared or size < half
        begin = len(counter)
        first_block = block[-1] + 1 if block else 0
        counter.extend(begin + 1 + i % size for i in range(half))
        block.extend(first_block + i // size for i in range(half))
    spread = [number * SPREAD % (1 << 32) for number in counter]
    return (
        tf.constant(spread, tf.uint32),
        tf.constant([number << 32 for number in block], tf.int64),
        is_shared,
    )


def functional_tokens(token_ids):
    """Mark the symbols <sep> and <cls>, bool tensor [B, T].

    These symbols have a rank in the order, but are never predicted.
    """
    return tf.logical_or(
        tf.equal(token_ids, SEP_ID), tf.equal(token_ids, CLS_ID)
    )


def factorization_rank(token_ids, is_target, shuffled_index, reuse_length):
    """Compute the ranks of the tokens from shuffles.

    In the first half, the rank of targets, <sep> and <cls> is their shuffled
    index, which is below the length of the half. All other tokens, the context,
    have the rank -1. In the second half, `reuse_length + 1` is added to all
    ranks, so all these ranks are above the ranks of the first half. The second
    half attends to the whole first half, but the first half attends to no token
    of the second half.

    Args:
        token_ids: int tensor [B, T].
        is_target: bool tensor [B, T].
        shuffled_index: int32 tensor [B, T], from `draw_shuffles`.
        reuse_length: int. With 0 there is only one half, and its context has
            the rank -1.

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
    """Convert ranks to the released permutation mask.

    In this mask, <sep> and <cls> attend to themselves, but targets do not. The
    released model changes the mask for the content stream, so that targets
    attend to themselves there.

    Args:
        rank: int32 tensor [B, T].
        is_target: bool tensor [B, T], without <sep> and <cls>.

    Returns:
        float32 tensor [B, T, T], 1 if token i may NOT attend to token j.

    Source: `perm_mask`, `self_rev_index` in `_local_perm`.
    """
    # Token i may attend to j iff rank j <= rank i - (1 if i is a target else
    # 0).
    highest = rank - tf.cast(is_target, rank.dtype)
    return tf.cast(rank[:, None, :] > highest[:, :, None], tf.float32)


def target_mapping(target_positions, target_weights, sequence_length):
    """Convert target positions to one-hot rows, as in the release.

    Args:
        target_positions: int32 tensor [B, P].
        target_weights: float32 tensor [B, P], 0 = padding.
        sequence_length: int, T.

    Returns:
        float32 tensor [B, P, T], with rows of zeros for padding.

    Source: `target_mapping` in `parser`.
    """
    one_hot = tf.one_hot(target_positions, sequence_length, dtype=tf.float32)
    return one_hot * target_weights[:, :, None]


def real_targets(token_ids, is_target):
    """Remove <sep> and <cls> from the targets.

    In records built with `--spans subwords`, these symbols may be targets.

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
    """Select the first P targets in text order.

    Args:
        token_ids: int32 tensor [B, T].
        is_target: bool tensor [B, T], without <sep> and <cls>.
        num_predict: int, P.

    Returns:
        tuple of target_positions (int32 [B, P]), target_ids (int32 [B, P]) and
        target_weights (float32 [B, P]). Padding is 0 in all three tensors.
    """
    position = tf.where(is_target)[:, 1]
    count = tf.reduce_sum(tf.cast(is_target, tf.int32), axis=1)
    # This is four times as fast as top_k over the positions.
    rows = tf.RaggedTensor.from_row_lengths(position, count, validate=False)
    positions = rows.to_tensor(0, shape=[None, num_predict])
    positions = tf.cast(positions, tf.int32)
    is_real = tf.range(num_predict) < count[:, None]
    ids = tf.gather(token_ids, positions, batch_dims=1)
    return positions, tf.where(is_real, ids, 0), tf.cast(is_real, tf.float32)
