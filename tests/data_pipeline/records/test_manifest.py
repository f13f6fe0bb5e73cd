"""The manifest: no damage to it goes unseen, and other versions are refused."""

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
    for broken in (
        text[:-30],
        "[]",
        json.dumps(less),
        json.dumps(fields | {"tokens_per_target": 5}),
    ):
        manifest.write_text(broken)
        with pytest.raises(
            ValueError, match="manifest.json is damaged"
        ) as told:
            read_manifest(tmp_path)
        assert "\n" not in str(told.value)
    # Changed by hand.
    (tmp_path / "SHA256SUMS").unlink()
    for broken, message in (
        ("{", "the manifest is broken"),
        ("[]", "the manifest is broken"),
        (json.dumps(less), "the manifest is broken.*num_predict"),
        (json.dumps(fields | {"splits": []}), "the manifest is broken"),
    ):
        manifest.write_text(broken)
        with pytest.raises(ValueError, match=message) as told:
            read_manifest(tmp_path)
        assert "\n" not in str(told.value)
    manifest.write_text(json.dumps(fields | {"tokens_per_target": 5}))
    assert read_manifest(tmp_path).tokens_per_target == 5


@pytest.mark.parametrize("version", [2, 4, None, "2", 1e999])
def test_other_versions_are_refused(manifest, tmp_path, version):
    """Whatever fields they have."""
    change_manifest(manifest, format_version=version, splits=None, new=1)
    message = "have format version .*, and this library reads version 3. Build"
    with pytest.raises(ValueError, match=message) as caught:
        read_manifest(tmp_path)
    assert f"{manifest}: " in str(caught.value)
    assert f"format version {version!r}," in str(caught.value)
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
            assert after == before
    assert refused == 300


def test_the_first_of_many_missing_shards_is_named(tmp_path):
    """Several threads ask for their sizes."""
    write_set(tmp_path, (1,) * 130)
    read_manifest(tmp_path)
    for number in (129, 70):
        (tmp_path / f"train-{number:05d}.tfrecord").unlink()
        with pytest.raises(FileNotFoundError, match=f"train-{number:05d}"):
            read_manifest(tmp_path)
