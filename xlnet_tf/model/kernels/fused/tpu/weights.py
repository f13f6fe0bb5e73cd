"""Scores, softmax and dropout of a block of rows, in the registers of a TPU.

`plain.py` has the equations. `LANES // H` heads share the lanes of a register
and are told apart by masks in the small factor of each product. 32-bit hashes
are computed in int32, whose sums and products wrap in the same way.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, R = K + T distances.
"""

from typing import Any
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from xlnet_tf.model import dropout
from xlnet_tf.model.kernels.scores import MASKED_SCORE

# Width of a register, and number of content rows that are computed at once.
LANES = 128
# Bits of a code: the row may attend to the key; they are of other segments.
VISIBLE, OTHER_SEGMENT = 1, 2
# Rows of the vectors.
CONTENT_BIAS, POSITION_BIAS, SEGMENT_BIAS, SEGMENT_DIRECTION = range(4)


class Sizes(NamedTuple):
    """Static sizes and settings of a call, for its kernels.

    Attributes:
        num_tokens, num_targets, num_keys, num_heads, head_dim: ints, T, P, K,
            N and H.
        num_content: int, rows of the content stream, T or 0.
        num_directions: int, 1, or 2 if rows may be reversed.
        dropout: float, rate on the probabilities.
        dtype: of rows, keys and values, float32 or bfloat16.
        interpret: bool, whether to compute without a TPU.
    """

    num_tokens: int
    num_targets: int
    num_keys: int
    num_heads: int
    head_dim: int
    num_content: int
    num_directions: int
    dropout: float
    dtype: Any
    interpret: bool

    @property
    def num_rows(self):
        return self.num_content + self.num_targets

    @property
    def num_distances(self):
        return self.num_keys + self.num_tokens

    @property
    def heads_together(self):
        return LANES // self.head_dim

    @property
    def early_keys(self):
        """Keys but those of the last half of the tokens, or None.

        Rows of the first half see no others in the released permutations.
        """
        half = self.num_tokens // 2
        return self.num_keys - half if half % LANES == 0 else None


class Inputs(NamedTuple):
    """References to what both kernels read, of one example and pair of heads.

    Attributes:
        early: int32 [B, T / 128], 1 = a block of rows sees no late keys.
        seed: int32 [2].
        directions: int32 [B], which of the `position`s an example has.
        query: [1, Q, 128]. key, value: [1, K, 128].
        position: [1, R, 128], or [1 or 2, R, 128] in the backward kernel.
        vectors: float32 [8, 128].
        codes: int8 [1, Q, K].
        shifts: int32 [1, P, 128], columns that the scores of a target shift by.
    """

    early: Any
    seed: Any
    directions: Any
    query: Any
    key: Any
    value: Any
    position: Any
    vectors: Any
    codes: Any
    shifts: Any


class Block(NamedTuple):
    """Rows of a head that are computed at once.

    Attributes:
        head: int, which of the heads that share registers.
        in_head: bool [1, 128], the lanes of that head.
        first_row: int or scalar.
        num_rows: int.
        rows: pl.ds of both.
        num_keys: int, keys from the first on that are looked at.
        distances: pl.ds, those that these rows and keys have.
        is_target: bool, rows of the query stream, anywhere in the text.
    """

    head: int
    in_head: Any
    first_row: Any
    num_rows: int
    rows: Any
    num_keys: int
    distances: Any
    is_target: bool


class Weights(NamedTuple):
    """Softmax of a Block, not yet divided, and what its gradient needs.

    Attributes:
        content_query, position_query: [rows, 128] of the inputs' type, scaled.
        segment_query: float32 [rows, 128].
        is_other: bool [rows, keys], of other segments.
        exponentials: float32 [rows, keys], of the scores less the largest.
        factor: float32 [rows, 1], which makes them probabilities.
        keep: bool [rows, keys], True = dropout keeps it, or None.
    """

    content_query: Any
    position_query: Any
    segment_query: Any
    is_other: Any
    exponentials: Any
    factor: Any
    keep: Any


def weights_of(block, inputs, columns, distances, keep, sizes):
    """Softmax of a block.

    Args:
        block: Block.
        inputs: Inputs.
        columns, distances: [128, keys] and [128, distances], transposed.
        keep: bool [rows, keys], or None.
        sizes: Sizes.

    Returns:
        Weights.
    """

    def vector(place):
        return inputs.vectors[pl.ds(place, 1), :]

    query = inputs.query[0, block.rows, :].astype(jnp.float32)
    scale = sizes.head_dim**-0.5

    def biased(place):
        rows = jnp.where(block.in_head, (query + vector(place)) * scale, 0.0)
        return rows.astype(sizes.dtype)

    content, position = biased(CONTENT_BIAS), biased(POSITION_BIAS)
    segment = jnp.where(block.in_head, query + vector(SEGMENT_BIAS), 0.0)
    difference = jnp.sum(
        segment * vector(SEGMENT_DIRECTION), axis=1, keepdims=True
    )
    scores = product(content, columns) + _to_keys(
        product(position, distances), block, inputs.shifts, sizes
    )
    codes = inputs.codes[0, block.rows, : block.num_keys].astype(jnp.int32)
    is_other = (codes & OTHER_SEGMENT) != 0
    scores = scores + jnp.where(is_other, difference, 0.0)
    scores = jnp.where((codes & VISIBLE) != 0, scores, MASKED_SCORE)
    largest = jnp.max(scores, axis=1, keepdims=True)
    exponentials = jnp.exp(scores - largest)
    total = jnp.sum(exponentials, axis=1, keepdims=True)
    # The softmax of a row that sees nothing is uniform; it gets zeros.
    factor = jnp.where(largest > MASKED_SCORE / 2, 1 / total, 0.0)
    return Weights(
        content, position, segment, is_other, exponentials, factor, keep
    )


def product(left, right):
    # All bits of float32: three passes of bfloat16 lose some.
    is_wide = left.dtype == jnp.float32
    return lax.dot_general(
        left,
        right,
        (((1,), (0,)), ((), ())),
        precision=lax.Precision.HIGHEST if is_wide else None,
        preferred_element_type=jnp.float32,
    )


def keep_mask(block, seed_ref, example, pair, sizes):
    """`dropout.keep_mask` of a block of [B, N, Q, K], or None."""
    if not sizes.dropout:
        return None
    head = pair * sizes.heads_together + block.head
    first = (example * sizes.num_heads + head) * sizes.num_rows
    shape = (block.num_rows, 1)
    row = lax.broadcasted_iota(jnp.int32, shape, 0) + first + block.first_row
    row = _mix(_mix(row + seed_ref[0]) ^ seed_ref[1])
    column = lax.broadcasted_iota(jnp.int32, (1, block.num_keys), 1)
    bits = _mix(row + column * _int32(dropout.GOLDEN))
    # Compared as unsigned numbers.
    sign = jnp.int32(-(2**31))
    threshold = dropout.least_kept(sizes.dropout)
    return (bits ^ sign) >= (_int32(threshold) ^ sign)


def _int32(number):
    """An unsigned number with the same bits."""
    return jnp.int32(number - 2**32 if number >= 2**31 else number)


def _mix(bits):
    """The mixer of `dropout`, of int32."""
    shift = lax.shift_right_logical
    bits = (bits ^ shift(bits, jnp.int32(16))) * _int32(dropout.MULTIPLIER_1)
    bits = (bits ^ shift(bits, jnp.int32(15))) * _int32(dropout.MULTIPLIER_2)
    return bits ^ shift(bits, jnp.int32(16))


def _to_keys(by_distance, block, shifts_ref, sizes):
    """Scores by distance -> by key: row p from its own column on."""
    amount, limit = _shift_of_rows(block, shifts_ref, sizes)
    shifted = _shift(by_distance, amount, limit, to_left=True)
    return shifted[:, : block.num_keys]


def to_distances(by_key, block, shifts_ref, sizes):
    """The transpose: zeros at distances that no key has."""
    amount, limit = _shift_of_rows(block, shifts_ref, sizes)
    others = block.distances.size - block.num_keys
    zeros = jnp.zeros((block.num_rows, others), by_key.dtype)
    padded = jnp.concatenate([by_key, zeros], axis=1)
    return _shift(padded, amount, limit, to_left=False)


def _shift_of_rows(block, shifts_ref, sizes):
    """(int32 [rows, 128], the same in all lanes; int above all of them)."""
    if block.is_target:
        return shifts_ref[0], sizes.num_tokens
    row = lax.broadcasted_iota(jnp.int32, (LANES, LANES), 0)
    return LANES - 1 - row, LANES


def _shift(rows, amount, limit, to_left):
    """Rows shifted by columns, each by its own amount, cyclically.

    By whole registers first, bit by bit, then inside of them with a gather.
    """
    count, sign = rows.shape[1] // LANES, 1 if to_left else -1
    registers = [
        rows[:, place * LANES : (place + 1) * LANES] for place in range(count)
    ]
    bit = LANES
    while bit < limit:
        is_set = (amount & bit) != 0
        step = sign * (bit // LANES)
        registers = [
            jnp.where(is_set, registers[(place + step) % count], register)
            for place, register in enumerate(registers)
        ]
        bit *= 2
    lane = lax.broadcasted_iota(jnp.int32, amount.shape, 1)
    source = lane + sign * (amount & (LANES - 1))
    is_inside = (source >= 0) & (source < LANES)
    turned = [
        jnp.take_along_axis(
            register,
            source & (LANES - 1),
            axis=1,
            mode="promise_in_bounds",
        )
        for register in registers
    ]
    return jnp.concatenate(
        [
            jnp.where(is_inside, turned[place], turned[(place + sign) % count])
            for place in range(count)
        ],
        axis=1,
    )
