"""Classes as files write them: equal numbers, no label, look-alikes."""

import json
import re
import warnings

import pyarrow
import pytest

from data_pipeline.tasks.labels import check_known
from data_pipeline.tasks.reading import find_columns
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tasks.reading import read_task
from data_pipeline.tasks.reading import read_unlabelled
from tests.support.table_files import write_all


def write(path, labels):
    """A CSV or JSON lines of texts with these labels."""
    rows = [{"text": f"Text {n}.", "label": x} for n, x in enumerate(labels)]
    lines = [json.dumps(row) for row in rows]
    if path.suffix == ".csv":
        lines = [f"{row['text']},{row['label']}" for row in rows]
        lines.insert(0, "text,label")
    path.write_text("\n".join(lines) + "\n")
    return path


def told_by(read, *arguments):
    """What a function returns, and its warnings but that of the share."""
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        found = read(*arguments)
    messages = [str(x.message) for x in told]
    return found, [x for x in messages if "are held out" not in x]


def test_equal_numbers_are_one_class(tmp_path):
    equal = "4 labels are read as the class of the equal number.*is row"
    for name, labels in (
        ("a.csv", ["0", "1", "2", "0.0", "1.0", "2.", "-0.0", "2"]),
        ("a.jsonl", [0, 1, 2, 0.0, 1.0, 2.0, -0.0, "2"]),
    ):
        data, told = told_by(
            read_task, "classification", write(tmp_path / name, labels * 3)
        )
        assert data.labels == ("0", "1", "2")
        assert len(told) == 1 and re.search(equal.replace("4", "12"), told[0])
    # Those that a file of integers and one of floats have.
    train = write(tmp_path / "train.csv", [0.0, 1.0, 2.0] * 4)
    dev = write(tmp_path / "dev.csv", [0, 1, 2])
    data, told = told_by(read_task, "classification", train, dev)
    assert data.labels == ("0", "1", "2") and len(told) == 1
    assert [x.label for x in data.evaluation["dev"]] == ["0", "1", "2"]
    found, _ = told_by(read_unlabelled, data.task, train, None, data.labels)
    assert {x.label for x in found} == {"0", "1", "2"}
    # A model's own names decide.
    labels = ("0.0", "1.0", "2")
    (split, _) = told_by(
        find_columns, "classification", dev, "dev", None, None, labels
    )
    found, told = told_by(split.examples)
    assert [x.label for x in found] == ["0.0", "1.0", "2"] and len(told) == 1
    # Others stay what they are.
    labels = ["1.5", "1.50", "v1.0", "1.0.0", "007", "x"]
    found = read_examples("classification", write(tmp_path / "b.csv", labels))
    assert [x.label for x in found] == labels
    several = [[0.0, "1"], [1.0], [], ["a", 0]]
    data, _ = told_by(
        read_task, "multi-label", write(tmp_path / "c.jsonl", several * 3)
    )
    assert data.labels == ("0", "1", "a")
    content = pyarrow.table({"text": list("abcd"), "label": [0.0, 1.0] * 2})
    (tmp_path / "columns").mkdir()
    for path in write_all(content, tmp_path / "columns"):
        found, told = told_by(read_examples, "classification", path)
        assert [x.label for x in found] == ["0", "1"] * 2 and len(told) == 1
    (tmp_path / "a.tsv").write_text("sentence\tlabel\na\t1.0\nb\t0.0\n")
    found, _ = told_by(read_examples, "sst-2", tmp_path / "a.tsv")
    assert [x.label for x in found] == ["1", "0"]


def test_rows_without_a_label_are_left_out_and_counted(tmp_path):
    for labels, classes, mark in (
        (["0", "2", "-1", "1"], ("0", "1", "2"), "-1"),
        (["0", "2", "-1.0", "1"], ("0", "1", "2"), "-1"),
        (["x", "y", "-"], ("x", "y"), "-"),
        (["x", "y", "-1"], ("x", "y"), "-1"),
        (["1", "5", "-1"], ("1", "5"), "-1"),
        (["x", "y", "nan"], ("x", "y"), "nan"),
        (["x", "y", "\\N"], ("x", "y"), r"\\N"),
    ):
        path = write(tmp_path / "a.csv", labels * 5)
        data, told = told_by(read_task, "classification", path)
        assert data.labels == classes
        message = (
            f"a.csv: 5 rows without a gold label left out, marked by {mark}; "
            "the first is row 4"
        )
        assert re.search(message, told[-1]), told
        found, told = told_by(read_examples, "classification", path, "test")
        assert len(found) == len(labels) * 5
        assert sum(x.label is None for x in found) == 5
        assert not any("left out" in x for x in told)


def test_lists_of_labels_with_one_that_is_none(tmp_path):
    path = write(tmp_path / "a.jsonl", [["a"], ["-1"], ["a", "-1", "b"], []])
    found, told = told_by(read_examples, "multi-label", path)
    assert [x.label for x in found] == [("a",), ("a", "b"), ()]
    assert "1 rows without a gold label left out" in told[0]
    assert "1 lists of labels have one that names no class" in told[1]


def test_what_may_be_no_label_is_a_class_where_others_are_like_it(tmp_path):
    for labels, count in (
        (["-1", "0", "1"], 1),
        (["-1", "1"], 0),
        (["-2", "-1", "0", "1", "2"], 0),
        (["-", "+"], 0),
    ):
        path = write(tmp_path / "a.csv", labels * 5)
        data, told = told_by(read_task, "classification", path)
        assert set(data.labels) == set(labels) and len(told) == count
        for message in told:
            assert "5 rows have the label '-1', read as a class" in message
    # What was trained on decides for other files.
    train = write(tmp_path / "train.csv", ["0", "1"] * 5)
    dev = write(tmp_path / "dev.csv", ["0", "-1", "1"])
    data, told = told_by(read_task, "classification", train, dev)
    assert [x.label for x in data.evaluation["dev"]] == ["0", "1"]
    assert "1 rows without a gold label left out" in told[0]
    found = read_unlabelled(data.task, dev, None, data.labels)
    assert [x.label for x in found] == ["0", None, "1"]
    found = read_unlabelled(data.task, dev, None, ("-1", "0", "1"))
    assert [x.label for x in found] == ["0", "-1", "1"]
    path = write(tmp_path / "none.csv", ["-1"] * 3)
    with pytest.raises(ValueError, match="no examples. 3 rows without a gold"):
        read_examples("classification", path)


def test_a_class_that_datasets_does_not_know(tmp_path):
    feature = {"names": ["-", "+"], "_type": "ClassLabel"}
    metadata = {
        "huggingface": json.dumps({"info": {"features": {"label": feature}}})
    }
    content = pyarrow.table({"text": list("abcd"), "label": [1, -1, 0, -1]})
    content = content.replace_schema_metadata(metadata)
    for path in write_all(content, tmp_path):
        found, told = told_by(read_examples, "classification", path)
        assert [(x.text, x.label) for x in found] == [("a", "+"), ("c", "-")]
        assert "2 rows without a gold label left out" in told[0]
        assert told[0].endswith("the first is row 2")
        found = read_examples("classification", path, "test")
        assert [x.label for x in found] == ["+", None, "-", None]


def test_classes_that_look_alike_are_told(tmp_path):
    for one, other in (
        ("pos", "Pos"),
        ("7", "007"),
        ("1.1", "1.10"),
        ("caf\u00e9", "cafe\u0301"),
        ("not_entailed", "not entailed"),
        ("sci-fi", "Sci Fi"),
        ("zero\u200bwidth", "zerowidth"),
        ("\uff11", "1"),
    ):
        path = write(tmp_path / "a.csv", [one, other, "z", one] * 3)
        data, told = told_by(read_task, "classification", path)
        assert len(data.labels) == 3 and len(told) == 1
        assert "look alike are told apart" in told[0]
        assert "(6, the first a.csv, row 2) and" in told[0]
        assert "(3, the first a.csv, row 3)" in told[0]
    for labels in (["C", "C++", "C#"], ["C", "C-"], ["1", "2"], ["+", "-"]):
        path = write(tmp_path / "a.csv", labels * 3)
        assert told_by(read_task, "classification", path)[1] == []
    path = tmp_path / "a.conll"
    path.write_text("Alba B-PER\nsings O\n\nBerta B-Per\nsings O\nnow O\n\n")
    assert "'B-PER'" in told_by(read_task, "ner", path)[1][0]
    path = write(tmp_path / "a.csv", ["Pos"])
    (example,) = read_examples("classification", path)
    with pytest.raises(ValueError, match="'Pos' is none.* looks like 'pos'"):
        check_known("classification", [example], ["neg", "pos"])
