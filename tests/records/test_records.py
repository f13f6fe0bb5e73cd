"""Record sets: framing, whole or absent, damage named by file and offset."""

import errno
import json
import os

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.records import schema as features
from data_pipeline.records import tfrecord
from data_pipeline.records import writer as records
from data_pipeline.records.writer import read_manifest
from data_pipeline.records.writer import verify_records
from tests.support.record_fixtures import cut
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import write_set

SIZES = {"a_name": 3, "token_ids": 1024, "z": 300, "empty": 0}


def test_example_is_tensorflows():
    template, slices = tfrecord.example_template(SIZES)
    rng = np.random.default_rng(0)
    values = {
        n: rng.integers(0, 256, s).astype(np.uint8) for n, s in SIZES.items()
    }
    ours = template.copy()
    for name, place in slices.items():
        ours[place] = values[name]
    example = tf.train.Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        feature.bytes_list.value.append(value.tobytes())
    assert ours.tobytes() == example.SerializeToString(deterministic=True)


@pytest.mark.parametrize("length", [1, 2, 1331, 1332])
def test_frames_are_tensorflows(tmp_path, length):
    rng = np.random.default_rng(length)
    values = {"x": rng.integers(0, 256, (37, length)).astype(np.uint8)}
    frames = tfrecord.frame_records(values, {"x": length})
    path = str(tmp_path / "ours")
    frames.tofile(path)
    with tf.io.TFRecordWriter(str(tmp_path / "theirs")) as writer:
        for record in tf.data.TFRecordDataset(path):
            writer.write(record.numpy())
            example = tf.train.Example.FromString(record.numpy())
    last = example.features.feature["x"].bytes_list.value[0]
    assert last == values["x"][-1].tobytes()
    ours = (tmp_path / "ours").read_bytes()
    assert ours == (tmp_path / "theirs").read_bytes()
    assert not tfrecord.find_bad_frames(frames).any()


def test_every_flipped_byte_is_found():
    values = {"x": np.zeros((1, 40), np.uint8)}
    frame = tfrecord.frame_records(values, {"x": 40})
    damaged = np.repeat(frame, frame.size, axis=0)
    damaged[np.arange(frame.size), np.arange(frame.size)] ^= 0x10
    assert tfrecord.find_bad_frames(damaged).all()


def test_stored_dtypes():
    small = features.stored_features(22, 5, 65_536)
    large = features.stored_features(22, 5, 65_537)
    assert small["token_ids"].dtype == "uint16"
    assert large["token_ids"].dtype == "int32"
    frozen = features.stored_features(22, 5, 97, "frozen")
    assert frozen["perm_mask"].num_bytes == (22 * 22 + 7) // 8
    assert frozen["target_mapping"].num_bytes == (22 * 5 + 7) // 8


def test_set_round_trip(tmp_path):
    write_set(tmp_path / "set", validation=4)
    manifest = read_manifest(tmp_path / "set")
    assert manifest.num_records("train") == 37
    assert manifest.num_records("validation") == 4
    assert manifest.num_records("test") == 0
    assert manifest.features["token_ids"].dtype == "uint16"
    assert sorted(os.listdir(tmp_path / "set")) == [
        "manifest.json",
        "spiece.model",
        "train-00000.tfrecord",
        "train-00001.tfrecord",
        "train-00002.tfrecord",
        "validation-00000.tfrecord",
    ]
    shard = manifest.splits["train"][1]
    path = tmp_path / "set" / shard.file
    assert path.stat().st_size == shard.bytes == 8 * manifest.frame_bytes
    for record in tf.data.TFRecordDataset(str(path)):
        assert len(record.numpy()) == manifest.record_bytes
    assert verify_records(tmp_path / "set") == []


def test_complete_set_is_kept(tmp_path):
    write_set(tmp_path / "set")
    before = (tmp_path / "set" / "manifest.json").read_bytes()
    with pytest.raises(FileExistsError, match="holds a set of records already"):
        write_set(tmp_path / "set", (5,))
    assert (tmp_path / "set" / "manifest.json").read_bytes() == before
    assert verify_records(tmp_path / "set") == []


def test_overwrite_leaves_nothing_old(tmp_path):
    write_set(tmp_path / "set")
    write_set(tmp_path / "set", (5,), overwrite=True)
    assert read_manifest(tmp_path / "set").num_records("train") == 5
    assert sorted(os.listdir(tmp_path / "set")) == [
        "manifest.json",
        "spiece.model",
        "train-00000.tfrecord",
    ]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_failed_build_leaves_nothing(tmp_path, error):
    with pytest.raises(error):
        with records.RecordSetWriter(tmp_path / "set") as writer:
            frames = np.zeros((2, 30), np.uint8)
            records.write_shard(writer.temporary_path("part"), [frames])
            raise error
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("failing", range(5))
def test_failure_while_renaming(tmp_path, monkeypatch, failing):
    """Whichever rename fails, an old set is whole or there is no manifest."""
    replace, calls = os.replace, []

    def fail(source, target):
        calls.append(target)
        if len(calls) == failing + 1:
            raise OSError(errno.ENOSPC, "No space left on device", target)
        replace(source, target)

    write_set(tmp_path / "set", (3, 4))
    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="No space left"):
        write_set(tmp_path / "set", (5, 6, 7), overwrite=True)
    with pytest.raises(FileNotFoundError, match="there is no manifest"):
        read_manifest(tmp_path / "set")
    assert ".building" not in os.listdir(tmp_path / "set")
    calls.clear()
    with pytest.raises(OSError, match="No space left"):
        write_set(tmp_path / "fresh", (5, 6, 7))
    assert not (tmp_path / "fresh").exists()


def test_full_disk_names_the_file(tmp_path, monkeypatch):
    def flush(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data_pipeline.files._flush", flush)
    with pytest.raises(OSError, match="part-train-0") as caught:
        write_set(tmp_path / "set")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


def test_two_builds_at_once(tmp_path):
    building = tmp_path / "set" / ".building"
    building.mkdir(parents=True)
    (building / "pid").write_text(str(os.getppid()))
    with pytest.raises(RuntimeError, match="is writing records to"):
        write_set(tmp_path / "set")
    # What a killed process left is no hindrance. 2^22 is above all pids.
    (building / "pid").write_text(str(1 << 22))
    write_set(tmp_path / "set")


def test_no_manifest(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no manifest"):
        read_manifest(tmp_path)


def test_broken_manifest(tmp_path):
    write_set(tmp_path)
    path = tmp_path / "manifest.json"
    content = path.read_text()
    path.write_text(content[:-30])
    with pytest.raises(ValueError, match="the manifest is broken"):
        read_manifest(tmp_path)
    fields = json.loads(content)
    del fields["num_predict"]
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="the manifest is broken.*num_predict"):
        read_manifest(tmp_path)


def test_newer_version(tmp_path):
    write_set(tmp_path)
    path = tmp_path / "manifest.json"
    fields = json.loads(path.read_text()) | {"format_version": 2, "new": 1}
    path.write_text(json.dumps(fields))
    with pytest.raises(ValueError, match="format version 2, .* up to 1"):
        read_manifest(tmp_path)


def test_missing_shard(tmp_path):
    write_set(tmp_path)
    (tmp_path / "train-00001.tfrecord").unlink()
    for function in (read_manifest, verify_records):
        with pytest.raises(
            FileNotFoundError, match="train-00001.tfrecord: .* it is missing"
        ):
            function(tmp_path)


@pytest.mark.parametrize("left", [0, 1, 199, 200])
def test_cut_shard(tmp_path, left):
    """Also where it is cut between two records, which TFRecord cannot see."""
    write_set(tmp_path)
    frame = read_manifest(tmp_path).frame_bytes
    size = left * frame // 100
    cut(tmp_path / "train-00001.tfrecord", size)
    record = size // frame
    with pytest.raises(
        ValueError,
        match=rf"train-00001.tfrecord: the shard has {size} bytes and must "
        rf"have {8 * frame}: it is cut in record {record} at byte offset "
        rf"{record * frame}\.",
    ):
        read_manifest(tmp_path)
    bad = verify_records(tmp_path)
    assert [place.record for place in bad] == list(range(record, 8))


def test_long_shard(tmp_path):
    write_set(tmp_path)
    path = tmp_path / "train-00001.tfrecord"
    content = path.read_bytes()
    path.write_bytes(content + content[: len(content) // 8])
    with pytest.raises(ValueError, match="there is more than its 8 records"):
        read_manifest(tmp_path)


def test_damaged_records_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "_SCAN_BYTES", 1000)
    write_set(tmp_path)
    frame = read_manifest(tmp_path).frame_bytes
    for shard, record, byte in ((0, 2, 3), (2, 0, 20), (2, 15, frame - 1)):
        path = tmp_path / f"train-{shard:05d}.tfrecord"
        flip_byte(path, record * frame + byte)
    assert [
        (os.path.basename(place.file), place.record, place.offset)
        for place in verify_records(tmp_path)
    ] == [
        ("train-00000.tfrecord", 2, 2 * frame),
        ("train-00002.tfrecord", 0, 0),
        ("train-00002.tfrecord", 15, 15 * frame),
    ]


def test_other_file_of_the_same_size(tmp_path):
    write_set(tmp_path, (8, 8))
    (tmp_path / "train-00000.tfrecord").write_bytes(
        (tmp_path / "train-00001.tfrecord").read_bytes()
    )
    (place,) = verify_records(tmp_path)
    assert "train-00000.tfrecord: another file" in str(place)


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        ((7, 0, 7, 1), "`sequence_length` must be at least 8"),
        ((512, 512, 256, 85), "`reuse_length` must be between 0 and"),
        ((512, -1, 256, 85), "`reuse_length` must be between 0 and"),
        ((512, 256, 0, 85), "`permutation_length` must be between 1 and"),
        ((512, 256, 257, 85), "`permutation_length` must be between 1 and"),
        ((512, 256, 100, 85), "`permutation_length` must divide both halves"),
        ((512, 256, 256, 0), "`num_predict` must be at least 1"),
        ((512, 256, 256, 509), "`num_predict` must be at least 1 and leave"),
    ],
)
def test_lengths_that_do_not_fit(lengths, message):
    with pytest.raises(ValueError, match=message):
        features.check_lengths(*lengths)
