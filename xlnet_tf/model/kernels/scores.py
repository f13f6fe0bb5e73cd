"""Scores and softmax of some heads, and their gradients.

The kernel `memory_efficient` calls these functions. The leading axes of the
tensors hold all heads of all examples, or a few heads of one example.
`kernels/plain.py` computes the same scores and names the paper's terms (a) to
(d).

Shapes: B batch, T tokens, K keys, P targets, Q = T + P rows, H head dim,
R = K + T distances, S tokens of a block, W distances (K + S in a block, R for
targets), X any length. "..." are the axes of examples and heads.
"""

from typing import Any
from typing import NamedTuple

from keras import ops

from xlnet_tf.model.kernels.relative_shift import relative_shift
from xlnet_tf.model.kernels.relative_shift import relative_shift_targets
from xlnet_tf.model.kernels.relative_shift import (
    relative_shift_targets_transpose,
)
from xlnet_tf.model.kernels.relative_shift import relative_shift_transpose
from xlnet_tf.model.sizes import begins_with_one
from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.model.sizes import slice_axis

MASKED_SCORE = -1e30


class HeadInputs(NamedTuple):
    """Inputs of attention for some heads. Every input gets a gradient.

    Attributes:
        content_query: float tensor of shape [..., Q, H], the scaled sum of the
            query and the content bias u.
        position_query: float tensor of shape [..., Q, H], the scaled sum of the
            query and the position bias v.
        segment_difference: float tensor of shape [..., Q], the segment score of
            keys in a different segment minus the segment score of keys in the
            same segment.
        key, value: float tensors of shape [..., K, H].
        position_blocks: float tensor of shape [..., T / S, K + S, H], the
            projected distances of the content rows, in blocks, see
            `distances.make_position_blocks`.
        position: float tensor of shape [..., R, H], the projected distances of
            the targets. The axis R is shorter if targets do not need the last
            distances.
    """

    content_query: Any
    position_query: Any
    segment_difference: Any
    key: Any
    value: Any
    position_blocks: Any
    position: Any


def score_dtype(dtype):
    """Return the type of scores and softmax.

    Args:
        dtype: str or dtype, type of the keys and values.

    Returns:
        str, "float64" if `dtype` is float64, else "float32".
    """
    return "float64" if dtype == "float64" else "float32"


def segment_difference(inputs):
    """Subtract the two segment scores of each row.

    A row has one score for keys in another segment, and one for keys in its own
    segment. The result is the first score minus the second.

    Args:
        inputs: AttentionInputs.

    Returns:
        float tensor of shape [B, N, Q].
    """
    return ops.einsum(
        "bnqh,nh->bnq",
        inputs.query + ops.expand_dims(inputs.segment_bias, 1),
        inputs.segment_direction * sizes_of(inputs.query)[-1] ** -0.5,
    )


def _scores(inputs, rules):
    """Compute the scores, [..., Q, K]; masked keys get `MASKED_SCORE`."""
    num_keys = sizes_of(inputs.key)[-2]
    # (a) + (c), ...qh,...kh->...qk
    scores = _product(inputs.content_query, inputs.key)
    # (b) + (d), ...qh,...rh->...qr by distance, then shifted to keys. Content
    # rows are shifted in blocks, each target row by its own position.
    tokens, targets = _split_rows(inputs.position_query, inputs, rules)
    position_scores = _join_blocks(
        relative_shift(_product(tokens, inputs.position_blocks), num_keys)
    )
    if rules.target_positions is not None:
        target_scores = relative_shift_targets(
            _product(targets, inputs.position),
            rules.target_positions,
            num_keys,
            rules.num_tokens,
        )
        position_scores = ops.concatenate(
            [position_scores, target_scores], axis=-2
        )
    scores = scores + position_scores
    if rules.other_segment is not None:
        difference = inputs.segment_difference
        scores = scores + ops.where(
            rules.other_segment,
            ops.expand_dims(difference, -1),
            ops.zeros((), difference.dtype),
        )
    scores = ops.cast(scores, score_dtype(scores.dtype))
    if rules.mask is not None:
        scores = ops.where(rules.mask, scores, MASKED_SCORE)
    return scores


def signed_weights(inputs, rules, largest=None):
    """Compute the softmax's weights, with the dropout mask in the sign bit.

    The weights are exp(scores - largest), not yet divided by their sum. A
    weight that dropout drops is negative.

    Args:
        inputs: HeadInputs.
        rules: AttentionRules.
        largest: tensor of shape [..., Q] and type `score_dtype`, the largest
            score of each row. None (default) to compute these scores here.

    Returns:
        (weights of shape [..., Q, K], `largest`), both of type `score_dtype`.
    """
    scores = _scores(inputs, rules)
    if largest is None:
        # Without `initial` Keras would refuse a batch without rows.
        largest = ops.max(scores, axis=-1, initial=MASKED_SCORE)
    weights = ops.exp(scores - ops.expand_dims(largest, -1))
    if rules.drops:
        weights = ops.where(rules.keep, weights, -weights)
    return weights, largest


def attend_heads(weights, largest, value, rules):
    """Multiply the values by the softmax's probabilities.

    Args:
        weights, largest: results of `signed_weights`.
        value: float tensor of shape [..., K, H].
        rules: AttentionRules.

    Returns:
        (attended values of shape [..., Q, H], factor of shape [..., Q]). The
        kept weights of a row, times the row's factor, are the row's
        probabilities after dropout. The factor has the type `score_dtype`.
    """
    kept = _kept(weights, rules)
    total = ops.sum(kept, axis=-1)
    if rules.drops:
        # The sum of the absolute weights, computed from two tensors that exist
        # anyway.
        total = 2 * total - ops.sum(weights, axis=-1)
    factor = rules.scale / total
    if rules.mask is not None:
        # If all keys of a row are masked, its softmax would be uniform. A
        # factor of 0 keeps the masked values out of the result.
        factor = ops.where(largest > MASKED_SCORE / 2, factor, 0.0)
    if _overflows(value.dtype):
        kept = ops.cast(kept * ops.expand_dims(factor, -1), value.dtype)
        return ops.matmul(kept, value), factor
    # Scaling the H values of a row is cheaper than scaling its K weights.
    attended = ops.matmul(ops.cast(kept, value.dtype), value)
    factor_of_row = ops.expand_dims(ops.cast(factor, value.dtype), -1)
    return attended * factor_of_row, factor


def _overflows(dtype):
    """Whether a sum of values times unnormalized weights could overflow."""
    return dtype == "float16"


def _without_sign(weights, rules):
    return ops.abs(weights) if rules.drops else weights


def _kept(weights, rules, zero=0):
    return ops.maximum(weights, zero) if rules.drops else weights


def attention_gradient(inputs, rules, weights, factor, mean, upstream):
    """Compute the gradients of all inputs for some heads.

    Args:
        inputs: HeadInputs.
        rules: AttentionRules.
        weights: tensor of shape [..., Q, K], result of `signed_weights`.
        factor: tensor of shape [..., Q], result of `attend_heads`.
        mean: tensor of shape [..., Q], the dot product of `upstream` and the
            attended values. This product equals the sum, over all keys, of a
            probability times the gradient of this probability.
        upstream: float tensor of shape [..., Q, H], the gradient of the
            attended values.

    Returns:
        HeadInputs that hold the gradients.
    """
    # A zero that XLA does not recognise. With a literal 0, XLA would reuse the
    # forward pass's max(weights, 0) and keep this [B, N, Q, K] tensor until the
    # backward pass, which doubles memory.
    zero = ops.minimum(ops.abs(mean[..., :1, None]), 0)
    kept = _kept(weights, rules, zero)
    if _overflows(upstream.dtype):
        kept = kept * ops.expand_dims(factor, -1)
    else:
        factor_of_row = ops.expand_dims(ops.cast(factor, upstream.dtype), -1)
        upstream = upstream * factor_of_row
    kept_gradient = ops.cast(_product(upstream, inputs.value), factor.dtype)
    mean = ops.expand_dims(mean * factor / rules.scale, -1)
    gradient = kept * kept_gradient - _without_sign(weights, rules) * mean
    # From here on, `gradient` is the gradient of the scores.
    gradient = ops.cast(gradient, inputs.key.dtype)
    if rules.other_segment is None:
        segment_gradient = ops.zeros_like(inputs.segment_difference)
    else:
        segment_gradient = ops.sum(
            ops.where(
                rules.other_segment, gradient, ops.zeros((), gradient.dtype)
            ),
            axis=-1,
        )
    position_query, position_blocks, position = _position_gradients(
        gradient, inputs, rules
    )
    return HeadInputs(
        content_query=ops.matmul(gradient, inputs.key),
        position_query=position_query,
        segment_difference=segment_gradient,
        key=_transposed_product(gradient, inputs.content_query),
        value=_transposed_product(ops.cast(kept, inputs.value.dtype), upstream),
        position_blocks=position_blocks,
        position=position,
    )


def _position_gradients(score_gradient, inputs, rules):
    """Compute gradients of `position_query`, `position_blocks`, `position`."""
    token_gradient, target_gradient = _split_rows(score_gradient, inputs, rules)
    tokens, targets = _split_rows(inputs.position_query, inputs, rules)
    query, blocks = _backward_product(
        token_gradient,
        tokens,
        inputs.position_blocks,
        lambda scores, _: relative_shift_transpose(scores),
    )
    query = _join_blocks(query)
    if rules.target_positions is None:
        shape = [*sizes_of(blocks)[:-3], *sizes_of(inputs.position)[-2:]]
        return query, blocks, ops.zeros(shape, blocks.dtype)
    target_query, position = _backward_product(
        target_gradient,
        targets,
        inputs.position,
        lambda scores, positions: relative_shift_targets_transpose(
            scores,
            positions,
            rules.num_tokens,
            sizes_of(inputs.position)[-2],
        ),
        rules.target_positions,
    )
    return ops.concatenate([query, target_query], axis=-2), blocks, position


def _backward_product(gradient, rows, distances, by_distance, shifts=None):
    """Compute the gradients of both factors of the position scores.

    S is the number of rows here: the tokens of a block, or the P targets.

    Args:
        gradient: tensor of shape [..., S, K], the gradient of the shifted
            scores.
        rows: tensor of shape [..., S, H], the first factor.
        distances: tensor of shape [..., W, H], the second factor. Its first
            axis may have the length 1 although the first axis of `rows` has
            the length B.
        by_distance: function, the transpose of the relative shift. The function
            maps a tensor of shape [..., S, K] and `shifts` to a tensor of shape
            [..., S, W].
        shifts: tensor of shape [..., S], the target positions, or None
            (default) for blocks of content rows.

    Returns:
        (gradient of `rows`, gradient of `distances`).
    """
    if not begins_with_one(distances) or begins_with_one(gradient):
        scores = by_distance(gradient, shifts)
        return ops.matmul(scores, distances), _transposed_product(scores, rows)
    # A single product computes the rows of all examples. In a batch of
    # products, the gradient of the distances would have the shape
    # [B, ..., W, H] before the sum over examples. The axis of examples is moved
    # after the shift, because XLA then computes shift and move in one pass over
    # the scores. The other order takes longer on a CPU.
    scores = by_distance(gradient, shifts)
    scores = _examples_as_rows(ops.moveaxis(scores, 0, -3))
    row_gradient = ops.matmul(scores, distances)
    rows = ops.moveaxis(rows, 0, -3)
    row_gradient = ops.reshape(row_gradient, sizes_of(rows))
    row_gradient = ops.moveaxis(row_gradient, -3, 0)
    return row_gradient, _transposed_product(scores, _examples_as_rows(rows))


def _examples_as_rows(tensor):
    """Merge examples and rows: [..., B, S, X] -> [1, ..., B * S, X]."""
    *batch, batch_size, num_rows, width = sizes_of(tensor)
    return ops.reshape(tensor, [1, *batch, batch_size * num_rows, width])


def _split_rows(rows, inputs, rules):
    """Split rows [..., Q, X] into blocks of content rows, and target rows.

    Returns:
        (tokens [..., T / S, S, X], targets [..., P, X] or None).
    """
    num_blocks, width, _ = sizes_of(inputs.position_blocks)[-3:]
    size = width - sizes_of(inputs.key)[-2]
    *batch, num_rows, length = sizes_of(rows)
    tokens, targets = rows, None
    if rules.target_positions is not None:
        num_tokens = num_blocks * size
        tokens = slice_axis(rows, 0, num_tokens, axis=-2)
        targets = slice_axis(rows, num_tokens, num_rows - num_tokens, axis=-2)
    tokens = ops.reshape(tokens, [*batch, num_blocks, size, length])
    return tokens, targets


def _join_blocks(tokens):
    """Merge the blocks of content rows: [..., T / S, S, X] -> [..., T, X]."""
    *batch, num_blocks, size, width = sizes_of(tokens)
    return ops.reshape(tokens, [*batch, num_blocks * size, width])


def _product(rows, columns):
    """Multiply rows by columns: ...qh,...kh->...qk."""
    *batch, num_columns, width = sizes_of(columns)
    if all(isinstance(size, int) and size == 1 for size in batch):
        # A single matrix is multiplied by all rows at once. If the matrix is
        # broadcast as a batch, oneDNN in TensorFlow 2.20 writes out of bounds:
        # models of one head got wrong numbers, or crashed.
        matrix = ops.reshape(columns, [num_columns, width])
        return ops.tensordot(rows, matrix, [[-1], [-1]])
    return ops.einsum("...qh,...kh->...qk", rows, columns)


def _transposed_product(scores, rows):
    """Multiply transposed scores by rows: ...qk,...qh->...kh."""
    # Transposing the narrow factor and the narrow result, instead of the
    # scores, takes 0.6 of the time on a CPU. XLA would undo this, by folding
    # the transposition of the result into the product. The extra axis prevents
    # this folding.
    product = ops.expand_dims(ops.einsum("...qh,...qk->...hk", rows, scores), 0)
    return ops.squeeze(ops.swapaxes(product, -1, -2), 0)
