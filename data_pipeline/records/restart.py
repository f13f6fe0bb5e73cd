"""What a build that was stopped goes on from.

Beside the shards of a part lies a small file, renamed into its place when the
shards are on the disk: who finds it has the part. `build.json` says what the
build is made from; a build goes on only from one with the same.
"""

import hashlib
import json
import os

from data_pipeline import files
from data_pipeline.records import writer as records
from data_pipeline.records.part import BuiltPart

PLAN = "build.json"
# To be raised when the same text, settings and seed give other records.
_BUILDING_VERSION = 2
_DONE = ".done"


class ChangedTextError(ValueError):
    """The text is another than the stopped build has read."""


def make_plan(files, tokenizer, settings, text_format, encoding):
    """All that the bytes of a set follow from.

    Args:
        files: list of str, the text files in order.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.
        text_format: str.
        encoding: str.

    Returns:
        dict that JSON can hold.
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
    """Reads the plan in a directory.

    Args:
        directory: str.

    Returns:
        dict, or None where there is none.
    """
    try:
        with open(os.path.join(directory, PLAN), encoding="utf-8") as file:
            plan = json.load(file)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    return plan if isinstance(plan, dict) else None


def difference(before, now):
    """The first thing that differs between two plans, in words.

    Args:
        before: dict of `read_plan`.
        now: dict of `make_plan`.

    Returns:
        str such as "`seed` was 0 and is 1", or None when they are equal.
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
    """Recognises a set that the same command has made.

    Args:
        directory: str.
        plan: dict.

    Returns:
        Manifest, its shards there and of their size, or None where there is
        no set.

    Raises:
        FileExistsError: there is a set made from something else.
        FileNotFoundError: a shard is missing.
        ValueError: a shard or the manifest is damaged.
    """
    if not os.path.exists(os.path.join(directory, records.MANIFEST)):
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
    return records.read_manifest(directory)


def text_digest(part):
    """str, a hash of the text of a part.

    Args:
        part: list of Document.
    """
    digest = hashlib.blake2b(digest_size=16)
    for document in part:
        digest.update(document.text.encode("utf-8", "surrogatepass"))
        digest.update(f"\0{document.text_format}\0".encode())
    return digest.hexdigest()


def save_part(path, digest, built):
    """Marks a part as finished.

    Args:
        path: str, what the names of its shards begin with.
        digest: str of `text_digest`.
        built: BuiltPart.
    """
    content = json.dumps({"text": digest, **built._asdict()})
    files.write_bytes(path + _DONE, content.encode())


def load_part(path, digest=None):
    """Finds a part that a stopped build has finished, and reads it all.

    Args:
        path: as in `save_part`.
        digest: likewise, of the text as it is now; None for any.

    Returns:
        BuiltPart, or None if the part is to be built: it was not finished, or
        its shards are not what they were.

    Raises:
        ChangedTextError: the part was made from other text.
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


def may_go_on(directory, plan, overwrite):
    """Says whether a build goes on from what another one left.

    Args:
        directory: str, with the temporary files that were left.
        plan: dict.
        overwrite: bool, whether a build from something else may go.

    Returns:
        bool.

    Raises:
        ValueError: the other build is made from something else.
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
    """bool, whether a directory holds a finished part."""
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
