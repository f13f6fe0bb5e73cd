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


def both_signs(even, odd, num_tokens):
    """Everything by distance, from what its sign does not and does change.

    The cosines of a distance -d are those of d, and the sines are those of d
    with the other sign. So what a matrix makes of a half of R is to be computed
    for distances from 0 on alone.

    Args:
        even, odd: tensors of shape [..., K, X], by distances from K - 1 to 0.
        num_tokens: int or scalar of the backend, T, at most K.

    Returns:
        tensor of shape [..., K + T, X], by distance as R is: even + odd, and
        where distances are negative even - odd. In the row of the distance K,
        which no token has to a key, is a copy of the next.
    """
    past = even + odd
    future = ops.flip(even - odd, axis=-2)[..., 1:num_tokens, :]
    return ops.concatenate([past[..., :1, :], past, future], axis=-2)


def position_blocks(position, num_tokens, num_keys):
    """The distances that each block of tokens can have to a key.

    S tokens in a row see K + S - 1 distances together, not all K + T. Scored
    block by block, about a third of the products of 512 tokens and 896 keys
    are never made.

    Args:
        position: tensor of shape [..., K + T, H], by distance as R is.
        num_tokens: int, T, or a scalar of the backend.
        num_keys: int or scalar, K.

    Returns:
        tensor of shape [..., T / S, K + S, H]; block b is for the tokens from
        b S on.
    """
    size = _block_size(num_tokens)
    if size is None:
        return position[..., None, :, :]
    begins = range(num_tokens - size, -1, -size)
    return ops.stack(
        [position[..., b : b + num_keys + size, :] for b in begins], axis=-3
    )


def _block_size(num_tokens):
    """int S, a divisor of T; None for one block of all tokens."""
    if not isinstance(num_tokens, int):
        return None
    sizes = [s for s in range(16, 129) if num_tokens % s == 0]
    return max(sizes, default=None)


def tokens_by_key(scores, num_keys):
    """Re-indexes scores of S consecutive tokens from distance to key.

    Token t sits at position M + t, so its score for key k is that of distance
    M + t - k, found in column T - t + k; S - s + k in the block of its own.
    For S = 2 and K = 3:

        ..cde      cde
        .ghi.  =>  ghi

    Reading the same numbers in rows one shorter does this without a gather
    (Transformer-XL, appendix B).

    Args:
        scores: tensor of shape [..., S, K + S].
        num_keys: int, K.

    Returns:
        tensor of shape [..., S, K].
    """
    *batch, size, num_distances = ops.shape(scores)
    flat = ops.reshape(scores, [*batch, size * num_distances])
    rows = ops.reshape(flat[..., size:], [*batch, size, num_distances - 1])
    return rows[..., :num_keys]


def tokens_by_distance(scores):
    """The transpose of `tokens_by_key`, for its gradient.

    Args:
        scores: tensor of shape [..., S, K].

    Returns:
        tensor of shape [..., S, K + S]: every score at its distance, 0 at
        distances that no key has.
    """
    *batch, size, num_keys = ops.shape(scores)
    width = num_keys + size - 1
    around = [[0, 0]] * len(batch)
    # Of the row of zeros above, as many stay as there are rows. XLA takes five
    # times as long on a CPU to put zeros in front of the flat scores.
    rows = ops.pad(scores, [*around, [1, 0], [0, size - 1]])
    flat = ops.reshape(rows, [*batch, (size + 1) * width])
    return ops.reshape(flat[..., width - size :], [*batch, size, width + 1])


def targets_by_key(scores, target_positions, num_keys):
    """Re-indexes scores of target rows from distance to key.

    Each row is shifted by its own position: key k of the target at token t is
    found in column T - t + k.

    Args:
        scores: tensor of shape [..., P, K + T].
        target_positions: int32 tensor of shape [..., P], values in [0, T).
        num_keys: int, K.

    Returns:
        tensor of shape [..., P, K].
    """
    num_tokens = ops.shape(scores)[-1] - num_keys
    return _shift_left(
        scores[..., 1:],
        num_tokens - 1 - target_positions,
        num_tokens,
        num_keys,
    )


def targets_by_distance(scores, target_positions, num_tokens):
    """The transpose of `targets_by_key`, for its gradient.

    Args:
        scores: tensor of shape [..., P, K].
        target_positions: int32 tensor of shape [..., P], values in [0, T).
        num_tokens: int, T.

    Returns:
        tensor of shape [..., P, K + T], 0 at distances that no key has.
    """
    *batch, num_keys = ops.shape(scores)
    # A shift to the right, by as much as the others are shifted to the left.
    room = num_tokens
    if isinstance(num_tokens, int):
        room = 2 ** _num_bits(num_tokens)
    around = [[0, 0]] * len(batch)
    return _shift_left(
        ops.pad(scores, [*around, [room, num_tokens - 1]]),
        room - num_tokens + target_positions,
        room,
        num_keys + num_tokens,
    )


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
        has_bit = ops.bitwise_and(amount, step) != 0
        rows = ops.where(
            has_bit[..., None], rows[..., step : step + rest], rows[..., :rest]
        )
    return rows[..., :width]
