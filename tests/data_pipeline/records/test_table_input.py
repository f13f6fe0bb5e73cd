"""Records of tables of columns: those of the same text, resumed as they are."""

import json
import shutil

import pyarrow
import pytest
from pyarrow import ipc
from pyarrow import parquet

from data_pipeline.records.manifest import read_manifest
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import small_parts
from tests.support.record_fixtures import stopped_after
from tests.support.record_fixtures import write_corpus
from tests.support.table_files import save_dataset
from tests.support.table_files import write_arrow

OPTIONS = ("--validation-fraction", 0.2, "--text-format", "sentences")


@pytest.fixture(autouse=True)
def parts():
    with small_parts():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Text, the same as tables with rows without text, and the text's set."""
    directory = tmp_path_factory.mktemp("tables")
    corpus = write_corpus(directory / "corpus")
    documents = (corpus / "a.txt").read_text(encoding="utf-8").split("\n\n")
    rows = [{"doc": {"body": x}, "n": n} for n, x in enumerate(documents)]
    rows[3:3] = [{"doc": None, "n": 0}, {"doc": {"body": " \n"}, "n": 0}]
    table = pyarrow.Table.from_pylist(rows)
    parquet.write_table(table, corpus / "a.parquet", row_group_size=11)
    write_arrow(table, corpus / "a.arrow")
    save_dataset(table, corpus / "saved", shards=3)
    with small_parts():
        assert run(directory, "a.txt", directory / "set") == 0
    return directory


def run(made, name, output, *more):
    corpus = made / "corpus"
    options = ("--input", corpus / name, "--text-field", "doc.body")
    return run_build(corpus, output, *OPTIONS, *options, *more)


def shards(directory):
    found = digests(directory)
    return {k: v for k, v in found.items() if k.endswith("tfrecord")}


def test_the_records_are_those_of_the_text(made, tmp_path, capsys):
    expected = shards(made / "set")
    assert len(expected) > 2
    for name in ("a.parquet", "a.arrow", "saved"):
        output = tmp_path / name
        assert run(made, name, output) == 0
        assert shards(output) == expected
        assert "; 2 row(s) without text\n" in capsys.readouterr().out
        totals = read_manifest(output).totals
        assert totals["empty_rows"] == 2 and totals["documents"] == 40
        assert run(made, name, output) == 0
        assert "was complete already" in capsys.readouterr().out


def test_a_stopped_build_goes_on(made, tmp_path):
    assert run(made, "saved", tmp_path / "whole") == 0
    with stopped_after(2):
        assert run(made, "saved", tmp_path / "set") == 130
    assert run(made, "saved", tmp_path / "set") == 0
    assert digests(tmp_path / "set") == digests(tmp_path / "whole")


def test_damage_keeps_finished_parts(made, tmp_path, capsys):
    corpus = shutil.copytree(made / "corpus", tmp_path / "corpus")
    file = corpus / "a.arrow"
    content = ipc.open_stream(file.read_bytes()).read_all()
    with ipc.new_stream(file, content.schema) as writer:
        writer.write_table(content, max_chunksize=5)
    whole = file.read_bytes()
    # The length of a message, in a file of as many bytes: another size would
    # be another plan.
    begin = whole.rindex(b"\xff" * 4, 0, len(whole) * 3 // 4) + 4
    file.write_bytes(whole[:begin] + b"\xff" * 9 + whole[begin + 9 :])
    assert run(tmp_path, "a.arrow", tmp_path / "set") == 1
    error = capsys.readouterr().err
    assert "a.arrow: the file is damaged" in error
    assert "finished part(s)" in error and error.count("\n") == 1
    file.write_bytes(whole)
    assert run(tmp_path, "a.arrow", tmp_path / "set") == 0
    assert shards(tmp_path / "set") == shards(made / "set")


def test_the_field_is_part_of_the_plan(made, tmp_path, capsys):
    corpus = tmp_path / "corpus"
    shutil.copytree(made / "corpus", corpus)
    line = json.dumps({"text": "One is here. " * 99, "other": "Two. " * 99})
    (corpus / "b.jsonl").write_text(f"{line}\n" * 3)
    options = ("--validation-fraction", 0)
    output = tmp_path / "set"
    text = ("--text-field", "text")
    assert run(tmp_path, "b.jsonl", output, *options, *text) == 0
    capsys.readouterr()
    other = ("--text-field", "other")
    assert run(tmp_path, "b.jsonl", output, *options, *other) == 1
    error = capsys.readouterr().err
    assert "`text_field` was text and is other" in error
