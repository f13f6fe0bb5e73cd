"""Checkpoints of a small model, without a run around them."""

import numpy as np
import orbit
import tensorflow as tf

from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretraining_step
from xlnet_tf.training.config import TrainingConfig
from xlnet_tf.training.runs.checkpoints import RunCheckpoints
from xlnet_tf.training.runs.memory_rows import MemoryRows


class TinyRun:
    """State of one process of a run; a new object stands for a restart."""

    def __init__(
        self, directory, strategy=None, interval=2, keep=3, seconds=None
    ):
        self.strategy = strategy or one_device()
        self.training = TrainingConfig(
            steps=20, warmup_steps=2, batch_size=4, learning_rate=1e-2
        )
        config = tiny_config(num_layers=1, dropout=0.2, attention_dropout=0.1)
        self.model, self.optimizer, self.memory = pretraining_step.build(
            config, self.training, self.strategy
        )
        self.step = orbit.utils.create_global_step()
        self.checkpoints = self.checkpoints_of(
            directory, interval, keep, seconds
        )

    def checkpoints_of(self, directory, interval=2, keep=3, seconds=None):
        return RunCheckpoints(
            tf.train.Checkpoint(
                model=self.model, optimizer=self.optimizer, step=self.step
            ),
            directory,
            MemoryRows(self.memory, self.strategy, directory),
            self.strategy,
            interval,
            keep,
            seconds,
        )

    def restore(self):
        return self.checkpoints.restore_or_initialize()

    def pretend(self, steps):
        """Count steps without making them, which costs nothing."""
        self.step.assign_add(steps)
        return self

    def values(self):
        """list of arrays: weights, optimizer's slots, step and memory."""
        variables = [
            *self.model.weights,
            *self.optimizer.variables,
            *self.memory.memories,
        ]
        return [*(np.array(x.value) for x in variables), int(self.step)]
