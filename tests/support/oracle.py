"""The equations of the papers, in plain loops, and small inputs for them.

The loops follow https://arxiv.org/abs/1901.02860 (section 3.3, appendix B) and
https://arxiv.org/abs/1906.08237 (sections 2.3 to 2.5), and share no code with
the library.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, N heads, H head dim, D model dim. Every axis is a different
prime (D, which is even, twice a prime), so that swapped axes cannot pass.
"""

import keras
import numpy as np

from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig

B, T, M, P = 3, 13, 5, 7
SIZES = dict(
    vocabulary_size=97,
    num_layers=2,
    num_heads=11,
    head_dim=17,
    hidden_dim=38,
    intermediate_dim=23,
)


def small_config(**overrides):
    return XLNetConfig(**{**SIZES, **overrides})


def randomize(model, seed=0):
    """Assign random values to every weight, also to biases and norms."""
    random = np.random.default_rng(seed)
    for weight in model.trainable_weights:
        value = random.normal(0, 0.15, weight.shape)
        if weight.name == "gamma":
            value = value + 1
        weight.assign(value.astype("float32"))
    return model


def small_backbone(seed=0, dtype=None, **overrides):
    model = XLNetBackbone(small_config(**overrides), dtype=dtype)
    return randomize(model, seed)


def small_features(seed=0, batch=B, memory_length=0, is_padded=True):
    """Random features; padding is left in odd rows and right in even rows."""
    random = np.random.default_rng(seed)
    padding_mask = np.ones((batch, T), "int32")
    if is_padded:
        for row in range(batch):
            width = 2 + row % 3
            padding = slice(0, width) if row % 2 else slice(T - width, T)
            padding_mask[row, padding] = 0
    rank = np.full((batch, T), -1, "int32")
    positions = np.zeros((batch, P), "int32")
    for row in range(batch):
        real = np.flatnonzero(padding_mask[row])
        positions[row] = np.sort(random.choice(real, P, replace=False))
        rank[row, positions[row]] = random.permutation(P)
    # All tokens of a row differ, so that each has its own embedding.
    tokens = [random.permutation(97)[:T] for _ in range(batch)]
    features = dict(
        token_ids=np.array(tokens, "int32"),
        segment_ids=random.integers(0, 3, (batch, T)).astype("int32"),
        factorization_rank=rank,
        target_positions=positions,
        is_reversed=np.arange(batch) % 3 == 1,
    )
    if is_padded:
        features["padding_mask"] = padding_mask
    if memory_length:
        shape = (batch, memory_length, SIZES["hidden_dim"])
        features["memories"] = tuple(
            random.normal(size=shape).astype("float32")
            for _ in range(SIZES["num_layers"])
        )
        remembered = random.integers(0, memory_length, (batch, 1))
        features["memory_mask"] = np.arange(memory_length) >= remembered
    return features


def with_targets(features, seed=0):
    """Add labels: the true tokens, and weights that are not all 1."""
    random = np.random.default_rng(seed)
    shape = features["target_positions"].shape
    target_ids = np.take_along_axis(
        features["token_ids"], features["target_positions"], axis=1
    )
    weights = random.uniform(0.25, 2, shape).astype("float32")
    weights[:, -1] = 0
    return {**features, "target_ids": target_ids, "target_weights": weights}


def literal(features):
    """The same features, with the released `perm_mask` and `target_mapping`."""
    features = dict(features)
    rank = features.pop("factorization_rank")
    positions = features.pop("target_positions")
    num_tokens = rank.shape[1]
    perm_mask = np.zeros((*rank.shape, num_tokens), "float32")
    for b, i, j in np.ndindex(perm_mask.shape):
        # All tokens see the context; only tokens later in the order see a
        # target, so not the target itself.
        if rank[b, j] >= 0 and rank[b, j] >= rank[b, i]:
            perm_mask[b, i, j] = 1
    mapping = np.zeros((*positions.shape, num_tokens), "float32")
    for b, p in np.ndindex(positions.shape):
        mapping[b, p, positions[b, p]] = 1
    return {**features, "perm_mask": perm_mask, "target_mapping": mapping}


def as_numpy(tree):
    return keras.tree.map_structure(keras.ops.convert_to_numpy, tree)


def largest_difference(tree, other):
    """The largest absolute difference between two structures of arrays."""
    keras.tree.assert_same_structure(tree, other)
    return max(
        np.abs(np.asarray(x, "float64") - np.asarray(y, "float64")).max()
        for x, y in zip(
            keras.tree.flatten(as_numpy(tree)),
            keras.tree.flatten(as_numpy(other)),
            strict=True,
        )
    )


def sinusoid(distance, hidden_dim):
    """Row of R for one distance: sines, then cosines."""
    half = hidden_dim // 2
    angles = [distance / 10000 ** (2 * m / hidden_dim) for m in range(half)]
    return np.array([*np.sin(angles), *np.cos(angles)])


def may_attend(features, b, i, j, is_query):
    """Whether token i of row b may attend to token j of the same segment."""
    rank = features["factorization_rank"][b]
    real = features.get("padding_mask", np.ones_like(rank[None]))
    if i == j:
        return not is_query
    if features.get("padding_mask") is not None and not real[b, j]:
        return False
    return rank[j] < rank[i] if is_query else rank[j] <= rank[i]


def attention_mask(features, memory_length):
    """bool [B, T + P, M + T], True = may attend, by loops."""
    positions = features["target_positions"]
    rows = [(i, False) for i in range(T)] + [(p, True) for p in range(P)]
    mask = np.zeros((len(positions), T + P, memory_length + T), bool)
    for b, r, k in np.ndindex(mask.shape):
        i, is_query = rows[r]
        if k < memory_length:
            mask[b, r, k] = features["memory_mask"][b, k]
        else:
            i = positions[b, i] if is_query else i
            mask[b, r, k] = may_attend(
                features, b, i, k - memory_length, is_query
            )
    return mask


def relative_attention(
    rows, keys, weights, row_position, mask, segments, is_reversed, clamp=0
):
    """Attention by four loops, in float64.

    Args:
        rows: [B, Q, D].
        keys: [B, K, D]; key j is at position j.
        weights: dict of q, k, v, r, o [D, N, H], u, v_bias, b [N, H], s
            [2, N, H].
        row_position: int [B, Q], position of each row on the axis of the keys.
        mask: bool [B, Q, K], True = may attend.
        segments: pair of int [B, Q] and [B, K], the rows' and the keys'
            segments.
        is_reversed: bool [B], distances change their sign.
        clamp: int, limit of distances, 0 for no limit.

    Returns:
        [B, Q, D].
    """
    rows, keys = np.asarray(rows, "float64"), np.asarray(keys, "float64")
    w = {name: np.asarray(x, "float64") for name, x in weights.items()}
    num_heads, head_dim = w["u"].shape
    hidden_dim = rows.shape[-1]
    output = np.zeros_like(rows)
    for b, i, n in np.ndindex(*rows.shape[:2], num_heads):
        query = rows[b, i] @ w["q"][:, n]
        scores = np.full(keys.shape[1], -np.inf)
        for j in range(keys.shape[1]):
            if not mask[b, i, j]:
                continue
            distance = int(row_position[b, i]) - j
            if clamp:
                distance = max(-clamp, min(clamp, distance))
            if is_reversed[b]:
                distance = -distance
            position = sinusoid(distance, hidden_dim) @ w["r"][:, n]
            differs = int(segments[0][b, i] != segments[1][b, j])
            content = keys[b, j] @ w["k"][:, n]
            scores[j] = (query + w["u"][n]) @ content
            scores[j] += (query + w["v_bias"][n]) @ position
            scores[j] += (query + w["b"][n]) @ w["s"][differs, n]
        if not mask[b, i].any():
            continue  # nothing to attend to: no information
        scores = np.exp((scores - scores.max()) / np.sqrt(head_dim))
        probability = scores / scores.sum()
        value = keys[b] @ w["v"][:, n]
        output[b, i] += w["o"][:, n] @ (probability @ value)
    return output
