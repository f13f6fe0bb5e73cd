"""XLNetPretrainer: a backbone with a language model head and objectives.

Shapes: B batch, T tokens, P targets, D model dim, V vocabulary.
"""

import contextlib
import warnings

import keras
from keras import ops

from xlnet_tf.model.inputs import as_features
from xlnet_tf.model.memory import StatefulMemory
from xlnet_tf.objectives import OBJECTIVES
from xlnet_tf.objectives import Masked
from xlnet_tf.objectives import NextSentence
from xlnet_tf.objectives import Objective
from xlnet_tf.objectives import Permutation
from xlnet_tf.objectives import TokenPrediction
from xlnet_tf.objectives.generating import GeneratingModel
from xlnet_tf.tasks.heads import LanguageModelHead
from xlnet_tf.tasks.language_model import LanguageModelTask

# Arguments of Keras' `compile` that are refused, because the objectives define
# the loss and the metrics.
_OF_OBJECTIVES = "loss", "loss_weights", "metrics", "weighted_metrics"


class TokenLoss(keras.losses.Loss):
    """Keras loss that returns the losses that the model has computed.

    Keras divides the mean of these losses by the number of replicas.
    """

    def call(self, y_true, y_pred):
        return y_pred


@keras.saving.register_keras_serializable(package="xlnet_tf")
class XLNetPretrainer(GeneratingModel, LanguageModelTask):
    """Model for pretraining: a backbone, a language model head and objectives.

    The objectives define the loss, so give `compile` only an optimizer. A batch
    is one dict of features and labels. For memory between the batches of `fit`,
    call `attach_memory` first. The inputs of `fill`, `generate` and `score` are
    texts. The inputs of `predict` are features.

    Args:
        backbone: XLNetBackbone, or BertBackbone for objectives without a
            query stream.
        objective: Objective, name of an objective, or a list of objectives, see
            `xlnet_tf.objectives`. Default `Permutation()`, or `Masked()` if the
            backbone has no query stream.
        has_transform, transform_gelu: see `LanguageModelHead`.
        next_sentence_weight: float, weight of next-sentence prediction. If it
            is positive and the objectives lack `NextSentence`,
            `NextSentence(next_sentence_weight)` is added. Default 0, as in the
            released code.

    Call arguments:
        features: dict of the backbone's features and the objectives' labels:
            `target_ids` and `target_weights` for predictions of tokens,
            `is_next` for `NextSentence`.
        training: bool, whether dropout is applied.
        streams: "both", or "query" to omit `content` from the outputs. None
            (default) means "query" in training with labels, else "both".
            `content` is always included if an objective needs it.
        first_half_length: int, length of a prefix of the tokens. The attention
            mask must hide later tokens from the prefix, see `XLNetBackbone`.
            Default 0: there is no such prefix.

    Returns:
        dict: the outputs of the backbone and, if the batch has labels:
            token_loss: float32 [B, P], in nats.
            Other outputs of the objectives, such as `token_correct` (float32
                [B, P]).
            loss: float32 [], the sum of all objectives' losses, each times
                `Objective.weight`. The loss of an objective is a weighted mean
                over targets or, for `NextSentence`, over rows.

    Raises:
        ValueError: if an objective is unknown, if its weight is out of range,
            or if its labels are missing.

    Example:

    ```python
    import numpy as np
    import xlnet_tf
    config = xlnet_tf.XLNetConfig.from_size("tiny")
    model = xlnet_tf.XLNetPretrainer(xlnet_tf.XLNetBackbone(config))
    ids, last = np.array([[17, 23, 4, 3]]), np.array([[3]])
    model(dict(token_ids=ids, target_positions=last, target_ids=last))["loss"]
    ```
    """

    def __init__(
        self,
        backbone: keras.Model,
        objective: Objective | str | dict | list | None = None,
        has_transform: bool = False,
        transform_gelu: str | None = None,
        next_sentence_weight: float = 0.0,
        **kwargs,
    ):
        if objective is None and not backbone.has_query_stream:
            objective = Masked()
        objectives = make_objectives(objective, next_sentence_weight)
        for one in objectives:
            one.check(backbone)
        head = self.make_head(
            LanguageModelHead,
            backbone,
            kwargs,
            has_transform=has_transform,
            transform_gelu=transform_gelu,
        )
        super().__init__(backbone, head, **kwargs)
        self.objectives = objectives
        for one in objectives:
            layers = one.make_layers(backbone.config, head.dtype_policy)
            for name, layer in zip(one.layer_names, layers, strict=True):
                setattr(self, name, layer)
            for name, metric in one.make_metrics().items():
                setattr(self, name, metric)
        self.memory: StatefulMemory | None = None
        self.token_loss = TokenLoss(reduction="mean_with_sample_weight")
        self.finish_layers()

    def attach_memory(
        self, batch_size: int, mask_unwritten: bool = False
    ) -> StatefulMemory:
        """Add a memory that lasts from one batch to the next.

        Only training reads and writes the memory. Validation between two
        batches does not change the memory. Row r of a batch must continue the
        text in row r of the previous batch. Give `fit` a data set in this
        order. Keras shuffles arrays, so set `shuffle=False` for arrays. All
        batches need the same number of rows.

        Args:
            batch_size: int, number of rows of a batch on one replica.
            mask_unwritten: bool, see `StatefulMemory`. Default False.

        Returns:
            StatefulMemory, which is also the attribute `memory` of the model.
        """
        strategy = getattr(self, "_distribute_strategy", None)
        # Outside the strategy's scope all replicas would share one memory.
        with strategy.scope() if strategy else contextlib.nullcontext():
            if self.memory is not None:
                # Otherwise Keras would also save the old memory, under the
                # same name.
                self._tracker.untrack(self.memory)
            self.memory = StatefulMemory.for_config(
                self.config,
                batch_size,
                mask_unwritten=mask_unwritten,
                dtype=self.dtype_policy,
            )
            memory = self.memory
        # Functions that were compiled earlier use the old memory or no memory.
        self.forget_compiled()
        return memory

    def computation(self):
        objectives = [objective.get_config() for objective in self.objectives]
        return (self.memory is None, objectives, *super().computation())

    def call(self, features, training=None, streams=None, first_half_length=0):
        features = as_features(features)
        reads_memory = (
            self.memory is not None
            and training
            and features.get("memories") is None
        )
        if reads_memory:
            features = self.memory.read(features)
        has_labels = self.objectives[0].has_labels(features)
        if streams is None:
            streams = "query" if training and has_labels else "both"
        inputs = features
        for objective in self.objectives:
            inputs = objective.features(inputs)
            if has_labels and objective.streams == "both":
                streams = "both"
        promise = {}
        if first_half_length:  # BertBackbone has no such argument
            promise["first_half_length"] = first_half_length
        outputs = self.backbone(
            inputs, training=training, streams=streams, **promise
        )
        if reads_memory:
            self.memory.write(outputs)
        if not has_labels:
            return outputs
        for objective in self.objectives:
            outputs = {
                **outputs,
                **objective.predict(self, outputs, features, training),
            }
        loss, _, weight = self.loss_sums(outputs, features)
        return {**outputs, "loss": loss / ops.maximum(weight, 1e-6)}

    def compile(
        self,
        optimizer="auto",
        loss="auto",
        loss_weights=None,
        metrics="auto",
        weighted_metrics=None,
        **kwargs,
    ):
        """Configure training with an optimizer.

        The objectives define the loss and the metrics.

        Args:
            optimizer, kwargs: see `Task.compile`.
            loss, loss_weights, metrics, weighted_metrics: must be left out.

        Raises:
            ValueError: if a loss, loss weights or metrics are given.
        """
        values = loss, loss_weights, metrics, weighted_metrics
        for name, value in zip(_OF_OBJECTIVES, values, strict=True):
            if value and value != "auto":
                raise ValueError(
                    f"a pretrainer takes no `{name}` in `compile`; its "
                    "`objective` defines the loss and the metrics. Received: "
                    f"{name}={value!r}."
                )
        super().compile(optimizer, **kwargs)

    def predict_step(self, *arguments):
        """Compute a step of `predict`, without the largest outputs.

        The step leaves out `memories`, `memory_mask` and `loss`. If the outputs
        have `query`, the step also leaves out `content`.
        """
        outputs = super().predict_step(*arguments)
        if keras.backend.backend() != "jax":
            return self._of_rows(outputs)
        outputs, state = outputs
        return self._of_rows(outputs), state

    @staticmethod
    def _of_rows(outputs):
        left_out = {"memories", "memory_mask", "loss"}
        if "query" in outputs:
            left_out.add("content")
        return {k: v for k, v in outputs.items() if k not in left_out}

    @property
    def reads_query(self):
        """Whether an objective reads the query stream."""
        return any(x.reads_query for x in self.objectives)

    @property
    def next_token(self):
        """Name of the row that predicts the next token; see `Objective`."""
        return self.objectives[0].next_token

    @property
    def pseudo_mask_id(self):
        """Token id of [P], for a model whose `next_token` is "pseudo"."""
        return self.objectives[0].pseudo_mask_id

    @property
    def metric_names(self):
        """Tuple of the names of the metrics that `loss_sums` returns."""
        return sum((x.metric_names for x in self.objectives), ())

    def loss_sums(self, outputs, batch):
        """Sum a batch's losses times their weights, without a division.

        Args:
            outputs: dict of the model's outputs.
            batch: dict of features and labels, see the class.

        Returns:
            (loss, metrics, divisor). `loss` is a float32 scalar to
            differentiate, the sum of all objectives' losses, each times the
            objective's factor. `metrics` is a dict from `metric_names` to
            float32 scalars; its entry "loss" is the loss of the first objective
            alone. `divisor` is a float32 scalar, by which the caller divides
            the loss and the metrics.
        """
        first = self.objectives[0]
        loss, metrics, weight = first.loss_sums(outputs, batch)
        loss = first.weight * loss
        for objective in self.objectives[1:]:
            sums = objective.loss_sums(outputs, batch)
            if sums is not None:
                loss = loss + objective.weight * sums[0]
                metrics = {**metrics, **sums[1]}
        return loss, metrics, weight

    def compute_loss(
        self,
        x=None,
        y=None,
        y_pred=None,
        sample_weight=None,
        training=True,
    ):
        """Compute the loss of `fit`: `loss` plus the losses of regularizers.

        The sum is divided by the number of replicas.
        """
        if "loss" not in y_pred:
            raise ValueError(
                "`fit` and `evaluate` need the feature `target_ids`. "
                f"Received: {', '.join(as_features(x))}."
            )
        if sample_weight is not None:
            raise ValueError(
                "the loss weighs targets, not rows: leave `sample_weight` and "
                "`class_weight` out, and give the feature `target_weights` "
                "[B, P]."
            )
        losses = []
        if self.losses:  # losses of regularizers
            losses.append(super().compute_loss(x, y, y_pred))
        for objective in self.objectives:
            terms = objective.terms(y_pred, x)
            if terms is not None:
                loss = self.token_loss(terms.loss, terms.loss, terms.weights)
                losses.append(objective.weight * loss)
        return sum(losses)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        """Update all objectives' metrics with a batch; return the metrics."""
        unused = []
        for objective in self.objectives:
            terms = objective.terms(y_pred, x)
            for attribute, name in objective.keras_metrics.items():
                if terms is None:
                    unused.append(name)
                    continue
                metric = getattr(self, attribute)
                metric.update_state(terms.metrics[name], terms.weights)
        results = self.get_metrics_result()
        # A metric without predictions is left out, because the value 0 would
        # mean that all predictions are wrong.
        return {k: v for k, v in results.items() if k not in unused}

    @property
    def next_sentence_weight(self):
        """Weight of the objective `NextSentence`, float; 0 without it."""
        weights = {x.name: x.weight for x in self.objectives}
        return weights.get(NextSentence.name, 0.0)

    def heads(self, arguments):
        others = make_objectives(
            arguments.get("objective"),
            arguments.get("next_sentence_weight") or 0.0,
        )
        names = {objective.name for objective in others}
        layers = super().heads(arguments)
        for objective in self.objectives:
            if objective.name in names:
                layers |= {x: getattr(self, x) for x in objective.layer_names}
        return layers

    def get_config(self):
        objectives = self.objectives
        # The config holds only the weight of `NextSentence`, so that an
        # argument of `from_preset` can replace it.
        if type(objectives[-1]) is NextSentence:
            objectives = objectives[:-1]
        return {
            **super().get_config(),
            "objective": _configs_of(objectives),
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


def make_objectives(objective=None, next_sentence_weight=0.0):
    """Make the objectives of a pretrainer.

    Args:
        objective: Objective, a name in `OBJECTIVES`, a dict from `get_config`,
            or a list of these. None (default) means `Permutation()`.
        next_sentence_weight: float. If it is positive and the objectives lack
            `NextSentence`, `NextSentence` with this weight is added. Default 0.

    Returns:
        tuple of Objective.

    Raises:
        ValueError: if a name is unknown or occurs twice, if no objective
            precedes `NextSentence`, if two objectives predict tokens, or if the
            weight is negative.
    """
    if next_sentence_weight < 0:
        raise ValueError(
            "`next_sentence_weight` must not be negative. Received: "
            f"next_sentence_weight={next_sentence_weight}."
        )
    if objective is None:
        objective = Permutation()
    if not isinstance(objective, (list, tuple)):
        objective = [objective]
    objectives = [_make(value) for value in objective]
    names = [value.name for value in objectives]
    if next_sentence_weight and NextSentence.name not in names:
        objectives.append(NextSentence(next_sentence_weight))
    if not names or len(names) != len(set(names)):
        raise ValueError(
            "`objective` must name one objective or several different ones. "
            f"Received: objective={names}."
        )
    if sum(isinstance(value, TokenPrediction) for value in objectives) > 1:
        raise ValueError(
            "`objective` must have one objective that predicts tokens, because "
            "each needs other features and outputs. Received: "
            f"objective={names}."
        )
    if objectives[0].name == NextSentence.name:
        raise ValueError(
            "next-sentence prediction weights rows by their targets, so it "
            "needs another objective before it, such as `Permutation()`. "
            f"Received: objective={names}."
        )
    return tuple(objectives)


def _configs_of(objectives):
    """List the configs of objectives for a saved file.

    Args:
        objectives: sequence of Objective.
    """
    for one in objectives:
        known = OBJECTIVES.get(one.name)
        if known not in (None, type(one)):
            warnings.warn(
                f"{type(one).__name__} has the name of {known.__name__}, "
                f"{one.name!r}, and would be loaded as that class. Give it "
                "another name, and add it to `OBJECTIVES` before loading.",
                stacklevel=3,
            )
    return [one.get_config() for one in objectives]


def _make(value):
    if isinstance(value, Objective):
        return value
    arguments = {"name": value} if isinstance(value, str) else dict(value)
    name = arguments.pop("name", None)
    if name not in OBJECTIVES:
        raise ValueError(
            f"`objective` must be one of {', '.join(OBJECTIVES)}, or an "
            f"Objective. Received: objective={name!r}."
        )
    return OBJECTIVES[name](**arguments)
