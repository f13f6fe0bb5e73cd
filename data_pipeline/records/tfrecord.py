"""TFRecord files of tf.train.Example records that all have the same size.

All records of a set have the same size, so a shard is a matrix of bytes. NumPy
writes and checks shards without TensorFlow.

The checksums detect every flipped byte, but no missing or exchanged records.
The manifest of the set therefore stores the checksums of each shard's first and
last record.

Shapes: n records, L bytes of a record, F = L + 16 bytes of a frame. A frame
consists of four fields: the length of the record (8 bytes), the checksum of the
length (4), the record, and the checksum of the record (4).

Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/example.
"""

import typing

import google_crc32c
import numpy as np

from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_range

FRAME_OVERHEAD = 16
_HEADER = 12
_MASK_DELTA = np.uint32(0xA282EAD8)
_SCAN_BYTES = 1 << 25
_FRAME_BYTES = 1 << 25
OTHER_FILE = "another file than was built"


class BadRecord(typing.NamedTuple):
    """Damaged record, or an exchanged shard.

    An exchanged shard is not the file that was built. For an exchanged shard,
    `record` is None.
    """

    file: str
    record: int | None
    offset: int
    reason: str

    def __str__(self):
        if self.record is None:
            return f"{self.file}: {self.reason}"
        return (
            f"{self.file}: record {self.record} at byte offset {self.offset}: "
            f"{self.reason}"
        )


def example_template(features):
    """Serialize a tf.train.Example with values of fixed size, filled with 0.

    Keys are sorted, as in `SerializeToString(deterministic=True)`.

    Args:
        features: dict of feature names to int, the number of bytes of the
            feature's value.

    Returns:
        tuple of the serialized Example (uint8 array [L]) and a dict of feature
        names to slices, the places of the features' values in this array.
    """
    body, ends = b"", {}
    for name in sorted(features):
        value = bytes(features[name])
        # Field numbers: Feature.bytes_list = 1, BytesList.value = 1.
        feature = message_field(1, message_field(1, value))
        # Features.feature is a map. Field numbers: key = 1, value = 2.
        entry = message_field(1, name.encode()) + message_field(2, feature)
        body += message_field(1, entry)
        ends[name] = len(body)
    example = message_field(1, body)
    shift = len(example) - len(body)
    # The value is the end of an entry.
    slices = {
        name: slice(end + shift - features[name], end + shift)
        for name, end in ends.items()
    }
    return np.frombuffer(example, np.uint8), slices


def frame_records(values, features):
    """Serialize records from the bytes of features, and add frames.

    Args:
        values: dict of feature names to uint8 arrays [n, bytes of the feature].
        features: dict, see `example_template`.

    Returns:
        uint8 array [n, F], the bytes of a TFRecord file.
    """
    template, slices = example_template(features)
    num_records = len(next(iter(values.values())))
    length = len(template)
    frames = np.empty((num_records, length + FRAME_OVERHEAD), np.uint8)
    frames[:, :_HEADER] = _header(length)
    records = frames[:, _HEADER : _HEADER + length]
    records[:] = template
    for name, columns in slices.items():
        records[:, columns] = values[name]
    checksums = masked_crc32c(records).astype("<u4")
    frames[:, _HEADER + length :] = checksums[:, None].view(np.uint8)
    return frames


def encode_records(values, stored):
    """Serialize records from arrays of features, and add frames.

    Args:
        values: dict of feature names to arrays [n, ...] with the shapes in
            `stored`.
        stored: dict of feature names to StoredFeature.

    Returns:
        uint8 array [n, frame bytes].
    """
    encoded = {}
    for name, feature in stored.items():
        value = np.asarray(values[name]).reshape(-1, feature.num_values)
        if feature.packed:
            encoded[name] = np.packbits(value.astype(bool), axis=1)
        else:
            dtype = np.dtype(feature.dtype).newbyteorder("<")
            encoded[name] = np.ascontiguousarray(value, dtype).view(np.uint8)
    return frame_records(encoded, _sizes(stored))


def find_bad_frames(frames):
    """Find frames with a wrong length or checksum.

    Args:
        frames: uint8 array [n, F].

    Returns:
        bool array [n], True = damaged.
    """
    length = frames.shape[1] - FRAME_OVERHEAD
    bad = (frames[:, :_HEADER] != _header(length)).any(axis=1)
    checksums = masked_crc32c(frames[:, _HEADER : _HEADER + length])
    stored = np.ascontiguousarray(frames[:, _HEADER + length :]).view("<u4")
    return bad | (checksums != stored[:, 0])


def find_bad_records(path, num_records, frame_bytes, digest=None):
    """Find the damaged records of a file.

    Records have a fixed size, so the scan continues after a damaged record.

    Args:
        path: str.
        num_records: int, the expected number of records.
        frame_bytes: int, F.
        digest: hashlib object to update with all bytes of the file, or None.

    Returns:
        list of BadRecord, in order.
    """
    bad, record = [], 0
    at_once = max(1, _SCAN_BYTES // frame_bytes)
    with as_path(path).open("rb") as file:
        while record < num_records:
            block = file.read(at_once * frame_bytes)
            if digest:
                digest.update(block)
            count = min(len(block) // frame_bytes, num_records - record)
            frames = np.frombuffer(block, np.uint8, count * frame_bytes)
            damaged = find_bad_frames(frames.reshape(-1, frame_bytes))
            for index in np.flatnonzero(damaged).tolist():
                bad.append(_bad(path, record + index, frame_bytes))
            record += count
            if count < at_once:
                break
        while digest and (block := file.read(_SCAN_BYTES)):
            digest.update(block)
    for number in range(record, num_records):
        bad.append(_bad(path, number, frame_bytes, "cut off"))
    return bad


def read_checksums(path, records, frame_bytes):
    """Read the checksums of some records of a file.

    Args:
        path: str.
        records: iterable of int, numbers of the records in the file.
        frame_bytes: int, F.

    Returns:
        list with one item per record: the checksum (int), or a BadRecord if the
        record is damaged or truncated.
    """
    checksums = []
    with as_path(path).open("rb") as file:
        for record in records:
            file.seek(record * frame_bytes)
            frame = np.frombuffer(file.read(frame_bytes), np.uint8)
            if len(frame) < frame_bytes:
                checksums.append(_bad(path, record, frame_bytes, "cut off"))
            elif find_bad_frames(frame[None])[0]:
                checksums.append(_bad(path, record, frame_bytes))
            else:
                checksums.append(stored_checksum(frame))
    return checksums


def read_record(path, record, frame_bytes):
    """Read one record of a file, local or in a bucket.

    Args:
        path: str.
        record: int, number of the record in the file.
        frame_bytes: int, F.

    Returns:
        bytes of the record, or BadRecord if the record is damaged or truncated.
    """
    begin = record * frame_bytes
    frame = read_range(path, begin, begin + frame_bytes)
    if len(frame) < frame_bytes:
        return _bad(path, record, frame_bytes, "cut off")
    if find_bad_frames(np.frombuffer(frame, np.uint8)[None])[0]:
        return _bad(path, record, frame_bytes)
    return frame[_HEADER : _HEADER + frame_bytes - FRAME_OVERHEAD]


def find_bad_ends(path, shard, frame_bytes):
    """Compare the first and the last record of a shard with the manifest.

    Args:
        path: str.
        shard: manifest.Shard.
        frame_bytes: int, F.

    Returns:
        list of BadRecord. The field `record` is None if the record is intact
        but its checksum differs from the manifest's checksum.
    """
    expected = (shard.first_crc32c, shard.last_crc32c)
    checksums = read_checksums(path, (0, shard.records - 1), frame_bytes)
    other = BadRecord(path, None, 0, OTHER_FILE)
    return [
        x if isinstance(x, BadRecord) else other
        for x, checksum in zip(checksums, expected, strict=True)
        if x != checksum
    ]


def stored_checksum(frame):
    """Read the checksum at the end of a record's frame, int.

    Args:
        frame: uint8 array [F].
    """
    return int.from_bytes(frame[-4:].tobytes(), "little")


def _bad(path, record, frame_bytes, reason="damaged bytes"):
    return BadRecord(path, record, record * frame_bytes, reason)


def example_size(features):
    """Length in bytes of the Example from `example_template`, int.

    Args:
        features: dict, see `example_template`.
    """
    entries = (
        _field_size(len(name.encode()))
        + _field_size(_field_size(_field_size(n)))
        for name, n in features.items()
    )
    return _field_size(sum(map(_field_size, entries)))


def record_bytes(stored):
    """Number of bytes of a record without its frame, int."""
    return example_size(_sizes(stored))


def records_at_once(stored):
    """Number of records to serialize at once in limited memory, int."""
    return max(1, _FRAME_BYTES // record_bytes(stored))


def _sizes(stored):
    return {name: feature.num_bytes for name, feature in stored.items()}


def masked_crc32c(rows):
    """Compute the CRC-32C of each row, masked as in TFRecord files.

    Args:
        rows: uint8 array [n, L].

    Returns:
        uint32 array [n].
    """
    rows = np.ascontiguousarray(rows)
    crc = np.fromiter(map(google_crc32c.value, rows), np.uint32, len(rows))
    return ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + _MASK_DELTA


def _header(length):
    size = np.array([length], "<u8").view(np.uint8)
    checksum = masked_crc32c(size[None]).astype("<u4").view(np.uint8)
    return np.concatenate([size, checksum])


def message_field(number, payload):
    """Serialize a length-delimited field of a protocol buffer, bytes.

    Args:
        number: int, number of the field in its message, from 1 to 15.
        payload: bytes, value of the field.
    """
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _field_size(payload_bytes):
    return 1 + len(_varint(payload_bytes)) + payload_bytes


def _varint(value):
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
