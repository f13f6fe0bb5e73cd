"""A table as an object: opened once, looked at, read in order."""

import collections
import pathlib
import tracemalloc
import warnings
import zipfile

import pyarrow
import pytest
from pyarrow import parquet

from data_pipeline.tasks.archives import open_tree
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tasks.reading import read_task
from data_pipeline.tasks.reading import read_texts
from data_pipeline.tasks.table import Table
from data_pipeline.tasks.table import open_table
from tests.support.table_files import write_all

CSV = "comment;mood\n" + "".join(
    f"It was {n}.;{('good', 'bad')[n % 2]}\n" for n in range(40)
)


@pytest.fixture
def opened(monkeypatch):
    """collections.Counter of the names of the files that are opened."""
    names, before = collections.Counter(), pathlib.Path.open

    def counted(path, *arguments, **options):
        names[path.name] += 1
        return before(path, *arguments, **options)

    monkeypatch.setattr(pathlib.Path, "open", counted)
    return names


def test_a_file_is_opened_once(tmp_path, opened):
    """Though its separator and its columns are guessed."""
    for name, text in (
        ("train.csv", CSV),
        ("train.tsv", CSV.replace(";", "\t")),
    ):
        folder = tmp_path / name.replace(".", "_")
        folder.mkdir()
        (folder / name).write_text(text)
        (folder / name.replace("train", "dev")).write_text(text)
        opened.clear()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of the separator
            data = read_task("classification", folder)
        assert data.guessed == {"text": "comment", "label": "mood"}
        assert (len(data.train), list(data.evaluation)) == (40, ["dev"])
        assert opened == {name: 1, name.replace("train", "dev"): 1}
    content = pyarrow.table({"note": ["a b", "c d"] * 9, "id": range(18)})
    for path in write_all(content, tmp_path / "train_csv"):
        if path.suffix != ".csv":
            opened.clear()
            assert read_texts(path)[1] == {"text": "note"}
            assert opened == {path.name: 1}


def test_rows_that_were_looked_at_are_read():
    rows = [[" a ", "b"], ["1", "2"], ["3", "4"], ["5", "6"]]
    table = Table("a.csv", enumerate([[""], *rows, [" "]], start=1))
    assert (table.names, table.keys) == (["a", "b"], [0, 1])
    assert table.head(1) == rows[:1]
    assert table.head(3) == rows[:3]
    assert table.head(9) == rows
    table.left_out["rows of no use left out"] += 2
    with pytest.warns(UserWarning, match="a.csv: 2 rows of no use left out"):
        assert list(table) == list(enumerate(rows, start=2))
    named = [(1, {" a": 1}), (2, {" a": 2, "b": 3})]
    table = Table("a.jsonl", iter(named), [" a", "b"])
    assert (table.names, table.keys) == (["a", "b"], [" a", "b"])
    assert table.is_named and list(table) == named
    for empty in ([], [[""], ["  "]]):
        with pytest.raises(ValueError, match="a.csv: the file is empty"):
            Table("a.csv", enumerate(empty, start=1))


def test_memory_does_not_grow_with_a_table(tmp_path):
    path = tmp_path / "a.parquet"
    texts = [f"{n} " * 200 for n in range(20_000)]
    content = pyarrow.table({"text": texts, "label": ["a"] * len(texts)})
    parquet.write_table(content, path, row_group_size=1000)
    tracemalloc.start()
    table = open_table(open_tree(path), path.name, find_task("classification"))
    assert len(table.head(1000)) == 1000
    size = sum(len(row["text"]) for _, row in table)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size == sum(map(len, texts)) and peak < size / 5


def test_columns_that_are_not_read_may_hold_anything(tmp_path):
    column = pyarrow.array([b"Good.", b"b\xff."])
    column = pyarrow.Array.from_buffers(pyarrow.string(), 2, column.buffers())
    content = pyarrow.table(
        {
            "text": ["a", "b"],
            "label": ["x", "y"],
            "bytes": [b"\xff", b"a"],
            "broken": column,
            "deep": [{"a": [1]}, None],
            "lists": [[[1.5]], None],
        }
    )
    for path in write_all(content, tmp_path):
        assert len(read_examples("classification", path)) == 2
        for name, message in (
            ("broken", "row 2: 'broken' is not UTF-8"),
            ("deep", "row 1: 'deep' is neither a string nor a number"),
            ("lists", "row 1: 'lists' is neither a string nor a number"),
        ):
            with pytest.raises(ValueError, match=message):
                read_examples("classification", path, columns=f"text={name}")


def test_flags_beyond_the_row(tmp_path):
    (tmp_path / "a.csv").write_text("It is.,1\nIt was.,0\n")
    columns = "text=0,label=1+2"
    with pytest.raises(ValueError, match="row 1: a field is missing"):
        read_examples("multi-label", tmp_path / "a.csv", columns=columns)


def test_compressed_members_of_an_archive(tmp_path):
    content = pyarrow.compress(
        b"text\tlabel\nIt is.\tx\n", "zstd", asbytes=True
    )
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("train.tsv.zst", content)
    (example,) = read_examples("classification", tmp_path / "a.zip")
    assert (example.text, example.label) == ("It is.", "x")
