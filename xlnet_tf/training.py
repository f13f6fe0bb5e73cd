"""One step of pretraining and of evaluation, on any strategy.

Orbit turns the loops; here is what happens inside. The gradient is that of the
whole batch: losses are summed, summed over replicas, and divided by the weight
of all targets, so that N replicas equal one.

Shapes: B rows of one replica, T tokens, P targets.
"""

import math
import time

import keras
import orbit
import tensorflow as tf

from xlnet_tf.backbone import XLNetBackbone
from xlnet_tf.memory import StatefulMemory
from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule
from xlnet_tf.pretrainer import XLNetPretrainer
from xlnet_tf.strategy import is_one_device


def build(config, training, strategy):
    """Makes model, optimizer and memory on a strategy.

    Args:
        config: XLNetConfig.
        training: TrainingConfig.
        strategy: tf.distribute.Strategy.

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
                dtype=training.policy,
            )
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
            hide_empty=training.hide_empty_memory,
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

    return strategy.distribute_datasets_from_function(rows_of_worker)


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
            (gradients, loss_sum, correct_sum): list of float32 tensors, and
            two scalars, all weighted by `target_weights` and not yet divided.
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
        weights = features["target_weights"]
        with tf.GradientTape() as tape:
            outputs = self._model(
                {**features, "dropout_seed": seed}, training=True
            )
            loss_sum = tf.reduce_sum(outputs["token_loss"] * weights)
        gradients = [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss_sum, variables)
        ]
        correct_sum = tf.reduce_sum(outputs["token_correct"] * weights)
        left = {
            key: outputs[key]
            for key in ("memories", "memory_mask")
            if key in outputs
        }
        return (gradients, loss_sum, correct_sum), left


def _part(features, part, parts):
    """Rows of one part of a batch, memories included."""
    if parts == 1:
        return features
    rows = features["token_ids"].shape[0] // parts
    return tf.nest.map_structure(
        lambda x: x[part * rows : (part + 1) * rows], features
    )


def make_update(optimizer, variables, training, strategy):
    """A function that moves the weights by the gradients of a batch.

    Args:
        optimizer: AdamW, built.
        variables: list of variables.
        training: TrainingConfig.
        strategy: tf.distribute.Strategy.

    Returns:
        function of (gradients, weight) to the norm of the gradients before
        clipping, a float32 scalar, to be called in each replica. `gradients`
        are of the loss summed over the whole batch; their mean, divided by
        `weight`, at least 1e-6, is what moves the weights.
    """
    largest_norm = training.max_gradient_norm

    def update(gradients, weight):
        # Division and clipping are one factor, for each pass over all
        # gradients takes its time.
        factor = 1 / tf.maximum(weight, 1e-6)
        norm = tf.linalg.global_norm(gradients) * factor
        if largest_norm:
            factor *= largest_norm / tf.maximum(norm, largest_norm)
        gradients = [g * tf.cast(factor, g.dtype) for g in gradients]
        optimizer.apply(gradients, variables)
        return norm

    # Compiled, all that happens to a weight is one pass in place. Replicas
    # meet in the optimizer, which they cannot from inside a function.
    if training.jit_compile and is_one_device(strategy):
        return tf.function(update, autograph=False, jit_compile=True)
    return update


class _Means:
    """Loss and accuracy over steps, weighted by the targets they had."""

    def __init__(self, strategy):
        with strategy.scope():
            self._loss = keras.metrics.Mean(name="loss")
            self._accuracy = keras.metrics.Mean(name="accuracy")

    def update(self, loss_sum, correct_sum, weight):
        safe = tf.maximum(weight, 1e-6)
        self._loss.update_state(loss_sum / safe, weight)
        self._accuracy.update_state(correct_sum / safe, weight)

    def reset(self):
        self._loss.reset_state()
        self._accuracy.reset_state()

    def result(self):
        loss = float(self._loss.result())
        return {
            "loss": loss,
            "bits_per_token": loss / math.log(2),
            "accuracy": float(self._accuracy.result()),
        }


class PretrainingTrainer(orbit.StandardTrainer):
    """Orbit's trainer for permutation language modelling.

    Args:
        model, optimizer, memory: of `build`.
        dataset: of `distribute`.
        training: TrainingConfig.
        strategy: tf.distribute.Strategy.
        global_step: tf.Variable, counts optimizer steps.
    """

    def __init__(
        self, model, optimizer, memory, dataset, training, strategy, global_step
    ):
        super().__init__(dataset)
        self._model = model
        self._optimizer = optimizer
        self._training = training
        self._strategy = strategy
        self._global_step = global_step
        self._step = GradientStep(
            model,
            memory,
            training.gradient_accumulation_steps,
            training.jit_compile,
        )
        self._update = make_update(
            optimizer, model.trainable_variables, training, strategy
        )
        self._means = _Means(strategy)
        with strategy.scope():
            self._gradient_norm = keras.metrics.Mean(name="gradient_norm")
        self._begun = None
        self._sequence_length = None  # known once a batch was traced

    def train_loop_begin(self):
        self._means.reset()
        self._gradient_norm.reset_state()
        self._begun = (time.monotonic(), int(self._global_step.numpy()))

    def train_step(self, iterator):
        self._strategy.run(self._replica_step, args=(next(iterator),))
        self._global_step.assign_add(1)

    def _replica_step(self, features):
        self._sequence_length = features["token_ids"].shape[1]
        context = tf.distribute.get_replica_context()
        fold_in = tf.random.experimental.stateless_fold_in
        seed = fold_in([self._training.seed, 0], self._global_step)
        seed = fold_in(seed, context.replica_id_in_sync_group)
        gradients, loss_sum, correct_sum = self._step(features, seed)

        weight = tf.reduce_sum(features["target_weights"])
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, weight)
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norm = self._update(gradients, total)
        self._means.update(loss_sum, correct_sum, weight)
        self._gradient_norm.update_state(norm)

    def train_loop_end(self):
        """Returns the loop's scalars.

        Raises:
            RuntimeError: if the loss is not finite.
        """
        begun, first_step = self._begun
        last_step = int(self._global_step.numpy())
        seconds = time.monotonic() - begun
        scalars = self._means.result()
        scalars["gradient_norm"] = float(self._gradient_norm.result())
        if not math.isfinite(scalars["loss"] + scalars["gradient_norm"]):
            raise RuntimeError(
                f"the loss became {scalars['loss']} (gradient norm "
                f"{scalars['gradient_norm']}) between steps {first_step} and "
                f"{last_step}. Nothing of these steps was saved: resume from "
                "the last checkpoint with a smaller learning rate, a longer "
                "warm-up or --precision float32."
            )
        scalars["learning_rate"] = float(self._optimizer.learning_rate)
        sequences = (last_step - first_step) * self._training.batch_size
        scalars["tokens_per_second"] = (
            sequences * self._sequence_length / max(seconds, 1e-9)
        )
        return scalars


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
        self._means = _Means(strategy)
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
        outputs = self._model(features, training=False)
        if self._memory is not None:
            self._memory.write(outputs)
        weights = features["target_weights"]
        self._means.update(
            tf.reduce_sum(outputs["token_loss"] * weights),
            tf.reduce_sum(outputs["token_correct"] * weights),
            tf.reduce_sum(weights),
        )

    def eval_end(self, *args):
        return self._means.result()
