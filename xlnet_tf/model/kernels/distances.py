"""R, the table of distances, with only the rows that are needed.

This gives the same numbers in less time: negative distances follow by symmetry,
unused distances are left out, and each block of tokens gets only its own
distances.

Shapes: T tokens, K = M + T keys, R = K + T distances, H head dim, S tokens of a
block.
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
    """R, made once for all layers of a forward pass.

    Attributes:
        encoding: float tensor of shape [1 or 2, K + T, D]: R forwards, and R of
            a text read backwards, without the `num_unneeded` rows. Or, without
            dropout, [K, D]: only non-negative distances, from K - 1 to 0.
            Negative ones follow from sin(-d) = -sin(d), cos(-d) = cos(d).
        num_unneeded: int, number of unused last rows of R.
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
    """Encode the distances of a forward pass.

    Args:
        num_tokens, num_keys: ints or scalars of the backend, T and K.
        config: XLNetConfig.
        dtype: str, of the encoding.
        projections: list of layers that project the encoding. If all can extend
            it to negative distances and `drop` is None, only non-negative
            distances are encoded: half the work. Dropped values are not
            symmetric.
        drop: function that applies dropout to R, or None (default). All
            examples share one mask; the released code draws one per example.
        has_reversed: bool, whether any row may be read backwards.
        first_half_length: int, see `AttentionRules`.

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
    """Number of last rows of R that are unused with a first half.

    A row then looks ahead only within that half, or within the rest.

    Args:
        num_tokens: int, T, or a scalar of the backend; then the result is 0.
        first_half_length: int, length of a prefix that cannot see the tokens
            after it; 0 for no such prefix.

    Returns:
        int.
    """
    if not isinstance(num_tokens, int):
        return 0
    return min(first_half_length, num_tokens - first_half_length)


def make_position_blocks(position, num_tokens, num_keys, size=None):
    """Slice the table of distances: each block's distances.

    S consecutive tokens have only K + S - 1 distances to the keys, not K + T.
    Scored block by block, 512 tokens and 896 keys need about a third fewer
    products.

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
    """First row of each block in the table of distances."""
    return range(num_tokens - size, -1, -size)


def _block_size(num_tokens):
    """int S, a divisor of T; None for one block of all tokens."""
    if not isinstance(num_tokens, int):
        return None
    sizes = [s for s in range(16, 129) if num_tokens % s == 0]
    return max(sizes, default=None)
