"""Parquet, Arrow and Feather files, saved data sets, .zst: texts by rows."""

import json
import sys
import tracemalloc

import pyarrow
import pytest
from pyarrow import parquet

from data_pipeline.base.files import sha256_of
from data_pipeline.text import columnar
from data_pipeline.text.compression import read_chunks
from data_pipeline.text.documents import Corpus
from data_pipeline.text.documents import read_documents
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import TextError
from data_pipeline.text.files import find_files
from tests.support.table_files import save_dataset
from tests.support.table_files import write_all
from tests.support.table_files import write_arrow

TEXTS = ["One is here. Two is.", None, "Größe ä.\r\nEnd.", "  ", "Last."] * 90


def table(texts=TEXTS, name="text"):
    numbers = pyarrow.array(range(len(texts)))
    return pyarrow.table({"n": numbers, name: texts})


def texts_of(path, log=None, **options):
    corpus = Corpus(str(path), **options)
    return [document.text for document in corpus.documents(log)]


def test_rows_are_documents(tmp_path):
    expected = ["One is here. Two is.", "Größe ä.\nEnd.", "Last."] * 90
    paths = write_all(table(), tmp_path)
    assert len(paths) == 5
    for path in paths:
        reported = []
        log = ReadLog(reported.append)
        assert texts_of(path, log) == expected, path
        assert log.bad_text == {"empty_rows": 180}
        assert sum(reported) == path.stat().st_size
        assert log.digests == {str(path): sha256_of(path)}
    first = next(read_documents(paths[0]))
    assert first == ["One is here.", "Two is."]
    corpus = Corpus(paths[0])
    assert corpus.reader.text_format == "running" and corpus.notes == []
    # The format that is given says what the lines of a row are.
    parquet.write_table(table(["a b\n\n c d "]), tmp_path / "f.parquet")
    (lines,) = read_documents(tmp_path / "f.parquet", "sentences")
    assert lines == ["a b", "c d"]


def test_text_fields(tmp_path):
    """Of columns, and of lines of JSON, by the same names."""
    rows = [
        {"body": f"text {n}.", "a": {"b": {"c": f"c {n}."}}, "d.e": "x"}
        for n in range(300)
    ]
    rows[7] |= {"a": None}
    write_all(pyarrow.Table.from_pylist(rows), tmp_path)
    with open(tmp_path / "f.jsonl", "w") as file:
        file.writelines(json.dumps(row) + "\n" for row in rows if row["a"])
    for path in sorted(tmp_path.iterdir()):
        count = 300 - (path.suffix == ".jsonl")
        for field, number, last in (
            ("body", count, "text 299."),
            ("a.b.c", 299, "c 299."),
            ("d.e", count, "x"),
        ):
            found = texts_of(path, text_field=field)
            assert (len(found), found[-1]) == (number, last), (path, field)
        for field in ("text", "a", "a.b", "a.x", "d", "body.x"):
            with pytest.raises(TextError, match="text.field|string field") as e:
                texts_of(path, text_field=field)
            assert str(path) in str(e.value) and "\n" not in str(e.value)


def test_kinds_of_texts(tmp_path):
    texts = ["a b.", None, "c d."]
    for number, kind in enumerate(
        (
            pyarrow.string(),
            pyarrow.large_string(),
            pyarrow.string_view(),
            pyarrow.dictionary(pyarrow.int8(), pyarrow.string()),
        )
    ):
        column = pyarrow.array(texts, pyarrow.string()).cast(kind)
        path = tmp_path / f"{number}.arrow"
        write_arrow(pyarrow.table({"text": column}), path)
        assert texts_of(path) == ["a b.", "c d."]
    write_arrow(pyarrow.table({"text": [1, 2]}), tmp_path / "numbers.arrow")
    with pytest.raises(TextError, match="holds int64, not texts"):
        texts_of(tmp_path / "numbers.arrow")
    write_arrow(pyarrow.table({"text": [None]}), tmp_path / "nulls.arrow")
    with pytest.raises(TextError, match="holds no text"):
        texts_of(tmp_path / "nulls.arrow")


def test_rows_that_are_no_text(tmp_path):
    good = pyarrow.array([b"Good.", b"b\xff.", b"Gr\xc3\xb6\xc3\x9fe."])
    # What is no UTF-8 may stand in a column of texts all the same.
    column = pyarrow.Array.from_buffers(pyarrow.string(), 3, good.buffers())
    for path in write_all(pyarrow.table({"text": column}), tmp_path):
        with pytest.raises(TextError, match="row 2: invalid utf-8 at byte 1 "):
            texts_of(path)
        log = ReadLog()
        found = texts_of(path, log, on_bad_text="skip")
        assert found == ["Good.", "Größe."]
        assert log.bad_text == {"skipped_lines": 1}
        log = ReadLog()
        found = texts_of(path, log, on_bad_text="replace")
        assert found == ["Good.", "b\ufffd.", "Größe."]
        assert log.bad_text == {"replaced_characters": 1}


def test_saved_data_sets(tmp_path):
    content = table([f"Text {n}." for n in range(25)])
    saved = save_dataset(content, tmp_path / "both" / "train", shards=3)
    save_dataset(content, tmp_path / "both" / "test")
    splits = tmp_path / "both" / "dataset_dict.json"
    splits.write_text('{"splits": ["train", "test"]}')
    expected = [f"Text {n}." for n in range(25)]
    assert texts_of(saved) == expected
    assert len(find_files(tmp_path / "both" / "t*")) == 5
    with pytest.raises(ValueError, match="splits train, test .*both/train"):
        find_files(tmp_path / "both")
    splits.write_text('{"splits": ["train"]}')
    assert texts_of(tmp_path / "both") == expected
    state = json.loads((saved / "state.json").read_text())
    for wrong, message in (
        ({"_data_files": []}, "does not name"),
        ({"_data_files": [{"filename": "../x.arrow"}]}, "does not name"),
        ({"_data_files": [{"filename": "\ud800.arrow"}]}, "does not name"),
        ({"_data_files": 7}, "does not name"),
        (state | {"_indices_data_files": [{"filename": "i"}]}, "flatten_ind"),
    ):
        (saved / "state.json").write_text(json.dumps(wrong))
        with pytest.raises(ValueError, match=message):
            find_files(saved)


def test_long_rows(tmp_path, monkeypatch):
    monkeypatch.setattr("data_pipeline.text.rows.MOST_CHARACTERS", 5)
    for path in write_all(table(["abcde", "abcdef"]), tmp_path):
        with pytest.raises(TextError, match="row 2: the text has more than 5"):
            texts_of(path)
        assert texts_of(path, on_bad_text="skip") == ["abcde"]


def test_damaged_files(tmp_path):
    for path in write_all(table(), tmp_path):
        whole = path.read_bytes()
        for size in (0, 3, 8, len(whole) // 2, len(whole) - 5):
            path.write_bytes(whole[:size])
            if path.name == "c.arrow" and size == len(whole) - 5:
                continue  # a stream that ends where it may
            with pytest.raises(TextError, match="damaged|cut short|no text"):
                texts_of(path)
        path.write_bytes(whole)
    (tmp_path / "old.feather").write_bytes(b"FEA1" + bytes(60))
    with pytest.raises(TextError, match="version 1"):
        texts_of(tmp_path / "old.feather")


def test_zst(tmp_path):
    """One frame or several; what is damaged or a bomb is refused."""
    text = "Größe ä. Und so weiter.\n\n" * 20_000
    codec = pyarrow.Codec("zstd")
    frames = [
        codec.compress(part.encode(), asbytes=True)
        for part in (text[:9], text[9:])
    ]
    path = tmp_path / "a.txt.zst"
    whole = codec.compress(text.encode(), asbytes=True)
    for content in (whole, b"".join(frames)):
        path.write_bytes(content)
        log = ReadLog()
        assert b"".join(read_chunks(str(path), log)).decode() == text
        assert log.digests[str(path)] == sha256_of(path)
    (tmp_path / "b.jsonl.zstd").write_bytes(
        codec.compress(b'{"text": "One."}\n', asbytes=True)
    )
    assert texts_of(tmp_path / "b.jsonl.zstd") == ["One."]
    for content in (b"".join(frames)[:-9], frames[0][:6] + b"\0" * 9, b"abc"):
        path.write_bytes(content)
        with pytest.raises(TextError, match="damaged, cut short or"):
            list(read_chunks(str(path)))
    # A window of 2 GiB, and a single block of a byte.
    path.write_bytes(b"\x28\xb5\x2f\xfd\0" + bytes([21 << 3, 9, 0, 0]) + b"a")
    with pytest.raises(TextError, match="zstd -d --long=31 .*a.txt.zst"):
        list(read_chunks(str(path)))
    path.write_bytes(codec.compress(bytes(70_000_000), asbytes=True))
    with pytest.raises(TextError, match="expands to more than"):
        list(read_chunks(str(path)))


def test_without_pyarrow(tmp_path, monkeypatch):
    paths = write_all(table(), tmp_path)
    paths.append(tmp_path / "x.txt.zst")
    paths[-1].write_bytes(pyarrow.compress(b"a", "zstd", asbytes=True))
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    for path in paths:
        with pytest.raises(RuntimeError, match="pip install 'pyarrow>=16'"):
            texts_of(path, text_format="running")


def test_memory_does_not_grow_with_a_file(tmp_path):
    path = tmp_path / "a.parquet"
    schema = pyarrow.schema([("text", pyarrow.string())])
    with parquet.ParquetWriter(path, schema) as writer:
        for begin in range(0, 40_000, 2000):
            texts = [f"{n} " * 200 for n in range(begin, begin + 2000)]
            writer.write_table(pyarrow.table({"text": texts}, schema))
    with open(path, "rb") as file:
        tracemalloc.start()
        rows = columnar.read_texts(file, str(path), "text")
        size = sum(len(value) for _, value in rows)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert size > 40_000_000 and peak < 4_000_000
