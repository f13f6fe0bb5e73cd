"""The model, the step and the evaluation of pretraining, on any strategy.

Shapes: B rows of one replica, T tokens, P targets.
"""

import math

import keras
import orbit
import tensorflow as tf

from data_pipeline.progress import Progress
from xlnet_tf.config import BertConfig
from xlnet_tf.model.backbones import make_backbone
from xlnet_tf.model.memory import StatefulMemory
from xlnet_tf.objectives import OBJECTIVES
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.training.step import Means
from xlnet_tf.training.step import Trainer
from xlnet_tf.training.step import distribute
from xlnet_tf.training.update import make_optimizer


def build(model_config, config, strategy, head_arguments=None):
    """Model, optimizer and memory on a strategy.

    Args:
        model_config: XLNetConfig or BertConfig.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.
        head_arguments: dict of further arguments of the model's LM head, by
            default those of the head that the backbone was published with.

    Returns:
        (XLNetPretrainer, AdamW, StatefulMemory or None).
    """
    if head_arguments is None:
        has_transform = isinstance(model_config, BertConfig)
        head_arguments = {"has_transform": has_transform}
    keras.utils.set_random_seed(config.seed)
    with strategy.scope():
        model = XLNetPretrainer(
            make_backbone(
                model_config,
                seed=config.seed,
                rematerialize=config.rematerialize,
                attention_kernel=config.attention_kernel,
                dtype=config.policy,
            ),
            objective=make_objective(config),
            **head_arguments,
            next_sentence_weight=config.next_sentence_weight,
        )
        optimizer = make_optimizer(model, config)
    return model, optimizer, make_memory(model, config, strategy)


def make_objective(config):
    """Objective of the settings of a run."""
    objective = OBJECTIVES[config.objective]
    if config.objective == "pseudo_masked":
        return objective(losses=config.pseudo_masked_losses)
    return objective()


def make_memory(model, config, strategy):
    """StatefulMemory for the rows of each replica, or None without memory."""
    if not model.config.memory_length:
        return None
    with strategy.scope():
        return StatefulMemory.for_config(
            model.config,
            config.replica_batch_size(strategy.num_replicas_in_sync),
            mask_unwritten=config.hide_empty_memory,
            dtype=model.dtype_policy,
        )


def distribute_records(data, config, strategy, start_step=0):
    """The batches of records on the workers of a strategy.

    Args:
        data: PretrainingData.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.
        start_step: int, the first step to read.

    Returns:
        distributed dataset, endless; see `step.distribute`.
    """

    def dataset_of_rows(**rows):
        return read_batches(data, start_step, **rows)

    return distribute(dataset_of_rows, config, strategy)


def read_batches(data, start_step, **rows):
    """Read the batches of records that a model is trained on.

    Args:
        data: PretrainingData.
        start_step: int, the first step to read.
        **rows: of `PretrainingData.dataset`, which rows of each batch.

    Returns:
        tf.data.Dataset, endless.
    """
    dataset = data.dataset(start_step=start_step, **rows)
    if data.manifest.both_directions:
        return dataset
    # Without the feature, positions are projected for one direction only.
    return dataset.map(
        lambda x: {k: v for k, v in x.items() if k != "is_reversed"}
    )


def scalars_of(means, model):
    """Means of the metrics of a model, with the loss of a prediction in bits.

    Args:
        means: dict of str to float.
        model: XLNetPretrainer.

    Returns:
        dict of str to float.
    """
    bits = means["loss"] / model.objectives[0].predictions / math.log(2)
    return {"loss": means["loss"], "bits_per_token": bits, **means}


class PretrainingTrainer(Trainer):
    """Orbit's trainer for the objectives of a pretrainer.

    Args:
        model, optimizer, memory: of `build`.
        dataset: of `distribute_records`.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.
        global_step: tf.Variable, counts optimizer steps.
        first_half_length: int, of the records, see `XLNetBackbone`. Default 0.
    """

    seed_stream = 0
    advice = "resume from the last checkpoint"

    def __init__(
        self,
        model,
        optimizer,
        memory,
        dataset,
        config,
        strategy,
        global_step,
        first_half_length=0,
    ):
        self.metrics = model.metric_names
        self._first_half_length = first_half_length
        super().__init__(
            model, optimizer, dataset, config, strategy, global_step, memory
        )
        self._sequence_length = None  # known once a batch has been traced

    def outputs_of(self, features):
        self._sequence_length = features["token_ids"].shape[1]
        return self._model(
            features, training=True, first_half_length=self._first_half_length
        )

    def loss_sums(self, outputs, features):
        return self._model.loss_sums(outputs, features)

    def scalars(self, means, rows_per_second):
        tokens = rows_per_second * self._sequence_length
        return {**scalars_of(means, self._model), "tokens_per_second": tokens}


class PretrainingEvaluator(orbit.StandardEvaluator):
    """Loss, bits per token and accuracy on a held-out split.

    Texts are read in order with a memory of its own, and what an objective
    draws is the same at every evaluation.

    Args:
        model, memory: of `build`, the memory not the trainer's.
        dataset: of `distribute_records`.
        strategy: tf.distribute.Strategy.
        between_batches: function without arguments that may raise an error to
            leave the evaluation, or None.
        first_half_length: int, of the records, see `XLNetBackbone`. Default 0.
        progress: bool, whether to tell how far it is. Default False.
    """

    def __init__(
        self,
        model,
        memory,
        dataset,
        strategy,
        between_batches=None,
        first_half_length=0,
        progress=False,
    ):
        self._shows_progress, self._progress = progress, None
        super().__init__(dataset)
        self._first_half_length = first_half_length
        self._between_batches = between_batches
        self._model = model
        self._memory = memory
        self._strategy = strategy
        self._means = Means(model.metric_names, strategy)
        # TPUs run only compiled functions.
        self._reset = tf.function(lambda: strategy.run(memory.reset))

    def evaluate(self, num_steps):
        total, shown = int(num_steps), self._shows_progress
        with Progress("held out", "batches", total, shown=shown) as bar:
            self._progress = bar
            return super().evaluate(num_steps)

    def eval_begin(self):
        self._means.reset()
        if self._memory is not None:
            self._reset()

    # Nothing here needs AutoGraph, which makes tracing slower.
    @tf.autograph.experimental.do_not_convert
    def eval_step(self, iterator):
        self._strategy.run(self._replica_step, args=(next(iterator),))

    def eval_reduce(self, state=None, step_outputs=None):
        self._progress.update()
        if self._between_batches is not None:
            self._between_batches()

    def _replica_step(self, features):
        if self._memory is not None:
            features = self._memory.read(features)
        outputs = self._model(
            features,
            training=False,
            streams="query",
            first_half_length=self._first_half_length,
        )
        if self._memory is not None:
            self._memory.write(outputs)
        _, metrics, weight = self._model.loss_sums(outputs, features)
        self._means.update(metrics, weight)

    def eval_end(self, *args):
        return scalars_of(self._means.result(), self._model)
