"""A directory, an archive or one file, read the same way and in place."""

import bz2
import contextlib
import functools
import gzip
import io
import lzma
import os
import posixpath
import tarfile
import zipfile
import zlib

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_DAMAGE = (
    EOFError,
    zlib.error,
    lzma.LZMAError,
    tarfile.TarError,
    zipfile.BadZipFile,
    gzip.BadGzipFile,
)


def open_tree(path):
    """The files at a path.

    Args:
        path: str or path-like, a directory, an archive (.zip, .tar, .tar.gz,
            .tgz, .tar.bz2, .tar.xz) or one file, which may end in .gz, .bz2
            or .xz.

    Returns:
        Tree. Of one file, `is_file` is True.

    Raises:
        FileNotFoundError: there is nothing at `path`.
    """
    path = os.path.expanduser(os.fspath(path))
    if os.path.isdir(path):
        return Tree(path)
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"there is no file or directory {path}, seen from {os.getcwd()}."
        )
    lower = path.lower()
    if lower.endswith(".zip"):
        return ZipTree(path)
    if ".tar" in lower.rpartition("/")[2] or lower.endswith(".tgz"):
        return TarTree(path)
    return Tree(os.path.dirname(path) or ".", os.path.basename(path))


@contextlib.contextmanager
def open_text(tree, name, newline=""):
    """Gives a file of a tree as UTF-8 text; a byte order mark is dropped.

    Args:
        tree: Tree.
        name: str.
        newline: str, as in `open`.

    Raises:
        ValueError: the file is not UTF-8; the message names the line.
    """
    try:
        with tree.open(name) as file:
            yield io.TextIOWrapper(file, "utf-8-sig", newline=newline)
    except UnicodeDecodeError:
        # The decoder works in blocks and does not know the line.
        with tree.open(name) as file:
            for number, line in enumerate(file, start=1):
                decode(line, tree.place(name), number)
        raise


def decode(data, place, first_line=1):
    """The UTF-8 text of some bytes, without a byte order mark.

    Args:
        data: bytes.
        place: str, for the message.
        first_line: int, the number of the first line.

    Raises:
        ValueError: not UTF-8.
    """
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise ValueError(
            f"{place}, row {line}: the file is not UTF-8 (byte "
            f"0x{data[error.start]:02x}). Convert it, for example with "
            "`iconv -f cp1252 -t utf-8`."
        ) from None


class Tree:
    """Files of a directory; names are relative, with forward slashes.

    Args:
        path: str, the directory.
        file: str, the name of the only file in it that counts, or None.
    """

    def __init__(self, path, file=None):
        self.path = path
        self.file = file
        self.is_file = file is not None

    def place(self, name):
        """str, the path of a file or folder, for messages."""
        return os.path.join(self.path, *name.split("/"))

    def bases(self, folder):
        """Folders in which a set may lie that is published as `folder`."""
        return ["", folder] if folder else [""]

    def has(self, name):
        """Whether there is such a file."""
        return os.path.isfile(self.place(name))

    def names_under(self, folder):
        """Sorted names of all files in a folder and those below it."""
        names = []
        for parent, _, files in os.walk(self.place(folder)):
            parent = os.path.relpath(parent, self.path).replace(os.sep, "/")
            names += [posixpath.join(parent, file) for file in files]
        return sorted(filter(_counts, names))

    @contextlib.contextmanager
    def open(self, name):
        """Gives the file, decompressed, as a binary stream."""
        path = self.place(name)
        opener = _OPENERS.get(os.path.splitext(path.lower())[1], open)
        with _damage_named(path), opener(path, "rb") as file:
            yield file

    def read_many(self, names):
        """Yields (name, bytes) of each file, in any order."""
        for name in names:
            with self.open(name) as file:
                yield name, file.read()


class _Archive(Tree):
    """What archives share: their names are listed once."""

    def __init__(self, path):
        super().__init__(path)
        status = os.stat(path)
        self._names = self._listed(path, status.st_mtime_ns, status.st_size)

    def bases(self, folder):
        folders = set()
        for name in self._names:
            parent = posixpath.dirname(name)
            while parent and parent not in folders:
                folders.add(parent)
                parent = posixpath.dirname(parent)
        tops = {name.partition("/")[0] for name in self._names}
        bases = [""] + sorted(
            (path for path in folders if posixpath.basename(path) == folder),
            key=len,
        )
        return bases + sorted(tops & folders if len(tops) == 1 else ())

    def has(self, name):
        return name in self._names

    def names_under(self, folder):
        return sorted(
            name for name in self._names if name.startswith(f"{folder}/")
        )


class ZipTree(_Archive):
    """Files of a .zip."""

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def _listed(path, *version):
        with _damage_named(path), zipfile.ZipFile(path) as archive:
            return frozenset(filter(_counts, archive.namelist()))

    @contextlib.contextmanager
    def open(self, name):
        with _damage_named(self.path), zipfile.ZipFile(self.path) as archive:
            with archive.open(name) as file:
                yield file

    def read_many(self, names):
        with _damage_named(self.path), zipfile.ZipFile(self.path) as archive:
            for name in names:
                yield name, archive.read(name)


class TarTree(_Archive):
    """Files of a tar, compressed or not, read from front to back."""

    @staticmethod
    @functools.lru_cache(maxsize=4)
    def _listed(path, *version):
        with _damage_named(path), tarfile.open(path, "r|*") as archive:
            names = (_plain(entry.name) for entry in archive if entry.isfile())
            return frozenset(filter(_counts, names))

    @contextlib.contextmanager
    def open(self, name):
        # Not a stream, "r|*": its files cannot be read as text.
        with _damage_named(self.path), tarfile.open(self.path, "r:*") as tar:
            for entry in tar:
                if _plain(entry.name) == name:
                    break
            yield tar.extractfile(entry)

    def read_many(self, names):
        left = set(names)
        with _damage_named(self.path), tarfile.open(self.path, "r|*") as tar:
            for entry in tar:
                name = _plain(entry.name)
                if name in left:
                    left.remove(name)
                    yield name, tar.extractfile(entry).read()
                    if not left:
                        return


def _plain(name):
    return name.removeprefix("./")


def _counts(name):
    """Not a folder, nor what macOS puts beside every file."""
    return not (
        name.endswith("/")
        or name.startswith("__MACOSX/")
        or posixpath.basename(name).startswith(".")
    )


@contextlib.contextmanager
def _damage_named(path):
    try:
        yield
    except _DAMAGE as error:
        raise ValueError(
            f"{path}: the compressed file is damaged, cut short or of another "
            f"kind ({error}). Fetch it again."
        ) from None
