"""Questions about contexts as a task, with the methods of `Task`."""

from keras import ops

from data_pipeline.features import span_merging
from data_pipeline.features.question_answering import make_windows
from xlnet_tf.tasks.losses import SpanLoss
from xlnet_tf.tasks.question_answering import XLNetQuestionAnswering

_STRIDE = 128  # as released


class QuestionAnswering:
    """The span that answers a question, or that there is none."""

    kind = "question_answering"
    segment_length = None

    def __init__(self, task, config, tokenizer):
        self.task = task
        self.config = config
        self.tokenizer = tokenizer
        self.sequence_length = config.sequence_length or task.sequence_length
        self.model = None
        self.windows = {}
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

    def preprocessor_settings(self, spec, config):
        # No question of the run was longer than what leaves room for a context.
        longest = min(self.config.max_question_length, self.sequence_length - 4)
        return {
            **XLNetQuestionAnswering.preprocessor_settings(spec, config),
            "stride": self.stride,
            "max_question_length": longest,
        }

    def encode(self, examples, training):
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
            rows.notes = [f"windows   {self.report}"]
        return rows

    def outputs_of(self, features, training=False):
        features = {
            name: value
            for name, value in features.items()
            if name in XLNetQuestionAnswering.feature_names
            or training
            and name == "start_position"
        }
        if training:
            features["start_positions"] = features.pop("start_position")
        return self.model(features, training=training)

    def loss_sums(self, features, outputs):
        if not self.may_be_impossible:
            del outputs["class_logits"]
        labels = {
            "start_positions": features["start_position"],
            "end_positions": features["end_position"],
            "is_impossible": features["is_impossible"],
        }
        loss = SpanLoss(reduction=None)(labels, outputs)
        return ops.sum(loss), ops.sum(ops.ones_like(loss))

    def collect(self, outputs):
        return outputs

    def score(self, spec, examples, decoded, labels=None):
        return XLNetQuestionAnswering.score(spec, examples, decoded, labels)

    def adopt(self, scores):
        self.threshold = scores.get("null_threshold", self.threshold)

    def decode(self, outputs, rows, examples):
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

    def decided(self, examples, rows, outputs):
        """Predictions, with "" where the threshold says: no answer."""
        threshold = None
        if self.may_be_impossible:
            threshold = 0.0 if self.threshold is None else self.threshold
        return self.merged(examples, rows, outputs, threshold)

    def details(self, rows):
        return {
            "report": self.report._asdict(),
            "threshold": self.threshold,
            "max_answer_length": self.config.max_answer_length,
        }

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
