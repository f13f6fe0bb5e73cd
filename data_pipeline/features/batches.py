"""Batches of encoded examples for fine-tuning.

Rows with similar lengths share a batch, and batches are padded to one of a few
lengths. So there is little padding, and few shapes must be compiled. The rows
of a training step depend only on (seed, step). The number of workers or
replicas and the first step of a run do not change these rows.

Shapes: R rows of all examples, B rows of a global batch, b rows of one dataset
element, O options or documents of a row, S = R x O sequences, T tokens.
"""

import numpy as np
import tensorflow as tf

from data_pipeline.base.progress import Progress
from data_pipeline.dataset_options import dataset_options

# Number of batches whose rows are sorted by length together. A larger pool has
# less padding, a smaller pool has a more random order.
_POOL = 64
# Number of examples to encode at once, to limit the memory.
_CHUNK = 1000


def bucket_lengths(sequence_length, smallest=16):
    """List the lengths of padded batches: 16, 24, 32, 48, 64, 96, 128, ...

    Args:
        sequence_length: int, the largest length, which is always included.
        smallest: int, the first length. Default 16.

    Returns:
        tuple of int, in increasing order.
    """
    lengths = set()
    length = smallest
    while length < sequence_length:
        lengths |= {length, length * 3 // 2}
        length *= 2
    return tuple(sorted(x for x in lengths if x < sequence_length)) + (
        sequence_length,
    )


def encode_in_chunks(examples, encode, progress=False):
    """Encode examples, about a thousand at a time.

    Args:
        examples: list of examples.
        encode: function of a list of examples that returns a dict of ragged
            tensors and arrays.
        progress: bool, whether to show progress. Default False.

    Returns:
        dict of ragged tensors and arrays for all examples.

    Raises:
        ValueError: there are no examples.
    """
    if not examples:
        raise ValueError("there are no examples to encode.")
    parts, total = [], len(examples)
    bar = Progress("tokenizing", "examples", total, shown=progress)
    with tf.device("CPU:0"), bar:
        for begin in range(0, total, _CHUNK):
            chunk = examples[begin : begin + _CHUNK]
            parts.append(encode(chunk))
            bar.update(len(chunk))
        return {
            name: tf.concat([part[name] for part in parts], axis=0)
            if isinstance(column, tf.RaggedTensor)
            else np.concatenate([part[name] for part in parts])
            for name, column in parts[0].items()
        }


class EncodedExamples:
    """Rows of features and labels, ready for `Batches`.

    Args:
        sequences: dict of names, such as `token_ids`, to tf.RaggedTensor
            [S, (T)], one value per token. The key `token_ids` is required.
        dense: dict of names to arrays [R, ...], one entry per row.
        fillers: dict of the names in `sequences` to their padding values.
        side: "left" or "right", side of a sequence to pad.
        options: int, O, or None if each row has one sequence and no axis O.
        notes: sequence of str, lines for the user, such as about truncation.
        unbatched: dict of names to tf.RaggedTensor [R, (...)], columns that
            only the decoding of outputs uses. Batches do not contain them.
        counts: dict of names to int, such as the numbers of examples and of
            answers.

    Raises:
        ValueError: the columns have different numbers of rows.
    """

    def __init__(
        self,
        sequences,
        dense,
        fillers,
        side,
        options=None,
        notes=(),
        unbatched=None,
        counts=None,
    ):
        self.sequences = sequences
        self.dense = {k: np.asarray(v) for k, v in dense.items()}
        self.fillers = fillers
        self.side = side
        self.options = options
        self.notes = list(notes)
        self.unbatched = unbatched or {}
        self.counts = counts or {}
        sizes = {int(x.nrows()) // (options or 1) for x in sequences.values()}
        sizes |= {int(x.nrows()) for x in self.unbatched.values()}
        sizes |= {len(x) for x in self.dense.values()}
        if len(sizes) != 1:
            raise ValueError(
                "all columns must have equally many rows. Received: "
                f"{sorted(sizes)}."
            )
        self._size = sizes.pop()
        lengths = sequences["token_ids"].row_lengths().numpy()
        self._lengths = (
            lengths.astype(np.int64).reshape(self._size, -1).max(axis=1)
            if self._size
            else np.zeros(0, np.int64)
        )

    def __len__(self):
        return self._size

    @property
    def lengths(self):
        """Length of each row's longest sequence in tokens, int64 [R]."""
        return self._lengths

    def examples_of(self, row):
        """List the indices of the examples that a row contains, list of int.

        In ranking, a row contains one example per document.
        """
        if "example" not in self.dense:
            return [int(row)]
        examples = np.atleast_1d(self.dense["example"][row])
        return list(dict.fromkeys(examples.tolist()))


class Batches:
    """Training and evaluation batches of encoded examples.

    Args:
        encoded: EncodedExamples.
        batch_size: int, B, number of rows of all workers and replicas together.
        lengths: tuple of int in increasing order. Every batch is padded to one
            of these lengths.
        seed: int, seed of the order of the rows.

    Attributes:
        steps_per_epoch: int, number of full batches of an epoch.
        evaluation_steps: int, number of batches that together contain every row
            once.

    Raises:
        ValueError: there are no rows, or a row is longer than all lengths.
    """

    def __init__(self, encoded, batch_size, lengths, seed=0):
        if not len(encoded):
            raise ValueError("there are no examples to make batches of.")
        longest = int(encoded.lengths.max())
        if longest > lengths[-1]:
            raise ValueError(
                f"`lengths` must hold the longest row, {longest} tokens. "
                f"Received: lengths={tuple(lengths)}."
            )
        self.encoded = encoded
        self.batch_size = batch_size
        self.seed = seed
        self._lengths = np.asarray(lengths)
        self.steps_per_epoch = len(encoded) // batch_size
        self.evaluation_steps = -(-len(encoded) // batch_size)

    def training(self, steps, first_row=0, num_rows=None, replica_batch=None):
        """Make the dataset of training batches, in a new order each epoch.

        The rows that remain after the last full batch of an epoch are skipped.
        These rows differ from epoch to epoch.

        Args:
            steps: range, the training steps to read.
            first_row: int, the first row to read of each global batch.
            num_rows: int, number of rows to read of each global batch. Default
                None: all rows from `first_row` on.
            replica_batch: int, b, number of rows of one element. Default None:
                `num_rows`.

        Returns:
            tf.data.Dataset of dict of str to tensor: the sequences and their
            `padding_mask` (1 for real tokens) [b, T] or [b, O, T], the dense
            columns [b, ...] and `row_index` (int32) [b].

        Raises:
            ValueError: there are fewer rows than a batch needs.
        """
        if not self.steps_per_epoch:
            raise ValueError(
                "`batch_size` must be at most the number of examples, "
                f"{len(self.encoded)}. Received: batch_size={self.batch_size}."
            )

        epochs = range(
            steps.start // self.steps_per_epoch,
            -(-steps.stop // self.steps_per_epoch),
        )
        nothing = np.zeros([0, self.batch_size], np.int64)  # no steps are left
        batches = np.concatenate([nothing, *map(self._order, epochs)])
        first = steps.start % self.steps_per_epoch
        batches = batches[first : first + len(steps)]
        return self._dataset(batches, first_row, num_rows, replica_batch)

    def evaluation(self, first_row=0, num_rows=None, replica_batch=None):
        """Make the dataset for evaluation, with every row once.

        The longest rows come first.

        The last batch is filled with copies of its last row, which have the
        `row_index` -1. See `training` for the arguments and elements.
        """
        order = np.argsort(-self.encoded.lengths, kind="stable")
        # Fill the batch with the last row, the shortest row: a longer row would
        # be truncated. A negative index marks a copy: ~row is -1 - row.
        filled = np.full(self.evaluation_steps * self.batch_size, ~order[-1])
        filled[: len(order)] = order
        batches = filled.reshape(-1, self.batch_size)
        return self._dataset(batches, first_row, num_rows, replica_batch)

    def rows(self, step):
        """Find the indices of a training step's rows, int64 array [B]."""
        epoch, step = divmod(step, self.steps_per_epoch)
        return self._order(epoch)[step]

    def padding(self):
        """Share of padding in the first epoch, by each row's longest sequence.

        Returns:
            float.
        """
        if not self.steps_per_epoch:
            return 0.0
        batches = self._order(0)
        padded = self._padded_lengths(batches).sum() * self.batch_size
        return 1 - self.encoded.lengths[batches].sum() / padded

    def _order(self, epoch):
        """Draw the row indices of all steps of an epoch, int64 [steps, B]."""
        draw = np.random.default_rng([self.seed, epoch])
        rows = draw.permutation(len(self.encoded))
        rows = rows[: self.steps_per_epoch * self.batch_size]
        pool = _POOL * self.batch_size
        lengths = self.encoded.lengths
        batches = np.concatenate(
            [
                part[np.argsort(lengths[part], kind="stable")]
                for part in np.split(rows, range(pool, len(rows), pool))
            ]
        ).reshape(-1, self.batch_size)
        batches = draw.permutation(batches, axis=0)
        # Shuffle within batches too: otherwise one replica would get all long
        # rows.
        return draw.permuted(batches, axis=1)

    def _padded_lengths(self, batches):
        """Choose the padded length of each batch, int64 [steps]."""
        rows = np.where(batches < 0, ~batches, batches)
        longest = self.encoded.lengths[rows].max(axis=-1)
        return self._lengths[np.searchsorted(self._lengths, longest)]

    def _dataset(self, batches, first_row, num_rows, replica_batch):
        """Make a dataset from the row indices of batches, int64 [steps, B].

        The dataset uses only tensors and ops, so any host can run the dataset.
        The host of a remote TPU could not call a Python function of this
        process.
        """
        num_rows = self.batch_size - first_row if num_rows is None else num_rows
        replica_batch = num_rows if replica_batch is None else replica_batch
        if first_row + num_rows > self.batch_size or num_rows % replica_batch:
            raise ValueError(
                "rows must lie in the batch, and elements divide them. "
                f"Received: first_row={first_row}, num_rows={num_rows}, "
                f"replica_batch={replica_batch}, for a batch of "
                f"{self.batch_size}."
            )

        # All replicas use the padded length of the whole batch.
        lengths = self._padded_lengths(batches)
        mine = batches[:, first_row : first_row + num_rows]
        elements = (
            mine.reshape(-1, replica_batch),
            np.repeat(lengths, num_rows // replica_batch),
        )
        with tf.device("CPU:0"):
            dataset = tf.data.Dataset.from_tensor_slices(elements)
        # A TPU needs a static shape.
        static = int(self._lengths[0]) if len(self._lengths) == 1 else None
        gather = _Gather(self.encoded, replica_batch, static)
        dataset = dataset.map(gather, num_parallel_calls=tf.data.AUTOTUNE)
        return dataset.prefetch(2).with_options(dataset_options())


class _Gather:
    """Callable, made of TensorFlow ops, that gathers and pads rows by index."""

    def __init__(self, encoded, batch_size, length):
        self._encoded = encoded
        self._batch_size = batch_size
        self._length = length
        with tf.device("CPU:0"):
            self._sequences = {
                name: (x.flat_values, tf.cast(x.row_splits, tf.int64))
                for name, x in encoded.sequences.items()
            }
            self._dense = {k: tf.constant(v) for k, v in encoded.dense.items()}

    def __call__(self, indices, length):
        length = self._length or length
        # A negative index stands for a copy that fills the batch.
        rows = tf.where(indices < 0, -1 - indices, indices)
        options = self._encoded.options
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
            if self._encoded.side == "left":
                place = place - (length - lengths[:, None])
            is_real = (place >= 0) & (place < lengths[:, None])
            values = tf.gather(
                values, tf.where(is_real, starts[:, None] + place, 0)
            )
            filler = tf.cast(self._encoded.fillers[name], values.dtype)
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
        if self._encoded.options is None:
            return value
        return tf.reshape(
            value,
            [
                self._batch_size,
                self._encoded.options,
                self._length or tf.shape(value)[-1],
            ],
        )
