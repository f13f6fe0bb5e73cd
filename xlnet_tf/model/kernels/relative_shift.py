"""Relative shift, which re-indexes position scores from distance to key.

A row has a position score for each distance. After the shift, the row has a
position score for each key, which can be added to the content score of the key
(Transformer-XL, appendix B). `plain.py` shifts with a single gather. The
functions here are faster.

Shapes: T tokens, M memory length, K = M + T keys, P targets, R distances,
S tokens of a block, W columns.
"""

import numpy as np
from keras import ops

from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.model.sizes import slice_axis


def relative_shift(scores, num_keys):
    """Re-index scores of S consecutive tokens from distance to key.

    Token t is at position M + t of the keys. Its score for key k is thus the
    score for the distance M + t - k. With all T tokens, column i has the
    distance K - i, so this score is in column T - t + k. In a block of S
    tokens, the score of the block's token s for key k is in column S - s + k.
    For S = 2 and K = 3, with dots for distances without a key:

        ..cde      cde
        .ghi.  =>  ghi

    To shift without a gather, the function reshapes the scores to rows that are
    shorter by one column (Transformer-XL, appendix B).

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
    """Re-index scores from key to distance: the gradient of `relative_shift`.

    Args:
        scores: tensor of shape [..., S, K].

    Returns:
        tensor of shape [..., S, K + S], 0 at distances without a key.
    """
    *batch, size, num_keys = sizes_of(scores)
    width = num_keys + size - 1
    around = [[0, 0]] * len(batch)
    # The padded row leaves S zeros in front. Padding the flat scores instead
    # takes XLA five times as long on a CPU.
    rows = ops.pad(scores, [*around, [1, 0], [0, size - 1]])
    flat = ops.reshape(rows, [*batch, (size + 1) * width])
    rows = slice_axis(flat, width - size, size * (width + 1))
    return ops.reshape(rows, [*batch, size, width + 1])


def relative_shift_targets(scores, target_positions, num_keys, num_tokens):
    """Re-index scores of target rows from distance to key.

    Each row is shifted by the position of its target. If the target is token t,
    the row's score for key k is in column T - t + k.

    Args:
        scores: tensor of shape [..., P, R] with R = K + T. If all sizes are
            ints, R may be smaller; keys at missing distances get the score 0.
        target_positions: int32 tensor of shape [..., P], values in [0, T).
        num_keys, num_tokens: ints or scalar tensors, K and T.

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
    """Compute the gradient of `relative_shift_targets`, indexed by distance.

    Args:
        scores: tensor of shape [..., P, K], the gradient of the scores by key.
        target_positions: int32 tensor of shape [..., P], values in [0, T).
        num_tokens, num_distances: ints or scalar tensors, T and R.

    Returns:
        tensor of shape [..., P, R], 0 at distances without a key.
    """
    *batch, num_keys = sizes_of(scores)
    # A shift to the right equals padding on the left and a shift to the left.
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
    """Number of bits of the largest number below `count`, int."""
    return (count - 1).bit_length()


def _shift_left(rows, amount, num_amounts, width):
    """Shift row p to the left by `amount[p]` columns.

    The function shifts once for each bit of the amount. It begins with the
    largest bit, so that later steps have shorter rows. Each step selects
    between two slices, and compilers fuse this selection. A gather of single
    elements would take twice as long on a CPU, and would move many times as
    many bytes on a TPU.

    Args:
        rows: tensor of shape [..., P, W].
        amount: int32 tensor of shape [..., P], values in [0, num_amounts).
        num_amounts: int, upper bound of `amount`; or a scalar tensor if lengths
            are not known before the call, as in exports. With a scalar tensor
            the function gathers.
        width: int or scalar tensor, number of columns of the result.

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
    # A single operation splits all bits, because an operation for each bit
    # would slow down tracing.
    of_steps = ops.split(has_bit, num_bits, axis=-1) if steps else ()
    for step, of_step in zip(steps, of_steps, strict=True):
        rest = width + step - 1
        rows = ops.where(
            of_step, slice_axis(rows, step, rest), slice_axis(rows, 0, rest)
        )
    return rows if steps else slice_axis(rows, 0, width)
