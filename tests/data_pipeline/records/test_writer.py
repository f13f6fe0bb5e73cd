"""Record sets: framing, complete or absent, damage named by file and offset."""

import errno
import os
import pathlib
import socket

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.base import locking
from data_pipeline.base.files import write_json
from data_pipeline.records import schema
from data_pipeline.records import tfrecord
from data_pipeline.records import writer
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import verify_records
from data_pipeline.records.part import write_shard
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
    for name, columns in slices.items():
        ours[columns] = values[name]
    example = tf.train.Example()
    for name, value in values.items():
        feature = example.features.feature[name]
        feature.bytes_list.value.append(value.tobytes())
    assert ours.tobytes() == example.SerializeToString(deterministic=True)


def test_frames_are_tensorflows(tmp_path):
    for length in (1, 2, 1331, 1332):
        rng = np.random.default_rng(length)
        values = {"x": rng.integers(0, 256, (37, length)).astype(np.uint8)}
        frames = tfrecord.frame_records(values, {"x": length})
        ours, theirs = tmp_path / "ours", tmp_path / "theirs"
        frames.tofile(ours)
        with tf.io.TFRecordWriter(str(theirs)) as file:
            for record in tf.data.TFRecordDataset(str(ours)):
                file.write(record.numpy())
                example = tf.train.Example.FromString(record.numpy())
        last = example.features.feature["x"].bytes_list.value[0]
        assert last == values["x"][-1].tobytes()
        assert ours.read_bytes() == theirs.read_bytes(), length
        assert not tfrecord.find_bad_frames(frames).any()


def test_every_flipped_byte_is_found():
    values = {"x": np.zeros((1, 40), np.uint8)}
    frame = tfrecord.frame_records(values, {"x": 40})
    damaged = np.repeat(frame, frame.size, axis=0)
    damaged[np.arange(frame.size), np.arange(frame.size)] ^= 0x10
    assert tfrecord.find_bad_frames(damaged).all()


def test_stored_dtypes():
    small = schema.stored_features(22, 5, 65_536)
    large = schema.stored_features(22, 5, 65_537)
    assert small["token_ids"].dtype == "uint16"
    assert large["token_ids"].dtype == "int32"
    frozen = schema.stored_features(22, 5, 97, "frozen")
    assert frozen["perm_mask"].num_bytes == (22 * 22 + 7) // 8
    assert frozen["target_mapping"].num_bytes == (22 * 5 + 7) // 8


def test_lengths_that_do_not_fit():
    for lengths, message in (
        ((7, 0, 7, 1), "`sequence_length` must be at least 8"),
        ((512, 512, 256, 85), "`reuse_length` must be between 0 and"),
        ((512, -1, 256, 85), "`reuse_length` must be between 0 and"),
        ((512, 256, 0, 85), "`permutation_length` must be between 1 and"),
        ((512, 256, 257, 85), "`permutation_length` must be between 1 and"),
        ((512, 256, 100, 85), "`permutation_length` must divide both halves"),
        ((512, 256, 256, 0), "`num_predict` must be at least 1"),
        ((512, 256, 256, 509), "`num_predict` must be at least 1 and leave"),
    ):
        with pytest.raises(ValueError, match=message):
            schema.check_lengths(*lengths)


def test_set_round_trip_and_overwriting(tmp_path):
    directory = tmp_path / "set"
    write_set(directory, validation=4)
    manifest = read_manifest(directory)
    counts = {s: manifest.num_records(s) for s in ("train", "validation", "x")}
    assert counts == {"train": 37, "validation": 4, "x": 0}
    shards = [f"train-0000{i}.tfrecord" for i in range(3)]
    files = {"manifest.json", "spiece.model", "SHA256SUMS", *shards}
    assert {*os.listdir(directory)} == files | {"validation-00000.tfrecord"}
    shard = manifest.splits["train"][1]
    path = directory / shard.file
    assert path.stat().st_size == shard.bytes == 8 * manifest.frame_bytes
    for record in tf.data.TFRecordDataset(str(path)):
        assert len(record.numpy()) == manifest.record_bytes
    assert verify_records(directory) == []
    # A complete set is kept, unless it is to be overwritten.
    before = (directory / "manifest.json").read_bytes()
    with pytest.raises(FileExistsError, match="holds a set of records already"):
        write_set(directory, (5,))
    assert (directory / "manifest.json").read_bytes() == before
    # Also one of another version of the format.
    other = before.replace(b'"format_version": 3', b'"format_version": 2')
    assert other != before
    (directory / "manifest.json").write_bytes(other)
    write_set(directory, (5,), overwrite=True)
    assert read_manifest(directory).num_records("train") == 5
    assert {*os.listdir(directory)} == files - {*shards[1:]}


def test_failed_build_leaves_nothing(tmp_path):
    for error in (KeyboardInterrupt, ValueError):
        with pytest.raises(error):
            with writer.RecordSetWriter(tmp_path / "set", b"") as record_set:
                frames = np.zeros((2, 30), np.uint8)
                write_shard(record_set.building / "part", [frames])
                raise error
        assert os.listdir(tmp_path) == []


def test_failure_while_files_are_placed(tmp_path, monkeypatch):
    """Whichever fails, an old set has no manifest, and the next writer places
    the files that are left."""
    replace, calls = pathlib.Path.replace, []

    def fail(source, target):
        calls.append(target)
        if len(calls) == failing + 1:
            raise OSError(errno.ENOSPC, "No space left on device", target)
        return replace(source, target)

    for failing in range(6):
        old, new = tmp_path / f"old{failing}", tmp_path / f"new{failing}"
        write_set(old, (3, 4, 1, 1))
        with monkeypatch.context() as patch:
            patch.setattr(pathlib.Path, "replace", fail)
            for directory in (old, new):
                calls.clear()
                with pytest.raises(OSError, match="No space left"):
                    write_set(directory, (5, 6, 7), overwrite=True)
        for directory in (old, new):
            with pytest.raises(FileNotFoundError, match="there is no manifest"):
                read_manifest(directory)
            assert writer.clean_up(directory)
            assert not writer.clean_up(directory)
            assert read_manifest(directory).num_records("train") == 18
            assert verify_records(directory) == []
            # No shard of the old set stays: it had more.
            assert len(os.listdir(directory)) == 6


def test_full_disk_names_the_file(tmp_path, monkeypatch):
    def flush(file):
        if "part" in file.name:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data_pipeline.base.files.flush", flush)
    with pytest.raises(OSError, match="part-train-0") as caught:
        write_set(tmp_path / "set")
    assert caught.value.errno == errno.ENOSPC
    assert os.listdir(tmp_path) == []


def test_two_builds_at_once(tmp_path):
    """One holds the lock; the other is refused, and spoils nothing."""
    with writer.RecordSetWriter(tmp_path / "set", b"") as first:
        write_shard(first.building / "part", [np.zeros((2, 30))])
        before = sorted(os.listdir(first.building))
        for _ in range(2):
            with pytest.raises(
                RuntimeError, match="is writing records to"
            ) as x:
                write_set(tmp_path / "set", overwrite=True)
        owner = f"process {os.getpid()} on {socket.gethostname()}"
        assert owner in str(x.value)
        assert sorted(os.listdir(first.building)) == before
    assert os.listdir(tmp_path) == []
    # A file that a process left which was killed locks nothing.
    building = tmp_path / "set" / ".building"
    building.mkdir(parents=True)
    for name in ("lock", "owner", "pid"):
        (building / name).write_text(str(os.getppid()))
    write_set(tmp_path / "set")
    assert verify_records(tmp_path / "set") == []

    # Another build may finish before this one gets the lock.
    second = writer.RecordSetWriter(tmp_path / "late", b"")
    claim = second._claim

    def late(held):
        write_set(tmp_path / "late")
        return claim(held)

    second._claim = late
    with pytest.raises(FileExistsError, match="holds a set of records"):
        second.__enter__()
    assert verify_records(tmp_path / "late") == []


def test_the_lock_goes_last(tmp_path, monkeypatch):
    """Nothing is removed while another build may begin already."""
    remove, removed = writer.remove, []

    def note(path):
        removed.append(path.name)
        remove(path)

    for module in (writer, locking):
        monkeypatch.setattr(module, "remove", note)
    write_set(tmp_path / "set")
    assert {"placing.json"} < {*removed}
    assert removed[-2:] == ["owner", "lock"]
    assert ".building" not in os.listdir(tmp_path / "set")


def test_disk_without_locks(tmp_path, monkeypatch):
    """Its system knows none, or has no room for more."""
    # The last is of NFS, and has no name in Python.
    for number in (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP, 524):

        def refuse(*arguments, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("fcntl.flock", refuse)
        with pytest.raises(RuntimeError, match="disk where files cannot be lo"):
            write_set(tmp_path / "set")


def test_files_that_are_not_ours_stay(tmp_path):
    """Without `overwrite` those of the names of a set, and always others."""
    for name in ("train-00001.tfrecord", "build.json", "SHA256SUMS"):
        directory = tmp_path / name.partition(".")[0]
        directory.mkdir()
        (directory / name).write_text("mine")
        with pytest.raises(FileExistsError, match=f"a file {name} that bel"):
            write_set(directory)
        assert os.listdir(directory) == [name]
        assert (directory / name).read_text() == "mine"
        write_set(directory, overwrite=True)
        assert read_manifest(directory).num_records("train") == 37
    # The same tokenizer may be there.
    (tmp_path / "set").mkdir()
    (tmp_path / "set" / "spiece.model").write_bytes(b"a model")
    write_set(tmp_path / "set", (5,))

    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "spiece.model").write_bytes(b"another model")
    with pytest.raises(FileExistsError, match="a file spiece.model that bel"):
        write_set(tmp_path / "other")
    for name in ("notes.txt", "train-00009.tfrecord"):
        (tmp_path / "set" / name).write_text("precious")
        write_set(tmp_path / "set", (5,), overwrite=True)
        assert (tmp_path / "set" / name).read_text() == "precious"
    (tmp_path / "set" / "SHA256SUMS").write_text("damaged")
    write_set(tmp_path / "set", (5,), overwrite=True)
    assert verify_records(tmp_path / "set") == []


def test_what_links_and_lists_lead_to_stays(tmp_path):
    """Those of a temporary directory that came from elsewhere."""
    for file in (tmp_path / "a" / "thesis", tmp_path / "b" / "thesis"):
        file.parent.mkdir()
        file.write_text("precious")
    (tmp_path / "set").mkdir()
    building = tmp_path / "set" / ".building"
    building.symlink_to(tmp_path / "a")
    with pytest.raises(FileExistsError, match="building is a link, .* Remove"):
        write_set(tmp_path / "set", overwrite=True)
    building.unlink()
    building.mkdir()
    for name in ("owner", "build.json", "part-train-0"):
        (building / name).symlink_to(tmp_path / "b" / "thesis")
    (tmp_path / "moved").write_text("precious")
    shard = tmp_path / "set" / "train-00000.tfrecord"
    (building / "manifest.json").write_text("{}")
    for name, path in (
        (shard.name, "../../moved"),
        (shard.name, str(tmp_path / "moved")),
        (shard.name, ".."),
        (shard.name, ""),
        ("../../b/thesis", "owner"),
    ):
        write_json(building / "placing.json", {name: path})
        (building / "manifest.json").write_text("{}")
        assert writer.clean_up(tmp_path / "set")
        assert not shard.exists()
    write_set(tmp_path / "set", overwrite=True)
    assert sorted(os.listdir(tmp_path)) == ["a", "b", "moved", "set"]
    for name in "ab":
        assert os.listdir(tmp_path / name) == ["thesis"]
        assert (tmp_path / name / "thesis").read_text() == "precious"
    assert (tmp_path / "moved").read_text() == "precious"


def test_shards_of_another_size_are_refused(tmp_path):
    """Also if cut between two records, which TFRecord cannot detect."""
    write_set(tmp_path)
    frame = read_manifest(tmp_path).frame_bytes
    path = tmp_path / "train-00001.tfrecord"
    content = path.read_bytes()
    for size in (0, frame // 100, 199 * frame // 100, 2 * frame):
        path.write_bytes(content[:size])
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
    path.write_bytes(content + content[:frame])
    with pytest.raises(ValueError, match="there is more than its 8 records"):
        read_manifest(tmp_path)
    path.unlink()
    for function in (read_manifest, verify_records):
        with pytest.raises(
            FileNotFoundError, match="train-00001.tfrecord: .* it is missing"
        ):
            function(tmp_path)


def test_damaged_records_are_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tfrecord, "_SCAN_BYTES", 1000)
    write_set(tmp_path)
    frame = read_manifest(tmp_path).frame_bytes
    for shard, record, byte in ((0, 2, 3), (2, 0, 20), (2, 15, frame - 1)):
        path = tmp_path / f"train-{shard:05d}.tfrecord"
        flip_byte(path, record * frame + byte)
    assert [
        (os.path.basename(bad.file), bad.record, bad.offset)
        for bad in verify_records(tmp_path)
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
    (bad,) = verify_records(tmp_path)
    assert "train-00000.tfrecord: another file" in str(bad)
