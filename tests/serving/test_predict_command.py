"""`python -m saved_models.predict` as it is typed."""

import json
import re
import shutil

import numpy as np
import pytest

from data_pipeline.command_line import run
from saved_models import export
from saved_models import predict
from saved_models.versions import latest_version
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import log_probabilities
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import refused
from tests.support.export_fixtures import tiny_tokenizer

TEXT = "Ba co <mask> fi, 9 code."


@pytest.fixture(scope="module")
def model():
    return pretrainer(num_layers=1)


@pytest.fixture(scope="module")
def preset(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("models") / "preset"
    model.save_to_preset(path, tokenizer=tiny_tokenizer())
    return path


@pytest.fixture(scope="module")
def exported(tmp_path_factory, preset):
    """NAME with two versions, of a preset and of a .keras file."""
    name = tmp_path_factory.mktemp("exports") / "tiny"
    arguments = ["--output", str(name), "--sequence-length", str(LENGTH)]
    arguments += ["--memory-length", "0"]
    (name / "9").mkdir(parents=True)  # the next is 10, not 2
    status = run(export.main, ["--model", str(preset), *arguments])
    assert status == 0
    (name / "9").rmdir()
    return name


def answered(capsys, *arguments):
    """The JSON objects of a successful `predict`."""
    capsys.readouterr()
    assert run(predict.main, [str(argument) for argument in arguments]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    return [json.loads(line) for line in captured.out.splitlines()]


def test_predict_fills_the_blanks(capsys, exported, model):
    texts = [TEXT, "nothing", "<mask> de <mask>"]
    options = [x for text in texts for x in ("--text", text)]
    lines = answered(capsys, "--model", exported, *options)
    assert [line["text"] for line in lines] == texts
    assert [len(line["candidates"]) for line in lines] == [1, 0, 2]
    expected = log_probabilities(model, TEXT)[0]
    best = np.argsort(expected)[::-1][:5]
    tokenizer = tiny_tokenizer()
    pieces = [tokenizer.id_to_piece(int(index)) for index in best]
    assert lines[0]["candidates"] == [pieces]
    # rounded to four digits
    np.testing.assert_allclose(
        lines[0]["log_probabilities"], [expected[best]], atol=6e-5
    )
    word = pieces[0].removeprefix("\u2581")
    assert lines[0]["filled"] == f"Ba co {word} fi, 9 code."
    assert lines[1]["filled"] == "nothing"


def test_predict_of_a_version_and_of_a_file(capsys, exported, tmp_path):
    file = tmp_path / "texts.txt"
    file.write_text(f"{TEXT}\n\n  \nσοφος größer\n", encoding="utf-8")
    by_file = answered(capsys, "--model", exported / "10", "--file", file)
    assert [line["text"] for line in by_file] == [TEXT, "σοφος größer"]
    both = answered(capsys, "--model", exported, "--text", "fi", "--file", file)
    assert [line["text"] for line in both] == ["fi", TEXT, "σοφος größer"]


def test_predict_writes_embeddings(capsys, exported, model):
    lines = answered(
        capsys,
        "--model",
        exported,
        *("--text", "ba co", "--text", ""),
        *("--signature", "embed"),
    )
    width = len(lines[0]["token_ids"])
    assert np.shape(lines[0]["embeddings"]) == (width, model.config.hidden_dim)
    assert lines[1]["padding_mask"] == [1, 1] + [0] * (width - 2)


def test_predict_takes_the_largest_version(tmp_path):
    for version in ("9", "10", "8", "11", "x12"):
        (tmp_path / version).mkdir()
        if version != "11":  # is not complete
            (tmp_path / version / "saved_model.pb").touch()
    assert latest_version(tmp_path) == tmp_path / "10"
    assert latest_version(tmp_path / "9") == tmp_path / "9"


@pytest.mark.parametrize(
    ("text", "pieces", "expected"),
    [
        ("The <mask> is.", ["\u2581sky"], "The sky is."),
        ("The<mask> is.", ["\u2581sky"], "The sky is."),
        ("<mask><mask>!", ["\u2581in", "to"], "into!"),
        ("none", [], "none"),
    ],
)
def test_fill(text, pieces, expected):
    assert predict.fill(text, pieces) == expected


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--text", "a", "--signature", "classify"], "no signature 'classify'"),
        (["--text", "a", "--signature", "embed_ids"], "takes .*, not text"),
        ([], "nothing to ask: give --text or --file"),
        (["--file", "gone.txt"], "gone.txt"),
    ],
)
def test_predict_refuses(capsys, exported, arguments, message):
    line = refused(capsys, predict.main, "--model", exported, *arguments)
    assert re.search(message, line), line


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("saved_model.pb", 0),
        ("saved_model.pb", 500),
        ("variables", None),  # is missing
        ("variables", 0),
        ("variables", 500),
    ],
)
def test_predict_of_a_damaged_export(capsys, exported, tmp_path, name, kept):
    shutil.copytree(exported / "10", tmp_path / "1")
    file = tmp_path / "1" / name
    if name == "variables":
        (file,) = file.glob("*.data*")
    content = file.read_bytes()[:kept]
    file.unlink()
    if kept is not None:
        file.write_bytes(content)
    line = refused(capsys, predict.main, "--model", tmp_path, "--text", "a")
    assert "1 cannot be loaded as a SavedModel: " in line


def test_predict_without_an_export(capsys, tmp_path):
    line = refused(capsys, predict.main, "--model", tmp_path, "--text", "a")
    assert "there is no SavedModel in" in line
    assert "python -m saved_models.export" in line
