"""Texts longer than a segment, computed segment by segment with memory.

Shapes: B batch, T tokens of a text, M memory length, D model dim, L layers.
"""

import contextlib

import keras
from keras import ops

from xlnet_tf.model.dropout import fold_in

# Values of features in the padding on the left, which fills up the first
# segment.
_FILLERS = {"token_ids": 0, "segment_ids": 4, "padding_mask": 0}


def remember_segments(backbone, features, segment_length, training=None):
    """Compute the memories from all segments of a text except the last.

    Computing time grows linearly with the length of the text, but RAM does not
    grow. As in pretraining, gradients stop at the start of the last segment.
    Memories exclude padding.

    Args:
        backbone: XLNetBackbone with a `memory_length`.
        features: dict of `token_ids` [B, T], and optionally `segment_ids`,
            `padding_mask` and `dropout_seed`. Padding is on the left.
        segment_length: int, number of tokens of a segment.
        training: bool, whether dropout is applied.

    Returns:
        dict of the features of the last segment, with `memories` and
        `memory_mask`.

    Raises:
        ValueError: if `features` has a feature that cannot be cut into
            segments, such as `perm_mask`.

    Source: section 3.2 of https://arxiv.org/abs/1901.02860.
    """
    seed = features.get("dropout_seed")
    features = _whole_segments(features, segment_length)
    batch_size, length = ops.shape(features["token_ids"])
    count = length // segment_length

    def segment(index):
        taken = {
            name: _slice(value, index, segment_length)
            for name, value in features.items()
        }
        if seed is not None:
            taken["dropout_seed"] = fold_in(seed, index)
        return taken

    def read(index, memory_mask, *memories):
        with _without_gradient(backbone):
            outputs = backbone(
                {
                    **segment(index),
                    "memories": memories,
                    "memory_mask": memory_mask,
                },
                training=training,
            )
        return (index + 1, outputs["memory_mask"], *outputs["memories"])

    config = backbone.config
    shape = (batch_size, config.memory_length, config.hidden_dim)
    _, memory_mask, *memories = ops.while_loop(
        lambda index, *_: index < count - 1,
        read,
        (
            ops.zeros((), "int32"),
            ops.zeros(shape[:2], "bool"),
            *(
                ops.zeros(shape, backbone.compute_dtype)
                for _ in range(config.num_layers)
            ),
        ),
    )
    return {
        **segment(count - 1),
        "memories": tuple(ops.stop_gradient(x) for x in memories),
        "memory_mask": memory_mask,
    }


def _without_gradient(model):
    """Context with constant weights for backends other than TensorFlow.

    JAX refuses the custom gradient of attention in a loop, even if no gradient
    is needed. With constant weights, JAX does not use this custom gradient.
    """
    if keras.backend.backend() == "tensorflow":
        return contextlib.nullcontext()
    constants = [(v, ops.stop_gradient(v.value)) for v in model.variables]
    return keras.StatelessScope(state_mapping=constants)


def _whole_segments(features, segment_length):
    """Pad features of the shape [B, T] to a whole number of segments."""
    features = {
        name: value
        for name, value in features.items()
        if value is not None and name != "dropout_seed"
    }
    unknown = sorted(set(features) - set(_FILLERS))
    if unknown:
        raise ValueError(
            "texts read in segments take `token_ids`, `segment_ids` and "
            f"`padding_mask`. Received: {', '.join(unknown)}."
        )
    if "padding_mask" not in features:
        features["padding_mask"] = ops.ones_like(features["token_ids"])
    return {
        name: _pad(value, _FILLERS[name], segment_length)
        for name, value in features.items()
    }


def _pad(value, filler, segment_length):
    batch_size, length = ops.shape(value)
    missing = -length % segment_length
    return ops.concatenate(
        [ops.full((batch_size, missing), filler, value.dtype), value], axis=1
    )


def _slice(value, index, length):
    return ops.slice(value, (0, index * length), (ops.shape(value)[0], length))
