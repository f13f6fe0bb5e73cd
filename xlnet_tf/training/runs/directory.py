"""The directory of a run: whose it is, and what kills left in it."""

import contextlib
import os
import socket

import filelock

from xlnet_tf.files import as_path
from xlnet_tf.files import check_tensorflow_reads
from xlnet_tf.files import is_remote
from xlnet_tf.files import is_unfinished
from xlnet_tf.files import remove
from xlnet_tf.files import write_bytes
from xlnet_tf.training.runs.checkpoints import remove_leftovers

_LOCK, _OWNER = ".lock", ".lock-owner"


@contextlib.contextmanager
def claimed(directory):
    """Context in which no other program runs in the directory of a run.

    At its start, files are removed that a killed run had not finished writing.
    Nothing is locked in a bucket, nor on a disk that cannot lock files.

    Args:
        directory: path, which is made. If it did not exist and nothing was
            written, it is removed again.

    Raises:
        RuntimeError: if another program runs there.
        ValueError: if TensorFlow cannot write there.
    """
    directory = as_path(directory)
    check_tensorflow_reads(
        directory,
        "Give such an --output; `convert` and `saved_models.export` write "
        "models anywhere.",
    )
    is_new = not directory.is_dir()
    directory.mkdir(parents=True, exist_ok=True)
    try:
        with _lock(directory):
            for path in list(directory.iterdir()):
                if is_unfinished(path):
                    remove(path)
            remove_leftovers(directory / "checkpoints")
            yield
    finally:
        if is_new and not is_remote(directory):
            with contextlib.suppress(OSError):  # not empty
                directory.rmdir()


@contextlib.contextmanager
def _lock(directory):
    if is_remote(directory):
        yield
        return
    lock = filelock.FileLock(directory / _LOCK, fallback_to_soft=False)
    try:
        lock.acquire(blocking=False)
    except filelock.Timeout:
        raise RuntimeError(
            f"{_owner(directory)} is working in {directory}. Wait for it, or "
            "stop it, or give another --output."
        ) from None
    except (OSError, NotImplementedError):
        yield  # runs are not refused for a disk that cannot
        return
    try:
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        write_bytes(directory / _OWNER, owner.encode())
        yield
    finally:
        # Whoever gets a lock looks whether its file is still there.
        for name in (_OWNER, _LOCK):
            remove(directory / name)
        lock.release()


def _owner(directory):
    try:
        return (directory / _OWNER).read_text(encoding="utf-8")
    except OSError:
        return "another program"
