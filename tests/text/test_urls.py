"""Text, tables and tokenizers read by fsspec; nothing is written."""

import gzip
import io
import json

import fsspec
import pyarrow
import pytest
from pyarrow import parquet

from data_pipeline.records.writer import verify_records
from data_pipeline.tasks.reading import read_examples
from data_pipeline.text.documents import Corpus
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import find_files
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import write_corpus
from tests.support.table_files import save_dataset
from xlnet_tf.files import as_path
from xlnet_tf.files import is_remote
from xlnet_tf.files import read_json
from xlnet_tf.files import sha256_of
from xlnet_tf.files import size_of
from xlnet_tf.files import urls
from xlnet_tf.files import write_json
from xlnet_tf.files import written_whole


@pytest.fixture
def memory():
    """fsspec's file system in memory, which all of the process share."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


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
    for write in (
        lambda: write_json("memory://a/b.json", 2),
        lambda: written_whole("memory://x").__enter__(),
        lambda: path.open("wb"),
    ):
        with pytest.raises(ValueError, match="nothing is written to memory://"):
            write()
    assert read_json(path) == [1]
    assert is_remote("hf://datasets/a/b/c") and not is_remote("hf://a/b")


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
    assert "memory:///far/a.txt has other text" in capsys.readouterr().err
    assert run_build(corpus, "memory://set") == 1
    error = capsys.readouterr().err
    assert "nothing is written to memory://set" in error
    assert error.count("\n") == 1
