"""Files that are there whole or not at all."""

import hashlib
import json
import os
import pathlib
import tempfile


def write_bytes(file, data):
    """Writes a file under a temporary name, then renames it.

    Args:
        file: path.
        data: bytes.
    """
    descriptor, temporary = tempfile.mkstemp(
        dir=file.parent, prefix=f".{file.name}."
    )
    try:
        with os.fdopen(descriptor, "wb") as handle:
            handle.write(data)
        os.chmod(temporary, 0o644)
        os.replace(temporary, file)
    except BaseException:
        os.unlink(temporary)
        raise


def digest_of_weights(path):
    """What the weights in a directory are, in a few letters.

    Args:
        path: path of a directory. Of HDF5 files only the values count, for
            Keras writes names and hours beside them, so that no two files of
            the same weights are equal. JSON files, which are no weights, are
            left out, and folders too.

    Returns:
        str.
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


def write_json(file, value):
    """Writes a value as a JSON file, whole or not at all."""
    write_bytes(file, (json.dumps(value, indent=2) + "\n").encode())


def read_json(file):
    """The value of a JSON file.

    Raises:
        ValueError: if it is not JSON.
    """
    try:
        return json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{file} is not a JSON file: {error}.") from error
