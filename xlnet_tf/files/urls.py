"""Files to read, wherever fsspec finds them: https, s3, hf://datasets, hdfs."""

import io
import os
import posixpath
import typing

from xlnet_tf.files.limits import WrappedFile
from xlnet_tf.files.limits import in_a_line

# Of the hub, whose models `hub` fetches.
DATASETS = "hf://datasets/"
_BUFFER_BYTES = 1 << 20
# Names of the time of change in what fsspec tells of a file.
_TIMES = ("mtime", "LastModified", "last_modified", "updated", "created")


class Status(typing.NamedTuple):
    """Bytes of a file, and when it was changed, in seconds; 0 = not known."""

    length: int
    mtime: int


class UrlPath:
    """A path that is read by fsspec, with the methods of pathlib that read.

    Args:
        url: str, with its scheme.

    Raises:
        ValueError: fsspec does not know the scheme, or lacks its package.
    """

    def __init__(self, url):
        import fsspec

        self._url = url
        try:
            self._system, self._path = fsspec.core.url_to_fs(url)
        except ImportError as error:
            raise ValueError(
                f"{url} is read by fsspec, which needs another package: "
                f"{in_a_line(error)}."
            ) from None
        except ValueError as error:
            raise ValueError(
                f"{url}: paths that begin with {url.partition('://')[0]}:// "
                f"are not known ({in_a_line(error)}). Give a local path, or "
                "one of gs:// or hf://; to read, also s3://, https:// and "
                "others of fsspec."
            ) from None
        # Whatever a client raises: of HTTP, of sockets, of its login.
        except Exception as error:  # noqa: BLE001
            raise _unreadable(url, error) from None

    def __fspath__(self):
        return self._url

    __str__ = __fspath__

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
        return UrlPath(posixpath.dirname(self._url.rstrip("/")))

    def exists(self):
        return self._ask("exists")

    def is_file(self):
        return self._ask("isfile")

    def is_dir(self):
        # A page of the web has no folders, and may list links.
        return not self._is_web() and self._ask("isdir")

    def iterdir(self):
        for path in sorted(self._ask("ls", detail=False)):
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
        if set(mode) & set("wax+"):
            raise _no_output(self._url)
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

    def read_text(self, encoding="utf-8"):
        return self.read_bytes().decode(encoding)

    def mkdir(self, **options):
        raise _no_output(self._url)

    def _is_web(self):
        return self._url.startswith(("http://", "https://"))

    def _of(self, path):
        return UrlPath(self._system.unstrip_protocol(path))

    def _ask(self, method, **options):
        try:
            return getattr(self._system, method)(self._path, **options)
        except Exception as error:  # noqa: BLE001 as above
            raise _unreadable(self._url, error) from None


class _File(WrappedFile):
    """The bytes of a file, whose errors are OSErrors of one line."""

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


def _unreadable(url, error):
    if isinstance(error, FileNotFoundError):
        return FileNotFoundError(f"there is no file {url}.")
    return OSError(f"{url} cannot be read ({in_a_line(error)}).")


def _no_output(url):
    return ValueError(
        f"nothing is written to {url}: what fsspec finds is read only. Write "
        "to a local path or to gs://, and copy it."
    )
