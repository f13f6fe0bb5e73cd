"""Projections of keys and distances, without superfluous matrix products.

Shapes: B batch, T tokens, M memory length, K = M + T keys, N heads, H head dim,
D model dim.
"""

from keras import ops


def project_keys(projection, keys, memory=None):
    """Project all keys: the memory (without gradient) and the tokens after it.

    Memory and tokens are projected by separate products, because a single
    product of all keys would compute the gradient of the memory, too.

    Args:
        projection: AdaptableEinsumDense from D to N heads of length H.
        keys: float tensor of shape [B, T, D], the tokens.
        memory: float tensor of shape [B, M, D], or None (default).

    Returns:
        float tensor of shape [B, N, K, H].
    """
    projected = projection(keys)
    if memory is None:
        return projected
    remembered = projection(ops.stop_gradient(memory))
    return ops.concatenate([remembered, projected], axis=2)


def can_mirror_distances(dtype, projections):
    """Whether `project_distances` needs only non-negative distances.

    Args:
        dtype: str, type of the relative position encoding.
        projections: list of the layers that project the encoding.

    Returns:
        bool.
    """
    # A narrower type would round the sum of two products more than once. A
    # quantized layer computes the product itself.
    return dtype == "float32" and all(
        projection.quantization_mode is None for projection in projections
    )


def project_distances(projection, distances, num_tokens, has_reversed=False):
    """Project the relative position encoding to N heads.

    Args:
        projection: AdaptableEinsumDense from D to N heads of length H.
        distances: EncodedDistances.
        num_tokens: int or scalar tensor, T.
        has_reversed: bool, whether any example may be read backwards. Default
            False.

    Returns:
        float tensor of shape [1 or 2, N, K + T, H]. The rows that
        `distances.encoding` leaves out (the last `num_unneeded` rows) are 0.
    """
    encoding = distances.encoding
    if len(encoding.shape) == 3:
        position = projection(encoding)
        if not distances.num_unneeded:
            return position
        around = [[0, 0], [0, 0], [0, distances.num_unneeded], [0, 0]]
        return ops.pad(position, around)
    # The projected sines and cosines of the non-negative distances.
    kernel = ops.cast(projection.kernel, encoding.dtype)
    hidden_dim, num_heads, head_dim = kernel.shape
    width = hidden_dim // 2
    odd, even = ops.unstack(
        ops.einsum(
            "kpd,pdnh->pnkh",
            ops.reshape(encoding, [-1, 2, width]),
            ops.reshape(kernel, [2, width, num_heads, head_dim]),
        )
    )
    directions = [mirror_distances(even, odd, num_tokens)]
    if has_reversed:
        directions.append(mirror_distances(even, -odd, num_tokens))
    return ops.stack(directions)


def mirror_distances(even, odd, num_tokens):
    """Extend projections of non-negative distances to negative distances.

    Because sin(-d) = -sin(d) and cos(-d) = cos(d), the sines and the cosines of
    the non-negative distances are projected separately. A negative distance
    needs no projection of its own.

    Args:
        even, odd: tensors of shape [..., K, X] with any X, the projected
            cosines and the projected sines of the distances from K - 1 to 0.
        num_tokens: int or scalar tensor, T, at most K.

    Returns:
        tensor of shape [..., K + T, X]. Row r is for the distance K - r. The
        rows are even + odd for non-negative distances and even - odd for
        negative distances. Row 0, for the distance K, is never used and is a
        copy of row 1.
    """
    past = even + odd
    future = ops.flip(even - odd, axis=-2)[..., 1:num_tokens, :]
    return ops.concatenate([past[..., :1, :], past, future], axis=-2)
