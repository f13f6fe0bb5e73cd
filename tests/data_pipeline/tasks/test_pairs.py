"""Pairs of a source and a target: tables, parallel files, AESLC's e-mails."""

import gzip
import json
import shutil
import tarfile

import pytest

from data_pipeline.tasks import reading
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tasks.splitting import hold_out

SOURCES = ["ba co", "fi\u2028gu", "ha"]
TARGETS = ["1", "2", "3"]


def pairs(examples):
    return [(x.source, x.target) for x in examples]


def write_lines(file, lines):
    data = ("\n".join(lines) + "\n").encode()
    file.write_bytes(gzip.compress(data) if file.suffix == ".gz" else data)


@pytest.fixture
def parallel(tmp_path):
    for split in ("train", "val"):
        write_lines(tmp_path / f"{split}.en.gz", SOURCES)
        write_lines(tmp_path / f"{split}.de", TARGETS)
    return tmp_path


def test_tables(tmp_path):
    expected = list(zip(SOURCES, TARGETS, strict=True))
    rows = [
        {"summary": target, "document": source, "id": f"x{target}"}
        for source, target in expected
    ]
    file = tmp_path / "train.jsonl"
    file.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    found = read_examples("seq2seq", tmp_path)
    assert found[2] == PairExample("x3", "ha", "3", "train.jsonl, row 3")
    assert pairs(found) == expected
    table = tmp_path / "mine.tsv"
    table.write_text("a\tb\nco\tx\nfi\ty\n", encoding="utf-8")
    found = read_examples("seq2seq", table, columns="source=b,target=a")
    assert pairs(found) == [("x", "co"), ("y", "fi")]


def test_a_compressed_table_beside_a_plain_one(tmp_path):
    rows = "source,target\na,b\n"
    (tmp_path / "train.csv").write_text(rows)
    (tmp_path / "dev.csv.gz").write_bytes(gzip.compress(rows.encode()))
    data = reading.read_task("seq2seq", tmp_path)
    assert (len(data.train), list(data.evaluation)) == (1, ["dev"])


def test_parallel_files_of_an_archive(parallel, tmp_path):
    expected = read_examples("multi30k-en-de", parallel)
    file = shutil.make_archive(tmp_path / "multi30k", "gztar", parallel)
    assert read_examples("multi30k-en-de", file) == expected


def test_parallel_files(parallel):
    expected = list(zip(SOURCES, TARGETS, strict=True))
    found = read_examples("multi30k-en-de", parallel)
    assert pairs(found) == expected
    assert found[1] == PairExample("1", "fi\u2028gu", "2", "train.en.gz, row 2")
    back = [(target, source) for source, target in expected]
    assert pairs(read_examples("multi30k-de-en", parallel, "dev")) == back
    columns = "source=de,target=en"
    assert pairs(read_examples("seq2seq", parallel, "dev", columns)) == back
    # A file by its name, and the other one beside it.
    file = parallel / "train.de"
    assert pairs(read_examples("seq2seq", file, columns=columns)) == back
    data = reading.read_task("seq2seq", parallel, columns=columns)
    assert (len(data.train), list(data.evaluation)) == (3, ["dev"])


def test_sources_alone_can_be_predicted(tmp_path):
    write_lines(tmp_path / "test.en", SOURCES)
    found = read_examples("multi30k-en-de", tmp_path, "test")
    assert pairs(found) == [(source, None) for source in SOURCES]
    assert not reading.is_labelled(found[0])


def test_parallel_files_that_do_not_fit(parallel):
    with (parallel / "train.de").open("a") as file:
        file.write("4\n")
    with pytest.raises(ValueError, match=r"train.de, row 4.*train.en.gz has 3"):
        read_examples("multi30k-en-de", parallel)
    (parallel / "val.de").unlink()
    with pytest.raises(FileNotFoundError, match="no dev split"):
        read_examples("multi30k-en-de", parallel, "dev")
    alone = parallel / "val.en.gz"
    with pytest.raises(FileNotFoundError, match=r"val\.de.*--columns target="):
        read_examples("multi30k-en-de", alone)


def test_empty_sides_are_left_out(tmp_path):
    write_lines(tmp_path / "train.en", ["a", " ", "c", "d"])
    write_lines(tmp_path / "train.de", ["1", "2", "", "4"])
    with pytest.warns(UserWarning, match="2 pairs with an empty"):
        found = read_examples("multi30k-en-de", tmp_path)
    assert pairs(found) == [("a", "1"), ("d", "4")]
    rows = '{"source": "a", "target": "1"}\n{"source": "b", "target": null}\n'
    (tmp_path / "a.jsonl").write_text(rows)
    with pytest.warns(UserWarning, match="1 pairs with an empty"):
        found = read_examples("seq2seq", tmp_path / "a.jsonl")
    assert pairs(found) == [("a", "1")]


def test_emails(tmp_path):
    folder = tmp_path / "enron_subject_line" / "train"
    folder.mkdir(parents=True)
    for name, text in (
        ("b_1", "Dear all,\n\nba co.\n\n@subject\nfi gu\n\n@ann0\nnot this"),
        ("a_2", "ha\n\n@subject\n"),
        ("a_10", "ha ko\n@subject\nje"),
    ):
        (folder / f"{name}.subject").write_text(text, encoding="utf-8")
    archive = tmp_path / "train.tar.xz"
    with tarfile.open(archive, "w:xz") as tar:
        tar.add(tmp_path / "enron_subject_line", "enron_subject_line")
    for path in (tmp_path, archive):
        with pytest.warns(UserWarning, match="1 pairs"):
            found = read_examples("aeslc", path)
        assert [(x.id, x.source, x.target) for x in found] == [
            ("a_10", "ha ko", "je"),
            ("b_1", "Dear all,\n\nba co.", "fi gu"),
        ]
    assert found[0].where == "train/a_10.subject"
    (folder / "c.subject").write_text("no mark", encoding="utf-8")
    with pytest.raises(ValueError, match=r"c\.subject: not AESLC's layout"):
        read_examples("aeslc", tmp_path)


def test_copies_of_a_source_are_not_divided():
    examples = [PairExample(str(i), str(i // 2), str(i)) for i in range(20)]
    train, held_out = hold_out(examples, 0.3, 0)
    assert not {x.source for x in train} & {x.source for x in held_out}
