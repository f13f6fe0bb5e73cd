"""Token classification: one class for each word, such as an entity type.

Shapes: B batch, T tokens, C classes.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
from keras import ops

from xlnet_tf.config.fields import checked_rate
from xlnet_tf.preprocessing.strings import is_raw
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor
from xlnet_tf.tasks.class_labels import check_tag_counts
from xlnet_tf.tasks.class_labels import checked_labels
from xlnet_tf.tasks.class_labels import tag_numbers
from xlnet_tf.tasks.heads import TokenHead
from xlnet_tf.tasks.kind import TaskKind
from xlnet_tf.tasks.losses import class_loss
from xlnet_tf.tasks.losses import class_metrics
from xlnet_tf.tasks.task import Task


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTokenClassifier(Task):
    """Model that classifies every token, as in named-entity recognition.

    Args:
        backbone, num_classes, labels: see `XLNetTextClassifier`.
        dropout: float, dropout rate before the last layer. Default 0.1.
        preprocessor: XLNetTokenClassifierPreprocessor, or None.

    Call arguments:
        features: dict of the backbone's features.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, T, C], logits.

    Raises:
        ValueError: if the number of labels is not `num_classes`.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    task = xlnet_tf.XLNetTokenClassifier(backbone, num_classes=3)
    logits = task({"token_ids": np.array([[17, 21, 4, 3]])})  # [1, 4, 3]
    ```
    """

    new_head_arguments = ("num_classes",)
    head_has_dropout = True
    takes_class_weight = False
    weighs_metrics = True  # only a word's first piece has a tag
    has_ragged_outputs = True
    preprocessor_cls = XLNetTokenClassifierPreprocessor

    def __init__(
        self,
        backbone: keras.Model,
        num_classes: int,
        labels: Sequence[str] | None = None,
        dropout: float = 0.1,
        **kwargs,
    ):
        head = self.make_head(
            TokenHead,
            backbone,
            kwargs,
            num_classes=num_classes,
            dropout=dropout,
        )
        super().__init__(backbone, head, **kwargs)
        self.num_classes = num_classes
        self.labels = checked_labels(labels, num_classes)
        self.dropout = checked_rate("dropout", dropout)

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Compute the loss of `fit` over labelled tokens."""
        y, sample_weight = _asked(y, sample_weight)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Compute the metrics of `fit` over labelled tokens."""
        y, sample_weight = _asked(y, sample_weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def numbered(self, y, x=None):
        numbers = tag_numbers(y, self.labels, self.num_classes)
        check_tag_counts(numbers, x)
        return numbers

    def label_range(self, data):
        most, least = self.num_classes - 1, np.iinfo("int32").min
        return int(least), most, f"tags of at most {most}", True

    def predict_labels(
        self, x: Any, batch_size: int | None = None, **kwargs
    ) -> list[list]:
        """Predict the likeliest tag of each word.

        Args:
            x: words of texts, see `predict`.
            batch_size, kwargs: see `predict`.

        Returns:
            list of lists with one tag per word: a name in `labels`, or an int
            if the model has no labels. The tag is None for the empty word "",
            and for words that do not fit into `preprocessor.sequence_length`.

        Raises:
            ValueError: if the task has no preprocessor, or `x` holds features.
        """
        if self.preprocessor is None or not is_raw(x):
            raise ValueError(
                "`predict_labels` takes words, and needs a `preprocessor` to "
                "know where they begin. Give `predict` features."
            )
        scores = self.predict(x, batch_size, **kwargs)  # batches may be ragged
        is_first = np.asarray(self.preprocessor.first_pieces(x)) > 0
        are_words = self.preprocessor.are_words(x)
        rows = []
        for row, places, words in zip(scores, is_first, are_words, strict=True):
            best = np.argmax(np.asarray(row), axis=-1)
            tags = best[np.flatnonzero(places)].tolist()
            names = iter([self.labels[i] if self.labels else i for i in tags])
            rows.append([next(names, None) if x else None for x in words])
        return rows

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": self.labels,
            "dropout": self.dropout,
        }


class TokenClassification(TaskKind):
    """Kind of task: choose a tag for each word of a text."""

    name = "token_classification"
    model_class = XLNetTokenClassifier
    metric_names = (
        "entity_f1",
        "entity_precision",
        "entity_recall",
        "accuracy",
        "macro_f1",
    )

    @classmethod
    def arguments_for(cls, spec, settings, labels):
        arguments = super().arguments_for(spec, settings, labels)
        return {**arguments, "num_classes": len(labels), "labels": labels}

    def loss_sums(self, outputs, features):
        """Sum the loss over the tokens that have a label.

        The feature `token_labels` [B, T] is -1 for tokens without a label.
        """
        labels = features["token_labels"]
        is_asked = ops.cast(labels >= 0, "float32")
        losses = self.model.default_loss().call(ops.maximum(labels, 0), outputs)
        return ops.sum(losses * is_asked), ops.sum(is_asked)

    def collect(self, outputs):
        best = ops.cast(ops.argmax(outputs, -1), "int32")
        missing = self.model.preprocessor.sequence_length - ops.shape(best)[1]
        return {"tags": ops.pad(best, [[0, 0], [0, missing]])}

    def decode(self, collected, encoded, examples):
        """Dicts with `id`, `words`, and `tags`, one tag per word."""
        labels = self.model.labels
        first = encoded.sequences["is_first_piece"]
        values, splits = np.asarray(first.values), np.asarray(first.row_splits)
        decoded = []
        for row, example in enumerate(examples):
            places = np.flatnonzero(values[splits[row] : splits[row + 1]])
            tags = [labels[i] for i in collected["tags"][row, places]]
            # Words beyond the end of the sequence have no predicted tag.
            tags += ["O"] * (len(example.words) - len(tags))
            words = list(example.words)
            decoded.append({"id": example.id, "words": words, "tags": tags})
        return decoded

    @classmethod
    def compared(cls, examples, decoded, labels):
        return [list(x.tags) for x in examples], [x["tags"] for x in decoded]


def _asked(y, sample_weight):
    """Replace labels [B, T] below 0 by 0, and set their weights to 0."""
    if y is None or len(y.shape) != 2:
        return y, sample_weight
    weights = ops.cast(y >= 0, "float32")
    if sample_weight is not None:
        given = ops.cast(sample_weight, "float32")
        weights *= (
            given if len(given.shape) == 2 else ops.reshape(given, (-1, 1))
        )
    return ops.maximum(y, 0), weights
