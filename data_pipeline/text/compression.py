"""Reading of files that may be compressed as .gz, .bz2, .xz or .zst."""

import bz2
import contextlib
import errno
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib

from data_pipeline.base.files import as_path
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import WrappedFile
from data_pipeline.base.limits import check_expansion
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import TextError

# Small, because guessing a file's format reads the first chunk too.
CHUNK_BYTES = 1 << 17
# Part of zstd's error message for a file from `zstd --ultra --long=31`.
_WIDE_WINDOW = "requires too much memory"
# Errors that libraries raise for damaged compressed data or archives.
_DAMAGE = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    # Raised for unknown or damaged versions and compression methods.
    NotImplementedError,
)


def import_pyarrow(what):
    """Import the package pyarrow.

    Args:
        what: str, name of the files that need pyarrow, for the message.

    Raises:
        RuntimeError: pyarrow is not installed.
    """
    try:
        import pyarrow
    except ImportError:
        raise RuntimeError(
            f"{what} needs pyarrow, which is not installed: pip install "
            "'pyarrow>=16'."
        ) from None
    return pyarrow


def _open_zstd(file):
    """Open a .zst file with one or several frames for decompression.

    Reading fails if zstd's compression window is larger than 128 MiB.
    """
    pyarrow = import_pyarrow("a .zst file")
    return pyarrow.CompressedInputStream(
        pyarrow.PythonFile(file, mode="r"), "zstd"
    )


COMPRESSED = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    **dict.fromkeys((".zst", ".zstd"), _open_zstd),
}


def plain_name(name):
    """Remove the suffix for compression from the name of a file."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in COMPRESSED else name


def decompressed(file, name, path):
    """Open a file for decompression if its name has a suffix in `COMPRESSED`.

    Args:
        file: binary file.
        name: str, name of the file. The suffix determines the compression.
        path: str, path of the file or of its archive, for messages.

    Returns:
        binary file with the decompressed bytes, or `file` itself if the name
        has no suffix for compression.
    """
    opener = COMPRESSED.get(os.path.splitext(name.lower())[1])
    if opener is None:
        return file
    return expanded(opener(file), size_of(path), path)


def expanded(file, stored_bytes, path):
    """Limit the decompressed bytes of a file to a multiple of the stored bytes.

    Args:
        file: binary file with the decompressed bytes.
        stored_bytes: int, size before decompression.
        path: str, path of the file, for messages.

    Returns:
        binary file. Reading raises a TextError if the data is damaged, or if it
        expands to more than 100 times `stored_bytes` and to more than 64 MiB.
    """
    return io.BufferedReader(_ExpandedFile(file, stored_bytes, path))


class _ExpandedFile(WrappedFile):
    """Unbuffered file that limits the decompressed bytes, for `expanded`."""

    def __init__(self, file, stored_bytes, path):
        super().__init__(file)
        self._stored_bytes = stored_bytes
        self._path = path
        self._position = 0

    def tell(self):
        return self._position

    def seek(self, offset, whence=io.SEEK_SET):
        with damage_named(self._path):
            if whence == io.SEEK_SET:
                check_expansion(self._path, self._stored_bytes, offset)
            self._position = super().seek(offset, whence)
        return self._position

    def readinto(self, buffer):
        with damage_named(self._path):
            data = self._file.read(len(buffer))
            self._position += len(data)
            check_expansion(self._path, self._stored_bytes, self._position)
        buffer[: len(data)] = data
        return len(data)


@contextlib.contextmanager
def damage_named(path):
    """Context manager that converts errors of damaged data into TextErrors.

    Args:
        path: str, path of the compressed file or archive, for messages.
    """
    try:
        yield
    except TextError:
        raise
    except (OSError, *_DAMAGE) as error:
        # Damaged data raises an OSError without a number, or with the number
        # for a seek to a negative offset.
        is_damage = isinstance(error, _DAMAGE)
        if not is_damage and error.errno not in (None, errno.EINVAL):
            raise
        if _WIDE_WINDOW in str(error):
            raise TextError(
                f"{path}: the compressed file has a window above 128 MiB, "
                f"which is not read. Decompress it: zstd -d --long=31 {path}"
            ) from None
        raise TextError(
            f"{path}: the compressed file is damaged, cut short or of another "
            f"kind ({error}). Fetch it again."
        ) from None
    except ValueError as error:  # raised by `check_expansion`
        raise TextError(str(error)) from None


def read_chunks(path, log=None):
    """Yield blocks of a file's decompressed bytes, with an empty last block.

    Args:
        path: str.
        log: ReadLog to update, or None.

    Yields:
        bytes.

    Raises:
        TextError: the compressed data is damaged, or expands far more than text
            does.
    """
    log = log or ReadLog()
    with as_path(path).open("rb") as raw:
        source = _LoggedFile(raw, log)
        file = decompressed(source, path, path)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
        yield b""
        while source.read(CHUNK_BYTES):  # bytes after the compressed data
            pass
        log.digests[path] = source.digest.hexdigest()


class _LoggedFile:
    """File that hashes the bytes that are read, and reports their number."""

    closed = False

    def __init__(self, file, log):
        self.digest = hashlib.sha256()
        self._file = file
        self._progress = log.progress

    def read(self, size=-1):
        block = self._file.read(size)
        self.digest.update(block)
        self._progress(len(block))
        return block

    def close(self):
        """Keep the file open, because pyarrow closes the file too early."""
