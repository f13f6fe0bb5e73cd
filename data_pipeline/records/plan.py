"""Plan of a build: all inputs that determine the bytes of a set of records.

The plan is stored in `build.json`. During the build, this file is in the
temporary directory. In a complete set, this file also has the SHA-256 of each
text file.
"""

import os

import numpy as np
import sentencepiece

from data_pipeline.base import files
from data_pipeline.base.limits import MOST_LIST_BYTES
from data_pipeline.text.files import sizes_of

PLAN = "build.json"
LIBRARIES = ("numpy", "sentencepiece")
# Version of the plan and of the finished parts. Increase the version when their
# format changes, or when the same text, settings and seed give other records.
_BUILDING_VERSION = 4
_DIGESTS = "input_sha256"


def make_plan(corpus, tokenizer, settings):
    """Make the plan of a build.

    Args:
        corpus: Corpus.
        tokenizer: Tokenizer.
        settings: RecordSettings with all defaults filled in.

    Returns:
        dict, JSON-serializable.
    """
    return {
        "building_version": _BUILDING_VERSION,
        "tokenizer": tokenizer.digest,
        "lowercase": tokenizer.lowercase,
        "text_format": corpus.text_format,
        "encoding": corpus.encoding,
        "on_bad_text": corpus.on_bad_text,
        "text_field": corpus.text_field,
        **vars(settings),
        # Other releases may draw other random numbers or give other pieces.
        "numpy": ".".join(np.__version__.split(".")[:2]),
        "sentencepiece": sentencepiece.__version__,
        "input": list(map(os.path.basename, corpus.files)),
        "input_bytes": sizes_of(corpus.files),
    }


def write_plan(directory, plan, digests=None):
    """Write a plan to a directory.

    Args:
        directory: str.
        plan: dict from `make_plan`.
        digests: list of str, the SHA-256 of each text file. None (default)
            while the set is not complete yet.
    """
    if digests is not None:
        plan = {**plan, _DIGESTS: digests}
    files.write_json(os.path.join(directory, PLAN), plan)


def read_plan(directory):
    """Read the plan in a directory: a dict, or None if missing or damaged.

    Args:
        directory: path.
    """
    try:
        file = files.as_path(directory) / PLAN
        return files.read_json_object(file, MOST_LIST_BYTES)
    except (FileNotFoundError, ValueError):
        return None


def plan_difference(before, plan, ignored=()):
    """Describe the first difference of two plans: a str, or None if equal.

    Args:
        before: dict from `read_plan`, or None if the file cannot be read.
        plan: dict from `make_plan`.
        ignored: names of fields to skip.
    """
    if before is None:
        return f"its {PLAN} is missing or damaged"
    for name, value in plan.items():
        old = before.get(name)
        # The earlier build refused no text, so any choice gives the same set.
        is_free = name == "on_bad_text" and old == "refuse"
        if old != value and name not in ignored and not is_free:
            return _in_words(name, old, value, plan["input"])
    return None


def changed_text(before, paths, report):
    """Find the first text file that changed since a set was built.

    Args:
        before: dict from `read_plan`, the plan of the set.
        paths: list of str, the text files, as many as in the plan.
        report: function that is called with the size of each unchanged file.

    Returns:
        str, a message about the first changed file, or None if no file changed.
    """
    digests = before.get(_DIGESTS) or []
    for number, path in enumerate(paths):
        if digests[number : number + 1] != [files.sha256_of(path)]:
            return f"`input` file {path} has changed since the set was built"
        report(files.size_of(path))
    return None


def _in_words(name, old, new, names):
    if name == "building_version":
        return (
            f"its {PLAN} has version {_brief(old)}, where this library writes "
            f"version {new}"
        )
    if name in LIBRARIES:
        return (
            f"{name} was version {_brief(old)} and is {new}, which may build "
            "different records"
        )
    if not isinstance(old, list) or not isinstance(new, list):
        return f"`{name}` was {_brief(old)} and is {_brief(new)}"
    if len(old) != len(new):
        return f"`input` was {len(old)} file(s) and is {len(new)}"
    number = next(n for n, x in enumerate(new) if x != old[n])
    if name == "input":
        return f"`input` had the file {old[number]} and has {new[number]} there"
    return (
        f"`input` file {names[number]} had {old[number]} bytes and has "
        f"{new[number]}"
    )


def _brief(value):
    text = str(value)
    return text if len(text) <= 20 else f"{text[:12]}..."
