"""Files between Python and pyarrow, and .zst, which pyarrow decompresses."""

import io

ZSTD_ENDINGS = (".zst", ".zstd")


def import_pyarrow(what):
    """The package pyarrow, which is imported for the files that need it.

    Args:
        what: str, the files, for the message.

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


class BoundedFile:
    """A binary file that gives what it has, however much it is asked for.

    Whoever uses it closes the file; pyarrow closes this one only.

    Args:
        file: binary file, at its start.
        progress: function of the number of bytes that were read, or None.

    Attributes:
        size: int, bytes of the file, or None where it cannot be sought in.
    """

    closed = False

    def __init__(self, file, progress=None):
        self._file = file
        self._progress = progress or (lambda size: None)
        self.size = None
        if file.seekable():
            self.size = file.seek(0, io.SEEK_END)
            file.seek(0)

    def read(self, size=-1):
        if self.size is not None and size >= 0:
            size = max(0, min(size, self.size - self._file.tell()))
        block = self._file.read(size)
        self._progress(len(block))
        return block

    def seek(self, offset, whence=io.SEEK_SET):
        return self._file.seek(offset, whence)

    def tell(self):
        return self._file.tell()

    def readable(self):
        return True

    def seekable(self):
        return self.size is not None

    def close(self):
        self.closed = True


class ZstdFile(io.RawIOBase):
    """The decompressed bytes of a .zst file, of one frame or several.

    Args:
        file: binary file with `read`.

    Raises:
        RuntimeError: pyarrow is not installed.
        OSError: on reading, the data are damaged or cut short, or ask for a
            window of more than 128 MiB.
    """

    def __init__(self, file):
        pyarrow = import_pyarrow("a .zst file")
        self._stream = pyarrow.CompressedInputStream(
            pyarrow.PythonFile(_Unclosed(file), mode="r"), "zstd"
        )
        self._position = 0

    def readable(self):
        return True

    def read(self, size=-1):
        block = self._stream.read(None if size < 0 else size)
        self._position += len(block)
        return block

    def readinto(self, buffer):
        data = self.read(len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def tell(self):
        return self._position

    def close(self):
        if not self.closed:
            self._stream.close()
        super().close()


class _Unclosed:
    """File object whose `close`, which pyarrow calls, leaves the file open."""

    closed = False

    def __init__(self, file):
        self.read = file.read

    def close(self):
        self.closed = True
