"""Fused attention on a GPU, by Triton, without storing scores [B, N, Q, K].

For each row the forward kernel keeps one number, the logarithm of the sum of
exp(score) over the keys. The gradient kernels recompute the scores.

The "scores by distance" of a row are the products of the row's query (plus the
position bias) and the projected distances. XLA computes these scores by
ordinary matrix products. The kernels read the scores at shifted addresses, so
the relative shift needs no separate step.

Content rows and targets are computed by separate calls, because the positions
of targets, unlike the positions of content rows, need not be consecutive.

Shapes: B batch, T tokens, K keys, P targets, Q rows, N heads, H head dim,
R = K + T distances. The content rows form J = T / S blocks of S rows. A block
has W = K + S distances. A kernel computes tiles of X rows and Y keys.
"""

import functools
import math
from typing import Any
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from xlnet_tf.model.dropout import hash_rows
from xlnet_tf.model.kernels.distances import make_position_blocks
from xlnet_tf.model.kernels.pallas.gpu_kernels import BITS
from xlnet_tf.model.kernels.pallas.gpu_kernels import Inputs
from xlnet_tf.model.kernels.pallas.gpu_kernels import Sizes
from xlnet_tf.model.kernels.pallas.gpu_kernels import forward_kernel
from xlnet_tf.model.kernels.pallas.gpu_kernels import key_gradients_kernel
from xlnet_tf.model.kernels.pallas.gpu_kernels import query_gradients_kernel

# Number of rows and of keys of a tile. Tiles of targets have fewer rows,
# because targets are padded to whole tiles.
_TILE_ROWS, _TILE_KEYS, _TILE_TARGETS = 64, 64, 32
_HEAD_DIMS = (16, 32, 64, 128)
# Compute capability of Ampere. Triton's products need its tensor cores.
_LEAST_CAPABILITY = 8
# Limit of a head's scores by distance, whose addresses are int32.
_MOST_ADDRESSES = 2**31
_WARPS = 4
# Number of pipeline stages of a program's loop. With more than one stage the
# loop loads ahead. The gradients of keys leave no registers for loading ahead.
_STAGES = {"rows": 3, "keys": 1}
# Largest size in bytes of a tile's row with which shared memory has room for
# loading ahead.
_WIDE = 128
# Largest number of scores by distance that is kept for the gradient. More
# scores are recomputed.
_MOST_KEPT = 2**28


class _Rows(NamedTuple):
    """Kernel inputs that have an axis of rows.

    Attributes:
        query: [B, Q, N, H], the scaled sum of the query and the content bias.
        position_query: [B, Q, N, H], the scaled sum of the query and the
            position bias.
        difference: float32 [B, N, Q], see `segment_difference`.
        hashes: uint32 [B, N, Q], hashes of the dropout mask's rows; or
            [1, 1, Q] without dropout.
        visible, other: uint32 [B or 1, K / 32, Q], a bit for each key, see
            `gpu_kernels.Inputs`. The shape is [1, 1, Q] without a mask
            (`visible`) or without segments (`other`).
    """

    query: Any
    position_query: Any
    difference: Any
    hashes: Any
    visible: Any
    other: Any

    def between(self, begin, end):
        """Return the rows from `begin` to `end`."""
        return _Rows(
            self.query[:, begin:end],
            self.position_query[:, begin:end],
            *(x[..., begin:end] for x in self[2:]),
        )

    def filled(self, multiple):
        """Pad all inputs with zeros to a multiple of `multiple` rows."""
        missing = -self.query.shape[1] % multiple

        def fill(tensor, axis):
            around = [(0, 0)] * tensor.ndim
            around[axis] = (0, missing)
            return jnp.pad(tensor, around)

        return _Rows(
            fill(self.query, 1),
            fill(self.position_query, 1),
            *(fill(x, x.ndim - 1) for x in self[2:]),
        )


def why_unsupported(query_shape, num_tokens, num_keys, dtype):
    """Return the reason (str) why the kernels cannot compute a call, or None.

    Args:
        query_shape: tuple of ints, (B, N, Q, H).
        num_tokens, num_keys: ints, T and K.
        dtype: str, type of the query.
    """
    *_, num_rows, head_dim = query_shape
    if jax.__version_info__ < (0, 10):
        return f"JAX {jax.__version__} is older than 0.10"
    if _capability() < _LEAST_CAPABILITY:
        return f"a GPU of compute capability {_capability():g} is too old"
    if num_tokens % _TILE_ROWS or num_keys % _TILE_KEYS:
        return (
            f"tokens ({num_tokens}) and keys ({num_keys}) must be multiples "
            f"of {_TILE_KEYS}"
        )
    if num_keys < num_tokens:
        return f"there are fewer keys ({num_keys}) than tokens ({num_tokens})"
    if head_dim not in _HEAD_DIMS:
        return f"the head dim ({head_dim}) must be one of {_HEAD_DIMS}"
    scores = (num_rows + _TILE_TARGETS) * (num_keys + num_tokens)
    if scores >= _MOST_ADDRESSES:
        return f"{scores} scores by distance of a head are too many"
    if dtype not in ("float32", "bfloat16", "float16"):
        return f"the type must be float32, bfloat16 or float16, not {dtype}"
    return None


def _capability():
    """Return an NVIDIA GPU's compute capability; infinity for other GPUs."""
    device = jax.devices()[0]
    try:
        return float(device.compute_capability)
    except (AttributeError, ValueError):  # such as "gfx942", of AMD
        return float("inf")


def attend(inputs, rules, interpret=False):
    """Multiply the values by softmax(content + position + segment scores).

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.
        interpret: bool, whether to compute without a GPU.

    Returns:
        [B, N, Q, H]. A row that may attend to no key gets zeros.
    """
    num_rows, head_dim = inputs.query.shape[2:]
    hashes = jnp.zeros((1, 1, num_rows), jnp.uint32)
    if rules.seed is not None and rules.dropout:
        hashes = hash_rows(inputs.query.shape[:3], rules.seed)[..., 0]
    scale = head_dim**-0.5
    # The axes get the order that they have in the projections. The compiler
    # removes the double transposition.
    query, key, value = (
        x.swapaxes(1, 2) for x in (inputs.query, inputs.key, inputs.value)
    )
    rows = _Rows(
        _with_bias(query, inputs.content_bias) * scale,
        _with_bias(query, inputs.position_bias) * scale,
        _difference(
            query, inputs.segment_bias, inputs.segment_direction * scale
        ),
        hashes,
        _words(rules.mask, num_rows),
        _words(rules.other_segment, num_rows),
    )
    num_targets = 0
    if rules.target_positions is not None:
        num_targets = rules.target_positions.shape[1]
    num_content = num_rows - num_targets
    common = (key, value, inputs.position, rules, interpret)
    parts = []
    if num_content:
        parts.append(_content(rows.between(0, num_content), *common))
    if num_targets:
        parts.append(_targets(rows.between(num_content, num_rows), *common))
    attended = parts[0]
    if len(parts) == 2:
        attended = jnp.concatenate(parts, axis=1)
    return attended.swapaxes(1, 2)


def _with_bias(query, bias):
    """Add a bias [N, H] to the query; sum the bias's gradient in float32."""
    wide = jnp.broadcast_to(bias.astype(jnp.float32), query.shape)
    return query + wide.astype(query.dtype)


def _difference(query, bias, direction):
    """Compute `segment_difference` for a query [B, Q, N, H], as [B, N, Q]."""
    of_rows = jnp.einsum(
        *("bqnh,nh->bnq", query, direction),
        preferred_element_type=jnp.float32,
    )
    wide = bias.astype(jnp.float32) * direction.astype(jnp.float32)
    return of_rows + jnp.sum(wide, axis=-1)[:, None]


def _words(mask, num_rows):
    """Pack a mask [B or 1, Q, K] into bits, uint32 [B or 1, K / 32, Q]."""
    if mask is None:
        return jnp.zeros((1, 1, num_rows), jnp.uint32)
    bits = mask.reshape((*mask.shape[:2], -1, BITS)).astype(jnp.uint32)
    words = jnp.sum(bits << jnp.arange(BITS, dtype=jnp.uint32), axis=-1)
    return words.astype(jnp.uint32).swapaxes(1, 2)


def _sizes(key, rules, interpret, **others):
    return Sizes(
        num_keys=key.shape[1],
        head_dim=key.shape[3],
        has_mask=rules.mask is not None,
        has_segments=rules.other_segment is not None,
        dropout=0.0 if rules.seed is None else rules.dropout,
        tile_keys=_TILE_KEYS,
        interpret=interpret,
        **others,
    )


def _content(rows, key, value, position, rules, interpret):
    """Compute the attended values of the content rows, [B, T, N, H]."""
    batch_size, num_tokens, num_heads, head_dim = rows.query.shape
    num_keys = key.shape[1]
    # A block consists of whole tiles.
    size = 2 * _TILE_ROWS if num_tokens % (2 * _TILE_ROWS) == 0 else _TILE_ROWS
    blocks = make_position_blocks(position, num_tokens, num_keys, size)
    num_blocks, width = blocks.shape[2:4]
    # Rows of all examples with the same distances are adjacent, so that a
    # single product gives the gradient of the distances.
    position_query = rows.position_query.reshape(
        (batch_size, num_blocks, size, num_heads, head_dim)
    ).transpose((3, 1, 0, 2, 4))
    early_rows = rules.first_half_length
    early_keys = num_keys - num_tokens + early_rows
    if early_rows % _TILE_ROWS:
        early_rows = 0  # Only the mask hides the late keys then.
    sizes = _sizes(
        *(key, rules, interpret),
        num_rows=num_tokens,
        rows_of_block=size,
        unused_distances=width - num_keys,
        early_rows=early_rows,
        early_keys=early_keys if early_rows else num_keys,
        tile_rows=_TILE_ROWS,
    )
    # Each row reads the distances of its block one column further left than the
    # row before it.
    row = jnp.arange(num_tokens, dtype=jnp.int32) % size
    return _attended(sizes)(
        *(rows.query, rows.difference, key, value, position_query),
        _by_example(blocks, rules),
        (row * (width - 1) + size)[None],
        *(rows.visible, rows.other, rows.hashes),
    )


def _targets(rows, key, value, position, rules, interpret):
    """Compute the attended values of the targets, [B, P, N, H]."""
    num_targets, num_distances = rows.query.shape[1], position.shape[2]
    rows = rows.filled(_TILE_TARGETS)
    num_rows, num_tokens = rows.query.shape[1], num_distances - key.shape[1]
    missing = num_rows - num_targets
    columns = num_tokens - rules.target_positions
    columns = jnp.pad(columns, ((0, 0), (0, missing)))
    sizes = _sizes(
        *(key, rules, interpret),
        num_rows=num_rows,
        # All targets are in one block.
        rows_of_block=num_rows,
        unused_distances=num_tokens,
        early_rows=0,
        early_keys=key.shape[1],
        tile_rows=_TILE_TARGETS,
    )
    attended = _attended(sizes)(
        *(rows.query, rows.difference, key, value),
        rows.position_query.transpose((2, 0, 1, 3))[:, None],
        _by_example(position[:, :, None], rules),
        jnp.arange(num_rows, dtype=jnp.int32) * num_distances + columns,
        *(rows.visible, rows.other, rows.hashes),
    )
    return attended[:, :num_targets]


def _by_example(distances, rules):
    """Select the distances, [1 or 2, N, J, W, H], by each example's direction.

    Returns:
        [B, N, J, W, H], or [N, J, W, H] if no example is reversed.
    """
    if rules.is_reversed is None:
        return distances[0]
    # A product selects the distances, because the gradient of a look-up is
    # summed in no fixed order.
    directions = jnp.stack([~rules.is_reversed, rules.is_reversed], axis=1)
    return jnp.einsum(
        "bd,dnjwh->bnjwh", directions.astype(distances.dtype), distances
    )


@functools.cache
def _attended(sizes):
    """Make the function that computes attended values, for calls with `sizes`.

    The function has these arguments. The first six have gradients:
        query: [B, Q, N, H], the scaled sum of the query and the content bias.
        difference: float32 [B, N, Q], see `segment_difference`.
        key, value: [B, K, N, H].
        position_query: [N, J, B, S, H], the scaled sum of the query and the
            position bias.
        distances: [N, J, W, H] or [B, N, J, W, H], the projected distances.
        starts: int32 [B or 1, Q], the address of each row's score for key 0
            among the S * W scores by distance of the row's block.
        visible, other: uint32 [B or 1, K / 32, Q], a bit for each key.
        hashes: uint32 [B or 1, N or 1, Q], hashes of the dropout mask's rows.

    The function returns the attended values, [B, Q, N, H].
    """

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
            # Without the barrier, the compiler would merge this product with
            # the equal product of the forward pass, and keep the result.
            position_query, upstream = jax.lax.optimization_barrier(
                (position_query, upstream)
            )
        by_distance, pull = jax.vjp(
            _scores_by_distance, position_query, distances
        )
        inputs = Inputs(*tensors, by_distance, *operands[6:])
        key, value, score_gradient = _key_gradients(
            sizes,
            inputs,
            upstream,
            log_sum + math.log2(1 - sizes.dropout),
            mean * (1 - sizes.dropout),
        )
        query, difference = _query_gradients(sizes, inputs, score_gradient)
        return (
            *(query, difference, key, value, *pull(score_gradient)),
            *[None] * 4,
        )

    attended.defvjp(forward, backward)
    return attended


def _scores_by_distance(position_query, distances):
    """Compute all blocks' scores by distance, [N, J, B, S * W]."""
    equation = "njbsh,njwh->njbsw"
    if distances.ndim == 5:
        equation = "njbsh,bnjwh->njbsw"
    scores = jnp.einsum(equation, position_query, distances)
    return scores.reshape((*scores.shape[:3], -1))


def _forward(sizes, inputs):
    of_rows = _Specs(sizes, "rows")
    return _call(
        forward_kernel,
        "xlnet_attention",
        of_rows,
        of_rows.inputs(inputs),
        [of_rows.rows(inputs.query), of_rows.numbers(inputs.difference)],
        [inputs.query, inputs.difference],
    )(*inputs)


def _key_gradients(sizes, inputs, upstream, log_sum, mean):
    of_keys = _Specs(sizes, "keys")
    return _call(
        key_gradients_kernel,
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
        overwritten={Inputs._fields.index("by_distance"): 2},
    )(*inputs, upstream, log_sum, mean)


def _query_gradients(sizes, inputs, score_gradient):
    of_rows = _Specs(sizes, "rows")
    return _call(
        query_gradients_kernel,
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


def _call(
    kernel, name, specs, operand_specs, result_specs, results, overwritten=None
):
    batch_size, _, num_heads, _ = results[0].shape
    sizes = specs.sizes
    is_wide = sizes.head_dim * results[0].dtype.itemsize > _WIDE
    return pl.pallas_call(
        functools.partial(kernel, sizes=sizes),
        name=name,
        # Programs that run at the same time share a head, otherwise an example.
        grid=(specs.num_tiles, num_heads, batch_size),
        in_specs=operand_specs,
        out_specs=result_specs,
        out_shape=[jax.ShapeDtypeStruct(x.shape, x.dtype) for x in results],
        interpret=sizes.interpret,
        # dict of operand to the result that takes its memory.
        input_output_aliases=overwritten or {},
        compiler_params=triton.CompilerParams(
            num_warps=_WARPS,
            num_stages=1 if is_wide else _STAGES[specs.computes],
        ),
    )


# An axis of an operand has a pair: the block's size, and the index of the
# program's block.
_WHOLE = None
_EXAMPLE = (None, lambda tile, head, example: example)
_HEAD = (None, lambda tile, head, example: head)


def _tile(size):
    return size, lambda tile, head, example: tile


class _Specs:
    """BlockSpecs of the operands, for a grid of tiles, heads and examples.

    Args:
        sizes: Sizes.
        computes: str, "rows" if a program computes the results of X rows from
            all keys, or "keys" if a program computes the gradients of Y keys
            from all rows.

    Attributes:
        num_tiles: int, number of tiles of the rows or of the keys.
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
        """Return the specs of all fields of Inputs, list of pl.BlockSpec."""
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
        """Return the spec of a tensor of rows, [B, Q, N, H]."""
        return _spec(tensor, _EXAMPLE, self._rows, _HEAD, _WHOLE)

    def keys(self, tensor):
        """Return the spec of a tensor of keys, [B, K, N, H]."""
        return _spec(tensor, _EXAMPLE, self._keys, _HEAD, _WHOLE)

    def numbers(self, tensor):
        """Return the spec of one number per row, [B or 1, N or 1, Q]."""
        return _spec(tensor, _EXAMPLE, _HEAD, self._rows)

    def by_distance(self, tensor):
        """Return the spec of the scores by distance, [N, J, B, S * W]."""
        return _spec(tensor, _HEAD, self._blocks, _EXAMPLE, _WHOLE)

    def starts(self, tensor):
        """Return the spec of `starts`, [B or 1, Q]; see `_attended`."""
        return _spec(tensor, _EXAMPLE, self._rows)

    def words(self, tensor):
        """Return the spec of a mask's bits, [B or 1, K / 32, Q].

        Without a mask the tensor has the shape [1, 1, Q].
        """
        words = self._words if tensor.shape[1] > 1 else _WHOLE
        return _spec(tensor, _EXAMPLE, words, self._rows)


def _spec(tensor, *axes):
    """Make a pl.BlockSpec.

    If an axis of the tensor has the length 1, all programs use the only element
    of this axis.
    """

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
