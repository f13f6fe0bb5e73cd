"""Text classification: one class for a text.

Shapes: B batch, T tokens, C classes.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from xlnet_tf.tasks import metrics
from xlnet_tf.tasks.class_labels import checked_labels
from xlnet_tf.tasks.class_labels import class_numbers
from xlnet_tf.tasks.class_labels import numbered_weights
from xlnet_tf.tasks.kind import TaskOfTexts
from xlnet_tf.tasks.losses import class_loss
from xlnet_tf.tasks.losses import class_metrics
from xlnet_tf.tasks.sequence_task import SequenceTask


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextClassifier(SequenceTask):
    """Model for the classification of a text, or a pair of texts.

    `ClassificationHead` reads the row of the class token. XLNet's class token
    is the last token, so pad on the left. BERT's class token is the first
    token, so pad on the right.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        num_classes: int, C.
        labels: sequence of C str, names of the classes, or None.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: int, number of tokens of a segment. The memories contain
            earlier segments, so the backbone needs `memory_length`. Default
            None: the whole sequence is one segment.
        preprocessor: Preprocessor for raw strings, or None.

    Call arguments:
        features: dict of the backbone's features: `token_ids` [B, T],
            `segment_ids`, `padding_mask`.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, C], logits.

    Raises:
        ValueError: if the number of labels is not `num_classes`; see also
            `XLNetTextRegressor`.

    Source: `classification_loss` of the released code.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    task = xlnet_tf.XLNetTextClassifier(backbone, num_classes=3)
    logits = task({"token_ids": np.array([[17, 21, 4, 3]])})  # [1, 3]
    ```
    """

    def __init__(
        self,
        backbone: keras.Model,
        num_classes: int,
        labels: Sequence[str] | None = None,
        **kwargs,
    ):
        super().__init__(backbone, num_classes, **kwargs)
        self.labels = checked_labels(labels, num_classes)

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()

    def numbered(self, y, x=None):
        checked = self.num_classes if self._has_default_loss() else None
        return class_numbers(y, self.labels, checked)

    def numbered_weights(self, class_weight):
        return numbered_weights(class_weight, self.labels, self.num_classes)

    def _has_default_loss(self):
        # A custom loss may accept other labels, such as -1 for "unknown".
        kind = keras.losses.SparseCategoricalCrossentropy
        return isinstance(self.loss, kind) and self.loss.ignore_class is None

    def label_range(self, data):
        if not self._has_default_loss():
            return None
        most = self.num_classes - 1
        return 0, most, f"classes from 0 to {most}"

    def predict_labels(
        self, x: Any, batch_size: int | None = None, **kwargs
    ) -> list:
        """Predict the likeliest class of each text.

        Args:
            x, batch_size, kwargs: see `predict`.

        Returns:
            list of str, names from `labels`; or list of int if the model has no
            labels.
        """
        best = np.argmax(self.predict(x, batch_size, **kwargs), axis=-1)
        return [self.labels[i] if self.labels else i for i in best.tolist()]

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": self.labels,
        }


class TextClassification(TaskOfTexts):
    """Kind of task: choose one class for a text, or for a pair of texts."""

    name = "classification"
    model_class = XLNetTextClassifier
    metric_names: tuple[str, ...] = ("accuracy", "f1", "macro_f1", "matthews")

    @classmethod
    def arguments_for(cls, spec, settings, labels):
        arguments = super().arguments_for(spec, settings, labels)
        return {**arguments, "num_classes": len(labels), "labels": labels}

    def decode(self, collected, encoded, examples):
        """Dicts with `id`, `label` and `probabilities` (a dict by label)."""
        logits = self.mean_of_windows(collected, encoded, examples)
        labels = self.model.labels
        rows = metrics.probabilities(logits)
        return [
            {
                "id": example.id,
                "label": labels[int(np.argmax(row))],
                "probabilities": dict(zip(labels, row.tolist(), strict=True)),
            }
            for example, row in zip(examples, rows, strict=True)
        ]

    @classmethod
    def compared(cls, examples, decoded, labels):
        metrics.check_numbers(
            [list(one["probabilities"].values()) for one in decoded]
        )
        places = {label: place for place, label in enumerate(labels)}
        return (
            np.array([places[str(x.label)] for x in examples]),
            np.array([places[one["label"]] for one in decoded]),
        )
