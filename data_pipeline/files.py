"""Writing files atomically: complete, or not at all."""

import contextlib
import os
import uuid

UNFINISHED = ".tmp"


@contextlib.contextmanager
def whole_file(path):
    """Context manager of a binary file that is renamed to `path` at the end.

    The file is written under a temporary name, flushed to the disk and
    renamed, so that it survives a power failure. After an error the temporary
    file is removed.

    Args:
        path: str or path; an existing file is replaced.

    Raises:
        OSError: with `path` as its file name.
    """
    path = os.fspath(path)
    # Unique, as an earlier process may still be writing.
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
    """Write bytes to a file atomically; see `whole_file`."""
    with whole_file(path) as file:
        file.write(content)


def _flush(file):
    file.flush()
    os.fsync(file.fileno())
