"""Files that exist whole or not at all, and their digests."""

import contextlib
import os
import pathlib
import subprocess
import sys

import pytest

from data_pipeline.base import checksums
from data_pipeline.base import files
from data_pipeline.base import formats
from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.checksums import add_checksums
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.checksums import write_checksums
from data_pipeline.base.checksums import write_listed
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import local_copy
from data_pipeline.base.files import parse_json
from data_pipeline.base.files import read_json
from data_pipeline.base.files import read_json_object
from data_pipeline.base.files import remove
from data_pipeline.base.files import write_bytes
from data_pipeline.base.files import write_json
from data_pipeline.base.files import written_whole
from data_pipeline.base.outputs import check_directory
from data_pipeline.base.outputs import check_writable
from xlnet_tf.weights.tensor_files import digest_of_weights


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
    assert done == ["fsync", "rename", "fsync"]
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


def test_what_is_to_be_written_is_checked_before_the_work(tmp_path):
    file, other = tmp_path / "a.txt", tmp_path / "b.txt"
    file.write_text("mine")
    (tmp_path / "link").symlink_to(file)
    for path in (file, other, tmp_path / "new" / "c.txt"):
        check_writable(path, [str(tmp_path / "[b-z]*.txt"), "gs://bucket/a"])
    for path, inputs in (
        (file, [file]),
        (file, [str(tmp_path / "*.txt")]),
        (tmp_path / "link", [file]),
        (tmp_path / "x" / ".." / "a.txt", [file]),
    ):
        (tmp_path / "x").mkdir(exist_ok=True)
        with pytest.raises(ValueError, match="is read too, and would be repl"):
            check_writable(path, inputs)
    with pytest.raises(ValueError, match="is a directory; name a file"):
        check_writable(tmp_path)
    check_directory(tmp_path)
    check_directory(tmp_path / "new" / "one")
    with pytest.raises(ValueError, match="a.txt is a file; name a directory"):
        check_directory(file)
    for check in (check_writable, check_directory):
        with pytest.raises(ValueError, match="cannot be made: .*a.txt is a fi"):
            check(file / "new" / "one")
    (tmp_path / "lost").symlink_to(tmp_path / "nothing")
    for path in (tmp_path / "lost", tmp_path / "lost" / "one" / "two"):
        with pytest.raises(ValueError, match="lost is a link that leads nowhe"):
            check_directory(path)
    with pytest.raises(ValueError, match="lost is a link that leads nowhere"):
        check_writable(path)


def test_a_home_directory_that_is_missing(monkeypatch):
    monkeypatch.setenv("HOME", "/home/me")
    assert as_path("~/a") == pathlib.Path("/home/me/a")
    assert as_path("~a/b") == pathlib.Path("~a/b")
    monkeypatch.setenv("HOME", "")
    for path in ("~", "~/a"):
        with pytest.raises(ValueError, match=f"{path}: this user has no home"):
            as_path(path)
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("os.path.expanduser", lambda path: path)
    with pytest.raises(ValueError, match="Set the variable HOME"):
        as_path("~/a")


def test_a_device_is_not_replaced(tmp_path):
    """As root, a file would take the place of /dev/null."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ValueError, match="pipe is a device or a socket"):
        write_bytes(pipe, b"new")
    assert pipe.is_fifo() and list(tmp_path.iterdir()) == [pipe]


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


def test_names_that_no_file_can_have():
    assert as_path("a\udcff") == pathlib.Path(os.fsdecode(b"a\xff"))
    for name in ("a\0b", "a\ud800"):
        assert not files.is_below(name)
        with pytest.raises(ValueError, match="cannot be the name of a file"):
            as_path(name)


def test_equal_keys_of_json_are_refused():
    assert parse_json('{"a": {"b": 1}, "b": [{"a": 1}]}')["a"] == {"b": 1}
    for text in (
        '{"a": 1, "a": 1}',
        '[{"b": 1, "a": {"b": 2, "a": 3, "b": 4}}]',
    ):
        with pytest.raises(ValueError, match="the key '[ab]' is there twice"):
            parse_json(text)


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


def test_versions_of_formats():
    formats.check_version("a.json", 3, 3)
    for found, shown in (
        (None, "no format version"),
        (2, "the format version 2"),
        (4, "the format version 4"),
        ("3", "the format version '3'"),
        (True, "the format version True"),
        ([3] * 10**6, r"the format version \[3, 3"),
    ):
        message = f"a.json has {shown}.*, and this release reads version 1 "
        with pytest.raises(ValueError, match=message) as told:
            formats.check_version("a.json", found, 1)
        assert len(str(told.value)) < 250


def test_a_json_file_is_not_listed_while_it_is_written(tmp_path, monkeypatch):
    write_listed(tmp_path, {"a.json": 1, "b.json": 2})
    assert verify_checksums(tmp_path) == ["a.json", "b.json"]

    def stop(path, value):
        assert verify_checksums(tmp_path) == ["b.json"]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(checksums, "write_json", stop)
        with pytest.raises(KeyboardInterrupt):
            write_listed(tmp_path, {"a.json": 3})
    write_listed(tmp_path, {"a.json": 3})
    (tmp_path / "a.json").write_text("4")
    with pytest.raises(ValueError, match="a.json is damaged"):
        verify_checksums(tmp_path)


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
    (tmp_path / "a/README.md").write_text("A card, reworded by an upgrade.")
    assert digest_of_weights(tmp_path / "a") == digest
    (tmp_path / "a" / "more.safetensors").write_bytes(b"1")
    more = digest_of_weights(tmp_path / "a")
    assert more != digest
    # A damaged HDF5 file has a digest too, of its bytes.
    (tmp_path / "a" / "model.weights.h5").write_bytes(b"no HDF5")
    assert digest_of_weights(tmp_path / "a") not in (digest, more)


@pytest.fixture(params=["exchanged", "renamed twice"])
def way(request, monkeypatch):
    """How a directory is replaced: Linux', and where that is not possible."""
    if request.param == "renamed twice":
        monkeypatch.setattr(files, "_exchange", lambda *names: False)
    return request.param


def test_a_directory_is_replaced_whole_if_asked(tmp_path, way):
    target = tmp_path / "d"

    def write(text, **options):
        with written_whole(target, **options) as temporary:
            temporary.mkdir()
            (temporary / text).write_text(text)

    write("old")
    with pytest.raises(FileExistsError, match="exists: .*d"):
        write("new")
    assert [f.name for f in target.iterdir()] == ["old"]
    # Another process writes the same meanwhile: the last one wins.
    with written_whole(target, replace_directory=True) as temporary:
        temporary.mkdir()
        (temporary / "new").write_text("new")
        write("other", replace_directory=True)
    assert [f.name for f in target.iterdir()] == ["new"]
    assert [f.name for f in tmp_path.iterdir()] == ["d"]


def test_the_old_directory_stays_where_the_new_one_cannot_be_renamed(
    tmp_path, monkeypatch
):
    target = tmp_path / "d"
    target.mkdir()
    (target / "old").write_text("old")

    def full(*names):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)

    def write(**options):
        with written_whole(target, **options) as temporary:
            temporary.mkdir()
            (temporary / "new").write_text("new")

    with monkeypatch.context() as patch:
        patch.setattr(files, "_exchange", lambda *names: False)
        with pytest.raises(OSError, match="No space left"):
            write(replace_directory=True)
    assert [f.name for f in target.iterdir()] == ["old"]
    assert [f.name for f in tmp_path.iterdir()] == ["d"]
    if sys.platform == "linux":
        # In one step, in which nobody finds no directory there.
        write(replace_directory=True)
        assert [f.name for f in target.iterdir()] == ["new"]


def test_paths_with_a_scheme(bucket, tmp_path):
    assert as_path(tmp_path / "a") == tmp_path / "a"
    assert not is_remote(tmp_path)
    with pytest.raises(ValueError, match="moon:// are not known"):
        as_path("moon://name/file")
    folder = as_path(bucket) / "folder"
    assert is_remote(folder)
    write_json(folder / "a.json", [1])
    assert read_json(f"{bucket}/folder/a.json") == [1]
    with written_whole(folder / "d") as temporary:
        (temporary / "inner").mkdir(parents=True)
        (temporary / "inner" / "file").write_bytes(b"x" * 10)
    with local_copy(folder / "d") as local:
        assert (local / "inner" / "file").read_bytes() == b"x" * 10
    write_checksums(folder)
    verify_checksums(folder)
    remove(folder)
    assert not folder.exists()
    assert not list(pathlib.Path.cwd().glob("*:"))


def test_checksums(tmp_path):
    verify_checksums(tmp_path)  # none
    (tmp_path / "assets").mkdir()
    (tmp_path / "assets" / "b").write_bytes(b"b")
    (tmp_path / "a").write_bytes(b"a")
    write_checksums(tmp_path)
    subprocess.run(
        ["sha256sum", "--check", "--quiet", CHECKSUMS_FILE],
        cwd=tmp_path,
        check=True,
    )
    (tmp_path / "later").write_bytes(b"")
    verify_checksums(tmp_path)
    (tmp_path / "a").write_bytes(b"c")
    verify_checksums(tmp_path, ["assets/b"])
    with pytest.raises(ValueError, match="a is damaged, or was not saved"):
        verify_checksums(tmp_path)
    (tmp_path / "a").unlink()
    with pytest.raises(ValueError, match="a is missing"):
        verify_checksums(tmp_path)
    for text, message in (
        (f"{'0' * 64}  ../a\n", "which is not in"),
        (f"{'0' * 63}  a\n", "SHA256SUMS is damaged: .* has no SHA-256"),
        ("\xff\n", "SHA256SUMS is damaged: .* has no SHA-256"),
    ):
        (tmp_path / CHECKSUMS_FILE).write_text(text, encoding="latin-1")
        with pytest.raises(ValueError, match=message):
            verify_checksums(tmp_path)
    (tmp_path / CHECKSUMS_FILE).unlink()
    for name in ("assets/b", "later"):
        add_checksums(tmp_path, [name])
    verify_checksums(tmp_path)
    (tmp_path / "assets" / "b").write_bytes(b"c")
    with pytest.raises(ValueError, match="b is damaged"):
        verify_checksums(tmp_path)
