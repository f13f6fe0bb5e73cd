"""Files that are there whole or not at all."""

import contextlib
import os
import uuid

UNFINISHED = ".tmp"


@contextlib.contextmanager
def whole_file(path):
    """Gives a binary file to write, which gets its name when it is whole.

    It is written under a temporary name, flushed to the disk and renamed, so
    that it survives a loss of power; what is left half-written is removed.

    Args:
        path: str or path; a file that is there is replaced.

    Raises:
        OSError: with `path` as its file name.
    """
    path = os.fspath(path)
    # A process that was killed may still write: no two share a name.
    temporary = f"{path}.{uuid.uuid4().hex}{UNFINISHED}"
    try:
        with open(temporary, "wb") as file:
            yield file
            _flush(file)
        os.rename(temporary, path)
    except OSError as error:
        error.filename = error.filename or path
        raise
    finally:
        if os.path.exists(temporary):
            os.remove(temporary)


def write_bytes(path, content):
    """Writes a whole file of bytes; see `whole_file`."""
    with whole_file(path) as file:
        file.write(content)


def _flush(file):
    file.flush()
    os.fsync(file.fileno())
