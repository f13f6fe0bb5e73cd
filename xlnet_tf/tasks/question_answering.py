"""Spans of a text that answer a question.

Shapes: B batch, T tokens, S starts kept, E ends kept of each,
R rows, one a window.
"""

import keras
from keras import ops

from xlnet_tf.preprocessing import answers
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor
from xlnet_tf.tasks import squad_evaluation
from xlnet_tf.tasks.heads import TokenHead
from xlnet_tf.tasks.losses import SpanLoss
from xlnet_tf.tasks.span_head import SpanHead
from xlnet_tf.tasks.span_head import rows_at
from xlnet_tf.tasks.task import Task


class _SpanTask(Task):
    """Base of the tasks that find spans; trained by `SpanLoss` by default."""

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
        """The loss of `compile`, or `SpanLoss` of all outputs without one."""
        if self.loss is not None:
            return super().compute_loss(x, y, y_pred, sample_weight, training)
        return self.span_loss(y, y_pred, sample_weight)


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetQuestionAnswering(_SpanTask):
    """Extractive question answering: the span that answers a question, if any.

    Ends are scored given a start: the true one in training, the likeliest
    `num_starts` without labels.

    Args:
        backbone: XLNetBackbone.
        num_starts: int, S, starts that are kept. Default 5.
        num_ends: int, E, ends kept of each start. Default 5.
        inner_dim: int, width of the head's inner layers, by default D.
        dropout: float, in the head. Default 0.1.
        max_answer_length: int, most tokens of an answer. Default 64.
        n_best_size: int, most answers kept of a question. Default 5.
        null_threshold: float or None. A question has no answer where its
            `class_logits`, the least over its windows, is above. Default None:
            every question has an answer, and a fine-tuning run does not train
            `class_logits`.

    Call arguments:
        features: dict as `XLNetBackbone` takes, and
            answer_mask: [B, T], 1 = an answer may start or end here (default:
                anywhere).
            class_index: int32 [B], position of the class token (default: the
                last).
            start_positions: int32 [B], true starts, to condition ends on; also
                under the name `start_position`, a label of encoded examples.
        training: bool, whether dropout is applied.

    Returns:
        dict, in natural logarithms: `class_logits` float32 [B], positive where
        there is no answer; with `start_positions` also `start_scores` and
        `end_scores` float32 [B, T]; without, `start_top_scores` float32 [B, S]
        and `start_top_positions` int32 [B, S], best first, and
        `end_top_scores` and `end_top_positions` [B, S, E], for each start.

    Example:

    ```python
    config = xlnet_tf.XLNetConfig.from_size("tiny")
    task = xlnet_tf.XLNetQuestionAnswering(xlnet_tf.XLNetBackbone(config))
    spans = task({"token_ids": [[9, 10, 11, 4, 12, 4, 3]]})
    ```

    Source: `get_qa_outputs` of the released code.
    """

    kind = "question_answering"
    preprocessor_cls = XLNetQuestionAnsweringPreprocessor
    new_head_arguments = ("inner_dim",)

    def __init__(
        self,
        backbone,
        num_starts=5,
        num_ends=5,
        inner_dim=None,
        dropout=0.1,
        max_answer_length=64,
        n_best_size=5,
        null_threshold=None,
        **kwargs,
    ):
        head = SpanHead(
            backbone.config,
            inner_dim=inner_dim,
            dropout=dropout,
            dtype=kwargs.get("dtype", backbone.dtype_policy),
            name="head",
        )
        super().__init__(backbone, head, **kwargs)
        self.num_starts = num_starts
        self.num_ends = num_ends
        self.inner_dim = head.inner_dim
        self.dropout = dropout
        self.max_answer_length = max_answer_length
        self.n_best_size = n_best_size
        self.null_threshold = null_threshold

    def call(self, features, training=None):
        features = dict(features)
        answer_mask = features.pop("answer_mask", None)
        class_index = features.pop("class_index", None)
        start_positions = features.pop("start_position", None)
        start_positions = features.pop("start_positions", start_positions)
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
            **options: `n_best`, int, most answers of a question;
                `max_answer_length`, int, tokens; and `null_threshold`, float:
                no answer where `null_score` is above it. Their defaults are
                the task's own.

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
        options = {**self._decoding(), **options}
        return answers.answer(self, questions, contexts, batch_size, **options)

    @classmethod
    def arguments_for(cls, spec, config, labels=None):
        """Constructor arguments of a fine-tuning run.

        Args:
            spec: TaskSpec of `data_pipeline`.
            config: FinetuningConfig.
            labels: not used.

        Returns:
            dict. Even odds are the threshold until `score` finds a better one.
        """
        return {
            "max_answer_length": config.max_answer_length,
            "n_best_size": config.n_best_size,
            "null_threshold": 0.0 if _may_be_impossible(spec) else None,
        }

    def loss_sums(self, features, outputs):
        """Sums of the loss and of the weights over the rows of a batch.

        Args:
            features: dict of tensors with `start_position`, `end_position` and
                `is_impossible`, [B].
            outputs: dict as of a call with `start_position`.

        Returns:
            (float32 scalar, float32 scalar).
        """
        outputs = dict(outputs)
        if self.null_threshold is None:
            del outputs["class_logits"]
        labels = {
            "start_positions": features["start_position"],
            "end_positions": features["end_position"],
            "is_impossible": features["is_impossible"],
        }
        loss = SpanLoss(reduction=None)(labels, outputs)
        return ops.sum(loss), ops.sum(ops.ones_like(loss))

    def collect(self, outputs):
        """Outputs to decode: dict of tensors whose shapes do not depend on T.

        Args:
            outputs: dict as of a call without `start_positions`.
        """
        return dict(outputs)

    def decode(self, collected, encoded, examples):
        """Answers to questions; see `xlnet_tf.preprocessing.answers.decode`.

        Args:
            collected: dict of arrays [R, ...], as `collect` gives them.
            encoded: EncodedExamples of the questions.
            examples: list of QuestionExample.

        Returns:
            list of dict, one a question: `id`, `answer`, `no_answer_odds` and
            `n_best`.
        """
        return answers.decode(collected, encoded, examples, **self._decoding())

    @classmethod
    def score(cls, spec, examples, decoded, labels=None):
        """Metrics of decoded answers, by the official SQuAD scripts.

        Args:
            spec: TaskSpec of `data_pipeline`.
            examples: list of QuestionExample with answers.
            decoded: list of dict as of `decode`; the threshold for no answer
                plays no part.
            labels: not used.

        Returns:
            dict of str to float, the main metric first. Where questions may
            have no answer: at the best threshold, `null_threshold`, and at
            even odds.
        """
        texts = {one["id"]: one["n_best"][0]["text"] for one in decoded}
        if not _may_be_impossible(spec):
            found = squad_evaluation.evaluate_v1(examples, texts)
            return {name: found[name] for name in spec.metrics}
        odds = {one["id"]: one["no_answer_odds"] for one in decoded}
        found = squad_evaluation.evaluate_v2(examples, texts, odds)
        metrics = {
            "squad_f1": found["best_f1"],
            "exact_match": found["best_exact"],
            "null_threshold": found["best_f1_threshold"],
            "squad_f1_at_even_odds": found["f1"],
            "exact_match_at_even_odds": found["exact"],
        }
        # Early in training the best is to answer nothing, which hides how good
        # the spans are.
        answerable = [x for x in examples if x.answers and not x.is_impossible]
        if answerable:
            found = squad_evaluation.evaluate_v1(answerable, texts)
            metrics["squad_f1_if_answerable"] = found["squad_f1"]
        return metrics

    def take_metrics(self, metrics):
        """Take the best threshold for no answer from the metrics of `score`.

        Args:
            metrics: dict of str to float.
        """
        self.null_threshold = metrics.get("null_threshold", self.null_threshold)

    def _decoding(self):
        return {
            "n_best": self.n_best_size,
            "max_answer_length": self.max_answer_length,
            "null_threshold": self.null_threshold,
        }

    def get_config(self):
        return {
            **super().get_config(),
            "num_starts": self.num_starts,
            "num_ends": self.num_ends,
            "inner_dim": self.inner_dim,
            "dropout": self.dropout,
            "max_answer_length": self.max_answer_length,
            "n_best_size": self.n_best_size,
            "null_threshold": self.null_threshold,
        }


def _may_be_impossible(spec):
    """Whether questions of a task may have no answer."""
    return spec.name != "squad-1.1"


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetSpanClassifier(_SpanTask):
    """Extractive question answering by independent starts and ends.

    The simpler of Hugging Face's two heads for questions; the released head is
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
        head = TokenHead(
            backbone.config,
            2,
            dropout=dropout,
            dtype=kwargs.get("dtype", backbone.dtype_policy),
            name="head",
        )
        super().__init__(backbone, head, **kwargs)
        self.dropout = dropout

    def call(self, features, training=None):
        outputs, seed = self.encode(features, training)
        logits = self.head(outputs["content"], seed=seed)
        return {"start_logits": logits[..., 0], "end_logits": logits[..., 1]}

    def get_config(self):
        return {**super().get_config(), "dropout": self.dropout}
