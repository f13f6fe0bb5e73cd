"""Resuming an interrupted build.

A `.done` file, written when the shards of a part are on the disk, marks the
part as finished. `build.json` holds the plan: text files, tokenizer and
settings. Only a build with the same plan is resumed.
"""

import hashlib
import json
import os

from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.part import BuiltPart
from xlnet_tf import files

PLAN = "build.json"
# Increase it when the same text, settings and seed give other records.
_BUILDING_VERSION = 2
_DONE = ".done"


class ChangedTextError(ValueError):
    """The text differs from that of the interrupted build."""


def make_plan(files, tokenizer, settings, text_format, encoding):
    """Plan of a build: everything that determines the bytes of the set.

    Args:
        files: list of str, the text files in order.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.
        text_format: str.
        encoding: str.

    Returns:
        dict, JSON-serializable.
    """
    return {
        "building_version": _BUILDING_VERSION,
        "tokenizer": tokenizer.digest,
        "lowercase": tokenizer.lowercase,
        "text_format": text_format,
        "encoding": encoding,
        **vars(settings),
        "input": [
            [os.path.basename(path), os.path.getsize(path)] for path in files
        ],
    }


def read_plan(directory):
    """Read the plan in a directory.

    Args:
        directory: str.

    Returns:
        dict, or None without a valid plan.
    """
    try:
        with open(os.path.join(directory, PLAN), encoding="utf-8") as file:
            plan = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return plan if isinstance(plan, dict) else None


def difference(before, now):
    """First difference between two plans, in words.

    Args:
        before: dict of `read_plan`.
        now: dict of `make_plan`.

    Returns:
        str such as "`seed` was 0 and is 1", or None if they are equal.
    """
    for name, value in now.items():
        old = before.get(name)
        if old == value:
            continue
        if name == "input":
            return _input_difference(old or [], value)
        return f"`{name}` was {_brief(old)} and is {_brief(value)}"
    return None


def find_finished_set(directory, plan):
    """Find a complete set of the same plan.

    Args:
        directory: str.
        plan: dict.

    Returns:
        Manifest, with shards of the right sizes, or None if there is no set.

    Raises:
        FileExistsError: the set has another plan.
        FileNotFoundError: a shard is missing.
        ValueError: a shard or the manifest is damaged.
    """
    if not os.path.exists(os.path.join(directory, MANIFEST)):
        return None
    before = read_plan(directory)
    if before is None:
        differs = "it does not say what it was made from"
    else:
        differs = difference(before, plan)
    if differs:
        raise FileExistsError(
            f"{directory} holds a set of records already, and {differs}. "
            "Choose another `output`, or give `overwrite` (--overwrite)."
        )
    return read_manifest(directory)


def text_digest(part):
    """Digest of the text of a part, str.

    Args:
        part: list of Document.
    """
    digest = hashlib.blake2b(digest_size=16)
    for document in part:
        digest.update(document.text.encode("utf-8", "surrogatepass"))
        digest.update(f"\0{document.text_format}\0".encode())
    return digest.hexdigest()


def save_part(path, digest, built):
    """Mark a part as finished.

    Args:
        path: str, the prefix of the paths of its shards.
        digest: str of `text_digest`.
        built: BuiltPart.
    """
    content = json.dumps({"text": digest, **built._asdict()})
    files.write_bytes(path + _DONE, content.encode())


def load_part(path, digest=None):
    """Load a part that an interrupted build has finished.

    Args:
        path: as in `save_part`.
        digest: str of `text_digest` of the present text, or None for any.

    Returns:
        BuiltPart, or None if the part must be built: it was not finished, or
        the SHA-256 of a shard differs.

    Raises:
        ChangedTextError: the part was built from other text.
    """
    try:
        with open(path + _DONE, encoding="utf-8") as file:
            content = json.load(file)
    except (FileNotFoundError, ValueError):
        return None
    if content.pop("text", None) != digest and digest is not None:
        raise ChangedTextError(
            f"{os.path.dirname(path)}: the text of `input` is another than the "
            "stopped build has read, though its files have the same names and "
            "sizes. Put the old text back, or start again with `overwrite` "
            "(--overwrite)."
        )
    shards = []
    for split, direction, shard, *written in content.pop("shards"):
        # The directory may have been moved.
        shard = os.path.join(os.path.dirname(path), os.path.basename(shard))
        if not _is_whole(shard, *written[1:]):
            return None
        shards.append((split, direction, shard, *written))
    return BuiltPart(shards, **content)


def can_resume(directory, plan, overwrite):
    """Whether the leftovers of an interrupted build can be reused.

    Args:
        directory: str, of the temporary files.
        plan: dict of `make_plan`.
        overwrite: bool, whether a build with another plan may be discarded.

    Returns:
        bool.

    Raises:
        ValueError: the interrupted build has another plan.
    """
    before = read_plan(directory)
    if before is None or not has_parts(directory):
        return False
    differs = difference(before, plan)
    if differs and not overwrite:
        raise ValueError(
            f"{directory} holds a build that was stopped, and {differs}. Give "
            "the same command as then to go on with it, `overwrite` "
            "(--overwrite) to start again, or another `output`."
        )
    return not differs


def has_parts(directory):
    """Whether a directory holds a finished part."""
    return any(name.endswith(_DONE) for name in os.listdir(directory))


def _is_whole(path, num_bytes, sha256):
    if not os.path.isfile(path) or os.path.getsize(path) != num_bytes:
        return False
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest() == sha256


def _input_difference(before, now):
    if len(before) != len(now):
        return f"`input` was {len(before)} file(s) and is {len(now)}"
    for old, new in zip(before, now, strict=True):
        if old[0] != new[0]:
            return f"`input` had the file {old[0]} and has {new[0]} there"
        if old[1] != new[1]:
            return f"`input` file {new[0]} had {old[1]} bytes and has {new[1]}"
    return "`input` differs"


def _brief(value):
    text = str(value)
    return text if len(text) <= 20 else f"{text[:12]}..."
