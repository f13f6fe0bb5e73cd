"""Interfaces of the training step, for all backends.

A step computes the gradients of a batch's loss, in one or several
micro-batches. Loss and gradients are summed over the rows of all replicas and
divided by the rows' total weight, so that N replicas give the same numbers as
one replica. The step then clips the gradients and updates the weights. If the
loss or the gradients are not finite, the step leaves weights, moments and
memory unchanged.

`on_tensorflow.py` and `on_jax.py` compute the step. `update.py` skips the
update if a step is not finite. `loop.py` ends a run after too many such steps.
"""

import math
import typing
from collections.abc import Callable

# Largest number of steps in a row that `on_not_finite` "skip" may skip.
MOST_SKIPPED = 20


class Loss(typing.NamedTuple):
    """Functions that compute the loss of a model on a batch.

    Attributes:
        outputs: function that computes the model's outputs from the dict of a
            micro-batch's features. In training the features contain
            `dropout_seed`. With memory the outputs are a dict with `memories`
            and `memory_mask`.
        sums: function of (outputs, features) that returns (objective, metrics,
            weight), sums over the rows. The objective is the scalar to
            differentiate, the metrics are a dict from names to scalars, and the
            weight is the scalar by which the step divides objective and
            metrics.
        metrics: tuple of str, names of the metrics, including "loss".
        seed_stream: int, one number for pretraining and another for
            fine-tuning, so that these runs draw different random numbers.
    """

    outputs: Callable
    sums: Callable
    metrics: tuple[str, ...]
    seed_stream: int = 0


class StepResult(typing.NamedTuple):
    """Result of a training step: loss and gradient norm of the whole batch."""

    step: int  # counted from 1
    loss: float
    gradient_norm: float

    @property
    def is_finite(self):
        """Whether the loss and the gradient norm are finite, bool."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


class LoopReport(typing.NamedTuple):
    """Result of a loop of training steps.

    Attributes:
        means: dict of str to float, means of the metrics over the finite steps.
        learning_rate: float, learning rate of the next step.
        results: list of StepResult, one for each step.
        skipped_in_a_row: int, number of consecutive skipped steps up to the end
            of the loop. Some of these steps may be in earlier loops.
        seconds: float, time of the loop.
    """

    means: dict[str, float]
    learning_rate: float
    results: list[StepResult]
    skipped_in_a_row: int
    seconds: float

    def scalars(self):
        """Return the figures of the loop, dict of str to float.

        `gradient_norm` is the mean norm of the gradients before clipping, over
        the finite steps. If at least one step was finite, the figures include
        `largest_loss` and `largest_loss_step`. If no step was finite, the means
        and `gradient_norm` are NaN. If a step was skipped, the figures include
        `skipped_steps`.
        """
        finite = [x for x in self.results if x.is_finite]
        norms = [x.gradient_norm for x in finite]
        scalars = {
            **self.means,
            "gradient_norm": sum(norms) / max(len(norms), 1),
            "learning_rate": self.learning_rate,
        }
        if finite:
            largest = max(finite, key=lambda x: x.loss)
            scalars["largest_loss"] = largest.loss
            scalars["largest_loss_step"] = largest.step
        else:  # there are no values to average
            names = (*self.means, "gradient_norm")
            scalars |= dict.fromkeys(names, math.nan)
        if len(finite) < len(self.results):
            scalars["skipped_steps"] = len(self.results) - len(finite)
        return scalars


def most_skipped(settings):
    """Return the largest allowed number of skipped steps in a row, int.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
    """
    # float16 has a loss scale, which adapts by skipping steps that overflow.
    skips = settings.on_not_finite == "skip" or settings.precision == "float16"
    return MOST_SKIPPED if skips else 0
