"""Batches for pretraining, read from a set of records.

A batch depends only on (seed, step). The number of readers, workers or replicas
and the first step of a run do not change a batch.

Shapes: B rows of the global batch, b rows of one element of the dataset, T
tokens, P targets.
"""

import copy
import dataclasses
import os

import numpy as np
import tensorflow as tf

from data_pipeline.base.files import as_path
from data_pipeline.base.files import check_tensorflow_reads
from data_pipeline.base.files import is_remote
from data_pipeline.dataset_options import dataset_options
from data_pipeline.objectives import make_reader
from data_pipeline.objectives.draws import hash_words
from data_pipeline.objectives.reader import Draw
from data_pipeline.objectives.reader import ObjectiveReader
from data_pipeline.records.manifest import check_files
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import verify_records
from data_pipeline.records.reading import ReadableRecords
from data_pipeline.records.reading import check_service
from data_pipeline.records.reading import checked_rows
from data_pipeline.records.reading import class_first
from data_pipeline.records.reading import on_service
from data_pipeline.records.reading import parse_records
from data_pipeline.records.reading import tokenizer_of_records
from data_pipeline.records.reading import without_autograph
from data_pipeline.records.schema import SPLITS
from data_pipeline.tokenization.symbols import find_layout

# Largest amount that is read ahead: bytes of all rows together, and steps.
_BLOCK_BYTES = 1 << 26
_MOST_STEPS = 128
# Number of parallel reads from a bucket, where each read takes many
# milliseconds.
_BUCKET_CALLS = 64


class PretrainingData:
    """Batches of one split of a set of records.

    With N records and a global batch of B rows, an epoch has
    steps_per_epoch = N // B steps. In step s of epoch e, row r reads the record

        (offset(e) + r * steps_per_epoch + s) mod N

    So a row reads consecutive records. After a step, the memory of the row
    contains the text directly before the row's next record. An epoch skips
    N mod B records. offset(0) is 0. The offset of a later epoch is drawn from
    (seed, e), so that different epochs skip different records.
    All random draws of an objective, such as orders and targets, depend only on
    (seed, e, index of the record).

    Args:
        directory: path of the output of `build_records`, local or in a bucket.
        batch_size: int, B, number of rows of all workers and replicas together.
        split: "train" or "validation".
        seed: int, seed of the objective's draws and of the epochs' offsets.
        skip_corrupt: bool, whether to check all records first and skip the
            damaged records. `skipped` lists them.
        service: str, address of a tf.data service, such as "grpc://host:5000",
            or None (default). The workers of the service read the records for
            this process, and must find the records at the same path.
        objective: str or ObjectiveReader: "permutation" (default), "causal",
            "masked" or "pseudo_masked"; see `data_pipeline.objectives`.
        layout: str, "xlnet" (default) or "bert". "xlnet" gives sequences as
            stored, with [CLS] at the end. "bert" moves [CLS] to the front; the
            objective "permutation" refuses this layout.

    Attributes:
        manifest: Manifest.
        num_records: int, N.
        steps_per_epoch: int, N // B.
        num_targets: int, P.
        first_half_length: int, length of a prefix of the sequence. In the
            content stream, the prefix cannot attend to the tokens after the
            prefix. 0: no such prefix.
        skipped: list of BadRecord, the damaged records.

    Raises:
        FileNotFoundError: the set or a shard is missing.
        ValueError: the set is damaged, lacks the split, or has fewer records
            than a batch has rows.
        ConnectionError: no server listens at the service's address.

    Example:

    ```python
    from data_pipeline import PretrainingData, build_records, train_tokenizer
    with open("a", "w") as file: print(*range(2999), sep=". ", file=file)
    train_tokenizer.main("--input a --output m --vocabulary-size 40".split())
    options = "--input a --tokenizer m --output records --processes 1"
    build_records.main(options.split())
    batch = next(iter(PretrainingData("records", batch_size=4).dataset()))
    ```
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        batch_size: int,
        split: str = "train",
        seed: int = 0,
        skip_corrupt: bool = False,
        service: str | None = None,
        objective: str | ObjectiveReader = "permutation",
        layout: str = "xlnet",
    ):
        # A tf.data service has another working directory, so the path must be
        # absolute.
        self.directory = os.fspath(directory)
        if not is_remote(directory):
            self.directory = os.path.abspath(as_path(directory))
        self._check_directory()
        if service is not None:
            check_service(service)
        self._service = service
        self.split = split
        self.seed = seed
        self.reader = make_reader(objective)
        self.manifest = read_manifest(directory, check_shards=False)
        self.reader.check(self.manifest)
        self._layout = find_layout(layout)
        if self._layout.class_first and self.reader.name == "permutation":
            raise ValueError(
                "the objective 'permutation' needs a backbone with a query "
                "stream, XLNetBackbone, which reads sequences as they are "
                f"stored. Received: layout={layout!r}."
            )
        if self._layout.class_first and self.manifest.both_directions:
            raise ValueError(
                f"half of the records in {directory} read backwards, for which "
                "a BertBackbone has no input. Build them without "
                "--both-directions."
            )
        self.num_targets = self.reader.num_targets(self.manifest)
        self.first_half_length = 0
        if not self._layout.class_first:
            self.first_half_length = self.reader.first_half_length(
                self.manifest
            )
        if split not in SPLITS or not self.manifest.num_records(split):
            raise ValueError(
                "`split` must be one that the records have: "
                f"{', '.join(self.manifest.splits)}. Received: split={split!r}."
            )
        self.skipped = []
        if skip_corrupt:
            self.skipped = verify_records(self.directory, split)
        else:
            check_files(directory, self.manifest, split)
        for bad in self.skipped:
            if bad.record is None:
                raise ValueError(
                    f"{bad}. Its records are intact, so they are from another "
                    "shard or set; copy the file again, or build the set anew."
                )
        self._records = ReadableRecords(
            self.directory,
            self.manifest.splits[split],
            self.skipped,
            self.manifest.frame_bytes,
        )
        self.num_records = self._records.num_records
        self._starts_word = None
        if self.reader.reads_words:
            tokenizer = tokenizer_of_records(directory, self.manifest)
            self._starts_word = tokenizer.starts_word
        self._set_batch_size(batch_size)

    def _check_directory(self):
        """Raise ValueError if TensorFlow cannot read files at this path."""
        check_tensorflow_reads(
            as_path(self.directory), "Copy the records to one of them."
        )

    def with_batch_size(self, batch_size: int) -> "PretrainingData":
        """Return the same records in batches of another size.

        Args:
            batch_size: int, B.

        Returns:
            PretrainingData.

        Raises:
            ValueError: the split has fewer records than a batch has rows.
        """
        other = copy.copy(self)
        other._set_batch_size(batch_size)
        return other

    def _set_batch_size(self, batch_size):
        if not 1 <= batch_size <= self.num_records:
            raise ValueError(
                "`batch_size` must be between 1 and the number of records in "
                f"the {self.split} split, {self.num_records}. Received: "
                f"batch_size={batch_size}. Build records from more text, or "
                "use a smaller batch."
            )
        self.batch_size = batch_size
        self.steps_per_epoch = self.num_records // batch_size

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

        1. For each row, read the records of several steps at once. A parallel
           call reads for one row and opens one file at a time.
        2. Divide the records of each training step into elements of
           `replica_batch` records, one element per replica.
        3. Number the elements. An element's number determines its epoch and the
           indices of its records.
        4. Parse the records; draw and select the objective's targets.
        5. Prefetch the batches. If a tf.data service is given, the service runs
           1 to 4.

        `data_pipeline.records.schema.BATCH` lists the features of the objective
        "permutation". Other objectives have other features. Shapes are static.
        Records that were built with `--frozen` give their stored permutations.

        Args:
            start_step: int, the first step to read.
            first_row: int, the first row to read of each global batch.
            num_rows: int, number of rows to read of each global batch. Default
                None: all rows from `first_row` on.
            replica_batch: int, b, number of rows of one element. Default None:
                `num_rows`.
            literal: bool, only for "permutation": whether to give `perm_mask`
                and `target_mapping` instead of `factorization_rank` and
                `target_positions`. Default False.
            num_parallel_calls: int, number of parallel readers. The batches do
                not depend on this number.

        Returns:
            tf.data.Dataset of dict of str to tensor.

        Raises:
            ValueError: if an argument is out of its range.
        """
        num_rows, replica_batch = checked_rows(
            self.batch_size, start_step, first_row, num_rows, replica_batch
        )
        self._check_literal(literal)
        elements_per_step = num_rows // replica_batch

        @without_autograph
        def parse(element, serialized):
            step = start_step + element // elements_per_step
            row = first_row + element % elements_per_step * replica_batch
            row += tf.range(replica_batch, dtype=tf.int64)
            batch = parse_records(serialized, self.manifest)
            return self._features(batch, *self._locate(step, row), literal)

        @without_autograph
        def steps(block):
            elements = tf.reshape(tf.transpose(block), [-1, replica_batch])
            return tf.data.Dataset.from_tensor_slices(elements)

        dataset = self._blocks(
            start_step, first_row, num_rows, num_parallel_calls
        ).flat_map(steps)
        dataset = dataset.enumerate().map(
            parse, num_parallel_calls=num_parallel_calls, deterministic=True
        )
        if self._service is not None:
            dataset = on_service(dataset, self._service)
        # `first_row` assigns rows to workers, so TensorFlow must not shard
        # elements.
        options = dataset_options(is_sharded=False)
        return dataset.prefetch(2).with_options(options)

    def sources(self, step: int) -> list[tuple[str, int]]:
        """Find the records of a step, one per row of the global batch.

        Args:
            step: int, from 0, as in `dataset`.

        Returns:
            list of tuple of str and int: the path of the shard, and the number
            of the record in the shard, from 0.
        """
        return self._records.sources(self._positions(step))

    def _positions(self, step):
        """Position of the record that each row reads at a step, int64 [B]."""
        epoch, step = divmod(step, self.steps_per_epoch)
        rows = tf.range(self.batch_size, dtype=tf.int64)
        first = self._first_position(tf.constant(epoch, tf.int64), rows)
        return first.numpy() + step

    def explain_data_loss(self, step: int = 0) -> None:
        """Look for a damaged record after a `DataLossError`.

        Args:
            step: int, the approximate step of the error. The shards of this
                step are checked first.

        Raises:
            FileNotFoundError: a shard is missing.
            ValueError: a record is damaged. The message names the file, number
                and byte offset of the first damaged record.
        """
        check_files(self.directory, self.manifest, self.split)
        left = self.steps_per_epoch - step % self.steps_per_epoch
        ahead = min(3 * _MOST_STEPS, left)
        likely = self._records.files(self._positions(step), ahead)
        bad = verify_records(self.directory, self.split, likely)
        if bad:
            more = f" (and {len(bad) - 1} more in it)" if len(bad) > 1 else ""
            raise ValueError(
                f"{bad[0]}{more}. Copy the file again from where the set was "
                "built, or go on without the damaged records by `skip_corrupt` "
                "(--skip-corrupt)."
            )

    def _check_literal(self, literal):
        if literal and not self.reader.takes_literal:
            raise ValueError(
                f"the objective {self.reader.name!r} has no literal form. "
                "Received: literal=True."
            )

    def _features(self, records, epoch, record_index, is_continuation, literal):
        manifest = self.manifest
        kept = ("token_ids", "segment_ids", "is_reversed", "is_next")
        if self._layout.class_first:
            records = class_first(records, self._layout.class_segment)
            # A BERT backbone has no memory and no input for the direction.
            manifest = dataclasses.replace(manifest, reuse_length=0)
            kept = tuple(name for name in kept if name != "is_reversed")
        if self.reader.reads_words:
            starts = tf.constant(self._starts_word)
            starts = tf.gather(starts, records["token_ids"])
            records = {**records, "starts_word": starts}
        draw = Draw(self.seed, epoch, record_index)
        return {
            **{name: records[name] for name in kept},
            "is_continuation": is_continuation,
            **self.reader.features(records, manifest, draw, literal),
        }

    def _blocks(self, start_step, first_row, num_rows, num_parallel_calls):
        """Read serialized records of many steps at once, as an endless dataset.

        An element is a string tensor [num_rows, s], the records of the rows
        for the next s steps of an epoch.
        """
        steps = self.steps_per_epoch
        at_once = _BLOCK_BYTES // (self.manifest.frame_bytes * num_rows)
        at_once = max(1, min(at_once, _MOST_STEPS, steps))
        blocks_per_epoch = -(-steps // at_once)
        first_epoch, first_step = divmod(start_step, steps)
        first_block = first_epoch * blocks_per_epoch + first_step // at_once

        @without_autograph
        def read(number):
            row = first_row + number % num_rows
            epoch = number // num_rows // blocks_per_epoch
            begin = number // num_rows % blocks_per_epoch * at_once
            end = tf.minimum(begin + at_once, steps)
            begin = tf.maximum(begin, start_step - epoch * steps)
            position = self._first_position(epoch, row) + begin
            return self._records.read(position, end - begin)

        if num_parallel_calls == tf.data.AUTOTUNE and is_remote(self.directory):
            num_parallel_calls = _BUCKET_CALLS
        numbers = tf.data.Dataset.range(
            first_block * num_rows, np.iinfo(np.int64).max
        )
        dataset = numbers.map(
            read, num_parallel_calls=num_parallel_calls, deterministic=True
        )
        return dataset.batch(num_rows, drop_remainder=True).prefetch(1)

    def _locate(self, step, row):
        """Find the records that the given rows read at a step.

        Returns:
            epoch: tensor, the epoch of the step.
            index: int64 tensor, index of each record in the split.
            is_continuation: bool tensor, True for a record that continues the
                text of the record that the same row read one step before.
        """
        epoch = step // self.steps_per_epoch
        begin = self._first_position(epoch, row)
        position = begin + step % self.steps_per_epoch
        index, is_first = self._records.locate(position)
        starts = is_first | tf.equal(position, begin)
        return epoch, index, tf.logical_not(starts)

    def _first_position(self, epoch, row):
        """Position of the first record of a row in an epoch.

        A position is the index of a record among the split's readable records.
        """
        start = self._epoch_offset(epoch) + row * self.steps_per_epoch
        return start % self.num_records

    def _epoch_offset(self, epoch):
        """Offset of an epoch, offset(e) in the docstring of PretrainingData."""
        drawn = tf.cast(hash_words(self.seed, epoch), tf.int64)
        return tf.where(epoch == 0, tf.zeros_like(drawn), drawn) % (
            self.num_records
        )
