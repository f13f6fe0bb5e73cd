"""Projections of keys and distances, with only the necessary products.

Shapes: B batch, T tokens, M memory length, K = M + T keys, R = K + T distances,
N heads, H head dim, D model dim.
"""

from keras import ops


def project_keys(projection, keys, memory=None):
    """Project memory, without a gradient, and the tokens after it.

    Two products: one product of all keys would still compute the gradient of
    memory.

    Args:
        projection: AdaptableEinsumDense from D to N heads of H.
        keys: float tensor of shape [B, K - M, D].
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
        dtype: str, of R.
        projections: list of layers.

    Returns:
        bool.
    """
    # A narrow type would round the sum of two products more than once, and a
    # quantized layer computes its own product.
    return dtype == "float32" and all(
        projection.quantization_mode is None for projection in projections
    )


def project_distances(projection, distances, num_tokens, has_reversed=False):
    """Project R to keys by distance.

    Args:
        projection: AdaptableEinsumDense from D to N heads of H.
        distances: EncodedDistances.
        num_tokens: int or scalar of the backend, T.
        has_reversed: bool, whether any row may be read backwards.

    Returns:
        float tensor of shape [1 or 2, N, K + T, H], 0 for omitted rows of R.
    """
    encoding = distances.encoding
    if len(encoding.shape) == 3:
        position = projection(encoding)
        if not distances.num_unneeded:
            return position
        around = [[0, 0], [0, 0], [0, distances.num_unneeded], [0, 0]]
        return ops.pad(position, around)
    # The products of sines and of cosines, for non-negative distances.
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
    """Extend projections of non-negative distances to negative ones.

    sin(-d) = -sin(d) and cos(-d) = cos(d), so R is projected only for
    non-negative distances, sines and cosines separately.

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
