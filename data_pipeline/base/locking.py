"""Locks of files, with the owner's name for processes that must wait."""

import contextlib
import os
import socket

import filelock

from data_pipeline.base.files import remove
from data_pipeline.base.files import write_bytes


class CannotLock(Exception):
    """Error for a disk that cannot lock files; its text is the reason."""


@contextlib.contextmanager
def locked(file, owner, message):
    """Context in which no other process holds the lock of a file.

    The lock also keeps out processes on other machines that share the disk, and
    ends with the process that holds it. Both files are removed at the end.

    Args:
        file: local path. Its directory is made.
        owner: path of the file that names the process, in the same directory.
        message: str, of the error; the process with the lock comes first.

    Raises:
        RuntimeError: another process holds the lock.
        CannotLock: the disk has no locks.
    """
    lock = _acquired(file, owner, message)
    try:
        name = f"process {os.getpid()} on {socket.gethostname()}"
        write_bytes(owner, name.encode())
        yield
    finally:
        # This is safe: a process with a lock checks that its file still exists.
        for path in (owner, file):
            remove(path)
        lock.release()


def _acquired(file, owner, message):
    lock = filelock.FileLock(file, fallback_to_soft=False)
    while True:
        file.parent.mkdir(parents=True, exist_ok=True)
        try:
            lock.acquire(blocking=False)
            return lock
        except filelock.Timeout:
            raise RuntimeError(f"{_name_in(owner)} {message}") from None
        except FileNotFoundError:  # an earlier process removed the directory
            continue
        except (OSError, NotImplementedError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotLock(reason) from error


def _name_in(owner):
    with contextlib.suppress(OSError):
        if name := owner.read_text(encoding="utf-8"):
            return name
    return "another process"
