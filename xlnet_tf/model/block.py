"""One layer of XLNet: relative attention, then a feed-forward.

Shapes: B batch, Q = T + P rows, K keys, D model dim.
"""

import keras

from xlnet_tf.model.attention import RelativeAttention
from xlnet_tf.model.post_norm import PostNormBlock


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetBlock(PostNormBlock):
    """Relative attention and a position-wise feed-forward, post-norm.

    Args:
        config: XLNetConfig, or its dict.
        biases: AttentionBiases shared by all blocks, or None.

    Call arguments:
        rows: float tensor of shape [B, Q, D], content rows, then query rows.
        keys, context, seed, memory: as `RelativeAttention` takes them.

    Returns:
        float tensor of shape [B, Q, D].

    Source: `post_attention` and `positionwise_ffn` of the released code, which
    applies dropout after the activation too, where the paper's table says 0.
    """

    drops_activation = True

    def __init__(self, config, biases=None, **kwargs):
        attention = RelativeAttention(
            config.num_heads,
            config.head_dim,
            config.hidden_dim,
            dropout=config.attention_dropout,
            initializer_range=config.initializer_range,
            biases=biases,
            dtype=kwargs.get("dtype"),
            name="attention",
        )
        super().__init__(config, attention, **kwargs)

    def call(self, rows, keys, context, seed=None, memory=None):
        attended = self.attention(
            rows, keys, context=context, seed=seed, memory=memory
        )
        return self.finish(rows, attended, seed)
