"""One step of pretraining and of evaluation, on any strategy.

Orbit turns the loops (`training_loop`); here is what happens inside.

Shapes: B rows of one replica, T tokens, P targets.
"""

import math

import keras
import orbit
import tensorflow as tf

from xlnet_tf.model.backbone import XLNetBackbone
from xlnet_tf.model.memory import StatefulMemory
from xlnet_tf.objectives.pretrainer import XLNetPretrainer
from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule
from xlnet_tf.training.step import Means
from xlnet_tf.training.step import Trainer
from xlnet_tf.training.strategy import distribute_rows


def build(config, training, strategy, head_arguments=None):
    """Makes model, optimizer and memory on a strategy.

    Args:
        config: XLNetConfig.
        training: TrainingConfig.
        strategy: tf.distribute.Strategy.
        head_arguments: dict of further arguments of the model's LM head.

    Returns:
        (XLNetPretrainer, AdamW, StatefulMemory or None); the optimizer is
        built, because Keras restores an unbuilt one wrongly.
    """
    keras.utils.set_random_seed(training.seed)
    with strategy.scope():
        model = XLNetPretrainer(
            XLNetBackbone(
                config,
                seed=training.seed,
                rematerialize=training.rematerialize,
                scan_layers=training.scan_layers,
                dtype=training.policy,
            ),
            **(head_arguments or {}),
            next_sentence_weight=training.next_sentence_weight,
        )
        optimizer = AdamW(
            WarmupSchedule(
                training.learning_rate,
                training.steps,
                training.warmup_steps,
                training.decay,
                training.final_learning_rate_fraction,
            ),
            weight_decay=training.weight_decay,
            beta_1=training.adam_beta_1,
            beta_2=training.adam_beta_2,
            epsilon=training.adam_epsilon,
            gradients_are_summed=True,
        )
        optimizer.build(model.trainable_variables)
    return model, optimizer, make_memory(model, training, strategy)


def make_memory(model, training, strategy):
    """A memory for the rows of each replica, or None without memory."""
    if not model.config.memory_length:
        return None
    with strategy.scope():
        return StatefulMemory.for_config(
            model.config,
            training.replica_batch_size(strategy.num_replicas_in_sync),
            mask_unwritten=training.hide_empty_memory,
            dtype=model.dtype_policy,
        )


def distribute(data, training, strategy, start_step=0):
    """The batches of a run on the workers of a strategy.

    Args:
        data: PretrainingData of `data_pipeline`.
        training: TrainingConfig.
        strategy: tf.distribute.Strategy.
        start_step: int, the first step to read.

    Returns:
        distributed dataset, endless; row r of the global batch is always read
        by the same replica.
    """
    replica_batch = training.replica_batch_size(strategy.num_replicas_in_sync)

    def rows_of_worker(context):
        workers = context.num_input_pipelines
        rows = training.batch_size // workers
        dataset = data.dataset(
            start_step=start_step,
            first_row=context.input_pipeline_id * rows,
            num_rows=rows,
            replica_batch=replica_batch,
        )
        if data.manifest.both_directions:
            return dataset
        # Without the feature, positions are projected for one direction only.
        return dataset.map(_without_direction)

    return distribute_rows(strategy, rows_of_worker)


def _without_direction(features):
    return {k: v for k, v in features.items() if k != "is_reversed"}


class GradientStep:
    """Sums of loss and gradient over the rows of one replica.

    Args:
        model: XLNetPretrainer.
        memory: StatefulMemory or None.
        accumulation_steps: int, parts that the rows are computed in.
        jit_compile: bool.
    """

    def __init__(self, model, memory, accumulation_steps, jit_compile):
        self._model = model
        self._memory = memory
        self._accumulation_steps = accumulation_steps
        self._part = tf.function(self._gradients_of, jit_compile=jit_compile)

    def __call__(self, features, seed):
        """Computes gradients of the summed loss; updates the memory.

        Args:
            features: dict of a batch of B rows.
            seed: int tensor of shape [2], for dropout.

        Returns:
            (gradients, metrics): list of float32 tensors, and dict of float32
            scalars, all weighted by `target_weights` and not yet divided.
        """
        if self._memory is not None:
            features = self._memory.read(features)
        parts = self._accumulation_steps
        totals, memories = None, []
        for part in range(parts):
            # Distinct seeds, for every part drops values of its own.
            part_seed = tf.random.experimental.stateless_fold_in(seed, part)
            sums, left = self._part(_part(features, part, parts), part_seed)
            memories.append(left)
            totals = (
                sums
                if totals is None
                else tf.nest.map_structure(tf.add, totals, sums)
            )
        if self._memory is not None:
            self._memory.write(
                tf.nest.map_structure(
                    lambda *rows: tf.concat(rows, axis=0), *memories
                )
            )
        return totals

    def _gradients_of(self, features, seed):
        variables = [v.value for v in self._model.trainable_variables]
        with tf.GradientTape() as tape:
            outputs = self._model(
                {**features, "dropout_seed": seed}, training=True
            )
            objective, metrics, _ = self._model.loss_sums(outputs, features)
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(objective, variables)
        ]
        left = {
            key: outputs[key]
            for key in ("memories", "memory_mask")
            if key in outputs
        }
        return (gradients, metrics), left


def _part(features, part, parts):
    """Rows of one part of a batch, memories included."""
    if parts == 1:
        return features
    rows = features["token_ids"].shape[0] // parts
    return tf.nest.map_structure(
        lambda x: x[part * rows : (part + 1) * rows], features
    )


def _told(means):
    """Means of the metrics, the loss in bits too."""
    bits = means["loss"] / math.log(2)
    return {"loss": means["loss"], "bits_per_token": bits, **means}


class PretrainingTrainer(Trainer):
    """Orbit's trainer for permutation language modelling.

    Args:
        model, optimizer, memory: of `build`.
        dataset: of `distribute`.
        training: TrainingConfig.
        strategy: tf.distribute.Strategy.
        global_step: tf.Variable, counts optimizer steps.
    """

    seed_stream = 0
    advice = "resume from the last checkpoint"

    def __init__(
        self, model, optimizer, memory, dataset, training, strategy, global_step
    ):
        self.metrics = model.metric_names
        super().__init__(
            model, optimizer, dataset, training, strategy, global_step
        )
        self._step = GradientStep(
            model,
            memory,
            training.gradient_accumulation_steps,
            training.jit_compile,
        )
        self._sequence_length = None  # known once a batch was traced

    def gradients(self, features, seed):
        self._sequence_length = features["token_ids"].shape[1]
        gradients, metrics = self._step(features, seed)
        return gradients, metrics, tf.reduce_sum(features["target_weights"])

    def scalars(self, means, rows_per_second):
        tokens = rows_per_second * self._sequence_length
        return {**_told(means), "tokens_per_second": tokens}


class PretrainingEvaluator(orbit.StandardEvaluator):
    """Loss, bits per token and accuracy on a held-out split.

    The texts are read in order with a memory of its own, permuted the same way
    every time.

    Args:
        model, memory: of `build`, the memory not the trainer's.
        dataset: of `distribute`.
        strategy: tf.distribute.Strategy.
    """

    def __init__(self, model, memory, dataset, strategy):
        super().__init__(dataset)
        self._model = model
        self._memory = memory
        self._strategy = strategy
        self._means = Means(model.metric_names, strategy)
        # TPUs run nothing but functions.
        self._reset = tf.function(lambda: strategy.run(memory.reset))

    def eval_begin(self):
        self._means.reset()
        if self._memory is not None:
            self._reset()

    def eval_step(self, iterator):
        self._strategy.run(self._replica_step, args=(next(iterator),))

    def _replica_step(self, features):
        if self._memory is not None:
            features = self._memory.read(features)
        outputs = self._model(features, training=False, streams="query")
        if self._memory is not None:
            self._memory.write(outputs)
        _, metrics, _ = self._model.loss_sums(outputs, features)
        weight = tf.reduce_sum(features["target_weights"])
        self._means.update(metrics, weight)

    def eval_end(self, *args):
        return _told(self._means.result())
