"""Files that exist whole or not at all, and their digests."""

import contextlib
import os

import pytest

from xlnet_tf.files import digest_of_weights
from xlnet_tf.files import read_json
from xlnet_tf.files import read_json_object
from xlnet_tf.files import write_bytes
from xlnet_tf.files import write_json
from xlnet_tf.files import written_whole


def test_a_file_is_flushed_and_then_renamed(tmp_path, monkeypatch):
    done = []
    fsync, replace = os.fsync, os.replace
    monkeypatch.setattr(
        os, "fsync", lambda handle: (done.append("fsync"), fsync(handle))
    )
    monkeypatch.setattr(
        os, "replace", lambda *names: (done.append("rename"), replace(*names))
    )
    write_bytes(tmp_path / "a.bin", b"new")
    assert done == ["fsync", "rename"]
    assert (tmp_path / "a.bin").read_bytes() == b"new"
    assert len(list(tmp_path.iterdir())) == 1


def test_a_failed_write_leaves_the_old_file_and_nothing_else(
    tmp_path, monkeypatch
):
    file = tmp_path / "a.json"
    write_bytes(file, b"old")
    with pytest.raises(KeyboardInterrupt), written_whole(file) as temporary:
        temporary.write_bytes(b"half")
        raise KeyboardInterrupt
    with pytest.raises(OSError), written_whole(tmp_path / "b") as temporary:
        (temporary / "inner").mkdir(parents=True)
        raise OSError(28, "No space left on device")

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_a_directory_replaces_an_empty_one(tmp_path):
    (tmp_path / "d").mkdir()
    with written_whole(tmp_path / "d") as temporary:
        temporary.mkdir()
        (temporary / "file").write_text("x")
        assert temporary.parent == tmp_path
    assert (tmp_path / "d" / "file").read_text() == "x"
    assert [f.name for f in tmp_path.iterdir()] == ["d"]


def test_files_that_belong_together_are_renamed_after_all_are_written(tmp_path):
    names = ["last.index", "first.data"]
    with pytest.raises(ValueError), contextlib.ExitStack() as stack:
        for name in names:
            temporary = stack.enter_context(written_whole(tmp_path / name))
            assert temporary.name.endswith(name)
            temporary.write_bytes(b"x")
        raise ValueError
    assert not list(tmp_path.iterdir())


def test_json_files(tmp_path):
    file = tmp_path / "a.json"
    write_json(file, {"b": 1, "a": [2]})
    assert file.read_text() == '{\n  "b": 1,\n  "a": [\n    2\n  ]\n}\n'
    assert read_json(file) == read_json_object(file) == {"b": 1, "a": [2]}
    for content, read, message in [
        (b"{", read_json, "a.json is not a JSON file: Expecting"),
        (b"\xff", read_json_object, "a.json is not a JSON file: .*utf-8"),
        (b"[1]", read_json_object, "a.json does not hold a JSON object"),
    ]:
        file.write_bytes(content)
        with pytest.raises(ValueError, match=message):
            read(file)


def test_a_digest_is_of_names_and_values(tmp_path):
    import h5py

    def write(name, value, **attributes):
        (tmp_path / name).mkdir(exist_ok=True)
        with h5py.File(tmp_path / name / "model.weights.h5", "w") as file:
            file["layer/kernel"] = [value, 2.0]
            file.attrs.update(attributes)
        return digest_of_weights(tmp_path / name)

    digest = write("a", 1.0, hour=1)
    assert len(digest) == 16
    assert write("b", 1.0, hour=2) == digest
    assert write("b", 1.5) != digest
    (tmp_path / "a" / "config.json").write_text("{}")
    assert digest_of_weights(tmp_path / "a") == digest
    (tmp_path / "a" / "more.safetensors").write_bytes(b"1")
    more = digest_of_weights(tmp_path / "a")
    assert more != digest
    # A damaged HDF5 file has a digest too, of its bytes.
    (tmp_path / "a" / "model.weights.h5").write_bytes(b"no HDF5")
    assert digest_of_weights(tmp_path / "a") not in (digest, more)
