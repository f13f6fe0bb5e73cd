"""One layer of BERT: attention, then a feed-forward, each with a residual.

Shapes: B batch, T tokens, D model dim, F feed-forward dim.
"""

import keras

from xlnet_tf.model.bert.attention import BertAttention
from xlnet_tf.model.dropout import dropout


@keras.saving.register_keras_serializable(package="xlnet_tf")
class BertBlock(keras.layers.Layer):
    """Attention and a position-wise feed-forward, post-norm.

    Args:
        config: BertConfig.

    Call arguments:
        rows: float tensor of shape [B, T, D].
        attention_mask, position_bias, seed: as `BertAttention` takes them.

    Returns:
        float tensor of shape [B, T, D].

    Source: `transformer_model` of https://github.com/google-research/bert.
    """

    def __init__(self, config, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.attention = BertAttention(
            config.num_heads,
            config.head_dim,
            config.hidden_dim,
            dropout=config.attention_dropout,
            initializer_range=config.initializer_range,
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

    def call(self, rows, attention_mask=None, position_bias=None, seed=None):
        rate = self.config.dropout
        attended = self.attention(
            rows,
            attention_mask=attention_mask,
            position_bias=position_bias,
            seed=seed,
        )
        rows = self.attention_norm(rows + dropout(attended, rate, seed, 1))

        inner = self.intermediate(rows)
        if self.config.activation == "gelu":
            inner = keras.activations.gelu(
                inner, approximate=self.config.gelu == "tanh"
            )
        else:
            inner = keras.activations.relu(inner)
        inner = dropout(self.output_dense(inner), rate, seed, 2)
        return self.output_norm(rows + inner)
