"""Layer of XLNet, and the base class of the layers of XLNet and BERT.

Shapes: B batch, Q = T + P rows, K keys, D model dim, F feed-forward dim.
"""

import keras
from keras import ops

from xlnet_tf.model.activation import gelu
from xlnet_tf.model.activation import gelu_of_keras
from xlnet_tf.model.attention import RelativeAttention
from xlnet_tf.model.dropout import dropouts
from xlnet_tf.model.sizes import sizes_of
from xlnet_tf.weights.lora.layers import AdaptableDense


class PostNormBlock(keras.layers.Layer):
    """Transformer layer: attention, then a feed-forward, each with post-norm.

    After the attention, and again after the feed-forward, the residual is added
    and a layer norm is applied. The `call` of a subclass computes the attention
    and returns `finish(...)`.

    Args:
        config: XLNetConfig or BertConfig.
        attention: layer whose `build` has no arguments.

    Attributes:
        drops_activation: bool, whether dropout is also applied after the
            activation of the feed-forward. Default False.
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
        """Shape of the output; Keras' `summary` prints it."""
        return None, None, self.config.hidden_dim

    def build(self, input_shape=None):
        config = self.config
        self.attention.build()
        self.attention_norm.build((None, None, config.hidden_dim))
        self.intermediate.build((None, None, config.hidden_dim))
        self.output_dense.build((None, None, config.intermediate_dim))
        self.output_norm.build((None, None, config.hidden_dim))
        self.built = True

    def finish(self, rows, attended, seeds=None):
        """Apply the residuals, the layer norms and the feed-forward.

        Args:
            rows: float tensor of shape [B, Q, D], the input of the layer.
            attended: float tensor of shape [B, Q, D], the output of the
                attention.
            seeds: int tensor of shape [4, 2], the layer's seeds from
                `seeds_of_layers`, or None (default) for no dropout. The first
                seed, for the attention probabilities, is not used here.

        Returns:
            float tensor of shape [B, Q, D], the output of the layer.
        """
        drop_attended, *drop_activation, drop_inner = self._dropouts(
            rows, seeds
        )
        rows = self.attention_norm(rows + drop_attended(attended))

        if seeds is None:
            return self.output_norm(rows + self._infer(rows))
        inner = self._activate(self.intermediate(rows), gelu)
        for drop in drop_activation:
            inner = drop(inner)
        inner = self.output_dense(inner)
        return self.output_norm(rows + drop_inner(inner))

    def _infer(self, rows):
        """Compute the feed-forward for inference.

        The rows are reshaped to a matrix [B * Q, D], and the activation has no
        custom gradient. Otherwise TensorFlow on a CPU would not merge the
        matrix products with their biases and the activation.
        """
        matrix = ops.reshape(rows, [-1, self.config.hidden_dim])
        inner = self.intermediate(matrix)
        # TensorFlow also needs names of operations in alphabetical order: the
        # bias, then the activation.
        with keras.name_scope(f"{self.intermediate.name}_activation"):
            inner = self._activate(inner, gelu_of_keras)
        return ops.reshape(self.output_dense(inner), ops.shape(rows))

    def _activate(self, inner, gelu):
        """Apply the activation; `gelu` computes a GELU of a given form."""
        if self.config.activation == "gelu":
            return gelu(inner, self.config.gelu)
        return keras.activations.relu(inner)

    def _dropouts(self, rows, seeds):
        """Return the dropout functions of the layer, in the order of use."""
        count = 3 if self.drops_activation else 2
        if seeds is not None:
            seeds = seeds[1 : count + 1]
        lengths = sizes_of(rows)[:2]
        return dropouts(count, self.config.dropout, seeds, lengths)


class XLNetBlock(PostNormBlock):
    """Layer of XLNet: relative attention, then a feed-forward, with post-norm.

    Args:
        config: XLNetConfig.
        biases: AttentionBiases shared by all blocks, or None (default) for
            biases of this block alone.

    Call arguments:
        rows: float tensor of shape [B, Q, D], the rows of the content stream,
            then the rows of the query stream.
        keys, context, memory: see `RelativeAttention`.
        seeds: int tensor of shape [4, 2], the layer's seeds from
            `seeds_of_layers`, or None for no dropout.

    Returns:
        float tensor of shape [B, Q, D].

    Source: `post_attention` and `positionwise_ffn` of the released code. Like
    the released code, the layer also applies dropout after the activation. The
    paper's table of hyperparameters gives the rate 0 for this dropout.
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

    def call(self, rows, keys, context, seeds=None, memory=None):
        attended = self.attention(
            rows,
            keys,
            context=context,
            seed=None if seeds is None else seeds[0],
            memory=memory,
        )
        return self.finish(rows, attended, seeds)
