"""Loss and gradient norm of each step of a loop, and its end if not finite.

The loop runs without Python; its steps are noted in variables of the host.
"""

import math
import typing

import tensorflow as tf

# Steps in a row that `on_not_finite` "skip" leaves out before it gives up.
MOST_SKIPPED = 20


class StepResult(typing.NamedTuple):
    """Loss and gradient norm of one step, of the whole batch."""

    step: int  # from 1
    loss: float
    gradient_norm: float

    @property
    def is_finite(self):
        """bool; a step that is not leaves weights and memory as they were."""
        return math.isfinite(self.loss) and math.isfinite(self.gradient_norm)


class StepResults:
    """The results of the steps of a loop.

    Args:
        on_not_finite: "stop" or "skip", of TrainingConfig.

    Attributes:
        most_skipped: int, the steps in a row that may be not finite; one more
            ends the loop.
        note: function of a list of StepResult that writes down steps that were
            not finite, and returns what to tell of it, str; None (default).
    """

    def __init__(self, on_not_finite):
        self.most_skipped = MOST_SKIPPED if on_not_finite == "skip" else 0
        self.note = None
        self._first = 1
        with tf.device("CPU:0"):
            # [steps, 2], loss and gradient norm.
            self._values = tf.Variable(
                tf.zeros([0, 2]), shape=[None, 2], trainable=False
            )
            # Steps in a row, up to the last one, that were not finite.
            self._skipped = tf.Variable(0, trainable=False)

    def begin(self, step):
        """Forget the steps of the previous loop.

        Args:
            step: int, the steps that were made.
        """
        self._first = step + 1
        self._values.assign(tf.zeros([0, 2]))

    def add(self, loss, gradient_norm):
        """Add a step, in the loop.

        Args:
            loss, gradient_norm: float32 scalar tensors.
        """
        value = tf.stack([loss, gradient_norm])
        self._values.assign(tf.concat([self._values, value[None]], axis=0))
        is_finite = tf.reduce_all(tf.math.is_finite(value))
        self._skipped.assign(tf.where(is_finite, 0, self._skipped + 1))

    def must_end(self):
        """Bool scalar tensor, whether too many in a row were not finite."""
        return self._skipped.read_value() > self.most_skipped

    def of_loop(self):
        """list of StepResult."""
        return [
            StepResult(step, float(loss), float(norm))
            for step, (loss, norm) in enumerate(
                self._values.numpy(), self._first
            )
        ]

    def scalars(self, advice):
        """Return the loop's figures to report; note steps that were not finite.

        Args:
            advice: str, what to do when the run ends, such as "start again".

        Returns:
            dict: `largest_loss` and `largest_loss_step` of the steps that were
            finite, if any, and `skipped_steps`, where there were any.

        Raises:
            RuntimeError: if too many in a row were not finite.
        """
        results, scalars = self.of_loop(), {}
        finite = [x for x in results if x.is_finite]
        skipped = [x for x in results if not x.is_finite]
        if finite:
            largest = max(finite, key=lambda x: x.loss)
            scalars["largest_loss"] = largest.loss
            scalars["largest_loss_step"] = largest.step
        if skipped:
            scalars["skipped_steps"] = len(skipped)
            told = self.note(skipped) if self.note else ""
            if bool(self.must_end()):
                raise RuntimeError(self._reason(skipped[-1], told, advice))
        return scalars

    def _reason(self, last, told, advice):
        found = (
            f"the loss became {last.loss} (gradient norm {last.gradient_norm}) "
            f"at step {last.step}"
        )
        others = ", or --on-not-finite skip to leave such steps out"
        if self.most_skipped:
            found += f", after {self.most_skipped} that were skipped in a row"
            others = ""
        return (
            f"{found}.{told and f' {told}'} Nothing since the last checkpoint "
            f"was saved: {advice} with a smaller learning rate, a longer "
            f"warm-up or --precision float32{others}."
        )
