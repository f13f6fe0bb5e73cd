"""TFRecord shards and their manifest, written together or not at all.

A set is a directory:

    manifest.json             settings of the records, size of every shard
    spiece.model              the tokenizer of the records
    train-00000.tfrecord      ... forward shards first, then backward ones
    validation-00000.tfrecord

The checksums of TFRecord find every flipped byte, but not a shard that is
missing or truncated between two records. The manifest does: it is checked
before the first record is read, and written last.
"""

import hashlib
import os
import shutil
import typing

import numpy as np

from data_pipeline.records import tfrecord
from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import all_shards
from data_pipeline.records.manifest import manifest_bytes
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import shard_path
from data_pipeline.records.manifest import shard_size
from xlnet_tf.files import as_path
from xlnet_tf.files import is_unfinished
from xlnet_tf.files import write_bytes
from xlnet_tf.files import written_whole

TOKENIZER = "spiece.model"
_BUILDING = ".building"
_OWNER = "pid"
_SCAN_BYTES = 1 << 25
_FRAME_BYTES = 1 << 25


class BadRecord(typing.NamedTuple):
    """A damaged record, or with `record` None a file of other content."""

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
    """Serialize and frame records.

    Args:
        values: dict of name to array [n, ...] of the shape in `stored`.
        stored: dict of name to StoredFeature.

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
    """Write framed records to a file, flushed to the disk; see `written_whole`.

    Args:
        path: str.
        chunks: iterable of uint8 array [n, frame bytes].

    Returns:
        tuple of int number of records, int number of bytes and str SHA-256.

    Raises:
        OSError: with `path` as its file name, for example a full disk.
    """
    digest, num_records, num_bytes = hashlib.sha256(), 0, 0
    with written_whole(path) as temporary, temporary.open("wb") as file:
        for frames in chunks:
            file.write(frames.data)
            digest.update(frames.data)
            num_records += len(frames)
            num_bytes += frames.nbytes
    return num_records, num_bytes, digest.hexdigest()


class RecordSetWriter:
    """Context manager that writes a set as a whole, or nothing.

    Shards are written to the temporary paths of `temporary_path`; `finish`
    renames them and writes the manifest last. Leaving without `finish` removes
    all files, or keeps the temporary files for a later writer if `keep` is
    True.

    Args:
        directory: str or path.
        overwrite: bool, whether to replace a complete set, as the last step.
        is_kept: function of the directory of temporary files that another
            writer left, which returns whether to keep them; None removes
            them.

    Attributes:
        keep: bool, initially False.

    Raises:
        FileExistsError: the directory holds a set already.
        RuntimeError: another process is writing a set to the directory.
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
        """Path of a file until the set is complete, str."""
        return os.path.join(self._building, name)

    def finish(self, manifest, temporary_names, model_proto):
        """Rename the files of the set and write the manifest.

        Args:
            manifest: Manifest.
            temporary_names: dict of the name of each file of the set to its
                temporary name.
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
        except ValueError:  # broken, so its shards are unknown
            files = set()
        os.remove(path)
        _flush_directory(self.directory)
        return files


def verify_records(directory, split=None, likely=None):
    """Check the checksums of every record.

    Args:
        directory: path.
        split: str, or None for all.
        likely: set of str, the paths of shards to check first. Then none
            behind the first damaged shard is checked, and no SHA-256.

    Returns:
        list of BadRecord, in order, empty if nothing is damaged. As records
        have a fixed size, the scan continues behind a damaged one.

    Raises:
        FileNotFoundError: the manifest or a shard is missing.
        ValueError: the manifest is broken.
    """
    manifest = read_manifest(directory, check_shards=False)
    shards = [
        (shard_path(directory, x), x) for x in all_shards(manifest, split)
    ]
    if likely is not None:
        shards.sort(key=lambda shard: shard[0] not in likely)
    bad = []
    for path, shard in shards:
        digest = hashlib.sha256() if likely is None else None
        bad += _verify_shard(path, shard, manifest.frame_bytes, digest)
        if bad and likely is not None:
            break
    return bad


def _verify_shard(path, shard, frame_bytes, digest=None):
    shard_size(path)  # names a missing one
    bad, record = [], 0
    at_once = max(1, _SCAN_BYTES // frame_bytes)
    with as_path(path).open("rb") as file:
        while record < shard.records:
            block = file.read(at_once * frame_bytes)
            if digest:
                digest.update(block)
            count = len(block) // frame_bytes
            frames = np.frombuffer(block, np.uint8, count * frame_bytes)
            damaged = tfrecord.find_bad_frames(frames.reshape(-1, frame_bytes))
            for index in np.flatnonzero(damaged).tolist():
                number = record + index
                offset = number * frame_bytes
                bad.append(BadRecord(path, number, offset, "damaged bytes"))
            record += count
            if count < at_once:
                break
        if digest:
            digest.update(file.read())
    for number in range(record, shard.records):
        bad.append(BadRecord(path, number, number * frame_bytes, "cut off"))
    if not bad and digest and digest.hexdigest() != shard.sha256:
        bad.append(BadRecord(path, None, 0, "another file than was built"))
    return bad


def _claim(building, is_kept):
    """Create the temporary directory and write this process's id to it."""
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
        if is_unfinished(name):
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


def record_bytes(stored):
    """Bytes of a record without its frame, int."""
    return tfrecord.example_size(_sizes(stored))


def records_at_once(stored):
    """Number of records to frame at a time, for bounded memory, int."""
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
