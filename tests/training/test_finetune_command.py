"""`python -m xlnet_tf.finetune`: every kind of task, results, bad input."""

import json

import keras
import numpy as np
import pytest

import xlnet_tf
from tests.support import finetuning_fixtures as fixtures
from xlnet_tf import finetune


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return fixtures.write_preset(tmp_path_factory.mktemp("preset"))


def options(directory, preset, task, **settings):
    data = directory / "data"
    if not data.exists():
        fixtures.write_task(data, task)
    return [
        "--task",
        task,
        "--data",
        data,
        "--preset",
        preset,
        "--output",
        directory / "run",
        "--training",
        fixtures.write_training(directory, **settings),
    ]


def lines(file):
    return [json.loads(x) for x in file.read_text("utf-8").splitlines()]


def test_a_classifier_learns_and_predicts(tmp_path, preset, capsys):
    arguments = options(
        tmp_path,
        preset,
        "classification",
        steps=90,
        batch_size=16,
        learning_rate=5e-3,
        dropout=0.0,
        attention_dropout=0.0,
        steps_per_loop=15,
        evaluation_interval=15,
    )
    dev = tmp_path / "data" / "dev.tsv"
    assert fixtures.run(*arguments, "--predict", dev) == 0
    output = tmp_path / "run"
    results = json.loads((output / "results.json").read_text())
    assert results["metric"] == "accuracy"
    assert results["value"] >= 0.9  # half of them are "yes"
    assert results["started_from"] == "pretrained"
    said = capsys.readouterr().out
    assert "2 classes" in said
    assert "40 to train on, 20 dev" in said

    rows = [x.split("\t") for x in dev.read_text().splitlines()[1:]]
    predicted = lines(output / "predictions.jsonl")
    assert [x["label"] for x in predicted] == [
        x["label"] for x in lines(output / "held_out_predictions.jsonl")
    ]
    right = np.mean(
        [p["label"] == r[1] for p, r in zip(predicted, rows, strict=True)]
    )
    assert right == pytest.approx(results["value"])
    assert "macro average" in (output / "report.txt").read_text()
    assert (output / "confusion_matrix.png").stat().st_size > 1000

    # What was written takes raw strings, and says the same.
    texts = [row[0] for row in rows]
    wanted = [
        max(p["probabilities"], key=p["probabilities"].get) for p in predicted
    ]
    for model in (
        xlnet_tf.XLNetTextClassifier.from_preset(output / "best"),
        keras.models.load_model(output / "model.keras"),
    ):
        assert model.labels == ["no", "yes"]
        assert model.config.dropout == model.head.dropout == 0.0
        assert model.preprocessor.sequence_length == 24
        logits = model.predict(texts, batch_size=7, verbose=0)
        found = [model.labels[i] for i in logits.argmax(-1)]
        assert found == wanted


@pytest.mark.slow
@pytest.mark.parametrize(
    ("task", "metric", "keys"),
    [
        ("regression", "pearson", {"id", "score"}),
        ("ranking", "ndcg@10", {"query_id", "document_id", "score"}),
        ("race", "accuracy", {"id", "answer", "option", "probabilities"}),
        ("ner", "entity_f1", {"id", "words", "tags"}),
        (
            "squad-1.1",
            "squad_f1",
            {"id", "answer", "no_answer_odds", "n_best"},
        ),
        (
            "squad-2.0",
            "squad_f1",
            {"id", "answer", "no_answer_odds", "n_best"},
        ),
    ],
)
def test_every_kind_of_task(tmp_path, preset, capsys, task, metric, keys):
    arguments = options(tmp_path, preset, task)
    assert fixtures.run(*arguments) == 0
    said = capsys.readouterr().out
    assert ("questions about" in said) == task.startswith("squad")
    output = tmp_path / "run"
    results = json.loads((output / "results.json").read_text())
    assert results["metric"] == metric
    predicted = lines(output / "held_out_predictions.jsonl")
    assert set(predicted[0]) == keys
    assert keras.models.load_model(output / "model.keras")
    # The same command again has nothing left to do, but can predict.
    names = {
        "race": "RACE/dev",
        "ner": "dev.conll",
        "squad-1.1": "dev-v1.1.json",
        "squad-2.0": "dev-v2.0.json",
    }
    if task == "race":
        return
    file = tmp_path / "data" / names.get(task, "dev.tsv")
    assert fixtures.run(*arguments, "--predict", file) == 0
    assert lines(output / "predictions.jsonl") == predicted


@pytest.mark.slow
def test_a_run_that_goes_on_equals_one_that_did_not_stop(
    tmp_path, preset, monkeypatch
):
    from xlnet_tf.training import progress as progress

    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for directory in (whole, parts):
        directory.mkdir()
    arguments = options(whole, preset, "classification")
    assert fixtures.run(*arguments) == 0

    arguments = options(parts, preset, "classification")
    calls = []

    def stop(self, output):
        calls.append(output)
        if len(calls) == 3:  # at step 4, before its evaluation
            raise progress.StopRequested

    with monkeypatch.context() as patch:
        patch.setattr(progress.StopSignals, "__call__", stop)
        assert fixtures.run(*arguments) == 143
    assert not (parts / "run" / "results.json").exists()
    assert fixtures.run(*arguments) == 0
    models = [
        keras.models.load_model(x / "run" / "model.keras")
        for x in (whole, parts)
    ]
    for a, b in zip(models[0].weights, models[1].weights, strict=True):
        np.testing.assert_array_equal(a, b)
    evaluations = [
        [
            {name: m[name] for name in ("step", "accuracy")}
            for m in lines(x / "run" / "metrics.jsonl")
            if m["kind"] == "eval"
        ]
        for x in (whole, parts)
    ]
    assert evaluations[0] == evaluations[1]
    assert [m["step"] for m in evaluations[0]] == [2, 4, 6]
    held_out = [
        (x / "run" / "held_out_predictions.jsonl").read_text()
        for x in (whole, parts)
    ]
    assert held_out[0] == held_out[1]


@pytest.mark.slow
@pytest.mark.parametrize("during", ["save", "_finish"])
def test_a_kill_changes_nothing(tmp_path, preset, monkeypatch, during):
    """While the best weights are written, or once patience is over."""

    def killed(*arguments):
        raise RuntimeError("killed")

    arguments = options(
        tmp_path, preset, "classification", patience=1, learning_rate=1e-12
    )
    with monkeypatch.context() as patch:
        patch.setattr(f"xlnet_tf.training.finetuning.Run.{during}", killed)
        assert fixtures.run(*arguments) == 1
    output = tmp_path / "run"
    assert not (output / "results.json").exists()
    assert fixtures.run(*arguments) == 0
    # No step is any better; the second evaluation ends the run.
    assert [
        (m["kind"], m["step"]) for m in lines(output / "metrics.jsonl")
    ] == [("train", 2), ("eval", 2), ("train", 4), ("eval", 4)]
    assert (output / "best" / "config.json").is_file()
    assert json.loads((output / "best.json").read_text())["step"] == 2


@pytest.mark.slow
def test_several_seeds_have_a_median(tmp_path, preset, capsys):
    arguments = options(tmp_path, preset, "classification", patience=1)
    assert fixtures.run(*arguments, "--seeds", 2, "--random-start") == 0
    assert "median" in capsys.readouterr().out
    summary = json.loads((tmp_path / "run" / "seeds.json").read_text())
    runs = [
        json.loads(
            (tmp_path / "run" / f"seed-{i}" / "results.json").read_text()
        )
        for i in range(2)
    ]
    assert summary["accuracy"]["all"] == [x["value"] for x in runs]
    assert runs[0]["started_from"] == "random"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--task", "sst-3"], "sst-3"),
        (["--columns", "text=review"], "review"),
        (["--data", "nowhere"], "nowhere"),
        (["--preset", "nowhere"], "nowhere"),
        (["--steps", "3", "--epochs", "2"], "either --steps or --epochs"),
        (["--batch-size", "500"], "at most the number of examples, 40"),
        (["--seeds", "0"], "`--seeds` must be at least 1"),
    ],
)
def test_bad_options(tmp_path, preset, capsys, change, message):
    arguments = options(tmp_path, preset, "classification")
    assert fixtures.run(*arguments, *change) == 1
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("error: ")
    assert message in error


def test_ways_of_computing_layers_reach_the_model(
    tmp_path, preset, monkeypatch
):
    seen = []

    def train(self):
        backbone = self.model.backbone
        seen.append((backbone.rematerialize, backbone.scan_layers))
        return 143

    monkeypatch.setattr("xlnet_tf.training.finetuning.Run.train", train)
    ways = {"rematerialize": True, "scan_layers": True}
    arguments = options(tmp_path, preset, "classification", **ways)
    assert fixtures.run(*arguments) == 143
    assert seen == [(True, True)]


def test_another_run_in_the_directory(tmp_path, preset, capsys):
    arguments = options(tmp_path, preset, "classification")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "run.json").write_text(
        json.dumps({"task": "rte", "training": {}})
    )
    (tmp_path / "run" / "results.json").write_text("{}")
    assert fixtures.run(*arguments) == 1
    assert "task: rte there, classification now" in capsys.readouterr().err


def test_a_run_that_failed_before_its_first_step_can_be_mended(
    tmp_path, preset, monkeypatch
):
    arguments = options(tmp_path, preset, "classification")
    assert fixtures.run(*arguments, "--batch-size", "500") == 1
    assert (tmp_path / "run" / "run.json").is_file()
    monkeypatch.setattr(
        "xlnet_tf.training.finetuning.Run.train", lambda run: 143
    )
    assert fixtures.run(*arguments, "--batch-size", "8") == 143


@pytest.mark.parametrize(
    ("given", "steps", "epochs"),
    [([], 6, 3.0), (["--epochs", "2"], None, 2.0), (["--steps", "9"], 9, 3.0)],
)
def test_options_win_over_the_file(tmp_path, preset, given, steps, epochs):
    arguments = map(str, options(tmp_path, preset, "classification"))
    config = finetune.finetuning_config(
        finetune.parse_arguments([*arguments, *given])
    )
    assert (config.steps, config.epochs) == (steps, epochs)


def test_a_model_that_reads_segments_can_learn_without(tmp_path, preset):
    arguments = options(
        tmp_path, preset, "classification", long_documents="memory"
    )
    assert fixtures.run(*arguments) == 0
    best = tmp_path / "run" / "best"
    again = options(tmp_path, best, "classification", steps=2)
    assert fixtures.run(*again, "--output", tmp_path / "again") == 0
    model = xlnet_tf.XLNetTextClassifier.from_preset(tmp_path / "again/best")
    assert model.segment_length is None
