"""A table as an object: opened once, looked at, read in order."""

import collections
import pathlib
import re
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
    for number in (7, 9):
        table.counted.add("rows of no use left out", number)
    assert list(table) == list(enumerate(rows, start=2))
    message = "a.csv: 2 rows of no use left out; the first is row 7"
    with pytest.warns(UserWarning, match=message) as told:
        table.counted.tell()
        table.counted.tell()
    assert len(told) == 1
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


ROWS = "It was fine.,pos\nIt was bad.,neg\n"


def read(path, text, task="classification", columns=None, split="train"):
    """The texts and labels of a file of a text, and the warnings."""
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = read_examples(task, path, split, columns)
    return [(x.text, x.label) for x in found], [str(x.message) for x in told]


EXPECTED = [("It was fine.", "pos"), ("It was bad.", "neg")]


def test_the_separator_that_a_spreadsheet_names(tmp_path):
    for line, separator in (
        ("sep=;", ";"),
        ("\ufeffsep=;", ";"),
        ('"sep=,"', ","),
        ("SEP=|", "|"),
        ("sep=;;;", ";"),
        ("sep=\\t", "\t"),
        ("sep=\t", "\t"),
    ):
        for header in ("text,label", "comment,mood"):
            rows = f"{header}\n{ROWS * 6}".replace(",", separator)
            for end, name in (("\r\n", "a.csv"), ("\n", "a.tsv")):
                text = f"{line}\n{rows}".replace("\n", end)
                columns = "text=comment,label=mood"[: 23 * ("mood" in header)]
                found, told = read(tmp_path / name, text, columns=columns)
                assert (found, told) == (EXPECTED * 6, []), (line, name)
    # Rows are those of the file, and such a line below is text.
    with pytest.raises(ValueError, match="a.csv, row 3: not valid CSV"):
        read(tmp_path / "a.csv", 'sep=;\ntext;label\n"a"b;c\n')
    found, _ = read(tmp_path / "a.csv", "text,label\nsep=;,x\n")
    assert found == [("sep=;", "x")]
    found, _ = read(tmp_path / "a.csv", "sep=,label\na,x\n", columns="text=0")
    assert found == [("sep=", "label"), ("a", "x")] or found == [("a", "x")]


def test_a_title_above_the_header_is_named(tmp_path):
    for text, title in (
        (f"Of spring\ntext,label\n{ROWS}", "Of spring"),
        (f"Of spring\ncomment,mood\n{ROWS}", "Of spring"),
        (f"Of spring,,\n\nid,comment,mood\n1,{ROWS}", "Of spring"),
        ("Of spring\ntext;label\na;b\n", "Of spring"),
        ("Of spring, late\ntext;label\na;b\n", "Of spring, late"),
        ("sep=;\nOf spring\ncomment;mood\na;b\n", "Of spring"),
    ):
        with pytest.raises(ValueError, match=f"Is '{title}' in the first row"):
            read(tmp_path / "a.csv", text)
    with pytest.raises(ValueError, match="no column") as caught:
        read(tmp_path / "a.csv", "comment,mood\na,b\n")
    assert "in the first row" not in str(caught.value)


def test_rows_of_joined_files(tmp_path):
    header, path = "text,label\n", tmp_path / "a.csv"
    mark = "1 lines begin with a byte order mark.*; the first is row 4"
    again = "1 rows repeat the header and are left out; the first is row 4"
    for second, messages in (
        (header, [again]),
        ("Text, LABEL\n", [again]),
        (f"\ufeff{header}", [mark, again]),
        ("\ufeff", [mark]),
    ):
        found, told = read(path, f"\ufeff{header}{ROWS}{second}{ROWS}")
        assert found == EXPECTED * 2 and len(told) == len(messages)
        for message, one in zip(messages, told, strict=True):
            assert re.search(f"a.csv: {message}", one)
    for second, message in (
        ("label,text\n", "row 4: the names of columns, label, text, differ"),
        ("review,category\n", "row 4: the names of columns, review, cat"),
        ("id,text,label\n", "row 4: 3 fields"),
    ):
        with pytest.raises(ValueError, match=message):
            read(path, header + ROWS + second + ROWS)
    # The first has no line end.
    with pytest.raises(ValueError, match="row 3: 3 fields.*a byte order mark"):
        read(path, f"{header}{ROWS[:-1]}\ufeff{header}{ROWS}")
    line = '{"text": "a", "label": "x"}\n'
    found, told = read(tmp_path / "a.jsonl", f"{line}\ufeff{line}")
    assert found == [("a", "x")] * 2 and "first is row 2" in told[0]
    # A text or a class may be a name.
    found, told = read(path, f"{header}text,x\nIt is.,label\n")
    assert found == [("text", "x"), ("It is.", "label")] and not told


def test_quotes_of_a_tsv_are_told(tmp_path):
    path = tmp_path / "a.tsv"
    quoted = '"It was ""fine""."\t"pos"\n'
    for text, row in (
        (f"text\tlabel\nIt is.\tx\n{quoted}", 3),
        (f'"text"\t"label"\n{quoted}', 1),
    ):
        columns = '"text"' in text and {"text": "0", "label": "1"} or None
        _, told = read(path, text, columns=columns)
        assert re.search(
            f"rows have fields in quotes.*first is row {row}", told[0]
        )
        found, told = read(tmp_path / "a.csv", text)
        assert found[-1] == ('It was "fine".', "pos")
        assert not any("in quotes" in x for x in told)
    with pytest.raises(ValueError, match="no column.*1 rows have fields in qu"):
        read(path, '"words"\t"mood"\n')
    with pytest.raises(
        ValueError,
        match="row 2: .* goes on in the next line|"
        "row 2: .* may go on in the next line",
    ):
        read(path, 'text\tlabel\n"one\ntwo"\tpos\n')
    # A published .tsv is not quoted.
    text = f"sentence\tlabel\n{quoted}".replace('"pos"', "1")
    assert read(path, text, "sst-2") == ([('"It was ""fine""."', "1")], [])


def test_rows_of_other_lengths(tmp_path):
    path = tmp_path / "a.csv"
    text = "text,label,note,day\na,x,n,d\nb,y\nc,z,n\nd,x,n,d,,\n"
    found, told = read(path, text)
    assert found == [("a", "x"), ("b", "y"), ("c", "z"), ("d", "x")]
    assert len(told) == 1
    assert "2 rows lack fields at their end, which" in told[0]
    assert told[0].endswith("the first is row 3")
    with pytest.raises(ValueError, match="row 2: 5 fields where the first"):
        read(path, "text,label,note,day\na,b,x,n,d\n")


def test_texts_of_an_archive(tmp_path):
    path = tmp_path / "a.zip"
    for files, message in (
        ({"x/a.csv": "note\nIt is.\n", "readme.txt": "?"}, None),
        ({"a.csv": "note\n", "b.tsv": "note\n"}, "holds 2: a.csv, b.tsv. Unp"),
        ({"a.txt": "It is.\n"}, "this one holds 0. Unpack"),
    ):
        with zipfile.ZipFile(path, "w") as archive:
            for name, text in files.items():
                archive.writestr(name, text)
        if message is None:
            assert read_texts(path, "text=note")[0] == ["It is."]
            continue
        with pytest.raises(ValueError, match=message):
            read_texts(path)
    with pytest.raises(ValueError, match="this is a directory. Give the file"):
        read_texts(tmp_path)


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
