"""One layer of XLNet: attention, then a feed-forward, each with a residual.

Shapes: B batch, Q = T + P rows, K keys, D model dim, F feed-forward dim.
"""

import keras

from xlnet_tf.model.attention import RelativeAttention
from xlnet_tf.model.dropout import dropout


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetBlock(keras.layers.Layer):
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

    def __init__(self, config, biases=None, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.attention = RelativeAttention(
            config.num_heads,
            config.head_dim,
            config.hidden_dim,
            dropout=config.attention_dropout,
            initializer_range=config.initializer_range,
            biases=biases,
            dtype=self.dtype_policy,
            name="attention",
        )
        self.attention_norm = self._norm("attention_norm")
        self.intermediate = self._dense("intermediate", config.intermediate_dim)
        self.output_dense = self._dense("output_dense", config.hidden_dim)
        self.output_norm = self._norm("output_norm")

    def _norm(self, name):
        return keras.layers.LayerNormalization(
            epsilon=self.config.layer_norm_epsilon,
            dtype=self.dtype_policy,
            name=name,
        )

    def _dense(self, name, units):
        return keras.layers.Dense(
            units,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=self.config.initializer_range
            ),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape=None):
        config = self.config
        self.attention.build()
        self.attention_norm.build((None, None, config.hidden_dim))
        self.intermediate.build((None, None, config.hidden_dim))
        self.output_dense.build((None, None, config.intermediate_dim))
        self.output_norm.build((None, None, config.hidden_dim))
        self.built = True

    def call(self, rows, keys, context, seed=None, memory=None):
        rate = self.config.dropout
        attended = self.attention(
            rows,
            keys,
            context=context,
            seed=seed,
            memory=memory,
        )
        attended = dropout(attended, rate, seed, 1)
        rows = self.attention_norm(rows + attended)

        inner = self.intermediate(rows)
        if self.config.activation == "gelu":
            inner = keras.activations.gelu(
                inner, approximate=self.config.gelu == "tanh"
            )
        else:
            inner = keras.activations.relu(inner)
        inner = dropout(inner, rate, seed, 2)
        inner = dropout(self.output_dense(inner), rate, seed, 3)
        return self.output_norm(rows + inner)
