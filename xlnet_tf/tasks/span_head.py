"""The released head for questions: scores of starts, ends and "no answer".

Shapes: B batch, T tokens, D model dim, S starts.
"""

import keras
from keras import ops

from xlnet_tf.config.fields import checked_rate
from xlnet_tf.model.dropout import HEAD_MASK
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.kernels.scores import MASKED_SCORE
from xlnet_tf.tasks.heads import dense
from xlnet_tf.tasks.heads import layer_norm
from xlnet_tf.tasks.heads import rows_at


class SpanHead(keras.layers.Layer):
    """Head for scores of starts, of ends given a start, and of "no answer".

    Args:
        config: XLNetConfig or BertConfig.
        inner_dim: int, width of the two inner layers. Default: D.
        dropout: float, dropout rate before the logit of "no answer". Default
            0.1.

    Source: `get_qa_outputs` of the released code.
    """

    def __init__(self, config, inner_dim=None, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.inner_dim = inner_dim or config.hidden_dim
        self.dropout = checked_rate("dropout", dropout)
        policy = {"dtype": self.dtype_policy}
        self.start_dense = dense("start_dense", 1, config, **policy)
        self.end_inner = dense("end_inner", self.inner_dim, config, **policy)
        self.end_norm = layer_norm("end_norm", config, **policy)
        self.end_dense = dense("end_dense", 1, config, **policy)
        self.class_inner = dense(
            "class_inner", self.inner_dim, config, activation="tanh", **policy
        )
        self.class_dense = dense(
            "class_dense", 1, config, use_bias=False, **policy
        )

    def build(self, input_shape=None):
        hidden_dim = self.config.hidden_dim
        self.start_dense.build((None, hidden_dim))
        self.end_inner.build((None, 2 * hidden_dim))
        self.end_norm.build((None, self.inner_dim))
        self.end_dense.build((None, self.inner_dim))
        self.class_inner.build((None, 2 * hidden_dim))
        self.class_dense.build((None, self.inner_dim))
        self.built = True

    def start_scores(self, content, hidden):
        """Compute the log-probabilities of all starts, float32 [B, T].

        Args:
            content: float tensor of shape [B, T, D].
            hidden: bool tensor of shape [B, T], True = no answer may start or
                end here.
        """
        return _log_softmax(self.start_dense(content)[..., 0], hidden)

    def end_scores(self, content, start_states, hidden):
        """Compute the log-probabilities of all ends for given starts.

        Args:
            content: float tensor of shape [B, T, D].
            start_states: float tensor of shape [B, S, D], the rows of `content`
                at the given starts.
            hidden: bool tensor of shape [B, T], True = no answer may start or
                end here.

        Returns:
            float32 tensor of shape [B, S, T].
        """
        # Compute [content; start] W as content W_1 + start W_2, which needs no
        # copy of `content` for each start.
        bias = ops.cast(self.end_inner.bias, content.dtype)
        if self.end_inner.quantization_mode is None:
            kernel = ops.cast(self.end_inner.kernel, content.dtype)
            content_part = ops.dot(content, kernel[: self.config.hidden_dim])
            start_part = ops.dot(start_states, kernel[self.config.hidden_dim :])
        else:  # A quantized kernel needs the layer's call, which scales it.
            content = [content, ops.zeros_like(content)]
            start_states = [ops.zeros_like(start_states), start_states]
            content_part, start_part = (
                self.end_inner(ops.concatenate(both, axis=-1)) - bias
                for both in (content, start_states)
            )
        inner = ops.tanh(content_part[:, None] + start_part[:, :, None] + bias)
        logits = self.end_dense(self.end_norm(inner))[..., 0]
        return _log_softmax(logits, hidden[:, None])

    def class_scores(self, content, start_scores, class_index, seed=None):
        """Compute the logits of "no answer", float32 [B].

        Args:
            content: float tensor of shape [B, T, D].
            start_scores: float tensor of shape [B, T], log-probabilities.
            class_index: int32 tensor of shape [B], position of the class token.
            seed: int tensor of shape [2], or None for no dropout.
        """
        expected = ops.einsum(
            "bt,btd->bd",
            ops.cast(ops.exp(start_scores), content.dtype),
            content,
        )
        class_rows = rows_at(content, class_index[:, None])[:, 0]
        inner = self.class_inner(
            ops.concatenate([expected, class_rows], axis=-1)
        )
        inner = dropout(inner, self.dropout, fold_in(seed, HEAD_MASK))
        return ops.cast(self.class_dense(inner)[:, 0], "float32")


def _log_softmax(logits, hidden):
    logits = ops.cast(logits, "float32")
    return ops.log_softmax(ops.where(hidden, MASKED_SCORE, logits))
