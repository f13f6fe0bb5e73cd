"""What all layers of one forward pass attend by: distances, masks, segments.

Shapes: B batch, T tokens, M memory length, K = M + T keys, P targets,
Q = T + P rows, D model dim.
"""

from typing import Any
from typing import NamedTuple

from keras import ops

from xlnet_tf.model.masks import attention_mask
from xlnet_tf.model.relative_position import relative_position_encoding


class AttentionContext(NamedTuple):
    """What all layers share in one forward pass.

    Attributes:
        position_encoding: float tensor of shape [1, K + T, D], or
            [2, K + T, D]: R forwards, and R of a text read backwards. Or of
            shape [K, D], by distances from K - 1 to 0, where all else follows
            from these because no value was dropped.
        is_reversed: bool tensor of shape [B], which rows read backwards, or
            None.
        mask: bool tensor of shape [B or 1, Q, K], True = may attend, or None.
        other_segment: bool tensor of shape [B, Q, K], True = row and key belong
            to different segments, or None.
        target_positions: int32 tensor of shape [B, P], or None without queries.
    """

    position_encoding: Any
    is_reversed: Any
    mask: Any
    other_segment: Any
    target_positions: Any

    def of_targets(self, num_tokens):
        """The same for rows of targets alone.

        Args:
            num_tokens: int or scalar of the backend, T.

        Returns:
            AttentionContext, for Q = P rows.
        """

        def of_rows(tensor):
            return None if tensor is None else tensor[:, num_tokens:]

        return self._replace(
            mask=of_rows(self.mask),
            other_segment=of_rows(self.other_segment),
        )


def attention_context(
    features,
    target_positions,
    config,
    memory_length,
    dtype,
    drop=None,
    one_sign=False,
):
    """Makes the context of a forward pass.

    Args:
        features: dict as `XLNetBackbone` takes it.
        target_positions: int32 tensor of shape [B, P], or None.
        config: XLNetConfig.
        memory_length: int or scalar of the backend, M.
        dtype: str, of `position_encoding`.
        drop: function that applies dropout to R, or None (default).
        one_sign: bool, whether the layers can make do with the distances of one
            sign, which is half the work, where no value of them is dropped.

    Returns:
        AttentionContext.
    """
    num_tokens = ops.shape(features["token_ids"])[1]
    num_keys = memory_length + num_tokens
    if one_sign and drop is None:
        encoding = relative_position_encoding(
            1, num_keys - 1, config.hidden_dim, config.clamp_length
        )
    else:
        directions = [False, True] if "is_reversed" in features else [False]
        encoding = ops.stack(
            [
                relative_position_encoding(
                    num_tokens,
                    num_keys,
                    config.hidden_dim,
                    config.clamp_length,
                    is_reversed,
                )
                for is_reversed in directions
            ]
        )
    encoding = ops.cast(encoding, dtype)
    return AttentionContext(
        position_encoding=encoding if drop is None else drop(encoding),
        is_reversed=features.get("is_reversed"),
        mask=attention_mask(features, target_positions, config, memory_length),
        other_segment=_other_segment(features, target_positions, memory_length),
        target_positions=target_positions,
    )


def _other_segment(features, target_positions, memory_length):
    """bool [B, T (+ P), M + T], True = different segments; None if unknown."""
    if "segment_ids" not in features:
        return None
    key_segment = ops.cast(features["segment_ids"], "int32")
    row_segment = key_segment
    if target_positions is not None:
        of_targets = ops.take_along_axis(key_segment, target_positions, axis=1)
        row_segment = ops.concatenate([key_segment, of_targets], axis=1)
    if memory_length:
        key_segment = ops.pad(key_segment, [[0, 0], [memory_length, 0]])
    return row_segment[:, :, None] != key_segment[:, None, :]
