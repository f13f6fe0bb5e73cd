"""Resuming an interrupted build.

A `.done` file, written when the shards of a part are on the disk, marks the
part as finished. `build.json` holds the plan: text files, tokenizer and
settings. Only a build with the same plan is resumed.
"""

import hashlib
import json
import os
import time
import typing

import numpy as np
import sentencepiece

from data_pipeline.base import files
from data_pipeline.base.checksums import pop_digest
from data_pipeline.base.checksums import with_digest
from data_pipeline.records.manifest import MANIFEST
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.part import BuiltPart
from data_pipeline.records.writer import PLAN
from data_pipeline.records.writer import WrittenShard
from data_pipeline.text.files import sizes_and_times

# Paths and modification times of a set's text files, a cheap check that they
# are unchanged. Not part of the set.
INPUT = ".input.json"
# Version of the plan and of the finished parts. Increase it when they change,
# or when the same text, settings and seed give different records.
_BUILDING_VERSION = 2
_DONE = ".done"
_FINISHED = "finished.json"
# Resolution of modification times: a file may change again within it unseen.
_CLOCK_NS = 2_000_000_000


class ChangedTextError(ValueError):
    """The text differs from that of the interrupted build."""


class Plan(typing.NamedTuple):
    """Everything that determines the bytes of a set.

    `values` is a dict, JSON-serializable. `places` is a list with the
    absolute path of each text file and the time in nanoseconds when it was
    changed, None where that is not known, or may not show a later change.
    """

    values: dict
    places: list


def make_plan(corpus, tokenizer, settings):
    """Plan of a build.

    Args:
        corpus: Corpus.
        tokenizer: Tokenizer.
        settings: RecordSettings, resolved.

    Returns:
        Plan.
    """
    now = time.time_ns()
    status = sizes_and_times(corpus.files)
    values = {
        "building_version": _BUILDING_VERSION,
        "tokenizer": tokenizer.digest,
        "lowercase": tokenizer.lowercase,
        "text_format": corpus.text_format,
        "encoding": corpus.encoding,
        "on_bad_text": corpus.on_bad_text,
        "text_field": corpus.text_field,
        **vars(settings),
        # Another release may draw other numbers or give other pieces.
        "libraries": {
            "numpy": ".".join(np.__version__.split(".")[:2]),
            "sentencepiece": sentencepiece.__version__,
        },
        "input": [
            [os.path.basename(path), size]
            for path, (size, _) in zip(corpus.files, status, strict=True)
        ],
    }
    places = [
        [absolute(path), changed if 0 < changed < now - _CLOCK_NS else None]
        for path, (_, changed) in zip(corpus.files, status, strict=True)
    ]
    return Plan(values, places)


def absolute(path):
    """Path that other processes may use, str."""
    return path if files.is_remote(path) else os.path.abspath(path)


def write_finished_plan(directory, plan, digests):
    """Write the plan of a set that is complete, with digests of its text.

    Args:
        directory: str, of the temporary files.
        plan: Plan.
        digests: list of str, the SHA-256 of each text file.

    Returns:
        dict of the names of the files to their temporary ones.
    """
    values = plan.values | {"input_sha256": digests}
    _write_plan(os.path.join(directory, _FINISHED), values)
    files.write_json(os.path.join(directory, INPUT), {"files": plan.places})
    return {PLAN: _FINISHED, INPUT: INPUT}


def _write_plan(file, values):
    files.write_json(file, with_digest(values))


def read_plan(directory):
    """Read the plan in a directory.

    Args:
        directory: str.

    Returns:
        dict, or None without a valid plan: one whose fields match its SHA-256.
        `building_version` may be another than the library's.
    """
    try:
        values = files.read_json_object(os.path.join(directory, PLAN))
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return None
    if not pop_digest(values):
        return None
    is_other = values.get("building_version") != _BUILDING_VERSION
    return values if is_other or _is_plan(values) else None


def _is_plan(values):
    """Whether values have the types of a plan of this version, bool."""
    files_and_sizes = values.get("input", [])
    return (
        isinstance(files_and_sizes, list)
        and all(isinstance(x, list) and len(x) == 2 for x in files_and_sizes)
        and isinstance(values.get("input_sha256", []), list)
        and isinstance(values.get("libraries"), dict)
    )


def _difference(before, now, ignored=()):
    """First difference between two plans, in words, or None."""
    for name, value in now.items():
        old = before.get(name)
        if old == value or name in ignored:
            continue
        if name == "building_version":
            return (
                f"its {PLAN} has version {_brief(old)}, where this library "
                f"writes version {value}"
            )
        # The text held nothing that was refused: any choice gives the same set.
        if name == "on_bad_text" and old == "refuse":
            continue
        if name == "input":
            return _input_difference(old, value)
        if name == "libraries":
            return _library_difference(old, value)
        return f"`{name}` was {_brief(old)} and is {_brief(value)}"
    return None


def find_finished_set(directory, plan):
    """Find a complete set of the same plan.

    Args:
        directory: path.
        plan: Plan.

    Returns:
        Manifest, with shards of the right sizes, or None if there is no set.

    Raises:
        FileExistsError: the set has another plan.
        FileNotFoundError: a shard is missing.
        ValueError: a shard or the manifest is damaged.
    """
    if not (files.as_path(directory) / MANIFEST).exists():
        return None
    before = read_plan(directory)
    if before is None or "input_sha256" not in before:
        differs = f"its {PLAN} is missing or damaged"
    else:
        # A complete set may come from other releases of the libraries.
        differs = _difference(before, plan.values, ["libraries"])
        differs = differs or _changed_file(directory, before, plan)
    if differs:
        raise FileExistsError(
            f"{directory} holds a set of records already, and {differs}. "
            "Choose another `output`, or give `overwrite` (--overwrite)."
        )
    return read_manifest(directory)


def _changed_file(directory, before, plan):
    """Return a message about a text file that has changed, or None.

    Files are read, unless they are where they were and unchanged since.
    """
    try:
        remembered = files.read_json_object(os.path.join(directory, INPUT))
        places = list(remembered["files"])
    except (OSError, ValueError, KeyError, TypeError):
        places = []
    for number, (digest, place) in enumerate(
        zip(before["input_sha256"], plan.places, strict=True)
    ):
        path, changed = place
        is_known = changed is not None and place in places[number : number + 1]
        if not is_known and files.sha256_of(path) != digest:
            return f"`input` file {path} has changed since the set was built"
    return None


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
    content = with_digest({"text": digest, **built._asdict()})
    files.write_bytes(path + _DONE, json.dumps(content).encode())


def load_part(path, digest=None, may_differ=False):
    """Load a part that an interrupted build has finished.

    Args:
        path: as in `save_part`.
        digest: str of `text_digest` of the present text, or None for any.
        may_differ: bool, whether a part of other text is built again.

    Returns:
        BuiltPart, or None if the part must be built: it was not finished, or
        the SHA-256 of a shard or of its own fields differs.

    Raises:
        ChangedTextError: the part was built from other text.
    """
    try:
        content = files.read_json_object(path + _DONE)
    except (FileNotFoundError, ValueError):
        return None
    if not pop_digest(content):
        return None
    if content.pop("text") != digest and digest is not None:
        if may_differ:
            return None
        raise ChangedTextError(
            f"{os.path.dirname(path)}: the text of `input` differs from what "
            "the stopped build has read, though its files have the same names "
            "and sizes. Put the old text back, or start again with `overwrite` "
            "(--overwrite)."
        )
    shards = []
    for split, direction, shard, written in content.pop("shards"):
        # The directory may have been moved.
        shard = os.path.join(os.path.dirname(path), os.path.basename(shard))
        written = WrittenShard(*written)
        if not _is_whole(shard, written.sha256):
            return None
        shards.append((split, direction, shard, written))
    return BuiltPart(shards, **content)


def can_resume(directory, plan, overwrite):
    """Whether the leftovers of an interrupted build can be reused.

    Args:
        directory: str, of the temporary files.
        plan: Plan.
        overwrite: bool, whether a build with another plan may be discarded.

    Returns:
        bool.

    Raises:
        ValueError: the interrupted build has another plan, or a damaged one.
    """
    before, count = read_plan(directory), count_parts(directory)
    if not count or before is None and overwrite:
        return False
    if before is None:
        raise ValueError(
            f"{directory} holds {count} finished part(s) of a build that was "
            f"stopped, and its {PLAN} is missing or damaged. Put it back, "
            "give `overwrite` (--overwrite) to start again, or another "
            "`output`."
        )
    ignored = ["input"] if is_in_repair(before) else []
    differs = _difference(before, plan.values, ignored)
    if differs and not overwrite:
        raise ValueError(
            f"{directory} holds a build that was stopped, and {differs}. Give "
            "the same command as then, with the same libraries, to go on with "
            "it, `overwrite` (--overwrite) to start again, or another `output`."
        )
    return not differs


def begin(directory, plan):
    """Write the plan of a build that begins, or goes on.

    Args:
        directory: str, of the temporary files.
        plan: Plan.

    Returns:
        bool, whether the text may be another than that of finished parts.
    """
    before = read_plan(directory)
    if before is not None and is_in_repair(before):
        mark_for_repair(directory, plan)
        return True
    if before != plan.values:
        _write_plan(os.path.join(directory, PLAN), plan.values)
    return False


def mark_for_repair(directory, plan):
    """Note that some text could not be read, and may change by its repair.

    Args:
        directory: str, of the temporary files.
        plan: Plan.
    """
    values = {k: v for k, v in plan.values.items() if k != "input"}
    _write_plan(os.path.join(directory, PLAN), values)


def is_in_repair(values):
    """Whether `mark_for_repair` has marked the build of a plan, bool."""
    return "input" not in values


def count_parts(directory):
    """Count the finished parts in a directory, int."""
    names = (path.name for path in files.as_path(directory).iterdir())
    return sum(name.endswith(_DONE) for name in names)


def _is_whole(path, sha256):
    return files.as_path(path).exists() and files.sha256_of(path) == sha256


def _library_difference(before, now):
    name = next(x for x in now if before.get(x) != now[x])
    return (
        f"{name} was version {before.get(name)} and is {now[name]}, which may "
        "build different records"
    )


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
