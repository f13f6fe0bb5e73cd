"""Access to the files of a directory or an archive, without unpacking."""

import contextlib
import fnmatch
import functools
import io
import json
import os
import pathlib
import posixpath
import tarfile
import weakref
import zipfile

from data_pipeline.base import files
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import names_below
from data_pipeline.base.files import refuse_pipe
from data_pipeline.base.files import size_of
from data_pipeline.base.files import with_home
from data_pipeline.text import saved_datasets
from data_pipeline.text.columnar import is_columnar
from data_pipeline.text.compression import damage_named
from data_pipeline.text.compression import decompressed
from data_pipeline.text.compression import expanded
from data_pipeline.text.files import TextError

_ARCHIVE_ENDINGS = (
    ".zip",
    ".tar",
    ".tgz",
    ".tar.gz",
    ".tar.bz2",
    ".tar.xz",
)


def open_tree(path):
    """Open a directory, an archive or a single file as a Tree.

    Args:
        path: str or path-like, local or in a bucket (gs://). The path is a
            directory, an archive (.zip, .tar, .tar.gz, .tgz, .tar.bz2,
            .tar.xz), the directory of a data set that Hugging Face's `datasets`
            saved, or a single file. A single file may be compressed (.gz, .bz2,
            .xz, .zst).

    Returns:
        Tree. `is_file` is True for a single file and for a saved data set.

    Raises:
        FileNotFoundError: `path` does not exist.
        ValueError: an archive is damaged, or `path` is a pipe or a device.
    """
    path = as_path(with_home(os.fspath(path)))
    if path.is_dir():
        is_saved = saved_datasets.is_saved(path)
        return Tree(str(path), saved_datasets.STATE if is_saved else None)
    refuse_pipe(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no file or directory {path}, seen from {os.getcwd()}."
        )
    if is_archive(path):
        status = path.stat()
        time = status.mtime if is_remote(path) else status.st_mtime_ns
        return _archive(str(path), (time, size_of(path)))
    return Tree(str(path.parent), path.name)


def is_archive(path):
    """Whether a file is an archive, bool.

    The suffix of the file name decides. For a local file with ".tar" inside
    its name, such as data.tar.old, the content of the file decides.

    Args:
        path: path from `as_path`.
    """
    name = path.name.lower()
    return name.endswith(_ARCHIVE_ENDINGS) or (
        # The content decides for names such as data.tar.old. But my.target.tsv
        # is a table.
        ".tar" in name and not is_remote(path) and tarfile.is_tarfile(path)
    )


class Tree:
    """Files of a directory or an archive, with forward slashes in names.

    Args:
        path: str, path of the directory or archive. For a single file, the path
            of its directory.
        file: str, name of the single file, or None for all files of `path`.
        archive: zipfile.ZipFile, tarfile.TarFile, or None for a directory.

    Attributes:
        path: str.
        file: str or None.
        is_file: bool.
    """

    def __init__(self, path, file=None, archive=None):
        self.path = path
        self.file = file
        self.is_file = file is not None
        self._archive = archive
        if archive is not None:
            self._size = size_of(path)
            self._members = _members(archive)
            self._names = sorted(self._members)

    def place(self, name):
        """Return the full path of a file or folder, str."""
        return os.path.join(self.path, *name.split("/"))

    def bases(self, folder):
        """List the folders that may hold the files of a data set.

        Args:
            folder: str, name of the published folder, or None.
        """
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
        """Whether a file exists, bool."""
        if self._archive is None:
            return as_path(self.place(name)).is_file()
        return name in self._members

    def matching(self, pattern):
        """List the names of the files that match a pattern, sorted.

        Args:
            pattern: str, such as "data/train-*.csv". The name of the file may
                contain wildcards, but the path of the folder may not.
        """
        if self._archive is not None:
            return fnmatch.filter(self._names, pattern)
        folder, name = posixpath.split(pattern)
        top = as_path(self.place(folder) if folder else self.path)
        return sorted(posixpath.join(folder, x.name) for x in top.glob(name))

    def names_under(self, folder):
        """List the names of all files below a folder, sorted."""
        if self._archive is not None:
            begin = f"{folder}/" if folder else ""
            return [x for x in self._names if x.startswith(begin)]
        top = as_path(self.place(folder))
        below = names_below(top) if top.is_dir() else []
        names = [posixpath.join(folder, name) for name in below]
        return sorted(filter(_is_data, map(posixpath.normpath, names)))

    @contextlib.contextmanager
    def open(self, name):
        """Context manager that opens a file for reading decompressed bytes."""
        if self._archive is not None:
            with self._opened(name) as member:
                file = expanded(member, self._size, self.path)
                yield decompressed(file, name, self.path)
            return
        path = self.place(name)
        # Make a copy, because `fsspec.open` would treat "[1]" in a name as a
        # pattern.
        with local_copy(path) as copy, copy.open("rb") as file:
            yield decompressed(file, name, path)

    def _opened(self, name):
        """Open a member of an archive as a binary file."""
        member = self._members[name]
        with damage_named(self.path):
            try:
                if isinstance(member, zipfile.ZipInfo):
                    return self._archive.open(member)
                file = self._archive.extractfile(member)
                if file is None:
                    raise LookupError("it is a device")
                return file
            # Raised for links to nowhere or to themselves (RecursionError),
            # members with a password, and names that are not UTF-8.
            except (LookupError, RuntimeError, UnicodeDecodeError) as error:
                raise TextError(
                    f"{self.place(name)}: the member of the archive is not a "
                    f"file ({error})."
                ) from None

    @contextlib.contextmanager
    def open_text(self, name, newline=""):
        """Context manager that opens a file as UTF-8 text.

        A byte order mark at the beginning is skipped.

        Args:
            name: str.
            newline: str, as in Python's `open`.

        Raises:
            ValueError: the file is not UTF-8. The message names the line.
        """
        place = self.place(name)
        if is_columnar(name):
            raise ValueError(
                f"{place}: this task reads no Parquet or Arrow files."
            )
        try:
            with self.open(name) as file:
                yield io.TextIOWrapper(file, "utf-8-sig", newline=newline)
        except UnicodeDecodeError:
            # The decoder reads blocks. Search for the line with the error.
            with self.open(name) as file:
                for number, line in enumerate(file, start=1):
                    _decoded(line, place, number)
            raise

    def read_texts(self, names):
        """Yield the name and the text of each file in `names`, in any order.

        Args:
            names: list of str.

        Raises:
            ValueError: a file is not UTF-8. The message names the line.
        """
        if isinstance(self._archive, tarfile.TarFile):
            # Read from front to back: seeking back would decompress all bytes
            # again.
            names = sorted(names, key=lambda x: self._members[x].offset_data)
        for name in names:
            with self.open(name) as file:
                yield name, _decoded(file.read(), self.place(name))


@functools.lru_cache(maxsize=4)
def _archive(path, version):
    """Make the Tree of an archive.

    The Tree is cached, because listing an archive's files may decompress the
    whole archive.
    """
    with contextlib.ExitStack() as stack:
        with local_copy(path) as copy:
            # The file stays open after the local copy of a bucket's file is
            # removed.
            file = stack.enter_context(copy.open("rb"))
        with damage_named(path):
            tree = Tree(path, archive=_opened(path, file))
        weakref.finalize(tree, stack.pop_all().close)
    return tree


def _opened(path, file):
    """Open an archive as a ZipFile or TarFile."""
    if not path.lower().endswith(".zip"):
        name = path.lower().replace(".tgz", ".gz")
        return tarfile.TarFile(fileobj=decompressed(file, name, path))
    try:
        return zipfile.ZipFile(file)
    except UnicodeDecodeError as error:
        raise TextError(
            f"{path}: the archive is damaged, the name of a member is not "
            f"UTF-8 ({error}). Fetch it again."
        ) from None


def _members(archive):
    """Make a dict from an archive's file names to ZipInfo or TarInfo."""
    if isinstance(archive, zipfile.ZipFile):
        # Some Windows programs write backslashes in names.
        entries = archive.infolist()
        members = {x.filename.replace("\\", "/"): x for x in entries}
    else:
        members = {x.name: x for x in archive if not x.isdir()}
    # Names may begin with "./". In a .zip, names of folders end with "/".
    named = {
        posixpath.normpath(name): member
        for name, member in members.items()
        if not name.endswith("/")
    }
    return {name: x for name, x in named.items() if _is_data(name)}


def _is_data(name):
    """Whether a file is neither hidden nor metadata of macOS, bool."""
    is_hidden = posixpath.basename(name).startswith(".")
    return not is_hidden and not name.startswith("__MACOSX/")


def _decoded(data, place, first_line=1):
    """Decode UTF-8 bytes and skip a byte order mark.

    Args:
        data: bytes.
        place: str, path of the file, for messages.
        first_line: int, number of the first line of `data` in the file.

    Raises:
        ValueError: the bytes are not UTF-8. The message names the line.
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
        place: str, path of the file, for messages.
        first_line: int, number of the first line of `text` in the file.

    Raises:
        ValueError: the text is empty or not valid JSON, or an object has the
            same key twice. The message names the line of the error.
    """
    if not text.strip():
        raise ValueError(f"{place}: the file is empty.")
    try:
        return files.parse_json(text)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"{place}, row {first_line + error.lineno - 1}: broken JSON "
            f"({error.msg} at column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:  # equal keys, deep nesting
        raise ValueError(
            f"{place}, row {first_line} or below: JSON that cannot be read "
            f"({error})."
        ) from None


def checked_list(value):
    """Return a value after checking that it is a list.

    Raises:
        TypeError: the value is not a list.
    """
    if not isinstance(value, list):
        raise TypeError(f"{value!r} is not a list")
    return value


def checked_text(value):
    """Return a value after checking that it is a str.

    Raises:
        TypeError: the value is not a str.
    """
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is not a text")
    return value
