"""Text classification, text regression and word tagging.

Shapes: B batch, R rows of a split, X examples, T tokens, C classes.
"""

import keras
import numpy as np
from keras import ops

from xlnet_tf.config.fields import checked_rate
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor
from xlnet_tf.tasks import metrics
from xlnet_tf.tasks.heads import TokenHead
from xlnet_tf.tasks.long_documents import SequenceTask
from xlnet_tf.tasks.losses import SquaredError
from xlnet_tf.tasks.losses import class_loss
from xlnet_tf.tasks.losses import class_metrics
from xlnet_tf.tasks.task import Task


class _TextTask(SequenceTask):
    """A class or a number for a text; windows of one text are averaged."""

    @classmethod
    def arguments_for(cls, spec, config, labels):
        if config.long_documents != "memory":
            return {"segment_length": None}  # the preset's may have one
        length = config.sequence_length or spec.sequence_length
        lengths = {"segment_length": length, "memory_length": length}
        return {**lengths, "reuse_length": 0}

    @classmethod
    def preprocessor_settings(cls, spec, config):
        settings = super().preprocessor_settings(spec, config)
        if config.long_documents == "memory":
            settings["sequence_length"] = (
                config.document_length or 8 * settings["sequence_length"]
            )
        return settings

    @classmethod
    def encoding_arguments(cls, spec, config):
        if config.long_documents != "windows":
            return {}
        length = config.sequence_length or spec.sequence_length
        return {"stride": config.stride or length // 2}

    def call(self, features, training=None):
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)

    @staticmethod
    def mean_of_windows(collected, encoded, examples):
        """float64 [X, ...], the mean of the logits of each example's rows."""
        example, logits = encoded.dense["example"], collected["logits"]
        sums = np.zeros((len(examples), *logits.shape[1:]), np.float64)
        np.add.at(sums, example, logits)
        return (sums.T / np.bincount(example, minlength=len(sums))).T


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextClassifier(_TextTask):
    """Puts a text, or a pair of texts, in one of several classes.

    `ClassificationHead` reads the class token: the last one of an XLNet, so pad
    on the left; the first one of a BERT, so pad on the right.

    Args:
        backbone: XLNetBackbone.
        num_classes: int, C.
        labels: sequence of C str, names of the classes, or None.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length: int or None, tokens read at a time; a backbone with
            `memory_length` remembers the others. Default None: all at once.
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

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    task = xlnet_tf.XLNetTextClassifier(backbone, num_classes=3)
    logits = task({"token_ids": np.array([[17, 21, 4, 3]])})  # [1, 3]
    ```
    """

    kind = "classification"
    metric_names = ("accuracy", "f1", "macro_f1", "matthews")

    def __init__(self, backbone, num_classes, labels=None, **kwargs):
        super().__init__(backbone, num_classes, **kwargs)
        self.labels = checked_labels(labels, num_classes)

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()

    @classmethod
    def arguments_for(cls, spec, config, labels):
        arguments = super().arguments_for(spec, config, labels)
        return {**arguments, "num_classes": len(labels), "labels": labels}

    def decode(self, collected, encoded, examples):
        """dicts of `id`, `label` and `probabilities`, a dict by label."""
        logits = self.mean_of_windows(collected, encoded, examples)
        rows = metrics.probabilities(logits)
        return [
            {
                "id": example.id,
                "label": self.labels[int(np.argmax(row))],
                "probabilities": dict(
                    zip(self.labels, row.tolist(), strict=True)
                ),
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

    def numbered(self, y):
        return class_numbers(y, self.labels, self.num_classes)

    def predict_labels(self, x, batch_size=None, **kwargs):
        """The likeliest class of each text.

        Args:
            x, batch_size, kwargs: as `predict` takes them.

        Returns:
            list of str, names of `labels`; of int where the model has none.
        """
        best = np.argmax(self.predict(x, batch_size, **kwargs), axis=-1)
        return [self.labels[i] if self.labels else i for i in best.tolist()]

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": self.labels,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTextRegressor(_TextTask):
    """Gives a text, or a pair of texts, a number.

    Args:
        backbone: XLNetBackbone.
        summary, projection, activation, dropout: see `ClassificationHead`.
        segment_length, preprocessor: see `XLNetTextClassifier`.

    Call arguments:
        features: dict as `XLNetBackbone` takes.
        training: bool, whether dropout is applied.

    Returns:
        float32 tensor of shape [B].

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

    kind = "regression"
    metric_names = (
        "pearson",
        "spearman",
        "mean_squared_error",
        "root_mean_squared_error",
        "mean_absolute_error",
        "r2",
    )

    def __init__(self, backbone, **kwargs):
        super().__init__(backbone, 1, **kwargs)

    def call(self, features, training=None):
        return super().call(features, training)[:, 0]

    def default_loss(self):
        return SquaredError()

    def default_metrics(self):
        return [keras.metrics.RootMeanSquaredError()]

    def decode(self, collected, encoded, examples):
        """dicts of `id` and `score`."""
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


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetTokenClassifier(Task):
    """Puts every token in one of several classes, such as names of entities.

    Args:
        backbone, num_classes, labels: see `XLNetTextClassifier`.
        dropout: float, before the last layer. Default 0.1.
        preprocessor: XLNetTokenClassifierPreprocessor, or None.

    Call arguments:
        features: dict as `XLNetBackbone` takes.
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
    kind = "token_classification"
    metric_names = (
        "entity_f1",
        "entity_precision",
        "entity_recall",
        "accuracy",
        "macro_f1",
    )
    preprocessor_cls = XLNetTokenClassifierPreprocessor

    def __init__(
        self, backbone, num_classes, labels=None, dropout=0.1, **kwargs
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

    def call(self, features, training=None):
        outputs, seed = self.encode(features, training)
        return self.head(outputs["content"], seed=seed)

    def default_loss(self):
        return class_loss()

    def default_metrics(self):
        return class_metrics()

    @classmethod
    def arguments_for(cls, spec, config, labels):
        arguments = super().arguments_for(spec, config, labels)
        return {**arguments, "num_classes": len(labels), "labels": labels}

    def loss_sums(self, outputs, features):
        """See `Task`; labels are `token_labels` [B, T], -1 = not asked for."""
        labels = features["token_labels"]
        is_asked = ops.cast(labels >= 0, "float32")
        losses = self.default_loss().call(ops.maximum(labels, 0), outputs)
        return ops.sum(losses * is_asked), ops.sum(is_asked)

    def collect(self, outputs):
        best = ops.cast(ops.argmax(outputs, -1), "int32")
        missing = self.preprocessor.sequence_length - ops.shape(best)[1]
        return {"tags": ops.pad(best, [[0, 0], [0, missing]])}

    def decode(self, collected, encoded, examples):
        """dicts of `id`, `words` and `tags`, one for each word."""
        first = encoded.sequences["is_first_piece"]
        values, splits = np.asarray(first.values), np.asarray(first.row_splits)
        decoded = []
        for row, example in enumerate(examples):
            places = np.flatnonzero(values[splits[row] : splits[row + 1]])
            tags = [self.labels[i] for i in collected["tags"][row, places]]
            # Words that did not fit have none.
            tags += ["O"] * (len(example.words) - len(tags))
            words = list(example.words)
            decoded.append({"id": example.id, "words": words, "tags": tags})
        return decoded

    @classmethod
    def compared(cls, examples, decoded, labels):
        return [list(x.tags) for x in examples], [x["tags"] for x in decoded]

    def get_config(self):
        return {
            **super().get_config(),
            "num_classes": self.num_classes,
            "labels": self.labels,
            "dropout": self.dropout,
        }


def class_numbers(y, labels, num_classes):
    """Integer classes of integers, which are checked, or of names.

    Args:
        y: labels [B] or [B, 1], in a list, array, Series or tensor; what has
            another form, as of a loss of your own, is returned as it is.
        labels: list of C str, or None.
        num_classes: int, C.

    Raises:
        ValueError: if one is no class of the model.
    """
    if y is None or isinstance(y, dict) or hasattr(y, "element_spec"):
        return y
    values = np.asarray(y)
    if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        return y
    flat = values.ravel().tolist()
    flat = [x.decode() if isinstance(x, bytes) else x for x in flat]
    if any(isinstance(x, str) for x in flat):
        if not labels:
            raise ValueError(
                "`y` holds names of classes, and the model has none. Give it "
                f"`labels`, or integers. Received: {flat[0]!r}."
            )
        known = {label: place for place, label in enumerate(labels)}
        for row, label in enumerate(flat):
            if str(label) not in known:
                raise ValueError(
                    f"`y` must hold labels of the model, {', '.join(labels)}. "
                    f"Received: {label!r}, example {row} from 0."
                )
        found = [known[str(label)] for label in flat]
        return np.array(found, np.int32).reshape(values.shape)
    if values.dtype.kind in "iuf":
        numbers = values.ravel()
        is_class = (numbers >= 0) & (numbers < num_classes)
        if not is_class.all():
            row = int(np.argmin(is_class))
            raise ValueError(
                f"`y` must be classes from 0 to {num_classes - 1}. Received: "
                f"{flat[row]}, example {row} from 0."
            )
    return y


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
