"""The manifest: every field is checked, and no damage to it goes unseen."""

import json

import numpy as np
import pytest

from data_pipeline.records.manifest import read_manifest
from tests.support.record_fixtures import change_manifest
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
        (
            json.dumps(fields | {"tokens_per_target": 5}),
            "is broken .its fields are not those that were written",
        ),
        (
            json.dumps({k: v for k, v in fields.items() if "sha" not in k}),
            "is broken .its fields are not those that were written",
        ),
    ):
        manifest.write_text(broken)
        with pytest.raises(ValueError, match=message) as caught:
            read_manifest(tmp_path)
        assert "\n" not in str(caught.value)


@pytest.mark.parametrize("version", [1, 3, None, "2", 1e999])
def test_other_versions_are_refused(manifest, tmp_path, version):
    """Whatever fields they have."""
    change_manifest(manifest, format_version=version, splits=None, new=1)
    message = "have format version .*, and this library reads version 2. Build"
    with pytest.raises(ValueError, match=message) as caught:
        read_manifest(tmp_path)
    assert f"{manifest}: " in str(caught.value)
    assert f"format version {version!r}," in str(caught.value)
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
    ({"text_format": None}, "`text_format` must be of type str"),
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
    ({"records": 0, "bytes": 0}, "size and records do not agree"),
    ({"first_crc32c": None}, "`first_crc32c` must be of type int"),
    ({"last_crc32c": "7"}, "`last_crc32c` must be of type int"),
    ({"direction": "backward"}, "`direction` and `both_directions`"),
    ({"direction": "upward"}, "`direction` and `both_directions`"),
]


def test_every_field_is_checked(manifest, tmp_path):
    """Not by its SHA-256 alone, which anybody can write."""
    fields = json.loads(manifest.read_text())
    change_manifest(manifest)
    assert read_manifest(tmp_path).num_records("train") == 37
    cases = list(CHANGES)
    for change, message in TOKENIZER_CHANGES:
        tokenizer = fields["tokenizer"] | change
        cases.append(({"tokenizer": tokenizer}, message))
    for change, message in SHARD_CHANGES:
        shards = fields["splits"]["train"]
        train = [shards[0] | change, *shards[1:]]
        splits = fields["splits"] | {"train": train}
        cases.append(({"splits": splits}, message))
    splits = {"test": [], **fields["splits"]}
    cases.append(({"splits": splits}, "`splits` must be of train, va"))
    for change, message in cases:
        change_manifest(manifest, **fields | change)
        with pytest.raises(ValueError, match=message) as caught:
            read_manifest(tmp_path, check_shards=False)
        assert str(manifest) in str(caught.value)
        assert "\n" not in str(caught.value)


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
