"""Attention in one kernel of a TPU, in Keras' JAX backend or by `jax2tf`.

Shapes: as of `plain`.
"""

import keras
from keras import ops

from xlnet_tf.model.kernels.fused.tpu import calls
from xlnet_tf.model.kernels.fused.tpu.weights import LANES
from xlnet_tf.model.kernels.fused.tpu.weights import Sizes

# The codes of an example, twice, and blocks of scores have to fit in VMEM.
_MOST_SCORES = 2**22


def why_unsupported(query_shape, num_tokens, num_keys, dtype):
    """Return why the kernel cannot compute these sizes, as str, or None.

    Args:
        query_shape: ints B, N, Q and H.
        num_tokens, num_keys: ints, T and K.
        dtype: str.
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
        return f"its numbers are float32 or bfloat16, not {dtype}"
    return None


def attend(inputs, rules, interpret=False):
    """Softmax of content, position and segment scores, times the values.

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.
        interpret: bool, whether to compute without a TPU.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to nothing
        gets zeros.
    """
    query, key = inputs.query, inputs.key
    sizes = _sizes(query, key, inputs.position, rules, interpret)
    width = sizes.num_heads * sizes.head_dim

    def rows(tensor):
        """[X, N, rows, H] -> [X, rows, N x H]."""
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
    """dict of what is no float tensor, int32 or None."""

    def int32(tensor):
        return None if tensor is None else ops.cast(tensor, "int32")

    return {
        "target_positions": int32(rules.target_positions),
        "is_reversed": int32(rules.is_reversed),
        "seed": int32(rules.seed) if sizes.dropout else None,
    }


def _codes(rules, shape):
    """int8 [B, Q, K], what the kernels read of a pair of row and key."""
    codes = ops.ones((), "int8")
    if rules.mask is not None:
        codes = ops.cast(rules.mask, "int8")
    if rules.other_segment is not None:
        codes = codes + 2 * ops.cast(rules.other_segment, "int8")
    return ops.broadcast_to(codes, shape)


def _on_backend(sizes, *operands):
    *tensors, where = operands
    if keras.backend.backend() == "jax":
        return calls.attend(*tensors, where, sizes)
    from jax.experimental import jax2tf

    names = [name for name, tensor in where.items() if tensor is not None]

    def in_jax(*arguments):
        given = dict(zip(names, arguments[len(tensors) :], strict=True))
        return calls.attend(
            *arguments[: len(tensors)], {**dict.fromkeys(where), **given}, sizes
        )

    call = jax2tf.convert(
        in_jax,
        native_serialization_platforms=["cpu" if sizes.interpret else "tpu"],
        # It is lowered where there may be no TPU.
        native_serialization_disabled_checks=[
            jax2tf.DisabledSafetyCheck.platform()
        ],
    )
    return call(*tensors, *(where[name] for name in names))
