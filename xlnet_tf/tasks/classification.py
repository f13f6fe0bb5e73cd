"""Classes and numbers for texts, choices and tokens.

Shapes: B batch, T tokens, C classes, O options of a question.
"""

import keras
from keras import ops

from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor
from xlnet_tf.tasks.heads import ClassificationHead
from xlnet_tf.tasks.heads import TokenHead
from xlnet_tf.tasks.long_documents import remember_segments
from xlnet_tf.tasks.losses import SquaredError
from xlnet_tf.tasks.losses import class_loss
from xlnet_tf.tasks.losses import class_metrics
from xlnet_tf.tasks.task import Task


class _SequenceTask(Task):
    """A task that reads one summary vector of a sequence.

    With `segment_length`, longer sequences are read segment by segment, each
    remembering those before it; see `long_documents`.
    """

    new_head_arguments = ("num_classes", "projection")
    head_has_dropout = True

    def __init__(
        self,
        backbone,
        num_classes,
        summary="last",
        projection=True,
        activation="tanh",
        dropout=0.1,
        segment_length=None,
        **kwargs,
    ):
        if segment_length and not backbone.config.memory_length:
            raise ValueError(
                "`segment_length` needs a backbone that remembers: give "
                "`memory_length` too. Received: "
                f"segment_length={segment_length}, memory_length=0."
            )
        head = ClassificationHead(
            backbone.config,
            num_classes,
            summary=summary,
            projection=projection,
            activation=activation,
            dropout=dropout,
            dtype=kwargs.get("dtype", backbone.dtype_policy),
            name="head",
        )
        super().__init__(backbone, head, **kwargs)
        self.num_classes = num_classes
        self.summary_arguments = {
            "summary": summary,
            "projection": projection,
            "activation": activation,
            "dropout": dropout,
        }
        self.segment_length = segment_length

    def encode(self, features, training=None):
        if self.segment_length is None:
            return super().encode(features, training)
        if not isinstance(features, dict):
            features = {"token_ids": features}
        if training:
            seed = self.backbone.dropout_seed(features)
            features = {**features, "dropout_seed": seed}
        return super().encode(
            remember_segments(
                self.backbone, features, self.segment_length, training
            ),
            training,
        )

    def get_config(self):
        return {
            **super().get_config(),
            **self.summary_arguments,
            "segment_length": self.segment_length,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextClassifier(_SequenceTask):
    """Puts a text, or a pair of texts, in one of several classes.

    Pad on the left, so that the class token stands last
    (`xlnet_tf.tasks.heads.ClassificationHead` reads it there).

    Args:
        backbone: XLNetBackbone.
        num_classes: int, C.
        labels: sequence of C str, names of the classes, or None.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: int or None, tokens read at a time; a backbone with
            `memory_length` remembers those before. Default None: all at once.
        preprocessor: Preprocessor for raw strings, or None.

    Call arguments:
        features: dict as `XLNetBackbone` takes: `token_ids` [B, T],
            `segment_ids`, `padding_mask`.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, C], logits.

    Raises:
        ValueError: if the number of labels is not `num_classes`.

    Source: `classification_loss` of the released code.
    """

    def __init__(self, backbone, num_classes, labels=None, **kwargs):
        super().__init__(backbone, num_classes, **kwargs)
        self.labels = checked_labels(labels, num_classes)

    def call(self, features, training=None):
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": self.labels,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextRegressor(_SequenceTask):
    """Gives a text, or a pair of texts, a number.

    Args:
        backbone: XLNetBackbone.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: int or None, tokens read at a time; a backbone with
            `memory_length` remembers those before. Default None: all at once.
        preprocessor: Preprocessor for raw strings, or None.

    Call arguments:
        features: dict as `XLNetBackbone` takes.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B].

    Source: `regression_loss` of the released code.
    """

    def __init__(self, backbone, **kwargs):
        super().__init__(backbone, 1, **kwargs)

    def call(self, features, training=None):
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)[:, 0]

    def default_loss(self):
        return SquaredError()

    def default_metrics(self):
        return [keras.metrics.RootMeanSquaredError()]


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetMultipleChoice(_SequenceTask):
    """Chooses among the options of a question, such as RACE's.

    Args:
        backbone: XLNetBackbone.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: int or None, tokens read at a time; a backbone with
            `memory_length` remembers those before. Default None: all at once.
        preprocessor: Preprocessor for raw strings, or None.

    Call arguments:
        features: dict of `token_ids` int32 [B, O, T], and optionally
            `segment_ids` and `padding_mask` of that shape.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, O], one logit an option.

    Source: `get_race_loss` of the released code.
    """

    preprocessor_cls = XLNetMultipleChoicePreprocessor

    def __init__(self, backbone, **kwargs):
        super().__init__(backbone, 1, **kwargs)

    def call(self, features, training=None):
        options = ops.shape(features["token_ids"])[1]
        flat = {
            name: value
            if value is None or name == "dropout_seed"
            else ops.reshape(value, [-1, *ops.shape(value)[2:]])
            for name, value in features.items()
        }
        outputs, seed = self.encode(flat, training)
        logits = self.head(outputs["content"], seed=seed)
        return ops.reshape(logits, [-1, options])

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTokenClassifier(Task):
    """Puts every token in one of several classes, such as names of entities.

    Args:
        backbone: XLNetBackbone.
        num_classes: int, C.
        labels: sequence of C str, names of the classes, or None.
        dropout: float, before the last layer. Default 0.1.
        preprocessor: XLNetTokenClassifierPreprocessor, or None.

    Call arguments:
        features: dict as `XLNetBackbone` takes.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B, T, C], logits.

    Raises:
        ValueError: if the number of labels is not `num_classes`.
    """

    new_head_arguments = ("num_classes",)
    head_has_dropout = True
    preprocessor_cls = XLNetTokenClassifierPreprocessor

    def __init__(
        self, backbone, num_classes, labels=None, dropout=0.1, **kwargs
    ):
        head = TokenHead(
            backbone.config,
            num_classes,
            dropout=dropout,
            dtype=kwargs.get("dtype", backbone.dtype_policy),
            name="head",
        )
        super().__init__(backbone, head, **kwargs)
        self.num_classes = num_classes
        self.labels = checked_labels(labels, num_classes)
        self.dropout = dropout

    def call(self, features, training=None):
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": self.labels,
            "dropout": self.dropout,
        }


def checked_labels(labels, num_classes):
    """list of str, or None."""
    if labels is None:
        return None
    if len(labels) != num_classes:
        raise ValueError(
            f"`labels` must name all {num_classes} classes. Received: "
            f"{len(labels)} labels, {', '.join(map(str, labels))}."
        )
    return [str(label) for label in labels]
