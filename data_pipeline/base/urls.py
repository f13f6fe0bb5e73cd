"""Paths that fsspec opens, such as s3, hdfs, https and hf://datasets."""

import io
import os
import posixpath
import typing

from data_pipeline.base.limits import WrappedFile
from data_pipeline.base.limits import in_a_line

# Prefix of data sets of the hub. The module `hub` downloads models.
DATASETS = "hf://datasets/"
_BUFFER_BYTES = 1 << 20
# Keys that may hold the modification time in fsspec's `info` of a file.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")
# Schemes of object stores. They have no folders, only names with slashes.
_BUCKETS = {"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "oss"}
_READ_ONLY = ("http://", "https://", DATASETS)


class Status(typing.NamedTuple):
    """Size of a file in bytes and modification time in s; unknown values: 0."""

    length: int
    mtime: int


class UrlPath:
    """Path that fsspec opens, with the methods of pathlib.

    Paths that begin with http://, https:// or hf://datasets/ are read only.

    Args:
        url: str, with the scheme.

    Raises:
        ValueError: fsspec does not support the scheme, or the scheme's package
            is not installed.
    """

    def __init__(self, url):
        import fsspec

        self._url = url
        # A cached listing would lack new files of other processes.
        options = {} if self._is_read_only() else {"use_listings_cache": False}
        try:
            self._system, self._path = fsspec.core.url_to_fs(url, **options)
        except ImportError as error:
            raise ValueError(
                f"{url} is read by fsspec, which needs another package: "
                f"{in_a_line(error)}."
            ) from None
        except ValueError as error:
            raise ValueError(
                f"{url}: paths that begin with {url.partition('://')[0]}:// "
                f"are not known ({in_a_line(error)}). Give a local path, or "
                "one of gs://, hf://, s3:// or others of fsspec; to read, "
                "also https://."
            ) from None
        # The client raises errors of many classes: HTTP, sockets, login.
        except Exception as error:  # noqa: BLE001
            raise _unreadable(url, error) from None

    def __fspath__(self):
        return self._url

    __str__ = __fspath__

    def __lt__(self, other):
        return self._url < other._url

    def __truediv__(self, name):
        return UrlPath(posixpath.join(self._url, os.fspath(name)))

    @property
    def name(self):
        return posixpath.basename(self._url.rstrip("/"))

    @property
    def suffix(self):
        return posixpath.splitext(self.name)[1]

    @property
    def parent(self):
        scheme, _, path = self._url.partition("://")
        return UrlPath(f"{scheme}://{posixpath.dirname(path.rstrip('/'))}")

    def exists(self):
        return self._ask("exists")

    def is_file(self):
        return self._ask("isfile")

    def is_dir(self):
        # fsspec may list the links of a web page, but a web page is not a
        # folder.
        return not self._is_web() and self._ask("isdir")

    def iterdir(self):
        try:
            paths = self._ask("ls", detail=False)
        except FileNotFoundError:
            if not self._is_in_bucket():
                raise
            paths = []  # an object store has no empty folders
        for path in sorted(paths):
            yield self._of(path)

    def glob(self, pattern):
        where = posixpath.join(self._path, pattern)
        try:
            paths = self._system.glob(where)
        except Exception as error:  # noqa: BLE001 as above
            raise _unreadable(f"{self._url}/{pattern}", error) from None
        return [self._of(path) for path in sorted(paths)]

    def stat(self):
        info = self._ask("info")
        time = next((info[x] for x in _TIMES if info.get(x)), 0)
        time = time.timestamp() if hasattr(time, "timestamp") else time
        is_number = isinstance(time, (int, float))
        return Status(info.get("size") or 0, int(time) if is_number else 0)

    def open(self, mode="r", **options):
        if mode == "wb":
            file = _Output(self._change("open", "wb"), self._url)
            return io.BufferedWriter(file, _BUFFER_BYTES)
        if set(mode) & set("wax+"):
            raise ValueError(
                f"{self._url} can be read, or written whole (mode 'wb'). "
                f"Received: mode={mode!r}."
            )
        try:
            file = self._system.open(self._path, "rb")
        except Exception as error:  # noqa: BLE001 as above
            raise _unreadable(self._url, error) from None
        file = io.BufferedReader(_File(file, self._url), _BUFFER_BYTES)
        if "b" in mode:
            return file
        return io.TextIOWrapper(file, options.get("encoding", "utf-8"))

    def read_bytes(self):
        with self.open("rb") as file:
            return file.read()

    def read_range(self, begin, end):
        """Read only the bytes from `begin` to `end` (exclusive)."""
        return self._ask("cat_file", start=begin, end=end)

    def read_text(self, encoding="utf-8"):
        return self.read_bytes().decode(encoding)

    def write_bytes(self, data):
        with self.open("wb") as file:
            file.write(data)

    def upload(self, file):
        """Replace this file by a local file.

        In a bucket, the old content stays if the upload fails.
        """
        self.check_writable()
        try:
            self._system.put_file(os.fspath(file), self._path)
        except Exception as error:  # noqa: BLE001 as above
            raise _unwritable(self._url, error) from None

    def mkdir(self, **options):
        # In an object store, `makedirs` would create a bucket for a misspelt
        # name.
        if not self._is_in_bucket():
            self._change("makedirs", exist_ok=True)

    def unlink(self, missing_ok=False):
        if not missing_ok or self.exists():
            self._change("rm_file")

    def rmtree(self):
        self._change("rm", recursive=True)

    def replace(self, target):
        """Move a file.

        If the file system copies the file and then removes the old file, the
        move is not atomic.
        """
        self._change("mv", target._path)

    def check_writable(self):
        """Raise ValueError if files of this scheme are read only."""
        if self._is_read_only():
            raise ValueError(
                f"{self._url} cannot be written: files there are read-only. "
                "Give another path."
            )

    def _is_in_bucket(self):
        protocol = self._system.protocol
        names = {protocol} if isinstance(protocol, str) else set(protocol)
        return bool(names & _BUCKETS)

    def _is_web(self):
        return self._url.startswith(("http://", "https://"))

    def _is_read_only(self):
        return self._url.startswith(_READ_ONLY)

    def _change(self, method, *arguments, **options):
        """Call a method that writes to the file system."""
        self.check_writable()
        try:
            return getattr(self._system, method)(
                self._path, *arguments, **options
            )
        except Exception as error:  # noqa: BLE001 as above
            raise _unwritable(self._url, error) from None

    def _of(self, path):
        return UrlPath(self._system.unstrip_protocol(path))

    def _ask(self, method, **options):
        try:
            return getattr(self._system, method)(self._path, **options)
        except Exception as error:  # noqa: BLE001 as above
            raise _unreadable(self._url, error) from None


class _File(WrappedFile):
    """Binary file to read; errors become OSErrors with one-line messages."""

    def __init__(self, file, url):
        super().__init__(file)
        self._url = url

    def readinto(self, buffer):
        try:
            data = self._file.read(len(buffer))
        except Exception as error:  # noqa: BLE001 as above
            raise _unreadable(self._url, error) from None
        buffer[: len(data)] = data
        return len(data)

    def close(self):
        if not self.closed:
            self._file.close()
        super().close()


class _Output(io.RawIOBase):
    """Binary file to write; errors become OSErrors with one-line messages."""

    def __init__(self, file, url):
        self._file, self._url = file, url

    def writable(self):
        return True

    def write(self, data):
        self._try(self._file.write, bytes(data))
        return len(data)

    def close(self):
        if not self.closed:
            super().close()
            self._try(self._file.close)

    def _try(self, method, *arguments):
        try:
            method(*arguments)
        except Exception as error:  # noqa: BLE001 as above
            raise _unwritable(self._url, error) from None


def _unreadable(url, error):
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"there is no file {url}.")
    return OSError(f"{url} cannot be read ({in_a_line(error)}).")


def _unwritable(url, error):
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(
            f"{url} cannot be written: there is no such bucket or folder."
        )
    return OSError(f"{url} cannot be written ({in_a_line(error)}).")
