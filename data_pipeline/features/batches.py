"""Rows -> batches of equal length, for fine-tuning.

Rows of like length share a batch, padded to one of a few lengths, so that
little is padding and few shapes are compiled. What a training step holds is a
function of (seed, step) alone: not of the number of workers or replicas, nor of
where the run started.

Shapes: B global batch, b rows of one element, O options, T tokens.
"""

import functools

import numpy as np
import tensorflow as tf

from data_pipeline.dataset_options import dataset_options

# Batches whose rows are sorted by length together: more leave less padding,
# fewer leave more chance in who meets whom.
_POOL = 64


def bucket_lengths(sequence_length, smallest=16):
    """Lengths that batches are padded to: 16, 24, 32, 48, 64, 96, 128, ...

    Args:
        sequence_length: int, the largest, always one of them.
        smallest: int, the first.

    Returns:
        tuple of int, increasing.
    """
    lengths = set()
    length = smallest
    while length < sequence_length:
        lengths |= {length, length * 3 // 2}
        length *= 2
    return tuple(sorted(x for x in lengths if x < sequence_length)) + (
        sequence_length,
    )


class Batches:
    """The batches of a set of rows.

    Args:
        rows: Rows.
        batch_size: int, the global batch B, over all workers and replicas.
        lengths: tuple of int, increasing; every batch is padded to one of
            them.
        seed: int, for the order.

    Attributes:
        steps_per_epoch: int, full batches in the rows.
        evaluation_steps: int, batches that hold every row once.

    Raises:
        ValueError: there are no rows, or one is longer than all lengths.
    """

    def __init__(self, rows, batch_size, lengths, seed=0):
        if not len(rows):
            raise ValueError("there are no examples to make batches of.")
        longest = int(rows.lengths.max())
        if longest > lengths[-1]:
            raise ValueError(
                f"`lengths` must hold the longest row, {longest} tokens. "
                f"Received: lengths={tuple(lengths)}."
            )
        self.rows = rows
        self.batch_size = batch_size
        self.seed = seed
        self._lengths = np.asarray(lengths)
        self.steps_per_epoch = len(rows) // batch_size
        self.evaluation_steps = -(-len(rows) // batch_size)
        self._order = functools.lru_cache(maxsize=2)(self._order_of)

    def training(
        self, start_step=0, first_row=0, num_rows=None, replica_batch=None
    ):
        """An endless dataset of batches in a new order each epoch.

        Rows that do not fill a batch are left out of their epoch, other ones
        each time.

        Args:
            start_step: int, the first step to read.
            first_row: int, the first row of the global batch to read.
            num_rows: int, how many of its rows to read; default all.
            replica_batch: int, rows of one element; default `num_rows`.

        Returns:
            tf.data.Dataset of dict of str to tensor: sequences [b, T] or
            [b, O, T] with `padding_mask` (1 = a real token), dense columns
            [b, ...], and `row_index` int32 [b].

        Raises:
            ValueError: there are fewer rows than a batch has.
        """
        if not self.steps_per_epoch:
            raise ValueError(
                "`batch_size` must be at most the number of examples, "
                f"{len(self.rows)}. Received: batch_size={self.batch_size}."
            )

        def steps():
            step = start_step
            while True:
                epoch, place = divmod(step, self.steps_per_epoch)
                yield self._order(epoch)[place]
                step += 1

        return self._dataset(steps, first_row, num_rows, replica_batch)

    def evaluation(self, first_row=0, num_rows=None, replica_batch=None):
        """A dataset that holds every row once, the longest rows first.

        The last batch is filled up with copies of its last row, whose
        `row_index` is -1. Arguments and elements as of `training`.
        """
        order = np.argsort(-self.rows.lengths, kind="stable")
        # Of the same batch, for a longer row would lose its end. Copies are
        # told from rows by their sign: ~row is -1 - row.
        filled = np.full(self.evaluation_steps * self.batch_size, ~order[-1])
        filled[: len(order)] = order
        batches = filled.reshape(-1, self.batch_size)
        return self._dataset(
            lambda: iter(batches), first_row, num_rows, replica_batch
        )

    def padding(self, epoch=0):
        """float, the share of an epoch's tokens that is padding."""
        if not self.steps_per_epoch:
            return 0.0
        batches = self._order(epoch)
        padded = self._padded_lengths(batches).sum() * self.batch_size
        return 1 - self.rows.lengths[batches].sum() / padded

    def _order_of(self, epoch):
        """int64 [steps, B], the rows of each step of an epoch."""
        draw = np.random.default_rng([self.seed, epoch])
        rows = draw.permutation(len(self.rows))
        rows = rows[: self.steps_per_epoch * self.batch_size]
        pool = _POOL * self.batch_size
        lengths = self.rows.lengths
        batches = np.concatenate(
            [
                part[np.argsort(lengths[part], kind="stable")]
                for part in np.split(rows, range(pool, len(rows), pool))
            ]
        ).reshape(-1, self.batch_size)
        batches = draw.permutation(batches, axis=0)
        # Within a batch too: replicas must not get the long rows always.
        return draw.permuted(batches, axis=1)

    def _padded_lengths(self, batches):
        """int64 [steps], the length each batch is padded to."""
        rows = np.where(batches < 0, ~batches, batches)
        longest = self.rows.lengths[rows].max(axis=-1)
        return self._lengths[np.searchsorted(self._lengths, longest)]

    def _dataset(self, steps, first_row, num_rows, replica_batch):
        num_rows = self.batch_size - first_row if num_rows is None else num_rows
        replica_batch = num_rows if replica_batch is None else replica_batch
        if first_row + num_rows > self.batch_size or num_rows % replica_batch:
            raise ValueError(
                "rows must lie in the batch, and elements divide them. "
                f"Received: first_row={first_row}, num_rows={num_rows}, "
                f"replica_batch={replica_batch}, for a batch of "
                f"{self.batch_size}."
            )

        def elements():
            for batch in steps():
                # All replicas get one shape, that of the whole batch.
                length = self._padded_lengths(batch)
                mine = batch[first_row : first_row + num_rows]
                for rows in mine.reshape(-1, replica_batch):
                    yield rows, length

        dataset = tf.data.Dataset.from_generator(
            elements,
            output_signature=(
                tf.TensorSpec([replica_batch], tf.int64),
                tf.TensorSpec([], tf.int64),
            ),
        )
        # A TPU wants to know the length beforehand.
        static = int(self._lengths[0]) if len(self._lengths) == 1 else None
        gather = _Gather(self.rows, replica_batch, static)
        dataset = dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.prefetch(2).with_options(dataset_options())


class _Gather:
    """Fetches rows by index and pads them, in graph."""

    def __init__(self, rows, batch_size, length):
        self._rows = rows
        self._batch_size = batch_size
        self._length = length
        with tf.device("CPU:0"):
            self._sequences = {
                name: (tf.constant(x.values), tf.constant(x.row_splits))
                for name, x in rows.sequences.items()
            }
            self._dense = {k: tf.constant(v) for k, v in rows.dense.items()}

    def __call__(self, indices, length):
        length = self._length or length
        # Those that fill a batch up are copies, see `Batches.evaluation`.
        rows = tf.where(indices < 0, -1 - indices, indices)
        options = self._rows.options
        sequences = rows
        if options is not None:
            sequences = rows[:, None] * options + tf.range(
                options, dtype=tf.int64
            )
            sequences = tf.reshape(sequences, [-1])
        features = {}
        for name, (values, splits) in self._sequences.items():
            starts = tf.gather(splits, sequences)
            lengths = tf.gather(splits, sequences + 1) - starts
            place = tf.range(length, dtype=tf.int64)[None]
            if self._rows.side == "left":
                place = place - (length - lengths[:, None])
            is_real = (place >= 0) & (place < lengths[:, None])
            values = tf.gather(
                values, tf.where(is_real, starts[:, None] + place, 0)
            )
            filler = tf.cast(self._rows.fillers[name], values.dtype)
            features[name] = tf.where(is_real, values, filler)
            if name == "token_ids":
                features["padding_mask"] = tf.cast(is_real, tf.int32)
        for name, value in features.items():
            features[name] = self._with_options(value)
        for name, values in self._dense.items():
            features[name] = tf.gather(values, rows)
        features["row_index"] = tf.cast(tf.maximum(indices, -1), tf.int32)
        return features

    def _with_options(self, value):
        if self._rows.options is None:
            return value
        return tf.reshape(
            value,
            [
                self._batch_size,
                self._rows.options,
                self._length or tf.shape(value)[-1],
            ],
        )
