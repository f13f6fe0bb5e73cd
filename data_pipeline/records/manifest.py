"""The manifest of a set of records.

It holds the settings and features of the records, and of every shard the size
and the checksums of the first and the last record, so that a shard that is
missing, truncated or another's is found before the first step, without reading
it. Its own SHA-256 is a field of it.
"""

import concurrent.futures
import dataclasses
import itertools
import json
import os
import re

from data_pipeline.base.checksums import pop_digest
from data_pipeline.base.checksums import with_digest
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.records import tfrecord
from data_pipeline.records.schema import DIRECTIONS
from data_pipeline.records.schema import SPANS
from data_pipeline.records.schema import SPLITS
from data_pipeline.records.schema import StoredFeature
from data_pipeline.records.schema import check_lengths
from data_pipeline.records.schema import stored_features
from data_pipeline.tokenization.symbols import SPECIAL_IDS

# Increase it when the fields or the records change; others are not read.
FORMAT_VERSION = 2
MANIFEST = "manifest.json"
FORMS = ("compact", "frozen")
_FILE_NAME = re.compile(r"[^/\\\0]+")
_DIGEST = "manifest_sha256"
_TOKENIZER = {
    "sha256": str,
    "vocabulary_size": int,
    "lowercase": bool,
    "file": str,
}
# Shards per thread, and threads: a bucket or a network disk takes milliseconds
# for each shard.
_SHARDS_AT_ONCE = 64
_THREADS = 32


@dataclasses.dataclass(frozen=True)
class Shard:
    """A file of a set, as `data_pipeline.records.writer.WrittenShard`.

    `direction` is "forward" or "backward". `starts` are the records, a tuple of
    int, that do not follow on the one in front, as the text of another part
    begins there; empty where the shard is of one part.
    """

    file: str
    records: int
    bytes: int
    sha256: str
    direction: str
    first_crc32c: int
    last_crc32c: int
    starts: tuple = ()


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
        spans: str, of `SPANS`.
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
        text_format: str, what the text was read as.
        format_version: int.
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
    text_format: str
    format_version: int = FORMAT_VERSION

    @property
    def frame_bytes(self):
        """int, distance in bytes from one record of a shard to the next."""
        return self.record_bytes + tfrecord.FRAME_OVERHEAD

    def num_records(self, split):
        """int, the number of records of a split, 0 when it is absent."""
        return sum(shard.records for shard in self.splits.get(split, ()))

    def check(self):
        """Check that all fields are of their types and fit together.

        Raises:
            ValueError: a field does not fit.
        """
        _check_types(vars(self), Manifest.__annotations__)
        if self.tokens_per_target < 1 or self.seed < 0:
            raise ValueError(
                "`tokens_per_target` must be positive and `seed` not negative"
            )
        for name, known in (("spans", SPANS), ("form", FORMS)):
            if getattr(self, name) not in known:
                raise ValueError(f"`{name}` must be one of {', '.join(known)}")
        check_lengths(
            self.sequence_length,
            self.reuse_length,
            self.permutation_length,
            self.num_predict,
        )
        _check_types(self.tokenizer, _TOKENIZER)
        if self.special_ids != SPECIAL_IDS:
            raise ValueError("`special_ids` are not those of XLNet")
        if self.features != stored_features(
            self.sequence_length,
            self.num_predict,
            self.tokenizer["vocabulary_size"],
            self.form,
        ):
            raise ValueError("`features` do not follow from the lengths")
        if self.record_bytes != tfrecord.record_bytes(self.features):
            raise ValueError("`record_bytes` do not follow from `features`")
        self._check_shards()

    def _check_shards(self):
        if unknown := {*self.splits} - {*SPLITS}:
            raise ValueError(
                f"`splits` must be of {', '.join(SPLITS)}. Received: {unknown}"
            )
        files = set()
        for shard in all_shards(self):
            _check_types(vars(shard), Shard.__annotations__)
            name = shard.file
            if not _FILE_NAME.fullmatch(name) or name in (".", "..", MANIFEST):
                raise ValueError(f"{name!r} is not the name of a shard")
            if name in files:
                raise ValueError(f"the shard {name} is named twice")
            files.add(name)
            if shard.records < 1 or (
                shard.bytes != shard.records * self.frame_bytes
            ):
                raise ValueError(f"{name}: size and records do not agree")
            ends = [0, *shard.starts, shard.records]
            if not all(type(x) is int for x in ends) or any(
                x >= y for x, y in itertools.pairwise(ends)
            ):
                raise ValueError(f"{name}: `starts` are not of its records")
            if shard.direction not in DIRECTIONS[: 1 + self.both_directions]:
                raise ValueError(
                    f"{name}: `direction` and `both_directions` do not agree"
                )


def read_manifest(directory, check_shards=True):
    """Read the manifest of a set and compare the shards with it.

    Args:
        directory: path.
        check_shards: bool, whether to do as `check_files` of all shards.

    Returns:
        Manifest.

    Raises:
        FileNotFoundError: the manifest or a shard is missing.
        ValueError: the manifest is broken or of another version, or a shard
            is not the one of the manifest.
    """
    path = as_path(directory) / MANIFEST
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        version = content["format_version"]
        is_whole = pop_digest(content, _DIGEST)
    except NotADirectoryError:
        raise NotADirectoryError(
            f"{directory} is a file. Give the directory of a set of records."
        ) from None
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: there is no manifest, so this is not a complete set of "
            "records. Build one with `python -m data_pipeline.build_records`; "
            "a build that was stopped must be run again."
        ) from None
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise _broken(path, error) from None
    if version != FORMAT_VERSION:
        raise ValueError(
            f"{path}: the records have format version {version!r:.20}, and "
            f"this library reads version {FORMAT_VERSION}. Build them again "
            "with `python -m data_pipeline.build_records`."
        )
    try:
        manifest = _from_json(content)
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise _broken(path, error) from None
    if not is_whole:
        raise _broken(path, "its fields are not those that were written")
    if check_shards:
        check_files(directory, manifest)
    return manifest


def _broken(path, reason):
    if isinstance(reason, Exception):
        reason = f"{type(reason).__name__}: {reason}".rstrip(".")
    return ValueError(
        f"{path}: the manifest is broken ({reason}). Copy it again from where "
        "the set was built, or build the set again."
    )


def check_files(directory, manifest, split=None):
    """Compare the shards with the manifest, by their sizes and ends.

    The first and the last record of each shard are read.

    Args:
        directory: path.
        manifest: Manifest.
        split: str, or None for all.

    Raises:
        FileNotFoundError: a shard is missing.
        ValueError: a shard has another size, its first or last record is
            damaged, or another than was written.
    """

    def check(begin):
        for shard in shards[begin : begin + _SHARDS_AT_ONCE]:
            path = shard_path(directory, shard)
            _check_size(path, shard, manifest.frame_bytes)
            _check_ends(path, shard, manifest.frame_bytes)

    shards = all_shards(manifest, split)
    begins = range(0, len(shards), _SHARDS_AT_ONCE)
    with concurrent.futures.ThreadPoolExecutor(_THREADS) as threads:
        for _ in threads.map(check, begins):
            pass  # raises the first error


def _check_size(path, shard, frame_bytes):
    size = shard_size(path)
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


def _check_ends(path, shard, frame_bytes):
    for bad in tfrecord.find_bad_ends(path, shard, frame_bytes):
        advice = "or go on without damaged records by --skip-corrupt."
        if bad.record is None:
            advice = "and the manifest too: shards or sets were mixed up."
        raise ValueError(
            f"{bad}. Copy it again from where the set was built, {advice}"
        )


def shard_path(directory, shard):
    """Path of a shard, str."""
    return os.path.join(os.fspath(directory), shard.file)


def shard_size(path):
    """Bytes of the file of a shard, int.

    Raises:
        FileNotFoundError: it is missing.
    """
    try:
        if is_remote(path):
            return as_path(path).stat().length
        return os.stat(path).st_size
    except FileNotFoundError:
        raise FileNotFoundError(
            f"{path}: the manifest names this shard, and it is missing. Copy "
            "it again from where the set was built."
        ) from None


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
    for shard in itertools.chain(*content["splits"].values()):
        if not shard["starts"]:
            del shard["starts"]
    content = {"format_version": content.pop("format_version"), **content}
    # As it will be read: tuples become lists.
    content = json.loads(json.dumps(content))
    content = with_digest(content, _DIGEST)
    return (json.dumps(content, indent=2) + "\n").encode()


def _from_json(content):
    content = dict(content)
    content["splits"] = {
        split: tuple(map(_shard_from_json, shards))
        for split, shards in content["splits"].items()
    }
    content["features"] = {
        name: StoredFeature(
            feature["dtype"], tuple(feature["shape"]), feature["packed"]
        )
        for name, feature in content["features"].items()
    }
    manifest = Manifest(**content)
    manifest.check()
    return manifest


def _shard_from_json(content):
    starts = content.get("starts")
    if isinstance(starts, list):
        content = {**content, "starts": tuple(starts)}
    return Shard(**content)


def _check_types(values, types):
    """Check the types of values, both dicts of the same names."""
    for name, expected in types.items():
        value = values[name]
        is_bool = value is True or value is False  # bool is an int too
        if not isinstance(value, expected) or is_bool != (expected is bool):
            raise ValueError(
                f"`{name}` must be of type "
                f"{getattr(expected, '__name__', expected)}. Received: "
                f"{name}={str(value)[:40]}"
            )
