"""Training objectives: inputs, labels and losses for kinds of predictions.

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
    """Losses of single predictions, and their weights, all of one shape.

    Attributes:
        loss: float32 tensor, in nats.
        weights: float32 tensor, 0 for predictions that are padding.
        metrics: dict of str to float32 tensor, other values by name.
    """

    loss: Any
    weights: Any
    metrics: dict


class Objective:
    """One kind of prediction: its backbone inputs, predictions and loss.

    An objective holds settings only. Its layers and metrics are attributes of
    the `XLNetPretrainer` that it trains, so that weights and files do not
    depend on how objectives are combined. The labels of a pretrainer's first
    objective define whether a batch is labelled, and its weight divides the
    losses of all objectives. Every other objective weights its predictions so
    that they add up to the same weight.

    Attributes:
        name: str, of the registry `objectives.OBJECTIVES`.
        weight: float, factor of the loss.
        streams: "query" if the objective needs only the rows of targets, "both"
            if it needs `content`.
        reads_query: bool, whether the objective uses the query stream. If no
            objective does, the mask embedding is not trained.
        predictions: int, number of predictions of each target, whose losses
            `loss` sums.
        metric_names: tuple of str, the metrics of `loss_sums`.
        layer_names: tuple of str, attributes of the model for `make_layers`.
        keras_metrics: dict of str to str, the metrics of `fit`: from attribute
            of the model to name in `LossTerms.metrics`.
        config_values: dict of config fields for the objective, set by the train
            command.
        next_token: str, the row that predicts the next token in generation:
            "query", of the query stream; "content", of the last token;
            "pseudo", of a pseudo token [P]. None: no generation.
        fills_blanks: bool, whether it predicts a token from both sides.

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
            ValueError: if it cannot.
        """
        for name, value in self.config_values.items():
            found = getattr(backbone.config, name, None)
            if found != value:
                raise ValueError(
                    f"the objective {self.name!r} needs a backbone with "
                    f"{name}={value!r}. Received: {name}={found!r}."
                )

    def make_layers(self, config, dtype):
        """Make the built layers that the objective adds to the model.

        Args:
            config: XLNetConfig or BertConfig.
            dtype: keras.DTypePolicy.

        Returns:
            tuple of keras.Layer, in the order of `layer_names`.
        """
        return ()

    def make_metrics(self):
        """Make the metrics of `fit`, a dict by attribute of the model."""
        return {
            attribute: keras.metrics.Mean(name=name)
            for attribute, name in self.keras_metrics.items()
        }

    def features(self, batch):
        """Turn a batch into the inputs of the backbone.

        Args:
            batch: dict of features and labels.

        Returns:
            dict, see `XLNetBackbone`. The backbone ignores labels.
        """
        return batch

    def has_labels(self, batch):
        """bool, whether the batch has the labels of this objective."""
        raise NotImplementedError

    def predict(self, model, outputs, batch, training=None):
        """Compute predictions and their losses.

        Args:
            model: XLNetPretrainer with the objective's layers.
            outputs: dict of the backbone's outputs.
            batch: dict of features and labels.
            training: bool or None.

        Returns:
            dict of tensors to add to the outputs.

        Raises:
            ValueError: if labels are missing.
        """
        raise NotImplementedError

    def terms(self, outputs, batch):
        """Collect the losses of `predict` from the outputs.

        Returns:
            LossTerms, or None if nothing was predicted.
        """
        raise NotImplementedError

    def loss_sums(self, outputs, batch):
        """Sum the losses of a batch, without division by the weight.

        Args:
            outputs: dict of the model's outputs.
            batch: dict of features and labels.

        Returns:
            (loss, metrics, weight): float32 scalar, without the factor
            `weight` of the objective; dict of `metric_names` to float32
            scalars; float32 scalar, the sum of weights. None if nothing was
            predicted.
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
        """dict, the name and the arguments of the constructor."""
        return {"name": self.name}


class TokenPrediction(Objective):
    """Base of objectives that predict tokens with the language model head.

    The batch has the labels `target_ids` int [B, P] with `target_weights` [B,
    P], 0 for padding rows (default all 1). The outputs get `token_loss` float32
    [B, P] in nats and `token_correct` float32 [B, P], 1 if the likeliest token
    is the target.

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
        """Look up the rows that predict the targets.

        Filling in blanks also uses it, without labels, at `target_positions`.

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
    """Cross-entropies, and whether the likeliest token is the target.

    Args:
        target_ids: int32 tensor of shape [B, P].
        logits: float32 tensor of shape [B, P, V].

    Returns:
        Two float32 tensors of shape [B, P].
    """
    loss = ops.sparse_categorical_crossentropy(
        target_ids, logits, from_logits=True
    )
    correct = ops.cast(ops.argmax(logits, axis=-1), "int32") == target_ids
    return loss, ops.cast(correct, "float32")


def without_targets(batch):
    """The features of a batch without targets, a dict."""
    return {k: v for k, v in batch.items() if k not in _TARGETS}


def needs_positions(batch):
    """Refuse labels without their positions.

    Returns:
        bool, whether the batch has labels.

    Raises:
        ValueError: if there are no positions.
    """
    if batch.get("target_ids") is None:
        return False
    if all(
        batch.get(name) is None
        for name in ("target_positions", "target_mapping")
    ):
        raise ValueError(
            "`target_ids` need `target_positions` or `target_mapping` to "
            f"say where they stand. Received: {', '.join(batch)}."
        )
    return True


def target_weights(batch, token_loss):
    """float tensor of shape [B, P], by default all 1.

    Raises:
        ValueError: if the weights have another shape.
    """
    if batch.get("target_weights") is None:
        return ops.ones_like(token_loss)
    weights = ops.cast(batch["target_weights"], token_loss.dtype)
    if getattr(weights.shape, "rank", 0) is None:  # TensorFlow's unknown rank
        return weights
    found, expected = tuple(weights.shape), tuple(token_loss.shape)
    # Otherwise the losses would cover all targets, but the weights only a few.
    if len(found) != len(expected) or any(
        None not in sizes and len(set(sizes)) > 1
        for sizes in zip(found, expected, strict=True)
    ):
        raise ValueError(
            "`target_weights` must be one for each target, [B, P] = "
            f"{list(expected)}. Received: {list(found)}."
        )
    return weights
