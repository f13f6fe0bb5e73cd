"""Writer of a set of records: atomic, and locked against other builds.

A set is a directory:

    manifest.json             settings of the records, size of every shard
    SHA256SUMS                SHA-256 of the other files
    build.json                the plan of the build
    spiece.model              the tokenizer of the records
    train-00000.tfrecord      ... forward shards first, then backward shards
    validation-00000.tfrecord

The checksums of TFRecord detect every flipped byte. They do not detect a
missing or exchanged shard, or a shard that is truncated between two records.
The sizes and checksums in the manifest reveal such shards. The shards are
compared with the manifest before the first record is read. A build writes to
temporary files and gives the manifest its final name last.
"""

import contextlib
import os
import re
import warnings

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.checksums import write_listing
from data_pipeline.base.files import as_path
from data_pipeline.base.files import flush
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import is_unfinished
from data_pipeline.base.files import read_json_object
from data_pipeline.base.files import remove
from data_pipeline.base.files import sha256_of
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import write_json
from data_pipeline.base.locking import CannotLock
from data_pipeline.base.locking import locked
from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import all_shards
from data_pipeline.records.manifest import manifest_bytes
from data_pipeline.records.part import count_parts
from data_pipeline.records.plan import PLAN

TOKENIZER = "spiece.model"
_BUILDING = ".building"
# Files in the temporary directory: the locked file, the name of the process
# with the lock, and a dict for the last renames. The dict maps the final name
# of each file to its temporary name, or to None for a shard of an earlier set.
_LOCK, _OWNER, _PLACING = "lock", "owner", "placing.json"
_SHARD = re.compile(r"(train|validation)-\d{5,}\.tfrecord")


class RecordSetWriter:
    """Context manager to build a set in a directory, one process at a time.

    Files are written to the temporary directory `building`, and `finish` moves
    them to their final names. If `finish` is not called, only finished parts
    (see `records.build`) stay, and a later writer continues with them. A lock
    excludes other writers, also on other machines that share the disk. The
    system releases the lock when the process ends.

    Args:
        directory: path. For a bucket, a warning says that it cannot be locked.
        model_proto: bytes, the SentencePiece model of the tokenizer.
        overwrite: bool, whether to replace a complete set and other files that
            are named like files of a set. Files are replaced in the last step.
            Default False.

    Attributes:
        building: path of the temporary directory.

    Raises:
        FileExistsError: the directory already contains a set, or files that are
            named like files of a set.
        RuntimeError: another process is writing a set to the directory, or the
            disk does not support locks.
    """

    def __init__(self, directory, model_proto, overwrite=False):
        self.directory = as_path(directory)
        self.building = self.directory / _BUILDING
        self._model_proto = model_proto
        self._overwrite = overwrite
        self._held = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as held:
            if not self.directory.is_dir():
                held.callback(_remove_if_empty, self.directory)
            held.callback(_remove_if_empty, self.building)
            self._claim(held)
            held.callback(self._clear_unfinished)
            self._place()
            if not self._overwrite:
                self._check_names()
            self._held = held.pop_all()
        return self

    def __exit__(self, kind, error, traceback):
        self._held.close()

    def clear(self, is_kept=lambda path: False):
        """Remove the temporary files except the lock.

        Args:
            is_kept: function of a path that returns True for files to keep. By
                default no file is kept.
        """
        for path in list(self.building.iterdir()):
            is_lock = path.name.rstrip("/") in (_LOCK, _OWNER)
            if not is_lock and not is_kept(path):
                remove(path)

    def finish(self, manifest, names):
        """Complete the set: move the files to their final names.

        Args:
            manifest: Manifest.
            names: dict of final names to names in `building`, for shards and
                other files.
        """
        write_bytes(self.building / TOKENIZER, self._model_proto)
        write_bytes(self.building / MANIFEST, manifest_bytes(manifest))
        names = {**names, TOKENIZER: TOKENIZER}
        digests = {shard.file: shard.sha256 for shard in all_shards(manifest)}
        for name in {*names, MANIFEST} - {*digests}:
            file = self.building / names.get(name, name)
            digests[name] = sha256_of(file)
        write_listing(self.building / CHECKSUMS_FILE, digests)
        names[CHECKSUMS_FILE] = CHECKSUMS_FILE
        old = dict.fromkeys(self._old_shards())
        write_json(self.building / _PLACING, {**old, **names})
        self._place()

    def _place(self):
        """Move the files of a complete set to their final names.

        The manifest is moved last. `finish` saves the names in `placing.json`.
        If a writer is stopped during the moves, this file stays, and the next
        writer moves the remaining files.
        """
        try:
            names = read_json_object(self.building / _PLACING)
        except (FileNotFoundError, ValueError):
            return
        manifest = self.building / MANIFEST
        if manifest.exists():
            remove(self.directory / MANIFEST)
            _flush_directory(self.directory)
            # Filter the list: if it does not come from a writer, it may contain
            # any name.
            for name in filter(_is_of_a_set, names):
                path = self.directory / name
                temporary = self.building / os.path.basename(names[name] or "")
                if names[name] is None:
                    remove(path)
                elif temporary.is_file():
                    temporary.replace(path)
            _flush_directory(self.directory)
            manifest.replace(self.directory / MANIFEST)
            _flush_directory(self.directory)
        self.clear(lambda path: path.name == _PLACING)
        remove(self.building / _PLACING)

    def _old_shards(self):
        """List the file names of the earlier set's shards."""
        with contextlib.suppress(ValueError):  # `SHA256SUMS` is damaged
            names = verify_checksums(self.directory, names=[])
            return list(filter(_SHARD.fullmatch, names))
        return []

    def _clear_unfinished(self):
        """Remove incomplete files, or all files if no part is finished."""
        is_begun = (self.building / _PLACING).exists() or (
            count_parts(self.building) > 0
        )
        self.clear(lambda path: is_begun and not is_unfinished(path))
        if is_remote(self.directory) and not is_begun:
            remove(self.building)

    def _claim(self, held):
        """Create the temporary directory and lock it."""
        if not is_remote(self.building) and self.building.is_symlink():
            raise FileExistsError(
                f"{self.building} is a link, not a directory. Remove it."
            )
        if is_remote(self.directory):
            self.building.mkdir(parents=True, exist_ok=True)
            warnings.warn(
                f"{self.directory} lies in a bucket, where nothing can be "
                "locked: see to it that no other build writes there.",
                stacklevel=3,
            )
            return
        lock = locked(
            self.building / _LOCK,
            self.building / _OWNER,
            f"is writing records to {self.directory}. Wait for it, or stop it.",
        )
        try:
            held.enter_context(lock)
        except CannotLock as error:
            raise RuntimeError(
                f"{self.directory} lies on a disk where files cannot be locked "
                f"({error}). Build on another disk, and copy the set."
            ) from error

    def _check_names(self):
        """Raise FileExistsError if the build would replace a file."""
        if (self.directory / MANIFEST).exists():
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


def clean_up(directory):
    """Clean up after a writer that was killed.

    Complete the set if the writer was moving the set's files. Remove temporary
    files except finished parts.

    Args:
        directory: path.

    Returns:
        bool, whether a set was completed.

    Raises:
        RuntimeError: another process is writing a set to the directory.
    """
    building = as_path(directory) / _BUILDING
    is_complete = (building / _PLACING).exists()
    if building.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the next writer will warn
            with RecordSetWriter(directory, b"", overwrite=True):
                pass
    return is_complete


def _is_of_a_set(name):
    is_named = name in (PLAN, TOKENIZER, CHECKSUMS_FILE)
    return is_named or bool(_SHARD.fullmatch(name))


def _remove_if_empty(path):
    if not is_remote(path):
        with contextlib.suppress(OSError):  # not empty or missing
            path.rmdir()


def _flush_directory(path):
    if not is_remote(path):
        flush(path)
