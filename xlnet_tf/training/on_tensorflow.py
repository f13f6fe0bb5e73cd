"""Steps, evaluations and predictions on TensorFlow.

Shapes: B rows of one replica.
"""

import math
import time

import keras
import tensorflow as tf

from data_pipeline.base.progress import Progress
from xlnet_tf.model.fusion import without_products
from xlnet_tf.model.memory import StatefulMemory
from xlnet_tf.training.checkpoints import MemoryRows
from xlnet_tf.training.devices import describe
from xlnet_tf.training.devices import distribute_rows
from xlnet_tf.training.devices import is_chief
from xlnet_tf.training.devices import multiplies_bfloat16
from xlnet_tf.training.step import LoopReport
from xlnet_tf.training.step import StepResult
from xlnet_tf.training.step import most_skipped
from xlnet_tf.training.update import make_update


class TensorFlow:
    """TensorFlow backend of a run, on the devices of a strategy.

    Args:
        strategy: tf.distribute.Strategy.

    Attributes:
        strategy: the argument.
        num_replicas: int, number of replicas that share a batch.
        is_chief: bool, whether this process writes the files of a run.
        memory_rows: class that reads and writes the files with the memory, see
            `MemoryRows`.
        has_tpu: bool, whether the devices are TPUs.
        multiplies_bfloat16: bool, whether the only device is a CPU with
            instructions for bfloat16.
    """

    memory_rows = MemoryRows

    def __init__(self, strategy):
        self.strategy = strategy
        self.num_replicas = strategy.num_replicas_in_sync
        self.is_chief = is_chief(strategy)
        self.has_tpu = bool(tf.config.list_logical_devices("TPU"))
        self.multiplies_bfloat16 = multiplies_bfloat16(strategy)

    def describe(self):
        """Return a line of text about the devices."""
        return describe(self.strategy)

    def moment_shape(self, weight):
        """Return the shape of a weight's Adam moment on one replica."""
        return weight.shape

    def tracked(self, model, optimizer):
        """Return a dict of the objects to store in a checkpoint."""
        return {"model": model, "optimizer": optimizer}

    def steps(self, model, optimizer, memory, loss, batches, settings, step):
        """Make the training steps; see the class Steps."""
        return Steps(
            *(model, optimizer, memory, loss, batches, settings, step),
            self.strategy,
        )

    def evaluation(self, model, loss, batches, settings):
        """Make the evaluation; see the class MeanLoss."""
        return MeanLoss(model, loss, batches, settings, self.strategy)

    def distributed(self, batches, settings):
        """Distribute batches to the devices; see the function `distributed`."""
        return distributed(batches, settings, self.strategy)

    def predictor(self, function, model):
        """Compile a function that computes predictions for a batch.

        Args:
            function: function of a dict of features that returns a dict of
                tensors with B rows.
            model: keras.Model that the function calls.

        Returns:
            function of a batch from `distributed`. It returns a dict of str to
            arrays, which have the rows of all replicas.
        """
        strategy = self.strategy

        def outputs_of(features):
            outputs = strategy.run(function, args=(features,))
            return {
                name: strategy.gather(value, axis=0)
                for name, value in outputs.items()
            }

        compiled = tf.function(
            outputs_of, autograph=False, reduce_retracing=True
        )

        def predict(features):
            outputs = compiled(features)
            return {name: value.numpy() for name, value in outputs.items()}

        return predict


def make_memory(model, settings, strategy):
    """Make a StatefulMemory for each replica's rows; None without memory."""
    if not model.config.memory_length:
        return None
    with strategy.scope():
        return StatefulMemory.for_config(
            model.config,
            settings.replica_batch_size(strategy.num_replicas_in_sync),
            mask_unwritten=settings.hide_empty_memory,
            dtype=model.dtype_policy,
        )


def distributed(batches, settings, strategy):
    """Distribute the batches of a run to the workers of a strategy.

    Args:
        batches: function of the ints `first_row`, `num_rows` and
            `replica_batch`. It returns one worker's tf.data.Dataset with the
            rows `first_row` to `first_row + num_rows - 1` of every global
            batch. Each batch of the data set is for one replica and has
            `replica_batch` rows.
        settings: PretrainingSettings.
        strategy: tf.distribute.Strategy.

    Returns:
        distributed data set. Row r of every global batch goes to the same
        replica.
    """

    def rows_of_worker(context):
        rows = settings.batch_size // context.num_input_pipelines
        return batches(
            first_row=context.input_pipeline_id * rows,
            num_rows=rows,
            replica_batch=settings.replica_batch_size(
                strategy.num_replicas_in_sync
            ),
        )

    return distribute_rows(strategy, rows_of_worker)


class Means:
    """Weighted means of metrics over the steps of a loop or an evaluation.

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
        """Add the sums of a step.

        Args:
            sums: dict of str to scalar tensor, the weighted sums of metrics.
            weight: scalar tensor, the total weight by which the sums must be
                divided. A step of weight 0 does not count.
        """
        for name, value in sums.items():
            mean = value / tf.maximum(weight, 1e-6)
            self._means[name].update_state(mean, weight)

    def reset(self):
        """Reset all sums to zero."""
        for mean in self._means.values():
            mean.reset_state()

    def result(self):
        """Return the means, dict of str to float.

        A mean is NaN if all steps had the weight 0.
        """
        return {
            name: float(x.result()) if x.count > 0 else math.nan
            for name, x in self._means.items()
        }


class Steps:
    """Training steps of a model, several in a compiled loop.

    Args:
        model: keras.Model whose trainable variables are updated.
        optimizer: AdamW made by `make_optimizer`.
        memory: StatefulMemory or None.
        loss: step.Loss.
        batches: endless batches, see `distributed`. None if only the method
            `gradients` is called.
        settings: PretrainingSettings.
        step: tf.Variable, the number of optimizer steps.
        strategy: tf.distribute.Strategy.
    """

    def __init__(
        self, model, optimizer, memory, loss, batches, settings, step, strategy
    ):
        self._model = model
        self._optimizer = optimizer
        self._memory = memory
        self._loss = loss
        self._settings = settings
        self._strategy = strategy
        self._step = step
        self._dataset = batches and distributed(batches, settings, strategy)
        self._iterator = None
        # On a CPU TensorFlow's oneDNN multiplies bfloat16 faster than XLA, so
        # XLA compiles only the operations between the matrix products.
        is_narrow = settings.precision == "bfloat16"
        has_products = is_narrow and multiplies_bfloat16(strategy)
        gradients = self._gradients
        if settings.jit_compile and has_products:
            gradients = without_products(gradients)
        self._gradients_of_part = tf.function(
            gradients,
            autograph=False,
            jit_compile=settings.jit_compile and not has_products,
            reduce_retracing=True,
        )
        self._update = make_update(
            optimizer, model.trainable_variables, settings, strategy
        )
        self._loop = tf.function(self._make_steps, autograph=False)
        self._loss_scale = getattr(optimizer, "loss_scale", None)
        self._most_skipped = most_skipped(settings)
        self._means = Means(loss.metrics, strategy)
        # The loop runs without Python and records its steps on the host.
        with tf.device("CPU:0"):
            # [steps, 2], the loss and the gradient norm of each step.
            self._results = tf.Variable(
                tf.zeros([0, 2]), shape=[None, 2], trainable=False
            )
            self._skipped_in_a_row = tf.Variable(0, trainable=False)

    def make(self, count, stop=None):
        """Make a loop of training steps.

        The loop ends early if too many steps in a row were not finite.

        Args:
            count: int, number of steps.
            stop: bool tf.Variable, or None (default). If the variable becomes
                True, the loop ends after the current step.

        Returns:
            LoopReport.
        """
        if self._iterator is None:
            self._iterator = iter(self._dataset)
        begun, first = time.monotonic(), int(self._step.numpy()) + 1
        self._means.reset()
        self._results.assign(tf.zeros([0, 2]))
        self._loop(self._iterator, tf.constant(count), stop)
        return LoopReport(
            means=self._means.result(),
            learning_rate=float(self._optimizer.learning_rate),
            results=[
                StepResult(step, float(loss), float(norm))
                for step, (loss, norm) in enumerate(
                    self._results.numpy(), first
                )
            ],
            skipped_in_a_row=int(self._skipped_in_a_row.numpy()),
            seconds=time.monotonic() - begun,
        )

    def _make_steps(self, iterator, count, stop):
        def goes_on(step):
            # At least one step, because a loop without steps has no figures.
            return (step < count) & ((step == 0) | ~self._must_end(stop))

        def body(step):
            self._make_step(iterator)
            return [step + 1]

        tf.while_loop(goes_on, body, [tf.constant(0)])

    def _must_end(self, stop):
        """Whether the loop must end before its last step, as a bool scalar."""
        ends = self._skipped_in_a_row.read_value() > self._most_skipped
        return ends if stop is None else ends | stop.read_value()

    def _make_step(self, iterator):
        results = self._strategy.run(self.replica_step, args=(next(iterator),))
        # The loss and the norm cover the whole batch and are the same on each
        # replica.
        local = self._strategy.experimental_local_results
        loss, norm = (local(x)[0] for x in results)
        self._note(loss, norm)
        if self._loss_scale is not None:
            is_finite = tf.math.is_finite(loss) & tf.math.is_finite(norm)
            self._loss_scale.adapt(is_finite)
        self._step.assign_add(1)

    def _note(self, loss, norm):
        """Record the loss and the gradient norm of a step."""
        result = tf.stack([loss, norm])
        self._results.assign(tf.concat([self._results, result[None]], axis=0))
        is_finite = tf.reduce_all(tf.math.is_finite(result))
        skipped = self._skipped_in_a_row
        skipped.assign(tf.where(is_finite, 0, skipped + 1))

    # Without AutoGraph, which is not needed and would slow down tracing.
    @tf.autograph.experimental.do_not_convert
    def replica_step(self, features):
        """Make a step on one replica; return the loss and the gradient norm."""
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
        return loss / tf.maximum(total, 1e-6), norm

    def _replica_seed(self):
        """Derive this replica's seed at this step, int tensor [2]."""
        context = tf.distribute.get_replica_context()
        fold_in = tf.random.experimental.stateless_fold_in
        seed = [self._settings.seed, self._loss.seed_stream]
        seed = fold_in(seed, self._step)
        return fold_in(seed, context.replica_id_in_sync_group)

    def gradients(self, features, seed):
        """Sum gradients and metrics over the micro-batches of a replica.

        Args:
            features: dict of the features of B rows.
            seed: int tensor of shape [2]. A seed for each micro-batch is
                derived from this seed, so that dropout masks differ.

        Returns:
            ((gradients, metrics, weight), state). The gradients are a list of
            float32 tensors, and the metrics are a dict of float32 scalars. The
            gradients and metrics must be divided by the weight, a scalar. The
            state is the memory after this batch, for `StatefulMemory.write`. It
            is empty without memory.
        """
        if self._memory is not None:
            features = self._memory.read(features)
        fold_in = tf.random.experimental.stateless_fold_in
        totals, states, scale = None, [], ()
        if self._loss_scale is not None:
            scale = (self._loss_scale.value.read_value(),)
        for part in range(self._settings.gradient_accumulation_steps):
            sums, state = self._gradients_of_part(
                self._rows_of_part(features, part), fold_in(seed, part), *scale
            )
            states.append(state)
            totals = (
                tf.nest.map_structure(tf.add, totals, sums) if totals else sums
            )
        state = tf.nest.map_structure(
            lambda *rows: tf.concat(rows, axis=0), *states
        )
        return totals, state

    def _rows_of_part(self, features, part):
        """Select a micro-batch's rows of all features and memories."""
        parts = self._settings.gradient_accumulation_steps
        if parts == 1:
            return features
        # The number of rows follows from the settings, because with several
        # workers the shapes of the features are unknown.
        replicas = self._strategy.num_replicas_in_sync
        rows = self._settings.replica_batch_size(replicas) // parts
        return tf.nest.map_structure(
            lambda x: x[part * rows : (part + 1) * rows], features
        )

    def _gradients(self, features, seed, loss_scale=None):
        variables = [v.value for v in self._model.trainable_variables]
        with tf.GradientTape() as tape:
            features = {**features, "dropout_seed": seed}
            outputs = self._loss.outputs(features)
            objective, metrics, weight = self._loss.sums(outputs, features)
            if loss_scale is not None:
                # Scale the mean of the losses, because the gradients of the
                # mean do not grow with the batch.
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


class MeanLoss:
    """Evaluation: mean loss and metrics of a model over held-out batches.

    The held-out texts are read in order, with a memory of their own. Random
    draws of an objective are the same at every evaluation.

    Args:
        model: XLNetPretrainer.
        loss: step.Loss for evaluation.
        batches: held-out batches, see `distributed`.
        settings: PretrainingSettings with the batch size of the evaluation.
        strategy: tf.distribute.Strategy.
    """

    def __init__(self, model, loss, batches, settings, strategy):
        self._loss = loss
        self._strategy = strategy
        self._memory = make_memory(model, settings, strategy)
        self._dataset = distributed(batches, settings, strategy)
        self._means = Means(loss.metrics, strategy)
        self._compiled = tf.function(self._add_batch, autograph=False)
        # A TPU runs only compiled functions.
        self._reset = tf.function(
            lambda: strategy.run(self._memory.reset), autograph=False
        )

    def evaluate(self, count, must_stop, progress=False):
        """Compute the mean loss and metrics over `count` batches.

        Args:
            count: int, number of batches.
            must_stop: function without arguments. It is called after each
                batch. If it returns True, the evaluation stops.
            progress: bool, whether to print progress. Default False.

        Returns:
            dict of str to float, or None if the evaluation was stopped.
        """
        self._means.reset()
        if self._memory is not None:
            self._reset()
        iterator = iter(self._dataset)
        with Progress("held out", "batches", count, shown=progress) as bar:
            for _ in range(count):
                self._compiled(iterator)
                bar.update()
                if must_stop():
                    return None
        return self._means.result()

    def _add_batch(self, iterator):
        self._strategy.run(self._replica_batch, args=(next(iterator),))

    @tf.autograph.experimental.do_not_convert
    def _replica_batch(self, features):
        if self._memory is not None:
            features = self._memory.read(features)
        outputs = self._loss.outputs(features)
        if self._memory is not None:
            self._memory.write(outputs)
        _, metrics, weight = self._loss.sums(outputs, features)
        self._means.update(metrics, weight)
