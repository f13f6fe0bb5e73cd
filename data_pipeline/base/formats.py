"""Versions of the formats of stored files."""

import reprlib

# Field of the JSON file that is read first.
FORMAT_VERSION = "format_version"


def check_version(file, found, known):
    """Refuse a file of another version of its format.

    Args:
        file: path, for the error.
        found: the version in the file, or None if there is none.
        known: int, the version that this library reads.

    Raises:
        ValueError: if they differ.
    """
    if type(found) is int and found == known:
        return
    shown = "no format version"
    if found is not None:
        shown = f"the format version {reprlib.repr(found)}"
    raise ValueError(
        f"{file} has {shown}, and this release reads version {known} alone. "
        "Write it again with this release, or use the one that wrote it."
    )
