"""Training objectives: inputs, labels and losses of one kind of prediction.

Shapes: B batch, T tokens, P targets.
"""

from typing import Any
from typing import NamedTuple

import keras
from keras import ops


class LossTerms(NamedTuple):
    """Losses of single predictions, and their weights, all of one shape.

    Attributes:
        loss: float32 tensor, in nats.
        weights: float32 tensor, 0 for predictions that are padding.
        metrics: dict of str to float32 tensor, further values by name.
    """

    loss: Any
    weights: Any
    metrics: dict


class Objective:
    """One kind of prediction: its backbone inputs, predictions and loss.

    An objective holds settings only. Its layers and metrics are attributes of
    the `XLNetPretrainer` that it trains, so that weights and files do not
    depend on how objectives are combined. The first objective of a pretrainer
    decides whether a batch has labels, and its weight divides the losses of
    all; another objective weighs its predictions so that they add up to the
    same weight.

    Attributes:
        name: str, of the registry `objectives.OBJECTIVES`.
        weight: float, factor of the loss.
        streams: "query" if the objective reads the rows of targets alone,
            "both" if it reads `content`.
        reads_query: bool, whether the objective has targets; if no objective
            has, the mask embedding is not trained.
        metric_names: tuple of str, the metrics of `loss_sums`.
        layer_names: tuple of str, attributes of the model for `make_layers`.
        keras_metrics: dict of str to str, the metrics of `fit`: attribute of
            the model to name in `LossTerms.metrics`.

    Example:

    ```python
    class HeavierPermutation(xlnet_tf.objectives.Permutation):
        weight = 2.0

    backbone = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_size("tiny"))
    model = xlnet_tf.XLNetPretrainer(backbone, objective=HeavierPermutation())
    ```
    """

    name = None
    weight = 1.0
    streams = "query"
    reads_query = True
    metric_names = ()
    layer_names = ()
    keras_metrics = {}

    def make_layers(self, config, dtype):
        """Make the built layers that the objective adds to the model.

        Args:
            config: XLNetConfig.
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
            dict as `XLNetBackbone` takes it. The backbone ignores labels.
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
            dict of tensors to be added to the outputs.

        Raises:
            ValueError: if labels are missing.
        """
        raise NotImplementedError

    def terms(self, outputs, batch):
        """Look up the losses of `predict` in the outputs.

        Returns:
            LossTerms, or None if nothing was predicted.
        """
        raise NotImplementedError

    def loss_sums(self, outputs, batch):
        """Sum the losses of a batch, not divided by the weight.

        Args:
            outputs: dict that the model returned.
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


def target_weights(batch, token_loss):
    """float tensor of shape [B, P], by default all 1."""
    if batch.get("target_weights") is None:
        return ops.ones_like(token_loss)
    return ops.cast(batch["target_weights"], token_loss.dtype)
