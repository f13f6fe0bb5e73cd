"""Questions about contexts as a kind of task."""

from keras import ops

from data_pipeline.features import span_merging
from data_pipeline.features.question_answering import make_windows
from xlnet_tf.tasks import squad_evaluation
from xlnet_tf.tasks.losses import SpanLoss
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering
from xlnet_tf.training.finetuning_kinds import Kind

_STRIDE = 128  # as released


class QuestionAnswering(Kind):
    """The span that answers a question, or that there is none."""

    model_class = XLNetQuestionAnswering
    features = (
        *Kind.features,
        "answer_mask",
        "class_index",
        "start_positions",
    )

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.windows = {}
        self.report = None  # what became of the training examples
        self.threshold = None  # the best of the last evaluation

    @property
    def may_be_impossible(self):
        """bool, whether questions of the task may have no answer."""
        return self.task.name != "squad-1.1"

    @property
    def stride(self):
        """int, pieces of a context between the starts of windows."""
        return self.config.stride or _STRIDE

    def preprocessor_settings(self):
        # No question of the run was longer than what leaves room for a context.
        longest = min(self.config.max_question_length, self.sequence_length - 4)
        return {
            **super().preprocessor_settings(),
            "stride": self.stride,
            "max_question_length": longest,
        }

    def encode(self, examples, training, progress=False):
        windows = make_windows(
            examples,
            self.tokenizer,
            sequence_length=self.sequence_length,
            stride=self.stride,
            max_question_length=self.config.max_question_length,
            training=training,
        )
        rows = windows.rows()
        if not training:
            # What merging them needs, found by the rows.
            self.windows[id(rows)] = (rows, windows)
        if training:
            self.report = windows.report
        return rows

    def notes(self):
        return [f"windows   {self.report}"]

    def loss(self, model, features, training):
        outputs = self.call(
            model,
            {**features, "start_positions": features["start_position"]},
            training,
        )
        if not self.may_be_impossible:
            del outputs["class_logits"]
        labels = {
            "start_positions": features["start_position"],
            "end_positions": features["end_position"],
            "is_impossible": features["is_impossible"],
        }
        loss = SpanLoss(reduction=None)(labels, outputs)
        return ops.sum(loss), ops.sum(ops.ones_like(loss))

    def outputs(self, model, features):
        return self.call(
            model,
            {k: v for k, v in features.items() if k != "start_positions"},
        )

    def metrics(self, examples, rows, outputs):
        predictions = self.merged(examples, rows, outputs)
        if not self.may_be_impossible:
            found = squad_evaluation.evaluate_v1(examples, predictions.texts)
            return {name: found[name] for name in self.task.metrics}
        found = squad_evaluation.evaluate_v2(
            examples, predictions.texts, predictions.null_odds
        )
        self.threshold = found["best_f1_threshold"]
        metrics = {
            "squad_f1": found["best_f1"],
            "exact_match": found["best_exact"],
            "null_threshold": self.threshold,
            "squad_f1_at_even_odds": found["f1"],
            "exact_match_at_even_odds": found["exact"],
        }
        # What the spans are worth by themselves: a young model's best is to
        # leave every question open, which says nothing of them.
        answerable = [
            one for one in examples if one.answers and not one.is_impossible
        ]
        if answerable:
            found = squad_evaluation.evaluate_v1(answerable, predictions.texts)
            metrics["squad_f1_if_answerable"] = found["squad_f1"]
        return metrics

    def predictions(self, examples, rows, outputs):
        merged = self.decided(examples, rows, outputs)
        return [
            {
                "id": example.id,
                "answer": merged.texts[example.id],
                "no_answer_odds": merged.null_odds[example.id],
                "n_best": merged.n_best[example.id],
            }
            for example in examples
        ]

    def write_official(self, directory, examples, rows, outputs):
        """Writes the files that SQuAD's own scripts read."""
        span_merging.write_predictions(
            directory, self.decided(examples, rows, outputs)
        )

    def decided(self, examples, rows, outputs):
        """Predictions, with "" where the threshold says: no answer."""
        threshold = None
        if self.may_be_impossible:
            threshold = 0.0 if self.threshold is None else self.threshold
        return self.merged(examples, rows, outputs, threshold)

    def details(self):
        return {
            "report": self.report._asdict(),
            "threshold": self.threshold,
            "max_answer_length": self.config.max_answer_length,
        }

    def restore(self, details):
        self.threshold = details["threshold"]

    def merged(self, examples, rows, outputs, null_threshold=None):
        """Predictions of `data_pipeline.features.span_merging`."""
        return span_merging.merge_windows(
            examples,
            self.windows[id(rows)][1],
            outputs,
            n_best_size=self.config.n_best_size,
            max_answer_length=self.config.max_answer_length,
            null_threshold=null_threshold,
        )
