"""Checkpoints of a small model, without a run around them."""

import dataclasses

import numpy as np

from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretrain
from xlnet_tf.training.checkpoints import Checkpoints
from xlnet_tf.training.devices import make_step_counter
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.on_tensorflow import make_memory
from xlnet_tf.training.settings import PretrainingSettings


class TinyRun:
    """State of one process of a run; a new object simulates a restart."""

    def __init__(
        self,
        directory,
        strategy=None,
        interval=2,
        keep=3,
        seconds=None,
        config=None,
    ):
        self.strategy = strategy or one_device()
        self.backend = TensorFlow(self.strategy)
        self.is_chief = self.backend.is_chief
        self.settings = PretrainingSettings(
            steps=20, warmup_steps=2, batch_size=4, learning_rate=1e-2
        )
        config = config or tiny_config(
            num_layers=1, dropout=0.2, attention_dropout=0.1
        )
        self.model, self.optimizer = pretrain.build(
            config, self.settings, self.strategy
        )
        self.memory = make_memory(self.model, self.settings, self.strategy)
        self.step = make_step_counter(self.strategy)
        self.checkpoints = self.checkpoints_of(
            directory, interval, keep, seconds
        )

    def checkpoints_of(self, directory, interval=2, keep=3, seconds=None):
        self.settings = dataclasses.replace(
            self.settings,
            checkpoint_interval=interval,
            checkpoints_to_keep=keep,
            checkpoint_time_interval=seconds and str(seconds),
        )
        return Checkpoints(
            directory, self, self.model, self.optimizer, self.memory
        )

    def restore(self):
        return self.checkpoints.restore()

    def pretend(self, steps):
        """Count steps without computing them, to save time."""
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
