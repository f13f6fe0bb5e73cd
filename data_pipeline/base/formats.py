"""Checks of the format versions of stored files."""

import reprlib

# Key of the version in the JSON file that is read first.
FORMAT_VERSION = "format_version"


def check_version(file, found, known):
    """Refuse a file with an unknown format version.

    Args:
        file: path, for the message.
        found: the version in the file, or None if the file has no version.
        known: int, the version that this library can read.

    Raises:
        ValueError: `found` and `known` differ.
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
