"""Bodies of the Pallas kernels: a pair of heads of an example, block by block.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, R = K + T distances.
"""

from typing import Any
from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl

from xlnet_tf.model.kernels.fused.tpu import weights as w
from xlnet_tf.model.kernels.fused.tpu.weights import LANES


class Gradients(NamedTuple):
    """References to what the backward kernel writes, and to its scratch.

    Attributes:
        query, key, value, position, vectors: gradients of those.
        columns, values: [128, K], key and value transposed.
        distances: [1 or 2, 128, R], `position` transposed.
        key_sum, value_sum, distance_sum: float32, sums of the same shapes.
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


_NUM_INPUTS = len(w.Inputs._fields)


def forward_kernel(*refs, sizes):
    """Attended values of a pair of heads (or `heads_together`) of an example.

    Args:
        *refs: those of Inputs, of the output, and of the transposed key and
            position.
        sizes: Sizes.
    """
    inputs = w.Inputs(*refs[:_NUM_INPUTS])
    out, columns, distances = refs[_NUM_INPUTS:]
    example, pair = pl.program_id(0), pl.program_id(1)
    columns[...] = inputs.key[0].T
    distances[...] = inputs.position[0].T

    def of_block(block):
        weights = w.weights_of(
            block,
            inputs,
            columns[:, : block.num_keys],
            distances[:, block.distances],
            w.keep_mask(block, inputs.seed, example, pair, sizes),
            sizes,
        )
        exponentials, factor = weights.exponentials, weights.factor
        if weights.keep is not None:
            exponentials = jnp.where(weights.keep, exponentials, 0.0)
            factor = factor * (1 / (1 - sizes.dropout))
        values = inputs.value[0, : block.num_keys, :]
        attended = w.product(exponentials.astype(sizes.dtype), values) * factor
        _write_rows(out, block, attended)

    _for_all_blocks(of_block, inputs.early, example, sizes)


def backward_kernel(*refs, sizes):
    """Gradients of a pair of heads; those of R and the vectors sum over all.

    Args:
        *refs: those of Inputs, of the gradient of the output, and of
            Gradients.
        sizes: Sizes.
    """
    inputs, upstream = w.Inputs(*refs[:_NUM_INPUTS]), refs[_NUM_INPUTS]
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
        weights = w.weights_of(
            block,
            inputs,
            out.columns[:, : block.num_keys],
            out.distances[direction, :, block.distances],
            w.keep_mask(block, inputs.seed, example, pair, sizes),
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
    """Adds the gradient of the values; that of the scores, float32."""
    keys = slice(0, block.num_keys)
    upstream = upstream_ref[0, block.rows, :]
    upstream = jnp.where(block.in_head, upstream, jnp.zeros_like(upstream))
    probabilities = weights.exponentials * weights.factor
    of_kept = w.product(upstream, out.values[:, keys])
    kept = probabilities
    if weights.keep is not None:
        scale = 1 / (1 - sizes.dropout)
        of_kept = jnp.where(weights.keep, of_kept * scale, 0.0)
        kept = jnp.where(weights.keep, probabilities * scale, 0.0)
    out.value_sum[:, keys] += w.product(upstream.T, kept.astype(sizes.dtype))
    mean = jnp.sum(probabilities * of_kept, axis=1, keepdims=True)
    return probabilities * (of_kept - mean)


def _add_queries(block, weights, of_scores, direction, inputs, out, sizes):
    """Adds what follows from the gradient of the scores."""
    keys, scale = slice(0, block.num_keys), sizes.head_dim**-0.5
    narrow = of_scores.astype(sizes.dtype)
    out.key_sum[:, keys] += w.product(weights.content_query.T, narrow)
    of_content = w.product(narrow, inputs.key[0, keys, :])
    of_content = jnp.where(block.in_head, of_content, 0.0) * scale
    by_distance = w.to_distances(of_scores, block, inputs.shifts, sizes)
    by_distance = by_distance.astype(sizes.dtype)
    distances = inputs.position[direction, block.distances, :]
    of_position = w.product(by_distance, distances)
    of_position = jnp.where(block.in_head, of_position, 0.0) * scale
    out.distance_sum[direction, :, block.distances] += w.product(
        weights.position_query.T, by_distance
    )
    of_difference = jnp.sum(
        jnp.where(weights.is_other, of_scores, 0.0), axis=1, keepdims=True
    )
    direction = inputs.vectors[pl.ds(w.SEGMENT_DIRECTION, 1), :]
    of_segment = jnp.where(block.in_head, of_difference * direction, 0.0)
    for place, gradient in (
        (w.CONTENT_BIAS, of_content),
        (w.POSITION_BIAS, of_position),
        (w.SEGMENT_BIAS, of_segment),
        (w.SEGMENT_DIRECTION, of_difference * weights.segment_query),
    ):
        total = jnp.sum(gradient, axis=0, keepdims=True)
        out.vectors[pl.ds(place, 1), :] += total
    _write_rows(out.query, block, of_content + of_position + of_segment)


def _write_rows(ref, block, values):
    """Writes the lanes of a head, beside those of the heads before it."""
    values = values.astype(ref.dtype)
    if block.head:
        values = jnp.where(block.in_head, values, ref[0, block.rows, :])
    ref[0, block.rows, :] = values


def _for_all_blocks(of_block, early_ref, example, sizes):
    """Calls `of_block` for every Block of an example and pair of heads."""
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
                    w.Block(
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
                w.Block(
                    *(head, in_head, first, sizes.num_targets),
                    pl.ds(first, sizes.num_targets),
                    sizes.num_keys,
                    pl.ds(0, sizes.num_distances),
                    is_target=True,
                )
            )
