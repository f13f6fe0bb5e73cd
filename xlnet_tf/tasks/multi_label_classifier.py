"""Multi-label classification: any number of classes for a text.

Shapes: B batch, X examples, C classes.
"""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from data_pipeline.base.limits import shown
from xlnet_tf.config.fields import checked_rate
from xlnet_tf.tasks import metrics
from xlnet_tf.tasks.class_labels import are_rows
from xlnet_tf.tasks.text_classifier import TextClassification
from xlnet_tf.tasks.text_classifier import XLNetTextClassifier


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetMultiLabelClassifier(XLNetTextClassifier):
    """Model for multi-label classification of a text, or a pair of texts.

    The loss is the binary cross-entropy of each class.

    Args:
        backbone, num_classes, labels: see `XLNetTextClassifier`.
        threshold: float. A class is predicted if its probability is at least
            the threshold. Default 0.5.
        **kwargs: other arguments of `XLNetTextClassifier`.

    Call arguments:
        features: dict of the backbone's features.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, C], logits; their sigmoids are the
        probabilities.

    Raises:
        ValueError: if the number of labels is not `num_classes`, or `threshold`
            is not in [0, 1).

    Example:

    ```python
    import xlnet_tf
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    names = ["news", "sport"]
    task = xlnet_tf.XLNetMultiLabelClassifier(backbone, 2, labels=names)
    logits = task({"token_ids": np.array([[17, 21, 4, 3]])})  # [1, 2]
    ```
    """

    takes_class_weight = False

    def __init__(
        self,
        backbone: keras.Model,
        num_classes: int,
        labels: Sequence[str] | None = None,
        threshold: float = 0.5,
        **kwargs,
    ):
        super().__init__(backbone, num_classes, labels=labels, **kwargs)
        self.threshold = checked_rate("threshold", threshold)

    def compile(
        self,
        optimizer="auto",
        loss="auto",
        loss_weights=None,
        metrics="auto",
        weighted_metrics=None,
        **kwargs,
    ):
        """Configure training as `Task.compile` does.

        The metric "accuracy" is the binary accuracy over all classes.

        Raises:
            ValueError: if a metric needs probabilities, because the outputs are
                logits.
        """
        metrics, weighted_metrics = keras.tree.map_structure(
            _of_logits, (metrics, weighted_metrics)
        )
        super().compile(
            optimizer, loss, loss_weights, metrics, weighted_metrics, **kwargs
        )

    def default_loss(self):
        return keras.losses.BinaryCrossentropy(
            from_logits=True, reduction="mean_with_sample_weight"
        )

    def default_metrics(self):
        # The logit 0 is a probability of one half.
        return [keras.metrics.BinaryAccuracy(name="accuracy", threshold=0.0)]

    def numbered(self, y, x=None):
        """Convert lists of class names to 0 or 1 for each class.

        Args:
            y: a list of names for each text; or [B, C] of 0 and 1, which is
                returned unchanged. A data frame of 0 and 1 may have its label
                columns in any order.
            x: not used.

        Raises:
            ValueError: if a name is not among the labels. With the default
                loss, also if a row does not consist of C numbers from 0 to 1.
        """
        if not are_rows(y) or not hasattr(y, "__iter__"):
            return y
        if hasattr(y, "columns"):
            y = self._of_frame(y)
        rows = list(y)
        known = {name: i for i, name in enumerate(self.labels or ())}
        if not self.labels or not all(map(_is_names, rows)):
            if self._has_default_loss():
                _check_flags(rows, self.num_classes)
            return y
        flags = np.zeros((len(rows), self.num_classes), np.float32)
        for place, row in enumerate(rows):
            for name in [row] if isinstance(row, str) else row:
                if name not in known:
                    raise ValueError(
                        "`y` must hold lists of labels of the model, "
                        f"{', '.join(known)}. Received: "
                        f"{name!r}, example {place} from 0."
                    )
                flags[place, known[name]] = 1
        return flags

    def _of_frame(self, y):
        """Extract a data frame's labels: the only column or an array [B, C]."""
        names = list(y.columns)
        if len(names) == 1 and names != self.labels:
            return y[names[0]]
        if sorted(map(str, names)) == sorted(self.labels or ()):
            y = y[self.labels]
        elif self.labels and any(isinstance(name, str) for name in names):
            raise ValueError(
                "the columns of `y` must be the labels of the model, "
                f"{', '.join(self.labels)}. Received: "
                f"{', '.join(map(str, names))}."
            )
        return y.to_numpy()

    def label_range(self, data):
        if not self._has_default_loss():
            return None
        return 0, 1, "0 or 1 for each class", True

    def _has_default_loss(self):
        return isinstance(self.loss, keras.losses.BinaryCrossentropy)

    def predict_labels(
        self,
        x: Any,
        batch_size: int | None = None,
        threshold: float | None = None,
        **kwargs,
    ) -> list[list]:
        """Predict the classes of each text.

        Args:
            x, batch_size, kwargs: see `predict`.
            threshold: float, see the class docstring. Default: the model's
                threshold.

        Returns:
            list of lists of str, names from `labels`; or list of lists of int
            if the model has no labels.
        """
        least = self.threshold
        if threshold is not None:
            least = checked_rate("threshold", threshold)
        logits = self.predict(x, batch_size, **kwargs)
        names = self.labels or list(range(self.num_classes))
        return [
            [names[i] for i in np.flatnonzero(row >= least)]
            for row in metrics.sigmoid(logits)
        ]

    def get_config(self):
        return {**super().get_config(), "threshold": self.threshold}


class MultiLabelClassification(TextClassification):
    """Kind of task: choose any number of classes for a text or a pair."""

    name = "multi_label"
    model_class = XLNetMultiLabelClassifier
    metric_names = ("micro_f1", "macro_f1", "average_precision")

    def decode(self, collected, encoded, examples):
        """Dicts with `id`, `labels`, `threshold` and `probabilities`.

        `labels` is the list of the predicted labels. `probabilities` is a dict
        from each label to its probability.
        """
        logits = self.mean_of_windows(collected, encoded, examples)
        labels, threshold = self.model.labels, self.model.threshold
        return [
            {
                "id": example.id,
                "labels": [
                    name
                    for name, value in zip(labels, row, strict=True)
                    if value >= threshold
                ],
                "threshold": threshold,
                "probabilities": dict(zip(labels, row.tolist(), strict=True)),
            }
            for example, row in zip(
                examples, metrics.sigmoid(logits), strict=True
            )
        ]

    @classmethod
    def score(cls, spec, examples, decoded, labels=None):
        targets, chosen, probabilities = multi_hot(examples, decoded)
        metrics.check_numbers(probabilities)
        answers = {"average_precision": probabilities}
        return {
            name: metrics.find_metric(name)(targets, answers.get(name, chosen))
            for name in spec.metrics
        }


def _of_logits(metric):
    if metric in ("acc", "accuracy", "binary_accuracy"):
        return keras.metrics.BinaryAccuracy(name=metric, threshold=0.0)
    advice = None
    if isinstance(metric, keras.metrics.AUC):
        advice = None if metric._from_logits else "from_logits=True"
    elif getattr(metric, "threshold", None) == 0.5:
        advice = "threshold=0.0"
    elif getattr(metric, "thresholds", None) == [0.5]:
        advice = "thresholds=0.0"
    if advice is None:
        return metric
    name = type(metric).__name__
    raise ValueError(
        "the model gives logits, and this metric takes probabilities: give "
        f"keras.metrics.{name}({advice}). Received: {metric.name}."
    )


def multi_hot(examples, decoded):
    """Make arrays of the true classes, predicted classes and probabilities.

    Args:
        examples: list of X examples with labels.
        decoded: list of X dicts, the result of `decode`.

    Returns:
        (true classes, predicted classes, probabilities): arrays [X, C]. The
        classes are 0 or 1, and the probabilities float64.
    """
    names = list(decoded[0]["probabilities"])
    targets, chosen = (
        np.array([[int(name in row) for name in names] for row in rows])
        for rows in (
            [x.label for x in examples],
            [one["labels"] for one in decoded],
        )
    )
    rows = [list(one["probabilities"].values()) for one in decoded]
    return targets, chosen, np.array(rows, np.float64)


def _is_names(row):
    """Whether a label is a name or a list of names."""
    if isinstance(row, str):
        return True
    is_list = isinstance(row, (list, tuple, set)) or hasattr(row, "__array__")
    return is_list and all(isinstance(x, str) for x in row)


def _check_flags(rows, num_classes):
    """Check that rows of numbers have a number from 0 to 1 for each class."""
    try:
        values = np.asarray([np.asarray(row) for row in rows])
    except ValueError:  # rows of different lengths
        values = np.zeros([0])
    if values.dtype.kind not in "biuf":
        return
    is_right = values.ndim == 2 and values.shape[1] == num_classes
    if not is_right or not ((values >= 0) & (values <= 1)).all():
        raise ValueError(
            "`y` must be a list of names of classes for each text, or 0 or 1 "
            f"for each of {num_classes} classes. Received: "
            f"{shown(rows[0], 80)}."
        )
