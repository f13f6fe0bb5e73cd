"""Fine-tuning: rows and evaluations, what a run leaves, what it refuses."""

import json
import re
import shutil
import types
import unittest.mock

import keras
import numpy as np
import pytest

import xlnet_tf
from data_pipeline.base import command_line
from data_pipeline.base.files import read_json_lines
from data_pipeline.features.batches import Batches
from data_pipeline.tasks.catalog import find_task
from tests.support import artefacts
from tests.support.equality import assert_equal
from tests.support.finetuning_steps import LABELS
from tests.support.finetuning_steps import around
from tests.support.finetuning_steps import encoded
from tests.support.finetuning_steps import make_config
from tests.support.finetuning_steps import make_examples
from tests.support.finetuning_steps import setup
from tests.support.finetuning_steps import tokenizer
from tests.support.training_fixtures import tiny_config
from xlnet_tf import finetune
from xlnet_tf.tasks import task_kind
from xlnet_tf.training import finetune as training
from xlnet_tf.training.evaluation import Evaluator
from xlnet_tf.training.evaluation import padded_lengths
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.weights import own


@pytest.fixture
def begun(monkeypatch):
    """The runs that were about to train: run, task, model; none trains."""
    found = []

    def training_of(run, task, model, *others):
        found.append(types.SimpleNamespace(run=run, task=task, model=model))

    monkeypatch.setattr(training, "training_of", training_of)
    monkeypatch.setattr(training.loop, "train", lambda *arguments: 143)
    return found


@pytest.mark.filterwarnings("ignore:Even though the")  # tf.data is no part
@pytest.mark.parametrize("name", ["classification", "ner", "seq2seq"])
@pytest.mark.usefixtures("eager_functions")
def test_a_padded_last_batch_changes_no_metric(name):
    examples = make_examples(name)
    found = []
    for batch_size in (4, 23):
        strategy, config, model = setup(name, batch_size=batch_size)
        rows = encoded(name, examples, False, config)
        lengths = padded_lengths(config.sequence_length)
        batches = Batches(rows, batch_size, lengths)
        evaluator = Evaluator(
            *(around(name, model), find_task(name), LABELS),
            {"dev": (examples, rows, batches)},
            *(config, TensorFlow(strategy)),
        )
        outputs = evaluator.collect("dev")
        found.append((evaluator.evaluate(), outputs))
    assert found[0][0] == found[1][0]
    assert_equal(found[0][1], found[1][1], atol=1e-5)


def test_balanced_classes_weigh_equally():
    examples = make_examples("classification")[:7]  # 3, 2 and 2 of them
    rows = encoded("classification", examples, True, make_config())
    np.testing.assert_array_equal(rows.dense["row_weight"], 1)
    training.balance_classes(rows, "abcd")  # of which one does not occur
    weights, labels = rows.dense["row_weight"], rows.dense["label"]
    expected = np.where(labels == 0, 7 / 9, 7 / 6)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    config = make_config(long_documents="windows", sequence_length=8, stride=4)
    examples[0] = examples[0]._replace(text=" ".join([examples[0].text] * 9))
    rows = encoded("classification", examples, True, config)
    assert len(rows) > 2 * len(examples)
    training.balance_classes(rows, "abc")
    totals = np.bincount(rows.dense["label"], rows.dense["row_weight"])
    np.testing.assert_allclose(totals, 7 / 3, rtol=1e-6)
    for task, labels in (("ner", ("O", "B-x")), ("regression", None)):
        rows = encoded(task, make_examples(task), True, make_config())
        with pytest.raises(ValueError, match="one class for each text"):
            training.balance_classes(rows, labels)


def test_lengths_of_texts_read_in_segments():
    lengths = padded_lengths(100, 16)
    assert lengths == (16, 32, 48, 64, 96, 112)
    assert padded_lengths(40) == (16, 24, 32, 40)


def test_what_is_not_read_is_told():
    examples = [
        x._replace(text=x.text[:5] if index % 3 else x.text)
        for index, x in enumerate(make_examples("classification"))
    ]
    for length in (12, 24):
        config = make_config(sequence_length=length)
        tokens = [len(tokenizer().encode(x.text)) + 2 for x in examples]
        full = sum(x >= length for x in tokens)
        assert 0 < full < len(examples)
        rows = encoded("classification", examples, True, config)
        assert f"cut       {full} of {len(examples)} texts" in rows.notes[0]
    examples = make_examples("ner")
    rows = encoded("ner", examples, True, make_config(sequence_length=12))
    words = sum(len(x.words) for x in examples)
    lost = words - rows.dense["words"].sum()
    assert lost > 0
    assert f"cut       {lost} of {words} words" in rows.notes[0]
    config = make_config(sequence_length=200)
    assert encoded("ner", examples, True, config).notes == []


def test_strings_are_preprocessed_as_examples():
    """Questions; other tasks in tests/xlnet_tf/tasks/test_kind.py."""
    for settings, expected in (
        ({"stride": 5, "max_question_length": 9}, (5, 9)),
        # No longer question leaves room for a context.
        ({}, (128, 20)),
    ):
        spec, config = find_task("squad-2.0"), make_config(**settings)
        task = task_kind("question_answering")
        found = task.preprocessor_settings(spec, config)
        stride, longest = expected
        assert found == {
            "sequence_length": 24,
            "stride": stride,
            "max_question_length": longest,
        }


def options(preset, output, task="classification", **settings):
    """The command line of the artefact `finetuned`."""
    output.parent.mkdir(parents=True, exist_ok=True)
    file = output.parent / "training.json"
    file.write_text(json.dumps({**artefacts.FINETUNING, **settings}))
    data = artefacts.TASKS / task
    argv = ["--task", task, "--data", data, "--preset", preset]
    argv += ["--output", output, "--training", file]
    return [str(x) for x in (*argv, "--strategy", "one_device")]


def test_what_a_classifier_leaves(finetuned):
    output = finetuned["classification"]
    results = json.loads((output / "results.json").read_text())
    assert results["metric"] == "accuracy"
    assert results["started_from"] == "pretrained"
    assert results["steps"] == 4
    kinds = [
        (m["kind"], m["step"])
        for m in read_json_lines(output / "metrics.jsonl")
    ]
    assert kinds == [("train", 2), ("eval", 2), ("train", 4), ("eval", 4)]
    best = json.loads((output / "best.json").read_text())
    assert (best["metric"], best["value"]) == ("accuracy", results["value"])
    predicted = read_json_lines(output / "predictions.jsonl")
    held_out = read_json_lines(output / "held_out_predictions.jsonl")
    assert [x["label"] for x in predicted] == [x["label"] for x in held_out]
    data = artefacts.TASKS / "classification/dev.tsv"
    rows = [x.split("\t") for x in data.read_text().splitlines()[1:]]
    for number, (one, row) in enumerate(zip(held_out, rows, strict=True)):
        assert (one["row"], one["text"]) == (number + 2, row[0])
        assert one["true_label"] == row[1]
        assert one["predicted_label"] == one["label"]
        assert one["right"] == (one["label"] == row[1])
    right = np.mean(
        [p["label"] == r[1] for p, r in zip(predicted, rows, strict=True)]
    )
    assert right == pytest.approx(results["value"])
    assert "accuracy" in (output / "report.txt").read_text()
    assert (output / "confusion_matrix.png").stat().st_size > 1000
    assert results["analysis"]["positive"] == "yes"
    page = (output / "report.html").read_text("utf-8")
    for heading in ("Course", "Answers", "Probabilities", "Worst errors"):
        assert f"<h2>{heading}</h2>" in page
    assert "gradient times embedding" in page
    assert not (output / "checkpoints").exists()
    # The settings can be given back, with all numbers of steps known.
    config = FinetuningSettings.read(output / "training.json")
    assert (config.steps, config.sequence_length) == (4, 24)
    # What was written takes raw strings, and answers the same.
    texts = [row[0] for row in rows]
    for model in (
        xlnet_tf.XLNetTextClassifier.from_preset(output / "best"),
        keras.models.load_model(output / "model.keras"),
    ):
        assert model.labels == ["no", "yes"]
        assert model.preprocessor.sequence_length == 24
        logits = model.predict(texts, batch_size=7, verbose=0)
        found = [model.labels[i] for i in logits.argmax(-1)]
        assert found == [x["label"] for x in predicted]


def test_what_questions_leave(finetuned):
    output = finetuned["questions"]
    results = json.loads((output / "results.json").read_text())
    assert results["metric"] == "squad_f1"
    predicted = read_json_lines(output / "predictions.jsonl")
    answer = {"id", "answer", "no_answer_odds", "n_best"}
    assert set(predicted[0]) == answer | {"where", "question", "true_answers"}
    assert predicted == read_json_lines(output / "held_out_predictions.jsonl")
    official = json.loads((output / "predictions.json").read_text())
    assert official == {x["id"]: x["answer"] for x in predicted}


def test_a_finished_run_only_predicts(finetuned, pretrained, tmp_path, capsys):
    output = shutil.copytree(finetuned["classification"], tmp_path / "run")
    before = read_json_lines(output / "predictions.jsonl")
    capsys.readouterr()  # of the run, where this test is its first user
    (output / "predictions.jsonl").unlink()
    # As of a run that was killed while it removed them.
    (output / "checkpoints").mkdir()
    (output / "checkpoints" / "ckpt-4.index").touch()
    argv = options(pretrained / "preset", output)
    data = artefacts.TASKS / "classification/dev.tsv"
    assert command_line.run(finetune.main, [*argv, "--predict", str(data)]) == 0
    assert read_json_lines(output / "predictions.jsonl") == before
    said = capsys.readouterr()
    assert "step 4/4" not in said.err
    for line in (
        r"task +classification, 2 classes$",
        r"examples +\d+ to train on, \d+ dev",
        r"classes +no 12 \(50%\), yes 12 \(50%\)",
        r"model +[\d,]+ parameters, weights of",
        r"steps +4 of 4 rows = .* epochs, evaluated every 2; \d+% of the",
        r"classification: accuracy 0\.\d+",
        r"held out, the F1 of yes is highest, 0\.\d+, from a probability",
        r"wrote .*predictions.jsonl",
        r"next:\n  xlnet export --model .*/run --output saved_models/NAME$",
        r"  xlnet evaluate --model .*/run --task classification --data PATH$",
    ):
        assert re.search(line, said.out, re.MULTILINE), line
    assert "report.html" not in said.out  # it was there already
    # The file is the one that was held out.
    assert f"{data}: accuracy {right_of(before):.4g}\n" in said.out
    rows = [line.split("\t") for line in data.read_text("utf-8").splitlines()]
    for width in (2, 1):  # the second without labels
        other = tmp_path / f"{width}.tsv"
        lines = ["\t".join(row[:width]) for row in rows[:8]]
        other.write_text("\n".join(lines), "utf-8")
        assert finetune.main([*argv, "--predict", str(other)]) == 0
        said = capsys.readouterr().out
        assert (f"{other}: accuracy {right_of(before[:7]):.4g}\n" in said) is (
            width == 2
        )


def right_of(rows):
    right = [row["predicted_label"] == row["true_label"] for row in rows]
    return sum(right) / len(right)


def test_what_is_predicted_is_read_before_the_training(
    pretrained, tmp_path, capsys
):
    argv = options(pretrained / "preset", tmp_path / "run")
    other = tmp_path / "other.tsv"
    other.write_text("text\tlabel\nBa co.\tneither\n")
    for path, message in (
        (tmp_path / "gone.tsv", "gone.tsv"),
        (other, "other.tsv, row 2: the label 'neither' is none of those known"),
    ):
        given = [*argv, "--predict", str(path)]
        assert command_line.run(finetune.main, given) == 1
        assert message in capsys.readouterr().err
        assert not (tmp_path / "run").exists()


def test_errors_are_one_line(pretrained, tmp_path, capsys):
    argv = options(pretrained / "preset", tmp_path / "run")
    for change, message in (
        (["--task", "sst-3"], "sst-3"),
        (["--task", "clasification"], "did you mean classification? Known"),
        (["--steps", "0"], "xlnet evaluate --task classification --model"),
        (["--columns", "text=review"], "review"),
        (["--data", "nowhere"], "nowhere"),
        (["--preset", "nowhere"], "nowhere"),
        (["--steps", "3", "--epochs", "2"], "either --steps or --epochs"),
        (["--batch-size", "500"], "at most the number of examples, 24"),
        (["--seeds", "0"], "`seeds` must be a positive integer"),
        (["--training", "nowhere.json"], "no file of settings at nowhere"),
        (["--hold-out", "1.5"], "`hold_out` must be in (0, 1)"),
        (["--strategy", "gpu"], "`strategy` must be one of"),
        (["--strategy", "mirorred"], "did you mean mirrored?"),
    ):
        assert command_line.run(finetune.main, [*argv, *change]) == 1, change
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("error: ")
        assert message in error
    # Nothing was lost by the last: it may begin with other settings.
    assert (tmp_path / "run" / "run.json").is_file()


def test_what_a_bert_cannot_read_is_one_line(tmp_path, capsys):
    config = xlnet_tf.BertConfig.from_size(
        "tiny", vocabulary_size=300, max_positions=30
    )
    xlnet_tf.BertBackbone(config).save_to_preset(tmp_path / "bert")
    own.write_tokenizer(tokenizer(), tmp_path / "bert")
    argv = options(tmp_path / "bert", tmp_path / "run")
    for change, message in (
        (["--long-documents", "memory"], "needs a model with memory, which a"),
        (["--sequence-length", "31"], "at most the positions of the model, 30"),
        (
            ["--attention-kernel", "fused"],
            "must be one of auto, plain for a BertBackbone",
        ),
    ):
        assert command_line.run(finetune.main, [*argv, *change]) == 1, change
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("error: ") and message in error, error


def test_ways_of_computing_reach_the_model(pretrained, tmp_path, begun):
    argv = options(pretrained / "preset", tmp_path / "run", dropout=0.25)
    argv += ["--rematerialize", "--attention-kernel", "plain"]
    argv += ["--long-documents", "memory", "--document-length", "60"]
    assert command_line.run(finetune.main, argv) == 143
    model = begun[0].model
    assert model.backbone.rematerialize
    assert model.backbone.attention_kernel == "plain"
    assert model.config.dropout == model.head.dropout == 0.25
    assert (model.segment_length, model.config.memory_length) == (24, 24)
    assert model.preprocessor.sequence_length == 60


def test_where_options_are_put(pretrained, tmp_path, begun):
    argv = options(pretrained / "preset", tmp_path / "run", task="race")
    for more, expected in (([], True), (["--no-fill-blanks"], False)):
        assert command_line.run(finetune.main, [*argv, *more]) == 143
        assert begun[-1].model.preprocessor.fill_blanks is expected


def test_the_rate_of_a_small_model(pretrained, tmp_path, begun, capsys):
    argv = options(pretrained / "preset", tmp_path / "run", learning_rate=None)
    line = "rate      5e-4, as the model is small (width 16); --learning-rate"
    for more, file in (([], "run.json"), (["--seeds", "2"], "seed-0/run.json")):
        assert command_line.run(finetune.main, [*argv, *more]) == 143
        assert line in capsys.readouterr().out
        identity = json.loads((tmp_path / "run" / file).read_text())
        assert identity["training"]["learning_rate"] == 5e-4
        assert begun[-1].run.settings.learning_rate == 5e-4


def test_an_epoch_has_full_batches_alone(pretrained, tmp_path, begun, capsys):
    """Of 24 rows, 4 steps of 5."""
    settings = {"batch_size": 5, "steps": 8}
    argv = options(pretrained / "preset", tmp_path / "run", **settings)
    assert command_line.run(finetune.main, argv) == 143
    assert "steps     8 of 5 rows = 2.0 epochs" in capsys.readouterr().out


def test_one_run_a_seed(pretrained, tmp_path, begun, monkeypatch):
    """With a directory and a seed of its own."""

    def results(directory):
        return {"task": "x", "metrics": {"accuracy": len(begun) / 2}}

    monkeypatch.setattr(training.loop, "train", lambda *arguments: 0)
    monkeypatch.setattr(training, "evaluator_of", unittest.mock.MagicMock())
    monkeypatch.setattr(training, "write_results", lambda *arguments: None)
    monkeypatch.setattr(training, "read_results", results)
    argv = options(pretrained / "preset", tmp_path / "run")
    argv += ["--seeds", "2", "--seed", "3", "--random-start"]
    assert command_line.run(finetune.main, argv) == 0
    assert [x.run.settings.seed for x in begun] == [3, 4]
    names = [x.run.output.name for x in begun]
    assert names == ["seed-3", "seed-4"]
    summary = json.loads((tmp_path / "run" / "seeds.json").read_text())
    assert summary["accuracy"]["all"] == [0.5, 1.0]
    assert summary["accuracy"]["median"] == 0.75
    # One of them alone goes on with the examples that were held out for all.
    file = tmp_path / "run/seed-4/run.json"
    assert json.loads(file.read_text())["held_out_seed"] == 3
    checkpoint = file.parent / "checkpoints/ckpt-1.index"
    checkpoint.parent.mkdir()
    checkpoint.touch()
    argv = options(pretrained / "preset", file.parent)
    argv += ["--seed", "4", "--random-start"]
    with monkeypatch.context() as patch:
        patch.setattr(training, "Checkpoints", unittest.mock.MagicMock())
        assert command_line.run(finetune.main, argv) == 0
    held_out = [x.task.data.evaluation for x in begun]
    assert held_out[2] == held_out[1] == held_out[0]
    with pytest.raises(ValueError, match="several seeds. Name one .*seed-0"):
        xlnet_tf.load(tmp_path / "run")


def test_classes_have_the_order_of_the_head(tmp_path, begun, capsys):
    """Hugging Face's are in any order, those of a table in alphabetical one."""
    for labels, expected in (
        (["yes", "no"], ("yes", "no")),
        (["no", "never"], ("no", "yes")),
    ):
        preset = tmp_path / labels[-1]
        model = xlnet_tf.XLNetTextClassifier(
            xlnet_tf.XLNetBackbone(tiny_config(vocabulary_size=300)),
            num_classes=2,
            labels=labels,
        )
        model.save_to_preset(preset, tokenizer=tokenizer())
        argv = options(preset, tmp_path / f"run-{labels[-1]}")
        assert command_line.run(finetune.main, argv) == 143
        assert begun[-1].task.data.labels == expected
        assert tuple(begun[-1].model.labels) == expected
        said = (
            "has the classes no, never, not no, yes" in capsys.readouterr().err
        )
        assert said == (labels == ["no", "never"])
