"""Functions for paths, atomic writes and JSON files.

All packages open paths with `as_path` and write files with `written_whole`.
"""

import contextlib
import ctypes
import errno
import hashlib
import json
import os
import pathlib
import shutil
import sys
import tempfile
import uuid

from data_pipeline.base import hub
from data_pipeline.base import urls
from data_pipeline.base.command_line import printable
from data_pipeline.base.limits import MOST_JSON_BYTES
from data_pipeline.base.limits import check_length
from data_pipeline.base.limits import shown

# Prefix of the names of files that are not complete.
_UNFINISHED = ".tmp-"
_CHUNK = 1 << 24
# The constants AT_FDCWD and RENAME_EXCHANGE of Linux.
_HERE, _EXCHANGE = -100, 2


def as_path(path):
    """Convert text to a path object, local or in a bucket.

    Args:
        path: str or path. `~/...` is below the home directory. A model
            `hf://OWNER/NAME` is downloaded, see `hub`. TensorFlow
            (`tf.io.gfile`) opens `gs://BUCKET/...`. If TensorFlow is imported
            and supports the scheme s3 or az, TensorFlow also opens paths with
            this scheme. fsspec opens paths with all other schemes that fsspec
            supports. Paths with https and `hf://datasets/OWNER/NAME/...` are
            read only.

    Returns:
        pathlib.Path for a local file, else etils.epath.Path or `urls.UrlPath`,
        which have the methods of pathlib.Path.

    Raises:
        ValueError: the scheme is unknown, no file can have this name, or the
            path begins with `~` and there is no home directory.
        OSError: a model of the hub cannot be downloaded.
    """
    text = os.fspath(path)
    if not is_path(text):
        raise ValueError(f"{text!r} cannot be the name of a file.")
    scheme, separator, _ = text.partition("://")
    if not separator:
        is_home = text == "~" or text.startswith("~/")
        return pathlib.Path(with_home(text) if is_home else text)
    if text.startswith(urls.DATASETS):
        return urls.UrlPath(text)
    if scheme == "hf":
        return hub.fetched(text)
    if scheme in ("s3", "az") and not _tensorflow_knows(scheme):
        return urls.UrlPath(text)
    from etils import epath  # slow: doubles the time of a --help

    try:
        return epath.Path(text)
    except KeyError:
        return urls.UrlPath(text)


def with_home(path):
    """Replace `~` in a local path or glob by the home directory.

    Args:
        path: str.

    Returns:
        str.

    Raises:
        ValueError: there is no home directory, as in some containers.
    """
    expanded = os.path.expanduser(path)
    is_lost = expanded == path or os.environ.get("HOME") == ""
    if is_lost and (path == "~" or path.startswith("~/")):
        raise ValueError(
            f"{path}: this user has no home directory. Set the variable HOME, "
            "or give the whole path."
        )
    return expanded


def refuse_pipe(path):
    """Refuse an input path that is a pipe or a device.

    Input is read more than once, which a pipe does not allow.

    Args:
        path: path from `as_path`.

    Raises:
        ValueError: the path is a pipe, a terminal or another device.
    """
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(
            f"{path} is a pipe, a terminal or a device, and input is read more "
            "than once: write its content to a file first."
        )


def is_remote(path):
    """Whether a path is not local, bool. Models of the hub count as local."""
    return "://" in os.fspath(path) and not is_model_of_hub(path)


def is_model_of_hub(path):
    """Whether a path is `hf://OWNER/NAME` or below such a model, bool."""
    text = os.fspath(path)
    return text.startswith(hub.SCHEME) and not text.startswith(urls.DATASETS)


def check_tensorflow_reads(path, advice):
    """Refuse a path that only fsspec, not TensorFlow, can open.

    Args:
        path: path from `as_path`.
        advice: str, a sentence for the end of the message.

    Raises:
        ValueError: the path is a `urls.UrlPath`.
    """
    if isinstance(path, urls.UrlPath):
        raise ValueError(
            f"{path}: TensorFlow reads and writes local disks and gs:// alone. "
            f"{advice}"
        )


def _tensorflow_knows(scheme):
    """Whether TensorFlow is imported and can open a scheme, bool."""
    tensorflow = sys.modules.get("tensorflow")
    return tensorflow is not None and (
        scheme in tensorflow.io.gfile.get_registered_schemes()
    )


@contextlib.contextmanager
def local_copy(path):
    """Context manager that provides a local copy of a file or directory.

    Some libraries, such as HDF5, can only read local files.

    Args:
        path: path of a file or directory, local or in a bucket.

    Yields:
        pathlib.Path of the copy, or `path` itself if it is local.
    """
    if not is_remote(path):
        yield as_path(path)
        return
    with tempfile.TemporaryDirectory() as folder:
        target = pathlib.Path(folder) / as_path(path).name
        copy_tree(path, target)
        yield target


@contextlib.contextmanager
def written_whole(path, replace_directory=False):
    """Context manager for an atomic write of a file or directory.

    The `with` block writes to a temporary path, which is then renamed to
    `path`. If the block fails, `path` keeps its old content. If two processes
    write `path` at once, `path` has the complete content from one of the two.
    The data is flushed to the disk before the rename, so even a power loss
    leaves either the old or the new content.

    For files that belong together, enter one `written_whole` per file in the
    same `contextlib.ExitStack`. All files are then written before the first
    rename, and the file entered first is renamed last.

    In a bucket, a file is replaced in one step, but a directory is replaced
    file by file. `verify_checksums` detects a directory that is not complete. A
    directory for a model of the hub is uploaded in one commit.

    Args:
        path: path of a file or directory. A missing parent is created.
        replace_directory: bool, whether to replace a directory that is not
            empty. The old directory is deleted after the rename. On Linux, a
            directory exists at `path` at every moment.

    Yields:
        local pathlib.Path with the suffix of `path`. Write the file or
        directory there.

    Raises:
        FileExistsError: `path` is a directory that is not empty, and
            `replace_directory` is False.
        ValueError: `path` is a device such as /dev/null, or a socket.
        OSError: the disk is full or writing fails. The error names `path`.
    """
    if is_model_of_hub(path):
        hub.parts(os.fspath(path))  # refuse other forms early
        with tempfile.TemporaryDirectory() as folder:
            temporary = pathlib.Path(folder) / os.path.basename(path)
            yield temporary
            hub.upload(temporary, os.fspath(path))
        return
    path = as_path(path)
    if path.exists() and not (path.is_file() or path.is_dir()):
        raise ValueError(f"{path} is a device or a socket; give another path.")
    path.parent.mkdir(parents=True, exist_ok=True)
    if is_remote(path):
        with tempfile.TemporaryDirectory() as folder:
            temporary = pathlib.Path(folder) / path.name
            yield temporary
            copy_tree(temporary, path)
        return
    temporary = _beside(path)
    try:
        with errors_of_disk(temporary, path):
            yield temporary
            _flush_tree(temporary)
            _rename(temporary, path, replace_directory)
            flush(path.parent)
    finally:
        remove(temporary)


@contextlib.contextmanager
def errors_of_disk(temporary, path):
    """Context manager that puts the user's file name into disk errors.

    Libraries raise their own error classes for a full disk and do not name the
    file.

    Args:
        temporary: path that the block writes to.
        path: path that `temporary` will be renamed to.

    Raises:
        OSError: a disk error. Its `filename` is `path` or a file below `path`.
    """
    try:
        yield
    except Exception as error:
        if not isinstance(error, OSError):
            if not is_of_full_disk(error):
                raise
            error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # Without an `errno`, setting `filename` would hide the error's text.
        if error.errno is not None:
            name = os.fspath(error.filename or path)
            name = os.fsdecode(name) if isinstance(name, bytes) else str(name)
            error.filename = name.replace(str(temporary), str(path), 1)
        raise error


def is_of_full_disk(error):
    """Whether an error reports a full disk or an exceeded quota, bool.

    Args:
        error: Exception. Its error number and its message are checked.
    """
    numbers = (errno.ENOSPC, errno.EDQUOT)
    return getattr(error, "errno", None) in numbers or any(
        os.strerror(number) in str(error) for number in numbers
    )


def is_unfinished(path):
    """Whether a path is a temporary path of `written_whole`, bool."""
    return os.path.basename(os.fspath(path)).startswith(_UNFINISHED)


def remove(path):
    """Remove a file or directory if it exists."""
    path = as_path(path)
    if path.is_dir() and not (not is_remote(path) and path.is_symlink()):
        if is_remote(path):
            path.rmtree()
        else:
            shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)


def copy_tree(source, target):
    """Copy a file or a directory, locally or to and from a bucket.

    Args:
        source: path.
        target: path. Existing files with the same names are replaced.
    """
    source, target = as_path(source), as_path(target)
    if source.is_dir():
        target.mkdir(parents=True, exist_ok=True)
        for file in sorted(source.iterdir()):
            copy_tree(file, target / file.name)
        return
    if is_remote(target) and not is_remote(source):
        _upload(source, target)
        return
    with source.open("rb") as reader, target.open("wb") as writer:
        writer.write(b"")  # creates an empty file in a bucket too
        shutil.copyfileobj(reader, writer, _CHUNK)


def _upload(file, target):
    """Upload a local file to a bucket in one call.

    If an exception interrupted a loop of writes, closing the remote file would
    replace the old content by the part that was written.
    """
    if isinstance(target, urls.UrlPath):
        target.upload(file)
        return
    from etils import epath

    epath.Path(file).copy(target, overwrite=True)


def write_bytes(file, data):
    """Write bytes to a file, atomically.

    Args:
        file: path.
        data: bytes.
    """
    with written_whole(file) as temporary:
        temporary.write_bytes(data)


def write_json(file, value, **options):
    """Write a value as a JSON file, atomically.

    Args:
        file: path.
        value: any value that JSON can represent.
        **options: arguments of `json.dumps`.
    """
    text = json.dumps(value, indent=2, **options)
    write_bytes(file, (text + "\n").encode())


def parse_json(text):
    """Parse JSON text.

    Args:
        text: str or bytes.

    Raises:
        ValueError: the text is not JSON, or an object has the same key twice.
            (Python's own parser would use the last value of this key.)
        RecursionError: the value is nested too deeply.
    """
    return json.loads(text, object_pairs_hook=_as_dict)


def _as_dict(pairs):
    values = dict(pairs)
    if len(values) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise ValueError(f"the key {shown(twice)} is there twice")
    return values


def read_json(file, most_bytes=MOST_JSON_BYTES):
    """Read a JSON file and return its value.

    Raises:
        ValueError: the file is not JSON, or is longer than `most_bytes`.
    """
    check_length(file, size_of(file), most_bytes)
    try:
        return parse_json(as_path(file).read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} is not a JSON file: {error}.") from error


def read_json_object(file, most_bytes=MOST_JSON_BYTES):
    """Read a dict from a JSON file; raise ValueError for any other value."""
    values = read_json(file, most_bytes)
    if not isinstance(values, dict):
        raise ValueError(f"{file} does not hold a JSON object.")
    return values


def json_line(value):
    """Format a value as one line of JSON; do not escape non-ASCII letters.

    Args:
        value: dict or list that JSON can represent.

    Returns:
        str, with a line end. The characters that `printable` escapes are
        escaped. Lone surrogates, which UTF-8 cannot encode, are also escaped.
    """
    line = printable(json.dumps(value, ensure_ascii=False))
    return line.encode(errors="backslashreplace").decode() + "\n"


def read_json_lines(file):
    """Read a file with one JSON object per line; skip truncated lines.

    Args:
        file: path.

    Returns:
        list of dict. A missing file gives an empty list.
    """
    lines = []
    if not as_path(file).is_file():
        return lines
    content = as_path(file).read_bytes().decode(errors="replace")
    for text in content.splitlines():
        with contextlib.suppress(ValueError, RecursionError):
            lines.append(json.loads(text))
    return [line for line in lines if isinstance(line, dict)]


def read_range(file, begin, end):
    """Read the bytes of a file from `begin` to `end` (exclusive)."""
    path = as_path(file)
    if isinstance(path, urls.UrlPath):
        return path.read_range(begin, end)
    with path.open("rb") as handle:
        handle.seek(begin)
        return handle.read(end - begin)


def size_of(file):
    """Size of a file in bytes, int."""
    stat = as_path(file).stat()
    return stat.length if is_remote(file) else stat.st_size


def sha256_of(file):
    """Compute the SHA-256 of a file, str of 64 hexadecimal digits."""
    digest = hashlib.sha256()
    add_bytes(file, digest)
    return digest.hexdigest()


def is_below(name):
    """Whether a relative path is valid and stays below its directory, bool."""
    parts = pathlib.PurePosixPath(name).parts
    return is_path(name) and not os.path.isabs(name) and ".." not in parts


def is_path(name):
    """Whether a name is valid for a file, bool.

    A valid name has no NUL. Of the lone surrogates, only U+DC80 to U+DCFF are
    valid. Python uses these surrogates for bytes that are not UTF-8.
    """
    try:
        return b"\0" not in os.fsencode(name)
    except UnicodeEncodeError:
        return False


def names_below(directory, prefix=""):
    """List the paths of all files below a directory, sorted list of str."""
    names = []
    for path in sorted(directory.iterdir()):
        name = f"{prefix}{path.name}"
        if path.is_dir():
            names += names_below(path, f"{name}/")
        elif not is_unfinished(path):
            names.append(name)
    return names


def add_bytes(file, digest):
    """Add the bytes of a file to a hashlib digest."""
    with as_path(file).open("rb") as handle:
        while chunk := handle.read(_CHUNK):
            digest.update(chunk)


def _beside(path):
    """Return an unused temporary path beside `path`, with the same suffix."""
    return path.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}-{path.name}")


def _rename(new, path, replace_directory):
    """Rename a new file or directory to `path`."""
    if replace_directory and path.is_dir() and _exchange(new, path):
        return  # the caller removes the old directory, now at `new`
    while True:
        old = None
        if replace_directory and path.is_dir():
            old = _beside(path)
            path.rename(old)
        try:
            os.replace(new, path)
        except OSError as error:
            if old and not path.exists():
                old.rename(path)
            elif old:  # another process has written `path` meanwhile
                remove(old)
                continue
            elif error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                raise FileExistsError(
                    errno.EEXIST, os.strerror(errno.EEXIST), str(path)
                ) from error
            raise
        if old:
            remove(old)
        return


def _exchange(one, other):
    """Exchange the content of two paths in one step; return True on success."""
    try:
        rename = ctypes.CDLL(None).renameat2  # only Linux has it
    except (AttributeError, OSError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    return rename(_HERE, names[0], _HERE, names[1], _EXCHANGE) == 0


def _flush_tree(path):
    if path.is_dir():
        # Flush directories too: they store the names of files.
        for inner in path.rglob("*"):
            if inner.exists():
                flush(inner)
    flush(path)


def flush(path):
    """Flush a local file or a directory's list of file names to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
