"""Extractive question answering: the answer is a span of a text.

Shapes: B batch, T tokens, S kept starts, E kept ends for each start, R rows,
one per window.
"""

import math
from typing import Any

import keras
from keras import ops

from xlnet_tf.config.fields import checked_rate
from xlnet_tf.model.inputs import as_features
from xlnet_tf.preprocessing import answers
from xlnet_tf.preprocessing.preprocessor import Preprocessor
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor
from xlnet_tf.tasks import squad
from xlnet_tf.tasks.class_labels import class_numbers
from xlnet_tf.tasks.heads import TokenHead
from xlnet_tf.tasks.heads import rows_at
from xlnet_tf.tasks.kind import TaskKind
from xlnet_tf.tasks.losses import SpanLoss
from xlnet_tf.tasks.span_head import SpanHead
from xlnet_tf.tasks.task import Task

_STRIDE = 128  # as in the released code
# Constructor arguments that control the selection of answers, with defaults.
_DECODING: dict[str, Any] = {
    "max_answer_length": 64,
    "n_best_size": 5,
    "null_threshold": None,
}


class _SpanTask(Task):
    """Base of the tasks that find spans; the default loss is `SpanLoss`."""

    head_has_dropout = True
    preprocessor_cls: type[Preprocessor] | None = None
    has_ragged_outputs = True

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        self.span_loss = SpanLoss()

    def numbered(self, y, x=None):
        if isinstance(y, dict) and isinstance(x, dict) and "token_ids" in x:
            length = x["token_ids"].shape[-1]
            for name in ("start_positions", "end_positions"):
                class_numbers(y.get(name), None, length, "positions")
        elif isinstance(y, dict) and isinstance(x, dict):
            answers.check_places(x.get("context"), y)
        return y

    def compute_loss(
        self,
        x=None,
        y=None,
        y_pred=None,
        sample_weight=None,
        training=True,
    ):
        """Compute the loss set by `compile`; the default is `SpanLoss`."""
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        if isinstance(sample_weight, dict):
            # Keras repeats the array of weights for each label; all copies are
            # equal.
            sample_weight = sample_weight["start_positions"]
        loss = self.span_loss(y, y_pred, sample_weight)
        if self.losses:  # losses of regularizers
            loss = loss + super().compute_loss(x, y, y_pred)
        return loss


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetQuestionAnswering(_SpanTask):
    """Model for question answering: the answer's span, or no answer.

    The ends of spans are scored for a given start. With the feature
    `start_positions`, as in training, the given start is the true start.
    Otherwise ends are scored for each of the `num_starts` likeliest starts.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        num_starts: int, S, number of kept starts. Default 5.
        num_ends: int, E, number of kept ends for each start. Default 5.
        inner_dim: int, width of the head's inner layers. Default: D.
        dropout: float, dropout rate in the head. Default 0.1.
        max_answer_length: int, maximum number of tokens of an answer. Default
            64.
        n_best_size: int, maximum number of kept answers per question. Default
            5.
        null_threshold: float or None. A question has no answer if the smallest
            `class_logits` of all its windows is above the threshold. Default
            None: every question has an answer, and a fine-tuning run does not
            train `class_logits`.

    Call arguments:
        features: dict of the backbone's features, and
            answer_mask: [B, T], 1 = an answer may start or end here (default:
                anywhere).
            class_index: int32 [B], position of the class token (default: the
                last).
            start_positions: int32 [B], true starts, for which ends are scored.
        training: bool, whether dropout is applied.

    Returns:
        dict of scores in natural logarithms. `class_logits` (float32 [B]) is
        the logit of "no answer". With `start_positions`, the dict also has
        `start_scores` and `end_scores` (float32 [B, T]). Otherwise the dict has
        the best starts, `start_top_scores` (float32 [B, S]) and
        `start_top_positions` (int32 [B, S]), best first. For each start, the
        best ends are `end_top_scores` and `end_top_positions` ([B, S, E]).

    Example:

    ```python
    config = xlnet_tf.XLNetConfig.from_size("tiny")
    task = xlnet_tf.XLNetQuestionAnswering(xlnet_tf.XLNetBackbone(config))
    spans = task({"token_ids": np.array([[9, 10, 11, 12, 4, 13, 4, 3]])})
    ```

    Source: `get_qa_outputs` of the released code.
    """

    takes_class_weight = False
    preprocessor_cls = XLNetQuestionAnsweringPreprocessor
    new_head_arguments = ("inner_dim",)

    def __init__(
        self,
        backbone: keras.Model,
        num_starts: int = 5,
        num_ends: int = 5,
        inner_dim: int | None = None,
        dropout: float = 0.1,
        max_answer_length: int = _DECODING["max_answer_length"],
        n_best_size: int = _DECODING["n_best_size"],
        null_threshold: float | None = _DECODING["null_threshold"],
        **kwargs,
    ):
        head = self.make_head(
            SpanHead, backbone, kwargs, inner_dim=inner_dim, dropout=dropout
        )
        super().__init__(backbone, head, **kwargs)
        self.num_starts = num_starts
        self.num_ends = num_ends
        self.inner_dim = head.inner_dim
        self.dropout = checked_rate("dropout", dropout)
        self.max_answer_length = max_answer_length
        self.n_best_size = n_best_size
        self.null_threshold = null_threshold

    def computation(self):
        return (self.num_starts, self.num_ends, *super().computation())

    def input_signature(self):
        features = super().input_signature()
        return {
            **features,
            "answer_mask": features["token_ids"],
            "class_index": keras.InputSpec(shape=(None,), dtype="int32"),
        }

    def call(self, features, training=None):
        features = as_features(features)
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
            index = 0 if self.config.layout == "bert" else num_tokens - 1
            class_index = ops.full((batch_size,), index, "int32")

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
        num_tokens = start_scores.shape[1] or math.inf
        num_starts = min(self.num_starts, num_tokens)
        num_ends = min(self.num_ends, num_tokens)
        scores, positions = ops.top_k(start_scores, num_starts)
        states = rows_at(content, positions)
        ends = self.head.end_scores(content, states, hidden)
        end_scores, end_positions = ops.top_k(ends, num_ends)
        return {
            "start_top_scores": scores,
            "start_top_positions": ops.cast(positions, "int32"),
            "end_top_scores": end_scores,
            "end_top_positions": ops.cast(end_positions, "int32"),
        }

    def answer(
        self, questions: Any, contexts: Any, batch_size: int = 8, **options
    ) -> list[dict] | dict:
        """Answer questions given as raw strings; needs a preprocessor.

        Args:
            questions: strings [B], or one string.
            contexts: strings [B], or one string.
            batch_size: int, number of windows per batch. Default 8.
            **options: settings that replace the task's settings. `n_best` (int)
                is the maximum number of answers per question.
                `max_answer_length` (int) is the maximum number of tokens of an
                answer. `null_threshold` is a float or None. A question has no
                answer if its `null_score` is above the threshold. With None,
                every question has an answer.

        Returns:
            list of dict, one per question; for one string, one dict. `text` is
            a slice of the context, or "" for no answer. `begin` and `end`
            (exclusive) are the slice's positions in characters (code points),
            or -1 for no answer. `score` is the answer's log-probability, and
            `null_score` is the logit of "no answer". `n_best` is a list of
            dict with `text`, `begin`, `end` and `score`, best first.

        Raises:
            TypeError, ValueError: if the input is not text, or the task has no
                preprocessor.
        """
        options.setdefault("n_best", self.n_best_size)
        options.setdefault("max_answer_length", self.max_answer_length)
        options.setdefault("null_threshold", self.null_threshold)
        return answers.answer(self, questions, contexts, batch_size, **options)

    def get_config(self):
        return {
            **super().get_config(),
            "num_starts": self.num_starts,
            "num_ends": self.num_ends,
            "inner_dim": self.inner_dim,
            "dropout": self.dropout,
            **{name: getattr(self, name) for name in _DECODING},
        }


class QuestionAnswering(TaskKind):
    """Kind of task: answer a question by a span of a context, if possible."""

    name = "question_answering"
    model_class = XLNetQuestionAnswering
    feature_names = (*TaskKind.feature_names, "answer_mask", "class_index")
    metric_names = ("squad_f1", "exact_match")

    @classmethod
    def arguments_for(cls, spec, settings, labels):
        """Constructor arguments, with the initial `null_threshold`.

        The threshold is None for "squad-1.1". For other tasks it is 0 at first,
        and `adopt` sets the best threshold after each evaluation.
        """
        return {
            **super().arguments_for(spec, settings, labels),
            "max_answer_length": settings.max_answer_length,
            "n_best_size": settings.n_best_size,
            "null_threshold": None if spec.name == "squad-1.1" else 0.0,
        }

    @classmethod
    def preprocessor_settings(cls, spec, settings):
        values = super().preprocessor_settings(spec, settings)
        # Limit the length to the room in a sequence, because `encode` refuses
        # longer questions.
        room = values["sequence_length"] - 4
        return {
            **values,
            "stride": settings.stride or _STRIDE,
            "max_question_length": min(settings.max_question_length, room),
        }

    @classmethod
    def encoding_arguments(cls, spec, settings):
        return {"max_question_length": settings.max_question_length}

    def outputs_of(self, features, training=False):
        """Compute outputs; in training, score the ends given the true start."""
        read = {k: v for k, v in features.items() if k in self.feature_names}
        if training:
            read["start_positions"] = features["start_position"]
        return self.model(read, training=training)

    def loss_sums(self, outputs, features):
        outputs = dict(outputs)
        if self.model.null_threshold is None:
            del outputs["class_logits"]
        labels = {
            "start_positions": features["start_position"],
            "end_positions": features["end_position"],
            "is_impossible": features["is_impossible"],
        }
        losses = SpanLoss(reduction=None)(labels, outputs)
        return ops.sum(losses), ops.sum(ops.ones_like(losses))

    def collect(self, outputs):
        return dict(outputs)

    def decode(self, collected, encoded, examples):
        """Make answers by `xlnet_tf.preprocessing.answers.decode`."""
        return XLNetQuestionAnsweringPreprocessor.decode(
            collected,
            encoded,
            examples,
            self.model.n_best_size,
            self.model.max_answer_length,
            self.model.null_threshold,
        )

    @classmethod
    def score(cls, spec, examples, decoded, labels=None):
        """Compute metrics by `xlnet_tf.tasks.squad.answer_scores`."""
        return squad.answer_scores(spec, examples, decoded)

    def adopt(self, scores):
        if "null_threshold" in scores:
            self.model.null_threshold = scores["null_threshold"]

    def details(self, encoded):
        return {
            "report": encoded.counts,
            "threshold": self.model.null_threshold,
            "max_answer_length": self.model.max_answer_length,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetSpanClassifier(_SpanTask):
    """Model for question answering that scores starts and ends independently.

    Hugging Face has two heads for questions; this class has the simpler head.
    `XLNetQuestionAnswering` has the released head.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        dropout: float, dropout rate before the last layer. Default 0.

    Call arguments:
        features: dict of the backbone's features.
        training: bool, whether dropout is applied.

    Returns:
        dict of `start_logits` and `end_logits`, float32 [B, T].

    Example:

    ```python
    config = xlnet_tf.XLNetConfig.from_size("tiny")
    task = xlnet_tf.XLNetSpanClassifier(xlnet_tf.XLNetBackbone(config))
    logits = task({"token_ids": np.array([[9, 10, 11, 12, 4, 13, 4, 3]])})
    ```

    Source: `XLNetForQuestionAnsweringSimple` of Hugging Face.
    """

    def __init__(self, backbone: keras.Model, dropout: float = 0.0, **kwargs):
        head = self.make_head(
            TokenHead, backbone, kwargs, num_classes=2, dropout=dropout
        )
        super().__init__(backbone, head, **kwargs)
        self.dropout = checked_rate("dropout", dropout)

    def call(self, features, training=None):
        logits = super().call(features, training)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}
