"""One optimizer step on any strategy: gradients, accumulation, update.

The loss is summed over the rows of all replicas and divided by their total
weight, so that N replicas give the same numbers as one.

Shapes: B rows of one replica.
"""

import abc
import math
import time

import keras
import orbit
import tensorflow as tf

from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule
from xlnet_tf.training.strategy import distribute_rows
from xlnet_tf.training.strategy import is_one_device


def make_optimizer(model, config, **arguments):
    """AdamW with warm-up and decay, built for the model's weights.

    Built at once, because Keras restores an unbuilt optimizer wrongly.

    Args:
        model: keras.Model, made in the strategy's scope.
        config: TrainingConfig.
        **arguments: further arguments of AdamW.

    Returns:
        AdamW.
    """
    optimizer = AdamW(
        WarmupSchedule(
            config.learning_rate,
            config.steps,
            config.warmup_steps,
            config.decay,
            config.final_learning_rate_fraction,
        ),
        weight_decay=config.weight_decay,
        beta_1=config.adam_beta_1,
        beta_2=config.adam_beta_2,
        epsilon=config.adam_epsilon,
        gradients_are_summed=True,
        **arguments,
    )
    optimizer.build(model.trainable_variables)
    return optimizer


def distribute(dataset_of_rows, config, strategy):
    """The batches of a run on the workers of a strategy.

    Args:
        dataset_of_rows: function of `first_row`, `num_rows` and
            `replica_batch`, ints, that returns a tf.data.Dataset of batches of
            one replica with these rows of every global batch.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.

    Returns:
        distributed dataset; the same replica always reads row r of the global
        batch.
    """
    replicas = strategy.num_replicas_in_sync

    def rows_of_worker(context):
        rows = config.batch_size // context.num_input_pipelines
        return dataset_of_rows(
            first_row=context.input_pipeline_id * rows,
            num_rows=rows,
            replica_batch=config.replica_batch_size(replicas),
        )

    return distribute_rows(strategy, rows_of_worker)


class Means:
    """Weighted means of metrics over steps.

    Args:
        names: sequence of str.
        strategy: tf.distribute.Strategy.
    """

    def __init__(self, names, strategy):
        with strategy.scope():
            self._means = {
                name: keras.metrics.Mean(name=name) for name in names
            }

    def update(self, sums, weight):
        """Adds a step.

        Args:
            sums: dict of str to scalar tensor.
            weight: scalar tensor; a step of weight 0 does not count.
        """
        for name, value in sums.items():
            mean = value / tf.maximum(weight, 1e-6)
            self._means[name].update_state(mean, weight)

    def reset(self):
        """Forgets all steps."""
        for mean in self._means.values():
            mean.reset_state()

    def result(self):
        """dict of str to float."""
        return {name: float(x.result()) for name, x in self._means.items()}


class Trainer(orbit.StandardTrainer, abc.ABC):
    """Orbit's trainer; a subclass gives the loss of a batch.

    Args:
        model: model whose trainable variables are updated.
        optimizer: AdamW of `make_optimizer`.
        dataset: distributed dataset, endless.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.
        global_step: tf.Variable, counts optimizer steps.
        memory: StatefulMemory or None.

    Attributes:
        stop: tf.Variable, bool, that ends a loop of steps after the step under
            way once it is True; None (default) for whole loops.
    """

    metrics = ("loss",)  # names of the sums that `loss_sums` returns
    seed_stream = None  # int, distinguishes the random numbers of trainers
    advice = None  # str, what to do about a loss that is not finite

    def __init__(
        self,
        model,
        optimizer,
        dataset,
        config,
        strategy,
        global_step,
        memory=None,
    ):
        super().__init__(dataset)
        self._model = model
        self._optimizer = optimizer
        self._config = config
        self._strategy = strategy
        self._global_step = global_step
        self._memory = memory
        self._gradients_of_part = tf.function(
            self._gradients,
            autograph=False,
            jit_compile=config.jit_compile,
            reduce_retracing=True,
        )
        self._update = make_update(
            optimizer, model.trainable_variables, config, strategy
        )
        self._means = Means(self.metrics, strategy)
        with strategy.scope():
            self._gradient_norm = keras.metrics.Mean(name="gradient_norm")
        self._begun = None
        self.stop = None

    @abc.abstractmethod
    def loss_sums(self, features):
        """Losses and metrics, summed over the rows of a micro-batch.

        A replica's batch is one, or `gradient_accumulation_steps` of them.

        Args:
            features: dict of a batch, with `dropout_seed`.

        Returns:
            (objective, metrics, weight, state): scalar whose gradient is
            taken; dict of the metrics to scalars; scalar that both are to be
            divided by; dict for `StatefulMemory.write`, empty without memory.
        """

    @abc.abstractmethod
    def scalars(self, means, rows_per_second):
        """Reported scalars of a loop, dict of str to float.

        Args:
            means: dict of str to float, of the metrics.
            rows_per_second: float.
        """

    def train_loop_begin(self):
        self._means.reset()
        self._gradient_norm.reset_state()
        self._begun = (time.monotonic(), int(self._global_step.numpy()))

    def create_train_loop_fn(self):
        if self.stop is None:
            return super().create_train_loop_fn()

        @tf.function(autograph=False)
        def loop(iterator, num_steps):
            def goes_on(step):
                # A loop without a step would have no scalars.
                is_free = tf.logical_not(self.stop.read_value())
                return (step < num_steps) & (is_free | (step == 0))

            def body(step):
                self.train_step(iterator)
                return step + 1

            tf.while_loop(goes_on, body, [tf.constant(0)])

        return loop

    def train_step(self, iterator):
        self._strategy.run(self._replica_step, args=(next(iterator),))
        self._global_step.assign_add(1)

    # Nothing here needs AutoGraph, which makes tracing slower.
    @tf.autograph.experimental.do_not_convert
    def _replica_step(self, features):
        context = tf.distribute.get_replica_context()
        fold_in = tf.random.experimental.stateless_fold_in
        seed = fold_in([self._config.seed, self.seed_stream], self._global_step)
        seed = fold_in(seed, context.replica_id_in_sync_group)
        gradients, sums, weight = self.gradients(features, seed)
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, weight)
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norm = self._update(gradients, total)
        self._means.update(sums, weight)
        self._gradient_norm.update_state(norm)

    def gradients(self, features, seed):
        """Gradients and metrics, summed over the micro-batches of a replica.

        Also updates the memory.

        Args:
            features: dict of a batch of B rows.
            seed: int tensor of shape [2], of this step and replica.

        Returns:
            (gradients, metrics, weight): list of float32 tensors, dict of
            float32 scalars, and the scalar that both are to be divided by.
        """
        if self._memory is not None:
            features = self._memory.read(features)
        parts = self._config.gradient_accumulation_steps
        totals, states = None, []
        for part in range(parts):
            # Each part has a seed of its own, so that dropout masks differ.
            part_seed = tf.random.experimental.stateless_fold_in(seed, part)
            sums, state = self._gradients_of_part(
                self._rows_of_part(features, part), part_seed
            )
            states.append(state)
            totals = (
                tf.nest.map_structure(tf.add, totals, sums) if totals else sums
            )
        if self._memory is not None:
            self._memory.write(
                tf.nest.map_structure(
                    lambda *rows: tf.concat(rows, axis=0), *states
                )
            )
        return totals

    def _rows_of_part(self, features, part):
        """The rows of one part of a batch, memories included."""
        parts = self._config.gradient_accumulation_steps
        if parts == 1:
            return features
        # Not from the features: with several workers their shape is unknown.
        replicas = self._strategy.num_replicas_in_sync
        rows = self._config.replica_batch_size(replicas) // parts
        return tf.nest.map_structure(
            lambda x: x[part * rows : (part + 1) * rows], features
        )

    def _gradients(self, features, seed):
        variables = [v.value for v in self._model.trainable_variables]
        with tf.GradientTape() as tape:
            objective, metrics, weight, state = self.loss_sums(
                {**features, "dropout_seed": seed}
            )
        gradients = tape.gradient(
            objective,
            variables,
            # Without targets the mask embedding has no gradient.
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        return (gradients, metrics, weight), state

    def train_loop_end(self):
        """Returns the loop's scalars.

        Raises:
            RuntimeError: if the loss is not finite.
        """
        begun, first_step = self._begun
        last_step = int(self._global_step.numpy())
        seconds = time.monotonic() - begun
        means = self._means.result()
        norm = float(self._gradient_norm.result())
        if not math.isfinite(means["loss"] + norm):
            raise RuntimeError(
                f"the loss became {means['loss']} (gradient norm {norm}) "
                f"between steps {first_step} and {last_step}. Nothing of these "
                f"steps was saved: {self.advice} with a smaller learning rate, "
                "a longer warm-up or --precision float32."
            )
        rows = (last_step - first_step) * self._config.batch_size
        return {
            **self.scalars(means, rows / max(seconds, 1e-9)),
            "gradient_norm": norm,
            "learning_rate": float(self._optimizer.learning_rate),
        }


def make_update(optimizer, variables, config, strategy):
    """A function that updates the weights by the gradients of a batch.

    Args:
        optimizer: AdamW, built.
        variables: list of variables.
        config: TrainingConfig.
        strategy: tf.distribute.Strategy.

    Returns:
        function of (gradients, weight) to the norm of the gradients before
        clipping, a float32 scalar, to be called in each replica. `gradients`
        are of the loss summed over the whole batch; they are divided by
        `weight`, at least 1e-6, and clipped.
    """
    largest_norm = config.max_gradient_norm

    def update(gradients, weight):
        # Division and clipping are one factor: each pass over all gradients
        # takes its time.
        factor = 1 / tf.maximum(weight, 1e-6)
        norm = tf.linalg.global_norm(gradients) * factor
        if largest_norm:
            factor *= largest_norm / tf.maximum(norm, largest_norm)
        gradients = [g * tf.cast(factor, g.dtype) for g in gradients]
        optimizer.apply(gradients, variables)
        return norm

    # Compiled, an update is one pass in place. Replicas meet inside of the
    # optimizer, which a compiled function does not allow.
    if config.jit_compile and is_one_device(strategy):
        return tf.function(update, autograph=False, jit_compile=True)
    return update
