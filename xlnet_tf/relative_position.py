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


def distances_by_key(scores, target_positions, num_keys):
    """Re-indexes scores of content and target rows from distance to key.

    Token t sits at position M + t, so its score for key k is that of distance
    M + t - k, found in column T - t + k. For T = 2 and K = 3:

        ..cde      cde
        .ghi.  =>  ghi

    Rows of tokens stand in order, so that reading the same numbers in rows one
    shorter does this without a gather (Transformer-XL, appendix B). Each of the
    rows of targets is shifted by its own position.

    Args:
        scores: tensor of shape [..., Q, K + T], Q = T + P rows.
        target_positions: int32 tensor of shape [..., P], values in [0, T), or
            None without target rows.
        num_keys: int, K.

    Returns:
        tensor of shape [..., Q, K].
    """
    *batch, num_rows, num_distances = ops.shape(scores)
    num_tokens = num_distances - num_keys
    content = scores
    if target_positions is not None:
        content = scores[..., :num_tokens, :]
    flat = ops.reshape(content, [*batch, num_tokens * num_distances])
    rows = ops.reshape(
        flat[..., num_tokens:], [*batch, num_tokens, num_distances - 1]
    )
    rows = rows[..., :num_keys]
    if target_positions is None:
        return rows
    targets = scores[..., num_tokens:, :]
    column = _target_columns(target_positions, num_tokens, num_keys)
    targets = _take_columns(targets, column)
    return ops.concatenate([rows, targets], axis=-2)


def keys_by_distance(scores, target_positions, num_distances):
    """The transpose of `distances_by_key`, for its gradient.

    Args:
        scores: tensor of shape [..., Q, K].
        target_positions: int32 tensor of shape [..., P], or None.
        num_distances: int, K + T.

    Returns:
        tensor of shape [..., Q, K + T]: every score at its distance, 0 at
        distances that no key has.
    """
    *batch, num_rows, num_keys = ops.shape(scores)
    num_tokens = num_distances - num_keys
    content = scores
    if target_positions is not None:
        content = scores[..., :num_tokens, :]
    around = [[0, 0]] * len(batch)
    content = ops.pad(
        content, [*around, [0, 0], [0, num_distances - 1 - num_keys]]
    )
    flat = ops.reshape(content, [*batch, num_tokens * (num_distances - 1)])
    flat = ops.pad(flat, [*around, [num_tokens, 0]])
    rows = ops.reshape(flat, [*batch, num_tokens, num_distances])
    if target_positions is None:
        return rows
    targets = scores[..., num_tokens:, :]
    first = (num_tokens - target_positions)[..., None]  # [..., P, 1]
    key = ops.arange(num_distances, dtype="int32") - first
    is_key = ops.logical_and(key >= 0, key < num_keys)
    targets = ops.where(
        is_key,
        _take_columns(targets, ops.clip(key, 0, num_keys - 1)),
        ops.zeros((), scores.dtype),
    )
    return ops.concatenate([rows, targets], axis=-2)


def _target_columns(target_positions, num_tokens, num_keys):
    """int32 [..., P, K]: the column of every key in the rows of targets."""
    first = num_tokens - target_positions
    return first[..., None] + ops.arange(num_keys, dtype="int32")


def _take_columns(rows, column):
    shape = [*ops.shape(rows)[:-1], ops.shape(column)[-1]]
    return ops.take_along_axis(rows, ops.broadcast_to(column, shape), axis=-1)
