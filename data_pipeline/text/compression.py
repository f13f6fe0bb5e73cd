"""Bytes of files, compressed or not: .gz, .bz2, .xz and .zst."""

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

# Small, since the beginning of a file is also read to guess its format.
CHUNK_BYTES = 1 << 17
# zstd's error for a file from `zstd --ultra --long=31`.
_WIDE_WINDOW = "requires too much memory"
# Errors of libraries for damaged compressed data or archives.
_DAMAGE = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    # For unknown or damaged versions and compression methods.
    NotImplementedError,
)


def import_pyarrow(what):
    """Import the package pyarrow, for the files that need it.

    Args:
        what: str, name of the files, for the message.

    Raises:
        RuntimeError: it is not installed.
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
    """Decompressed bytes of a .zst file, of one frame or several.

    Its window may be 128 MiB at most, see `_WIDE_WINDOW`.
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
    """Name of a file without the ending for compression, str."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in COMPRESSED else name


def decompressed(file, name, path):
    """Decompressed bytes of a file.

    Args:
        file: binary file.
        name: str, its name; the ending gives the compression.
        path: str, of the file or of its archive, for messages.

    Returns:
        binary file, `file` itself if its name has no ending for compression.
    """
    opener = COMPRESSED.get(os.path.splitext(name.lower())[1])
    if opener is None:
        return file
    return expanded(opener(file), size_of(path), path)


def expanded(file, stored_bytes, path):
    """Decompressed bytes, limited to a multiple of the stored bytes.

    Args:
        file: binary file.
        stored_bytes: int, before decompression.
        path: str, for messages.

    Returns:
        binary file. Reading raises a TextError if the data are damaged, or
        expand to 100 times their size and more than 64 MiB.
    """
    return io.BufferedReader(_ExpandedFile(file, stored_bytes, path))


class _ExpandedFile(WrappedFile):
    """File below the buffer of `expanded`."""

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
    """Context that turns errors of damaged data into TextErrors of one line.

    Args:
        path: str, of the compressed file or the archive.
    """
    try:
        yield
    except TextError:
        raise
    except (OSError, *_DAMAGE) as error:
        # Damaged data give an error without a number, or the error of a seek
        # before 0.
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
    except ValueError as error:  # from `check_expansion`
        raise TextError(str(error)) from None


def read_chunks(path, log=None):
    """Yield blocks of a file's uncompressed bytes; the last one is empty.

    Args:
        path: str.
        log: ReadLog that counts the bytes, or None.

    Yields:
        bytes.

    Raises:
        TextError: the compressed data are damaged, or expand to far more than
            text does.
    """
    log = log or ReadLog()
    with as_path(path).open("rb") as raw:
        source = _LoggedFile(raw, log)
        file = decompressed(source, path, path)
        while chunk := file.read(CHUNK_BYTES):
            yield chunk
        yield b""
        while source.read(CHUNK_BYTES):  # behind the compressed data
            pass
        log.digests[path] = source.digest.hexdigest()


class _LoggedFile:
    """File that reports and hashes the bytes read from it."""

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
        """Keep the file open, though pyarrow closes it."""
