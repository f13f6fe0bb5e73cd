"""Records -> batches for pretraining.

Row b of every global batch reads one stretch of consecutive records, so that
the model's memory of a row at one step is what its row of the next step goes
on from. What a step holds is a function of (seed, step) alone: not of the
number of readers, of workers or of replicas, nor of where the run started.

Shapes: B global batch, b rows of one element, T tokens, P targets.
"""

import os

import numpy as np
import tensorflow as tf

from data_pipeline.dataset_options import dataset_options
from data_pipeline.objectives import permutation
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.parsing import parse_records
from data_pipeline.records.schema import SPLITS
from data_pipeline.records.writer import verify_records

# Nothing here needs AutoGraph, which triples the time to build a dataset.
_as_written = tf.autograph.experimental.do_not_convert

# Buffers of all rows together, and the most for one row.
_BUFFER_BYTES = 1 << 26
_ROW_BUFFER_BYTES = 1 << 18


class PretrainingData:
    """The batches of one split of a set of records.

    With N records and a global batch of B rows, an epoch is N // B steps, and
    row b reads the records from b * (N // B) on. Every epoch after the first
    begins at another record, so that those left over differ, and draws other
    permutations.

    Args:
        directory: str or path of a set that `build_records` made.
        batch_size: int, the global batch B, over all workers and replicas.
        split: "train" or "validation".
        seed: int, for the permutations and for where epochs begin.
        skip_corrupt: bool; True reads all records first and leaves out the
            damaged ones, counted in `skipped`.
        service: str, the address of a tf.data service whose workers read in
            place of this process, such as "grpc://host:5000"; default None.
            They must see the records under the same path.

    Attributes:
        manifest: Manifest.
        num_records: int, N.
        steps_per_epoch: int, N // B.
        skipped: list of BadRecord that are left out.

    Raises:
        FileNotFoundError: there is no set, or a shard is missing.
        ValueError: the set is damaged, lacks the split, or is smaller than a
            batch.
    """

    def __init__(
        self,
        directory,
        batch_size,
        split="train",
        seed=0,
        skip_corrupt=False,
        service=None,
    ):
        self.directory = os.fspath(directory)
        self._service = service
        self.batch_size = batch_size
        self.split = split
        self.seed = seed
        self.manifest = read_manifest(directory, check_shards=not skip_corrupt)
        if split not in SPLITS or not self.manifest.num_records(split):
            raise ValueError(
                "`split` must be one that the records have: "
                f"{', '.join(self.manifest.splits)}. Received: split={split!r}."
            )
        self.skipped = verify_records(directory, split) if skip_corrupt else []
        for place in self.skipped:
            if place.record is None:
                raise ValueError(
                    f"{place}. All its records are whole, so they are of "
                    "another set; copy the file again, or build the set anew."
                )
        self._ranges = _good_ranges(
            self.directory, self.manifest.splits[split], self.skipped
        )
        self.num_records = int(self._ranges["count"].sum())
        if not 1 <= batch_size <= self.num_records:
            raise ValueError(
                "`batch_size` must be between 1 and the number of records in "
                f"the {split} split, {self.num_records}. Received: "
                f"batch_size={batch_size}. Build records from more text, or "
                "use a smaller batch."
            )
        self.steps_per_epoch = self.num_records // batch_size

    def dataset(
        self,
        start_step=0,
        first_row=0,
        num_rows=None,
        replica_batch=None,
        literal=False,
        num_parallel_calls=tf.data.AUTOTUNE,
    ):
        """An endless dataset of batches, from any step on.

        Each step gives `num_rows / replica_batch` elements, the rows of
        successive replicas. Features are those of
        `data_pipeline.records.schema.batch_features`; shapes are static.
        Records of the form "frozen" always give the `perm_mask` and
        `target_mapping` that they hold.

        Args:
            start_step: int, the first step to read, 0 for the beginning.
            first_row: int, the first row of the global batch to read.
            num_rows: int, how many rows to read; default all B.
            replica_batch: int, rows of one element; default `num_rows`.
            literal: bool, whether to give `perm_mask` and `target_mapping`
                for `factorization_rank` and `target_positions`.
            num_parallel_calls: int, readers; the result does not depend on it.

        Returns:
            tf.data.Dataset of dict of str to tensor.

        Raises:
            ValueError: the rows do not lie in the batch, or `replica_batch`
                does not divide them, or `start_step` is negative.
        """
        num_rows = self.batch_size - first_row if num_rows is None else num_rows
        replica_batch = num_rows if replica_batch is None else replica_batch
        self._check_rows(start_step, first_row, num_rows, replica_batch)

        elements_per_step = num_rows // replica_batch

        @_as_written
        def parse(element, serialized):
            step = start_step + element // elements_per_step
            row = first_row + element % elements_per_step * replica_batch
            row += tf.range(replica_batch, dtype=tf.int64)
            batch = parse_records(serialized, self.manifest)
            return self._features(batch, *self._places(step, row), literal)

        rows = tf.data.Dataset.range(first_row, first_row + num_rows)
        dataset = rows.interleave(
            _as_written(
                lambda row: self._row_stream(row, start_step, num_rows)
            ),
            cycle_length=num_rows,
            block_length=1,
            num_parallel_calls=min(num_parallel_calls, num_rows),
            deterministic=True,
        )
        dataset = dataset.batch(replica_batch, drop_remainder=True)
        # Everything else about a record follows from its step and its row.
        dataset = dataset.enumerate().map(
            parse, num_parallel_calls=num_parallel_calls, deterministic=True
        )
        options = dataset_options()
        # Rows are shared out by `first_row`, not by dropping elements.
        options.experimental_distribute.auto_shard_policy = (
            tf.data.experimental.AutoShardPolicy.OFF
        )
        if self._service is not None:
            dataset = _on_service(dataset, self._service)
        return dataset.prefetch(2).with_options(options)

    def explain_data_loss(self):
        """Names the damaged records, after `tf.errors.DataLossError`.

        Raises:
            ValueError: names file, record and byte offset.
        """
        explain_data_loss(self.directory, self.split)

    def _check_rows(self, start_step, first_row, num_rows, replica_batch):
        if not 0 <= first_row < first_row + num_rows <= self.batch_size:
            raise ValueError(
                "`first_row` and `num_rows` must lie in the global batch of "
                f"{self.batch_size} rows. Received: first_row={first_row}, "
                f"num_rows={num_rows}."
            )
        if replica_batch < 1 or num_rows % replica_batch:
            raise ValueError(
                "`replica_batch` must divide the rows that are read. Received: "
                f"replica_batch={replica_batch}, num_rows={num_rows}."
            )
        if start_step < 0:
            raise ValueError(
                "`start_step` must not be negative. Received: "
                f"start_step={start_step}."
            )

    def _features(self, batch, epoch, record_index, is_continuation, literal):
        manifest = self.manifest
        token_ids = batch["token_ids"]
        is_target = permutation.real_targets(token_ids, batch["is_target"])
        positions, ids, weights = permutation.select_targets(
            token_ids, is_target, manifest.num_predict
        )
        features = {
            "token_ids": token_ids,
            "segment_ids": batch["segment_ids"],
            "target_ids": ids,
            "target_weights": weights,
            "is_reversed": batch["is_reversed"],
            "is_continuation": is_continuation,
            "is_next": batch["is_next"],
        }
        if manifest.form == "frozen":
            features["perm_mask"] = tf.cast(batch["perm_mask"], tf.float32)
            features["target_mapping"] = tf.cast(
                batch["target_mapping"], tf.float32
            )
            return features
        rank = permutation.draw_ranks(
            self.seed,
            epoch,
            record_index,
            token_ids,
            batch["is_target"],
            manifest.reuse_length,
            manifest.permutation_length,
        )
        if literal:
            features["perm_mask"] = permutation.perm_mask(rank, is_target)
            features["target_mapping"] = permutation.target_mapping(
                positions, weights, manifest.sequence_length
            )
        else:
            features["factorization_rank"] = rank
            features["target_positions"] = positions
        return features

    def _row_stream(self, row, start_step, num_rows):
        """The endless serialized records of a row."""
        first_epoch, first_step = divmod(start_step, self.steps_per_epoch)
        buffer_size = min(_ROW_BUFFER_BYTES, _BUFFER_BYTES // num_rows)
        files = tf.constant(self._ranges["file"])
        num_ranges = len(self._ranges["file"])
        firsts, _, begins, ends = self._twice_around()

        def epoch_stream(epoch):
            begin = self._begin(epoch, row)
            end = begin + self.steps_per_epoch
            begin += tf.where(
                epoch == first_epoch, tf.constant(first_step, tf.int64), 0
            )

            def range_stream(place):
                low = tf.maximum(begin, begins[place])
                record = firsts[place] + low - begins[place]
                return _read(
                    files[place % num_ranges],
                    record * self.manifest.frame_bytes,
                    buffer_size,
                    tf.minimum(end, ends[place]) - low,
                )

            return tf.data.Dataset.range(
                _search(ends, begin, "right"), _search(ends, end, "left") + 1
            ).flat_map(range_stream)

        epochs = tf.data.Dataset.range(first_epoch, np.iinfo(np.int64).max)
        return epochs.flat_map(epoch_stream)

    def _places(self, step, row):
        """What rows read at a step: epoch, index of the record in the split,
        and whether it goes on from the row's record of the step before."""
        epoch = step // self.steps_per_epoch
        begin = self._begin(epoch, row)
        place = begin + step % self.steps_per_epoch
        _, indices, begins, ends = self._twice_around()
        which = tf.searchsorted(ends, place, side="right")
        low = tf.gather(begins, which)
        index = tf.gather(indices, which) + place - low
        starts = tf.logical_or(tf.equal(place, low), tf.equal(place, begin))
        return epoch, index, tf.logical_not(starts)

    def _begin(self, epoch, row):
        """The place among the readable records where a row's epoch begins."""
        start = self._epoch_offset(epoch) + row * self.steps_per_epoch
        return start % self.num_records

    def _twice_around(self):
        """The ranges twice, as a row may run over the end of the records.

        Returns:
            tuple of int64 tensors: first record in the file, its index in the
            split, first place and end among the readable records.
        """
        first, index, count = (
            np.tile(self._ranges[name], 2)
            for name in ("first", "index", "count")
        )
        ends = np.cumsum(count)
        return tuple(
            tf.constant(values) for values in (first, index, ends - count, ends)
        )

    def _epoch_offset(self, epoch):
        """The record at which an epoch begins; 0 for the first."""
        drawn = tf.cast(permutation.hash_words(self.seed, epoch), tf.int64)
        return tf.where(epoch == 0, tf.zeros_like(drawn), drawn) % (
            self.num_records
        )


def explain_data_loss(directory, split=None):
    """Says what `tf.errors.DataLossError` does not: where the damage is.

    Args:
        directory: str or path of a set of records.
        split: str, or None for all.

    Raises:
        FileNotFoundError: a shard is missing.
        ValueError: names file, record and byte offset of the first damage.
    """
    read_manifest(directory)
    bad = verify_records(directory, split)
    if bad:
        more = f" (and {len(bad) - 1} more)" if len(bad) > 1 else ""
        raise ValueError(
            f"{bad[0]}{more}. Copy the file again from where the set was "
            "built, or go on without the damaged records by `skip_corrupt` "
            "(--skip-corrupt)."
        )


def _on_service(dataset, address):
    """The same dataset, read by a worker of a tf.data service.

    Each split of the source goes to one worker. As there is a single one, one
    worker gives the whole dataset, in order, however many there are; another
    dataset, of other rows or of another replica, may be another's.
    """
    whole = tf.data.Dataset.from_tensors(0).flat_map(
        _as_written(lambda _: dataset)
    )
    return whole.apply(
        tf.data.experimental.service.distribute(
            tf.data.experimental.service.ShardingPolicy.DYNAMIC, address
        )
    )


def _read(file, byte_offset, buffer_size, count):
    """A dataset of `count` records from a byte offset on."""
    # `TFRecordDataset` has no argument for the offset, its operation does.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=tf.reshape(file, [1]),
        compression_type="",
        buffer_size=tf.constant(buffer_size, tf.int64),
        byte_offsets=tf.reshape(byte_offset, [1]),
    )
    return tf.data.experimental.from_variant(
        variant, tf.TensorSpec([], tf.string)
    ).take(count)


def _search(ends, place, side):
    found = tf.searchsorted(ends, place[None], side=side, out_type=tf.int64)
    return found[0]


def _good_ranges(directory, shards, skipped):
    """Stretches of readable records: file, first record, index of that record
    in the whole split, count."""
    ranges = []
    index = 0
    for shard in shards:
        path = os.path.join(directory, shard.file)
        stops = [place.record for place in skipped if place.file == path]
        begin = 0
        for stop in [*stops, shard.records]:
            if stop > begin:
                ranges.append((path, begin, index + begin, stop - begin))
            begin = stop + 1
        index += shard.records
    files, first, indices, counts = (
        zip(*ranges, strict=True) if ranges else [()] * 4
    )
    return {
        "file": np.array(files, dtype=object),
        "first": np.array(first, np.int64),
        "index": np.array(indices, np.int64),
        "count": np.array(counts, np.int64),
    }
