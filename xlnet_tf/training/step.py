"""The training step, on any backend.

A step computes the gradients of a batch's loss, in one or several
micro-batches, divides and clips them, and updates the weights. Loss and
gradients are summed over the rows of all replicas and divided by their total
weight, so that N replicas give the same numbers as one. A step with a loss or
gradients that are not finite does not change weights, moments and memory.

`on_tensorflow.py` and `on_jax.py` compute the step. `update.py` skips the
update if a step is not finite; `loop.py` ends a run after too many such steps.
"""

import math
import typing
from collections.abc import Callable

# Most steps in a row that `on_not_finite` "skip" skips.
MOST_SKIPPED = 20


class Loss(typing.NamedTuple):
    """The loss of a model on a batch.

    Attributes:
        outputs: function from a dict of a micro-batch's features, with
            `dropout_seed` in training, to the model's outputs; with memory, a
            dict with `memories` and `memory_mask`.
        sums: function from (outputs, features) to (objective, metrics, weight),
            all summed over the rows: the scalar to differentiate, a dict from
            names of metrics to scalars, and the scalar to divide both by.
        metrics: names of the metrics; "loss" is one.
        seed_stream: int, separates the random numbers of different kinds of
            runs.
    """

    outputs: Callable
    sums: Callable
    metrics: tuple[str, ...]
    seed_stream: int = 0


class StepResult(typing.NamedTuple):
    """Loss and gradient norm of one step, over the whole batch."""

    step: int  # from 1
    loss: float
    gradient_norm: float

    @property
    def is_finite(self):
        """bool; if False, weights and memory do not change."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


class LoopReport(typing.NamedTuple):
    """The result of a loop of steps.

    Attributes:
        means: dict of str to float, metrics over the finite steps, NaN without
            any.
        gradient_norm: float, mean over the same steps, before clipping.
        learning_rate: float, of the next step.
        results: list of StepResult.
        skipped_in_a_row: int, steps in a row that were not finite, up to the
            last one and across loops.
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

        They include `largest_loss` and `largest_loss_step` if any step was
        finite, and `skipped_steps` if any was skipped.
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
    """Largest number of steps in a row that may be not finite, int.

    Args:
        settings: PretrainingSettings or FinetuningSettings.
    """
    # With a loss scale, steps that overflow are skipped.
    skips = settings.on_not_finite == "skip" or settings.precision == "float16"
    return MOST_SKIPPED if skips else 0
