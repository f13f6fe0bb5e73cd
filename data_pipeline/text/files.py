"""Text files: those that a pattern names, and their bytes.

A file is local, in a bucket (`gs://BUCKET/...`) or where fsspec reads it
(`s3://`, `hf://datasets/`, `https://`), and may be compressed: .gz, .bz2, .xz
or .zst.
"""

import bz2
import collections
import concurrent.futures
import contextlib
import errno
import glob
import gzip
import hashlib
import io
import lzma
import os
import tarfile
import zipfile
import zlib

from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import ExpandedFile
from data_pipeline.text.saved_datasets import find_data_files

# What libraries raise where compressed data or an archive is damaged.
_DAMAGE = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
    # For unknown, or damaged, versions and compression methods.
    NotImplementedError,
)
_BAD_TEXT = {
    "replaced_characters": "replaced character(s) that were no text",
    "skipped_lines": "skipped line(s) that could not be read",
    "empty_rows": "row(s) without text",
    "empty_files": "file(s) without text",
}
_CHUNK_BYTES = 1 << 20
_REQUESTS = 32  # parallel requests to a bucket


class TextError(ValueError):
    """A text file cannot be read as text of its format and encoding."""


class ReadLog:
    """Record of what was read of text files.

    Args:
        progress: function of the number of bytes of the (perhaps compressed)
            files read since its last call, or None.

    Attributes:
        digests: dict of path to str, the SHA-256 of each file that was read
            to its end.
        bad_text: collections.Counter of `replaced_characters`,
            `skipped_lines`, `empty_rows` and `empty_files`.
    """

    def __init__(self, progress=None):
        self.progress = progress or (lambda size: None)
        self.digests = {}
        self.bad_text = collections.Counter()


def count_bad_text(log, what, number=1):
    """Count something in a log's `bad_text`; without a log, do nothing."""
    if log is not None:
        log.bad_text[what] += number


def describe_bad_text(counts):
    """Describe what was left out of text, or replaced in it.

    Args:
        counts: dict, `bad_text` of a ReadLog; it may hold other counts.

    Returns:
        list of str.
    """
    return [
        f"{counts[name]:,} {what}"
        for name, what in _BAD_TEXT.items()
        if counts.get(name)
    ]


def find_files(patterns):
    """Files that match patterns, sorted by name.

    Args:
        patterns: str or path, or several: a file, a directory of a data set
            that Hugging Face's `datasets` has saved, or a glob of these, in
            which `**` matches any number of folders; in a bucket it cannot be
            used.

    Returns:
        list of str, each file once, however often it is named.

    Raises:
        FileNotFoundError: a pattern matches no file, or a link to none.
        ValueError: a pattern names another directory, or a data set that
            cannot be read.
    """
    if isinstance(patterns, (str, os.PathLike)):
        patterns = [patterns]
    found = {}
    for pattern in map(os.fspath, patterns):
        matches = _remote_matches if is_remote(pattern) else _local_matches
        files = matches(pattern)
        if not files:
            _explain_no_match(pattern)
        for file in files:
            same = file if is_remote(file) else os.path.abspath(file)
            found.setdefault(same, file)
    return sorted(found.values())


def _local_matches(pattern):
    pattern = os.path.expanduser(pattern)
    if os.path.isfile(pattern):
        return [pattern]
    files = []
    for path in _expanded(pattern):
        if os.path.islink(path) and not os.path.exists(path):
            raise FileNotFoundError(
                f"{path}: `input` names this link, and it leads to no file. "
                "Correct or remove the link."
            )
        if os.path.isfile(path):
            files.append(path)
        elif os.path.isdir(path):
            files += map(os.fspath, find_data_files(path) or [])
    return files


def _expanded(pattern):
    """Paths that match a pattern, in which `**` never goes in circles."""
    parts = pattern.split(os.sep)
    if "**" not in parts:
        yield from glob.glob(pattern)
        return
    place = parts.index("**")
    rest = parts[place + 1 :] or ["*"]
    base = os.sep.join([*parts[:place], ""])
    for top in glob.glob(base) if base else [""]:
        for folder in _folders(top):
            yield from _expanded(os.path.join(glob.escape(folder), *rest))


def _folders(folder, above=frozenset()):
    """Yield a folder and those below it, without links back to one `above`."""
    place = os.path.realpath(folder)
    if place in above:
        return
    yield folder
    for name in sorted(os.listdir(folder or ".")):
        path = os.path.join(folder, name)
        if not name.startswith(".") and os.path.isdir(path):
            yield from _folders(path, above | {place})


def _remote_matches(pattern):
    if "**" in pattern:
        raise ValueError(
            "`**` cannot be used in a bucket. Received: input="
            f"{pattern!r}. Give a pattern with `*` for each depth of folders."
        )
    first = min((pattern.find(x) for x in "*?[" if x in pattern), default=None)
    if pattern.startswith(("http://", "https://")):
        first = None  # no listings on the web, and `?` is part of its names
    if first is None:
        path = as_path(pattern)
        if path.is_dir():
            return list(map(os.fspath, find_data_files(path) or []))
        return [os.fspath(path)] if path.exists() else []
    folder, _, rest = pattern[:first].rpartition("/")
    paths = as_path(folder).glob(rest + pattern[first:])
    # Each request to a bucket takes a while: a path with a suffix is a file.
    return [
        os.fspath(path) for path in paths if path.suffix or not path.is_dir()
    ]


def _explain_no_match(pattern):
    if as_path(os.path.expanduser(pattern)).is_dir():
        raise ValueError(
            f"`input` must name files, not a directory. Received: input="
            f"{pattern!r}. Name the files in it, such as "
            f"{os.path.join(pattern, '*.txt')!r}."
        )
    where = "" if is_remote(pattern) else f", seen from {os.getcwd()}"
    raise FileNotFoundError(
        f"no file matches `input`. Received: input={pattern!r}{where}. Check "
        "the path and the pattern."
    )


def sizes_of(paths):
    """Bytes of files, list of int.

    Args:
        paths: list of str.
    """
    if not any(map(is_remote, paths)):
        return list(map(size_of, paths))
    with concurrent.futures.ThreadPoolExecutor(_REQUESTS) as threads:
        return list(threads.map(size_of, paths))


def read_chunks(path, log=None):
    """Blocks of the uncompressed bytes of a file; the last one is empty.

    Args:
        path: str.
        log: ReadLog that takes note of the bytes, or None.

    Yields:
        bytes.

    Raises:
        TextError: the compressed data are damaged, or unfold to far more
            than text does.
    """
    with as_path(path).open("rb") as raw:
        source = raw if log is None else _LoggedFile(raw, log)
        file = decompressed(source, path, path)
        while True:
            chunk = file.read(_CHUNK_BYTES)
            yield chunk
            if not chunk:
                break
        if log is not None:
            while source.read(_CHUNK_BYTES):  # behind the compressed data
                pass
            log.digests[path] = source.digest.hexdigest()


class _LoggedFile:
    """File that reports and hashes the bytes that are read from it."""

    def __init__(self, file, log):
        self.digest = hashlib.sha256()
        self._file = file
        self._progress = log.progress

    def read(self, size=-1):
        block = self._file.read(size)
        self.digest.update(block)
        self._progress(len(block))
        return block


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


class _ZstdFile(io.RawIOBase):
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
        source = pyarrow.PythonFile(_Unclosed(file), mode="r")
        self._stream = pyarrow.CompressedInputStream(source, "zstd")
        self._position = 0

    def readable(self):
        return True

    def readinto(self, buffer):
        size = self._stream.readinto(buffer)
        self._position += size
        return size

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


COMPRESSED = {
    ".gz": gzip.open,
    ".bz2": bz2.open,
    ".xz": lzma.open,
    **dict.fromkeys((".zst", ".zstd"), _ZstdFile),
}


def plain_name(name):
    """The name of a file without the ending of a compressed one, str."""
    stem, ending = os.path.splitext(name)
    return stem if ending.lower() in COMPRESSED else name


def decompressed(file, name, path):
    """The decompressed bytes of a file.

    Args:
        file: binary file.
        name: str, its name, whose ending says how it is compressed.
        path: str, of the file or of the archive that holds it, for messages.

    Returns:
        binary file, `file` itself where its name is not of a compressed one.
        Reading raises a TextError where the data are damaged, or unfold to far
        more than text does.
    """
    opener = COMPRESSED.get(os.path.splitext(name.lower())[1])
    if opener is None:
        return file
    return limited(opener(file), size_of(path), path)


def limited(file, stored_bytes, path):
    """A binary file of decompressed bytes, limited as by `decompressed`.

    Args:
        file: binary file.
        stored_bytes: int, before decompression.
        path: str, for messages.
    """
    return io.BufferedReader(_LimitedFile(file, stored_bytes, path))


class _LimitedFile(ExpandedFile):
    """Decompressed bytes, whose damage is a TextError."""

    def seek(self, *place):
        with damage_named(self._name):
            return super().seek(*place)

    def readinto(self, buffer):
        with damage_named(self._name):
            return super().readinto(buffer)


@contextlib.contextmanager
def damage_named(path):
    """Context in which errors of damaged data are TextErrors of one line.

    Args:
        path: str, of the compressed file or the archive.
    """
    try:
        yield
    except TextError:
        raise
    except (OSError, *_DAMAGE) as error:
        # Damaged data give an error without a number, or that of a seek
        # before 0.
        is_damage = isinstance(error, _DAMAGE)
        if not is_damage and error.errno not in (None, errno.EINVAL):
            raise
        raise TextError(
            f"{path}: the compressed file is damaged, cut short or of another "
            f"kind ({error}). Fetch it again."
        ) from None
    except ValueError as error:  # of `limits`
        raise TextError(str(error)) from None
