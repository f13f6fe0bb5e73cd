"""Scores of some heads, what they attend to, and the gradient of both.

Softmax over content, position and segment scores, in plain array operations,
for whatever batch of heads the leading axes hold.

Shapes: T tokens, K keys, P targets, Q = T + P rows, H head dim, R = K + T
distances, S tokens of a block; "..." are examples and heads.
"""

from typing import Any
from typing import NamedTuple

from keras import ops

from xlnet_tf.model.relative_position import targets_by_distance
from xlnet_tf.model.relative_position import targets_by_key
from xlnet_tf.model.relative_position import tokens_by_distance
from xlnet_tf.model.relative_position import tokens_by_key

_HIDDEN = -1e30


class Part(NamedTuple):
    """The rules for some heads; all of them broadcast to [..., Q, K]."""

    mask: Any
    other_segment: Any
    target_positions: Any  # [..., P]
    keep: Any  # bool [..., Q, K], or None without dropout
    scale: float  # of what dropout keeps


def _scores(
    content_query, position_query, difference, key, blocks, position, part
):
    """float32 [..., Q, K]; where a row may not attend, a large negative one."""
    scores = _product(content_query, key)
    num_keys = ops.shape(key)[-2]
    tokens, targets = _split(position_query, blocks, num_keys)
    by_key = _from_blocks(tokens_by_key(_product(tokens, blocks), num_keys))
    if part.target_positions is not None:
        of_targets = targets_by_key(
            _product(targets, position), part.target_positions, num_keys
        )
        by_key = ops.concatenate([by_key, of_targets], axis=-2)
    scores = scores + by_key
    if part.other_segment is not None:
        scores = scores + ops.where(
            part.other_segment,
            difference[..., None],
            ops.zeros((), difference.dtype),
        )
    scores = ops.cast(scores, "float32")
    if part.mask is not None:
        scores = ops.where(part.mask, scores, _HIDDEN)
    return scores


def signed_weights(
    content_query,
    position_query,
    difference,
    key,
    blocks,
    position,
    part,
    largest=None,
):
    """Softmax before its division, and what dropout keeps of it, in one tensor.

    Args:
        content_query, position_query: float tensors of shape [..., Q, H].
        difference: float tensor of shape [..., Q].
        key: float tensor of shape [..., K, H].
        blocks: float tensor of shape [..., T / S, K + S, H], see
            `position_blocks`.
        position: float tensor of shape [..., R, H].
        part: Part.
        largest: float32 tensor of shape [..., Q], the largest score of each
            row, where it is known. Default None.

    Returns:
        (float32 tensor of shape [..., Q, K], the exponential of the scores
        below the largest, negative where dropout drops it; `largest`).
    """
    scores = _scores(
        content_query, position_query, difference, key, blocks, position, part
    )
    if largest is None:
        largest = ops.max(scores, axis=-1)
    weights = ops.exp(scores - largest[..., None])
    if part.keep is not None:
        weights = ops.where(part.keep, weights, -weights)
    return weights, largest


def attend_part(weights, largest, value, part):
    """What some heads attend to.

    Args:
        weights, largest: of `signed_weights`.
        value: float tensor of shape [..., K, H].
        part: Part.

    Returns:
        (float tensor of shape [..., Q, H], float32 tensor of shape [..., Q]:
        what the weights that are kept are to be multiplied by).
    """
    total = ops.sum(_unsigned(weights, part), axis=-1)
    # Dividing H numbers a row is cheaper than dividing K.
    factor = part.scale / total
    if part.mask is not None:
        # Over hidden keys alone the softmax is uniform: no information may
        # come from there.
        factor = ops.where(largest > _HIDDEN / 2, factor, 0.0)
    kept = ops.cast(_kept(weights, part), value.dtype)
    attended = ops.matmul(kept, value)
    return attended * ops.cast(factor, value.dtype)[..., None], factor


def _unsigned(weights, part):
    return weights if part.keep is None else ops.abs(weights)


def _kept(weights, part, zero=0):
    return weights if part.keep is None else ops.maximum(weights, zero)


def gradient_of_part(
    content_query,
    position_query,
    difference,
    key,
    value,
    blocks,
    position,
    weights,
    factor,
    mean,
    upstream,
    part,
):
    """The gradients of the seven tensors that decide what heads attend to.

    Args:
        content_query, position_query, difference, key, blocks, position: as
            `signed_weights` takes them.
        value: float tensor of shape [..., K, H].
        weights: float tensor of shape [..., Q, K], of `signed_weights`.
        factor: float32 tensor of shape [..., Q], of `attend_part`.
        mean: float32 tensor of shape [..., Q], sum of upstream x output.
        upstream: float tensor of shape [..., Q, H].

    Returns:
        tuple of seven tensors.
    """
    # A zero that the compiler cannot know to be one: else it would save the
    # maximum of the way forward for here, as much memory again.
    zero = ops.minimum(ops.abs(mean[..., :1, None]), 0)
    kept = _kept(weights, part, zero)
    upstream = upstream * ops.cast(factor, upstream.dtype)[..., None]
    of_kept = ops.cast(_product(upstream, value), "float32")
    mean = mean * factor / part.scale
    of_scores = kept * of_kept - _unsigned(weights, part) * mean[..., None]
    of_scores = ops.cast(of_scores, key.dtype)
    of_value = _transposed_product(ops.cast(kept, value.dtype), upstream)
    of_difference = ops.zeros_like(difference)
    if part.other_segment is not None:
        of_difference = ops.sum(
            ops.where(
                part.other_segment, of_scores, ops.zeros((), of_scores.dtype)
            ),
            axis=-1,
        )
    of_position_query, of_blocks, of_position = _backward_position(
        of_scores, position_query, blocks, position, part
    )
    return (
        ops.matmul(of_scores, key),
        of_position_query,
        of_difference,
        _transposed_product(of_scores, content_query),
        of_value,
        of_blocks,
        of_position,
    )


def _backward_position(of_scores, position_query, blocks, position, part):
    """Gradients of `position_query`, `blocks` and `position`."""
    num_keys = ops.shape(of_scores)[-1]
    num_tokens = ops.shape(position)[-2] - num_keys
    of_tokens, of_targets = _split(of_scores, blocks, num_keys)
    tokens, targets = _split(position_query, blocks, num_keys)
    of_query, of_blocks = _backward_product(
        of_tokens, tokens, blocks, lambda scores, _: tokens_by_distance(scores)
    )
    of_query = _from_blocks(of_query)
    if part.target_positions is None:
        shape = [*ops.shape(of_blocks)[:-3], *ops.shape(position)[-2:]]
        return of_query, of_blocks, ops.zeros(shape, of_blocks.dtype)
    of_target_query, of_position = _backward_product(
        of_targets,
        targets,
        position,
        lambda scores, positions: targets_by_distance(
            scores, positions, num_tokens
        ),
        part.target_positions,
    )
    of_query = ops.concatenate([of_query, of_target_query], axis=-2)
    return of_query, of_blocks, of_position


def _backward_product(of_scores, rows, distances, by_distance, shifts=None):
    """Gradients of both factors of scores that were re-indexed by key.

    Args:
        of_scores: tensor of shape [..., S, K].
        rows: tensor of shape [..., S, H].
        distances: tensor of shape [..., W, H], what the rows were multiplied
            with; its first axis may be 1 where that of the others is B.
        by_distance: function of [..., S, K] and `shifts` to [..., S, W].
        shifts: tensor of shape [..., S], or None.

    Returns:
        (tensor of the shape of `rows`, tensor of the shape of `distances`).
    """
    if not _begins_with_one(distances) or _begins_with_one(of_scores):
        scores = by_distance(of_scores, shifts)
        return ops.matmul(scores, distances), _transposed_product(scores, rows)
    # The rows of all examples in one product: as a batch of products the
    # gradient of the distances would be [B, ..., W, H] before it is summed.
    # The examples' axis moves before the scores are re-indexed, which writes
    # them anew anyway.
    if shifts is not None:
        shifts = ops.moveaxis(shifts, 0, -2)
    scores = by_distance(ops.moveaxis(of_scores, 0, -3), shifts)
    scores = _examples_as_rows(scores)
    of_rows = ops.matmul(scores, distances)
    rows = ops.moveaxis(rows, 0, -3)
    of_rows = ops.moveaxis(ops.reshape(of_rows, ops.shape(rows)), -3, 0)
    return of_rows, _transposed_product(scores, _examples_as_rows(rows))


def _begins_with_one(tensor):
    # A size that is only known in the call is a tensor.
    first = ops.shape(tensor)[0]
    return isinstance(first, int) and first == 1


def _examples_as_rows(tensor):
    """[..., B, S, X] -> [1, ..., B * S, X]."""
    *batch, batch_size, num_rows, width = ops.shape(tensor)
    return ops.reshape(tensor, [1, *batch, batch_size * num_rows, width])


def _split(rows, blocks, num_keys):
    """[..., Q, X] -> tokens in blocks [..., T / S, S, X], targets [..., P, X].

    Args:
        rows: tensor of shape [..., Q, X].
        blocks: tensor of shape [..., T / S, K + S, H].
        num_keys: int, K.
    """
    num_blocks, width, _ = ops.shape(blocks)[-3:]
    size = width - num_keys
    *batch, _, length = ops.shape(rows)
    tokens = rows[..., : num_blocks * size, :]
    tokens = ops.reshape(tokens, [*batch, num_blocks, size, length])
    return tokens, rows[..., num_blocks * size :, :]


def _from_blocks(tokens):
    """[..., T / S, S, X] -> [..., T, X]."""
    *batch, num_blocks, size, width = ops.shape(tokens)
    return ops.reshape(tokens, [*batch, num_blocks * size, width])


def _product(rows, columns):
    """[..., Q, H] and [..., K, H] -> [..., Q, K]."""
    return ops.matmul(rows, ops.swapaxes(columns, -1, -2))


def _transposed_product(scores, rows):
    """[..., Q, K] and [..., Q, H] -> [..., K, H]."""
    # Transposing the narrow factor and result, not the scores, takes 0.6 of
    # the time on a CPU.
    return ops.swapaxes(ops.matmul(ops.swapaxes(rows, -1, -2), scores), -1, -2)
