"""Text, tables, tokenizers, records and models by fsspec."""

import gzip
import io
import json

import fsspec
import numpy as np
import pyarrow
import pytest
import tensorflow as tf
from pyarrow import parquet

import xlnet_tf
from data_pipeline import PretrainingData
from data_pipeline import build_records
from data_pipeline import train_tokenizer
from data_pipeline.base import urls
from data_pipeline.base.checksums import write_checksums
from data_pipeline.base.command_line import run
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import names_below
from data_pipeline.base.files import read_json
from data_pipeline.base.files import remove
from data_pipeline.base.files import sha256_of
from data_pipeline.base.files import size_of
from data_pipeline.base.files import write_json
from data_pipeline.base.files import written_whole
from data_pipeline.base.outputs import check_writable
from data_pipeline.base.settings import read_file
from data_pipeline.records.manifest import verify_records
from data_pipeline.tasks.reading import read_examples
from data_pipeline.text import documents
from data_pipeline.text.documents import Corpus
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import find_files
from tests.support import artefacts
from tests.support.artefacts import TOKENIZER
from tests.support.commands import refused
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import write_corpus
from tests.support.table_files import save_dataset
from xlnet_tf import convert
from xlnet_tf.training.directory import claimed
from xlnet_tf.training.settings import PretrainingSettings


@pytest.fixture
def memory():
    """fsspec's file system in memory, which all of the process share."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@pytest.fixture(scope="module")
def backbone():
    config = xlnet_tf.XLNetConfig(**artefacts.MODEL)
    return xlnet_tf.XLNetBackbone(config, seed=1)


def texts_of(pattern, **options):
    corpus = Corpus(pattern, **options)
    log = ReadLog()
    found = [document.text for document in corpus.documents(log)]
    assert log.digests == {path: sha256_of(path) for path in corpus.files}
    return found


def test_paths(memory):
    memory.pipe("/a/b.json", b"[1]")
    path = as_path("memory://a/b.json")
    assert is_remote(path) and str(as_path(path)) == "memory://a/b.json"
    assert path.is_file() and path.exists() and not path.is_dir()
    assert as_path("memory://a").is_dir()
    assert not as_path("memory://a/c").exists()
    assert (path.name, path.suffix, str(path.parent)) == (
        *("b.json", ".json"),
        "memory://a",
    )
    assert read_json(path) == [1] and size_of(path) == 3
    assert path.open().read() == "[1]"
    assert [x.name for x in as_path("memory://a").iterdir()] == ["b.json"]
    with pytest.raises(FileNotFoundError, match="no file memory://a/c"):
        as_path("memory://a/c").read_text()
    write_json("memory://a/c/d.json", [2])
    write_json("memory://a/c/d.json", [3])
    assert read_json("memory://a/c/d.json") == [3]
    with written_whole("memory://a/e") as new:
        (new / "inner").mkdir(parents=True)
        (new / "inner" / "file").write_bytes(b"x" * 10)
    inner = as_path("memory://a/e/inner/file")
    assert inner.read_bytes() == b"x" * 10
    inner.replace(as_path("memory://a/moved"))
    assert not inner.exists() and size_of("memory://a/moved") == 10
    for name in ("a/moved", "a/e", "a/not-there"):
        remove(f"memory://{name}")
    assert names_below(as_path("memory://a")) == ["b.json", "c/d.json"]
    with pytest.raises(ValueError, match="written whole"):
        path.open("ab")
    assert is_remote("hf://datasets/a/b/c") and not is_remote("hf://a/b")


def test_an_upload_that_fails_leaves_the_old_file(memory, monkeypatch):
    """Which a loop of writes, closed at an exception, would cut."""
    write_json("memory://a/b.json", [1])
    for error in (OSError("gone"), KeyboardInterrupt()):

        def put_file(self, file, path, error=error, **options):
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(type(memory), "put_file", put_file)
            with pytest.raises(type(error)):
                write_json("memory://a/b.json", [2])
        assert read_json("memory://a/b.json") == [1]


def test_an_object_store_has_no_empty_folders(memory, monkeypatch):
    path = as_path("memory://a/none")
    with pytest.raises(FileNotFoundError):
        list(path.iterdir())
    monkeypatch.setattr(urls, "_BUCKETS", {"memory"})
    assert list(path.iterdir()) == []


def test_data_sets_of_the_hub_are_only_read():
    pytest.importorskip(
        "huggingface_hub", reason="huggingface_hub is not installed"
    )
    file = "hf://datasets/a/b/c.json"
    for write in (check_writable, lambda file: as_path(file).open("wb")):
        with pytest.raises(ValueError, match="hf://.* cannot be written: file"):
            write(file)


def test_what_cannot_be_written_is_refused_before_the_work(memory, tmp_path):
    for file in (tmp_path / "a", "gs://a/b", "memory://a/b", "hf://a/b/c.png"):
        check_writable(file)
    assert not memory.exists("/a")
    for file, message in (
        ("nosuch://a/b", "nosuch://a/b: paths that begin with nosuch://"),
        ("https://127.0.0.1:1/b", "^https://127.0.0.1:1/b "),
        ("hf://a/b", "hf://a/b is a model; give hf://a/b/NAME"),
        ("hf://a", "is hf://OWNER/NAME"),
    ):
        with pytest.raises(ValueError, match=message):
            check_writable(file)


def test_settings(memory):
    """Also beside checksums, and in a folder below them; none above."""
    for name in ("s.yaml", "bucket/s.yaml", "bucket/run/extra/s.yml"):
        memory.pipe(f"/{name}", b"steps: 3\n")
        assert read_file(PretrainingSettings, f"memory://{name}") == {
            "steps": 3
        }
    memory.pipe("/SHA256SUMS", b"0" * 64 + b"  bucket/s.yaml\n")
    assert read_file(PretrainingSettings, "memory://bucket/s.yaml") == {
        "steps": 3
    }
    for folder in ("bucket/run/extra", "bucket/run"):
        write_checksums(f"memory://{folder}")
        file = "memory://bucket/run/extra/s.yml"
        assert read_file(PretrainingSettings, file) == {"steps": 3}
        memory.pipe("/bucket/run/extra/s.yml", b"steps: 4\n")
        with pytest.raises(ValueError, match="s.yml is damaged"):
            read_file(PretrainingSettings, file)
        memory.rm(f"/{folder}/SHA256SUMS")
        memory.pipe("/bucket/run/extra/s.yml", b"steps: 3\n")
    memory.pipe("/bucket/run.json", b'{"backend": 1}')
    with pytest.raises(ValueError, match="in memory://bucket/training.json: g"):
        read_file(PretrainingSettings, "memory://bucket/run.json")
    with pytest.raises(FileNotFoundError, match="at memory://bucket/none.y"):
        read_file(PretrainingSettings, "memory://bucket/none.yaml")


def test_packages_and_clients_that_fail(memory, monkeypatch):
    def fail(error):
        def raise_it(*arguments, **options):
            raise error

        return raise_it

    with monkeypatch.context() as patch:
        error = ImportError("Install s3fs to access S3")
        patch.setattr(fsspec.core, "url_to_fs", fail(error))
        for url in ("s3://a/b", "hf://datasets/a/b/c.parquet"):
            with pytest.raises(ValueError, match="package: Install s3fs"):
                as_path(url)
    memory.pipe("/a.txt", b"One.")
    path = as_path("memory://a.txt")
    for name in ("exists", "info", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), name, fail(Exception("no\nnet")))
            with pytest.raises(OSError, match=r"a.txt cannot be read \(no net"):
                path.exists() if name == "exists" else None
                path.stat() if name == "info" else path.open("rb")
    for name in ("makedirs", "open"):
        with monkeypatch.context() as patch:
            patch.setattr(type(memory), name, fail(Exception("no\nroom")))
            with pytest.raises(OSError, match=r"cannot be written \(no room"):
                write_json("memory://b/c.json", 1)
    file = urls._File(io.BytesIO(), "memory://a.txt")
    file._file.close()
    with pytest.raises(OSError, match="a.txt cannot be read"):
        file.read()


def test_text_and_tables(memory, tmp_path):
    line = json.dumps({"text": "One. Two.", "label": "a"}) + "\n"
    memory.pipe("/t/a.jsonl", line.encode() * 2)
    memory.pipe("/t/b.jsonl.gz", gzip.compress(line.encode()))
    content = pyarrow.table({"text": ["Three."] * 3, "label": ["b"] * 3})
    parquet.write_table(content, tmp_path / "c.parquet")
    memory.put(str(tmp_path / "c.parquet"), "/t/c.parquet")
    saved = save_dataset(content, tmp_path / "saved")
    memory.put(str(saved), "/saved", recursive=True)
    assert find_files("memory://t/*.jsonl*") == [
        *("memory:///t/a.jsonl", "memory:///t/b.jsonl.gz")
    ]
    assert texts_of("memory://t/*") == ["One. Two."] * 3 + ["Three."] * 3
    assert texts_of("memory://saved") == ["Three."] * 3
    for name, count in (("t/b.jsonl.gz", 1), ("t/c.parquet", 3), ("saved", 3)):
        found = read_examples("classification", f"memory://{name}")
        assert len(found) == count
    for pattern in ("memory://t/x*", "memory://t/x.txt"):
        with pytest.raises(FileNotFoundError, match="no file matches"):
            find_files(pattern)
    with pytest.raises(ValueError, match="not a directory"):
        find_files("memory://t")


def test_records(memory, tmp_path, capsys):
    """Built from there to a local directory, to the bytes of local text."""
    corpus = write_corpus(tmp_path / "corpus", documents=4)
    memory.put(str(corpus / "a.txt"), "/far/a.txt")
    memory.put(str(corpus / "spiece.model"), "/far/spiece.model")
    far = ("--input", "memory://far/*.txt")
    far += ("--tokenizer", "memory://far/spiece.model")
    assert run_build(corpus, tmp_path / "near") == 0
    assert run_build(corpus, tmp_path / "far", *far) == 0
    assert digests(tmp_path / "far") == digests(tmp_path / "near")
    assert verify_records(tmp_path / "far") == []
    assert run_build(corpus, tmp_path / "far", *far) == 0
    assert "was complete already" in capsys.readouterr().out
    memory.pipe("/far/a.txt", (corpus / "a.txt").read_bytes().swapcase())
    assert run_build(corpus, tmp_path / "far", *far) == 1
    assert "memory:///far/a.txt has changed" in capsys.readouterr().err


def test_records_are_written(memory, tmp_path, capsys):
    """To the bytes of a local set, with a word on other writers."""
    corpus = write_corpus(tmp_path / "corpus", documents=4)
    assert run_build(corpus, tmp_path / "near") == 0
    assert run_build(corpus, "memory://set") == 0
    assert "see to it that no other build writes" in capsys.readouterr().err
    assert verify_records("memory://set") == []
    memory.get("/set", str(tmp_path / "far"), recursive=True)
    assert digests(tmp_path / "far") == digests(tmp_path / "near")
    # TensorFlow reads and writes these by itself.
    with pytest.raises(ValueError, match="memory://set: TensorFlow reads"):
        PretrainingData("memory://set", batch_size=2)
    with pytest.raises(ValueError, match="memory://run: TensorFlow reads"):
        with claimed("memory://run"):
            pass
    assert not memory.exists("/run")


def test_models_are_written(memory, backbone, tmp_path):
    ids = {"token_ids": np.array([[9, 10, 3]])}
    for _ in range(2):  # the second replaces the first
        backbone.save_to_preset("memory://m", tokenizer=tiny_tokenizer())
    for form in convert.FORMATS:
        target = f"memory://{form}"
        argv = ["--from", "memory://m", "--to", target, "--format", form]
        assert convert.main(argv) == 0
        with pytest.raises(ValueError, match="is not empty"):
            convert.main(argv)
        if form == "tf1":
            with pytest.raises(ValueError, match="ckpt: TensorFlow reads"):
                xlnet_tf.load(target)
            continue
        found = xlnet_tf.load(target)(ids)["content"]
        np.testing.assert_allclose(found, backbone(ids)["content"], atol=1e-6)


def test_a_bucket_without_a_network_is_answered_in_one_line(
    monkeypatch, tmp_path, capsys
):
    """TensorFlow's own error ends in a traceback of its code."""
    address = "gs://bucket/text.txt"

    def fail(*arguments):
        raise tf.errors.FailedPreconditionError(
            None,
            None,
            "Error executing an HTTP request: libcurl code 6 meaning 'Could "
            f"not resolve hostname'\n\t when reading {address}",
        )

    monkeypatch.setattr(documents, "find_files", fail)
    for main, options in (
        (build_records.main, ("--tokenizer", TOKENIZER)),
        (train_tokenizer.main, ()),
    ):
        options = ("--input", address, "--output", tmp_path / "made", *options)
        line = refused(capsys, main, *options)
        assert address in line
        assert "The file is in a bucket: check the path" in line

    def others(argv):
        raise tf.errors.InvalidArgumentError(None, None, "shapes differ")

    with pytest.raises(tf.errors.InvalidArgumentError):
        run(others, [])

    def full(argv):
        reason = "/e/variables: write failed: No space left on device"
        raise tf.errors.ResourceExhaustedError(None, None, reason)

    assert run(full, []) == 1
    assert capsys.readouterr().err.startswith("error: the disk is full while")


def test_a_hub_without_a_network_is_asked_once(monkeypatch, caplog):
    constants = pytest.importorskip("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:1")
    with pytest.raises(OSError, match="hf://owner/none cannot be fetched"):
        as_path("hf://owner/none")
    assert "Retrying" not in caplog.text
