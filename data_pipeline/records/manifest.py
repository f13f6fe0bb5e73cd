"""Manifest of a set of records, and checks of the shards.

The manifest stores the settings and features of the records. For every shard,
the manifest stores the size of the file, and the checksums of the first and the
last record. So a missing, truncated or exchanged shard is detected before
training begins, and without reading whole shards. The file `SHA256SUMS` beside
the manifest stores the SHA-256 of the manifest.
"""

import concurrent.futures
import dataclasses
import hashlib
import itertools
import json
import os

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.records import tfrecord
from data_pipeline.records.schema import StoredFeature
from data_pipeline.records.tfrecord import BadRecord

# Increase the version when the fields or the records change. Other versions are
# refused.
FORMAT_VERSION = 3
MANIFEST = "manifest.json"
# Number of shards per task, and number of threads. With a bucket or a network
# disk, each shard takes milliseconds.
_SHARDS_AT_ONCE = 64
_THREADS = 32


@dataclasses.dataclass(frozen=True)
class Shard:
    """Shard, a file of records.

    Attributes:
        direction: str, "forward" or "backward".
        first_crc32c, last_crc32c: int, the checksums in the TFRecord frames of
            the first and the last record.
        starts: tuple of int, numbers of the records that begin another part of
            the text. Such a record does not continue the record before. The
            shard's first record is not listed.
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
        reuse_length: int, number of tokens at the start of a record that the
            memory keeps. The next record begins this number of tokens later.
            0: records do not overlap, and the memory keeps all tokens.
        permutation_length: int, number of tokens that are permuted together.
        num_predict: int, P, maximum number of targets of a record.
        tokens_per_target: int, K of the paper.
        spans: str, one of `SPANS`.
        form: "compact", or "frozen" if permutations are drawn once and stored.
        both_directions: bool, whether the set also has backward shards.
        end_of_document: bool, whether documents end with <eod>.
        seed: int.
        tokenizer: dict with `sha256`, `vocabulary_size`, `lowercase`,
            `keep_accents`, `file`.
        special_ids: dict of symbol to id.
        record_bytes: int, size of each record without its TFRecord frame.
        features: dict of feature names to StoredFeature.
        splits: dict of split names to tuples of Shard.
        totals: dict of counts, such as documents and tokens of the text.
        text_format: str, format in which the text was read.
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
        """Number of bytes of a record with its TFRecord frame, int."""
        return self.record_bytes + tfrecord.FRAME_OVERHEAD

    def num_records(self, split):
        """Number of records of a split, int; 0 if the set lacks the split."""
        return sum(shard.records for shard in self.splits.get(split, ()))


def read_manifest(directory, check_shards=True):
    """Read the manifest of a set of records and check the shards.

    Args:
        directory: path.
        check_shards: bool, whether to run `check_files` for all shards. Default
            True.

    Returns:
        Manifest.

    Raises:
        FileNotFoundError: the manifest or a shard is missing.
        ValueError: the manifest is damaged or has another version, or a shard
            does not match the manifest.
    """
    path = as_path(directory) / MANIFEST
    try:
        text = path.read_bytes()
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
    verify_checksums(directory, [MANIFEST])
    try:
        content = json.loads(text)
        version = content.get("format_version")
        manifest = _from_json(content) if version == FORMAT_VERSION else None
    # If `SHA256SUMS` is missing, a user may have changed the manifest.
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        reason = f"{type(error).__name__}: {error}".rstrip(".")
        raise ValueError(
            f"{path}: the manifest is broken ({reason}). Copy it again from "
            "where the set was built, or build the set again."
        ) from None
    if manifest is None:
        raise ValueError(
            f"{path}: the records have format version {version!r:.20}, and "
            f"this library reads version {FORMAT_VERSION}. Build them again "
            "with `python -m data_pipeline.build_records`."
        )
    if check_shards:
        check_files(directory, manifest)
    return manifest


def check_files(directory, manifest, split=None):
    """Compare the shards with the manifest.

    Only the size and the first and last record of each shard are compared.

    Args:
        directory: path.
        manifest: Manifest.
        split: str, or None for all splits.

    Raises:
        FileNotFoundError: a shard is missing.
        ValueError: the size of a shard is wrong, or its first or last record is
            damaged or exchanged.
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
            pass  # raises the first thread's error


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
    return os.path.join(os.fspath(as_path(directory)), shard.file)


def shard_size(path):
    """Size of a shard in bytes, int.

    Raises:
        FileNotFoundError: the shard is missing.
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
    """List the shards of a split (None: all splits), list of Shard."""
    return [
        shard
        for name, shards in manifest.splits.items()
        if split in (None, name)
        for shard in shards
    ]


def manifest_bytes(manifest):
    """Serialize a manifest as JSON, bytes."""
    content = dataclasses.asdict(manifest)
    content["features"] = {
        name: feature._asdict() for name, feature in manifest.features.items()
    }
    for shard in itertools.chain(*content["splits"].values()):
        if not shard["starts"]:
            del shard["starts"]
    content = {"format_version": content.pop("format_version"), **content}
    return (json.dumps(content, indent=2) + "\n").encode()


def _from_json(content):
    content["splits"] = {
        split: tuple(map(shard_from_json, shards))
        for split, shards in content["splits"].items()
    }
    content["features"] = {
        name: StoredFeature(**{**feature, "shape": tuple(feature["shape"])})
        for name, feature in content["features"].items()
    }
    return Manifest(**content)


def shard_from_json(content):
    """Make a Shard from the dict of its fields in JSON."""
    return Shard(**{**content, "starts": tuple(content.get("starts", ()))})


def verify_records(directory, split=None, likely=None):
    """Check the checksums of every record.

    Args:
        directory: path.
        split: str, or None for all splits.
        likely: set of str, paths of shards to check first, or None. If paths
            are given, the check stops at the first damaged shard and does not
            compare the SHA-256 of shards.

    Returns:
        list of BadRecord in order, empty if no damage is found. An exchanged
        shard has a single BadRecord, whose `record` is None. A shard also
        counts as exchanged if it has its last record but lacks earlier records.

    Raises:
        FileNotFoundError: the manifest or a shard is missing.
        ValueError: the manifest is damaged.
    """
    manifest = read_manifest(directory, check_shards=False)
    shards = [
        (shard_path(directory, x), x) for x in all_shards(manifest, split)
    ]
    if likely is not None:
        shards.sort(key=lambda shard: shard[0] not in likely)
    bad = []
    for path, shard in shards:
        bad += _verify_shard(path, shard, manifest.frame_bytes, likely is None)
        if bad and likely is not None:
            break
    return bad


def _verify_shard(path, shard, frame_bytes, with_digest):
    whole = shard_size(path) // frame_bytes  # may raise
    digest = hashlib.sha256() if with_digest else None
    bad = tfrecord.find_bad_records(path, shard.records, frame_bytes, digest)
    is_other = digest and not bad and digest.hexdigest() != shard.sha256
    # After a lost record, all later records move up. Then the last record is
    # found at an earlier place.
    is_shifted = 0 < whole < shard.records and tfrecord.read_checksums(
        path, [whole - 1], frame_bytes
    ) == [shard.last_crc32c]
    ends = tfrecord.find_bad_ends(path, shard, frame_bytes)
    if is_other or is_shifted or any(x.record is None for x in ends):
        return [BadRecord(path, None, 0, tfrecord.OTHER_FILE)]
    return bad
