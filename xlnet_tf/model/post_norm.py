"""Base of the layers of XLNet and BERT: feed-forward, residuals, norms.

Shapes: B batch, Q rows, D model dim, F feed-forward dim.
"""

import keras

from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.lora import AdaptableDense


class PostNormBlock(keras.layers.Layer):
    """Attention, then a feed-forward, each with a residual and a layer norm.

    A subclass computes the attention in `call` and returns `finish` of it.

    Args:
        config: XLNetConfig or BertConfig.
        attention: layer with a `build` of no arguments.

    Attributes:
        drops_activation: bool, whether dropout is applied to the activation
            of the feed-forward too. Default False.
    """

    drops_activation = False

    def __init__(self, config, attention, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.attention = attention
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
        return AdaptableDense(
            units,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=self.config.initializer_range
            ),
            dtype=self.dtype_policy,
            name=name,
        )

    @property
    def output_shape(self):
        """Shape of the result, which `summary` shows."""
        return None, None, self.config.hidden_dim

    def build(self, input_shape=None):
        config = self.config
        self.attention.build()
        self.attention_norm.build((None, None, config.hidden_dim))
        self.intermediate.build((None, None, config.hidden_dim))
        self.output_dense.build((None, None, config.intermediate_dim))
        self.output_norm.build((None, None, config.hidden_dim))
        self.built = True

    def finish(self, rows, attended, seed=None):
        """The output of the layer, given what attention gave.

        Args:
            rows: float tensor of shape [B, Q, D], the input of the layer.
            attended: float tensor of shape [B, Q, D].
            seed: int tensor of shape [2], or None for no dropout.

        Returns:
            float tensor of shape [B, Q, D].
        """
        rate, draw = self.config.dropout, 1
        attended = dropout(attended, rate, seed, draw)
        rows = self.attention_norm(rows + attended)

        inner = self.intermediate(rows)
        if self.config.activation == "gelu":
            inner = keras.activations.gelu(
                inner, approximate=self.config.gelu == "tanh"
            )
        else:
            inner = keras.activations.relu(inner)
        if self.drops_activation:
            draw += 1
            inner = dropout(inner, rate, seed, draw)
        inner = dropout(self.output_dense(inner), rate, seed, draw + 1)
        return self.output_norm(rows + inner)
