"""Text regression: one number for a text.

This file contains a whole task, and so can be the template of a new task.
`XLNetTextRegressor` defines the head, and the loss, metrics and labels of
`fit`. `TextRegression` defines the rows, answers and metrics of a fine-tuning
run.

Shapes: B batch, T tokens.
"""

import keras
import numpy as np
from keras import ops

from xlnet_tf.tasks import metrics
from xlnet_tf.tasks.class_labels import finite_numbers
from xlnet_tf.tasks.kind import TaskOfTexts
from xlnet_tf.tasks.losses import SquaredError
from xlnet_tf.tasks.sequence_task import SequenceTask


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextRegressor(SequenceTask):
    """Model that predicts a number for a text, or for a pair of texts.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: int, number of tokens of a segment. The memories contain
            earlier segments, so the backbone needs `memory_length`. Default
            None: the whole sequence is one segment.
        preprocessor: Preprocessor for raw strings, or None.

    Call arguments:
        features: dict of the backbone's features.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B].

    Raises:
        ValueError: if `ClassificationHead` refuses `summary`, `activation` or
            `dropout`; or if `segment_length` is given and the backbone has no
            memory.

    Source: `regression_loss` of the released code.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    task = xlnet_tf.XLNetTextRegressor(backbone)
    scores = task({"token_ids": np.array([[17, 21, 4, 3]])})  # [1]
    ```
    """

    takes_class_weight = False

    def __init__(self, backbone: keras.Model, **kwargs):
        super().__init__(backbone, 1, **kwargs)

    def call(self, features, training=None):
        return super().call(features, training)[:, 0]

    def compute_loss(
        self, x=None, y=None, y_pred=None, sample_weight=None, training=True
    ):
        """Compute the loss of `fit`; each row has one weight."""
        y, y_pred = _rows_of_one(y, y_pred)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Compute the metrics of `fit`; each row has one weight."""
        y, y_pred = _rows_of_one(y, y_pred)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def default_loss(self):
        return SquaredError()

    def default_metrics(self):
        return [keras.metrics.RootMeanSquaredError()]

    def numbered(self, y, x=None):
        shape = tuple(getattr(y, "shape", ()))
        is_own = not isinstance(self.loss, SquaredError)
        if shape[1:] not in ((), (1,)) and not is_own:
            raise ValueError(
                "`y` must be one number for each text. Received: an array of "
                f"shape {shape}."
            )
        return finite_numbers(y)

    def label_range(self, data):
        most = float(np.finfo("float32").max)
        return -most, most, "finite numbers"


class TextRegression(TaskOfTexts):
    """Kind of task: predict a number for a text, or for a pair of texts."""

    name = "regression"
    model_class = XLNetTextRegressor
    metric_names = (
        "pearson",
        "spearman",
        "mean_squared_error",
        "root_mean_squared_error",
        "mean_absolute_error",
        "r2",
    )

    def decode(self, collected, encoded, examples):
        """Dicts with `id` and `score`."""
        scores = self.mean_of_windows(collected, encoded, examples)
        return [
            {"id": example.id, "score": float(score)}
            for example, score in zip(examples, scores, strict=True)
        ]

    @classmethod
    def compared(cls, examples, decoded, labels):
        scores = np.array([one["score"] for one in decoded], np.float64)
        metrics.check_numbers(scores)
        return np.array([float(x.label) for x in examples]), scores


def _rows_of_one(y, y_pred):
    """Reshape targets and predictions [B] to [B, 1].

    Keras averages over the last axis, which must not be the batch axis.
    """
    if y is None or len(y_pred.shape) != 1:
        return y, y_pred
    return ops.reshape(y, (-1, 1)), ops.expand_dims(y_pred, -1)
