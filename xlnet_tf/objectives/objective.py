"""Base classes of the training objectives, and functions for their losses.

Shapes: B batch, T tokens, P targets, D model dim, V vocabulary.
"""

import math
import typing
from typing import Any
from typing import NamedTuple

import keras
from keras import ops

# Features that make the backbone compute a query stream.
_TARGETS = ("target_positions", "target_mapping")


class LossTerms(NamedTuple):
    """Losses of single predictions, and their weights.

    All tensors have the same shape.

    Attributes:
        loss: float32 tensor, in nats.
        weights: float32 tensor, 0 for padding.
        metrics: dict from the name of a metric to a float32 tensor.
    """

    loss: Any
    weights: Any
    metrics: dict


class Objective:
    """Base class of the objectives: features, predictions and loss.

    An objective holds only settings. Its layers and metrics are attributes of
    the `XLNetPretrainer` that the objective trains. The paths of an objective's
    weights in files thus do not depend on the other objectives. If a pretrainer
    has several objectives, the labels of the first objective define whether a
    batch is labelled. The losses of all objectives are divided by one number,
    the sum of the weights of the first objective's predictions. The weights of
    every other objective's predictions must add up to the same number.

    Attributes:
        name: str, name of the objective in `objectives.OBJECTIVES`.
        weight: float, factor of the loss.
        streams: "query" if the objective needs only the rows of the targets,
            "both" if it also needs the output `content`.
        reads_query: bool, whether the objective uses the query stream. If no
            objective uses this stream, the mask embedding is not trained.
        reads_blocks: bool, whether labels need `target_blocks`, see
            `PseudoMasked`.
        predictions: int, number of predictions for each target. The loss of a
            target is the sum of the losses of its predictions.
        metric_names: tuple of str, names of the metrics that `loss_sums`
            returns.
        layer_names: tuple of str, names of the model's attributes for the
            layers of `make_layers`.
        keras_metrics: dict of the metrics of `fit`. A key is the name of the
            model's attribute for the metric, and a value is the metric's name
            in `LossTerms.metrics`.
        config_values: dict of config fields that the objective needs. The
            command `train` sets these fields.
        next_token: str, the row that predicts the next token in generation. It
            is "query" for a row of the query stream, "content" for the content
            row of the last token, or "pseudo" for a pseudo token [P]. None if
            the objective cannot generate.
        fills_blanks: bool, whether the objective predicts a token from the text
            on both sides of the token.

    Example:

    ```python
    class HeavierPermutation(xlnet_tf.objectives.Permutation):
        name = "heavier_permutation"
        weight = 2.0

    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    model = xlnet_tf.XLNetPretrainer(backbone, objective=HeavierPermutation())
    ```
    """

    name: str | None = None
    weight = 1.0
    streams = "query"
    reads_query = True
    reads_blocks = False
    predictions = 1
    metric_names: tuple[str, ...] = ()
    layer_names: tuple[str, ...] = ()
    keras_metrics: dict[str, str] = {}
    config_values: dict[str, typing.Any] = {}
    next_token: str | None = None
    fills_blanks = True

    def check(self, backbone):
        """Check that the objective can train a backbone.

        Args:
            backbone: XLNetBackbone or BertBackbone.

        Raises:
            ValueError: if the objective cannot train the backbone.
        """
        for name, value in self.config_values.items():
            found = getattr(backbone.config, name, None)
            if found != value:
                raise ValueError(
                    f"the objective {self.name!r} needs a backbone with "
                    f"{name}={value!r}. Received: {name}={found!r}."
                )

    def make_layers(self, config, dtype):
        """Make and build the layers that the objective adds to the model.

        Args:
            config: XLNetConfig or BertConfig.
            dtype: keras.DTypePolicy.

        Returns:
            tuple of keras.Layer, in the order of `layer_names`.
        """
        return ()

    def make_metrics(self):
        """Map names of the model's attributes to new metrics for `fit`."""
        return {
            attribute: keras.metrics.Mean(name=name)
            for attribute, name in self.keras_metrics.items()
        }

    def features(self, batch):
        """Make the backbone's features from a batch.

        Args:
            batch: dict of features and labels.

        Returns:
            dict, see `XLNetBackbone`. The dict may contain labels, which the
            backbone ignores.
        """
        return batch

    def has_labels(self, batch):
        """Whether the batch has the labels of this objective."""
        raise NotImplementedError

    def predict(self, model, outputs, batch, training=None):
        """Compute the predictions of a batch and their losses.

        Args:
            model: XLNetPretrainer with the objective's layers.
            outputs: dict of the backbone's outputs.
            batch: dict of features and labels.
            training: bool or None.

        Returns:
            dict of tensors that are added to the model's outputs.

        Raises:
            ValueError: if labels are missing.
        """
        raise NotImplementedError

    def terms(self, outputs, batch):
        """Collect the losses that `predict` added to the outputs.

        Returns:
            LossTerms, or None if the batch had no labels.
        """
        raise NotImplementedError

    def loss_sums(self, outputs, batch):
        """Sum a batch's losses times their weights, without a division.

        Args:
            outputs: dict of the model's outputs.
            batch: dict of features and labels.

        Returns:
            (loss, metrics, sum of weights), or None if the batch had no labels.
            `loss` is a float32 scalar, without the objective's factor
            `Objective.weight`. `metrics` is a dict from `metric_names` to
            float32 scalars. The sum of the predictions' weights is a float32
            scalar.
        """
        terms = self.terms(outputs, batch)
        if terms is None:
            return None
        metrics = {
            name: ops.sum(terms.metrics[name] * terms.weights)
            for name in self.metric_names
        }
        loss = ops.sum(terms.loss * terms.weights)
        return loss, metrics, ops.sum(terms.weights)

    def get_config(self):
        """Make a dict of the objective's name and constructor arguments."""
        return {"name": self.name}


class TokenPrediction(Objective):
    """Base class of objectives that predict tokens.

    The language model head predicts the tokens. The labels in the batch are
    `target_ids` (int [B, P], the true tokens) and `target_weights` ([B, P], 0
    for padding, default all 1). The objective adds two entries to the outputs:
    `token_loss` (float32 [B, P], in nats) and `token_correct` (float32 [B, P],
    1 if the likeliest token is the target).

    Example:

    ```python
    class OfContent(xlnet_tf.objectives.TokenPrediction):
        name = "of_content"
        streams = "both"
        def rows(self, outputs, batch):
            return outputs["content"]
    ```
    """

    metric_names: tuple[str, ...] = ("loss", "accuracy")
    keras_metrics = {
        "accuracy_metric": "accuracy",
        "bits_metric": "bits_per_token",
    }

    def has_labels(self, batch):
        return batch.get("target_ids") is not None

    def rows(self, outputs, batch):
        """Select the output rows that predict the targets.

        `XLNetPretrainer.fill` also calls this method, with a batch that has
        `target_positions` but no labels.

        Args:
            outputs: dict of the backbone's outputs.
            batch: dict of features.

        Returns:
            float tensor of shape [B, P, D].
        """
        raise NotImplementedError

    def predict(self, model, outputs, batch, training=None):
        target_ids = ops.cast(batch["target_ids"], "int32")
        logits = model.logits(self.rows(outputs, batch))  # [B, P, V]
        loss, correct = token_losses(target_ids, logits)
        return {"token_loss": loss, "token_correct": correct}

    def terms(self, outputs, batch):
        token_loss = outputs["token_loss"]
        metrics = {
            "loss": token_loss,
            "accuracy": outputs["token_correct"],
            "bits_per_token": token_loss / math.log(2),
        }
        return LossTerms(token_loss, target_weights(batch, token_loss), metrics)


def token_losses(target_ids, logits):
    """Compute the cross-entropy and the correctness of token predictions.

    Args:
        target_ids: int32 tensor of shape [B, P].
        logits: float32 tensor of shape [B, P, V].

    Returns:
        Two float32 tensors of shape [B, P]: the cross-entropy in nats, and 1
        where the likeliest token is the target, else 0.
    """
    loss = ops.sparse_categorical_crossentropy(
        target_ids, logits, from_logits=True
    )
    correct = ops.cast(ops.argmax(logits, axis=-1), "int32") == target_ids
    return loss, ops.cast(correct, "float32")


def without_targets(batch):
    """Copy a batch without the positions of the targets."""
    return {k: v for k, v in batch.items() if k not in _TARGETS}


def needs_positions(batch):
    """Check for labels, and refuse labels without target positions.

    Returns:
        bool, whether the batch has labels.

    Raises:
        ValueError: if the batch has labels but no target positions.
    """
    if batch.get("target_ids") is None:
        return False
    if all(
        batch.get(name) is None
        for name in ("target_positions", "target_mapping")
    ):
        raise ValueError(
            "`target_ids` need `target_positions` or `target_mapping`, the "
            f"positions of the targets. Received: {', '.join(batch)}."
        )
    return True


def target_weights(batch, token_loss):
    """Return a batch's target weights, float [B, P]; by default all are 1.

    Raises:
        ValueError: if the weights do not have the shape of `token_loss`.
    """
    if batch.get("target_weights") is None:
        return ops.ones_like(token_loss)
    weights = ops.cast(batch["target_weights"], token_loss.dtype)
    if getattr(weights.shape, "rank", 0) is None:  # TensorFlow's unknown rank
        return weights
    found, expected = tuple(weights.shape), tuple(token_loss.shape)
    # Weights of another shape could be broadcast. The losses would then cover
    # all targets, and the sum of weights only some of them.
    if len(found) != len(expected) or any(
        None not in sizes and len(set(sizes)) > 1
        for sizes in zip(found, expected, strict=True)
    ):
        raise ValueError(
            "`target_weights` must be weights, one for each target, [B, P] = "
            f"{list(expected)}. Received: {list(found)}."
        )
    return weights
