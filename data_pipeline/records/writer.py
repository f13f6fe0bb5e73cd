"""TFRecord shards and their manifest: a set that is whole or absent.

A set is a directory:

    manifest.json             what the records are, and every shard's size
    spiece.model              the tokenizer that made them
    train-00000.tfrecord      ... forward shards first, then backward ones
    validation-00000.tfrecord

TFRecord's checksums find every flipped byte, but nothing in the files tells
that a shard is missing or cut at a record. The manifest does, so it is checked
before the first record is read, and written last.
"""

import hashlib
import json
import os
import shutil
import typing

import numpy as np

from data_pipeline.files import UNFINISHED
from data_pipeline.files import whole_file
from data_pipeline.files import write_bytes
from data_pipeline.records import tfrecord
from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import all_shards
from data_pipeline.records.manifest import check_exists
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import to_json

TOKENIZER = "spiece.model"
_BUILDING = ".building"
_OWNER = "pid"
_SCAN_BYTES = 1 << 25
_FRAME_BYTES = 1 << 25


class BadRecord(typing.NamedTuple):
    """A damaged place: `record` is None when the file as a whole differs."""

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


def encode_records(values, stored):
    """Serializes and frames records.

    Args:
        values: dict of name to array [n, ...] of the shape in `stored`.
        stored: dict of name to Stored.

    Returns:
        uint8 array [n, frame bytes].
    """
    encoded = {}
    for name, feature in stored.items():
        value = np.asarray(values[name]).reshape(-1, feature.num_values)
        if feature.packed:
            encoded[name] = np.packbits(value.astype(bool), axis=1)
        else:
            value = np.ascontiguousarray(value, "<" + _code(feature.dtype))
            encoded[name] = value.view(np.uint8)
    return tfrecord.frame_records(encoded, _sizes(stored))


def write_shard(path, chunks):
    """Writes framed records and makes sure that they are on the disk.

    The file gets its name when it is whole.

    Args:
        path: str.
        chunks: iterable of uint8 array [n, frame bytes].

    Returns:
        tuple of int records, int bytes and str SHA-256.

    Raises:
        OSError: with `path` as its file name, for example a full disk.
    """
    digest, num_records, num_bytes = hashlib.sha256(), 0, 0
    with whole_file(path) as file:
        for frames in chunks:
            file.write(frames.data)
            digest.update(frames.data)
            num_records += len(frames)
            num_bytes += frames.nbytes
    return num_records, num_bytes, digest.hexdigest()


class RecordSetWriter:
    """Makes a set appear at once, with its manifest, or not at all.

    Use as a context manager. Shards are written under the temporary names
    that `temporary_path` gives; `finish` gives them their own and writes the
    manifest last. Leaving without `finish` removes everything, or, where
    `keep` is set by then, leaves the temporary files for the next one.

    Args:
        directory: str or path.
        overwrite: bool, whether a complete set that is there is replaced, at
            the very end.
        is_kept: callable that is given the directory of the temporary files
            which another writer left, and says whether they stay; None
            removes them.

    Attributes:
        keep: bool, False at first.

    Raises:
        FileExistsError: the directory holds a set already.
        RuntimeError: another process is writing a set there.
    """

    def __init__(self, directory, overwrite=False, is_kept=None):
        self.directory = os.fspath(directory)
        self.keep = False
        self._is_kept = is_kept
        self._overwrite = overwrite
        self._building = os.path.join(self.directory, _BUILDING)
        self._placed = []
        self._created = self._finished = False

    def __enter__(self):
        manifest = os.path.join(self.directory, MANIFEST)
        if os.path.exists(manifest) and not self._overwrite:
            raise FileExistsError(
                f"{self.directory} holds a set of records already. Choose "
                "another `output`, or give `overwrite` (--overwrite)."
            )
        self._created = not os.path.isdir(self.directory)
        os.makedirs(self.directory, exist_ok=True)
        _claim(self._building, self._is_kept)
        return self

    def __exit__(self, kind, error, traceback):
        if self._finished or not self.keep:
            for path, _ in self._placed:
                if os.path.exists(path):
                    os.remove(path)
            shutil.rmtree(self._building, ignore_errors=True)
        else:
            for path, temporary in self._placed:
                if os.path.exists(path):
                    os.replace(path, temporary)
            os.remove(self.temporary_path(_OWNER))
        if self._created and not os.listdir(self.directory):
            os.rmdir(self.directory)

    def temporary_path(self, name):
        """str, where to write a shard until the set is complete."""
        return os.path.join(self._building, name)

    def finish(self, manifest, temporary_names, model_proto):
        """Gives the files their names and writes the manifest.

        Args:
            manifest: Manifest.
            temporary_names: dict of a shard's file, or of another file of the
                set, to its temporary name.
            model_proto: bytes of the tokenizer's model.
        """
        write_bytes(self.temporary_path(TOKENIZER), model_proto)
        write_bytes(self.temporary_path(MANIFEST), manifest_bytes(manifest))

        old_files = self._remove_old_manifest()
        names = {**temporary_names, TOKENIZER: TOKENIZER}
        for file, temporary in names.items():
            path = os.path.join(self.directory, file)
            self._placed.append((path, self.temporary_path(temporary)))
            os.replace(self.temporary_path(temporary), path)
        _flush_directory(self.directory)
        os.replace(
            self.temporary_path(MANIFEST),
            os.path.join(self.directory, MANIFEST),
        )
        self._placed, self._finished = [], True
        _flush_directory(self.directory)
        for file in old_files - set(names):
            path = os.path.join(self.directory, file)
            if os.path.exists(path):
                os.remove(path)

    def _remove_old_manifest(self):
        path = os.path.join(self.directory, MANIFEST)
        if not os.path.exists(path):
            return set()
        try:
            old = read_manifest(self.directory, check_shards=False)
            files = {s.file for shards in old.splits.values() for s in shards}
        except ValueError:  # broken, so nothing is known of its shards
            files = set()
        os.remove(path)
        _flush_directory(self.directory)
        return files


def verify_records(directory, split=None):
    """Reads every record and checks its checksums.

    Args:
        directory: str or path.
        split: str, or None for all.

    Returns:
        list of BadRecord, in order, empty when all is well. Every damaged
        record is named, as records have a fixed size and the scan goes on
        behind a bad one.

    Raises:
        FileNotFoundError: there is no manifest, or a shard is missing.
        ValueError: the manifest is broken.
    """
    directory = os.fspath(directory)
    manifest = read_manifest(directory, check_shards=False)
    bad = []
    for shard in all_shards(manifest, split):
        bad.extend(_verify_shard(directory, shard, manifest.frame_bytes))
    return bad


def _verify_shard(directory, shard, frame_bytes):
    path = os.path.join(directory, shard.file)
    check_exists(path)
    bad, digest, size, record = [], hashlib.sha256(), 0, 0
    at_once = max(1, _SCAN_BYTES // frame_bytes)
    with open(path, "rb") as file:
        while record < shard.records:
            block = file.read(at_once * frame_bytes)
            digest.update(block)
            size += len(block)
            whole = len(block) // frame_bytes
            frames = np.frombuffer(block, np.uint8, whole * frame_bytes)
            damaged = tfrecord.find_bad_frames(frames.reshape(-1, frame_bytes))
            for index in np.flatnonzero(damaged).tolist():
                place = record + index
                bad.append(
                    BadRecord(path, place, place * frame_bytes, "damaged bytes")
                )
            record += whole
            if whole < at_once:
                break
        rest = file.read()
    for place in range(record, shard.records):
        bad.append(BadRecord(path, place, place * frame_bytes, "cut off"))
    digest.update(rest)
    if not bad and digest.hexdigest() != shard.sha256:
        bad.append(BadRecord(path, None, 0, "another file than was built"))
    return bad


def _claim(building, is_kept):
    """Makes the temporary directory; what is not kept in it is removed."""
    owner = os.path.join(building, _OWNER)
    try:
        with open(owner, encoding="utf-8") as file:
            pid = int(file.read())
    except (OSError, ValueError):
        pid = None
    if pid is not None and pid != os.getpid() and _is_alive(pid):
        raise RuntimeError(
            f"process {pid} is writing records to {os.path.dirname(building)}. "
            f"Wait for it, or delete {building} if it is no such process."
        )
    if is_kept is None or not os.path.isdir(building) or not is_kept(building):
        shutil.rmtree(building, ignore_errors=True)
    os.makedirs(building, exist_ok=True)
    for name in os.listdir(building):
        if name.endswith(UNFINISHED):
            os.remove(os.path.join(building, name))
    with open(owner, "w", encoding="utf-8") as file:
        file.write(str(os.getpid()))


def _is_alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def manifest_bytes(manifest):
    """bytes, the content of a manifest's file."""
    return (json.dumps(to_json(manifest), indent=2) + "\n").encode()


def record_bytes(stored):
    """int, the size of a record with these features, without its frame."""
    return len(tfrecord.example_template(_sizes(stored))[0])


def records_at_once(stored):
    """int, how many records to frame at a time to bound memory."""
    return max(1, _FRAME_BYTES // record_bytes(stored))


def _sizes(stored):
    return {name: feature.num_bytes for name, feature in stored.items()}


def _code(dtype):
    return {"uint8": "u1", "uint16": "u2", "int32": "i4"}[dtype]


def _flush_directory(path):
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
