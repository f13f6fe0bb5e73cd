"""Profile of a loop of steps, for TensorBoard's profiler."""

import tensorflow as tf


class LoopProfile:
    """Profile of the second loop of steps that this process makes.

    The first loop is not recorded, because it includes tracing and compiling.

    Args:
        directory: path of TensorBoard's files.
        global_step: tf.Variable, the number of steps so far.
        total_steps: int, the last step of the run.
    """

    def __init__(self, directory, global_step, total_steps):
        self._directory = str(directory)
        self._global_step = global_step
        self._total_steps = total_steps
        self._begun = None  # the step before the first recorded step
        self._is_done = False

    def after_loop(self):
        """Begin the recording after the first loop; end it after the second.

        Returns:
            str, a line about the recording or about its failure, or None.
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
        """End a running recording and write its files."""
        if self._begun is not None and not self._is_done:
            self._is_done = True
            tf.profiler.experimental.stop()
