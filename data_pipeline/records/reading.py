"""Reading of shards and parsing of records, as TensorFlow operations.

Shapes: b records, T tokens of the sequence, P targets.
"""

import hashlib
import itertools
import re
import socket
import time

import numpy as np
import tensorflow as tf

from data_pipeline.base.files import as_path
from data_pipeline.records.manifest import shard_path
from data_pipeline.records.writer import TOKENIZER
from data_pipeline.tokenization.tokenizer import Tokenizer

# No function here needs AutoGraph, which would triple the time to build a
# dataset.
without_autograph = tf.autograph.experimental.do_not_convert

_BUFFER_BYTES = 1 << 18
_SERVICE_SECONDS = 10


class ReadableRecords:
    """Reader that finds the records of several shards by position.

    Positions count the records that are not skipped. Position `num_records` is
    the first record again, so that a range near the end continues at the
    beginning.

    Args:
        directory: path.
        shards: sequence of Shard.
        skipped: list of BadRecord from `verify_records`, the records to skip.
        frame_bytes: int, number of bytes of a record with its TFRecord frame.

    Attributes:
        num_records: int, N, number of readable records.
    """

    def __init__(self, directory, shards, skipped, frame_bytes):
        ranges = _good_ranges(directory, shards, skipped)
        files, first, index, count = (
            zip(*ranges, strict=True) if ranges else [()] * 4
        )
        self.num_records = sum(count)
        self._frame_bytes = frame_bytes
        self._files = np.array(files, dtype=object)
        # Arrays with each range twice: the range's first record in the file and
        # in the split, and the range's begin and end as positions.
        self._first, self._index, count = (
            np.tile(np.array(values, np.int64), 2)
            for values in (first, index, count)
        )
        self._end = np.cumsum(count)
        self._begin = self._end - count

    def locate(self, position):
        """Find the record at each position, as an index in the split.

        Args:
            position: int64 tensor.

        Returns:
            tuple of the indices (int64 tensor) and a bool tensor, which is True
            for a record that begins a part of the text or follows a skipped
            record.
        """
        number = tf.searchsorted(self._end, position, side="right")
        begin = tf.gather(self._begin, number)
        index = tf.gather(self._index, number) + position - begin
        return index, tf.equal(position, begin)

    def sources(self, position):
        """Find each position's record: its shard, and its number in the shard.

        Args:
            position: int64 array [n].

        Returns:
            list of tuple of str and int: the path of the shard, and the number
            of the record in the shard.
        """
        numbers = np.searchsorted(self._end, position, "right")
        records = self._first[numbers] + position - self._begin[numbers]
        files = self._files[numbers % len(self._files)]
        return list(zip(files.tolist(), records.tolist(), strict=True))

    def files(self, position, count):
        """Find the shards that contain given ranges of consecutive records.

        Args:
            position: int64 array [n], position of the first record of each
                range.
            count: int, number of records of each range.

        Returns:
            set of str, paths of shards.
        """
        last = np.minimum(position + count, self._end[-1]) - 1
        numbers = np.searchsorted(self._end, [position, last], "right")
        return {
            self._files[number % len(self._files)]
            for first, last in numbers.T
            for number in range(first, last + 1)
        }

    def read(self, position, count):
        """Read consecutive records, without leaving a file open.

        Args:
            position: int64 scalar tensor.
            count: int64 scalar tensor, at most N.

        Returns:
            string tensor [count], the serialized records.
        """
        end = position + count
        files = tf.constant(self._files)
        first, begins, ends = map(
            tf.constant, (self._first, self._begin, self._end)
        )

        @without_autograph
        def read_range(number):
            low = tf.maximum(position, begins[number])
            size = tf.minimum(end, ends[number]) - low
            record = first[number] + low - begins[number]
            return _records_from(
                files[number % len(self._files)],
                record * self._frame_bytes,
                tf.minimum(size * self._frame_bytes, _BUFFER_BYTES),
            ).take(size)

        ranges = tf.data.Dataset.range(
            _search(ends, position, "right"), _search(ends, end, "left") + 1
        )
        records = ranges.flat_map(read_range)
        return records.batch(count, drop_remainder=True).get_single_element()


def _records_from(file, byte_offset, buffer_size):
    """Make a Dataset of a file's serialized records from a byte offset on."""
    # The op has an argument for the offset, but `TFRecordDataset` does not.
    variant = tf.raw_ops.TFRecordDatasetV2(
        filenames=tf.reshape(file, [1]),
        compression_type="",
        buffer_size=buffer_size,
        byte_offsets=tf.reshape(byte_offset, [1]),
    )
    return tf.data.experimental.from_variant(
        variant, tf.TensorSpec([], tf.string)
    )


def _search(ends, position, side):
    return tf.searchsorted(ends, position[None], side, tf.int64)[0]


def _good_ranges(directory, shards, skipped):
    """List the ranges of records between the skipped records.

    Returns:
        list of tuple, one per range: the file, the range's first record (its
        number in the file, then its index in the split), and the number of
        records in the range. Each part of the text begins a new range.
    """
    skipped_in = {
        file: [bad.record for bad in bads]
        for file, bads in itertools.groupby(skipped, lambda bad: bad.file)
    }
    ranges, index = [], 0
    for shard in shards:
        path = shard_path(directory, shard)
        begin = 0
        stops = [(record, record + 1) for record in skipped_in.get(path, ())]
        stops += [(start, start) for start in shard.starts]
        for stop, after in [*sorted(stops), (shard.records, None)]:
            if stop > begin:
                ranges.append((path, begin, index + begin, stop - begin))
            begin = after
        index += shard.records
    return ranges


def parse_records(serialized, manifest):
    """Parse a batch of records of a set.

    Args:
        serialized: string tensor [b].
        manifest: Manifest.

    Returns:
        dict: `token_ids` and `segment_ids` (int32 [b, T]), `is_target` (bool
        [b, T]), `is_reversed` and `is_next` (bool [b]). Records of the form
        "frozen" also have `perm_mask` (uint8 [b, T, T], 1 = may NOT attend) and
        `target_mapping` (uint8 [b, P, T]).
    """
    parsed = tf.io.parse_example(
        serialized,
        {
            name: tf.io.FixedLenFeature([], tf.string)
            for name in manifest.features
        },
    )
    values = {}
    for name, feature in manifest.features.items():
        value = tf.io.decode_raw(parsed[name], tf.as_dtype(feature.dtype))
        if feature.packed:
            value = _unpack_bits(
                tf.ensure_shape(value, [None, feature.num_bytes])
            )[:, : feature.num_values]
        values[name] = tf.reshape(
            tf.ensure_shape(value, [None, feature.num_values]),
            [tf.shape(value)[0], *feature.shape],
        )
        values[name].set_shape([serialized.shape[0], *feature.shape])
    return {
        **values,
        "token_ids": tf.cast(values["token_ids"], tf.int32),
        "segment_ids": tf.cast(values["segment_ids"], tf.int32),
        "is_target": tf.cast(values["is_target"], tf.bool),
        "is_reversed": tf.cast(values["is_reversed"][:, 0], tf.bool),
        "is_next": tf.cast(values["is_next"][:, 0], tf.bool),
    }


def class_first(records, class_segment):
    """Move the class token of records from the end to the front.

    Args:
        records: dict from `parse_records`.
        class_segment: int, segment id to give to the class token.

    Returns:
        dict of tensors.
    """
    moved = {
        name: tf.roll(records[name], 1, axis=1)
        for name in ("token_ids", "segment_ids", "is_target")
    }
    segments = moved["segment_ids"]
    first = tf.fill(tf.shape(segments[:, :1]), class_segment)
    moved["segment_ids"] = tf.concat([first, segments[:, 1:]], axis=1)
    return {**records, **moved}


def tokenizer_of_records(directory, manifest):
    """Read the tokenizer that a set of records was built with.

    Args:
        directory: path of the records.
        manifest: Manifest.

    Returns:
        Tokenizer.

    Raises:
        FileNotFoundError: the tokenizer's file is not beside the records.
        ValueError: the file is not the tokenizer of the records.
    """
    file = as_path(directory) / TOKENIZER
    settings = manifest.tokenizer
    if not file.is_file():
        raise FileNotFoundError(
            f"{file}, the tokenizer of the records, is missing. Copy it from "
            "where they were built."
        )
    model_proto = file.read_bytes()
    if hashlib.sha256(model_proto).hexdigest() != settings["sha256"]:
        raise ValueError(
            f"{file} is not the tokenizer that the records were built with. "
            "Copy it again from where they were built."
        )
    return Tokenizer.from_model_proto(model_proto, settings["lowercase"])


def checked_rows(batch_size, start_step, first_row, num_rows, replica_batch):
    """Check which rows of a batch to read, and fill in the defaults.

    Args:
        batch_size: int, B.
        start_step, first_row, num_rows, replica_batch: int, see
            `PretrainingData.dataset`. `num_rows` and `replica_batch` may be
            None.

    Returns:
        tuple of int, `num_rows` (default: all rows from `first_row` on) and
        `replica_batch` (default: `num_rows`).

    Raises:
        ValueError: the rows are not in the global batch, or an argument is out
            of its range.
    """
    num_rows = batch_size - first_row if num_rows is None else num_rows
    replica_batch = num_rows if replica_batch is None else replica_batch
    if not 0 <= first_row < first_row + num_rows <= batch_size:
        raise ValueError(
            "`first_row` and `num_rows` must lie in the global batch of "
            f"{batch_size} rows. Received: first_row={first_row}, "
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
    return num_rows, replica_batch


def check_service(address):
    """Check that a tf.data service listens at an address.

    Without this check, TensorFlow would wait for a missing server forever and
    print nothing.

    Args:
        address: str, "grpc://HOST:PORT".

    Raises:
        ValueError: the address has another form.
        ConnectionError: no server replies within ten seconds.
    """
    match = re.fullmatch(r"grpc://(\[[^\]]+\]|[^:/]+):(\d+)", address)
    if not match:
        raise ValueError(
            "`service` (--data-service) must be the address of a tf.data "
            f"service, as grpc://HOST:PORT. Received: service={address!r}."
        )
    host, port = match[1].strip("[]"), int(match[2])
    end = time.monotonic() + _SERVICE_SECONDS
    while True:
        try:
            socket.create_connection((host, port), _SERVICE_SECONDS).close()
        # The last two classes stand for a wrong port and a wrong name.
        except (OSError, OverflowError, UnicodeError) as error:
            if time.monotonic() < end and isinstance(error, OSError):
                time.sleep(0.2)  # the service may be starting
                continue
            raise ConnectionError(
                f"no tf.data service answers at {address}: {error}. Start its "
                "dispatcher and workers first."
            ) from error
        return


def on_service(dataset, address):
    """Let a worker of a tf.data service read a dataset.

    The service assigns each element of a pipeline's source dataset to one
    worker. Here the source dataset has a single element, so one worker reads
    the whole dataset in order. If several processes read different rows of the
    batches, each process has its own dataset. Different workers of the service
    may read these datasets.
    """
    source = tf.data.Dataset.from_tensors(0)
    return source.flat_map(without_autograph(lambda _: dataset)).apply(
        tf.data.experimental.service.distribute(
            tf.data.experimental.service.ShardingPolicy.DYNAMIC, address
        )
    )


def _unpack_bits(packed):
    """Unpack the bits of each row like `np.unpackbits`: [b, n] to [b, 8 n]."""
    shifts = tf.constant([7, 6, 5, 4, 3, 2, 1, 0], tf.uint8)
    bits = tf.bitwise.right_shift(packed[:, :, None], shifts)
    bits = tf.bitwise.bitwise_and(bits, tf.constant(1, tf.uint8))
    return tf.reshape(bits, [-1, 8 * packed.shape[1]])
