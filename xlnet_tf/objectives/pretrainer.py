"""Permutation language modelling: predict tokens in a factorization order.

Shapes: B batch, T tokens, P targets, D model dim, V vocabulary.
"""

import contextlib
import math

import keras
from keras import ops

from xlnet_tf.model.memory import StatefulMemory
from xlnet_tf.tasks.heads import ClassificationHead
from xlnet_tf.tasks.heads import LanguageModelHead
from xlnet_tf.tasks.task import Task


class TokenLoss(keras.losses.Loss):
    """Losses that are there already: Keras divides them among replicas."""

    def call(self, y_true, y_pred):
        return y_pred


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetPretrainer(Task):
    """An XLNet that learns to predict tokens in any order.

    Works with `fit`: compile it with an optimizer alone, for the loss is its
    own, and give batches of features without labels. For memory between the
    batches of `fit`, call `remember` first.

    Args:
        backbone: XLNetBackbone.
        has_transform, transform_gelu: see `LanguageModelHead`.
        next_sentence_weight: float, of the loss of BERT's next-sentence
            prediction beside that of the tokens: whether segment B goes on
            where A ends, as the class token says (the last one of a row).
            Default 0, as released, without it.

    Call arguments:
        features: dict as `XLNetBackbone` takes, with targets and, for the
            loss, `target_ids` int [B, P] and `target_weights` [B, P], 0 for
            rows that are padding (default all 1); for next-sentence
            prediction `is_next` bool [B], true where B goes on from A.
        training: bool, whether dropout is applied.
        with_content: bool, whether `content` is wanted. Default None: unless
            in training with `target_ids`, where nothing but next-sentence
            prediction reads it. That always gets it.

    Returns:
        dict of the backbone's outputs and, where `target_ids` are given,
        `token_loss` float32 [B, P] in nats, `token_correct` float32 [B, P], 1
        where the likeliest token is the target, and `loss` float32 [], the
        mean of `token_loss` by weight. With next-sentence prediction, where
        `is_next` is given, also `next_sentence_loss` and
        `next_sentence_correct` float32 [B], and `loss` has their weighted
        part, each row weighing as much as its targets together.

    Raises:
        ValueError: if `next_sentence_weight` is negative, or above 0 and
            there is no `is_next` in training.

    Source: section 2.3 of https://arxiv.org/abs/1906.08237, `two_stream_loss`;
    next-sentence prediction row 8 of its Table 6.
    """

    new_head_arguments = ("has_transform",)
    reads_query = True

    def __init__(
        self,
        backbone,
        has_transform=False,
        transform_gelu=None,
        next_sentence_weight=0.0,
        **kwargs,
    ):
        if next_sentence_weight < 0:
            raise ValueError(
                "`next_sentence_weight` must not be negative. Received: "
                f"next_sentence_weight={next_sentence_weight}."
            )
        head = LanguageModelHead(
            backbone.config,
            has_transform=has_transform,
            transform_gelu=transform_gelu,
            dtype=kwargs.get("dtype", backbone.dtype_policy),
            name="head",
        )
        super().__init__(backbone, head, **kwargs)
        self.next_sentence_weight = next_sentence_weight
        self.next_sentence_head = None
        if next_sentence_weight:
            # Without dropout, as BERT's.
            self.next_sentence_head = ClassificationHead(
                backbone.config,
                num_classes=2,
                dropout=0.0,
                dtype=head.dtype_policy,
                name="next_sentence_head",
            )
            self.next_sentence_head.build()
            self.next_sentence_metric = keras.metrics.Mean(
                name="next_sentence_accuracy"
            )
        self.memory = None
        self.token_loss = TokenLoss(reduction="mean_with_sample_weight")
        self.accuracy_metric = keras.metrics.Mean(name="accuracy")
        self.bits_metric = keras.metrics.Mean(name="bits_per_token")

    def remember(self, batch_size, hide_empty=False):
        """Gives the model a memory that lasts from one batch to the next.

        It is read and written in training only, so that validation between
        two batches leaves it as it was. Row r of a batch is to go on where row
        r of the batch before it ended: give `fit` a dataset in that order, or
        arrays with `shuffle=False`, for Keras shuffles arrays. All batches need
        the same number of rows.

        Args:
            batch_size: int, rows of a batch on one replica.
            hide_empty: bool, see `StatefulMemory`.

        Returns:
            StatefulMemory, also found as `self.memory`.
        """
        strategy = getattr(self, "_distribute_strategy", None)
        # In the scope, for else all replicas would share one memory.
        with strategy.scope() if strategy else contextlib.nullcontext():
            if self.memory is not None:
                # Keras would go on saving it, under the new one's name.
                self._tracker.untrack(self.memory)
            self.memory = StatefulMemory.for_config(
                self.config,
                batch_size,
                hide_empty=hide_empty,
                dtype=self.dtype_policy,
            )
        return self.memory

    def call(self, features, training=None, with_content=None):
        remembers = (
            self.memory is not None
            and training
            and features.get("memories") is None
        )
        if remembers:
            features = self.memory.read(features)
        has_loss = features.get("target_ids") is not None
        if has_loss and all(
            features.get(name) is None
            for name in ("target_positions", "target_mapping")
        ):
            raise ValueError(
                "`target_ids` need `target_positions` or `target_mapping` to "
                f"say where they stand. Received: {', '.join(features)}."
            )
        if with_content is None:
            with_content = not (training and has_loss)
        with_content = with_content or (
            has_loss and self.next_sentence_head is not None
        )
        outputs = self.backbone(
            features,
            training=training,
            streams="both" if with_content else "query",
        )
        if remembers:
            self.memory.write(outputs)
        if not has_loss:
            return outputs
        target_ids = ops.cast(features["target_ids"], "int32")
        logits = self.logits(outputs["query"])
        token_loss = ops.sparse_categorical_crossentropy(
            target_ids, logits, from_logits=True
        )
        correct = ops.cast(ops.argmax(logits, axis=-1), "int32") == target_ids
        outputs = {
            **outputs,
            "token_loss": token_loss,
            "token_correct": ops.cast(correct, "float32"),
        }
        if self.next_sentence_head is not None:
            # Tokens can be predicted where nobody knows what follows what.
            if training or features.get("is_next") is not None:
                outputs |= self._next_sentence(features, outputs["content"])
        objective = self.sums(features, outputs)[0]
        weight = ops.sum(_weights(features, token_loss))
        return {**outputs, "loss": objective / ops.maximum(weight, 1e-6)}

    def _next_sentence(self, features, content):
        if features.get("is_next") is None:
            raise ValueError(
                "next-sentence prediction needs the feature `is_next`, bool "
                f"[B]. Received: {', '.join(features)}."
            )
        is_next = ops.cast(features["is_next"], "int32")
        logits = self.next_sentence_head(content)
        correct = ops.cast(ops.argmax(logits, axis=-1), "int32") == is_next
        return {
            "next_sentence_loss": ops.sparse_categorical_crossentropy(
                is_next, logits, from_logits=True
            ),
            "next_sentence_correct": ops.cast(correct, "float32"),
        }

    @property
    def metric_names(self):
        """tuple of str, what `sums` tells of."""
        if self.next_sentence_head is None:
            return ("loss", "accuracy")
        return ("loss", "accuracy", "next_sentence_accuracy")

    def sums(self, features, outputs):
        """Sums over a batch, not yet divided by that of `target_weights`.

        Args:
            features: dict, see the class.
            outputs: dict that the call returned.

        Returns:
            (objective, metrics): float32 scalar, of which gradients are taken,
            and dict of `metric_names` to float32 scalars, `loss` that of the
            tokens alone.
        """
        weights = _weights(features, outputs["token_loss"])
        objective = loss = ops.sum(outputs["token_loss"] * weights)
        metrics = {
            "loss": loss,
            "accuracy": ops.sum(outputs["token_correct"] * weights),
        }
        if "next_sentence_loss" in outputs:
            rows = ops.sum(weights, axis=1)
            objective = loss + self.next_sentence_weight * ops.sum(
                outputs["next_sentence_loss"] * rows
            )
            metrics["next_sentence_accuracy"] = ops.sum(
                outputs["next_sentence_correct"] * rows
            )
        return objective, metrics

    def logits(self, stream):
        """Scores of every token of the vocabulary.

        Args:
            stream: float tensor of shape [B, P, D], `query` or `content`.

        Returns:
            float32 tensor of shape [B, P, V], unnormalised.
        """
        return self.head(stream, self.backbone.token_embedding.embeddings)

    def compute_loss(
        self,
        x=None,
        y=None,
        y_pred=None,
        sample_weight=None,
        training=True,
    ):
        """The loss of `fit`: a replica's share of that of the call."""
        if "loss" not in y_pred:
            raise ValueError(
                "`fit` and `evaluate` need the feature `target_ids`. "
                f"Received: {', '.join(x)}."
            )
        token_loss = y_pred["token_loss"]
        weights = _weights(x, token_loss)
        loss = self.token_loss(token_loss, token_loss, weights)
        if "next_sentence_loss" in y_pred:
            of_rows = y_pred["next_sentence_loss"]
            loss += self.next_sentence_weight * self.token_loss(
                of_rows, of_rows, ops.sum(weights, axis=1)
            )
        return loss

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Updates accuracy and bits per token, by target weight."""
        weights = _weights(x, y_pred["token_loss"])
        self.accuracy_metric.update_state(y_pred["token_correct"], weights)
        self.bits_metric.update_state(
            y_pred["token_loss"] / math.log(2), weights
        )
        if "next_sentence_loss" in y_pred:
            self.next_sentence_metric.update_state(
                y_pred["next_sentence_correct"], ops.sum(weights, axis=1)
            )
        results = self.get_metrics_result()
        if "next_sentence_loss" not in y_pred:
            # Nothing was predicted: 0 would say that all of it was wrong.
            results.pop("next_sentence_accuracy", None)
        return results

    def heads(self, arguments):
        found = super().heads(arguments)
        if self.next_sentence_head is not None:
            if arguments.get("next_sentence_weight"):
                found["next_sentence_head"] = self.next_sentence_head
        return found

    def get_config(self):
        return {
            **super().get_config(),
            "has_transform": self.head.has_transform,
            "transform_gelu": self.head.transform_gelu,
            "next_sentence_weight": self.next_sentence_weight,
            "memory": self.memory
            and keras.saving.serialize_keras_object(self.memory),
        }

    @classmethod
    def from_config(cls, config):
        config = dict(config)
        memory = config.pop("memory", None)
        model = super().from_config(config)
        if memory is not None:
            model.memory = keras.saving.deserialize_keras_object(memory)
        return model


def _weights(features, token_loss):
    if features.get("target_weights") is None:
        return ops.ones_like(token_loss)
    return ops.cast(features["target_weights"], token_loss.dtype)
