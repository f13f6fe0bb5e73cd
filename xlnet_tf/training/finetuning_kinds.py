"""What the kinds of task differ in: model, rows, loss, outputs, metrics.

A kind connects a head of `xlnet_tf.tasks` with rows of `data_pipeline` and with
metrics; the loop (`xlnet_tf.training.finetuning_steps`) knows nothing of tasks.

Shapes: B rows of a batch, R rows of a split, X examples, T tokens, C classes.
"""

import numpy as np
from keras import ops

from data_pipeline.features import batches as batching
from data_pipeline.features import finetuning as encoding
from xlnet_tf.tasks import metrics as finetuning_metrics
from xlnet_tf.tasks.classification import XLNetTextClassifier
from xlnet_tf.tasks.classification import XLNetTextRegressor
from xlnet_tf.tasks.classification import XLNetTokenClassifier
from xlnet_tf.training.finetuning_config import window_stride

# What a model takes of a batch; the rest are labels and book-keeping.
FEATURES = ("token_ids", "segment_ids", "padding_mask", "dropout_seed")


class Kind:
    """One kind of task; the base of all.

    Args:
        task: TaskSpec of `data_pipeline`.
        config: FinetuningConfig.
        labels: tuple of str or None, the classes.
        tokenizer: data_pipeline Tokenizer.
    """

    model_class = None
    features = FEATURES

    def __init__(self, task, config, labels, tokenizer):
        self.task = task
        self.config = config
        self.labels = labels
        self.tokenizer = tokenizer
        self.sequence_length = config.sequence_length or task.sequence_length
        self.cut = None  # what of the training examples is not read, a line

    def model_arguments(self):
        """Arguments of the model's class, beyond the backbone."""
        return {}

    def preprocessor_settings(self):
        """What makes raw strings the rows that `encode` makes, as a dict."""
        return {"sequence_length": self.sequence_length}

    def lengths(self):
        """Lengths that batches are padded to."""
        return batching.bucket_lengths(self.sequence_length)

    def encode(self, examples, training, progress=False):
        """Rows of examples.

        Args:
            examples: list of examples.
            training: bool; if False every example has a prediction.
            progress: bool, whether to draw a bar.

        Returns:
            Rows.
        """
        raise NotImplementedError

    def call(self, model, features, training=False):
        """The model's outputs for the features that it takes."""
        return model(
            {k: v for k, v in features.items() if k in self.features},
            training=training,
        )

    def loss(self, model, features, training):
        """Sums over the rows of a batch.

        Returns:
            (loss, weight): float32 scalars; the loss is not yet divided.
        """
        outputs = self.call(model, features, training)
        weight = features["row_weight"]
        return ops.sum(self.row_loss(outputs, features) * weight), ops.sum(
            weight
        )

    def row_loss(self, outputs, features):
        """float32 [B]."""
        raise NotImplementedError

    def outputs(self, model, features):
        """What is collected of a batch: dict of str to tensor [B, ...], of
        shapes that do not depend on T."""
        return {"logits": self.call(model, features)}

    def metrics(self, examples, rows, outputs):
        """dict of str to float, the main metric first.

        Args:
            examples: list of X examples.
            rows: Rows of these.
            outputs: dict of str to array [R, ...], see `outputs`.
        """
        return finetuning_metrics.evaluate(
            self.task.kind,
            self.task.metrics,
            self.targets(examples),
            self.scores(examples, rows, outputs),
            **self.metric_arguments(examples),
        )

    def metric_arguments(self, examples):
        """Further arguments of `finetuning_metrics.evaluate`."""
        return {}

    def targets(self, examples):
        """What is right, an entry an example."""
        raise NotImplementedError

    def scores(self, examples, rows, outputs):
        """What the model says, an entry an example."""
        return outputs["logits"]

    def predictions(self, examples, rows, outputs):
        """One JSON object an example."""
        raise NotImplementedError

    def notes(self):
        """Lines that say what became of the training examples."""
        return [f"cut       {self.cut}"] if self.cut else []

    def details(self):
        """What later predictions need beyond the model, as JSON, or None."""
        return None

    def restore(self, details):
        """Takes back what `details` gave."""


class _Texts(Kind):
    """Texts or pairs; windows of one text are averaged."""

    def lengths(self):
        if self.config.long_documents != "memory":
            return super().lengths()
        segments = -(-self.document_length // self.sequence_length)
        return tuple(
            self.sequence_length * n
            for n in batching.bucket_lengths(segments, smallest=1)
        )

    @property
    def document_length(self):
        """int, tokens at most of a text."""
        if self.config.long_documents != "memory":
            return self.sequence_length
        return self.config.document_length or 8 * self.sequence_length

    def preprocessor_settings(self):
        return {"sequence_length": self.document_length}

    def model_arguments(self):
        if self.config.long_documents != "memory":
            return {"segment_length": None}  # the preset's may have one
        return {
            "segment_length": self.sequence_length,
            "memory_length": self.sequence_length,
            "reuse_length": 0,
        }

    def encode(self, examples, training, progress=False):
        stride = None
        if self.config.long_documents == "windows":
            stride = window_stride(self.config.stride, self.sequence_length)
        rows = encoding.encode_texts(
            examples,
            self.tokenizer,
            self.document_length,
            labels=self.labels,
            stride=stride,
            progress=progress,
        )
        lengths = rows.sequences["token_ids"].lengths
        full = int(np.sum(lengths == self.document_length))
        if training and stride is None and full:
            self.cut = (
                f"{full:,} of {len(examples):,} texts fill "
                f"{self.document_length:,} tokens, and what is beyond is not "
                "read; see --sequence-length and `long_documents`"
            )
        return rows

    def scores(self, examples, rows, outputs):
        example, logits = rows.dense["example"], outputs["logits"]
        totals = np.zeros((len(examples), *logits.shape[1:]), np.float64)
        np.add.at(totals, example, logits)
        counts = np.bincount(example, minlength=len(examples))
        return totals / counts.reshape(-1, *[1] * (logits.ndim - 1))


class Classification(_Texts):
    """A class for a text or a pair."""

    model_class = XLNetTextClassifier

    def model_arguments(self):
        return {
            **super().model_arguments(),
            "num_classes": len(self.labels),
            "labels": self.labels,
        }

    def encode(self, examples, training, progress=False):
        rows = super().encode(examples, training, progress)
        if training and self.config.class_weights == "balanced":
            label = rows.dense["label"]
            # The windows of a text share its weight.
            _, first = np.unique(rows.dense["example"], return_index=True)
            weights = finetuning_metrics.balanced_class_weights(
                label[first], len(self.labels)
            )
            rows.dense["row_weight"] *= np.asarray(weights, np.float32)[label]
        return rows

    def row_loss(self, outputs, features):
        return ops.sparse_categorical_crossentropy(
            features["label"], outputs, from_logits=True
        )

    def targets(self, examples):
        return np.array([self.labels.index(str(x.label)) for x in examples])

    def predictions(self, examples, rows, outputs):
        logits = self.scores(examples, rows, outputs)
        probabilities = softmax(logits)
        return [
            {
                "id": example.id,
                "label": self.labels[int(np.argmax(row))],
                "probabilities": dict(
                    zip(self.labels, row.tolist(), strict=True)
                ),
            }
            for example, row in zip(examples, probabilities, strict=True)
        ]


class Regression(_Texts):
    """A number for a text or a pair."""

    model_class = XLNetTextRegressor

    def row_loss(self, outputs, features):
        return ops.square(outputs - features["label"])

    def targets(self, examples):
        return np.array([float(x.label) for x in examples])

    def predictions(self, examples, rows, outputs):
        return [
            {"id": example.id, "score": float(score)}
            for example, score in zip(
                examples, self.scores(examples, rows, outputs), strict=True
            )
        ]


class TokenClassification(Kind):
    """A tag for each word of a sentence."""

    model_class = XLNetTokenClassifier

    def model_arguments(self):
        return {"num_classes": len(self.labels), "labels": self.labels}

    def encode(self, examples, training, progress=False):
        rows = encoding.encode_tokens(
            examples,
            self.tokenizer,
            self.sequence_length,
            self.labels,
            progress=progress,
        )
        words = np.array([len(x.words) for x in examples])
        lost = words - rows.dense["words"]
        if training and lost.any():
            self.cut = (
                f"{lost.sum():,} of {words.sum():,} words, of "
                f"{np.count_nonzero(lost):,} sentences, are beyond "
                f"{self.sequence_length:,} tokens and not read; see "
                "--sequence-length, or divide long sentences"
            )
        return rows

    def loss(self, model, features, training):
        logits = self.call(model, features, training)
        label = features["token_labels"]
        is_asked = ops.cast(label >= 0, "float32")
        loss = ops.sparse_categorical_crossentropy(
            ops.maximum(label, 0), logits, from_logits=True
        )
        return ops.sum(loss * is_asked), ops.sum(is_asked)

    def outputs(self, model, features):
        best = ops.cast(ops.argmax(self.call(model, features), -1), "int32")
        length = ops.shape(best)[1]
        return {
            "tags": ops.pad(best, [[0, 0], [0, self.sequence_length - length]])
        }

    def targets(self, examples):
        return [list(x.tags) for x in examples]

    def scores(self, examples, rows, outputs):
        first = rows.sequences["is_first_piece"]
        found = []
        for index, example in enumerate(examples):
            places = np.flatnonzero(first[index])
            tags = [self.labels[i] for i in outputs["tags"][index, places]]
            # Words that did not fit have none.
            found.append(tags + ["O"] * (len(example.words) - len(tags)))
        return found

    def predictions(self, examples, rows, outputs):
        return [
            {"id": example.id, "words": list(example.words), "tags": tags}
            for example, tags in zip(
                examples, self.scores(examples, rows, outputs), strict=True
            )
        ]


def softmax(logits):
    """Probabilities, float64, of logits [..., C]."""
    logits = np.asarray(logits, np.float64)
    odds = np.exp(logits - logits.max(axis=-1, keepdims=True))
    return odds / odds.sum(axis=-1, keepdims=True)


def make_kind(task, config, labels, tokenizer):
    """The Kind of a task; arguments as of `Kind`.

    Raises:
        ValueError: if `long_documents` says what this kind does not do.
    """
    if config.long_documents != "truncate" and task.kind not in (
        "classification",
        "regression",
    ):
        raise ValueError(
            "`long_documents` is of tasks with a class or a number for each "
            f"text. Received: {config.long_documents!r} for the task "
            f"{task.name}, which is one of {task.kind}."
        )
    # They build on this file.
    from xlnet_tf.training.finetuning_choices import MultipleChoice
    from xlnet_tf.training.finetuning_choices import Ranking
    from xlnet_tf.training.finetuning_questions import QuestionAnswering

    kinds = {
        "classification": Classification,
        "regression": Regression,
        "multiple_choice": MultipleChoice,
        "question_answering": QuestionAnswering,
        "token_classification": TokenClassification,
        "ranking": Ranking,
    }
    return kinds[task.kind](task, config, labels, tokenizer)
