"""TFRecord framing and tf.train.Example, for records of one size.

All records of a set have the same size, so a shard is a matrix of bytes, which
NumPy writes and checks without TensorFlow.

Shapes: n records, L bytes of a record, F = L + 16 bytes of its frame: length
(8), its checksum (4), the record, its checksum (4).

Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/example.
"""

import google_crc32c
import numpy as np

FRAME_OVERHEAD = 16
_HEADER = 12
_MASK_DELTA = np.uint32(0xA282EAD8)


def example_template(features):
    """A serialized tf.train.Example whose features are bytes of fixed length.

    Keys are sorted, as by `SerializeToString(deterministic=True)`.

    Args:
        features: dict of str to int, the bytes of each feature's one value.

    Returns:
        tuple of the serialized Example with zeros for values, a uint8 array
        [L], and a dict of str to the slice of each value in it.
    """
    body, ends = b"", {}
    for name in sorted(features):
        value = bytes(features[name])
        # Feature.bytes_list = 1, BytesList.value = 1
        feature = _field(1, _field(1, value))
        # Features.feature is a map: key = 1, value = 2
        entry = _field(1, _field(1, name.encode()) + _field(2, feature))
        body += entry
        ends[name] = len(body)
    example = _field(1, body)
    shift = len(example) - len(body)
    # An entry ends with its value.
    slices = {
        name: slice(end + shift - features[name], end + shift)
        for name, end in ends.items()
    }
    return np.frombuffer(example, np.uint8), slices


def frame_records(values, features):
    """Serialize and frame records.

    Args:
        values: dict of str to uint8 array [n, bytes of the feature].
        features: dict of str to int, as in `example_template`.

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


def example_size(features):
    """Length of the serialized Example of `example_template`, int.

    Args:
        features: dict of str to int, as in `example_template`.
    """
    entries = (
        _field_size(len(name.encode()))
        + _field_size(_field_size(_field_size(n)))
        for name, n in features.items()
    )
    return _field_size(sum(map(_field_size, entries)))


def masked_crc32c(rows):
    """CRC-32C of each row, masked as in TFRecord files.

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


def _field(number, payload):
    """A length-delimited field of a protocol buffer."""
    return bytes([number << 3 | 2]) + _varint(len(payload)) + payload


def _field_size(payload_bytes):
    return 1 + len(_varint(payload_bytes)) + payload_bytes


def _varint(value):
    encoded = b""
    while value > 0x7F:
        encoded += bytes([value & 0x7F | 0x80])
        value >>= 7
    return encoded + bytes([value])
