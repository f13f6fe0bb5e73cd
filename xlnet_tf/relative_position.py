"""How the distance between two tokens enters attention.

Transformer-XL replaces absolute positions by R, a table of sinusoids indexed by
the distance i - j from query i to key j (https://arxiv.org/abs/1901.02860,
section 3.3). Scores against R come out indexed by distance; the functions here
re-index them by key, so that they add up with the content scores.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
N heads, D model dim, R = K + T distances.
"""

from keras import ops


def relative_position_encoding(
    num_tokens, num_keys, hidden_dim, clamp_length=0, is_reversed=False
):
    """Returns R, the sinusoid of every distance from `num_keys` down.

    Row r encodes the distance `num_keys - r`: large positive distances (far in
    the past) come first, negative ones (the future) last. Computed in float32
    whatever the compute type is, because bfloat16 cannot tell 511 from 512.

    Args:
        num_tokens: int, T.
        num_keys: int, K = M + T.
        hidden_dim: int, D, even. The first half are sines, the second cosines.
        clamp_length: int, distances beyond it, either way, count as it; 0 means
            no limit.
        is_reversed: bool, whether the text is read backwards: every distance
            changes its sign.

    Returns:
        float32 tensor of shape [K + T, D].

    Source: `relative_positional_encoding` of the released code.
    """
    distance = ops.arange(num_keys, -num_tokens, -1, dtype="float32")
    if clamp_length > 0:
        distance = ops.clip(distance, -clamp_length, clamp_length)
    if is_reversed:
        distance = -distance
    exponent = ops.arange(0, hidden_dim, 2, dtype="float32") / hidden_dim
    angle = ops.outer(distance, ops.power(10000.0, -exponent))  # [R, D / 2]
    return ops.concatenate([ops.sin(angle), ops.cos(angle)], axis=-1)


def content_scores_by_key(scores, num_keys):
    """Re-indexes scores of all T tokens from distance to key.

    Token t sits at position M + t, so its score for key k is that of distance
    M + t - k, found in column T - t + k. For T = 2 and K = 3:

        ..cde      cde
        .ghi.  =>  ghi

    Re-reading the same values in rows one shorter does this without a gather
    (Transformer-XL, appendix B). It is the only reshape that is not a mere
    split or join of axes.

    Args:
        scores: tensor of shape [B, N, T, K + T].
        num_keys: int, K.

    Returns:
        tensor of shape [B, N, T, K].
    """
    _, num_heads, num_tokens, num_distances = ops.shape(scores)
    scores = ops.reshape(scores, [-1, num_heads, num_distances, num_tokens])
    scores = scores[:, :, 1:, :]
    scores = ops.reshape(scores, [-1, num_heads, num_tokens, num_distances - 1])
    return scores[:, :, :, :num_keys]


def target_scores_by_key(scores, target_positions, num_tokens):
    """Re-indexes scores of the P target rows from distance to key.

    Each row is shifted by its own position: as in `content_scores_by_key`, key
    k of the target at token t is found in column T - t + k.

    Args:
        scores: tensor of shape [B, N, P, K + T].
        target_positions: int32 tensor of shape [B, P], values in [0, T).
        num_tokens: int, T.

    Returns:
        tensor of shape [B, N, P, K].
    """
    _, num_heads, num_targets, num_distances = ops.shape(scores)
    num_keys = num_distances - num_tokens
    first_column = num_tokens - target_positions  # [B, P]
    column = first_column[:, None, :, None] + ops.arange(
        num_keys, dtype="int32"
    )
    column = ops.broadcast_to(
        column, [ops.shape(scores)[0], num_heads, num_targets, num_keys]
    )
    return ops.take_along_axis(scores, column, axis=-1)
