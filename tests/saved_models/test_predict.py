"""`python -m saved_models.predict` as it is typed."""

import functools
import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

import saved_models
from data_pipeline.base.command_line import run
from saved_models import predict
from saved_models.versions import latest_version
from tests.support.commands import refused
from tests.support.export_fixtures import log_probabilities
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.task_export_fixtures import OTHERS
from tests.support.task_export_fixtures import TEXTS
from tests.support.task_export_fixtures import TOLERANCE
from tests.support.task_export_fixtures import ask

TEXT = "Ba co <mask> fi, 9 code."

pytestmark = pytest.mark.xdist_group("exports")


def answered(capsys, *arguments, warning=""):
    """The JSON objects of a successful `predict`, which warns of this alone."""
    capsys.readouterr()
    assert run(predict.main, [str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == warning
    return [json.loads(line) for line in captured.out.splitlines()]


def write_rows(directory, rows):
    file = directory / "rows.jsonl"
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_blanks_are_filled(capsys, pretrainer_export, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text("\nσοφος größer\n", encoding="utf-8")
    texts = [TEXT, "nothing", "<mask> de <mask>"]
    options = [x for text in texts for x in ("--text", text)]
    # NAME, whose largest version is asked.
    place = pretrainer_export.parent
    lines = answered(
        *(capsys, "--model", place, *options, "--file", file),
        warning="warning: a text must have a blank, <mask>, to be filled in. "
        "Received: 'nothing' and 2 more.\n",
    )
    assert [line["text"] for line in lines] == [*texts, "", "σοφος größer"]
    assert [len(line["candidates"]) for line in lines] == [1, 0, 2, 0, 0]
    expected = log_probabilities(shared_model(), TEXT)[0]
    best = np.argsort(expected)[::-1][:4]
    tokenizer = tiny_tokenizer()
    pieces = [tokenizer.id_to_piece(int(index)) for index in best]
    assert lines[0]["candidates"] == [pieces]
    # rounded to six digits
    np.testing.assert_allclose(
        lines[0]["log_probabilities"], [expected[best]], atol=2e-5
    )
    word = pieces[0].removeprefix("\u2581")
    assert lines[0]["filled"] == f"Ba co {word} fi, 9 code."
    assert lines[1]["filled"] == "nothing"


def test_embeddings(capsys, pretrainer_export):
    lines = answered(
        capsys,
        *("--model", pretrainer_export),
        *("--text", "ba co", "--text", ""),
        *("--signature", "embed"),
    )
    width = len(lines[0]["token_ids"])
    assert np.shape(lines[0]["embeddings"]) == (width, 22)
    assert lines[1]["padding_mask"] == [1, 1] + [0] * (width - 2)


def test_fill():
    for text, pieces, expected in (
        ("The <mask> is.", ["\u2581sky"], "The sky is."),
        ("The<mask> is.", ["\u2581sky"], "The sky is."),
        ("<mask><mask>!", ["\u2581in", "to"], "into!"),
        ("none", [], "none"),
    ):
        assert predict.fill(text, pieces) == expected


def test_a_line_of_words_ends_with_its_own():
    """Rows of one batch are as wide as its longest one."""
    answer = {"count": 1, "words": np.array(["a", ""], object)}
    line = json.loads(predict.as_line({"text": "a"}, answer))
    assert line == {"text": "a", "count": 1, "words": ["a"]}
    line = predict.as_line({"text": "a\u2028b\x85"}, {"score": np.float32(0.1)})
    assert line.splitlines() == [line.rstrip("\n")]
    assert json.loads(line) == {"text": "a\u2028b\x85", "score": 0.1}


def test_rows_of_inputs(
    capsys, tmp_path, classifier_export, classifier_signatures
):
    pairs = zip(TEXTS, OTHERS, strict=True)
    rows = [{"text": a, "text_pair": b} for a, b in pairs if type(a) is str]
    file = write_rows(tmp_path, rows)
    options = ("--inputs", file, "--signature", "pairs", "--batch-size", 2)
    lines = answered(capsys, "--model", classifier_export, *options)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    outputs = ask(classifier_signatures["pairs"], **columns)
    assert len({line["label"] for line in lines}) > 1
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        assert set(line) == {*row, *outputs}
        assert {**line, **row} == line
        assert line["label"] == outputs["label"][number].decode()
        # rounded, and computed in batches of another size
        expected = outputs["scores"][number]
        np.testing.assert_allclose(line["scores"], expected, atol=TOLERANCE)

    ids = [[9, 20, 31, 4, 3], [9, 4, 3]]  # of two lengths
    rows = [
        {
            "token_ids": x,
            "segment_ids": [0] * len(x),
            "padding_mask": [1] * len(x),
        }
        for x in ids
    ]
    options = ("--model", classifier_export, "--signature", "ids", "--inputs")
    lines = answered(capsys, *options, write_rows(tmp_path, rows))
    assert [line["token_ids"] for line in lines] == ids
    assert all(abs(sum(line["scores"]) - 1) < 1e-5 for line in lines)
    rows[1]["padding_mask"] = [1]
    # An answer or an error a line.
    file = write_rows(tmp_path, [rows[0], rows[1], rows[0], rows[1]])
    file.write_text("\n" + file.read_text() + "\n\n")
    capsys.readouterr()
    assert run(predict.main, [*map(str, options), str(file)]) == 1
    captured = capsys.readouterr()
    lines = [json.loads(line) for line in captured.out.splitlines()]
    errors = [line.get("error") for line in lines]
    assert errors[0] == f"{file}, line 1: the line is blank."
    assert errors[1] is errors[3] is None and "scores" in lines[3]
    for place, number in ((2, 3), (4, 5)):
        assert lines[place]["token_ids"] == ids[1]
        message = f"{file}, line {number}: assertion failed: [`padding_mask` "
        assert errors[place].startswith(message)
    line = "error: 3 of 5 rows have no answer; see `error` in their lines.\n"
    assert captured.err == line


def test_predict_tells_how_far_it_is(
    told, tmp_path, classifier_export, monkeypatch
):
    texts = tmp_path / "texts.txt"
    texts.write_text("ba co fi\n" * 5)
    command = ["--model", classifier_export, "--file", texts]
    assert "asking: 5 of 5 rows, 100%" in told(predict.main, *command)
    assert told(predict.main, *command, "--quiet") == ""
    # There the lines themselves are seen.
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert told(predict.main, *command) == ""


def test_predict_takes_the_largest_version(tmp_path):
    for version in ("9", "10", "8", "11", "x12"):
        (tmp_path / version).mkdir()
        if version != "11":  # is not complete
            (tmp_path / version / "saved_model.pb").touch()
    assert latest_version(tmp_path) == tmp_path / "10"
    assert latest_version(tmp_path / "9") == tmp_path / "9"


def test_predict_refuses(capsys, tmp_path, classifier_export, monkeypatch):
    # An export is loaded once, for it takes a second.
    monkeypatch.setattr(predict, "load", functools.cache(predict.load))
    rows = tmp_path / "rows.jsonl"
    for content, options, message in (
        (None, ["--text", "a", "--signature", "classify"], "no signature 'cl"),
        (
            None,
            ["--text", "a", "--signature", "ids"],
            "takes .*, not text a",
        ),
        (None, [], "nothing to ask: give --text or --file"),
        (None, ["--file", "gone.txt"], "gone.txt"),
        (
            '{"text": 3}',
            [],
            "rows.jsonl, line 1: `text` must be a text. Received: 3",
        ),
        ('{"text": "a"}\n{', [], "rows.jsonl, line 2: this is not JSON: "),
        ("\n", [], "nothing to ask: .*rows.jsonl has lines that are blank"),
        ('{"text": "a"}', ["--text", "b"], "either --inputs, or --text and"),
        ('{"text": "a"}', ["--signature", "pairs"], "line 1: it lacks `text_p"),
        ('{"text": "a"}', ["--signature", "x"], "no signature 'x'; it has ids"),
        ('{"text": "a"}', ["--batch-size", "0"], "at least 1. Received: 0."),
    ):
        if content is not None:
            rows.write_text(content)
            options = ["--inputs", rows, *options]
        options = ["--model", classifier_export, *options]
        line = refused(capsys, predict.main, *options)
        assert re.search(message, line), line
    table = tmp_path / "rows.csv"
    table.write_text("text\n")
    line = refused(capsys, predict.main, "--model", "x", "--file", table)
    assert "nothing to ask: " in line
    assert line.endswith("rows.csv has a header and no rows.\n")
    options = ["--model", tmp_path, "--text", "a"]
    line = refused(capsys, predict.main, *options)
    assert "there is no SavedModel in" in line
    assert "python -m saved_models.export" in line
    for place, option, message in (
        ("--model", ["--timeout", "0"], "--timeout is for a model on a server"),
        ("--model", ["--header", "a:b"], "--header is for a model on a server"),
        ("--url", ["--no-verify"], "--no-verify is for an export in files"),
        ("--url", ["--trust"], "--trust is for an export in files"),
        ("--url", ["--model", "x"], "give either --model or --url"),
    ):
        given = (place, "x", "--text", "a", *option)
        assert message in refused(capsys, predict.main, *given)
    predictor = saved_models.load(classifier_export)
    with pytest.raises(
        ValueError, match="must be a list of texts. Received: ..'a"
    ):
        predictor([["a"]])
    with pytest.raises(ValueError, match="a list of texts. Received: 'a'."):
        predictor("a")
    with pytest.raises(ValueError, match="takes .*_pair.* Received: text"):
        predictor(["a"], "pairs")


def test_damaged_exports(capsys, classifier_export, tmp_path):
    for name, kept in (
        ("saved_model.pb", 0),
        ("saved_model.pb", 500),
        ("variables", None),  # is missing
        ("variables", 0),
        ("variables", 500),
    ):
        place = tmp_path / f"{name} {kept}"
        shutil.copytree(classifier_export, place / "1")
        file = place / "1" / name
        if name == "variables":
            (file,) = file.glob("*.data*")
        content = file.read_bytes()[:kept]
        file.unlink()
        if kept is not None:
            file.write_bytes(content)
        options = ("--model", place, "--text", "a")
        line = refused(capsys, predict.main, *options)
        assert re.search("SHA256SUMS names it|is damaged, or was not", line)
        line = refused(capsys, predict.main, *options, "--no-verify")
        assert "1 cannot be loaded as a SavedModel: " in line


def test_programs_of_strangers_are_not_run(capsys, tmp_path):
    """A signature that writes a file, and what loading runs."""
    written = str(tmp_path / "written")

    class Stranger(tf.Module):
        def __init__(self):
            super().__init__()
            self.table = tf.lookup.StaticHashTable(
                tf.lookup.KeyValueTensorInitializer(["a"], [1]), 0
            )

        @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
        def serve(self, text):
            tf.io.write_file(written, text[0])
            return {"count": tf.cast(tf.ones_like(text, tf.int32), tf.int32)}

    module = Stranger()
    place = tmp_path / "stranger" / "1"
    tf.saved_model.save(module, str(place), {"serving_default": module.serve})
    options = ["--model", place.parent, "--text", "a"]
    line = refused(capsys, predict.main, *options)
    assert "that exports of this package do not use: " in line
    assert "WriteFile" in line and "HashTableV2" in line and "--trust" in line
    place.joinpath("saved_model.pb").write_bytes(b"\xff" * 9)
    assert "cannot be loaded as a" in refused(capsys, predict.main, *options)
    tf.saved_model.save(module, str(place), {"serving_default": module.serve})
    assert not (tmp_path / "written").exists()
    assert answered(capsys, *options, "--trust") == [{"text": "a", "count": 1}]
    assert (tmp_path / "written").read_text() == "a"


def test_a_table_is_asked_by_its_column(capsys, tmp_path, classifier_export):
    texts = ["ba co fi", "gu ha, je", "ki lo mu"]
    file = tmp_path / "reviews.csv"
    rows = [f'"{text}",good' for text in texts]
    file.write_text("\n".join(["remark,verdict", *rows]) + "\n")
    options = ("--model", classifier_export, "--file", file)
    guess = "text column: remark; guessed, see --columns\n"
    for more, warning in ((), guess), (("--columns", "text=remark"), ""):
        lines = answered(capsys, *options, *more, warning=warning)
        assert [line["text"] for line in lines] == texts
    for more, message in (
        ((*options, "--columns", "text=gone"), "no column for `text`"),
        (("--columns", "text=a", "--text", "b"), "--columns needs --file"),
        (("--inputs", file), "give a table to --file, which reads its column"),
    ):
        more = ("--model", classifier_export, *more)
        assert message in refused(capsys, predict.main, *more), message
