"""Evaluations of a run at the same steps, wherever it resumed."""

import contextlib

from xlnet_tf.training.strategy import holds_anywhere


class Evaluations:
    """Evaluates a run at every multiple of an interval, and at its end.

    The steps of evaluations do not depend on where a run resumed. If the run
    was killed before an evaluation, that evaluation runs on resume, so that the
    best weights equal those of an uninterrupted run.

    Args:
        log: MetricsLog, which holds the evaluations that were made.
        strategy: tf.distribute.Strategy.
        total_steps: int.
        interval: int, steps.
        batches: int, those of an evaluation, or -1 (default) for all.
        interruptible: function that returns the context in which a run
            evaluates, see `Stop`.
    """

    def __init__(
        self,
        log,
        strategy,
        total_steps,
        interval,
        batches=-1,
        interruptible=contextlib.nullcontext,
    ):
        self._log = log
        self._strategy = strategy
        self._total_steps = total_steps
        self._interval = interval
        self._batches = batches
        self._interruptible = interruptible

    def is_missing(self, step):
        """Whether the evaluation of this step is due and was not made.

        All workers ask together; the chief's log has the answer.
        """
        is_due = step and not (
            step % self._interval and step < self._total_steps
        )
        missing = bool(is_due and not self._log.has_evaluation(step))
        return holds_anywhere(self._strategy, missing)

    def evaluate_if_missing(self, controller):
        """Evaluates the present step if its evaluation is missing.

        Args:
            controller: orbit.Controller with an evaluator, whose actions log
                an evaluation last.
        """
        if self.is_missing(int(controller.global_step.numpy())):
            self._evaluate(controller)

    def _evaluate(self, controller):
        with self._interruptible():
            controller.evaluate(steps=self._batches)

    def train_between(self, controller):
        """Trains to the last step, with an evaluation at each interval.

        Args:
            controller: orbit.Controller with a trainer and an evaluator.
        """
        step = int(controller.global_step.numpy())
        while step < self._total_steps:
            step = min(
                step - step % self._interval + self._interval,
                self._total_steps,
            )
            controller.train(step, checkpoint_at_completion=False)
            self._evaluate(controller)
        controller.train(self._total_steps)  # no step is left: saves
