"""Base class of tasks with one summary vector per text.

Shapes: B batch, T tokens.
"""

import numbers

from xlnet_tf.model.inputs import as_features
from xlnet_tf.tasks.heads import ClassificationHead
from xlnet_tf.tasks.long_documents import remember_segments
from xlnet_tf.tasks.task import Task


class SequenceTask(Task):
    """Base of tasks with one summary vector per sequence.

    With `segment_length`, a longer sequence is computed segment by segment,
    with memories of earlier segments. See `remember_segments`.
    """

    new_head_arguments = ("num_classes", "projection")
    head_has_dropout = True

    def __init__(
        self,
        backbone,
        num_classes,
        summary=None,
        projection=True,
        activation="tanh",
        dropout=0.1,
        segment_length=None,
        **kwargs,
    ):
        _check_memory(backbone.config, segment_length)
        _check_reuse(backbone.config, segment_length)
        summary_arguments = {
            "summary": summary,
            "projection": projection,
            "activation": activation,
            "dropout": dropout,
        }
        head = self.make_head(
            ClassificationHead,
            backbone,
            kwargs,
            num_classes=num_classes,
            **summary_arguments,
        )
        super().__init__(backbone, head, **kwargs)
        self.num_classes = num_classes
        self.summary_arguments = {**summary_arguments, "summary": head.summary}
        self.segment_length = segment_length

    @classmethod
    def for_source(cls, source, head, **overrides):
        length = overrides.get("segment_length")
        if length:
            # Pretraining reads a part of each segment twice; tasks read a
            # segment once.
            overrides = {"reuse_length": 0, **overrides}
        model, found = super().for_source(source, head, **overrides)
        _check_reuse(model.config, length)
        return model, found

    def computation(self):
        return (self.segment_length, *super().computation())

    def encode(self, features, training=None):
        if self.segment_length is None:
            return super().encode(features, training)
        features = as_features(features)
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


def _check_memory(config, segment_length):
    if segment_length is not None and not (
        isinstance(segment_length, numbers.Integral) and segment_length >= 1
    ):
        raise ValueError(
            "`segment_length` must be an integer of at least 1, or None. "
            f"Received: segment_length={segment_length!r}."
        )
    if segment_length and not config.memory_length:
        raise ValueError(
            "`segment_length` needs a backbone with memory: give "
            "`memory_length` too. Received: "
            f"segment_length={segment_length}, memory_length=0."
        )


def _check_reuse(config, segment_length):
    if segment_length and 0 < config.reuse_length < segment_length:
        raise ValueError(
            "`segment_length` needs a memory of whole segments: "
            "give `reuse_length=0`. Received: "
            f"segment_length={segment_length}, "
            f"reuse_length={config.reuse_length}."
        )
