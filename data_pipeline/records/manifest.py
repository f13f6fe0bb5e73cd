"""The manifest of a set of records.

It holds the settings and features of the records and the size of every shard,
so that a missing or truncated shard is found before the first record is read.
"""

import dataclasses
import json
import os

from data_pipeline.records import tfrecord
from data_pipeline.records.schema import StoredFeature

FORMAT_VERSION = 1
MANIFEST = "manifest.json"


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file of a set; `direction` is "forward" or "backward"."""

    file: str
    records: int
    bytes: int
    sha256: str
    direction: str


@dataclasses.dataclass(frozen=True)
class Manifest:
    """Settings, features and shards of a set of records.

    Attributes:
        sequence_length: int, T.
        reuse_length: int, tokens at the front, which the memory keeps for the
            next record, and the stride; 0 = records are independent.
        permutation_length: int, tokens that are permuted together.
        num_predict: int, P.
        tokens_per_target: int, K.
        spans: "words" or "subwords".
        form: "compact", or "frozen": permutations drawn once and stored.
        both_directions: bool, whether the set has backward shards.
        end_of_document: bool, whether documents end with <eod>.
        seed: int.
        tokenizer: dict with `sha256`, `vocabulary_size`, `lowercase`, `file`.
        special_ids: dict of symbol to id.
        record_bytes: int, size of each record without its frame.
        features: dict of name to StoredFeature.
        splits: dict of split to tuple of Shard.
        totals: dict of counts of the source text.
        format_version: int.
        text_format: str, what the text was read as, or None of earlier sets.
    """

    sequence_length: int
    reuse_length: int
    permutation_length: int
    num_predict: int
    tokens_per_target: int
    spans: str
    form: str
    both_directions: bool
    end_of_document: bool
    seed: int
    tokenizer: dict
    special_ids: dict
    record_bytes: int
    features: dict
    splits: dict
    totals: dict
    format_version: int = FORMAT_VERSION
    text_format: str | None = None

    @property
    def frame_bytes(self):
        """int, distance in bytes from one record of a shard to the next."""
        return self.record_bytes + tfrecord.FRAME_OVERHEAD

    def num_records(self, split):
        """int, the number of records of a split, 0 when it is absent."""
        return sum(shard.records for shard in self.splits.get(split, ()))


def read_manifest(directory, check_shards=True):
    """Read the manifest of a set and compare the sizes of the shards.

    Args:
        directory: str or path.
        check_shards: bool, whether the shards must exist with their sizes.

    Returns:
        Manifest.

    Raises:
        FileNotFoundError: the manifest or a shard is missing.
        ValueError: the manifest is broken or newer than this library, or a
            shard has another size.
    """
    directory = os.fspath(directory)
    path = os.path.join(directory, MANIFEST)
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
        version = int(content["format_version"])
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: there is no manifest, so this is no complete set of "
            "records. Build one with `python -m data_pipeline.build_records`; "
            "a build that was stopped must be run again."
        ) from None
    except (ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{path}: the manifest is broken ({error}). Copy it again from "
            "where the set was built, or build the set again."
        ) from None
    if version > FORMAT_VERSION:
        raise ValueError(
            f"{path}: the records have format version {version}, and this "
            f"library reads up to {FORMAT_VERSION}. Update the library."
        )
    try:
        manifest = _from_json(content)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(
            f"{path}: the manifest is broken ({type(error).__name__}: {error})."
            " Copy it again from where the set was built, or build the set "
            "again."
        ) from None
    if check_shards:
        for shard in all_shards(manifest):
            _check_size(directory, shard, manifest.frame_bytes)
    return manifest


def _check_size(directory, shard, frame_bytes):
    path = os.path.join(directory, shard.file)
    check_exists(path)
    size = os.path.getsize(path)
    if size == shard.bytes:
        return
    record = size // frame_bytes
    damage = (
        f"it is cut in record {record} at byte offset {record * frame_bytes}"
        if size < shard.bytes
        else f"there is more than its {shard.records} records"
    )
    raise ValueError(
        f"{path}: the shard has {size} bytes and must have {shard.bytes}: "
        f"{damage}. Copy it again from where the set was built."
    )


def check_exists(path):
    """Raise FileNotFoundError if a shard is missing."""
    if not os.path.isfile(path):
        raise FileNotFoundError(
            f"{path}: the manifest names this shard, and it is missing. Copy "
            "it again from where the set was built."
        )


def all_shards(manifest, split=None):
    """Shards of a split, or of all splits, a list of Shard."""
    return [
        shard
        for name, shards in manifest.splits.items()
        if split in (None, name)
        for shard in shards
    ]


def manifest_bytes(manifest):
    """Content of the file of a manifest, bytes of JSON."""
    content = dataclasses.asdict(manifest)
    content["features"] = {
        name: feature._asdict() for name, feature in manifest.features.items()
    }
    content = {"format_version": content.pop("format_version"), **content}
    return (json.dumps(content, indent=2) + "\n").encode()


def _from_json(content):
    content = dict(content)
    content["splits"] = {
        split: tuple(Shard(**shard) for shard in shards)
        for split, shards in content["splits"].items()
    }
    content["features"] = {
        name: StoredFeature(
            feature["dtype"], tuple(feature["shape"]), feature["packed"]
        )
        for name, feature in content["features"].items()
    }
    manifest = Manifest(**content)
    for shard in all_shards(manifest):
        if shard.bytes != shard.records * manifest.frame_bytes:
            raise ValueError(f"{shard.file}: size and records do not agree")
    return manifest
