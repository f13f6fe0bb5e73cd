"""Questions about contexts as a kind of task."""

from keras import ops

from data_pipeline.features.answers import write_official
from xlnet_tf.preprocessing import answers
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
        self.report = None  # counts of the training examples
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

    def encode_arguments(self):
        return {"max_question_length": self.config.max_question_length}

    def encode(self, examples, training, progress=False):
        encoded = super().encode(examples, training, progress)
        if training:
            self.report = encoded.counts
        return encoded

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
        metrics = XLNetQuestionAnswering.score(
            self.task, examples, self.decoded(examples, rows, outputs)
        )
        self.threshold = metrics.get("null_threshold")
        return metrics

    def predictions(self, examples, rows, outputs):
        return self.decoded(examples, rows, outputs)

    def write_official(self, directory, examples, rows, outputs):
        """Writes the files that SQuAD's own scripts read."""
        write_official(directory, self.decoded(examples, rows, outputs))

    def details(self):
        return {
            "report": self.report,
            "threshold": self.threshold,
            "max_answer_length": self.config.max_answer_length,
        }

    def restore(self, details):
        self.threshold = details["threshold"]

    def decoded(self, examples, rows, outputs):
        """Answers, with "" where the threshold says: no answer."""
        threshold = None
        if self.may_be_impossible:
            threshold = 0.0 if self.threshold is None else self.threshold
        return answers.decode(
            outputs,
            rows,
            examples,
            self.config.n_best_size,
            self.config.max_answer_length,
            threshold,
        )
