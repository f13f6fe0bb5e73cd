"""Heads: the layers between the backbone and the outputs of a task.

Heads are not registered with Keras, because each task makes its head from the
task's own config.

Shapes: B batch, T tokens, P targets, D model dim, V vocabulary, C classes.
"""

import reprlib

import keras
from keras import ops

from data_pipeline.base.settings import python_number
from xlnet_tf.config.fields import checked_rate
from xlnet_tf.model.dropout import HEAD_MASK
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import fold_in

SUMMARIES = ("last", "first", "mean")
_PLACE_OF_CLASS = {"xlnet": "last", "bert": "first"}


def dense(name, units, config, **kwargs):
    """Make a dense layer with the weight initializer of a config."""
    return keras.layers.Dense(
        python_number(units),
        kernel_initializer=keras.initializers.RandomNormal(
            stddev=config.initializer_range
        ),
        name=name,
        **kwargs,
    )


def layer_norm(name, config, **kwargs):
    """Make a layer norm with the epsilon of a config."""
    return keras.layers.LayerNormalization(
        epsilon=config.layer_norm_epsilon, name=name, **kwargs
    )


def rows_at(stream, positions):
    """Gather rows of a stream by position.

    Args:
        stream: float tensor of shape [B, T, D].
        positions: int tensor of shape [B, P].

    Returns:
        float tensor of shape [B, P, D].
    """
    positions = ops.cast(positions, "int32")
    return ops.take_along_axis(stream, positions[:, :, None], axis=1)


class LanguageModelHead(keras.layers.Layer):
    """Head for logits over the vocabulary; its kernel is the token embedding.

    Args:
        config: XLNetConfig or BertConfig.
        has_transform: bool, whether a dense layer, GELU and a layer norm come
            before the product with the token embedding, as in BERT and Model
            Garden's `XLNetMaskedLM`. Default False, as in the released XLNet.
            With a BertConfig, the activation of the config replaces GELU.
        transform_gelu: "tanh" or "erf", the form of GELU. Default: from the
            config.

    Call arguments:
        inputs: float tensor of shape [B, P, D].
        token_embedding: float tensor of shape [V, D].

    Returns:
        float32 tensor of shape [B, P, V].

    Raises:
        ValueError: if `transform_gelu` is neither "tanh" nor "erf".

    Source: `lm_loss` of the released code; for the transform,
    `get_masked_lm_output` of https://github.com/google-research/bert.
    """

    def __init__(
        self, config, has_transform=False, transform_gelu=None, **kwargs
    ):
        super().__init__(**kwargs)
        if transform_gelu not in ("tanh", "erf", None):
            raise ValueError(
                '`transform_gelu` must be "tanh" or "erf". '
                f"Received: transform_gelu={reprlib.repr(transform_gelu)}."
            )
        self.config = config
        self.has_transform = has_transform
        self.transform_gelu = transform_gelu or config.gelu
        if has_transform:
            policy = self.dtype_policy
            self.transform = dense(
                "transform", config.hidden_dim, config, dtype=policy
            )
            self.transform_norm = layer_norm(
                "transform_norm", config, dtype=policy
            )

    @property
    def output_shape(self):
        """Shape of the logits, printed by `keras.Model.summary`."""
        return None, None, self.config.vocabulary_size

    def build(self, input_shape=None):
        self.bias = self.add_weight(
            name="bias",
            shape=(self.config.vocabulary_size,),
            initializer="zeros",
        )
        if self.has_transform:
            self.transform.build((None, None, self.config.hidden_dim))
            self.transform_norm.build((None, None, self.config.hidden_dim))
        self.built = True

    def call(self, inputs, token_embedding):
        if self.has_transform:
            inputs = self.transform_norm(
                self._activation(self.transform(inputs))
            )
        token_embedding = ops.cast(token_embedding, inputs.dtype)
        # One matrix product for all rows: with one product per batch row, the
        # gradient of the embedding would need [B, V, D] before its sum.
        logits = ops.tensordot(inputs, token_embedding, axes=[[2], [1]])
        return ops.cast(logits, "float32") + ops.cast(self.bias, "float32")

    def _activation(self, inner):
        if self.config.transform_activation == "relu":
            return keras.activations.relu(inner)
        return keras.activations.gelu(
            inner, approximate=self.transform_gelu == "tanh"
        )


class ClassificationHead(keras.layers.Layer):
    """Head for one logit per class, from one summary vector of a sequence.

    Args:
        config: XLNetConfig or BertConfig.
        num_classes: int, C.
        summary: "first" or "last", the first or last row of `content`; or
            "mean", the average over all T rows, including padding, as in the
            released code. Default: the row of the class token, "last" for XLNet
            and "first" for BERT.
        projection: bool, whether a dense layer follows the summary. Default
            True.
        activation: "tanh" (default) or None, the activation of the summary,
            after the projection if there is one.
        dropout: float, dropout rate on the summary. Default 0.1.

    Call arguments:
        content: float tensor of shape [B, T, D].
        seed: int tensor of shape [2], or None for no dropout.

    Returns:
        float32 tensor of shape [B, C].

    Raises:
        ValueError: if `summary` or `activation` is unknown.

    Source: `summarize_sequence`, `classification_loss` and `regression_loss` of
        the released code.
    """

    def __init__(
        self,
        config,
        num_classes,
        summary=None,
        projection=True,
        activation="tanh",
        dropout=0.1,
        **kwargs,
    ):
        super().__init__(**kwargs)
        summary = summary or _PLACE_OF_CLASS[config.layout]
        if summary not in SUMMARIES:
            raise ValueError(
                f"`summary` must be one of {', '.join(SUMMARIES)}. "
                f"Received: summary={reprlib.repr(summary)}."
            )
        if activation not in ("tanh", None):
            raise ValueError(
                '`activation` of the summary must be "tanh" or None; the '
                "outputs are logits, which `predict_labels` or "
                "`keras.ops.softmax` converts to answers. Received: "
                f"activation={reprlib.repr(activation)}."
            )
        self.config = config
        self.summary = summary
        self.activation = keras.activations.get(activation)
        self.dropout = checked_rate("dropout", dropout)
        self.summary_dense = None
        if projection:
            self.summary_dense = dense(
                "summary_dense",
                config.hidden_dim,
                config,
                dtype=self.dtype_policy,
            )
        self.logits_dense = dense(
            "logits_dense", num_classes, config, dtype=self.dtype_policy
        )

    @property
    def output_shape(self):
        """Shape of the logits, printed by `keras.Model.summary`."""
        return None, self.logits_dense.units

    def build(self, input_shape=None):
        if self.summary_dense is not None:
            self.summary_dense.build((None, self.config.hidden_dim))
        self.logits_dense.build((None, self.config.hidden_dim))
        self.built = True

    def call(self, content, seed=None):
        return ops.cast(
            self.logits_dense(self.summarize(content, seed)), "float32"
        )

    def summarize(self, content, seed=None):
        """Compute the summary vectors, float tensor of shape [B, D]."""
        if self.summary == "mean":
            summary = ops.mean(content, axis=1)
        else:
            summary = content[:, 0 if self.summary == "first" else -1]
        if self.summary_dense is not None:
            summary = self.summary_dense(summary)
        return dropout(
            self.activation(summary), self.dropout, fold_in(seed, HEAD_MASK)
        )


class TokenHead(keras.layers.Layer):
    """Head for one logit per class at every token.

    Args:
        config: XLNetConfig or BertConfig.
        num_classes: int, C.
        dropout: float, dropout rate on the content. Default 0.1.

    Call arguments:
        content: float tensor of shape [B, T, D].
        seed: int tensor of shape [2], or None for no dropout.

    Returns:
        float32 tensor of shape [B, T, C].
    """

    def __init__(self, config, num_classes, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.dropout = checked_rate("dropout", dropout)
        self.logits_dense = dense(
            "logits_dense", num_classes, config, dtype=self.dtype_policy
        )

    @property
    def output_shape(self):
        """Shape of the logits, printed by `keras.Model.summary`."""
        return None, None, self.logits_dense.units

    def build(self, input_shape=None):
        self.logits_dense.build((None, None, self.config.hidden_dim))
        self.built = True

    def call(self, content, seed=None):
        content = dropout(content, self.dropout, fold_in(seed, HEAD_MASK))
        return ops.cast(self.logits_dense(content), "float32")
