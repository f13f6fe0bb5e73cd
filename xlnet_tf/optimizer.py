"""AdamW that clips the whole batch's gradient, and a learning rate schedule.

Section A.4 of https://arxiv.org/abs/1906.08237 describes this training: Adam
with decoupled weight decay, clipping of gradients by their global norm, and a
linear warm-up and linear decay of the learning rate.

COMPATIBILITY: `AdamW` uses these undocumented names of Keras 3:
`_get_variable_index`, `_use_weight_decay`, `_apply_weight_decay`, `_momentums`,
`_velocities`, `_clip_gradients`, and, on TensorFlow only,
`_all_reduce_sum_gradients`. A test checks that Keras has each name.
"""

import functools
import math
import re

import keras
from keras import ops
from keras.optimizers.schedules import LearningRateSchedule

# A variable whose name contains one of these words has no weight decay: the
# weights of layer norms and all biases, including u, v and b.
NO_WEIGHT_DECAY = ("bias", "gamma", "beta")

# Patterns that find the layer of a variable in its path. Biases that all layers
# share may have the path of the first block, which built them.
_SHARED = re.compile(
    r"(^|/)(token_embedding|mask_embedding|shared_biases"
    r"|segment_embedding|position_embedding|embedding_norm"
    r"|relative_position_bias)(/|$)"
)
_LAYER = re.compile(r"(?:^|/)block_(\d+)/")


@keras.saving.register_keras_serializable(package="xlnet_tf")
class WarmupSchedule(LearningRateSchedule):
    """Learning rate schedule with a linear warm-up and a decay.

    Example:
        ```python
        from xlnet_tf.optimizer import WarmupSchedule

        schedule = WarmupSchedule(1e-4, total_steps=1000, warmup_steps=99)
        float(schedule(0))  # 1e-06
        float(schedule(99))  # 0.0001
        ```

    Args:
        learning_rate: float, the largest learning rate, reached after
            `warmup_steps`.
        total_steps: int, the step at which the decay ends.
        warmup_steps: int, number of steps of the warm-up. Default 0.
        decay: str, form of the decay: "linear" (default), "cosine" or
            "constant".
        final_fraction: float in [0, 1]. With "linear" and "cosine" the rate
            falls to `final_fraction * learning_rate` at the step `total_steps`.
            Steps count from 0, so the last step of a run of `total_steps` steps
            is `total_steps - 1`. Default 0.

    Raises:
        ValueError: if `warmup_steps` is not below `total_steps`, or if `decay`
            is unknown.

    Source: `get_train_op` of the released code (decay_method "poly", "cos").
    """

    def __init__(
        self,
        learning_rate: float,
        total_steps: int,
        warmup_steps: int = 0,
        decay: str = "linear",
        final_fraction: float = 0.0,
    ):
        super().__init__()
        if not 0 <= warmup_steps < max(total_steps, 1):
            raise ValueError(
                "`warmup_steps` must be at least 0 and below the number of "
                f"steps. Received: warmup_steps={warmup_steps}, "
                f"steps={total_steps}."
            )
        if decay not in ("linear", "cosine", "constant"):
            raise ValueError(
                '`decay` must be "linear", "cosine" or "constant". '
                f"Received: decay={decay!r}."
            )
        self.learning_rate = learning_rate
        self.total_steps = total_steps
        self.warmup_steps = warmup_steps
        self.decay = decay
        self.final_fraction = final_fraction

    def __call__(self, step):
        step = ops.cast(step, "float32")
        warmup = ops.minimum(1.0, (step + 1.0) / (self.warmup_steps + 1.0))
        done = (step - self.warmup_steps) / (
            self.total_steps - self.warmup_steps
        )
        done = ops.clip(done, 0.0, 1.0)
        if self.decay == "linear":
            decay = 1.0 - done
        elif self.decay == "cosine":
            decay = 0.5 * (1.0 + ops.cos(math.pi * done))
        else:
            decay = ops.ones_like(done)
        decay = self.final_fraction + (1.0 - self.final_fraction) * decay
        return self.learning_rate * ops.minimum(warmup, decay)

    def get_config(self):
        return {
            "learning_rate": self.learning_rate,
            "total_steps": self.total_steps,
            "warmup_steps": self.warmup_steps,
            "decay": self.decay,
            "final_fraction": self.final_fraction,
        }


@keras.saving.register_keras_serializable(package="xlnet_tf")
class AdamW(keras.optimizers.AdamW):
    """AdamW that clips the summed gradient and decays no biases or layer norms.

    Keras clips the gradient of each replica before it sums the gradients. The
    update of N replicas then differs from the update of a single replica with
    the same batch. This optimizer sums the gradients before it clips the sum.
    Layer norms and biases have no weight decay.

    Example:
        ```python
        from xlnet_tf.optimizer import AdamW, WarmupSchedule

        schedule = WarmupSchedule(2e-5, total_steps=1000, warmup_steps=100)
        optimizer = AdamW(schedule, weight_decay=0.01, global_clipnorm=1.0)
        ```

    Args:
        learning_rate: float or schedule. A schedule is safer. A float becomes a
            variable, whose value is replaced when a saved optimizer is loaded.
        weight_decay: float. Default 0.01.
        beta_1, beta_2, epsilon: floats. Defaults 0.9, 0.999 and 1e-6, the
            epsilon of the released code.
        global_clipnorm: float, largest norm of the gradient, or None (default)
            for no clipping.
        gradients_are_summed: bool, whether the caller has already summed the
            gradients over the replicas (and clipped the sum). Default False.
        layer_decay: float in (0, 1]. The learning rate of each layer is
            `layer_decay` times the learning rate of the layer above it. For
            layer l of L layers, the learning rate and the weight decay have the
            factor `layer_decay ** (L - 1 - l)`. For embeddings and shared
            biases the factor is `layer_decay ** L`, and for heads the factor is
            1. Default 1, for equal rates. The paper uses 0.75 for SQuAD.
        layer_decay_on: str. "step" (default) multiplies the learning rate by
            the factor. "gradient" multiplies the gradient by the factor before
            Adam uses it, as the released code does. Adam divides the gradient
            by the root of the gradient's mean square. This division undoes most
            of the multiplication by the factor. With "gradient", weight decay
            has the full learning rate, and embeddings have the factor 1.
        num_layers: int, L, for `layer_decay`. Default: the number of layers up
            to the highest layer with a trainable variable. If the top layers
            are frozen, this number is too small. `compile` of a task model sets
            `num_layers`.
        **kwargs: arguments of `keras.optimizers.AdamW`.

    Raises:
        ValueError: if `layer_decay` or `layer_decay_on` is out of its range. In
            `build`, if `layer_decay` is below 1 and no variable belongs to a
            layer. In a step, if a weight is bfloat16 or float16, because these
            dtypes lose small updates.

    Source: `get_train_op` of the released code (`lr_layer_decay_rate`).
    """

    def __init__(
        self,
        learning_rate: float | LearningRateSchedule = 1e-4,
        weight_decay: float = 0.01,
        beta_1: float = 0.9,
        beta_2: float = 0.999,
        epsilon: float = 1e-6,
        global_clipnorm: float | None = None,
        gradients_are_summed: bool = False,
        layer_decay: float = 1.0,
        layer_decay_on: str = "step",
        num_layers: int | None = None,
        **kwargs,
    ):
        if not 0 < layer_decay <= 1:
            raise ValueError(
                "`layer_decay` must be above 0 and at most 1. "
                f"Received: layer_decay={layer_decay}."
            )
        if layer_decay_on not in ("step", "gradient"):
            raise ValueError(
                '`layer_decay_on` must be "step" or "gradient". '
                f"Received: layer_decay_on={layer_decay_on!r}."
            )
        super().__init__(
            learning_rate=learning_rate,
            weight_decay=weight_decay,
            beta_1=beta_1,
            beta_2=beta_2,
            epsilon=epsilon,
            global_clipnorm=global_clipnorm,
            **kwargs,
        )
        self.gradients_are_summed = gradients_are_summed
        self.layer_decay = layer_decay
        self.layer_decay_on = layer_decay_on
        self.num_layers = num_layers
        self._factors = ()
        self._numbers = None
        self.exclude_from_weight_decay(var_names=NO_WEIGHT_DECAY)

    def build(self, variables):
        if self.layer_decay != 1:
            self._factors = layer_factors(
                variables,
                self.layer_decay,
                self.layer_decay_on == "step",
                self.num_layers,
            )
        super().build(variables)

    def apply(self, grads, trainable_variables=None):
        # All weights of a type share these numbers within one update. Later
        # updates may be traced in other graphs, so they need new tensors. The
        # cache is a function, because Keras would track a dict and write it to
        # checkpoints.
        self._numbers = functools.lru_cache(self._numbers_of)
        try:
            return super().apply(grads, trainable_variables)
        finally:
            self._numbers = None

    def update_step(self, gradient, variable, learning_rate):
        """Decay a weight at its own learning rate, then apply the gradient."""
        dtype = keras.backend.standardize_dtype(variable.dtype)
        if dtype in ("bfloat16", "float16"):
            raise ValueError(
                "AdamW needs weights of float32 or float64: narrower types "
                "lose small updates. Make the model with "
                f"dtype='mixed_{dtype}', which computes in {dtype} and keeps "
                f"weights in float32. Received: {dtype} weights."
            )
        factor = 1.0
        if self._factors:
            factor = self._factors[self._get_variable_index(variable)]
        if self.layer_decay_on == "step":
            learning_rate = learning_rate * factor
        elif factor != 1:
            gradient = gradient * factor
        if self.weight_decay and self._use_weight_decay(variable):
            rate = ops.cast(learning_rate * self.weight_decay, variable.dtype)
            self.assign_sub(variable, variable * rate)
        if keras.backend.backend() == "tensorflow" and not self.amsgrad:
            self._fused_step(gradient, variable, learning_rate)
        else:
            super().update_step(gradient, variable, learning_rate)

    def _fused_step(self, gradient, variable, learning_rate):
        """Update a weight in place by a single TensorFlow operation.

        Keras' own update has ten operations, and each of them passes over the
        whole weight. For all weights together these operations take a fifth of
        the time of a training step on a CPU.
        """
        import tensorflow as tf

        index = self._get_variable_index(variable)
        handles = {
            "var": variable,
            "m": self._momentums[index].value,
            "v": self._velocities[index].value,
        }
        dtype = variable.dtype
        numbers = (self._numbers or self._numbers_of)(dtype)
        tf.raw_ops.ResourceApplyAdam(
            **{name: value.handle for name, value in handles.items()},
            **numbers,
            lr=ops.cast(learning_rate, dtype),
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )

    def _numbers_of(self, dtype):
        """Compute the scalars of Adam's update for weights of one dtype."""
        step = ops.cast(self.iterations + 1, dtype)
        beta1, beta2 = (ops.cast(x, dtype) for x in (self.beta_1, self.beta_2))
        return {
            "beta1": beta1,
            "beta2": beta2,
            "epsilon": ops.cast(self.epsilon, dtype),
            "beta1_power": beta1**step,
            "beta2_power": beta2**step,
        }

    def _apply_weight_decay(self, variables):
        # Keras decays all weights at the same rate. Here `update_step` decays
        # each weight at its own rate.
        pass

    def _clip_gradients(self, grads):
        sum_over_replicas = getattr(super(), "_all_reduce_sum_gradients", None)
        if sum_over_replicas is not None and not self.gradients_are_summed:
            pairs = sum_over_replicas([(grad, None) for grad in grads])
            grads = [grad for grad, _ in pairs]
        if keras.backend.backend() == "tensorflow":
            # Keras would take the norm of sparse gradients before it adds the
            # slices of the same row.
            grads = [grad if grad is None else _dense(grad) for grad in grads]
        return super()._clip_gradients(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars

    def get_config(self):
        return {
            **super().get_config(),
            "gradients_are_summed": self.gradients_are_summed,
            "layer_decay": self.layer_decay,
            "layer_decay_on": self.layer_decay_on,
            "num_layers": self.num_layers,
        }


def _dense(gradient):
    import tensorflow as tf

    return tf.convert_to_tensor(gradient)


def layer_factors(
    variables, layer_decay, with_embeddings=True, num_layers=None
):
    """Compute the factors of the variables' learning rates, see `AdamW`.

    Args:
        variables: list of variables of a model with an XLNetBackbone.
        layer_decay: float, see `AdamW`.
        with_embeddings: bool, whether embeddings and shared biases have a
            factor other than 1. Default True.
        num_layers: int, L. Default: the number of layers up to the highest
            layer with a variable in `variables`.

    Returns:
        tuple of floats, a factor for each variable.

    Raises:
        ValueError: if no variable belongs to a layer.
    """
    paths = [getattr(v, "path", v.name) for v in variables]
    layers = []
    for path in paths:
        found = _LAYER.search(path)
        if _SHARED.search(path):
            layers.append(-1)
        else:
            layers.append(int(found[1]) if found else None)
    found = max((n for n in layers if n is not None), default=-1) + 1
    num_layers = num_layers or found
    if not num_layers:
        raise ValueError(
            "`layer_decay` needs variables of an XLNetBackbone, whose paths "
            "have `block_0/`, `block_1/` and so on in them. "
            f"Received: {', '.join(paths[:5])}."
        )
    lowest = -1 if with_embeddings else 0
    return tuple(
        1.0
        if layer is None or layer < lowest
        else layer_decay ** (num_layers - 1 - layer)
        for layer in layers
    )
