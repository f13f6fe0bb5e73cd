"""Optimizer steps on any strategy: gradients, accumulation, update, loops.

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

from xlnet_tf.training.step_results import StepResults
from xlnet_tf.training.strategy import distribute_rows
from xlnet_tf.training.update import make_update


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
        """Add a step.

        Args:
            sums: dict of str to scalar tensor.
            weight: scalar tensor; a step of weight 0 does not count.
        """
        for name, value in sums.items():
            mean = value / tf.maximum(weight, 1e-6)
            self._means[name].update_state(mean, weight)

    def reset(self):
        """Forget all steps."""
        for mean in self._means.values():
            mean.reset_state()

    def result(self):
        """dict of str to float, NaN where all steps had the weight 0."""
        return {
            name: float(x.result()) if x.count > 0 else math.nan
            for name, x in self._means.items()
        }


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
        results: StepResults of the loop.
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
        self._loss_scale = getattr(optimizer, "loss_scale", None)
        self.results = StepResults(
            # With a loss scale, steps that overflow are skipped.
            "skip" if self._loss_scale else config.on_not_finite
        )

    @property
    def model(self):
        """keras.Model that is trained."""
        return self._model

    @abc.abstractmethod
    def outputs_of(self, features):
        """Outputs of the model in training.

        Args:
            features: dict of a micro-batch, with `dropout_seed`. A replica's
                batch is one, or `gradient_accumulation_steps` of them.

        Returns:
            tensor or dict of tensors; with memory, a dict for
            `StatefulMemory.write`.
        """

    @abc.abstractmethod
    def loss_sums(self, outputs, features):
        """Losses and metrics, summed over the rows of a micro-batch.

        Args:
            outputs: of `outputs_of`.
            features: dict of the micro-batch.

        Returns:
            (objective, metrics, weight): scalar whose gradient is taken; dict
            of the metrics to scalars; scalar that both are to be divided by.
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
        self.results.begin(self._begun[1])

    def create_train_loop_fn(self):
        @tf.function(autograph=False)
        def loop(iterator, num_steps):
            def goes_on(step):
                # A loop without a step would have no scalars.
                return (step < num_steps) & ((step == 0) | ~self._ends())

            def body(step):
                self.train_step(iterator)
                return [step + 1]

            tf.while_loop(goes_on, body, [tf.constant(0)])

        return loop

    def _ends(self):
        """Bool scalar, whether a loop ends before its last step."""
        ends = self.results.must_end()
        return ends if self.stop is None else ends | self.stop.read_value()

    def train_step(self, iterator):
        results = self._strategy.run(self._replica_step, args=(next(iterator),))
        # They are of the whole batch, and so the same on each replica.
        local = self._strategy.experimental_local_results
        loss, norm = (local(x)[0] for x in results)
        self.results.add(loss, norm)
        if self._loss_scale is not None:
            is_finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
            self._loss_scale.adapt(is_finite)
        self._global_step.assign_add(1)

    # Nothing here needs AutoGraph, which makes tracing slower.
    @tf.autograph.experimental.do_not_convert
    def _replica_step(self, features):
        """Make a step; return its loss and gradient norm."""
        context = tf.distribute.get_replica_context()
        (gradients, sums, weight), state = self.gradients(
            features, self._replica_seed()
        )
        add_up = tf.distribute.ReduceOp.SUM
        total, loss = context.all_reduce(add_up, [weight, sums["loss"]])
        gradients = context.all_reduce(add_up, gradients)
        norm, is_finite = self._update(gradients, loss, total)
        if self._memory is not None:
            tf.cond(is_finite, lambda: self._memory.write(state), lambda: None)

        def if_finite(value):
            return tf.where(is_finite, value, tf.zeros_like(value))

        sums = tf.nest.map_structure(if_finite, sums)
        self._means.update(sums, if_finite(weight))
        self._gradient_norm.update_state(
            if_finite(norm), tf.cast(is_finite, tf.float32)
        )
        return loss / tf.maximum(total, 1e-6), norm

    def _replica_seed(self):
        """int tensor of shape [2], of this replica at the global step."""
        context = tf.distribute.get_replica_context()
        fold_in = tf.random.experimental.stateless_fold_in
        seed = fold_in([self._config.seed, self.seed_stream], self._global_step)
        return fold_in(seed, context.replica_id_in_sync_group)

    def gradients(self, features, seed):
        """Gradients and metrics, summed over the micro-batches of a replica.

        Args:
            features: dict of a batch of B rows.
            seed: int tensor of shape [2], of this replica and step.

        Returns:
            ((gradients, metrics, weight), state): list of float32 tensors,
            dict of float32 scalars, and the scalar that both are to be divided
            by; the memory after this batch, for `StatefulMemory.write`, which
            is empty without memory.
        """
        totals, states, scale = None, [], ()
        if self._loss_scale is not None:
            scale = (self._loss_scale.value.read_value(),)
        for part in self._parts(features, seed):
            sums, state = self._gradients_of_part(*part, *scale)
            states.append(state)
            totals = (
                tf.nest.map_structure(tf.add, totals, sums) if totals else sums
            )
        state = tf.nest.map_structure(
            lambda *rows: tf.concat(rows, axis=0), *states
        )
        return totals, state

    def _parts(self, features, seed):
        """The micro-batches of a replica's batch.

        Args:
            features: dict of a batch of B rows.
            seed: int tensor of shape [2], of `_replica_seed`.

        Returns:
            list of (features, seed): dict of a micro-batch, memories included,
            and its own seed, so that dropout masks differ.
        """
        if self._memory is not None:
            features = self._memory.read(features)
        return [
            (
                self._rows_of_part(features, part),
                tf.random.experimental.stateless_fold_in(seed, part),
            )
            for part in range(self._config.gradient_accumulation_steps)
        ]

    def _rows_of_part(self, features, part):
        """The rows of one part of a batch, memories included."""
        if self._config.gradient_accumulation_steps == 1:
            return features
        # Not from the features: with several workers their shape is unknown.
        replicas = self._strategy.num_replicas_in_sync
        rows = self._config.replica_batch_size(replicas)
        rows //= self._config.gradient_accumulation_steps
        return tf.nest.map_structure(
            lambda x: x[part * rows : (part + 1) * rows], features
        )

    def _gradients(self, features, seed, loss_scale=None):
        variables = [v.value for v in self._model.trainable_variables]
        with tf.GradientTape() as tape:
            features = {**features, "dropout_seed": seed}
            outputs = self.outputs_of(features)
            objective, metrics, weight = self.loss_sums(outputs, features)
            if loss_scale is not None:
                # Scale the mean, whose gradients do not grow with the batch.
                loss_scale = loss_scale / tf.maximum(weight, 1e-6)
                objective = objective * loss_scale
        gradients = tape.gradient(
            objective,
            variables,
            # Without targets the mask embedding has no gradient.
            unconnected_gradients=tf.UnconnectedGradients.ZERO,
        )
        gradients = [tf.convert_to_tensor(g) for g in gradients]
        if loss_scale is not None:
            gradients = [g / loss_scale for g in gradients]
        state = {}
        if self._memory is not None:
            names = ("memories", "memory_mask")
            state = {name: outputs[name] for name in names if name in outputs}
        return (gradients, metrics, weight), state

    def train_loop_end(self):
        """Return the loop's scalars, means of the steps that were finite.

        Raises:
            RuntimeError: if too many steps in a row were not.
        """
        begun, first_step = self._begun
        last_step = int(self._global_step.numpy())
        seconds = time.monotonic() - begun
        found = self.results.scalars(self.advice)
        means, norm = self._means.result(), float(self._gradient_norm.result())
        if "largest_loss" not in found:  # means of nothing
            means, norm = dict.fromkeys(means, math.nan), math.nan
        rows = (last_step - first_step) * self._config.batch_size
        return {
            **self.scalars(means, rows / max(seconds, 1e-9)),
            "gradient_norm": norm,
            "learning_rate": float(self._optimizer.learning_rate),
            **found,
        }
