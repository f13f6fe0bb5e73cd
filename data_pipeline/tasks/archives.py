"""Files of a directory or an archive, or a single file, read in place."""

import contextlib
import errno
import fnmatch
import functools
import gzip
import io
import json
import lzma
import os
import pathlib
import posixpath
import tarfile
import weakref
import zipfile
import zlib

from fsspec.compression import compr
from fsspec.implementations.tar import TarFileSystem
from fsspec.implementations.zip import ZipFileSystem
from fsspec.utils import infer_compression

from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import names_below
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import ExpandedFile
from data_pipeline.text import saved_datasets
from data_pipeline.text.arrow_io import ZSTD_ENDINGS
from data_pipeline.text.arrow_io import ZstdFile
from data_pipeline.text.columnar import is_columnar

_ARCHIVE_ENDINGS = (
    ".zip",
    ".tar",
    ".tgz",
    ".tar.gz",
    ".tar.bz2",
    ".tar.xz",
)
_TAR_ENDINGS = {
    ".gz": "gzip",
    ".tgz": "gzip",
    ".bz2": "bz2",
    ".xz": "xz",
}
# Lists and objects in JSON that is read as a whole, at 72 bytes each.
_MOST_CONTAINERS = 2**23
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


def open_tree(path):
    """Open the files at a path.

    Args:
        path: str or path-like, a directory, an archive (.zip, .tar, .tar.gz,
            .tgz, .tar.bz2, .tar.xz), the directory of a saved data set, or
            one file, which may end in .gz, .bz2, .xz or .zst; locally or in a
            bucket (gs://).

    Returns:
        Tree, with `is_file` True for a single file.

    Raises:
        FileNotFoundError: `path` does not exist.
    """
    path = as_path(os.path.expanduser(os.fspath(path)))
    if path.is_dir():
        is_saved = saved_datasets.is_saved(path)
        return Tree(str(path), saved_datasets.STATE if is_saved else None)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file or directory {path}, seen from {os.getcwd()}."
        )
    if _is_archive(path):
        return _archive(str(path), *_version(path))
    return Tree(str(path.parent), path.name)


def _version(path):
    """Time and size of a file, by which a new version is noticed."""
    status = path.stat()
    if is_remote(path):
        return status.mtime, status.length
    return status.st_mtime_ns, status.st_size


def _is_archive(path):
    name = path.name.lower()
    return name.endswith(_ARCHIVE_ENDINGS) or (
        # For names such as data.tar.old; my.target.tsv is a table.
        ".tar" in name and not is_remote(path) and tarfile.is_tarfile(path)
    )


@contextlib.contextmanager
def open_text(tree, name, newline=""):
    """Context manager of a file as UTF-8 text, without a byte order mark.

    Args:
        tree: Tree.
        name: str.
        newline: str, as in `open`.

    Raises:
        ValueError: the file is not UTF-8; the message names the line.
    """
    if is_columnar(name):
        place = tree.place(name)
        raise ValueError(f"{place}: this task reads no Parquet or Arrow files.")
    try:
        with tree.open(name) as file:
            yield io.TextIOWrapper(file, "utf-8-sig", newline=newline)
    except UnicodeDecodeError:
        # The decoder works on blocks, so search for the line.
        with tree.open(name) as file:
            for number, line in enumerate(file, start=1):
                decode(line, tree.place(name), number)
        raise


def decode(data, place, first_line=1):
    """Decode UTF-8 bytes, without a byte order mark.

    Args:
        data: bytes.
        place: str, path for messages.
        first_line: int, the number of the first line.

    Raises:
        ValueError: the bytes are not UTF-8; the message names the row.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        is_wide = data.startswith((b"\xff\xfe", b"\xfe\xff"))
        likely = "utf-16" if is_wide else "cp1252"
        raise ValueError(
            f"{place}, row {line}: the file is not UTF-8 (byte "
            f"0x{data[error.start]:02x}). Convert it, for example with "
            f"`iconv -f {likely} -t utf-8`."
        ) from None


def parse_json(text, place, first_line=1):
    """Parse JSON text.

    Args:
        text: str.
        place: str, path for messages.
        first_line: int, the number of the first line.

    Raises:
        ValueError: the text is empty; or it is broken, where the message
            names the row; or it opens more lists and objects than any task's.
    """
    if not text.strip():
        raise ValueError(f"{place}: the file is empty.")
    if len(text) > _MOST_CONTAINERS:
        count = text.count("[") + text.count("{")
        if count > _MOST_CONTAINERS:
            raise ValueError(
                f"{place}, row {first_line} or below: JSON of {count:,} lists "
                f"and objects; expected at most {_MOST_CONTAINERS:,}. Divide "
                "it into several files."
            )
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{place}, row {first_line + error.lineno - 1}: broken JSON "
            f"({error.msg} at column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:  # too many digits, or "["
        raise ValueError(
            f"{place}, row {first_line} or below: JSON that cannot be read "
            f"({error})."
        ) from None


def checked_text(value):
    """Return `value`, which must be a str.

    Raises:
        TypeError: it is not a str.
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value


class Tree:
    """Files of a directory or an archive, named with forward slashes.

    Args:
        path: str, the directory or archive.
        file: str, name of the only file, or None for all files.
        archive: fsspec file system of an archive, or None for a directory.
    """

    def __init__(self, path, file=None, archive=None):
        self.path = path
        self.file = file
        self.is_file = file is not None
        self._archive = archive
        if archive is not None:
            try:
                with _damage_named(path):
                    members = archive.find("")
            except IndexError:
                raise ValueError(
                    f"{path}: the archive is damaged, a member of it has no "
                    "name. Fetch it again."
                ) from None
            # Members may begin with "./".
            self._stored = {name.removeprefix("./"): name for name in members}
            self._names = sorted(filter(_is_data, self._stored))

    def place(self, name):
        """Path of a file or folder for messages, str."""
        return os.path.join(self.path, *name.split("/"))

    def bases(self, folder):
        """Folders that may hold a set published as `folder`, list of str."""
        if self._archive is None:
            return ["", folder or "data"]
        folders = {
            parent.as_posix()
            for name in self._names
            for parent in list(pathlib.PurePosixPath(name).parents)[:-1]
        }
        tops = {name.partition("/")[0] for name in self._names}
        same_name = [x for x in folders if posixpath.basename(x) == folder]
        only_top = sorted(tops & folders) if len(tops) == 1 else []
        return ["", *sorted(same_name, key=len), *only_top]

    def has(self, name):
        """Whether a file exists."""
        if self._archive is None:
            return as_path(self.place(name)).is_file()
        return name in self._names

    def matching(self, pattern):
        """Sorted names of the files that match a pattern.

        Args:
            pattern: str, a folder that is none, and a name that is one.
        """
        if self._archive is not None:
            return fnmatch.filter(self._names, pattern)
        folder, name = posixpath.split(pattern)
        top = as_path(self.place(folder) if folder else self.path)
        return sorted(posixpath.join(folder, x.name) for x in top.glob(name))

    def names_under(self, folder):
        """Sorted names of all files below a folder."""
        if self._archive is not None:
            return [x for x in self._names if x.startswith(f"{folder}/")]
        top = as_path(self.place(folder))
        below = names_below(top) if top.is_dir() else []
        names = [posixpath.join(folder, name) for name in below]
        return sorted(filter(_is_data, map(posixpath.normpath, names)))

    @contextlib.contextmanager
    def open(self, name):
        """Context manager of a file as a decompressed binary stream."""
        if self._archive is None:
            path = self.place(name)
            with _damage_named(path), local_copy(path) as copy:
                # Not `fsspec.open`, which takes "[1]" in a name for a pattern.
                opener = _opener(copy.name)
                with copy.open("rb") as raw:
                    if opener is None:
                        yield raw
                        return
                    with opener(raw) as file:
                        yield _expanded(file, path)
            return
        with _damage_named(self.path):
            with self._opened(name) as file:
                yield _expanded(file, self.path)

    def _opened(self, name):
        """The binary file of a member of an archive."""
        try:
            return self._archive.open(self._stored[name])
        # Links that lead nowhere or to themselves (RecursionError), members
        # with a password, devices, and names that are not UTF-8.
        except (
            LookupError,
            RuntimeError,
            AttributeError,
            UnicodeDecodeError,
        ) as error:
            raise ValueError(
                f"{self.place(name)}: the member of the archive is not a file "
                f"({error})."
            ) from None

    def read_many(self, names):
        """Yield (name, bytes) of each file, in any order."""
        if isinstance(self._archive, TarFileSystem):
            # Front to back: seeking back would decompress all again.
            stored = self._archive.index
            names = sorted(
                names, key=lambda name: stored[self._stored[name]][1]
            )
        for name in names:
            with self.open(name) as file:
                yield name, file.read()


@functools.lru_cache(maxsize=4)
def _archive(path, *version):
    """Tree of an archive, cached, as listing may decompress all of it."""
    with _damage_named(path), local_copy(path) as copy:
        # Stays open when the copy of a file in a bucket is removed.
        file = copy.open("rb")
        try:
            tree = Tree(path, archive=_file_system(path, file))
        except BaseException:
            file.close()
            raise
        weakref.finalize(tree, file.close)
        return tree


def _file_system(path, file):
    if path.lower().endswith(".zip"):
        try:
            return ZipFileSystem(file)
        except UnicodeDecodeError as error:
            raise ValueError(
                f"{path}: the archive is damaged, the name of a member is not "
                f"UTF-8 ({error}). Fetch it again."
            ) from None
    compression = _TAR_ENDINGS.get(os.path.splitext(path.lower())[1])
    if compression is not None:
        file = _expanded(compr[compression](file), path)
    return TarFileSystem(file)


def _opener(name):
    """Function that opens a compressed file by its name, or None."""
    if os.path.splitext(name.lower())[1] in ZSTD_ENDINGS:
        return ZstdFile
    compression = infer_compression(name)
    if compression is None:
        return None
    return functools.partial(compr[compression], mode="r")


def _expanded(file, path):
    """The decompressed bytes of a file of the archive or file at a path."""
    stored_bytes = size_of(path)
    return io.BufferedReader(ExpandedFile(file, stored_bytes, path))


def _is_data(name):
    """Whether a member is neither a folder nor metadata of macOS."""
    return not (
        name.endswith("/")
        or name.startswith("__MACOSX/")
        or posixpath.basename(name).startswith(".")
    )


@contextlib.contextmanager
def _damage_named(path):
    try:
        yield
    except (OSError, *_DAMAGE) as error:
        # Damaged data gives an error without a number, or that of a seek
        # before 0.
        is_damage = isinstance(error, _DAMAGE)
        if not is_damage and error.errno not in (None, errno.EINVAL):
            raise
        raise ValueError(
            f"{path}: the compressed file is damaged, cut short or of another "
            f"kind ({error}). Fetch it again."
        ) from None
