"""File locks that store the name of the process that holds the lock."""

import contextlib
import os
import socket

import filelock

from data_pipeline.base.files import remove
from data_pipeline.base.files import write_bytes


class CannotLock(Exception):
    """Error for a disk that cannot lock files. Its text gives the reason."""


@contextlib.contextmanager
def locked(file, owner, message):
    """Context manager that locks a file against other processes.

    The lock excludes processes on this machine and on other machines that share
    the disk. The operating system releases the lock when the process ends. The
    context manager removes `file` and `owner` at the end of the `with` block.

    Args:
        file: local path of the lock file. A missing parent directory is
            created.
        owner: path of a file in the directory of `file`. This file stores the
            name of the process that holds the lock.
        message: str, end of the RuntimeError's text. The text begins with the
            name of the process that holds the lock.

    Raises:
        RuntimeError: another process holds the lock.
        CannotLock: the disk does not support locks.
    """
    lock = _acquired(file, owner, message)
    try:
        name = f"process {os.getpid()} on {socket.gethostname()}"
        write_bytes(owner, name.encode())
        yield
    finally:
        # Removing is safe: `filelock` checks that a locked file still exists.
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
        except FileNotFoundError:  # another process has removed it
            continue
        except (OSError, NotImplementedError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise CannotLock(reason) from error


def _name_in(owner):
    with contextlib.suppress(OSError):
        if name := owner.read_text(encoding="utf-8"):
            return name
    return "another process"
