"""Spans of a text that answer a question.

Shapes: B batch, T tokens, D model dim, S starts kept, E ends kept for each.
"""

import keras
from keras import ops

from xlnet_tf.model.dropout import DRAW_HEAD
from xlnet_tf.model.dropout import dropout
from xlnet_tf.preprocessing import questions as question_preprocessor
from xlnet_tf.tasks import squad
from xlnet_tf.tasks.heads import TokenHead
from xlnet_tf.tasks.heads import dense
from xlnet_tf.tasks.heads import layer_norm
from xlnet_tf.tasks.losses import SpanLoss
from xlnet_tf.tasks.task import Task

_HIDDEN = -1e30


class SpanHead(keras.layers.Layer):
    """Starts, ends given a start, and whether there is an answer at all.

    Args:
        config: XLNetConfig.
        inner_dim: int, width of the two inner layers, by default D.
        dropout: float, before the answerability logit. Default 0.1.

    Source: `get_qa_outputs` of the released code.
    """

    def __init__(self, config, inner_dim=None, dropout=0.1, **kwargs):
        super().__init__(**kwargs)
        self.config = config
        self.inner_dim = inner_dim or config.hidden_dim
        self.dropout = dropout
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
        """Log-probabilities of every start, float32 [B, T].

        Args:
            content: float tensor of shape [B, T, D].
            hidden: bool tensor of shape [B, T], where no answer can be.
        """
        return _log_softmax(self.start_dense(content)[..., 0], hidden)

    def end_scores(self, content, start_states, hidden):
        """Log-probabilities of every end, given starts.

        Args:
            content: float tensor of shape [B, T, D].
            start_states: float tensor of shape [B, S, D].
            hidden: bool tensor of shape [B, T], where no answer can be.

        Returns:
            float32 tensor of shape [B, S, T].
        """
        # [content; start] W = content W_1 + start W_2: no copies of content.
        kernel = ops.cast(self.end_inner.kernel, content.dtype)
        of_content = ops.dot(content, kernel[: self.config.hidden_dim])
        of_start = ops.dot(start_states, kernel[self.config.hidden_dim :])
        inner = ops.tanh(
            of_content[:, None]
            + of_start[:, :, None]
            + ops.cast(self.end_inner.bias, content.dtype)
        )
        logits = self.end_dense(self.end_norm(inner))[..., 0]
        return _log_softmax(logits, hidden[:, None])

    def class_scores(self, content, start_scores, class_index, seed=None):
        """Logits that there is no answer, float32 [B].

        Args:
            content: float tensor of shape [B, T, D].
            start_scores: float tensor of shape [B, T], log-probabilities.
            class_index: int32 tensor of shape [B], of the class token.
            seed: int tensor of shape [2], or None for no dropout.
        """
        expected = ops.einsum(
            "bt,btd->bd",
            ops.cast(ops.exp(start_scores), content.dtype),
            content,
        )
        of_class = rows_at(content, class_index[:, None])[:, 0]
        inner = self.class_inner(ops.concatenate([expected, of_class], axis=-1))
        inner = dropout(inner, self.dropout, seed, DRAW_HEAD)
        return ops.cast(self.class_dense(inner)[:, 0], "float32")


def rows_at(content, positions):
    """[B, T, D] at int32 [B, S] -> [B, S, D]."""
    positions = ops.cast(positions, "int32")
    return ops.take_along_axis(content, positions[..., None], axis=1)


def _log_softmax(logits, hidden):
    logits = ops.cast(logits, "float32")
    return ops.log_softmax(ops.where(hidden, _HIDDEN, logits))


class _SpanTask(Task):
    """A task that finds spans, and is trained by `SpanLoss` by default."""

    head_has_dropout = True
    preprocessor_cls = None

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.span_loss = SpanLoss()

    def compute_loss(
        self,
        x=None,
        y=None,
        y_pred=None,
        sample_weight=None,
        training=True,
    ):
        """That of `compile`, else `SpanLoss`, which is of all outputs."""
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        return self.span_loss(y, y_pred, sample_weight)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetQuestionAnswering(_SpanTask):
    """Finds the span that answers a question, or says that none does.

    The end is chosen given the start: the true one in training, the likeliest
    `num_starts` without labels.

    Args:
        backbone: XLNetBackbone.
        num_starts: int, S, starts that are kept. Default 5.
        num_ends: int, E, ends kept for each start. Default 5.
        inner_dim: int, width of the head's inner layers, by default D.
        dropout: float, in the head. Default 0.1.

    Call arguments:
        features: dict as `XLNetBackbone` takes, and
            answer_mask: [B, T], 1 = an answer may start or end here (default:
                anywhere).
            class_index: int32 [B], position of the class token (default: the
                last).
            start_positions: int32 [B], true starts, to condition ends on.
        training: bool, whether dropout is applied.

    Returns:
        dict, in natural logarithms: `class_logits` float32 [B], positive where
        there is no answer; with `start_positions` also `start_scores` and
        `end_scores` float32 [B, T]; without, `start_top_scores` float32 [B, S]
        and `start_top_positions` int32 [B, S], best first, and
        `end_top_scores` and `end_top_positions` [B, S, E], for each start.

    Source: `get_qa_outputs` of the released code.
    """

    preprocessor_cls = question_preprocessor.XLNetQuestionAnsweringPreprocessor
    new_head_arguments = ("inner_dim",)
    kind = "question_answering"
    feature_names = (*Task.feature_names, "answer_mask", "class_index")
    metric_names = ("squad_f1", "exact_match")

    def __init__(
        self,
        backbone,
        num_starts=5,
        num_ends=5,
        inner_dim=None,
        dropout=0.1,
        **kwargs,
    ):
        head = self.make_head(
            SpanHead, backbone, kwargs, inner_dim=inner_dim, dropout=dropout
        )
        super().__init__(backbone, head, **kwargs)
        self.num_starts = num_starts
        self.num_ends = num_ends
        self.inner_dim = head.inner_dim
        self.dropout = dropout

    def call(self, features, training=None):
        features = dict(features)
        answer_mask = features.pop("answer_mask", None)
        class_index = features.pop("class_index", None)
        start_positions = features.pop("start_positions", None)
        outputs, seed = self.encode(features, training)
        content = outputs["content"]
        batch_size, num_tokens = ops.shape(content)[:2]
        if answer_mask is None:
            hidden = ops.zeros((batch_size, num_tokens), "bool")
        else:
            hidden = ops.logical_not(ops.cast(answer_mask, "bool"))
        if class_index is None:
            class_index = ops.full((batch_size,), num_tokens - 1, "int32")

        start_scores = self.head.start_scores(content, hidden)
        answers = {
            "class_logits": self.head.class_scores(
                content, start_scores, class_index, seed=seed
            )
        }
        if start_positions is not None:
            states = rows_at(content, start_positions[:, None])
            ends = self.head.end_scores(content, states, hidden)
            return {
                **answers,
                "start_scores": start_scores,
                "end_scores": ends[:, 0],
            }
        return {**answers, **self._best(content, start_scores, hidden)}

    def _best(self, content, start_scores, hidden):
        scores, positions = ops.top_k(start_scores, self.num_starts)
        states = rows_at(content, positions)
        ends = self.head.end_scores(content, states, hidden)
        end_scores, end_positions = ops.top_k(ends, self.num_ends)
        return {
            "start_top_scores": scores,
            "start_top_positions": ops.cast(positions, "int32"),
            "end_top_scores": end_scores,
            "end_top_positions": ops.cast(end_positions, "int32"),
        }

    def answer(self, questions, contexts, batch_size=8, **options):
        """Answers questions in raw strings; needs a preprocessor.

        Args:
            questions: strings [B], or one string.
            contexts: strings [B], or one string.
            batch_size: int, windows at once. Default 8.
            **options: `n_best`, int, most answers of a question, default 5;
                `max_answer_length`, int, tokens, default 64; and
                `null_threshold`, float: no answer where `null_score` is above
                it, by default always an answer.

        Returns:
            list of dict, one a question, or one dict: `text`, a slice of the
            context, "" = no answer; `begin` and `end`, its place in characters
            (code points), the end exclusive, -1 = no answer; `score`, its
            log-probability; `null_score`, logit that there is no answer; and
            `n_best`, a list of dict of `text`, `begin`, `end` and `score`, the
            best first.

        Raises:
            TypeError, ValueError: if the input is not strings, or there is no
                preprocessor.
        """
        return question_preprocessor.answer(
            self, questions, contexts, batch_size, **options
        )

    @classmethod
    def score(cls, spec, examples, decoded, labels=None):
        """See `Task`, and `xlnet_tf.tasks.squad.answer_scores`."""
        return squad.answer_scores(spec, examples, decoded)

    def get_config(self):
        return {
            **super().get_config(),
            "num_starts": self.num_starts,
            "num_ends": self.num_ends,
            "inner_dim": self.inner_dim,
            "dropout": self.dropout,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetSpanClassifier(_SpanTask):
    """Finds a span by two independent scores of each token.

    The simpler of Hugging Face's two heads for questions; the released one is
    `XLNetQuestionAnswering`.

    Args:
        backbone: XLNetBackbone.
        dropout: float, before the last layer. Default 0.

    Call arguments:
        features: dict as `XLNetBackbone` takes.
        training: bool, whether dropout is applied.

    Returns:
        dict of `start_logits` and `end_logits`, float32 [B, T].

    Source: `XLNetForQuestionAnsweringSimple` of Hugging Face.
    """

    def __init__(self, backbone, dropout=0.0, **kwargs):
        head = self.make_head(
            TokenHead, backbone, kwargs, num_classes=2, dropout=dropout
        )
        super().__init__(backbone, head, **kwargs)
        self.dropout = dropout

    def call(self, features, training=None):
        outputs, seed = self.encode(features, training)
        logits = self.head(outputs["content"], seed=seed)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}
