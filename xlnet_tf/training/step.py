"""The training step, whatever computes it.

A step computes the gradients of the loss of a batch, in one or several
micro-batches, divides and clips them, and updates the weights. Loss and
gradients are summed over the rows of all replicas and divided by their total
weight, so that N replicas give the same numbers as one. A step whose loss or
gradients are not finite leaves weights, moments and memory as they were.

`on_tensorflow.py` and `on_jax.py` compute it; `update.py` has the update that
passes over a step that is not finite, and `loop.py` ends a run with too many.
"""

import math
import typing
from collections.abc import Callable

# Steps in a row that `on_not_finite` "skip" leaves out before it gives up.
MOST_SKIPPED = 20


class Loss(typing.NamedTuple):
    """The loss of a model on a batch.

    Attributes:
        outputs: function of a dict of the features of a micro-batch, with
            `dropout_seed` in training, to the outputs of the model; with
            memory, a dict that has `memories` and `memory_mask`.
        sums: function of (outputs, features) to (objective, metrics, weight):
            scalar whose gradient is taken, dict of the metrics to scalars, and
            the scalar that both are to be divided by; sums over the rows.
        metrics: names of the metrics; "loss" is one.
        seed_stream: int, tells apart the random numbers of kinds of runs.
    """

    outputs: Callable
    sums: Callable
    metrics: tuple[str, ...]
    seed_stream: int = 0


class StepResult(typing.NamedTuple):
    """Loss and gradient norm of one step, of the whole batch."""

    step: int  # from 1
    loss: float
    gradient_norm: float

    @property
    def is_finite(self):
        """bool; a step that is not leaves weights and memory as they were."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


class LoopReport(typing.NamedTuple):
    """The result of a loop of steps.

    Attributes:
        means: dict of str to float, metrics of the steps that were finite,
            NaN if none was.
        gradient_norm: float, mean of the same steps, before clipping.
        learning_rate: float, of the next step.
        results: list of StepResult.
        skipped_in_a_row: int, last steps that were not finite, also those of
            loops before.
        seconds: float.
    """

    means: dict[str, float]
    gradient_norm: float
    learning_rate: float
    results: list[StepResult]
    skipped_in_a_row: int
    seconds: float

    def scalars(self):
        """Figures of the loop, dict of str to float.

        With `largest_loss` and `largest_loss_step` of the steps that were
        finite, if any, and `skipped_steps`, where there were any.
        """
        finite = [x for x in self.results if x.is_finite]
        scalars = {
            **self.means,
            "gradient_norm": self.gradient_norm,
            "learning_rate": self.learning_rate,
        }
        if finite:
            largest = max(finite, key=lambda x: x.loss)
            scalars["largest_loss"] = largest.loss
            scalars["largest_loss_step"] = largest.step
        else:  # means of nothing
            names = (*self.means, "gradient_norm")
            scalars |= dict.fromkeys(names, math.nan)
        if len(finite) < len(self.results):
            scalars["skipped_steps"] = len(self.results) - len(finite)
        return scalars


def most_skipped(settings):
    """Steps in a row that may be not finite; one more ends the run: int.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
    """
    # With a loss scale, steps that overflow are skipped.
    skips = settings.on_not_finite == "skip" or settings.precision == "float16"
    return MOST_SKIPPED if skips else 0
