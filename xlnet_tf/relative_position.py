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
    *batch, _, num_distances = ops.shape(scores)
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
    targets = _shift_left(
        scores[..., num_tokens:, 1:],
        num_tokens - 1 - target_positions,
        num_tokens,
        num_keys,
    )
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
    *batch, _, num_keys = ops.shape(scores)
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
    # A shift to the right, by as much as the others are shifted to the left.
    room = num_tokens
    if isinstance(num_tokens, int):
        room = 2 ** _num_bits(num_tokens)
    targets = ops.pad(
        scores[..., num_tokens:, :],
        [*around, [0, 0], [room, num_tokens - 1]],
    )
    targets = _shift_left(
        targets,
        room - num_tokens + target_positions,
        room,
        num_distances,
    )
    return ops.concatenate([rows, targets], axis=-2)


def _num_bits(count):
    """Bits of the numbers below `count`."""
    return (count - 1).bit_length()


def _shift_left(rows, amount, num_amounts, width):
    """Row p of the result is row p from column `amount[p]` on.

    Shifts by the bits of the amount, largest first, so that rows soon get
    shorter. Each is a choice between two slices, which compilers fuse; a
    gather of single elements takes twice the time on a CPU and moves many
    times the bytes on a TPU (BUILD.md, "What was tried").

    Args:
        rows: tensor of shape [..., P, W].
        amount: int32 tensor of shape [..., P], in [0, num_amounts).
        num_amounts: int, or a scalar of the backend where lengths are not
            known before the call, as in exports; then a gather must do.
        width: int or scalar, columns of the result.

    Returns:
        tensor of shape [..., P, width].
    """
    if not isinstance(num_amounts, int) or not isinstance(width, int):
        column = amount[..., None] + ops.arange(width, dtype="int32")
        shape = [*ops.shape(rows)[:-1], width]
        column = ops.broadcast_to(column, shape)
        return ops.take_along_axis(rows, column, axis=-1)
    num_bits = _num_bits(num_amounts)
    missing = width + 2**num_bits - 1 - ops.shape(rows)[-1]
    if missing > 0:
        around = [[0, 0]] * (len(ops.shape(rows)) - 1)
        rows = ops.pad(rows, [*around, [0, missing]])
    for bit in reversed(range(num_bits)):
        step = 2**bit
        rest = width + step - 1
        has_bit = ops.right_shift(amount, bit) % 2 == 1
        rows = ops.where(
            has_bit[..., None], rows[..., step : step + rest], rows[..., :rest]
        )
    return rows[..., :width]
