"""The input features of BERT: checks, segments and positions.

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
    """Check the features of a BertBackbone and find all positions.

    Args:
        features: dict, see `BertBackbone`, or `token_ids` alone.
        config: BertConfig.
        streams: str, see `BertBackbone`.

    Returns:
        dict without None, with int32 `position_ids` of shape [B or 1, T], and
        int32 `segment_ids` [B or 1, T] below `num_segments`, if the config has
        segments.

    Raises:
        ValueError: if features are missing, misspelt or unknown to BERT, if
            there are more tokens than positions, or if shapes are inconsistent.
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
    """Positions of the real tokens, counted from 0; padding is not counted.

    Args:
        padding_mask: int32 tensor of shape [B, T], 1 = a real token.

    Returns:
        int32 tensor of shape [B, T]; padding has the position of the token
        before it, or 0.
    """
    return ops.maximum(ops.cumsum(padding_mask, axis=1) - 1, 0)


def _segments(features, config):
    """int32 [B or 1, T] below S; XLNet's layouts use more, for padding."""
    if "segment_ids" not in features:
        return ops.zeros_like(features["token_ids"][:1])
    segments = ops.cast(features["segment_ids"], "int32")
    return ops.minimum(segments, config.num_segments - 1)


def _positions(features, config):
    """int32 [B or 1, T], by default counted over the real tokens."""
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
            # A text then has the same positions with padding in front as
            # without.
            real = ops.cast(features["padding_mask"], "int32")
            return real_positions(real)
        return ops.arange(num_tokens, dtype="int32")[None]
    rows, num_tokens = features["token_ids"].shape
    positions = ops.cast(features["position_ids"], "int32")
    rows = 1 if positions.shape[0] == 1 else rows
    check_shape("position_ids", positions, "BT", (rows, num_tokens))
    return positions
