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


def digest_of_directory(path):
    """What the files of a directory hold, in a few letters.

    Args:
        path: path. Its folders are left out, and metadata.json too, which has
            the hour at which the same weights were written.

    Returns:
        str.
    """
    digest = hashlib.sha256()
    for file in sorted(pathlib.Path(path).glob("*")):
        if not file.is_file() or file.name == "metadata.json":
            continue
        digest.update(file.name.encode())
        with open(file, "rb") as handle:
            while chunk := handle.read(1 << 24):
                digest.update(chunk)
    return digest.hexdigest()[:16]


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
