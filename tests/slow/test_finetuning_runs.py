"""Fine-tuning: all tasks, replicas, resuming, kills, and that it learns."""

import functools
import json
import os
import signal

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.base import command_line
from data_pipeline.base.files import read_json_lines
from data_pipeline.features.batches import Batches
from data_pipeline.tasks.catalog import find_task
from saved_models.export import export_model
from tests.support import artefacts
from tests.support import finetuning_fixtures as fixtures
from tests.support.equality import assert_equal
from tests.support.finetuning_steps import around
from tests.support.finetuning_steps import encoded
from tests.support.finetuning_steps import make_examples
from tests.support.finetuning_steps import setup
from tests.support.replicas import two_replicas
from xlnet_tf import generate
from xlnet_tf.loading import open_model
from xlnet_tf.training import finetune as training
from xlnet_tf.training.devices import make_step_counter
from xlnet_tf.training.evaluation import Evaluator
from xlnet_tf.training.evaluation import evaluate_task
from xlnet_tf.training.evaluation import padded_lengths
from xlnet_tf.training.evaluation import reading_settings
from xlnet_tf.training.on_tensorflow import Steps
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.update import make_optimizer
from xlnet_tf.weights.lora.model import lora_groups
from xlnet_tf.weights.lora.model import lora_layers

MODULES = {
    "Task.save_to_preset": "xlnet_tf.tasks.task",
    "write_all": "xlnet_tf.training.finetune",
}


def train(name="classification", strategy=None, **settings):
    """Weights after the steps, and the loss of the last loop."""
    strategy, config, model = setup(name, strategy, **settings)
    rows = encoded(name, make_examples(name), True, config)
    lengths = padded_lengths(config.sequence_length)
    batches = Batches(rows, config.batch_size, lengths, seed=3)
    with strategy.scope():
        if config.lora_rank:
            model.enable_lora(config.lora_rank, alpha=config.lora_alpha)
        optimizer = make_optimizer(
            model, config, layer_decay=config.layer_decay
        )
    loss = training.training_loss(around(name, model))
    steps = Steps(
        *(model, optimizer, None, loss),
        functools.partial(batches.training, range(config.steps)),
        *(config, make_step_counter(strategy), strategy),
    )
    figures = steps.make(config.steps).scalars()
    return [np.array(v) for v in model.trainable_variables], figures["loss"]


@pytest.mark.parametrize("name", ["classification", "ner", "seq2seq"])
def test_replicas_and_parts_equal_one_batch(name):
    whole, loss = train(name)
    ways = [train(name, two_replicas(), gradient_accumulation_steps=2)]
    if name == "classification":  # the programs of the others differ little
        ways += [train(name, jit_compile=True)]
    for other in ways:
        assert other[1] == pytest.approx(loss, rel=1e-5)
        assert_equal(whole, other[0], atol=1e-5)


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    return fixtures.write_preset(tmp_path_factory.mktemp("preset"))


def test_adapters_train_on_replicas_and_compiled():
    whole, loss = train(lora_rank=2, layer_decay=0.5)
    assert len(whole) == 4 + 2 * 14
    settings = {"lora_rank": 2, "layer_decay": 0.5, "jit_compile": True}
    divided, other_loss = train(strategy=two_replicas(), **settings)
    assert other_loss == pytest.approx(loss, rel=1e-5)
    assert_equal(whole, divided, atol=1e-5)


def options(directory, preset, **settings):
    data = directory / "data"
    if not data.exists():
        fixtures.write_task(data, "classification")
    argv = ["--task", "classification", "--data", data, "--preset", preset]
    argv += ["--output", directory / "run"]
    return [*argv, "--training", fixtures.write_training(directory, **settings)]


@pytest.mark.parametrize(
    ("task", "held_out", "settings"),
    [
        ("classification", "dev.tsv", {}),
        ("classification", "dev.tsv", {"long_documents": "memory"}),
        ("classification", "dev.tsv", {"long_documents": "windows"}),
        ("regression", "dev.tsv", {}),
        ("ranking", "dev.tsv", {}),
        ("race", None, {}),
        ("ner", "dev.conll", {}),
        ("squad-2.0", "dev-v2.0.json", {}),
    ],
    ids=lambda x: x.get("long_documents", "-") if isinstance(x, dict) else x,
)
def test_every_kind_of_task_is_run(tmp_path, preset, task, held_out, settings):
    """From files to answers; the same file is held out and predicted."""
    data, output = artefacts.TASKS / task, tmp_path / "run"
    argv = ["--task", task, "--data", data, "--preset", preset]
    argv += ["--output", output, "--strategy", "one_device"]
    argv += ["--training", fixtures.write_training(tmp_path, **settings)]
    argv += ["--predict", data / held_out] if held_out else []
    assert fixtures.run(*argv) == 0
    results = json.loads((output / "results.json").read_text())
    assert (results["task"], results["steps"]) == (task, 6)
    rows = read_json_lines(output / "held_out_predictions.jsonl")
    assert len(rows) > 4
    if held_out:
        assert read_json_lines(output / "predictions.jsonl") == rows
    # What was kept is the best model, which gives these answers.
    stored = open_model(output)
    model = stored.load()
    found = evaluate_task(
        *(model, task, data, None, reading_settings(stored)),
        run_columns=stored.results()["columns"],
    )[0]
    assert found[results["metric"]] == pytest.approx(results["value"])


def test_a_classifier_learns(tmp_path, preset):
    arguments = options(
        tmp_path,
        preset,
        steps=90,
        batch_size=16,
        learning_rate=5e-3,
        dropout=0.0,
        attention_dropout=0.0,
        steps_per_loop=15,
        evaluation_interval=15,
    )
    assert fixtures.run(*arguments) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["value"] >= 0.9  # half of them are "yes"


def test_any_number_of_classes(tmp_path, preset):
    data = fixtures.write_task(tmp_path / "data", "multi-label")
    argv = ["--task", "multi-label", "--data", data, "--preset", preset]
    argv += ["--output", tmp_path / "run", "--predict", data / "dev.tsv"]
    argv += ["--training", fixtures.write_training(tmp_path)]
    assert fixtures.run(*argv, "--class-weights", "balanced") == 1
    assert fixtures.run(*argv) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert list(results["metrics"])[0] == "micro_f1"
    rows = read_json_lines(tmp_path / "run" / "predictions.jsonl")
    model = xlnet_tf.load(tmp_path / "run")
    assert model.labels == ["ba", "co", "fi"]
    found = model.predict_labels([row["text"] for row in rows], verbose=0)
    assert found == [row["labels"] for row in rows]
    assert any(len(row["true_labels"]) != 1 for row in rows)
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "F1 of all classes together" in page and "true labels" in page
    text = [row["text"] for row in rows[:3]]
    tokenizer, folder = model.preprocessor.tokenizer, tmp_path / "served" / "1"
    export_model(model, tokenizer, folder, sequence_length=24)
    served = tf.saved_model.load(str(folder))
    answer = served.signatures["serving_default"](text=tf.constant(text))
    for row, chosen in zip(rows, answer["chosen"].numpy(), strict=False):
        assert row["labels"] == [
            name for name, x in zip(model.labels, chosen, strict=True) if x
        ]


@pytest.mark.parametrize("settings", [{}, {"lora_rank": 2}])
def test_a_resumed_run_equals_an_uninterrupted_one(
    tmp_path, preset, monkeypatch, settings
):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    for directory in (whole, parts):
        directory.mkdir()
    assert fixtures.run(*options(whole, preset, **settings)) == 0
    calls = []
    score = Evaluator.evaluate

    def evaluate(self, must_stop=None):
        calls.append(must_stop)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return score(self, must_stop)

    arguments = options(parts, preset, **settings)
    with monkeypatch.context() as patch:
        patch.setattr(Evaluator, "evaluate", evaluate)
        assert fixtures.run(*arguments) == 143
    assert not (parts / "run" / "results.json").exists()
    assert [
        (m["kind"], m["step"])
        for m in read_json_lines(parts / "run" / "metrics.jsonl")
    ] == [("train", 2), ("eval", 2), ("train", 4)]
    assert fixtures.run(*arguments, "--time-limit", "30.001") == 143
    assert fixtures.run(*arguments) == 0
    models = [
        keras.models.load_model(x / "run" / "model.keras")
        for x in (whole, parts)
    ]
    assert_equal(models[0].weights, models[1].weights)
    evaluations = [
        [
            (m["step"], m["accuracy"])
            for m in read_json_lines(x / "run" / "metrics.jsonl")
            if m["kind"] == "eval"
        ]
        for x in (whole, parts)
    ]
    assert evaluations[0] == evaluations[1]
    assert [step for step, _ in evaluations[0]] == [2, 4, 6]
    held_out = [
        (x / "run" / "held_out_predictions.jsonl").read_text()
        for x in (whole, parts)
    ]
    assert held_out[0] == held_out[1]


def test_what_adapters_leave(tmp_path, preset, capsys):
    """A preset as any other, adapters alone, and a model that has them."""
    arguments = options(tmp_path, preset, lora_rank=2, lora_alpha=4.0)
    assert fixtures.run(*arguments) == 0
    output = tmp_path / "run"
    best = xlnet_tf.XLNetTextClassifier.from_preset(output / "best")
    base = xlnet_tf.XLNetTextClassifier.from_preset(preset, num_classes=2)
    base.load_lora_weights(output / "best" / "adapters.lora.h5")
    model = keras.models.load_model(output / "model.keras")
    assert not lora_layers(best)
    assert lora_groups(base) == lora_groups(model) != []
    assert lora_groups(model)[0]["alpha"] == 4
    dev = tmp_path / "data" / "dev.tsv"
    rows = dev.read_text("utf-8").splitlines()[1:]
    texts = [row.split("\t")[0] for row in rows]
    base.preprocessor = best.preprocessor
    expected = best.predict(texts, verbose=0)
    for other in (base, model):
        found = other.predict(texts, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    start = xlnet_tf.XLNetBackbone.from_preset(preset)
    np.testing.assert_array_equal(
        start.token_embedding.embeddings,
        best.backbone.token_embedding.embeddings,
    )
    moved = best.backbone.block_0.intermediate.kernel
    assert np.abs(moved - start.block_0.intermediate.kernel).max() > 1e-5
    trained = sum(np.prod(v.shape) for v in model.trainable_variables)
    results = json.loads((output / "results.json").read_text())
    assert results["trained_parameters"] == trained < model.count_params() / 2
    line = f"7 layers of rank 2, alpha 4: {trained:,} parameters are trained"
    assert line in capsys.readouterr().out
    # A finished run has its best adapters again.
    assert fixtures.run(*arguments, "--predict", dev) == 0
    predicted = read_json_lines(output / "predictions.jsonl")
    held_out = read_json_lines(output / "held_out_predictions.jsonl")
    assert [x["label"] for x in predicted] == [x["label"] for x in held_out]
    for a, b in zip(predicted, held_out, strict=True):
        assert a["probabilities"] == pytest.approx(b["probabilities"])


@pytest.mark.parametrize("during", ["Task.save_to_preset", "write_all"])
def test_a_kill_changes_nothing(tmp_path, preset, monkeypatch, during):
    """While the best weights are written, or once patience is over."""

    def killed(*arguments):
        raise RuntimeError("killed")

    arguments = options(tmp_path, preset, patience=1, learning_rate=1e-12)
    with monkeypatch.context() as patch:
        patch.setattr(f"{MODULES[during]}.{during}", killed)
        assert fixtures.run(*arguments) == 1
    output = tmp_path / "run"
    assert not (output / "results.json").exists()
    assert fixtures.run(*arguments) == 0
    # No step is any better; the second evaluation ends the run.
    assert [
        (m["kind"], m["step"])
        for m in read_json_lines(output / "metrics.jsonl")
    ] == [("train", 2), ("eval", 2), ("train", 4), ("eval", 4)]
    assert (output / "best" / "config.json").is_file()
    assert json.loads((output / "best.json").read_text())["step"] == 2


def test_a_model_that_reads_segments_can_learn_without(tmp_path, preset):
    model = xlnet_tf.XLNetTextClassifier.from_preset(
        preset, num_classes=2, segment_length=8, memory_length=8
    )
    segments = tmp_path / "segments"
    model.save_to_preset(segments)
    arguments = options(tmp_path, segments, steps=2, evaluation_interval=2)
    assert fixtures.run(*arguments) == 0
    model = xlnet_tf.XLNetTextClassifier.from_preset(tmp_path / "run/best")
    assert model.segment_length is None


def test_targets_on_replicas_are_those_of_one_device():
    """Beam search in each replica, gathered; quicker tests have one device."""
    found = []
    for strategy in (None, two_replicas()):
        strategy, config, model = setup("seq2seq", strategy)
        examples = make_examples("seq2seq")
        rows = encoded("seq2seq", examples, False, config)
        # One length of rows is one program of each replica.
        batches = Batches(rows, config.batch_size, [config.sequence_length])
        evaluator = Evaluator(
            *(around("seq2seq", model), find_task("seq2seq"), None),
            *({"dev": (examples, rows, batches)}, config, TensorFlow(strategy)),
        )
        found.append(evaluator.decoded("dev"))
    for one, other in zip(*found, strict=True):
        assert one["text"] == other["text"]
        assert one["log_probability"] == pytest.approx(
            other["log_probability"], abs=1e-4
        )


def test_first_words_are_learnt(tmp_path):
    """From parallel files to an export: training, evaluation, prediction.

    Quicker tests hold each part; none has a run learn and export what it
    generates.
    """
    preset = fixtures.write_preset(tmp_path / "preset", initializer_range=0.1)
    data = fixtures.write_task(tmp_path / "data", "seq2seq")
    columns, train = "source=en,target=de", data / "train.en"
    arguments = ["--task", "seq2seq", "--data", data, "--preset", preset]
    arguments += ["--columns", columns, "--eval-data", train]
    arguments += ["--output", tmp_path / "run", "--target-corruption", 0]
    arguments += ["--label-smoothing", 0, "--target-length", 8]
    arguments += [
        *("--training", fixtures.write_training(tmp_path)),
        *("--steps", 400, "--batch-size", 20, "--learning-rate", 1e-2),
        *("--evaluation-interval", 400, "--steps-per-loop", 50),
        *("--dropout", 0, "--attention-dropout", 0),
    ]
    assert fixtures.run(*arguments) == 0
    results = json.loads((tmp_path / "run" / "results.json").read_text())
    assert results["metric"] == "bleu" and results["metrics"]["rouge1"] > 0.6
    sources = tmp_path / "sources.en"
    words = train.read_text("utf-8").splitlines()[:5]
    sources.write_text("\n".join(words) + "\n", encoding="utf-8")
    assert fixtures.run(*arguments, "--predict", sources) == 0
    predicted = [
        x["text"]
        for x in read_json_lines(tmp_path / "run" / "predictions.jsonl")
    ]
    model = xlnet_tf.load(tmp_path / "run")
    assert model.generate(words) == predicted
    file = tmp_path / "generated.jsonl"
    command = ["--model", tmp_path / "run", "--input", sources]
    command += ["--output", file]
    assert command_line.run(generate.main, [str(x) for x in command]) == 0
    assert [x["texts"][0]["text"] for x in read_json_lines(file)] == predicted
    folder = export_model(
        model, model.preprocessor.tokenizer, tmp_path / "export" / "1"
    )
    answer = tf.saved_model.load(str(folder)).signatures["serving_default"](
        text=tf.constant(words)
    )
    found = [x[0].decode() for x in answer["generated"].numpy()]
    assert found == predicted
