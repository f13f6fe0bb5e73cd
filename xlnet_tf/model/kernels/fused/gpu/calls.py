"""Calls of the Pallas kernels: operands, their blocks, and the gradient.

Shapes: B batch, N heads, Q rows, K keys, H head dim; J blocks of S rows, W
distances of a block; X rows and Y keys of a tile.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from xlnet_tf.model.kernels.fused.gpu import kernels
from xlnet_tf.model.kernels.fused.gpu.tiles import Inputs

_WARPS = 4
# Stages of a program's loop, by what it computes: with more than one it loads
# ahead. The gradients of keys leave no registers for that.
_STAGES = {"rows": 3, "keys": 1}
# Bytes of a tile's row beyond which shared memory leaves no room for it either.
_WIDE = 128
# More scores by distance than this are recomputed for the gradient.
_MOST_KEPT = 2**28


def attend(
    sizes,
    query,
    difference,
    key,
    value,
    position_query,
    distances,
    starts,
    visible,
    other,
    hashes,
):
    """Attended values; differentiable in the first six tensors.

    Args:
        sizes: Sizes.
        query: [B, Q, N, H], with the content bias, scaled.
        difference: float32 [B, N, Q].
        key, value: [B, K, N, H].
        position_query: [N, J, B, S, H], with the position bias, scaled.
        distances: [N, J, W, H], projected, or [B, N, J, W, H].
        starts: int32 [B or 1, Q], where the scores by distance of a row begin
            in its block, for key 0.
        visible, other: uint32 [B or 1, K / 32, Q], a bit for each key.
        hashes: uint32 [B or 1, N or 1, Q].

    Returns:
        [B, Q, N, H].
    """
    return _differentiable(sizes)(
        *(query, difference, key, value, position_query, distances),
        *(starts, visible, other, hashes),
    )


@functools.cache
def _differentiable(sizes):
    """Function of the operands of `attend`, with its gradient."""

    @jax.custom_vjp
    def attended(*operands):
        return forward(*operands)[0]

    def forward(*operands):
        *tensors, position_query, distances, _, _, _, _ = operands
        by_distance = _scores_by_distance(position_query, distances)
        inputs = Inputs(*tensors, by_distance, *operands[6:])
        output, log_sum = _forward(sizes, inputs)
        return output, (operands, output, log_sum)

    def backward(saved, upstream):
        operands, output, log_sum = saved
        *tensors, position_query, distances, _, _, _, _ = operands
        mean = jnp.sum(
            upstream.astype(jnp.float32) * output.astype(jnp.float32), axis=-1
        ).swapaxes(1, 2)
        rows = position_query.size // position_query.shape[-1]
        if rows * distances.shape[-2] > _MOST_KEPT:
            # Of equal products the compiler makes one, and keeps it; behind a
            # barrier they are not equal.
            position_query, upstream = jax.lax.optimization_barrier(
                (position_query, upstream)
            )
        by_distance, pull = jax.vjp(
            _scores_by_distance, position_query, distances
        )
        inputs = Inputs(*tensors, by_distance, *operands[6:])
        key, value, score_gradient = _key_gradients(
            sizes, inputs, upstream, log_sum, mean
        )
        query, difference = _query_gradients(sizes, inputs, score_gradient)
        return (
            *(query, difference, key, value, *pull(score_gradient)),
            *[None] * 4,
        )

    attended.defvjp(forward, backward)
    return attended


def _scores_by_distance(position_query, distances):
    """[N, J, B, S, H] x [N, J, W, H] or [B, N, J, W, H] -> [N, J, B, S x W]."""
    equation = "njbsh,njwh->njbsw"
    if distances.ndim == 5:
        equation = "njbsh,bnjwh->njbsw"
    scores = jnp.einsum(equation, position_query, distances)
    return scores.reshape((*scores.shape[:3], -1))


def _forward(sizes, inputs):
    of_rows = _Specs(sizes, "rows")
    return _call(
        kernels.forward_kernel,
        "xlnet_attention",
        of_rows,
        of_rows.inputs(inputs),
        [of_rows.rows(inputs.query), of_rows.numbers(inputs.difference)],
        [inputs.query, inputs.difference],
    )(*inputs)


def _key_gradients(sizes, inputs, upstream, log_sum, mean):
    of_keys = _Specs(sizes, "keys")
    return _call(
        kernels.key_gradients_kernel,
        "xlnet_attention_key_gradients",
        of_keys,
        [
            *of_keys.inputs(inputs),
            of_keys.rows(upstream),
            *[of_keys.numbers(log_sum)] * 2,
        ],
        [
            *[of_keys.keys(inputs.key)] * 2,
            of_keys.by_distance(inputs.by_distance),
        ],
        [inputs.key, inputs.value, inputs.by_distance],
    )(*inputs, upstream, log_sum, mean)


def _query_gradients(sizes, inputs, score_gradient):
    of_rows = _Specs(sizes, "rows")
    return _call(
        kernels.query_gradients_kernel,
        "xlnet_attention_query_gradients",
        of_rows,
        [
            of_rows.keys(inputs.key),
            of_rows.starts(inputs.starts),
            of_rows.words(inputs.other),
            of_rows.by_distance(score_gradient),
        ],
        [of_rows.rows(inputs.query), of_rows.numbers(inputs.difference)],
        [inputs.query, inputs.difference],
    )(inputs.key, inputs.starts, inputs.other, score_gradient)


def _call(kernel, name, specs, operand_specs, result_specs, results):
    batch_size, _, num_heads, _ = results[0].shape
    sizes = specs.sizes
    is_wide = sizes.head_dim * results[0].dtype.itemsize > _WIDE
    return pl.pallas_call(
        functools.partial(kernel, sizes=sizes),
        name=name,
        # Programs that run at the same time share a head, then an example.
        grid=(specs.num_tiles, num_heads, batch_size),
        in_specs=operand_specs,
        out_specs=result_specs,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results],
        interpret=sizes.interpret,
        compiler_params=triton.CompilerParams(
            num_warps=_WARPS,
            num_stages=1 if is_wide else _STAGES[specs.computes],
        ),
    )


# Axes of an operand: size of a block, and which one a program gets.
_WHOLE = None
_EXAMPLE = (None, lambda tile, head, example: example)
_HEAD = (None, lambda tile, head, example: head)


def _tile(size):
    return size, lambda tile, head, example: tile


class _Specs:
    """Blocks of operands for a program of a grid of tiles, heads, examples.

    Args:
        sizes: Sizes.
        computes: str, what it computes: "rows", X of them from all keys, or
            "keys", Y of them from all rows.

    Attributes:
        num_tiles: int, of the rows or the keys.
    """

    def __init__(self, sizes, computes):
        self.sizes = sizes
        self.computes = computes
        self._rows = self._keys = self._words = self._blocks = _WHOLE
        if computes == "keys":
            self.num_tiles = sizes.num_keys // sizes.tile_keys
            self._keys = _tile(sizes.tile_keys)
            self._words = _tile(sizes.words_of_tile)
        else:
            self.num_tiles = sizes.num_rows // sizes.tile_rows
            self._rows = _tile(sizes.tile_rows)
            of_block = sizes.rows_of_block // sizes.tile_rows
            self._blocks = (
                None,
                lambda tile, head, example: tile // of_block,
            )

    def inputs(self, inputs):
        """list of pl.BlockSpec of Inputs."""
        return [
            self.rows(inputs.query),
            self.numbers(inputs.difference),
            self.keys(inputs.key),
            self.keys(inputs.value),
            self.by_distance(inputs.by_distance),
            self.starts(inputs.starts),
            self.words(inputs.visible),
            self.words(inputs.other),
            self.numbers(inputs.hashes),
        ]

    def rows(self, tensor):
        """Tile of a tensor [B, Q, N, H]."""
        return _spec(tensor, _EXAMPLE, self._rows, _HEAD, _WHOLE)

    def keys(self, tensor):
        """Tile of a tensor [B, K, N, H]."""
        return _spec(tensor, _EXAMPLE, self._keys, _HEAD, _WHOLE)

    def numbers(self, tensor):
        """Tile of a tensor [B or 1, N or 1, Q]."""
        return _spec(tensor, _EXAMPLE, _HEAD, self._rows)

    def by_distance(self, tensor):
        """Block of a tensor [N, J, B, S x W]."""
        return _spec(tensor, _HEAD, self._blocks, _EXAMPLE, _WHOLE)

    def starts(self, tensor):
        """Tile of a tensor [B or 1, Q]."""
        return _spec(tensor, _EXAMPLE, self._rows)

    def words(self, tensor):
        """Tile of a tensor [B or 1, K / 32, Q], or [1, 1, Q] without mask."""
        words = self._words if tensor.shape[1] > 1 else _WHOLE
        return _spec(tensor, _EXAMPLE, words, self._rows)


def _spec(tensor, *axes):
    """pl.BlockSpec; all programs get the same of an axis that has length 1."""

    def first(tile, head, example):
        return 0

    shape, places = [], []
    for axis, size in zip(axes, tensor.shape, strict=True):
        block, place = (size, first) if axis is _WHOLE else axis
        shape.append(block)
        places.append(first if size == 1 else place)
    return pl.BlockSpec(
        tuple(shape),
        lambda *program: tuple(place(*program) for place in places),
    )
