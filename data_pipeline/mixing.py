"""Batches that mix several sets of records in given shares.

Each set gets some rows of the batch. A row always reads the same set. Therefore
the memory of a row contains the text directly before the row's next record. If
a set were drawn for each record, the record would not continue the text in
memory.
"""

import math
import os
from collections.abc import Sequence

import tensorflow as tf

from data_pipeline.dataset_options import dataset_options
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.reading import checked_rows
from data_pipeline.records.reading import without_autograph

# Settings that mixed sets must share. Seeds and texts may differ.
_SHARED = (
    "sequence_length",
    "reuse_length",
    "permutation_length",
    "num_predict",
    "both_directions",
    "form",
)
# Distance between the seeds of the sets. With equal seeds, records with equal
# numbers would have equal orders.
_SEEDS_APART = 0x9E3779B1


class MixedPretrainingData:
    """Pretraining batches whose rows are divided among several sets of records.

    The first rows of the global batch read the first set, the next rows the
    second set, and so on. The rows of each set have their own `PretrainingData`
    with its own epochs. A batch depends only on (seed, step). A set with fewer
    records per row than another set starts its next epoch earlier.

    Args:
        directories: list of paths, each the output of `build_records`.
        batch_size: int, B, number of rows of all workers and replicas together.
            At least the number of sets.
        weights: list of positive numbers, the share of each set in the rows of
            a batch, or None for shares in proportion to the sets' numbers of
            records. With None, the epochs of all sets end at about the same
            step. Shares are rounded to whole rows, with at least one row per
            set.
        seed: int, seed of the first set. The seeds of the other sets are
            derived from this seed.
        **options: further arguments of PretrainingData, the same for all sets.

    Attributes:
        sets: list of PretrainingData, each for its own rows.
        manifest: Manifest of the first set.
        batch_size: int, B.
        num_records: int, number of records of all sets together.
        steps_per_epoch: int, the smallest `steps_per_epoch` of the sets.
        reader, num_targets, first_half_length: see PretrainingData.
        skipped: list of BadRecord, the damaged records of all sets.

    Raises:
        FileNotFoundError: a set or a shard is missing.
        ValueError: the sets differ in the tokenizer or in a setting such as
            `sequence_length`, or a set or an argument is not valid.

    Example:

    ```python
    from data_pipeline import build_records, mixing, train_tokenizer
    with open("a", "w") as file: print(*range(2999), sep=". ", file=file)
    train_tokenizer.main("--input a --output m --vocabulary-size 40".split())
    options = "--input a --tokenizer m --processes 1 --output".split()
    for name in "bc": build_records.main([*options, name])
    data = mixing.MixedPretrainingData(["b", "c"], 4, [3, 1])
    ```
    """

    def __init__(
        self,
        directories: Sequence[str | os.PathLike],
        batch_size: int,
        weights: Sequence[float] | None = None,
        seed: int = 0,
        **options,
    ):
        sets = [
            PretrainingData(
                path, 1, seed=(seed + number * _SEEDS_APART) % 2**32, **options
            )
            for number, path in enumerate(directories)
        ]
        if not sets:
            raise ValueError("`directories` must name at least one set.")
        if weights is None:
            weights = [data.num_records for data in sets]
        if len(weights) != len(sets):
            raise ValueError(
                f"`weights` must be a number for each of {len(sets)} sets. "
                f"Received: {len(weights)} weights."
            )
        self._weights = list(weights)
        first = sets[0]
        for data in sets[1:]:
            _check_alike(data, first)
        self.manifest, self.reader = first.manifest, first.reader
        self.num_targets = first.num_targets
        self.first_half_length = first.first_half_length
        self.num_records = sum(data.num_records for data in sets)
        self.skipped = [bad for data in sets for bad in data.skipped]
        self._set_rows(sets, batch_size)

    def _set_rows(self, sets, batch_size):
        rows = divide_rows(self._weights, batch_size)
        self.sets = [
            data.with_batch_size(count)
            for data, count in zip(sets, rows, strict=True)
        ]
        self.batch_size = batch_size
        self.steps_per_epoch = min(data.steps_per_epoch for data in self.sets)

    def with_batch_size(self, batch_size: int) -> "MixedPretrainingData":
        """Return the same sets in the same shares, in batches of another size.

        Args:
            batch_size: int, B.

        Returns:
            MixedPretrainingData.

        Raises:
            ValueError: a set has fewer records than rows in the batch.
        """
        other = object.__new__(MixedPretrainingData)
        vars(other).update(vars(self))
        other._set_rows(self.sets, batch_size)
        return other

    def dataset(
        self,
        start_step: int = 0,
        first_row: int = 0,
        num_rows: int | None = None,
        replica_batch: int | None = None,
        literal: bool = False,
        num_parallel_calls: int = tf.data.AUTOTUNE,
    ) -> tf.data.Dataset:
        """Make the endless dataset of batches.

        See `PretrainingData.dataset` for the arguments, result and errors.
        """
        num_rows, replica_batch = checked_rows(
            self.batch_size, start_step, first_row, num_rows, replica_batch
        )
        parts, begin = [], 0
        for data in self.sets:
            end = begin + data.batch_size
            low, high = max(begin, first_row), min(end, first_row + num_rows)
            if low < high:
                part = data.dataset(
                    start_step,
                    low - begin,
                    high - low,
                    literal=literal,
                    num_parallel_calls=num_parallel_calls,
                )
                parts.append(part)
            begin = end

        @without_autograph
        def join(*batches):
            joined = {
                name: tf.concat([batch[name] for batch in batches], axis=0)
                for name in batches[0]
            }
            return {
                name: tf.reshape(x, [-1, replica_batch, *x.shape[1:]])
                for name, x in joined.items()
            }

        dataset = tf.data.Dataset.zip(tuple(parts)).map(join).unbatch()
        options = dataset_options(is_sharded=False)
        return dataset.prefetch(2).with_options(options)

    def sources(self, step):
        """Find the records of a step, see `PretrainingData.sources`."""
        return [source for data in self.sets for source in data.sources(step)]

    def explain_data_loss(self, step=0):
        """Raise an error that names a damaged record, see `PretrainingData`."""
        for data in self.sets:
            data.explain_data_loss(step)


def open_records(directories, batch_size, weights=None, **options):
    """Open one set of records, or mix several sets.

    Args:
        directories, batch_size, weights, **options: see
            MixedPretrainingData.

    Returns:
        PretrainingData or MixedPretrainingData.
    """
    if len(directories) == 1:
        return PretrainingData(directories[0], batch_size, **options)
    return MixedPretrainingData(directories, batch_size, weights, **options)


def sets_of(data):
    """Return the sets of records that `data` reads: list of PretrainingData."""
    return getattr(data, "sets", [data])


def largest_batch(data, most, multiple_of=1):
    """Find the largest batch size that the records of a split can fill.

    Args:
        data: PretrainingData or MixedPretrainingData.
        most: int, upper bound of the batch size.
        multiple_of: int, number that must divide the batch size.

    Returns:
        int, or 0 if no batch size is possible.
    """
    sets = sets_of(data)
    weights = getattr(data, "_weights", [1])
    for rows in range(most - most % multiple_of, len(sets) - 1, -multiple_of):
        counts = divide_rows(weights, rows)
        if all(x <= y.num_records for x, y in zip(counts, sets, strict=True)):
            return rows
    return 0


def divide_rows(weights, batch_size):
    """Divide the rows of a batch among several sets.

    Args:
        weights: list of positive numbers, the shares of the sets.
        batch_size: int, B.

    Returns:
        list of int, the number of rows of each set. Their sum is B. The numbers
        are as close to the shares as possible, with at least one row per set.

    Raises:
        ValueError: there are more sets than rows, or a weight is not a
            positive number.
    """
    if not all(0 < x < math.inf for x in weights):
        raise ValueError(
            f"`weights` must be positive numbers. Received: weights={weights}."
        )
    if batch_size < len(weights):
        raise ValueError(
            "`batch_size` must be at least the number of sets of records that "
            f"are mixed, {len(weights)}, as each has a row of its own. "
            f"Received: batch_size={batch_size}."
        )
    total = math.fsum(weights)
    wanted = [batch_size * (weight / total) for weight in weights]
    rows = [max(1, math.floor(x)) for x in wanted]
    while sum(rows) != batch_size:
        missing = [x - y for x, y in zip(wanted, rows, strict=True)]
        if sum(rows) < batch_size:
            rows[missing.index(max(missing))] += 1
        else:
            least = min(x for x, y in zip(missing, rows, strict=True) if y > 1)
            place = next(
                n
                for n, (x, y) in enumerate(zip(missing, rows, strict=True))
                if x == least and y > 1
            )
            rows[place] -= 1
    return rows


def _check_alike(data, first):
    """Refuse a set that cannot share batches with the first set."""
    values = [
        {name: getattr(x.manifest, name) for name in _SHARED}
        | {"tokenizer": x.manifest.tokenizer["sha256"]}
        | {"lowercase": x.manifest.tokenizer["lowercase"]}
        for x in (data, first)
    ]
    for name, value in values[0].items():
        if value != values[1][name]:
            here, there = (str(x[name])[:12] for x in values)
            raise ValueError(
                f"the records in {data.directory} and {first.directory} cannot "
                f"be mixed: `{name}` is {here} of the former and {there} of "
                "the latter. Build both with the same tokenizer and settings."
            )
