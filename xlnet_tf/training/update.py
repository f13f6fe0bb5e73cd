"""Optimizer of a run, and the update of the weights by gradients."""

import math

import tensorflow as tf

from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule
from xlnet_tf.training.devices import is_one_cpu
from xlnet_tf.training.devices import is_one_device


def make_optimizer(model, settings, **arguments):
    """Make and build AdamW with warm-up and decay of the learning rate.

    The optimizer is built immediately, because Keras does not restore an
    unbuilt optimizer correctly.

    Args:
        model: keras.Model, made in the strategy's scope.
        settings: PretrainingSettings or FinetuningSettings.
        **arguments: other arguments of AdamW.

    Returns:
        AdamW.
    """
    optimizer = AdamW(
        WarmupSchedule(
            settings.learning_rate,
            settings.steps,
            settings.warmup_steps,
            settings.decay,
            settings.final_learning_rate_fraction,
        ),
        weight_decay=settings.weight_decay,
        beta_1=settings.adam_beta_1,
        beta_2=settings.adam_beta_2,
        epsilon=settings.adam_epsilon,
        gradients_are_summed=True,
        **arguments,
    )
    optimizer.build(model.trainable_variables)
    if settings.precision == "float16":
        # As an attribute, so that checkpoints store it with the moments.
        optimizer.loss_scale = LossScale()
    return optimizer


def bytes_of_moments(model, backend):
    """Compute the size of Adam's two moments on one replica in bytes.

    Args:
        model: keras.Model.
        backend: TensorFlow or Jax.
    """
    shapes = map(backend.moment_shape, model.trainable_variables)
    return 8 * sum(map(math.prod, shapes))  # float32


class LossScale(tf.Module):
    """Loss factor that keeps the gradients in the range of float16.

    The factor is halved after a step that is not finite, and doubled after
    2,000 finite steps, as in `keras.optimizers.LossScaleOptimizer`. That class
    of Keras supports neither micro-batches nor gradients that are summed over
    replicas.

    Attributes:
        value: tf.Variable, float32 scalar, a power of 2.
    """

    _STEPS_TO_DOUBLE = 2000

    def __init__(self):
        super().__init__()
        self.value = tf.Variable(2.0**15, trainable=False)
        self._num_finite = tf.Variable(0, trainable=False)

    def adapt(self, is_finite):
        """Adapt the factor after a training step, in the cross-replica context.

        Args:
            is_finite: bool scalar tensor, whether the step was finite.
        """
        value = self.value.read_value()
        num_finite = self._num_finite.read_value() + 1
        is_long = num_finite >= self._STEPS_TO_DOUBLE
        larger = tf.where(is_long, value * 2, value)
        smaller = tf.maximum(value / 2, 1.0)
        self.value.assign(tf.where(is_finite, larger, smaller))
        self._num_finite.assign(tf.where(is_finite & ~is_long, num_finite, 0))


def make_update(optimizer, variables, settings, strategy):
    """Make a function that updates the weights with a batch's gradients.

    If the loss or the norm of the gradients is not finite, weights and moments
    do not change. Only the optimizer's step number, which determines the
    learning rate, increases.

    Args:
        optimizer: AdamW, built.
        variables: list of variables.
        settings: PretrainingSettings or FinetuningSettings.
        strategy: tf.distribute.Strategy.

    Returns:
        function of (gradients, loss, weight) that returns (norm, is_finite).
        Each replica calls the function. `gradients` and `loss` (a float32
        scalar) are sums over the whole batch. The function divides both by
        `weight` (at least 1e-6), and clips the gradients. `norm` is the
        gradients' norm before clipping, a float32 scalar. `is_finite` is a bool
        scalar, whether the weights were updated.
    """
    largest_norm = settings.max_gradient_norm

    def apply(gradients, factor):
        gradients = [g * tf.cast(factor, g.dtype) for g in gradients]
        optimizer.apply(gradients, variables)

    def pass_over():
        optimizer.iterations.assign_add(1)

    def update_if(is_finite, gradients, factor):
        tf.cond(is_finite, lambda: apply(gradients, factor), pass_over)

    def update_replicas_if(strategy, is_finite, gradients, factor):
        in_each = strategy.extended.call_for_each_replica
        # The value is the same on all replicas, because it is computed from
        # sums over all replicas.
        is_finite = strategy.experimental_local_results(is_finite)[0]
        tf.cond(
            is_finite,
            lambda: in_each(apply, args=(gradients, factor)),
            lambda: in_each(pass_over),
        )

    def update(gradients, loss, weight):
        # A single factor divides and clips the gradients, because each pass
        # over all gradients takes time.
        factor = 1 / tf.maximum(weight, 1e-6)
        norm = tf.linalg.global_norm(gradients) * factor
        is_finite = tf.math.is_finite(norm) & tf.math.is_finite(loss * factor)
        if largest_norm:
            factor *= largest_norm / tf.maximum(norm, largest_norm)
        if is_one_device(strategy):
            update_if(is_finite, gradients, factor)
        else:
            # The condition is outside of the replicas, because replicas
            # synchronize inside the optimizer, which a condition within a
            # replica does not allow.
            tf.distribute.get_replica_context().merge_call(
                update_replicas_if, args=(is_finite, gradients, factor)
            )
        return norm, is_finite

    # On a CPU, XLA takes seconds to compile the update of all weights, and
    # TensorFlow's Adam kernel is faster. With several replicas the update is
    # not compiled, because replicas cannot synchronize in a compiled function.
    is_compiled = settings.jit_compile and is_one_device(strategy)
    if is_compiled and not is_one_cpu(strategy):
        return tf.function(update, autograph=False, jit_compile=True)
    return update
