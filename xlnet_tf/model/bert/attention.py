"""Multi-head attention of BERT, equation by equation.

Shapes: B batch, T tokens, N heads, H head dim, D model dim. Einsum strings use
the same letters in lower case, with q for rows and k for keys.
"""

import keras
from keras import ops

from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.kernels.plain import masked_softmax
from xlnet_tf.model.kernels.scores import score_dtype
from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.weights.lora.layers import AdaptableDense


@keras.saving.register_keras_serializable(package="xlnet_tf")
class BertAttention(keras.layers.Layer):
    """Scaled dot-product attention, with an optional bias of the scores.

    Args:
        num_heads: int, N.
        head_dim: int, H.
        hidden_dim: int, D.
        dropout: float, dropout rate of the attention probabilities. Default 0.
        initializer_range: float, standard deviation of the initial weights.
            Default 0.02.

    Call arguments:
        rows: float tensor of shape [B, T, D].
        attention_mask: bool tensor of shape [B or 1, T, T], True = may attend,
            or None if every token may attend to every token.
        position_bias: float tensor of shape [B or 1, N, T, T], added to the
            scores, or None for no bias.
        seed: int tensor of shape [2], seed of the dropout mask, or None for no
            dropout.
        observe: function, called with the attention weights [B, N, T, T] before
            dropout; or None (default).

    Returns:
        float tensor of shape [B, T, D], before dropout and the residual. A row
        that may attend to no key gets only the bias of the output projection.
        In the released code the mask has no effect on such a row.

    Source: `attention_layer` of https://github.com/google-research/bert.
    """

    def __init__(
        self,
        num_heads,
        head_dim,
        hidden_dim,
        dropout=0.0,
        initializer_range=0.02,
        **kwargs,
    ):
        super().__init__(**kwargs)
        self.num_heads = num_heads
        self.head_dim = head_dim
        self.hidden_dim = hidden_dim
        self.dropout = dropout
        self.initializer_range = initializer_range
        width = num_heads * head_dim
        self.query_projection = self._dense("query_projection", width)
        self.key_projection = self._dense("key_projection", width)
        self.value_projection = self._dense("value_projection", width)
        self.output_projection = self._dense("output_projection", hidden_dim)

    def _dense(self, name, units):
        return AdaptableDense(
            units,
            kernel_initializer=keras.initializers.RandomNormal(
                stddev=self.initializer_range
            ),
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, input_shape=None):
        for projection in (
            self.query_projection,
            self.key_projection,
            self.value_projection,
        ):
            projection.build((None, None, self.hidden_dim))
        self.output_projection.build(
            (None, None, self.num_heads * self.head_dim)
        )
        self.built = True

    def call(
        self,
        rows,
        attention_mask=None,
        position_bias=None,
        seed=None,
        observe=None,
    ):
        batch_size, num_tokens = sizes_of(rows)[:2]

        def heads(projection):
            shape = [batch_size, num_tokens, self.num_heads, self.head_dim]
            return ops.reshape(projection(rows), shape)

        query = heads(self.query_projection) * self.head_dim**-0.5
        key = heads(self.key_projection)
        value = heads(self.value_projection)

        scores = ops.einsum("bqnh,bknh->bnqk", query, key)
        if position_bias is not None:
            scores = ops.cast(scores, score_dtype(scores.dtype))
            scores = scores + ops.cast(position_bias, scores.dtype)
        mask = None if attention_mask is None else attention_mask[:, None]
        probabilities = masked_softmax(scores, mask)
        if observe is not None:
            observe(probabilities)
        probabilities = dropout(probabilities, self.dropout, seed)
        probabilities = ops.cast(probabilities, value.dtype)

        attended = ops.einsum("bnqk,bknh->bqnh", probabilities, value)
        width = self.num_heads * self.head_dim
        return self.output_projection(
            ops.reshape(attended, [batch_size, num_tokens, width])
        )

    def get_config(self):
        return {
            **super().get_config(),
            "num_heads": self.num_heads,
            "head_dim": self.head_dim,
            "hidden_dim": self.hidden_dim,
            "dropout": self.dropout,
            "initializer_range": self.initializer_range,
        }
