"""How the weights move: warm-up and decay, AdamW, clipping of the whole batch.

Section A.4 of https://arxiv.org/abs/1906.08237: Adam with decoupled weight
decay, linear warm-up and linear decay, gradients clipped by their global norm.
"""

import math
import re

import keras
from keras import ops

# Layer normalisation and every bias, u, v and the segment bias included.
NO_WEIGHT_DECAY = ("bias", "gamma", "beta")

# Where a variable lives, by its path. Shared biases are used by every layer
# and carry the name of the first, which built them.
_SHARED = re.compile(
    r"(^|/)(token_embedding|mask_embedding|shared_biases)(/|$)"
)
_LAYER = re.compile(r"(?:^|/)block_(\d+)/")


@keras.saving.register_keras_serializable(package="xlnet_tf")
class WarmupSchedule(keras.optimizers.schedules.LearningRateSchedule):
    """A learning rate that rises linearly and then falls.

    Args:
        learning_rate: float, the peak, reached after `warmup_steps`.
        total_steps: int, when the fall ends.
        warmup_steps: int, default 0.
        decay: "linear" (default), "cosine" or "constant".
        final_fraction: float in [0, 1], share of the peak that is left at the
            end. Default 0.

    Raises:
        ValueError: if the warm-up is not shorter than the whole, or `decay` is
            unknown.

    Source: `get_train_op` of the released code (decay_method "poly", "cos").
    """

    def __init__(
        self,
        learning_rate,
        total_steps,
        warmup_steps=0,
        decay="linear",
        final_fraction=0.0,
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
            left = 1.0 - done
        elif self.decay == "cosine":
            left = 0.5 * (1.0 + ops.cos(math.pi * done))
        else:
            left = ops.ones_like(done)
        left = self.final_fraction + (1.0 - self.final_fraction) * left
        return self.learning_rate * ops.minimum(warmup, left)

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
    """Keras' AdamW, correct on several replicas and in what it decays.

    Keras clips the gradient of each replica before it sums them, so that N
    replicas differ from one on the same batch. Here the sum comes first. Layer
    normalisation and biases are not decayed.

    Args:
        learning_rate: float or schedule. A schedule is safer: a number becomes
            a variable, whose saved value overrides a new one.
        weight_decay: float, default 0.01.
        beta_1, beta_2, epsilon: floats; epsilon 1e-6 as released.
        global_clipnorm: float or None (default).
        gradients_are_summed: bool, whether the caller has summed over replicas
            (and clipped) already. Default False.
        layer_decay: float in (0, 1], default 1 for none. The lower a layer,
            the smaller its steps, weight decay included: layer l of L gets
            `layer_decay ** (L - 1 - l)`, embeddings and biases that layers
            share `layer_decay ** L`, heads 1. The paper fine-tunes on SQuAD
            with 0.75.
        layer_decay_on: "step" (default), or "gradient" as released: gradients
            are multiplied before Adam, which divides by their size again, so
            that little of it is left. Weight decay and embeddings are as
            without.
        **kwargs: of `keras.optimizers.AdamW`.

    Raises:
        ValueError: if `layer_decay` or `layer_decay_on` is out of its range,
            or, when the optimizer is built, if it decays by layer and none of
            the variables belongs to one.

    Source: `get_train_op` of the released code (`lr_layer_decay_rate`).
    """

    def __init__(
        self,
        learning_rate=1e-4,
        weight_decay=0.01,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        global_clipnorm=None,
        gradients_are_summed=False,
        layer_decay=1.0,
        layer_decay_on="step",
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
        self._factors = ()
        self.exclude_from_weight_decay(var_names=NO_WEIGHT_DECAY)

    def build(self, variables):
        if self.layer_decay != 1:
            self._factors = layer_factors(
                variables, self.layer_decay, self.layer_decay_on == "step"
            )
        super().build(variables)

    def update_step(self, gradient, variable, learning_rate):
        """Moves a weight by its own decay and then by its gradient."""
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
        """Keras' step as one operation that reads and writes in place.

        As ten operations it passes over each weight ten times, which takes as
        long as a fifth of a training step on a CPU (BUILD.md, "What was
        tried").
        """
        import tensorflow as tf

        index = self._get_variable_index(variable)
        handles = {
            "var": variable,
            "m": self._momentums[index].value,
            "v": self._velocities[index].value,
        }
        dtype = variable.dtype
        step = ops.cast(self.iterations + 1, dtype)
        numbers = {
            "beta1": ops.cast(self.beta_1, dtype),
            "beta2": ops.cast(self.beta_2, dtype),
            "lr": ops.cast(learning_rate, dtype),
            "epsilon": ops.cast(self.epsilon, dtype),
        }
        tf.raw_ops.ResourceApplyAdam(
            **{name: value.handle for name, value in handles.items()},
            **numbers,
            beta1_power=numbers["beta1"] ** step,
            beta2_power=numbers["beta2"] ** step,
            grad=tf.cast(tf.convert_to_tensor(gradient), dtype),
        )

    def _apply_weight_decay(self, variables):
        # Keras knows one rate for all weights: `update_step` has that of each.
        pass

    # Two methods of Keras' TensorFlow optimizer that it does not document;
    # a test compares two replicas with one.
    def _clip_gradients(self, grads):
        sum_over_replicas = getattr(super(), "_all_reduce_sum_gradients", None)
        if sum_over_replicas is not None and not self.gradients_are_summed:
            pairs = sum_over_replicas([(grad, None) for grad in grads])
            grads = [grad for grad, _ in pairs]
        return super()._clip_gradients(grads)

    def _all_reduce_sum_gradients(self, grads_and_vars):
        return grads_and_vars

    def get_config(self):
        return {
            **super().get_config(),
            "gradients_are_summed": self.gradients_are_summed,
            "layer_decay": self.layer_decay,
            "layer_decay_on": self.layer_decay_on,
        }


def layer_factors(variables, layer_decay, with_embeddings=True):
    """What the step of each variable is multiplied by, see `AdamW`.

    Args:
        variables: list of variables of a model with an XLNetBackbone.
        layer_decay: float, the share that is left from layer to layer.
        with_embeddings: bool, whether what is below all layers is slowed down
            too. Default True.

    Returns:
        tuple of floats, one a variable.

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
    num_layers = max((n for n in layers if n is not None), default=-1) + 1
    if not num_layers:
        raise ValueError(
            "`layer_decay` needs variables of an XLNetBackbone, whose paths "
            "have `block_0/`, `block_1/` and so on in them. "
            f"Received: {', '.join(paths[:5])}."
        )
    slowed = -1 if with_embeddings else 0
    return tuple(
        1.0
        if layer is None or layer < slowed
        else layer_decay ** (num_layers - 1 - layer)
        for layer in layers
    )
