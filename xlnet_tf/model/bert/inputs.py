"""Checks of BERT's input features, and their default values.

Shapes: B batch, T tokens.
"""

from keras import ops

from xlnet_tf.model.inputs import check_shape
from xlnet_tf.model.inputs import given_features
from xlnet_tf.model.inputs import refuse_features
from xlnet_tf.model.sizes import sizes_of

_NOT_OF_BERT = {
    "memories": "there is no memory",
    "memory_mask": "there is no memory",
    "is_reversed": "its positions are absolute, so reverse the tokens",
}


def check_features(features, config, streams):
    """Check the features of a BertBackbone; add positions and segments.

    Args:
        features: dict, see `BertBackbone`, or `token_ids` alone.
        config: BertConfig.
        streams: str, see `BertBackbone`.

    Returns:
        dict of the features that are not None, with int32 `position_ids` of
        shape [B or 1, T]. If the config has segments, the dict contains int32
        `segment_ids` of shape [B or 1, T], whose values are below
        `num_segments`.

    Raises:
        ValueError: if features are missing, misspelt or not for BERT, if
            there are more tokens than `max_positions`, or if shapes are
            inconsistent.
    """
    if streams != "both":
        raise ValueError(
            'a BertBackbone has no query stream: `streams` must be "both". '
            f"Received: streams={streams!r}. Choose an objective that reads "
            "`content`."
        )
    features = given_features(features)
    refuse_features(features, "BertBackbone", _NOT_OF_BERT)
    if "is_pseudo" in features and "factorization_rank" not in features:
        raise ValueError(
            "`is_pseudo` needs `factorization_rank`, the step of each token. "
            f"Received: {', '.join(features)}."
        )
    features["position_ids"] = _positions(features, config)
    if config.num_segments:
        features["segment_ids"] = _segments(features, config)
    return features


def real_positions(padding_mask):
    """Number each example's real tokens from 0; do not count padding.

    Args:
        padding_mask: int32 tensor of shape [B, T], 1 = a real token.

    Returns:
        int32 tensor of shape [B, T], the positions. Padding gets the position
        of the last real token before it, or 0 if no real token precedes it.
    """
    return ops.maximum(ops.cumsum(padding_mask, axis=1) - 1, 0)


def _segments(features, config):
    """Return the segments, int32 [B or 1, T], below `num_segments`.

    Larger values become the last segment. XLNet's layouts use such values for
    the class token and for padding.
    """
    if "segment_ids" not in features:
        return ops.zeros_like(features["token_ids"][:1])
    segments = ops.cast(features["segment_ids"], "int32")
    return ops.minimum(segments, config.num_segments - 1)


def _positions(features, config):
    """Return the given positions, or number the tokens: int32 [B or 1, T]."""
    limit = config.max_positions
    if "position_ids" not in features:
        num_tokens = sizes_of(features["token_ids"])[1]
        if isinstance(num_tokens, int) and num_tokens > limit:
            raise ValueError(
                "`token_ids` must have at most `max_positions` tokens a row, "
                f"{limit}. Received: {num_tokens} tokens. Cut them, or give "
                "`position_ids`."
            )
        if "padding_mask" in features:
            # Padding on the left then does not shift the positions of a text.
            real = ops.cast(features["padding_mask"], "int32")
            return real_positions(real)
        return ops.arange(num_tokens, dtype="int32")[None]
    rows, num_tokens = features["token_ids"].shape
    positions = ops.cast(features["position_ids"], "int32")
    rows = 1 if positions.shape[0] == 1 else rows
    check_shape("position_ids", positions, "BT", (rows, num_tokens))
    return positions
