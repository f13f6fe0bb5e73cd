"""What pretraining and fine-tuning share: the loop of steps that Orbit turns.

The gradient is that of the whole batch: losses are summed, summed over
replicas, and divided by the weight of all rows, so that N replicas equal one.
"""

import abc
import math
import time

import keras
import orbit
import tensorflow as tf

from xlnet_tf.training.strategy import is_one_device


class Means:
    """Means over steps, each step weighing as much as what it was summed over.

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
        """Counts a step in.

        Args:
            sums: dict of str to scalar tensor.
            weight: scalar tensor; nothing is counted where it is 0.
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
    """Orbit's trainer; a subclass says what the gradients of a batch are.

    Args:
        model: model whose trainable variables are moved.
        optimizer: AdamW, built, whose gradients are summed already.
        dataset: distributed dataset, endless.
        training: TrainingConfig.
        strategy: tf.distribute.Strategy.
        global_step: tf.Variable, counts optimizer steps.
    """

    metrics = ("loss",)  # the sums that `gradients` gives
    seed_stream = None  # int, distinct numbers draw different random numbers
    advice = None  # str, what to do about a loss that is not finite

    def __init__(
        self, model, optimizer, dataset, training, strategy, global_step
    ):
        super().__init__(dataset)
        self._optimizer = optimizer
        self._training = training
        self._strategy = strategy
        self._global_step = global_step
        self._update = make_update(
            optimizer, model.trainable_variables, training, strategy
        )
        self._means = Means(self.metrics, strategy)
        with strategy.scope():
            self._gradient_norm = keras.metrics.Mean(name="gradient_norm")
        self._begun = None

    @abc.abstractmethod
    def gradients(self, features, seed):
        """Sums over the rows of one replica.

        Args:
            features: dict of a batch.
            seed: int tensor of shape [2], of this step and replica.

        Returns:
            (gradients, sums, weight): list of float tensors, dict of the
            metrics to scalars, and what both are to be divided by.
        """

    @abc.abstractmethod
    def scalars(self, means, rows_per_second):
        """What is told of a loop.

        Args:
            means: dict of str to float, of the metrics.
            rows_per_second: float.

        Returns:
            dict of str to float.
        """

    def train_loop_begin(self):
        self._means.reset()
        self._gradient_norm.reset_state()
        self._begun = (time.monotonic(), int(self._global_step.numpy()))

    def train_step(self, iterator):
        self._strategy.run(self._replica_step, args=(next(iterator),))
        self._global_step.assign_add(1)

    # Nothing here needs AutoGraph, which makes tracing slower.
    @tf.autograph.experimental.do_not_convert
    def _replica_step(self, features):
        context = tf.distribute.get_replica_context()
        fold_in = tf.random.experimental.stateless_fold_in
        seed = fold_in(
            [self._training.seed, self.seed_stream], self._global_step
        )
        seed = fold_in(seed, context.replica_id_in_sync_group)
        gradients, sums, weight = self.gradients(features, seed)
        total = context.all_reduce(tf.distribute.ReduceOp.SUM, weight)
        gradients = context.all_reduce(tf.distribute.ReduceOp.SUM, gradients)
        norm = self._update(gradients, total)
        self._means.update(sums, weight)
        self._gradient_norm.update_state(norm)

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
        rows = (last_step - first_step) * self._training.batch_size
        return {
            **self.scalars(means, rows / max(seconds, 1e-9)),
            "gradient_norm": norm,
            "learning_rate": float(self._optimizer.learning_rate),
        }


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
