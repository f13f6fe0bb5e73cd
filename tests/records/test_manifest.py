"""The manifest: every field is checked, and no damage to it goes unseen."""

import json

import numpy as np
import pytest

from data_pipeline.records.manifest import read_manifest
from tests.support.record_fixtures import write_set


@pytest.fixture
def manifest(tmp_path):
    """Path of a manifest."""
    write_set(tmp_path, validation=6)
    return tmp_path / "manifest.json"


def test_manifests_that_are_refused(manifest, tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no manifest"):
        read_manifest(tmp_path / "elsewhere")
    text = manifest.read_text()
    fields = json.loads(text)
    less = {k: v for k, v in fields.items() if k != "num_predict"}
    for broken, message in (
        (text[:-30], "the manifest is broken"),
        ("[" * 200_000, "the manifest is broken .RecursionError"),
        ("[]", "the manifest is broken"),
        (json.dumps(less), "the manifest is broken.*num_predict"),
        (json.dumps(fields | {"format_version": 1e999}), "is broken"),
        (
            json.dumps(fields | {"format_version": 4, "new": 1}),
            "format version 4, .* up to 3",
        ),
        (
            json.dumps(fields | {"tokens_per_target": 5}),
            "is broken .its fields are not those that were written",
        ),
    ):
        manifest.write_text(broken)
        with pytest.raises(ValueError, match=message) as caught:
            read_manifest(tmp_path)
        assert "\n" not in str(caught.value)


# Fields of a set of 22 tokens, 11 reused, 5 targets, 97 pieces.
CHANGES = [
    ({"reuse_length": 60}, "`reuse_length` must be between"),
    ({"reuse_length": -5}, "`reuse_length` must be between"),
    ({"permutation_length": 3}, "`permutation_length` must divide"),
    ({"permutation_length": 0}, "`permutation_length` must be between"),
    ({"num_predict": 0}, "`num_predict` must be at least 1"),
    ({"num_predict": 500}, "`num_predict` must be at least 1 and leave"),
    ({"sequence_length": 23, "permutation_length": 1}, "`features` do not"),
    ({"sequence_length": 22.0}, "`sequence_length` must be of type int"),
    ({"both_directions": 1}, "`both_directions` must be of type bool"),
    ({"tokens_per_target": 0}, "`tokens_per_target` must be positive"),
    ({"seed": -1}, "`seed`"),
    ({"spans": "letters"}, "`spans` must be one of words, subwords"),
    ({"form": "frozen"}, "`features` do not follow"),
    ({"form": "liquid"}, "`form` must be one of compact, frozen"),
    ({"record_bytes": 150}, "`record_bytes` do not follow"),
    ({"special_ids": {"<unk>": 1}}, "`special_ids` are not"),
    ({"splits": []}, "broken"),
    ({"totals": None}, "`totals` must be of type dict"),
]
TOKENIZER_CHANGES = [
    ({"vocabulary_size": 1 << 17}, "`features` do not follow"),
    ({"vocabulary_size": "97"}, "`vocabulary_size` must be of type int"),
    ({"lowercase": None}, "`lowercase` must be of type bool"),
    ({"sha256": 7}, "`sha256` must be of type str"),
]
SHARD_CHANGES = [
    ({"file": "../precious.txt"}, "'../precious.txt' is not the name of a"),
    ({"file": "/etc/passwd"}, "is not the name of a shard"),
    ({"file": "a\\b"}, "is not the name of a shard"),
    ({"file": ""}, "is not the name of a shard"),
    ({"file": ".."}, "is not the name of a shard"),
    ({"file": "manifest.json"}, "is not the name of a shard"),
    ({"file": "train-00001.tfrecord"}, "train-00001.tfrecord is named twice"),
    ({"file": "validation-00000.tfrecord"}, "is named twice"),
    ({"records": 12}, "size and records do not agree"),
    ({"records": -1, "bytes": -1}, "size and records do not agree"),
    ({"first_crc32c": None}, "checksums and records do not agree"),
    ({"last_crc32c": "7"}, "`last_crc32c` must be of type int"),
    ({"direction": "backward"}, "`direction` and `both_directions`"),
    ({"direction": "upward"}, "`direction` and `both_directions`"),
]


def test_every_field_is_checked(manifest, tmp_path):
    """Also where there is no SHA-256, as in sets of earlier versions."""
    fields = json.loads(manifest.read_text())
    del fields["manifest_sha256"]
    manifest.write_text(json.dumps(fields))
    assert read_manifest(tmp_path).num_records("train") == 37
    cases = [(fields | change, m) for change, m in CHANGES]
    for change, message in TOKENIZER_CHANGES:
        tokenizer = fields["tokenizer"] | change
        cases.append((fields | {"tokenizer": tokenizer}, message))
    for change, message in SHARD_CHANGES:
        shards = fields["splits"]["train"]
        train = [shards[0] | change, *shards[1:]]
        splits = fields["splits"] | {"train": train}
        cases.append((fields | {"splits": splits}, message))
    splits = {"test": [], **fields["splits"]}
    cases.append((fields | {"splits": splits}, "`splits` must be of train, va"))
    for changed, message in cases:
        manifest.write_text(json.dumps(changed))
        with pytest.raises(ValueError, match=message) as caught:
            read_manifest(tmp_path, check_shards=False)
        assert str(manifest) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_manifests_of_the_first_version(manifest, tmp_path):
    """Without checksums of the ends of shards, and without its own."""
    fields = json.loads(manifest.read_text()) | {"format_version": 1}
    del fields["manifest_sha256"]
    for shards in fields["splits"].values():
        for shard in shards:
            del shard["first_crc32c"], shard["last_crc32c"]
    manifest.write_text(json.dumps(fields))
    assert read_manifest(tmp_path).num_records("train") == 37
    manifest.write_text(json.dumps(fields | {"format_version": 2}))
    with pytest.raises(ValueError, match="checksums and records do not agree"):
        read_manifest(tmp_path)


def test_no_flipped_bit_is_silent(manifest, tmp_path):
    content = manifest.read_bytes()
    before = read_manifest(tmp_path)
    rng = np.random.default_rng(0)
    refused = 0
    for _ in range(300):
        flipped = bytearray(content)
        flipped[rng.integers(len(content))] ^= 1 << int(rng.integers(8))
        manifest.write_bytes(bytes(flipped))
        try:
            after = read_manifest(tmp_path)
        except (ValueError, FileNotFoundError):
            refused += 1
        else:
            # A blank of another kind.
            assert after == before
    assert refused > 200


def test_the_first_of_many_missing_shards_is_named(tmp_path):
    """Several threads ask for their sizes."""
    write_set(tmp_path, (1,) * 130)
    read_manifest(tmp_path)
    for number in (129, 70):
        (tmp_path / f"train-{number:05d}.tfrecord").unlink()
        with pytest.raises(FileNotFoundError, match=f"train-{number:05d}"):
            read_manifest(tmp_path)
