"""Small runs for the tests of training: data in RAM, two CPU devices."""

import functools
import types

import numpy as np
import tensorflow as tf

import xlnet_tf
from data_pipeline.dataset_options import dataset_options
from xlnet_tf.training import pretrain
from xlnet_tf.training.devices import make_step_counter
from xlnet_tf.training.on_tensorflow import Steps
from xlnet_tf.training.on_tensorflow import make_memory
from xlnet_tf.training.settings import PretrainingSettings

BATCH, TOKENS, TARGETS, VOCABULARY = 4, 14, 5, 97


class ArrayData:
    """Replacement of PretrainingData with the same batches, without files."""

    def __init__(self, batch_size=BATCH, num_steps=7, seed=0):
        self.batch_size = batch_size
        self.manifest = types.SimpleNamespace(both_directions=True)
        self._num_steps = num_steps
        rng = np.random.RandomState(seed)
        shape = (num_steps, batch_size)
        ids = rng.randint(9, VOCABULARY, (*shape, TOKENS))
        positions = np.sort(
            rng.rand(*shape, TOKENS).argsort(-1)[..., :TARGETS], axis=-1
        )
        rank = np.full(ids.shape, -1)
        order = rng.rand(*shape, TARGETS).argsort(-1)
        np.put_along_axis(rank, positions, order, axis=-1)
        # rows with fewer real targets, so that replicas weigh differently
        weights = (rng.rand(*shape, TARGETS) < 0.7).astype("float32")
        self.features = {
            "token_ids": ids.astype("int32"),
            "segment_ids": rng.randint(0, 2, ids.shape).astype("int32"),
            "factorization_rank": rank.astype("int32"),
            "target_positions": positions.astype("int32"),
            "target_ids": np.take_along_axis(ids, positions, -1).astype(
                "int32"
            ),
            "target_weights": weights,
            "is_reversed": rng.rand(*shape) < 0.5,
            "is_continuation": rng.rand(*shape) < 0.8,
            "is_next": rng.rand(*shape) < 0.5,
        }

    def dataset(self, start_step=0, first_row=0, num_rows=None, **kwargs):
        num_rows = num_rows or self.batch_size
        replica_batch = kwargs.get("replica_batch") or num_rows
        rows = slice(first_row, first_row + num_rows)
        steps = [
            (start_step + i) % self._num_steps for i in range(self._num_steps)
        ]
        arrays = {
            name: array[steps, rows].reshape(
                (-1, replica_batch, *array.shape[2:])
            )
            for name, array in self.features.items()
        }
        dataset = tf.data.Dataset.from_tensor_slices(arrays).repeat()
        return dataset.with_options(dataset_options())


def tiny_config(**overrides):
    """Config with odd sizes, no dropout, and memory shorter than a segment."""
    return xlnet_tf.XLNetConfig(
        **{
            "vocabulary_size": VOCABULARY,
            "num_layers": 2,
            "num_heads": 3,
            "hidden_dim": 22,
            "head_dim": 10,
            "intermediate_dim": 26,
            "memory_length": 6,
            "reuse_length": 7,
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "initializer_range": 0.1,
            **overrides,
        }
    )


def settings(**overrides):
    return PretrainingSettings(
        **{
            "steps": 20,
            "warmup_steps": 2,
            "batch_size": BATCH,
            "learning_rate": 1e-2,
            "max_gradient_norm": 1.0,
            **overrides,
        }
    )


def one_device():
    return tf.distribute.OneDeviceStrategy("CPU:0")


class Trained:
    """A model on a strategy that is trained for a few steps.

    Attributes:
        model, optimizer, memory, steps: the objects of a run.
        scalars: figures of the steps.
        weights, memories: lists of arrays, the values after the steps.
    """

    def __init__(
        self,
        strategy=None,
        steps=5,
        config=None,
        data=None,
        first_half_length=0,
        total_steps=20,
        **overrides,
    ):
        self.strategy = strategy or one_device()
        self.settings = settings(steps=total_steps, **overrides)
        self.model, self.optimizer = pretrain.build(
            config or tiny_config(), self.settings, self.strategy
        )
        self.memory = make_memory(self.model, self.settings, self.strategy)
        data = data or ArrayData()
        self.steps = Steps(
            *(self.model, self.optimizer, self.memory),
            pretrain.training_loss(self.model, first_half_length),
            functools.partial(pretrain.read_batches, data, 0),
            self.settings,
            make_step_counter(self.strategy),
            self.strategy,
        )
        if steps:
            self.scalars = self.train(steps)

    def train(self, count):
        """Make steps; return their figures."""
        return self.steps.make(count).scalars()

    @property
    def weights(self):
        return [v.numpy() for v in self.model.trainable_variables]

    @property
    def memories(self):
        local = self.strategy.experimental_local_results
        return [
            np.concatenate([value.numpy() for value in local(v.value)])
            for v in (self.memory.memories if self.memory else ())
        ]
