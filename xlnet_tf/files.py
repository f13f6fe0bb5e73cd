"""Files that exist whole or not at all, JSON files, and digests.

All files of this package are written through `written_whole`.
"""

import contextlib
import hashlib
import json
import os
import pathlib
import shutil


@contextlib.contextmanager
def written_whole(path):
    """Context in which a file or a directory is written and then renamed.

    Where the block fails, what stood at `path` before still does. A file is
    flushed to the disk before it is renamed, so that after a power loss too it
    is the old one or the new one; a directory is not.

    Several files that belong together enter one `contextlib.ExitStack`: they
    are renamed after all are written, the one that was entered first last.

    Args:
        path: path of a file, or of a directory that is absent or empty.

    Yields:
        path beside it, with the same ending, to write to.
    """
    path = pathlib.Path(path)
    temporary = path.with_name(f".{os.getpid()}.{path.name}")
    try:
        yield temporary
        if temporary.is_file():
            with open(temporary, "rb+") as file:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    finally:
        if temporary.is_dir():
            shutil.rmtree(temporary, ignore_errors=True)
        else:
            temporary.unlink(missing_ok=True)


def write_bytes(file, data):
    """Writes a file, whole or not at all.

    Args:
        file: path.
        data: bytes.
    """
    with written_whole(file) as temporary:
        temporary.write_bytes(data)


def write_json(file, value, **options):
    """Writes a value as a JSON file, whole or not at all.

    Args:
        file: path.
        value: what JSON can hold.
        **options: of `json.dumps`.
    """
    text = json.dumps(value, indent=2, **options)
    write_bytes(file, (text + "\n").encode())


def read_json(file):
    """The value of a JSON file.

    Raises:
        ValueError: if it is not JSON.
    """
    try:
        return json.loads(pathlib.Path(file).read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not a JSON file: {error}.") from error


def read_json_object(file):
    """The dict of a JSON file.

    Raises:
        ValueError: if it is not JSON, or holds another value.
    """
    values = read_json(file)
    if not isinstance(values, dict):
        raise ValueError(f"{file} does not hold a JSON object.")
    return values


def digest_of_weights(path):
    """A short digest of the weight files in a directory.

    Of HDF5 files only the names and values of arrays count: Keras writes times
    and counters beside them, so that two files of the same weights differ.
    JSON files and folders are left out.

    Args:
        path: path of a directory.

    Returns:
        str, 16 hexadecimal digits.
    """
    digest = hashlib.sha256()
    for file in sorted(pathlib.Path(path).glob("*")):
        if file.is_file() and file.suffix != ".json":
            digest.update(file.name.encode())
            if not (file.suffix == ".h5" and _add_values(file, digest)):
                _add_bytes(file, digest)
    return digest.hexdigest()[:16]


def _add_values(file, digest):
    """Adds the arrays of an HDF5 file; False if it is none."""
    import h5py  # as Keras does

    def add(name, item):
        if isinstance(item, h5py.Dataset):
            digest.update(f"{name} {item.shape} {item.dtype}".encode())
            digest.update(item[()].tobytes())

    try:
        with h5py.File(file, "r") as arrays:
            arrays.visititems(add)
    except OSError:
        return False
    return True


def _add_bytes(file, digest):
    with open(file, "rb") as handle:
        while chunk := handle.read(1 << 24):
            digest.update(chunk)
