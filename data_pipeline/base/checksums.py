"""`SHA256SUMS` files of directories, which reveal damaged and missing files."""

import re

from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_below
from data_pipeline.base.files import names_below
from data_pipeline.base.files import sha256_of
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import write_json

# A list of digests in the format of `sha256sum`.
CHECKSUMS_FILE = "SHA256SUMS"
_CHECKSUM = re.compile("([0-9a-f]{64}) [ *](.+)")


def write_checksums(directory):
    """Write the SHA-256 digests of a directory's files to its `SHA256SUMS`.

    Args:
        directory: path. Both `verify_checksums` and the command `sha256sum -c
            SHA256SUMS` can check the files.
    """
    directory = as_path(directory)
    names = [x for x in names_below(directory) if x != CHECKSUMS_FILE]
    digests = {x: sha256_of(directory / x) for x in names}
    write_listing(directory / CHECKSUMS_FILE, digests)


def add_checksums(directory, names, listing=CHECKSUMS_FILE):
    """Add the SHA-256 digests of new files to a directory's list of digests.

    The entries of files that no longer exist are removed.

    Args:
        directory: path.
        names: list of str, paths of the new files, relative to the directory.
        listing: str, file name of the list. Default `SHA256SUMS`.
    """
    directory = as_path(directory)
    file = directory / listing
    known = _read_digests(file) if file.is_file() else {}
    digests = {k: v for k, v in known.items() if (directory / k).is_file()}
    digests |= {name: sha256_of(directory / name) for name in names}
    write_listing(file, digests)


def write_listed(directory, values):
    """Write JSON files and add their digests to the directory's `SHA256SUMS`.

    The old entry of a file is removed before the file is written. If the
    process is killed before the new entry is added, the new file has no entry
    instead of a wrong entry.

    Args:
        directory: path.
        values: dict of file names to JSON values.

    Raises:
        ValueError: `SHA256SUMS` is damaged.
    """
    directory = as_path(directory)
    listing = directory / CHECKSUMS_FILE
    known = _read_digests(listing) if listing.is_file() else {}
    if set(known) & set(values):
        others = {k: v for k, v in known.items() if k not in values}
        write_listing(listing, others)
    for name, value in values.items():
        write_json(directory / name, value)
    add_checksums(directory, list(values))


def write_listing(file, digests):
    """Write SHA-256 digests to a file, in the format of `sha256sum -c`.

    Args:
        file: path.
        digests: dict of str to str. The keys are paths relative to the
            directory of `file`. The values are SHA-256 digests of these files.
    """
    lines = [f"{digests[name]}  {name}\n" for name in sorted(digests)]
    write_bytes(file, "".join(lines).encode())


def verify_checksums(directory, names=None, listing=CHECKSUMS_FILE):
    """Compare files in a directory with the digests in its `SHA256SUMS`.

    Args:
        directory: path. If the directory has no `SHA256SUMS`, nothing is
            compared. Models from other libraries do not have this file.
        names: list of str, paths below the directory, or None for all listed
            files. Names without a digest in the list are ignored.
        listing: str, name of the file that lists the digests.

    Returns:
        list of str, all file names in the list, even if `names` lacks them.

    Raises:
        ValueError: a file is missing or was changed.
    """
    directory = as_path(directory)
    listing = directory / listing
    digests = _read_digests(listing) if listing.is_file() else {}
    for name, digest in digests.items():
        if names is not None and name not in names:
            continue
        file = directory / name
        if not is_below(name):
            raise ValueError(
                f"{listing} names {name!r}, which is not in {directory}."
            )
        if not file.is_file():
            raise ValueError(f"{file} is missing; {listing} names it.")
        if sha256_of(file) != digest:
            raise ValueError(
                f"{file} is damaged, or was not saved together with the files "
                f"beside it: its SHA-256 is not that in {listing}. Fetch or "
                f"save it again; without {listing.name} it is not checked."
            )
    return list(digests)


def _read_digests(listing):
    """Read a `SHA256SUMS` file as a dict of file names to digests."""
    digests = {}
    for line in listing.read_bytes().splitlines():
        match = _CHECKSUM.fullmatch(line.decode(errors="replace"))
        if match is None:
            raise ValueError(
                f"{listing} is damaged: {line[:80]!r} has no SHA-256 and name."
            )
        digests[match[2]] = match[1]
    return digests
