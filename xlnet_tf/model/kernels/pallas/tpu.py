"""Fused attention on a TPU, for Keras' JAX and TensorFlow backends.

On TensorFlow, `jax2tf` converts the JAX code. Scores and probabilities exist
only in the chip's vector memory (VMEM). The forward kernel stores nothing for
the backward kernel, which recomputes the scores from the inputs.

Rows and keys have the layout of the projections, [B, rows, N * H], so that no
tensor is transposed or padded.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, R = K + T distances.
"""

import functools

import jax
import jax.numpy as jnp
import keras
from jax.experimental import pallas as pl
from jax.experimental.pallas import tpu as pltpu
from keras import ops

from xlnet_tf.model.kernels.pallas.tpu_kernels import LANES
from xlnet_tf.model.kernels.pallas.tpu_kernels import VISIBLE
from xlnet_tf.model.kernels.pallas.tpu_kernels import Sizes
from xlnet_tf.model.kernels.pallas.tpu_kernels import backward_kernel
from xlnet_tf.model.kernels.pallas.tpu_kernels import forward_kernel

# Limit of the scores of an example, because two copies of its codes and some
# blocks of scores must fit in VMEM.
_MOST_SCORES = 2**22
_VMEM_BYTES = 96 * 2**20


def why_unsupported(query_shape, num_tokens, num_keys, dtype):
    """Return the reason (str) why the kernel cannot compute a call, or None.

    Args:
        query_shape: tuple of ints, (B, N, Q, H).
        num_tokens, num_keys: ints, T and K.
        dtype: str, type of the query.
    """
    _, num_heads, _, head_dim = query_shape
    if num_tokens % LANES or num_keys % LANES:
        return (
            f"tokens ({num_tokens}) and keys ({num_keys}) must be multiples "
            f"of {LANES}"
        )
    if LANES % head_dim or num_heads * head_dim % LANES:
        return (
            f"the head dim ({head_dim}) must divide {LANES}, and {LANES} "
            f"the width of all heads ({num_heads * head_dim})"
        )
    if num_tokens * num_keys > _MOST_SCORES:
        return (
            f"{num_tokens} rows of {num_keys} keys are too many for the "
            "memory of the chip"
        )
    if dtype not in ("float32", "bfloat16"):
        return f"the type must be float32 or bfloat16, not {dtype}"
    return None


def attend(inputs, rules, interpret=False):
    """Multiply the values by softmax(content + position + segment scores).

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.
        interpret: bool, whether to compute without a TPU.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to no key gets
        zeros.
    """
    query, key = inputs.query, inputs.key
    sizes = _sizes(query, key, inputs.position, rules, interpret)
    width = sizes.num_heads * sizes.head_dim

    def rows(tensor):
        """Merge N and H: [..., N, rows, H] -> [..., rows, N * H]."""
        tensor = ops.swapaxes(tensor, 1, 2)
        return ops.reshape(tensor, [*tensor.shape[:2], width])

    vectors = [inputs.content_bias, inputs.position_bias, inputs.segment_bias]
    vectors.append(inputs.segment_direction * sizes.head_dim**-0.5)
    vectors = ops.reshape(ops.stack(vectors), [4, width])
    attended = _on_backend(
        sizes,
        rows(query),
        ops.cast(vectors, "float32"),
        rows(key),
        rows(inputs.value),
        rows(inputs.position),
        _codes(rules, (*query.shape[::2], key.shape[2])),
        _where(rules, sizes),
    )
    shape = [query.shape[0], sizes.num_rows, sizes.num_heads, sizes.head_dim]
    return ops.swapaxes(ops.reshape(attended, shape), 1, 2)


def _sizes(query, key, position, rules, interpret):
    num_targets = 0
    if rules.target_positions is not None:
        num_targets = rules.target_positions.shape[1]
    return Sizes(
        num_tokens=position.shape[2] - key.shape[2],
        num_targets=num_targets,
        num_keys=key.shape[2],
        num_heads=query.shape[1],
        head_dim=query.shape[3],
        num_content=query.shape[2] - num_targets,
        num_directions=position.shape[0],
        dropout=0.0 if rules.seed is None else rules.dropout,
        dtype=keras.backend.standardize_dtype(query.dtype),
        interpret=interpret,
    )


def _where(rules, sizes):
    """Return a dict of the integer inputs other than `codes`.

    Each value is an int32 tensor or None.
    """

    def int32(tensor):
        return None if tensor is None else ops.cast(tensor, "int32")

    return {
        "target_positions": int32(rules.target_positions),
        "is_reversed": int32(rules.is_reversed),
        "seed": int32(rules.seed) if sizes.dropout else None,
    }


def _codes(rules, shape):
    """Encode mask and segment of each pair of row and key, int8 [B, Q, K]."""
    codes = ops.ones((), "int8")
    if rules.mask is not None:
        codes = ops.cast(rules.mask, "int8")
    if rules.other_segment is not None:
        codes = codes + 2 * ops.cast(rules.other_segment, "int8")
    return ops.broadcast_to(codes, shape)


def _on_backend(sizes, *operands):
    *tensors, where = operands
    if keras.backend.backend() == "jax":
        return _in_jax(*tensors, where, sizes)
    from jax.experimental import jax2tf

    names = [name for name, tensor in where.items() if tensor is not None]

    def call_in_jax(*arguments):
        given = dict(zip(names, arguments[len(tensors) :], strict=True))
        return _in_jax(
            *arguments[: len(tensors)], {**dict.fromkeys(where), **given}, sizes
        )

    call = jax2tf.convert(
        call_in_jax,
        native_serialization_platforms=["cpu" if sizes.interpret else "tpu"],
        # The lowering may run on a machine without a TPU.
        native_serialization_disabled_checks=[
            jax2tf.DisabledSafetyCheck.platform()
        ],
    )
    return call(*tensors, *(where[name] for name in names))


def _in_jax(query, vectors, key, value, position, codes, where, sizes):
    """Compute the attended values with JAX.

    The result is differentiable in the first five arguments.

    Args:
        query: [B, Q, N * H].
        vectors: float32 [4, N * H], the biases u, v and b, and the scaled
            difference of the segment encodings.
        key, value: [B, K, N * H].
        position: [1 or 2, R, N * H], the projected distances, largest distance
            (K) first.
        codes: int8 [B, Q, K], sums of VISIBLE and OTHER_SEGMENT.
        where: dict of int32 tensors: `target_positions` [B, P], `is_reversed`
            [B] and `seed` [2]. Each tensor may be None.
        sizes: Sizes.

    Returns:
        [B, Q, N * H]. A row that may attend to no key gets zeros.
    """
    batch_size = query.shape[0]
    seed = jnp.zeros(2, jnp.int32) if where["seed"] is None else where["seed"]
    directions = where["is_reversed"]
    if directions is None:
        directions = jnp.zeros(batch_size, jnp.int32)
    # Number of columns by which each target's scores are shifted. Every lane
    # holds the same number.
    shifts = jnp.zeros((batch_size, 1, LANES), jnp.int32)
    if sizes.num_targets:
        shape = (batch_size, sizes.num_targets, LANES)
        columns = sizes.num_tokens - 1 - where["target_positions"]
        shifts = jnp.broadcast_to(columns[..., None], shape)
    # Padded to 8 sublanes.
    vectors = jnp.concatenate([vectors, jnp.zeros_like(vectors)])
    # The first distance, K, is the distance to no key. It moves to the end.
    position = jnp.roll(position, -1, axis=1)
    return _attended(sizes)(
        *(query, key, value, position, vectors),
        *(codes, shifts, _sees_early_keys_only(codes, sizes), seed, directions),
    )


def _sees_early_keys_only(codes, sizes):
    """Find blocks whose rows attend only to early keys, int32 [B, T / 128].

    1 = the 128 rows of the block attend only to the first `Sizes.early_keys`
    keys.
    """
    batch_size, num_blocks = codes.shape[0], sizes.num_content // LANES
    if sizes.early_keys is None or not num_blocks:
        return jnp.zeros((batch_size, max(num_blocks, 1)), jnp.int32)
    late = codes[:, : sizes.num_content, sizes.early_keys :] & VISIBLE
    late = late.reshape(batch_size, num_blocks, -1)
    return 1 - jnp.max(late, axis=-1).astype(jnp.int32)


@functools.cache
def _attended(sizes):
    """Make the differentiable function that calls the two kernels."""

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
    """Return a dict with the BlockSpecs of operands and results."""

    def at(place):
        # The batch is the inner loop of the backward kernel, which sums
        # gradients over the batch.
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


def _forward(sizes, *operands):
    query, key, value, position, vectors, codes, shifts, *scalars = operands
    specs = _specs(sizes, is_backward=False)
    names = ("query", "key", "key", "position", "vectors", "codes", "shifts")
    call = _call(
        forward_kernel,
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
        backward_kernel,
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
