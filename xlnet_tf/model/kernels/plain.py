"""Relative attention, equation by equation, with automatic differentiation.

Tests compare the other kernels with this readable kernel. Section 3.3 of
https://arxiv.org/abs/1901.02860 defines the terms (a) to (d). Section 2.5 of
https://arxiv.org/abs/1906.08237 defines the segment scores.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, R = K + T distances. Einsum strings use
the same letters in lower case.
"""

from keras import ops

from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.kernels.scores import MASKED_SCORE
from xlnet_tf.model.kernels.scores import score_dtype
from xlnet_tf.model.kernels.scores import segment_difference
from xlnet_tf.model.sizes import sizes_of


def attend(inputs, rules):
    """Multiply the values by softmax(content + position + segment scores).

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.

    Returns:
        float tensor of shape [B, N, Q, H]. A row that may attend to no key gets
        zeros.
    """
    probabilities = attention_weights(inputs, rules)
    probabilities = dropout(probabilities, rules.dropout, rules.seed)
    probabilities = ops.cast(probabilities, inputs.value.dtype)
    return ops.einsum("bnqk,bnkh->bnqh", probabilities, inputs.value)


def attention_weights(inputs, rules):
    """Compute the attention probabilities, before dropout.

    Args:
        inputs: AttentionInputs.
        rules: AttentionRules.

    Returns:
        float tensor of shape [B, N, Q, K]. The probabilities of a row sum to 1,
        or to 0 if the row may attend to no key.
    """
    query, key = inputs.query, inputs.key
    scale = sizes_of(query)[-1] ** -0.5
    # (a) content by content + (c) content bias by content
    content_query = (query + inputs.content_bias[:, None]) * scale
    content_scores = ops.einsum("bnqh,bnkh->bnqk", content_query, key)
    # (b) content by distance + (d) position bias by distance
    position_query = (query + inputs.position_bias[:, None]) * scale
    by_distance = _scores_by_distance(position_query, inputs.position, rules)
    position_scores = _relative_shift(by_distance, sizes_of(key)[2], rules)
    scores = content_scores + position_scores  # [B, N, Q, K]
    if rules.other_segment is not None:
        difference = segment_difference(inputs)
        segment_scores = ops.where(
            rules.other_segment[:, None],
            difference[..., None],
            ops.zeros((), difference.dtype),
        )
        scores = scores + segment_scores

    mask = None if rules.mask is None else rules.mask[:, None]
    return masked_softmax(scores, mask)


def masked_softmax(scores, mask):
    """Compute each row's softmax over the keys that the row may attend to.

    Args:
        scores: float tensor of shape [..., Q, K].
        mask: bool tensor that broadcasts to the shape of `scores`, True = may
            attend, or None if every row may attend to every key.

    Returns:
        tensor of shape [..., Q, K] and type `score_dtype`. A row that may
        attend to no key gets zeros.
    """
    scores = ops.cast(scores, score_dtype(scores.dtype))
    if mask is None:
        return ops.softmax(scores, axis=-1)
    probabilities = ops.softmax(ops.where(mask, scores, MASKED_SCORE), axis=-1)
    # Without this mask, the softmax of a row that may attend to no key would be
    # uniform.
    return ops.where(mask, probabilities, 0.0)


def _scores_by_distance(position_query, position, rules):
    """Compute the position scores by distance, float [B, N, Q, R]."""
    if rules.is_reversed is None:
        return ops.einsum("bnqh,nrh->bnqr", position_query, position[0])
    direction = ops.cast(rules.is_reversed, "int32")
    position = ops.take(position, direction, axis=0)  # [B, N, R, H]
    return ops.einsum("bnqh,bnrh->bnqr", position_query, position)


def _row_positions(num_tokens, rules):
    """Return the position t of each row's token, int32 [B or 1, Q]."""
    targets = rules.target_positions
    if rules.streams == "query":
        return targets
    tokens = ops.arange(num_tokens, dtype="int32")[None]
    if targets is None:
        return tokens
    tokens = ops.broadcast_to(tokens, [sizes_of(targets)[0], num_tokens])
    return ops.concatenate([tokens, targets], axis=1)


def _relative_shift(scores, num_keys, rules):
    """Re-index scores by distance [B, N, Q, R] as scores by key [B, N, Q, K].

    Column r has the scores for the distance K - r. Token t is at position
    M + t of the keys. Its distance to key k is M + t - k, and the score for
    this distance is in column T - t + k.
    """
    num_tokens = sizes_of(scores)[-1] - num_keys
    row_position = _row_positions(num_tokens, rules)[:, None, :, None]
    column = num_tokens - row_position + ops.arange(num_keys, dtype="int32")
    column = ops.broadcast_to(column, [*sizes_of(scores)[:3], num_keys])
    return ops.take_along_axis(scores, column, axis=-1)
