"""Relative position encoding, reduced to the rows that attention needs.

The encoding is a table with a row for each distance. The reduced table gives
the same scores in less time. Negative distances follow from positive distances
by symmetry, unused distances are left out, and each block of tokens gets only
the distances from its tokens to the keys.

Shapes: T tokens, M memory length, K = M + T keys, R = K + T distances,
D model dim, H head dim, S tokens of a block.
"""

import functools
from typing import Any
from typing import NamedTuple

from keras import ops

from xlnet_tf.model.kernels.projections import can_mirror_distances
from xlnet_tf.model.kernels.scores import score_dtype
from xlnet_tf.model.relative_position import relative_position_encoding
from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.model.sizes import slice_axis


class EncodedDistances(NamedTuple):
    """Relative position encoding, made once for all layers of a forward pass.

    Attributes:
        encoding: float tensor. Its shape is [1 or 2, R - U, D] with
            U = `num_unneeded`. Entry 0 is for texts that are read forwards. If
            any example is reversed, entry 1 is for texts that are read
            backwards.
            Without dropout the shape may be [K, D], with only the distances
            from K - 1 to 0. The encodings of negative distances then follow
            from sin(-d) = -sin(d) and cos(-d) = cos(d).
        num_unneeded: int, number of rows that are left out at the end of the
            table. No token attends to keys at the distances of these rows.
    """

    encoding: Any
    num_unneeded: int


def encode_distances(
    num_tokens,
    num_keys,
    config,
    dtype,
    projections,
    drop=None,
    has_reversed=False,
    first_half_length=0,
):
    """Make the EncodedDistances of a forward pass.

    If `can_mirror_distances` returns True and there is no dropout, only
    non-negative distances are encoded, which saves work. With dropout the
    encoding of negative distances does not follow by symmetry.

    Args:
        num_tokens, num_keys: ints or scalar tensors, T and K.
        config: XLNetConfig.
        dtype: str, type of the encoding.
        projections: list of the layers that project the encoding.
        drop: function that applies dropout to the encoding, or None (default).
            All examples share one dropout mask. The released code draws one
            mask per example.
        has_reversed: bool, whether any example may be read backwards. Default
            False.
        first_half_length: int, see `AttentionRules`. Default 0.

    Returns:
        EncodedDistances.
    """
    encode = functools.partial(
        relative_position_encoding,
        hidden_dim=config.hidden_dim,
        clamp_length=config.clamp_length,
        dtype=score_dtype(dtype),
    )
    if drop is None and can_mirror_distances(dtype, projections):
        encoding = encode(1, num_keys - 1)
        return EncodedDistances(ops.cast(encoding, dtype), 0)
    directions = [False, True] if has_reversed else [False]
    encoding = ops.stack(
        [
            encode(num_tokens, num_keys, is_reversed=is_reversed)
            for is_reversed in directions
        ]
    )
    encoding = ops.cast(encoding, dtype)
    if drop is not None:
        encoding = drop(encoding)
    num_unneeded = num_unneeded_distances(num_tokens, first_half_length)
    if num_unneeded:
        encoding = encoding[:, :-num_unneeded]
    return EncodedDistances(encoding, num_unneeded)


def num_unneeded_distances(num_tokens, first_half_length):
    """Number of rows at the end of the encoding that no token needs.

    The T tokens consist of the prefix (`first_half_length`) and the rest. A
    token of the prefix attends to no token of the rest. No token therefore
    attends further ahead than the length of the prefix or of the rest,
    whichever is longer.

    Args:
        num_tokens: int, T. For a scalar tensor the result is 0.
        first_half_length: int, length of a prefix that cannot attend to the
            tokens after it. 0 means that there is no such prefix.

    Returns:
        int.
    """
    if not isinstance(num_tokens, int):
        return 0
    return min(first_half_length, num_tokens - first_half_length)


def make_position_blocks(position, num_tokens, num_keys, size=None):
    """Slice the projected distances into the distances of each block of tokens.

    A block of S tokens gets only K + S of the R distances. With 512 tokens, 896
    keys and S = 128, a token has scores for 1,024 distances instead of 1,408.

    Args:
        position: tensor of shape [..., R, H], the projected distances, largest
            distance first.
        num_tokens: int or scalar tensor, T.
        num_keys: int or scalar tensor, K.
        size: int, S, a divisor of T. Default: the largest divisor up to 128.

    Returns:
        tensor of shape [..., T / S, K + S, H]. Block b belongs to the S tokens
        from token b * S on.
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
    """Sum the blocks' gradients: the gradient of `make_position_blocks`.

    Args:
        gradient: tensor of shape [..., T / S, K + S, H], the gradient of the
            blocks.
        num_tokens: int or scalar tensor, T.

    Returns:
        tensor of shape [..., R, H], the gradient of the projected distances.
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
    """Return each block's first row in the table of distances."""
    return range(num_tokens - size, -1, -size)


def _block_size(num_tokens):
    """Return S, a divisor of T, or None for a single block of all tokens."""
    if not isinstance(num_tokens, int):
        return None
    sizes = [s for s in range(16, 129) if num_tokens % s == 0]
    return max(sizes, default=None)
