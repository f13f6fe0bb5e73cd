"""Inputs for comparisons of attention kernels, as NumPy arrays."""

import numpy as np

B, N, H = 2, 2, 64


def operands(tokens, memory, targets, directions=1, streams="both"):
    """Float inputs of a kernel, a list of arrays of normal numbers.

    Args:
        tokens, memory, targets: ints, T, M and P.
        directions: int, 2 if rows may be reversed.
        streams: str, see AttentionRules.
    """
    random = np.random.default_rng(0)
    keys = memory + tokens
    rows = targets + (tokens if streams == "both" else 0)
    shapes = (
        (B, N, rows, H),
        *[(N, H)] * 4,
        *[(B, N, keys, H)] * 2,
        (directions, N, keys + tokens, H),
    )
    return [random.normal(size=shape).astype("float32") for shape in shapes]


def rules_of(inputs, targets, **changes):
    """Fields of AttentionRules: masks, segments, positions and dropout.

    Args:
        inputs: list made by `operands`, or tensors of the same shapes.
        targets: int, P.
        **changes: fields to replace.

    Returns:
        dict.
    """
    random = np.random.default_rng(1)
    rows, keys = inputs[0].shape[2], inputs[5].shape[2]
    tokens = inputs[7].shape[2] - keys
    mask = random.random((B, rows, keys)) < 0.6
    mask[1, 3:4] = False  # a row that sees nothing
    values = {
        "mask": mask,
        "other_segment": random.random((B, rows, keys)) < 0.5,
        "is_reversed": None,
        "target_positions": None,
        "dropout": 0.1,
        "seed": np.array([3, 5], "uint32"),
    }
    position = np.tile(np.arange(tokens), (B, 1))
    if targets:
        positions = random.integers(0, tokens, (B, targets))
        values["target_positions"] = positions.astype("int32")
        position = np.concatenate([position, positions], axis=1)
    first = changes.get("first_half_length", 0)
    position = position[:, position.shape[1] - rows :, None]
    in_first = position < first
    mask &= ~(in_first & (np.arange(keys) >= keys - tokens + first))
    return values | changes
