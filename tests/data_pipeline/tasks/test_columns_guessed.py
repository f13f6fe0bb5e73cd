"""Columns of a table that are guessed, separators that are found."""

import json

import pytest

from data_pipeline.tasks import reading
from saved_models.client.rows import read_lines_or_table

TEXTS = ["It was good.", "So very bad!", "One more time.", "Not my thing."]


def table(file, rows, separator=","):
    lines = [separator.join(map(str, row)) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def rows(header, make, count=12):
    return [header, *(make(i, f"{TEXTS[i % 4]} {i}") for i in range(count))]


def test_what_only_one_column_can_mean_is_guessed(tmp_path):
    flags = [["note", "news", "sport"]]
    flags += [[f"some text {i}", i % 2, int(i > 3)] for i in range(8)]
    for task, made, guessed in (
        (
            "classification",
            rows(["id", "comment", "mood"], lambda i, x: [i, x, "ab"[i % 2]]),
            {"text": "comment", "label": "mood"},
        ),
        # Two columns could be classes, and one has a usual name.
        (
            "classification",
            rows(
                ["review", "sentiment", "lang"],
                lambda i, x: [x, "ab"[i % 2], "de"],
            ),
            {"label": "sentiment"},
        ),
        (
            "regression",
            rows(["no", "comment", "grade"], lambda i, x: [i, x, i % 5 + 0.5]),
            {"text": "comment", "label": "grade"},
        ),
        (
            "pair",
            rows(["a", "b", "same"], lambda i, x: [x, f"x {x}", i % 2]),
            {"text": "a", "text_pair": "b", "label": "same"},
        ),
        ("multi-label", flags, {"text": "note", "label": "news+sport"}),
        # The names tell.
        (
            "classification",
            rows(["text", "label"], lambda i, x: [x, i % 2]),
            {},
        ),
    ):
        data = reading.read_task(task, table(tmp_path / "train.csv", made))
        assert data.guessed == guessed, task
        said = " ".join(data.notes())
        for role, name in guessed.items():
            assert f"{role} column: {name}" in said, said
        if task == "classification" and guessed:
            assert f"column: {guessed['label']} (2 classes); guessed" in said


def test_what_may_be_meant_otherwise_is_asked_for(tmp_path):
    two = rows(["a", "b", "note"], lambda i, x: ["xy"[i % 2], "vw"[i % 2], x])
    for made in (
        two,
        # Nothing tells the first row from an example.
        rows(["x", "It was."], lambda i, x: ["xy"[i % 2], x]),
        rows(["first", "mood", "then"], lambda i, x: [x, i % 2, f"b {x}"]),
    ):
        file = table(tmp_path / "train.csv", made)
        with pytest.raises(ValueError, match=r"Columns: .*Name yours: --col"):
            reading.read_task("classification", file)
    file = table(tmp_path / "train.csv", two)
    with pytest.raises(ValueError, match="--columns text=COLUMN,label=b$"):
        reading.read_task("classification", file, columns="label=b,text=c")
    data = reading.read_task("classification", file, columns="label=b")
    assert data.guessed == {"text": "note"} and data.labels == ("v", "w")
    # As `--predict` reads them, without labels.
    other = table(tmp_path / "new.csv", [["note"], ["good"]])
    found = reading.read_unlabelled(data.task, other, data.columns)
    assert [x.text for x in found] == ["good"]


def test_separators(tmp_path):
    made = rows(["text", "label"], lambda i, x: [f"{x}, so", "ab"[i % 2]])
    for separator, name in ((";", "semicolons"), ("\t", "tabs")):
        file = table(tmp_path / "a.csv", made, separator)
        with pytest.warns(UserWarning, match=f"separated by {name}$") as told:
            data = reading.read_task("classification", file)
        assert len(told) == 1
        assert data.labels == ("a", "b")
        assert {x.text[-4:] for x in data.train} == {", so"}
    # A semicolon in a text is none.
    lines = [["text", "label"], *([f"a; b {i}", i % 2] for i in range(9))]
    data = reading.read_task("classification", table(file, lines))
    assert data.train[0].text.startswith("a; b")
    found = reading.read_unlabelled(
        data.task, table(file, [["text"], ["a; b"], ["c; d"]])
    )
    assert [x.text for x in found] == ["a; b", "c; d"]


def test_labels_that_cannot_be_meant(tmp_path):
    for make, message in (
        (lambda i, x: [x, "a"], "all 12 examples have the label 'a'"),
        (lambda i, x: [x, i], "there are 12 classes of 12 examples: is that"),
    ):
        file = table(tmp_path / "train.csv", rows(["text", "label"], make))
        with pytest.warns(UserWarning, match=message):
            reading.read_task("classification", file)


def test_several_labels(tmp_path):
    wanted = [("b",), ("a", "b"), (), ("a",)] * 3
    given = ["b", "b | a|a", "", " a "] * 3
    file = table(
        tmp_path / "train.csv",
        [["text", "labels"], *([f"x {i}", y] for i, y in enumerate(given))],
    )
    (tmp_path / "train.jsonl").write_text(
        "".join(
            json.dumps({"text": f"x {i}", "label": list(y)}) + "\n"
            for i, y in enumerate(wanted)
        )
    )
    for path in (file, tmp_path / "train.jsonl"):
        data = reading.read_task("multi-label", path, fraction=0.3)
        assert data.labels == ("a", "b")
        found = data.train + data.evaluation["held out"]
        by_id = {x.id: x.label for x in found}
        assert [by_id[str(i)] for i in range(12)] == wanted
        held = data.evaluation["held out"]
        assert {name for x in held for name in x.label or [""]} == {"", *"ab"}
    bad = [["text", "x", "y"], ["one two", 1, 2]]
    with pytest.raises(ValueError, match="'y' of a label must hold 0 or 1"):
        reading.read_task("multi-label", table(file, bad), columns="label=x+y")


def test_columns_of_a_run_are_read_where_a_file_has_them(tmp_path):
    def find(header, run_columns, task="classification", ending=".csv"):
        made = rows(header, lambda i, x: [x, "ab"[i % 2]])
        file = table(tmp_path / f"other{ending}", made)
        return reading.find_columns(task, file, "dev", run_columns=run_columns)

    run = {"text": "review", "label": "verdict"}
    usual = ({"text": "0", "label": "1"}, ["text", "label"])
    for header, run_columns, columns, guessed in (
        (["Review", "verdict"], run, run, {}),
        (["text", "label"], run, {}, {}),
        (["comment", "mood"], run, {"text": "comment", "label": "mood"}, True),
        (["text", "label"], usual[0], {}, {}),
        (["It is.", "a"], usual[0], usual[0], {}),
        (["a+b", "label"], {"text": "a+b"}, {"text": "a+b"}, {}),
    ):
        split = find(header, run_columns)
        assert split.columns == columns, header
        assert bool(split.guessed) == bool(guessed), header
    # What is given wins.
    file = tmp_path / "other.csv"
    split = reading.find_columns("classification", file, "dev", "text=c", run)
    assert split.columns == {"text": "c"}
    # The rows that were looked at are read.
    assert len(find(["Review", "verdict"], run).examples()) == 12
    # Files without columns, and a directory.
    pair = {"source": "de", "target": "en"}
    for name in ("dev.de", "dev.en"):
        (tmp_path / name).write_text("a\n")
    for path in (tmp_path, tmp_path / "dev.de"):
        split = reading.find_columns("seq2seq", path, "dev", run_columns=pair)
        assert (split.columns, split.guessed) == (pair, {})


def test_texts_of_a_table(tmp_path):
    file = table(
        tmp_path / "new.csv", rows(["note", "id"], lambda i, x: [x, i], 3)
    )
    texts, guessed = reading.read_texts(file)
    assert texts[:2] == ["It was good. 0", "So very bad! 1"]
    assert len(texts) == 3 and guessed == {"text": "note"}
    assert reading.read_texts(file, "text=0")[0][0] == "note"
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": ""}\n')
    assert reading.read_texts(tmp_path / "a.jsonl") == (["a", ""], {})
    (tmp_path / "a.jsonl").rename(tmp_path / "a.ndjson")
    assert read_lines_or_table(tmp_path / "a.ndjson") == (
        ["a", ""],
        {},
    )
    table(file, [["first", "second"], ["It was.", "It is not."]])
    with pytest.raises(ValueError, match="Name yours: --columns text=COLUMN$"):
        reading.read_texts(file)
    table(file, [["text", "text_pair"], ["It was.", "It is not."]])
    with pytest.raises(ValueError, match="pairs of texts.* 'text_pair'"):
        reading.read_texts(file)
    assert reading.read_texts(file, "text=text_pair")[0] == ["It is not."]
