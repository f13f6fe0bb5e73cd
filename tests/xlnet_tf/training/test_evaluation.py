"""`evaluate --task`: the figures of a run again, from what the run left."""

import json
import shutil

import pytest

from data_pipeline.base.checksums import add_checksums
from data_pipeline.base.files import read_json_lines
from tests.support import artefacts
from tests.support import commands
from xlnet_tf import evaluate
from xlnet_tf.loading import open_model
from xlnet_tf.training import evaluation

DATA = artefacts.TASKS


def run(model, task, data, *more):
    argv = ("--model", model, "--task", task, "--data", data, *more)
    return commands.run(evaluate.main, *argv)


@pytest.mark.parametrize(
    ("task", "file"), [("classification", "dev.tsv"), ("squad-2.0", None)]
)
def test_figures_and_answers_are_those_of_the_run(
    finetuned, tmp_path, capsys, task, file
):
    kind = "questions" if task == "squad-2.0" else task
    output, data = finetuned[kind], DATA / task
    predictions, figures = tmp_path / "found.jsonl", tmp_path / "found.json"
    more = ("--predictions", predictions, "--output", figures)
    # The output of a run, and a preset; a file, and a directory.
    for model, path in ((output, data), (output / "best", data / (file or ""))):
        assert run(model, task, path, *more) == 0
        results = json.loads((output / "results.json").read_text())
        found = json.loads(figures.read_text())
        for name, value in found.items():
            assert value == pytest.approx(results["metrics"][name]), name
        name = results["metric"]
        assert f"{name} {found[name]:.4g}" in capsys.readouterr().out
        kept = read_json_lines(output / "held_out_predictions.jsonl")
        lines = read_json_lines(predictions)
        assert [x["id"] for x in lines] == [x["id"] for x in kept]
        answer = "answer" if kind == "questions" else "predicted_label"
        assert [x[answer] for x in lines] == [x[answer] for x in kept]


def test_a_model_in_a_run_is_read_as_its_run_was(finetuned, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(finetuned["classification"], run)
    settings = json.loads((run / "training.json").read_text())
    settings |= {"long_documents": "windows", "stride": 5}
    (run / "training.json").write_text(json.dumps(settings))
    found = evaluation.reading_settings(open_model(run))
    assert found["stride"] == 5 and found["long_documents"] == "windows"
    for name in ("best", "model.keras"):
        stored = open_model(run / name)
        assert evaluation.reading_settings(stored) == found
        assert stored.results()["columns"] == {}
    (run / "run.json").unlink()  # a folder of something else
    for path in (run / "best", tmp_path / "none"):
        stored = open_model(path)
        assert evaluation.reading_settings(stored) == {}
        assert stored.results() is None


def test_progress_of_a_task(finetuned, told):
    data = DATA / "classification" / "dev.tsv"
    model = finetuned["classification"] / "best"
    command = ("--model", model, "--task", "classification", "--data", data)
    text = told(evaluate.main, *command)
    assert "tokenizing: " in text and "predicting: " in text
    assert told(evaluate.main, *command, "--quiet") == ""


def test_errors_are_one_line(finetuned, pretrained, tmp_path, capsys):
    model = finetuned["classification"]
    data = DATA / "classification" / "dev.tsv"
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabel\nOne.\tmaybe\n")
    bare = tmp_path / "bare.tsv"
    bare.write_text("text\nOne.\n")
    for arguments, message in (
        ((model, "classification", other), "does not know: maybe"),
        ((model, "classification", bare), "bare.tsv"),
        ((model, "classification", "nowhere"), "nowhere"),
        ((tmp_path / "none", "classification", "nowhere"), "nowhere"),
        ((tmp_path / "none", "clasification", "nowhere"), "clasification"),
        ((model, "regression", data), "a model of the class XLNetTextRegre"),
        ((pretrained, "classification", data), "a model of the class XLNetTe"),
        ((model, "classification", data, "--text", "x"), "either --text"),
    ):
        capsys.readouterr()
        assert run(*arguments) == 1, arguments
        error = capsys.readouterr().err.splitlines()[-1]
        assert error.startswith("error: ") and message in error, error
    for argv, message in (
        ([], "either --text"),
        (["--task", "rte"], "--task needs --data"),
        (["--task", "rte", "--data", "y", "--window", "4"], "needs --text"),
        (["--text", "x", "--data", "y"], "--data needs --task"),
        (["--text", bare], "perplexity needs a language model"),
    ):
        argv = ("--model", model / "best", *argv)
        assert commands.run(evaluate.main, *argv) == 1
        assert message in capsys.readouterr().err


def test_columns_are_those_of_the_run_or_guessed(finetuned, tmp_path, capsys):
    """Of a file whose names tell nothing, as `finetune` reads it."""
    lines = (DATA / "classification/dev.tsv").read_text().splitlines()
    file = tmp_path / "reviews.tsv"
    header = lines[0].replace("text", "remark").replace("label", "verdict")
    assert header != lines[0]
    file.write_text("\n".join([header, *lines[1:]]) + "\n")
    preset = finetuned["classification"] / "best"
    figures = []
    for path in (DATA / "classification/dev.tsv", file):
        found = tmp_path / "found.json"
        assert run(preset, "classification", path, "--output", found) == 0
        figures.append(json.loads(found.read_text()))
        told = capsys.readouterr().err
        guess = "text column: remark, label column: verdict; guessed, see --col"
        assert (guess in told) == (path == file), told
    assert figures[0] == figures[1]
    # A run with these columns, of which there are others like them.
    output = tmp_path / "run"
    shutil.copytree(finetuned["classification"], output)
    results = json.loads((output / "results.json").read_text())
    assert results["columns"] == {}
    results["columns"] = {"text": "remark", "label": "verdict"}
    (output / "results.json").write_text(json.dumps(results))
    add_checksums(output, ["results.json"])
    header, *rows = [f"{x}\t{x}" for x in (header, *lines[1:])]
    header = header.replace("verdict\t", "verdict\tother ", 1)
    header = header[: header.rindex("\t")] + "\tlast"
    file.write_text("\n".join([header, *rows]) + "\n")
    assert run(preset, "classification", file) == 1
    assert "no column for" in capsys.readouterr().err
    # One of them given, the other of the run.
    given = ("--columns", "text=remark", "--output", found)
    assert run(output, "classification", file, *given) == 0
    assert json.loads(found.read_text()) == figures[0]
    assert run(output, "classification", file, "--output", found) == 0
    assert json.loads(found.read_text()) == figures[0]
    assert "guessed" not in capsys.readouterr().err
