"""Calls of the Pallas kernels: operands, their blocks, and the gradient.

Everything of shape [Q, K] stays in the vector memory of the chip: the forward
kernel keeps nothing for the backward one, which computes the scores again from
the inputs.

Rows and keys come as the projections give them, [B, rows, N x H], so that
nothing is transposed or padded on the way.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, R = K + T distances.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu

from xlnet_tf.model.kernels.fused.tpu import kernels
from xlnet_tf.model.kernels.fused.tpu.weights import LANES
from xlnet_tf.model.kernels.fused.tpu.weights import VISIBLE

_VMEM_BYTES = 96 * 2**20


def attend(query, vectors, key, value, position, codes, where, sizes):
    """Attended values; differentiable in the first five arguments.

    Args:
        query: [B, Q, N x H].
        vectors: float32 [4, N x H]: the biases u, v and b, and the scaled
            difference of the segments' encodings.
        key, value: [B, K, N x H].
        position: [1 or 2, R, N x H], projected distances, from K downwards.
        codes: int8 [B, Q, K], sums of VISIBLE and OTHER_SEGMENT.
        where: dict of int32 tensors: `target_positions` [B, P] or None,
            `is_reversed` [B] or None, `seed` [2] or None.
        sizes: Sizes.

    Returns:
        [B, Q, N x H]. A row that may attend to nothing gets zeros.
    """
    batch_size = query.shape[0]
    seed = jnp.zeros(2, jnp.int32) if where["seed"] is None else where["seed"]
    directions = where["is_reversed"]
    if directions is None:
        directions = jnp.zeros(batch_size, jnp.int32)
    # By how many columns the scores of a target are shifted, in every lane.
    shifts = jnp.zeros((batch_size, 1, LANES), jnp.int32)
    if sizes.num_targets:
        shape = (batch_size, sizes.num_targets, LANES)
        columns = sizes.num_tokens - 1 - where["target_positions"]
        shifts = jnp.broadcast_to(columns[..., None], shape)
    vectors = jnp.concatenate([vectors, jnp.zeros_like(vectors)])  # 8 sublanes
    # No key has the first distance, K.
    position = jnp.roll(position, -1, axis=1)
    return _attend(sizes)(
        *(query, key, value, position, vectors),
        *(codes, shifts, _sees_early_keys_only(codes, sizes), seed, directions),
    )


def _sees_early_keys_only(codes, sizes):
    """int32 [B, T / 128], 1 = no row of the block sees a late key."""
    batch_size, num_blocks = codes.shape[0], sizes.num_content // LANES
    if sizes.early_keys is None or not num_blocks:
        return jnp.zeros((batch_size, max(num_blocks, 1)), jnp.int32)
    late = codes[:, : sizes.num_content, sizes.early_keys :] & VISIBLE
    late = late.reshape(batch_size, num_blocks, -1)
    return 1 - jnp.max(late, axis=-1).astype(jnp.int32)


@functools.cache
def _attend(sizes):
    """Function of the operands of the kernels, with its gradient."""

    @jax.custom_vjp
    def attended(*operands):
        return _forward(sizes, *operands)

    def forward(*operands):
        return _forward(sizes, *operands), operands

    def backward(operands, upstream):
        query, key, value, position, vectors = _backward(
            sizes, *operands, upstream
        )
        position = position.astype(operands[3].dtype)
        return (query, key, value, position, vectors, *[None] * 5)

    attended.defvjp(forward, backward)
    return attended


def _specs(sizes, is_backward):
    """dict of the blocks of operands and results."""

    def at(place):
        # The backward kernel sums over the batch, its inner loop.
        if is_backward:
            return lambda pair, example, *scalars: place(
                example, pair, *scalars
            )
        return place

    def rows(count):
        return pl.BlockSpec(
            (1, count, LANES), at(lambda example, pair, *_: (example, 0, pair))
        )

    def of_example(count, width):
        return pl.BlockSpec(
            (1, count, width), at(lambda example, pair, *_: (example, 0, 0))
        )

    distances = sizes.num_distances
    return {
        "query": rows(sizes.num_rows),
        "key": rows(sizes.num_keys),
        "codes": of_example(sizes.num_rows, sizes.num_keys),
        "shifts": of_example(max(sizes.num_targets, 1), LANES),
        "position": pl.BlockSpec(
            (1, distances, LANES),
            at(
                lambda example, pair, early, seed, directions: (
                    directions[example],
                    0,
                    pair,
                )
            ),
        ),
        "positions": pl.BlockSpec(
            (sizes.num_directions, distances, LANES),
            at(lambda example, pair, *_: (0, 0, pair)),
        ),
        "vectors": pl.BlockSpec(
            (8, LANES), at(lambda example, pair, *_: (0, pair))
        ),
    }


def _call(kernel, sizes, name, grid, inputs, outputs, shapes, scratch):
    return pl.pallas_call(
        functools.partial(kernel, sizes=sizes),
        name=name,
        out_shape=shapes,
        interpret=sizes.interpret,
        grid_spec=pltpu.PrefetchScalarGridSpec(
            num_scalar_prefetch=3,
            grid=grid,
            in_specs=inputs,
            out_specs=outputs,
            scratch_shapes=[pltpu.VMEM(*shape) for shape in scratch],
        ),
        compiler_params=pltpu.CompilerParams(
            dimension_semantics=("arbitrary", "arbitrary"),
            vmem_limit_bytes=_VMEM_BYTES,
        ),
    )


def _forward(
    sizes,
    *operands,
):
    query, key, value, position, vectors, codes, shifts, *scalars = operands
    specs = _specs(sizes, is_backward=False)
    names = ("query", "key", "key", "position", "vectors", "codes", "shifts")
    call = _call(
        kernels.forward_kernel,
        sizes,
        "xlnet_attention",
        (query.shape[0], query.shape[2] // LANES),
        [specs[name] for name in names],
        specs["query"],
        jax.ShapeDtypeStruct(query.shape, query.dtype),
        [
            ((LANES, sizes.num_keys), key.dtype),
            ((LANES, sizes.num_distances), key.dtype),
        ],
    )
    return call(*scalars, query, key, value, position, vectors, codes, shifts)


def _backward(sizes, *operands):
    query, key, value, position, vectors, codes, shifts, *scalars = operands
    *scalars, upstream = scalars
    specs = _specs(sizes, is_backward=True)
    names = ("query", "key", "key", "positions", "vectors", "codes", "shifts")
    keys = (LANES, sizes.num_keys)
    distances = (sizes.num_directions, LANES, sizes.num_distances)
    call = _call(
        kernels.backward_kernel,
        sizes,
        "xlnet_attention_gradient",
        (query.shape[2] // LANES, query.shape[0]),
        [specs[name] for name in (*names, "query")],
        [specs[name] for name in names[:5]],
        [
            *(jax.ShapeDtypeStruct(x.shape, x.dtype) for x in operands[:3]),
            jax.ShapeDtypeStruct(position.shape, jnp.float32),
            jax.ShapeDtypeStruct(vectors.shape, jnp.float32),
        ],
        [
            *[(keys, key.dtype)] * 2,
            (distances, key.dtype),
            *[(keys, jnp.float32)] * 2,
            (distances, jnp.float32),
        ],
    )
    return call(
        *scalars,
        *(query, key, value, position, vectors, codes, shifts, upstream),
    )
