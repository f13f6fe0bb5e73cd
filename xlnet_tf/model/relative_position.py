"""Relative position encoding: sinusoids of distances from row to key.

Transformer-XL replaces absolute positions by a table of sinusoids, indexed by
the distance i - j from row i to key j (https://arxiv.org/abs/1901.02860,
section 3.3). Scores computed with the table are therefore indexed by distance,
and `kernels/relative_shift.py` re-indexes them by key.

Shapes: T tokens, M memory length, K = M + T keys, D model dim,
R = K + T distances.
"""

from keras import ops


def relative_position_encoding(
    num_tokens,
    num_keys,
    hidden_dim,
    clamp_length=0,
    is_reversed=False,
    dtype="float32",
):
    """Make a table of sinusoids, a row for each distance, largest first.

    Row r encodes the distance `num_keys - r`. Large positive distances (to keys
    far in the past) come first. Negative distances (to keys in the future) come
    last. The distances need at least float32, because bfloat16 rounds 511 to
    512.

    Args:
        num_tokens: int, T.
        num_keys: int, K = M + T.
        hidden_dim: int, D, even. The first half of a row holds sines, the
            second half cosines.
        clamp_length: int, limit of distances in both directions. 0 (default)
            means no limit.
        is_reversed: bool, whether the text is read backwards. All distances
            then change their sign. Default False.
        dtype: str, "float32" (default) or "float64".

    Returns:
        float tensor of shape [R, D].

    Source: `relative_positional_encoding` of the released code.
    """
    distance = ops.arange(num_keys, -num_tokens, -1, dtype=dtype)
    if clamp_length > 0:
        distance = ops.clip(distance, -clamp_length, clamp_length)
    if is_reversed:
        distance = -distance
    exponent = ops.arange(0, hidden_dim, 2, dtype=dtype) / hidden_dim
    angle = ops.outer(distance, ops.power(10000.0, -exponent))  # [R, D / 2]
    return ops.concatenate([ops.sin(angle), ops.cos(angle)], axis=-1)
