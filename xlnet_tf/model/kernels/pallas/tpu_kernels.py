"""Pallas kernels of attention for a TPU, for a pair of heads at a time.

`plain.py` has the equations. `LANES // H` heads share the lanes of a register,
two heads if H is 64. The kernels compute one head after the other. A mask
separates the lanes of the head from the lanes of the other heads. 32-bit hashes
are computed in int32, whose sums and products wrap as in uint32.

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
# Bits of a code. VISIBLE: the row may attend to the key. OTHER_SEGMENT: row and
# key are in different segments.
VISIBLE, OTHER_SEGMENT = 1, 2
# Row numbers in `Inputs.vectors`.
CONTENT_BIAS, POSITION_BIAS, SEGMENT_BIAS, SEGMENT_DIRECTION = range(4)


class Sizes(NamedTuple):
    """Sizes and settings of an attention call, fixed when it is compiled.

    Attributes:
        num_tokens, num_targets, num_keys, num_heads, head_dim: ints, T, P, K,
            N and H.
        num_content: int, number of content rows, T or 0.
        num_directions: int, 2 if some examples of the batch may be reversed,
            else 1.
        dropout: float, dropout rate of the probabilities.
        dtype: float32 or bfloat16, type of the rows, keys and values.
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
        """Number of keys before the second half of the tokens, or None.

        In the released code's permutations, rows of the first half attend only
        to these keys. The result is None if half the number of tokens is not a
        multiple of `LANES`.
        """
        half = self.num_tokens // 2
        return self.num_keys - half if half % LANES == 0 else None


class Inputs(NamedTuple):
    """References to both kernels' inputs for a pair of heads of one example.

    Attributes:
        early: int32 [B, T / 128], 1 or 0 for each block of 128 rows. 1 = the
            block's rows attend only to the first `Sizes.early_keys` keys.
        seed: int32 [2], seed of the dropout mask.
        directions: int32 [B], index of an example's direction in `position`.
        query: [1, Q, 128].
        key, value: [1, K, 128].
        position: [1, R, 128], the projected distances in the direction of the
            example. In the backward kernel [1 or 2, R, 128], the projected
            distances in all directions.
        vectors: float32 [8, 128], the biases u, v and b, the scaled difference
            of the segment encodings, and rows of zeros.
        codes: int8 [1, Q, K], sums of VISIBLE and OTHER_SEGMENT.
        shifts: int32 [1, P, 128], number of columns by which a target's scores
            are shifted.
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
        head: int, index of the head among the heads that share registers.
        in_head: bool [1, 128], True for the lanes of the head.
        first_row: int or scalar tensor.
        num_rows: int.
        rows: pl.ds of `first_row` and `num_rows`.
        num_keys: int. Scores are computed for the first `num_keys` keys.
        distances: pl.ds, the distances from these rows to these keys.
        is_target: bool, whether the rows belong to the query stream. The
            targets of such rows need not be consecutive tokens.
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
    """Unnormalized softmax weights of a Block, and tensors for the gradient.

    Attributes:
        content_query, position_query: [rows, 128] in the type of the inputs,
            the scaled sums of the query and the bias u or v.
        segment_query: float32 [rows, 128], the query plus the segment bias.
        is_other: bool [rows, keys], True = different segments.
        exponentials: float32 [rows, keys], exp(score - largest score).
        factor: float32 [rows, 1]. The probabilities are exponentials * factor.
        keep: bool [rows, keys], the dropout mask, True = kept; or None.
    """

    content_query: Any
    position_query: Any
    segment_query: Any
    is_other: Any
    exponentials: Any
    factor: Any
    keep: Any


class Gradients(NamedTuple):
    """References to the backward kernel's results and scratch memory.

    Attributes:
        query, key, value, position, vectors: gradients of the inputs with
            these names.
        columns, values: [128, K], the transposed key and value.
        distances: [1 or 2, 128, R], the transposed `position`.
        key_sum, value_sum, distance_sum: float32, sums of gradients, with the
            shapes of `columns`, `values` and `distances`.
    """

    query: Any
    key: Any
    value: Any
    position: Any
    vectors: Any
    columns: Any
    values: Any
    distances: Any
    key_sum: Any
    value_sum: Any
    distance_sum: Any


_NUM_INPUTS = len(Inputs._fields)


def forward_kernel(*refs, sizes):
    """Compute the attended values for a pair of heads of one example.

    If H is not 64, a group of `LANES // H` heads replaces the pair.

    Args:
        *refs: references to the fields of Inputs, to the output, and to scratch
            memory for the transposed key and position.
        sizes: Sizes.
    """
    inputs = Inputs(*refs[:_NUM_INPUTS])
    out, columns, distances = refs[_NUM_INPUTS:]
    example, pair = pl.program_id(0), pl.program_id(1)
    columns[...] = inputs.key[0].T
    distances[...] = inputs.position[0].T

    def of_block(block):
        weights = _weights_of(
            block,
            inputs,
            columns[:, : block.num_keys],
            distances[:, block.distances],
            _keep_mask(block, inputs.seed, example, pair, sizes),
            sizes,
        )
        exponentials, factor = weights.exponentials, weights.factor
        if weights.keep is not None:
            exponentials = jnp.where(weights.keep, exponentials, 0.0)
            factor = factor * (1 / (1 - sizes.dropout))
        values = inputs.value[0, : block.num_keys, :]
        attended = _product(exponentials.astype(sizes.dtype), values) * factor
        _write_rows(out, block, attended)

    _for_all_blocks(of_block, inputs.early, example, sizes)


def backward_kernel(*refs, sizes):
    """Compute the gradients for a pair of heads of one example.

    The gradients of the distances and the vectors are sums over all examples.

    Args:
        *refs: references to the fields of Inputs, to the gradient of the
            output, and to the fields of Gradients.
        sizes: Sizes.
    """
    inputs, upstream = Inputs(*refs[:_NUM_INPUTS]), refs[_NUM_INPUTS]
    out = Gradients(*refs[_NUM_INPUTS + 1 :])
    pair, example = pl.program_id(0), pl.program_id(1)
    direction = inputs.directions[example] if sizes.num_directions > 1 else 0
    out.columns[...] = inputs.key[0].T
    out.values[...] = inputs.value[0].T
    out.key_sum[...] = jnp.zeros_like(out.key_sum)
    out.value_sum[...] = jnp.zeros_like(out.value_sum)

    @pl.when(example == 0)
    def _():
        for number in range(sizes.num_directions):
            out.distances[number] = inputs.position[number].T
        out.distance_sum[...] = jnp.zeros_like(out.distance_sum)
        out.vectors[...] = jnp.zeros_like(out.vectors)

    def of_block(block):
        weights = _weights_of(
            block,
            inputs,
            out.columns[:, : block.num_keys],
            out.distances[direction, :, block.distances],
            _keep_mask(block, inputs.seed, example, pair, sizes),
            sizes,
        )
        of_scores = _add_values(block, weights, upstream, out, sizes)
        _add_queries(block, weights, of_scores, direction, inputs, out, sizes)

    _for_all_blocks(of_block, inputs.early, example, sizes)
    out.key[0] = out.key_sum[...].T.astype(out.key.dtype)
    out.value[0] = out.value_sum[...].T.astype(out.value.dtype)

    @pl.when(example == pl.num_programs(1) - 1)
    def _():
        for number in range(sizes.num_directions):
            out.position[number] = out.distance_sum[number].T


def _add_values(block, weights, upstream_ref, out, sizes):
    """Add the block's gradient of the values to the sum for all blocks.

    Returns:
        float32 [rows, keys], the gradient of the block's scores.
    """
    keys = slice(0, block.num_keys)
    upstream = upstream_ref[0, block.rows, :]
    upstream = jnp.where(block.in_head, upstream, jnp.zeros_like(upstream))
    probabilities = weights.exponentials * weights.factor
    of_kept = _product(upstream, out.values[:, keys])
    kept = probabilities
    if weights.keep is not None:
        scale = 1 / (1 - sizes.dropout)
        of_kept = jnp.where(weights.keep, of_kept * scale, 0.0)
        kept = jnp.where(weights.keep, probabilities * scale, 0.0)
    out.value_sum[:, keys] += _product(upstream.T, kept.astype(sizes.dtype))
    mean = jnp.sum(probabilities * of_kept, axis=1, keepdims=True)
    return probabilities * (of_kept - mean)


def _add_queries(block, weights, of_scores, direction, inputs, out, sizes):
    """Add the block's gradients of keys, distances and vectors to their sums.

    The function computes these gradients from `of_scores`, the gradient of the
    block's scores. It writes the gradient of the block's queries, too.
    """
    keys, scale = slice(0, block.num_keys), sizes.head_dim**-0.5
    narrow = of_scores.astype(sizes.dtype)
    out.key_sum[:, keys] += _product(weights.content_query.T, narrow)
    of_content = _product(narrow, inputs.key[0, keys, :])
    of_content = jnp.where(block.in_head, of_content, 0.0) * scale
    by_distance = _to_distances(of_scores, block, inputs.shifts, sizes)
    by_distance = by_distance.astype(sizes.dtype)
    distances = inputs.position[direction, block.distances, :]
    of_position = _product(by_distance, distances)
    of_position = jnp.where(block.in_head, of_position, 0.0) * scale
    out.distance_sum[direction, :, block.distances] += _product(
        weights.position_query.T, by_distance
    )
    of_difference = jnp.sum(
        jnp.where(weights.is_other, of_scores, 0.0), axis=1, keepdims=True
    )
    direction = inputs.vectors[pl.ds(SEGMENT_DIRECTION, 1), :]
    of_segment = jnp.where(block.in_head, of_difference * direction, 0.0)
    for place, gradient in (
        (CONTENT_BIAS, of_content),
        (POSITION_BIAS, of_position),
        (SEGMENT_BIAS, of_segment),
        (SEGMENT_DIRECTION, of_difference * weights.segment_query),
    ):
        total = jnp.sum(gradient, axis=0, keepdims=True)
        out.vectors[pl.ds(place, 1), :] += total
    _write_rows(out.query, block, of_content + of_position + of_segment)


def _write_rows(ref, block, values):
    """Write the lanes of a head, and keep the lanes of the heads before it."""
    values = values.astype(ref.dtype)
    if block.head:
        values = jnp.where(block.in_head, values, ref[0, block.rows, :])
    ref[0, block.rows, :] = values


def _for_all_blocks(of_block, early_ref, example, sizes):
    """Call `of_block` for every Block of a pair of heads of an example."""
    lane = lax.broadcasted_iota(jnp.int32, (1, LANES), 1)
    for head in range(sizes.heads_together):
        begin = head * sizes.head_dim
        in_head = (lane >= begin) & (lane < begin + sizes.head_dim)

        def content(index, _, head=head, in_head=in_head):
            first = pl.multiple_of(index * LANES, LANES)
            distance = pl.multiple_of(
                sizes.num_tokens - (index + 1) * LANES, LANES
            )

            def with_keys(num_keys):
                of_block(
                    Block(
                        *(head, in_head, first, LANES, pl.ds(first, LANES)),
                        num_keys,
                        pl.ds(distance, num_keys + LANES),
                        is_target=False,
                    )
                )

            if sizes.early_keys is None:
                with_keys(sizes.num_keys)
            else:
                is_early = early_ref[example, index] == 1
                pl.when(is_early)(lambda: with_keys(sizes.early_keys))
                pl.when(jnp.logical_not(is_early))(
                    lambda: with_keys(sizes.num_keys)
                )
            return 0

        if sizes.num_content:
            lax.fori_loop(0, sizes.num_content // LANES, content, 0)
        if sizes.num_targets:
            first = sizes.num_content
            of_block(
                Block(
                    *(head, in_head, first, sizes.num_targets),
                    pl.ds(first, sizes.num_targets),
                    sizes.num_keys,
                    pl.ds(0, sizes.num_distances),
                    is_target=True,
                )
            )


def _weights_of(block, inputs, columns, distances, keep, sizes):
    """Compute the Weights of a block.

    Args:
        block: Block.
        inputs: Inputs.
        columns: [128, keys], the transposed key.
        distances: [128, distances], the transposed distances.
        keep: bool [rows, keys], the dropout mask, or None.
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
    scores = _product(content, columns) + _to_keys(
        _product(position, distances), block, inputs.shifts, sizes
    )
    codes = inputs.codes[0, block.rows, : block.num_keys].astype(jnp.int32)
    is_other = (codes & OTHER_SEGMENT) != 0
    scores = scores + jnp.where(is_other, difference, 0.0)
    scores = jnp.where((codes & VISIBLE) != 0, scores, MASKED_SCORE)
    largest = jnp.max(scores, axis=1, keepdims=True)
    exponentials = jnp.exp(scores - largest)
    total = jnp.sum(exponentials, axis=1, keepdims=True)
    # The softmax of a row that may attend to no key would be uniform. Its
    # factor of 0 turns the row into zeros.
    factor = jnp.where(largest > MASKED_SCORE / 2, 1 / total, 0.0)
    return Weights(
        content, position, segment, is_other, exponentials, factor, keep
    )


def _product(left, right):
    # float32 needs full precision, because three bfloat16 passes lose bits.
    is_wide = left.dtype == jnp.float32
    return lax.dot_general(
        left,
        right,
        (((1,), (0,)), ((), ())),
        precision=lax.Precision.HIGHEST if is_wide else None,
        preferred_element_type=jnp.float32,
    )


def _keep_mask(block, seed_ref, example, pair, sizes):
    """Draw a block's part of the dropout mask of shape [B, N, Q, K]."""
    if not sizes.dropout:
        return None
    head = pair * sizes.heads_together + block.head
    first = (example * sizes.num_heads + head) * sizes.num_rows
    shape = (block.num_rows, 1)
    row = lax.broadcasted_iota(jnp.int32, shape, 0) + first + block.first_row
    row = _mix(_mix(row + seed_ref[0]) ^ seed_ref[1])
    column = lax.broadcasted_iota(jnp.int32, (1, block.num_keys), 1)
    bits = _mix(row + column * _int32(dropout.GOLDEN))
    # Flipping the sign bit makes the comparison unsigned.
    sign = jnp.int32(-(2**31))
    threshold = dropout.least_kept(sizes.dropout)
    return (bits ^ sign) >= (_int32(threshold) ^ sign)


def _int32(number):
    """Return the int32 number with the bits of an unsigned number."""
    return jnp.int32(number - 2**32 if number >= 2**31 else number)


def _mix(bits):
    """Hash int32 numbers as `xlnet_tf.model.dropout` does."""
    shift = lax.shift_right_logical
    bits = (bits ^ shift(bits, jnp.int32(16))) * _int32(dropout.MULTIPLIER_1)
    bits = (bits ^ shift(bits, jnp.int32(15))) * _int32(dropout.MULTIPLIER_2)
    return bits ^ shift(bits, jnp.int32(16))


def _to_keys(by_distance, block, shifts_ref, sizes):
    """Re-index scores from distance to key; each row has a shift of its own."""
    amount, limit = _shift_of_rows(block, shifts_ref, sizes)
    shifted = _shift(by_distance, amount, limit, to_left=True)
    return shifted[:, : block.num_keys]


def _to_distances(by_key, block, shifts_ref, sizes):
    """Re-index scores from key to distance, 0 at distances without a key.

    The function is the transpose of `_to_keys`.
    """
    amount, limit = _shift_of_rows(block, shifts_ref, sizes)
    others = block.distances.size - block.num_keys
    zeros = jnp.zeros((block.num_rows, others), by_key.dtype)
    padded = jnp.concatenate([by_key, zeros], axis=1)
    return _shift(padded, amount, limit, to_left=False)


def _shift_of_rows(block, shifts_ref, sizes):
    """Return the rows' shifts, int32 [rows, 128], and their exclusive limit.

    All lanes of a row hold the same shift.
    """
    if block.is_target:
        return shifts_ref[0], sizes.num_tokens
    row = lax.broadcasted_iota(jnp.int32, (LANES, LANES), 0)
    return LANES - 1 - row, LANES


def _shift(rows, amount, limit, to_left):
    """Shift the columns of each row cyclically by the row's own amount.

    Shifts by multiples of 128 columns come first and move whole registers. A
    gather then shifts each row by the remaining 0 to 127 columns.
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
