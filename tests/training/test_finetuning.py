"""Fine-tuning: rows and evaluations, what a run leaves, what it refuses."""

import json
import re
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline import command_line
from data_pipeline.features.batches import Batches
from data_pipeline.tasks import reading
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import digest_of_examples
from tests.support import artefacts
from tests.support.finetuning_steps import LABELS
from tests.support.finetuning_steps import encoded
from tests.support.finetuning_steps import make_config
from tests.support.finetuning_steps import make_examples
from tests.support.finetuning_steps import setup
from tests.support.finetuning_steps import tokenizer
from tests.support.training_fixtures import tiny_config
from xlnet_tf import finetune
from xlnet_tf.files.checksums import CHECKSUMS_FILE
from xlnet_tf.tasks import task_class
from xlnet_tf.training import finetuning
from xlnet_tf.training import finetuning_step
from xlnet_tf.training.config import FinetuningConfig
from xlnet_tf.training.finetuning import FinetuningRun
from xlnet_tf.weights import own


@pytest.fixture
def eager():
    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.mark.filterwarnings("ignore:Even though the")  # tf.data is no part
@pytest.mark.parametrize("name", ["classification", "ner", "seq2seq"])
def test_a_padded_last_batch_changes_no_metric(name, eager):
    examples = make_examples(name)
    found = []
    for batch_size in (4, 23):
        strategy, config, model = setup(name, batch_size=batch_size)
        rows = encoded(name, examples, False, config)
        lengths = finetuning_step.padded_lengths(config.sequence_length)
        batches = Batches(rows, batch_size, lengths)
        dataset = finetuning_step.distribute_examples(batches, config, strategy)
        splits = {"dev": (examples, rows, dataset)}
        evaluator = finetuning_step.FinetuningEvaluator(
            model, find_task(name), LABELS, splits, strategy
        )
        _, outputs = evaluator.collect("dev")
        found.append((evaluator.evaluate(), outputs))
    assert found[0][0] == found[1][0]
    for key, value in found[0][1].items():
        np.testing.assert_allclose(value, found[1][1][key], atol=1e-5)


def test_balanced_classes_weigh_equally():
    examples = make_examples("classification")[:7]  # 3, 2 and 2 of them
    rows = encoded("classification", examples, True, make_config())
    np.testing.assert_array_equal(rows.dense["row_weight"], 1)
    finetuning_step.balance_classes(rows, "abcd")  # of which one does not occur
    weights, labels = rows.dense["row_weight"], rows.dense["label"]
    expected = np.where(labels == 0, 7 / 9, 7 / 6)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    config = make_config(long_documents="windows", sequence_length=8, stride=4)
    examples[0] = examples[0]._replace(text=" ".join([examples[0].text] * 9))
    rows = encoded("classification", examples, True, config)
    assert len(rows) > 2 * len(examples)
    finetuning_step.balance_classes(rows, "abc")
    totals = np.bincount(rows.dense["label"], rows.dense["row_weight"])
    np.testing.assert_allclose(totals, 7 / 3, rtol=1e-6)
    for task, labels in (("ner", ("O", "B-x")), ("regression", None)):
        rows = encoded(task, make_examples(task), True, make_config())
        with pytest.raises(ValueError, match="one class for each text"):
            finetuning_step.balance_classes(rows, labels)


def test_lengths_of_texts_read_in_segments():
    lengths = finetuning_step.padded_lengths(100, 16)
    assert lengths == (16, 32, 48, 64, 96, 112)
    assert finetuning_step.padded_lengths(40) == (16, 24, 32, 40)


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
    """Questions; other tasks in tests/tasks/test_answers.py."""
    for settings, expected in (
        ({"stride": 5, "max_question_length": 9}, (5, 9)),
        # No longer question leaves room for a context.
        ({}, (128, 20)),
    ):
        spec, config = find_task("squad-2.0"), make_config(**settings)
        task = task_class("question_answering")
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
    data = artefacts.EARLIER / "finetuning" / "data" / task
    argv = ["--task", task, "--data", data, "--preset", preset]
    argv += ["--output", output, "--training", file]
    return [str(x) for x in (*argv, "--strategy", "one_device")]


def json_lines(file):
    return [json.loads(x) for x in file.read_text("utf-8").splitlines()]


def test_what_a_classifier_leaves(finetuned):
    output = finetuned["classification"]
    results = json.loads((output / "results.json").read_text())
    assert results["metric"] == "accuracy"
    assert results["started_from"] == "pretrained"
    assert results["steps"] == 4
    kinds = [
        (m["kind"], m["step"]) for m in json_lines(output / "metrics.jsonl")
    ]
    assert kinds == [("train", 2), ("eval", 2), ("train", 4), ("eval", 4)]
    best = json.loads((output / "best.json").read_text())
    assert (best["metric"], best["value"]) == ("accuracy", results["value"])
    predicted = json_lines(output / "predictions.jsonl")
    held_out = json_lines(output / "held_out_predictions.jsonl")
    assert [x["label"] for x in predicted] == [x["label"] for x in held_out]
    data = artefacts.EARLIER / "finetuning/data/classification/dev.tsv"
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
    config = FinetuningConfig.read(output / "training.json")
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
    predicted = json_lines(output / "predictions.jsonl")
    answer = {"id", "answer", "no_answer_odds", "n_best"}
    assert set(predicted[0]) == answer | {"where", "question", "true_answers"}
    assert predicted == json_lines(output / "held_out_predictions.jsonl")
    official = json.loads((output / "predictions.json").read_text())
    assert official == {x["id"]: x["answer"] for x in predicted}


def test_a_finished_run_only_predicts(finetuned, pretrained, tmp_path, capsys):
    output = shutil.copytree(finetuned["classification"], tmp_path / "run")
    before = json_lines(output / "predictions.jsonl")
    capsys.readouterr()  # of the run, where this test is its first user
    (output / "predictions.jsonl").unlink()
    # As of a run that was killed while it removed them.
    (output / "checkpoints").mkdir()
    (output / "checkpoints" / "ckpt-4.index").touch()
    argv = options(pretrained / "preset", output)
    data = artefacts.EARLIER / "finetuning/data/classification/dev.tsv"
    assert command_line.run(finetune.main, [*argv, "--predict", str(data)]) == 0
    assert json_lines(output / "predictions.jsonl") == before
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
        (["--seeds", "0"], "`--seeds` must be at least 1"),
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
        (["--attention-kernel", "fused"], "of a BertBackbone must be auto or"),
    ):
        assert command_line.run(finetune.main, [*argv, *change]) == 1, change
        error = capsys.readouterr().err.strip().splitlines()[-1]
        assert error.startswith("error: ") and message in error, error


def test_ways_of_computing_reach_the_model(pretrained, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        FinetuningRun, "loop", lambda run: seen.append(run.model) or 143
    )
    argv = options(pretrained / "preset", tmp_path / "run", dropout=0.25)
    argv += ["--rematerialize", "--attention-kernel", "plain"]
    argv += ["--long-documents", "memory", "--document-length", "60"]
    assert command_line.run(finetune.main, argv) == 143
    (model,) = seen
    assert model.backbone.rematerialize
    assert model.backbone.attention_kernel == "plain"
    assert model.config.dropout == model.head.dropout == 0.25
    assert (model.segment_length, model.config.memory_length) == (24, 24)
    assert model.preprocessor.sequence_length == 60


def test_a_run_reads_options_as_it_began(pretrained, tmp_path, monkeypatch):
    seen = []
    monkeypatch.setattr(
        FinetuningRun, "loop", lambda run: seen.append(run) or 143
    )
    argv = options(pretrained / "preset", tmp_path / "run", task="race")
    assert command_line.run(finetune.main, argv) == 143
    assert seen[-1].model.preprocessor.fill_blanks
    # A run of an earlier version that is done.
    file = tmp_path / "run" / "run.json"
    began = json.loads(file.read_text())
    began["training"].pop("fill_blanks")
    file.write_text(json.dumps(began))
    (tmp_path / "run" / CHECKSUMS_FILE).unlink()
    (tmp_path / "run" / "results.json").write_text("{}")
    assert command_line.run(finetune.main, argv) == 143
    assert not seen[-1].model.preprocessor.fill_blanks
    assert command_line.run(finetune.main, argv) == 143
    assert seen[-1].config.fill_blanks is False
    assert command_line.run(finetune.main, [*argv, "--fill-blanks"]) == 1


def test_a_run_keeps_the_rate_that_it_began_with(
    pretrained, tmp_path, monkeypatch, capsys
):
    """A small model's own, until a run was begun; of seeds the first one's."""
    seen = []
    monkeypatch.setattr(
        FinetuningRun, "loop", lambda run: seen.append(run.config) or 143
    )
    output = tmp_path / "run"
    argv = options(pretrained / "preset", output, learning_rate=None)
    line = "rate      5e-4, as the model is small (width 16); --learning-rate"
    for more, file in (([], "run.json"), (["--seeds", "2"], "seed-0/run.json")):
        assert command_line.run(finetune.main, [*argv, *more]) == 143
        assert line in capsys.readouterr().out
        began = json.loads((output / file).read_text())
        assert began["training"]["learning_rate"] == 5e-4
        assert seen[-1].learning_rate == 5e-4
        # Earlier versions had one rate for all models.
        began["training"]["learning_rate"] = 2e-5
        (output / file).write_text(json.dumps(began))
        (output / file).with_name(CHECKSUMS_FILE).unlink()
        (output / file).with_name("results.json").write_text("{}")
        assert command_line.run(finetune.main, [*argv, *more]) == 143
        assert seen[-1].learning_rate == 2e-5
        assert line not in capsys.readouterr().out
        given = [*argv, *more, "--learning-rate", "5e-4"]
        assert command_line.run(finetune.main, given) == 1
        assert "learning_rate: 2e-05 there" in capsys.readouterr().err


def test_an_earlier_run_keeps_what_it_held_out(
    pretrained, tmp_path, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        FinetuningRun, "loop", lambda run: seen.append(run) or 143
    )
    data = artefacts.EARLIER / "finetuning/data/classification/train.tsv"
    argv = options(pretrained / "preset", tmp_path / "run", seed=3)
    argv[argv.index("--data") + 1] = str(data)
    assert command_line.run(finetune.main, argv) == 143
    held = [x.label for x in seen[-1].data.evaluation["held out"]]
    assert sorted(held) == ["no", "yes"]
    # A run of version 0.1, which did not look at classes.
    file = tmp_path / "run" / "run.json"
    began = json.loads(file.read_text())
    assert began.pop("held_out_by_class") is True
    before = reading.read_task("classification", data, seed=3, by_class=False)
    assert before.evaluation != seen[-1].data.evaluation
    began["training_examples"] = digest_of_examples({"train": before.train})
    began["held_out_examples"] = digest_of_examples(before.evaluation)
    file.write_text(json.dumps(began))
    (tmp_path / "run" / CHECKSUMS_FILE).unlink()
    (tmp_path / "run" / "results.json").write_text("{}")
    for _ in range(2):
        assert command_line.run(finetune.main, argv) == 143
        assert seen[-1].data.evaluation == before.evaluation
    # What it was stays written as it was.
    assert json.loads(file.read_text()) == began


def test_one_run_a_seed(pretrained, tmp_path, monkeypatch):
    """With a directory and a seed of its own."""
    seen = []
    monkeypatch.setattr(
        FinetuningRun, "loop", lambda run: seen.append(run) or 0
    )
    monkeypatch.setattr(FinetuningRun, "finish", lambda run: run.is_chief)

    def results(directory):
        return {"task": "x", "metrics": {"accuracy": len(seen) / 2}}

    monkeypatch.setattr(finetuning, "read_results", results)
    argv = options(pretrained / "preset", tmp_path / "run")
    argv += ["--seeds", "2", "--seed", "3", "--random-start"]
    assert command_line.run(finetune.main, argv) == 0
    assert [run.config.seed for run in seen] == [3, 4]
    names = [run.output.name for run in seen]
    assert names == ["seed-3", "seed-4"]
    summary = json.loads((tmp_path / "run" / "seeds.json").read_text())
    assert summary["accuracy"]["all"] == [0.5, 1.0]
    assert summary["accuracy"]["median"] == 0.75
    # One of them alone goes on with the examples that were held out for all.
    file = tmp_path / "run/seed-4/run.json"
    assert json.loads(file.read_text())["held_out_seed"] == 3
    (file.parent / "results.json").write_text("{}")
    (file.parent / CHECKSUMS_FILE).unlink(missing_ok=True)
    argv = options(pretrained / "preset", file.parent)
    argv += ["--seed", "4", "--random-start"]
    assert command_line.run(finetune.main, argv) == 0
    held_out = [run.data.evaluation for run in seen]
    assert held_out[2] == held_out[1] == held_out[0]
    with pytest.raises(ValueError, match="several seeds. Name one .*seed-0"):
        xlnet_tf.load(tmp_path / "run")


def test_classes_have_the_order_of_the_head(tmp_path, monkeypatch, capsys):
    """Hugging Face's are in any order, those of a table in alphabetical one."""
    seen = []
    monkeypatch.setattr(
        FinetuningRun, "loop", lambda run: seen.append(run) or 143
    )
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
        assert seen[-1].data.labels == expected
        assert tuple(seen[-1].model.labels) == expected
        said = (
            "has the classes no, never, not no, yes" in capsys.readouterr().err
        )
        assert said == (labels == ["no", "never"])
