"""TFRecord shards and their manifest, written together or not at all.

A set is a directory:

    manifest.json             settings of the records, size of every shard
    spiece.model              the tokenizer of the records
    train-00000.tfrecord      ... forward shards first, then backward ones
    validation-00000.tfrecord

The checksums of TFRecord find every flipped byte, but not a shard that is
missing, another's or truncated between two records. The manifest does: it is
checked before the first record is read, and written last.
"""

import contextlib
import hashlib
import os
import re
import typing
import warnings

from data_pipeline.base.files import as_path
from data_pipeline.base.files import flush
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import is_unfinished
from data_pipeline.base.files import read_json_object
from data_pipeline.base.files import remove
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import write_json
from data_pipeline.base.files import written_whole
from data_pipeline.base.locking import CannotLock
from data_pipeline.base.locking import locked
from data_pipeline.records import tfrecord
from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import all_shards
from data_pipeline.records.manifest import manifest_bytes
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import shard_path
from data_pipeline.records.manifest import shard_size
from data_pipeline.records.tfrecord import BadRecord

TOKENIZER = "spiece.model"
PLAN = "build.json"
_BUILDING = ".building"
# In the temporary directory: the locked file, the owner of the lock, and the
# final names of the files of a complete set while they are being renamed.
_LOCK, _OWNER, _PLACING = "lock", "owner", "placing.json"
_SHARD = re.compile(r"(train|validation)-\d{5,}\.tfrecord")


class WrittenShard(typing.NamedTuple):
    """Size and checksums of a file of records.

    `sha256` is of the file; `first_crc32c` and `last_crc32c` are the checksums
    in the frames of its first and last record.
    """

    records: int
    bytes: int
    sha256: str
    first_crc32c: int
    last_crc32c: int


def write_shard(path, chunks):
    """Write framed records to a file, flushed to the disk; see `written_whole`.

    Args:
        path: str.
        chunks: iterable of uint8 array [n, frame bytes], with at least one
            record.

    Returns:
        WrittenShard.

    Raises:
        OSError: with `path` as its file name, for example a full disk.
    """
    digest, num_records, num_bytes = hashlib.sha256(), 0, 0
    first = last = None
    with written_whole(path) as temporary, temporary.open("wb") as file:
        for frames in filter(len, chunks):
            file.write(frames.data)
            digest.update(frames.data)
            num_records += len(frames)
            num_bytes += frames.nbytes
            last = tfrecord.stored_checksum(frames[-1])
            first = (
                tfrecord.stored_checksum(frames[0]) if first is None else first
            )
    return WrittenShard(num_records, num_bytes, digest.hexdigest(), first, last)


class RecordSetWriter:
    """Context manager that writes a set as a whole, or nothing.

    Shards are written to the temporary paths of `temporary_path`; `finish`
    renames them and writes the manifest last. Leaving without `finish` removes
    all files, or keeps the temporary files for a later writer if `keep` is
    True. A lock keeps out other writers, also on other machines that share the
    disk, and ends with the process that holds it.

    Args:
        directory: path; nothing can be locked in a bucket, which is warned of.
        model_proto: bytes of the tokenizer's model.
        overwrite: bool, whether to replace a complete set, as the last step,
            and other files that have the names of a set.
        is_kept: function of the directory of temporary files that another
            writer left, which returns whether to keep them; None removes
            them.

    Attributes:
        keep: bool, initially False.

    Raises:
        FileExistsError: the directory holds a set already, or files that have
            the names of a set.
        RuntimeError: another process is writing a set to the directory, or
            its disk knows no locks.
    """

    def __init__(self, directory, model_proto, overwrite=False, is_kept=None):
        self.directory = as_path(directory)
        self.keep = False
        self._model_proto = model_proto
        self._is_kept = is_kept or (lambda building: False)
        self._overwrite = overwrite
        self._building = self.directory / _BUILDING
        self._held = contextlib.ExitStack()  # of the lock
        self._placed = []
        self._created = self._finished = False

    def __enter__(self):
        self._created = not self.directory.is_dir()
        try:
            self._claim()
            self._check_names()
            is_kept = self._is_kept(os.fspath(self._building))
        except BaseException:
            self._leave()
            raise
        self._clear(lambda path: is_kept and not is_unfinished(path))
        return self

    def __exit__(self, kind, error, traceback):
        for path, temporary in reversed(self._placed):
            path.replace(temporary)
        if self._finished or not self.keep:
            self._clear(lambda path: False)
            if is_remote(self.directory):
                remove(self._building)
        self._leave()

    def temporary_path(self, name):
        """Path of a file until the set is complete, str."""
        return os.fspath(self._building / name)

    def finish(self, manifest, temporary_names):
        """Rename the files of the set and write the manifest.

        Args:
            manifest: Manifest.
            temporary_names: dict of the name of each file of the set to its
                temporary name.
        """
        write_bytes(self._building / TOKENIZER, self._model_proto)
        write_bytes(self._building / MANIFEST, manifest_bytes(manifest))
        names = {**temporary_names, TOKENIZER: TOKENIZER}
        old_files = self._old_shards() - set(names)
        write_json(
            self._building / _PLACING, {**names, **dict.fromkeys(old_files)}
        )
        remove(self.directory / MANIFEST)
        _flush_directory(self.directory)
        for file, temporary in names.items():
            path = self.directory / file
            (self._building / temporary).replace(path)
            self._placed.append((path, self._building / temporary))
        for file in old_files:
            remove(self.directory / file)
        _flush_directory(self.directory)
        (self._building / MANIFEST).replace(self.directory / MANIFEST)
        self._placed, self._finished = [], True
        _flush_directory(self.directory)

    def _clear(self, is_kept):
        """Remove temporary files, but not the lock, which is still held."""
        for path in list(self._building.iterdir()):
            is_lock = path.name.rstrip("/") in (_LOCK, _OWNER)
            if not is_lock and not is_kept(path):
                remove(path)

    def _claim(self):
        """Make the temporary directory, and hold its lock."""
        if not is_remote(self._building) and self._building.is_symlink():
            raise FileExistsError(
                f"{self._building} is a link, not a directory. Remove it."
            )
        if is_remote(self.directory):
            self._building.mkdir(parents=True, exist_ok=True)
            warnings.warn(
                f"{self.directory} lies in a bucket, where nothing can be "
                "locked: see to it that no other build writes there.",
                stacklevel=3,
            )
            return
        lock = locked(
            self._building / _LOCK,
            self._building / _OWNER,
            f"is writing records to {self.directory}. Wait for it, or stop it.",
        )
        try:
            self._held.enter_context(lock)
        except CannotLock as error:
            raise RuntimeError(
                f"{self.directory} lies on a disk where files cannot be locked "
                f"({error}). Build on another disk, and copy the set."
            ) from error

    def _leave(self):
        """Give up the lock, and the directory if it is empty as before."""
        if is_remote(self.directory):
            return
        self._held.close()
        with contextlib.suppress(OSError):  # not empty, or not there
            self._building.rmdir()
        if self._created:
            with contextlib.suppress(OSError):
                self.directory.rmdir()

    def _check_names(self):
        """Refuse to replace files, unless it is asked for."""
        is_complete = (self.directory / MANIFEST).exists()
        if not is_complete:
            self._take_back()
        if self._overwrite:
            return
        if is_complete:
            raise FileExistsError(
                f"{self.directory} holds a set of records already. Choose "
                "another `output`, or give `overwrite` (--overwrite)."
            )
        for path in sorted(self.directory.iterdir()):
            if not _is_of_a_set(path.name):
                continue
            if path.name != TOKENIZER or path.read_bytes() != self._model_proto:
                raise FileExistsError(
                    f"{self.directory} holds a file {path.name} that belongs "
                    "to no complete set of records, and would be replaced. "
                    "Choose another `output`, or give `overwrite` "
                    "(--overwrite)."
                )

    def _take_back(self):
        """Move back the files of a set whose writer was killed at the end.

        Files that were there before the set have no temporary name, and are
        removed.
        """
        try:
            names = read_json_object(self._building / _PLACING)
        except (FileNotFoundError, ValueError):
            return
        for file, temporary in names.items():
            path = self.directory / file
            if temporary is None and _is_of_a_set(file):
                remove(path)
                continue
            # A list from a stranger may name any file.
            temporary = self._building / os.path.basename(str(temporary))
            if _is_of_a_set(file) and not temporary.exists() and path.exists():
                path.replace(temporary)
        remove(self._building / _PLACING)

    def _old_shards(self):
        """Names of the shards of the set that will be replaced, a set."""
        names = set()
        # The shards of a broken manifest are unknown.
        with contextlib.suppress(FileNotFoundError, ValueError):
            old = read_manifest(self.directory, check_shards=False)
            names = {shard.file for shard in all_shards(old)}
        # A manifest from a stranger may name any file.
        return set(filter(_SHARD.fullmatch, names))


def remove_leftovers(directory):
    """Remove what a writer left beside a set that it had completed.

    Args:
        directory: path.
    """
    building = as_path(directory) / _BUILDING
    # The manifest is renamed last.
    if not (building / _PLACING).exists() or (building / MANIFEST).exists():
        return
    leftover = RecordSetWriter(directory, b"", True)
    with contextlib.suppress(RuntimeError), leftover:  # another is writing
        pass


def _is_of_a_set(name):
    return name in (PLAN, TOKENIZER) or bool(_SHARD.fullmatch(name))


def verify_records(directory, split=None, likely=None):
    """Check the checksums of every record.

    Args:
        directory: path.
        split: str, or None for all.
        likely: set of str, the paths of shards to check first. Then none
            behind the first damaged shard is checked, and no SHA-256.

    Returns:
        list of BadRecord, in order, empty if nothing is damaged. `record` is
        None of a shard that is none of this set, whatever else is damaged.

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
        bad += _verify_shard(path, shard, manifest.frame_bytes, likely is None)
        if bad and likely is not None:
            break
    return bad


def _verify_shard(path, shard, frame_bytes, with_digest):
    whole = shard_size(path) // frame_bytes  # names a missing one
    digest = hashlib.sha256() if with_digest else None
    bad = tfrecord.find_bad_records(path, shard.records, frame_bytes, digest)
    is_other = digest and not bad and digest.hexdigest() != shard.sha256
    # After a lost record the next ones move up: the last one is too early.
    is_shifted = 0 < whole < shard.records and tfrecord.read_checksums(
        path, [whole - 1], frame_bytes
    ) == [shard.last_crc32c]
    ends = tfrecord.find_bad_ends(path, shard, frame_bytes)
    if is_other or is_shifted or any(x.record is None for x in ends):
        return [BadRecord(path, None, 0, tfrecord.OTHER_FILE)]
    return bad


def _flush_directory(path):
    if not is_remote(path):
        flush(path)
