"""A profile of some steps, for TensorBoard's profiler."""

import tensorflow as tf


class LoopProfile:
    """Profile of this process's second loop of steps.

    The first loop includes tracing and compiling.

    Args:
        directory: path of TensorBoard's files.
        global_step: tf.Variable.
        total_steps: int, the last step of the run.
    """

    def __init__(self, directory, global_step, total_steps):
        self._directory = str(directory)
        self._global_step = global_step
        self._total_steps = total_steps
        self._begun = None  # the step before the first recorded one
        self._is_done = False

    def after_loop(self):
        """Begin after the first loop and end after the second.

        Returns:
            str, a line about the recording or its failure, or None.
        """
        step = int(self._global_step.numpy())
        if self._is_done:
            return None
        if self._begun is None:
            if step >= self._total_steps:
                return (
                    "nothing was profiled, because there was one loop of steps "
                    "alone: make --steps-per-loop smaller"
                )
            self._begun = step
            tf.profiler.experimental.start(self._directory)
            return None
        self.close()
        return (
            f"profile of steps {self._begun + 1} to {step}: "
            f"tensorboard --logdir {self._directory} (with the package "
            "tensorboard-plugin-profile)"
        )

    def close(self):
        """End a running recording and write it."""
        if self._begun is not None and not self._is_done:
            self._is_done = True
            tf.profiler.experimental.stop()
