"""Relative positions: sinusoids of distances, and the relative shift.

Transformer-XL replaces absolute positions by R, a table of sinusoids indexed by
the distance i - j from query i to key j (https://arxiv.org/abs/1901.02860,
section 3.3). Scores against R are indexed by distance; the relative shift
re-indexes them by key, so that they add up with the content scores.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
N heads, D model dim, R = K + T distances, S tokens of a block.
"""

import functools

import numpy as np
from keras import ops

from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.model.sizes import slice_axis


def relative_position_encoding(
    num_tokens,
    num_keys,
    hidden_dim,
    clamp_length=0,
    is_reversed=False,
    dtype="float32",
):
    """R, the sinusoid of every distance from `num_keys` down.

    Row r encodes the distance `num_keys - r`: large positive distances (far in
    the past) come first, negative ones (the future) last. No type narrower than
    float32 will do: bfloat16 cannot tell 511 from 512.

    Args:
        num_tokens: int, T.
        num_keys: int, K = M + T.
        hidden_dim: int, D, even. The first half are sines, the second cosines.
        clamp_length: int, distances beyond it, either way, count as it; 0 means
            no limit.
        is_reversed: bool, whether the text is read backwards: every distance
            changes its sign.
        dtype: str, "float32" (default) or "float64".

    Returns:
        float tensor of shape [K + T, D].

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


def mirror_distances(even, odd, num_tokens):
    """Extend projections of non-negative distances to negative ones.

    sin(-d) = -sin(d) and cos(-d) = cos(d), so the projection of R needs
    computing for non-negative distances only, sines and cosines apart.

    Args:
        even, odd: tensors of shape [..., K, X], the projected cosines and
            sines, by distances from K - 1 to 0.
        num_tokens: int or scalar of the backend, T, at most K.

    Returns:
        tensor of shape [..., K + T, X], indexed by distance as R is: even +
        odd, and for negative distances even - odd. Row 0 (distance K) is never
        used; it holds a copy of row 1.
    """
    past = even + odd
    future = ops.flip(even - odd, axis=-2)[..., 1:num_tokens, :]
    return ops.concatenate([past[..., :1, :], past, future], axis=-2)


def num_unneeded_distances(num_tokens, first_half_length):
    """Number of last rows of R that are unused if a first half is promised.

    Nothing then looks ahead further than within that half, or within the rest.

    Args:
        num_tokens: int, T, or a scalar of the backend, by which it is 0.
        first_half_length: int, so many tokens see none of those behind; 0 for
            no such half.

    Returns:
        int.
    """
    if not isinstance(num_tokens, int):
        return 0
    return min(first_half_length, num_tokens - first_half_length)


def make_position_blocks(position, num_tokens, num_keys, size=None):
    """Slice the table of distances: for each block of tokens, those it needs.

    S consecutive tokens have K + S - 1 distances to the keys together, not all
    K + T. Scored block by block, about a third of the products of 512 tokens
    and 896 keys are never computed.

    Args:
        position: tensor of shape [..., K + T, H], by distance as R is.
        num_tokens: int, T, or a scalar of the backend.
        num_keys: int or scalar, K.
        size: int, S, a divisor of T. Default the largest up to 128.

    Returns:
        tensor of shape [..., T / S, K + S, H]; block b belongs to the tokens
        from b S on.
    """
    size = size or _block_size(num_tokens)
    if size is None:
        return position[..., None, :, :]
    return ops.stack(
        [
            slice_axis(position, begin, num_keys + size, axis=-2)
            for begin in _block_begins(num_tokens, size)
        ],
        axis=-3,
    )


def sum_position_blocks(gradient, num_tokens):
    """Gradient of the table of distances, the transpose of the slices.

    Args:
        gradient: tensor of shape [..., T / S, K + S, H], of
            `make_position_blocks`.
        num_tokens: int, T, or a scalar of the backend.

    Returns:
        tensor of shape [..., K + T, H].
    """
    size = _block_size(num_tokens)
    if size is None:
        return gradient[..., 0, :, :]
    blocks = ops.unstack(gradient, num_tokens // size, axis=-3)
    around = [[0, 0]] * (len(sizes_of(gradient)) - 3)
    return functools.reduce(
        ops.add,
        (
            ops.pad(
                block, [*around, [begin, num_tokens - size - begin], [0, 0]]
            )
            for begin, block in zip(
                _block_begins(num_tokens, size), blocks, strict=True
            )
        ),
    )


def _block_begins(num_tokens, size):
    """First row of the table of distances that each block needs."""
    return range(num_tokens - size, -1, -size)


def _block_size(num_tokens):
    """int S, a divisor of T; None for one block of all tokens."""
    if not isinstance(num_tokens, int):
        return None
    sizes = [s for s in range(16, 129) if num_tokens % s == 0]
    return max(sizes, default=None)


def relative_shift(scores, num_keys):
    """Re-index scores of S consecutive tokens from distance to key.

    Token t stands at position M + t, so its score for key k is the one of
    distance M + t - k, in column T - t + k; in a block, token s has it in
    column S - s + k. For S = 2 and K = 3:

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
    *batch, size, num_distances = sizes_of(scores)
    flat = ops.reshape(scores, [*batch, size * num_distances])
    width = num_distances - 1
    rows = slice_axis(flat, size, size * width)
    rows = ops.reshape(rows, [*batch, size, width])
    return slice_axis(rows, 0, num_keys)


def relative_shift_transpose(scores):
    """Re-index scores from key to distance, the gradient of the shift.

    Args:
        scores: tensor of shape [..., S, K].

    Returns:
        tensor of shape [..., S, K + S], 0 at distances that no key has.
    """
    *batch, size, num_keys = sizes_of(scores)
    width = num_keys + size - 1
    around = [[0, 0]] * len(batch)
    # S zeros of the padded row remain in front. XLA takes five times as long
    # on a CPU to pad the flat scores.
    rows = ops.pad(scores, [*around, [1, 0], [0, size - 1]])
    flat = ops.reshape(rows, [*batch, (size + 1) * width])
    rows = slice_axis(flat, width - size, size * (width + 1))
    return ops.reshape(rows, [*batch, size, width + 1])


def relative_shift_targets(scores, target_positions, num_keys, num_tokens):
    """Re-index scores of target rows from distance to key.

    Each row is shifted by its own position: the target at token t has its
    score for key k in column T - t + k.

    Args:
        scores: tensor of shape [..., P, R], R = K + T, or less where sizes are
            ints: keys at the distances that are missing get 0.
        target_positions: int32 tensor of shape [..., P], values in [0, T).
        num_keys, num_tokens: ints, or scalars of the backend, K and T.

    Returns:
        tensor of shape [..., P, K].
    """
    return _shift_left(
        slice_axis(scores, 1, sizes_of(scores)[-1] - 1),
        num_tokens - 1 - target_positions,
        num_tokens,
        num_keys,
    )


def relative_shift_targets_transpose(
    scores, target_positions, num_tokens, num_distances
):
    """Re-index target scores from key to distance, the gradient of the shift.

    Args:
        scores: tensor of shape [..., P, K].
        target_positions: int32 tensor of shape [..., P], values in [0, T).
        num_tokens, num_distances: ints, or scalars of the backend, T and R.

    Returns:
        tensor of shape [..., P, R], 0 at distances that no key has.
    """
    *batch, num_keys = sizes_of(scores)
    # A shift to the right, as a shift to the left of padded rows.
    room = num_tokens
    if isinstance(num_tokens, int):
        room = 2 ** _num_bits(num_tokens)
    around = [[0, 0]] * len(batch)
    return _shift_left(
        ops.pad(scores, [*around, [room, num_distances - num_keys - 1]]),
        room - num_tokens + target_positions,
        room,
        num_distances,
    )


def _num_bits(count):
    """int, the number of bits of the numbers below `count`."""
    return (count - 1).bit_length()


def _shift_left(rows, amount, num_amounts, width):
    """Shift row p to the left by `amount[p]` columns.

    Shifts by the bits of the amount, largest first, so that rows soon get
    shorter. Each step selects between two slices, which compilers fuse; a
    gather of single elements takes twice the time on a CPU and moves many
    times the bytes on a TPU.

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
        shape = [*sizes_of(rows)[:-1], width]
        column = ops.broadcast_to(column, shape)
        return ops.take_along_axis(rows, column, axis=-1)
    num_bits = _num_bits(num_amounts)
    missing = width + 2**num_bits - 1 - sizes_of(rows)[-1]
    if missing > 0:
        around = [[0, 0]] * (len(sizes_of(rows)) - 1)
        rows = ops.pad(rows, [*around, [0, missing]])
    steps = [2**bit for bit in reversed(range(num_bits))]
    amount = ops.expand_dims(amount, -1)
    has_bit = ops.bitwise_and(amount, np.array(steps, "int32")) != 0
    # One split of all bits: an operation for each bit would slow down tracing.
    of_steps = ops.split(has_bit, num_bits, axis=-1) if steps else ()
    for step, of_step in zip(steps, of_steps, strict=True):
        rest = width + step - 1
        rows = ops.where(
            of_step, slice_axis(rows, step, rest), slice_axis(rows, 0, rest)
        )
    return rows if steps else slice_axis(rows, 0, width)
