"""Steps and evaluations of fine-tuning, on one device and on two replicas."""

import numpy as np
import orbit
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.features.batches import Batches
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.replicas import two_replicas
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf.tasks import task_class
from xlnet_tf.training import finetuning_steps as finetuning
from xlnet_tf.training.finetuning_config import FinetuningConfig
from xlnet_tf.training.finetuning_config import recipe

LABELS = ("O", "B-x", "I-x")


def make_config(**settings):
    return FinetuningConfig(
        **{
            "steps": 4,
            "batch_size": 4,
            "learning_rate": 1e-2,
            "sequence_length": 24,
            "warmup_steps": 1,
            **settings,
        }
    ).resolve(10)


def make_examples(name):
    texts = list(tiny_sentences(23))
    if name == "ner":
        return [
            TokensExample(
                str(i),
                tuple(text.split()),
                tuple(LABELS[len(word) % 3] for word in text.split()),
            )
            for i, text in enumerate(texts)
        ]
    return [
        TextExample(str(i), text, None, LABELS[i % 3])
        for i, text in enumerate(texts)
    ]


def make_model(name, config):
    size = xlnet_tf.XLNetConfig(
        vocabulary_size=300,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.2,
    )
    spec = find_task(name)
    task = task_class(spec.kind)
    return task(
        xlnet_tf.XLNetBackbone(size, seed=5),
        dropout=0.0,
        preprocessor=task.preprocessor_cls(
            tokenizer(), **task.preprocessor_settings(spec, config)
        ),
        **task.arguments_for(spec, config, LABELS),
    )


def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


def encoded(name, examples, training, config):
    spec = find_task(name)
    task = task_class(spec.kind)
    preprocessor = task.preprocessor_cls(
        tokenizer(), **task.preprocessor_settings(spec, config)
    )
    arguments = task.encoding_arguments(spec, config)
    return preprocessor.encode(examples, LABELS, training, **arguments)


def setup(name="classification", strategy=None, **settings):
    tf.keras.utils.set_random_seed(7)
    strategy = strategy or tf.distribute.OneDeviceStrategy("CPU:0")
    config = make_config(**settings)
    with strategy.scope():
        model = make_model(name, config)
    return strategy, config, model


def train(name="classification", strategy=None, **settings):
    """Weights after the steps, and the loss of the last loop."""
    strategy, config, model = setup(name, strategy, **settings)
    rows = encoded(name, make_examples(name), True, config)
    lengths = finetuning.padded_lengths(config.sequence_length)
    batches = Batches(rows, config.batch_size, lengths, seed=3)
    with strategy.scope():
        optimizer = finetuning.make_optimizer(model, config)
        step = orbit.utils.create_global_step()
    trainer = finetuning.FinetuningTrainer(
        model,
        model,
        optimizer,
        finetuning.distribute(batches, config, strategy, start_step=0),
        config,
        strategy,
        step,
    )
    output = trainer.train(tf.constant(config.steps))
    return [np.array(v) for v in model.trainable_variables], output["loss"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["classification", "ner"])
def test_replicas_and_parts_equal_one_batch(name):
    whole, loss = train(name)
    for other in (
        train(name, two_replicas()),
        train(name, gradient_accumulation_steps=2),
        train(name, jit_compile=True),
    ):
        assert other[1] == pytest.approx(loss, rel=1e-5)
        for a, b in zip(whole, other[0], strict=True):
            np.testing.assert_allclose(a, b, atol=1e-5)


@pytest.mark.parametrize("name", ["classification", "ner"])
def test_a_padded_last_batch_changes_no_metric(name):
    examples = make_examples(name)
    found = []
    for batch_size in (4, 23):
        strategy, config, model = setup(name, batch_size=batch_size)
        rows = encoded(name, examples, False, config)
        lengths = finetuning.padded_lengths(config.sequence_length)
        batches = Batches(rows, batch_size, lengths)
        dataset = finetuning.distribute(batches, config, strategy)
        splits = {"dev": (examples, rows, dataset)}
        evaluator = finetuning.FinetuningEvaluator(
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
    finetuning.balance_classes(rows, 4)  # of which one does not occur
    weights, labels = rows.dense["row_weight"], rows.dense["label"]
    expected = np.where(labels == 0, 7 / 9, 7 / 6)
    np.testing.assert_allclose(weights, expected, rtol=1e-6)
    config = make_config(long_documents="windows", sequence_length=8, stride=4)
    examples[0] = examples[0]._replace(text=" ".join([examples[0].text] * 9))
    rows = encoded("classification", examples, True, config)
    assert len(rows) > 2 * len(examples)
    finetuning.balance_classes(rows, 3)
    totals = np.bincount(rows.dense["label"], rows.dense["row_weight"])
    np.testing.assert_allclose(totals, 7 / 3, rtol=1e-6)


def test_lengths_of_texts_read_in_segments():
    lengths = finetuning.padded_lengths(100, 16)
    assert lengths == (16, 32, 48, 64, 96, 112)
    assert finetuning.padded_lengths(40) == (16, 24, 32, 40)


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
        task = task_class(spec.kind)
        found = task.preprocessor_settings(spec, config)
        stride, longest = expected
        assert found == {
            "sequence_length": 24,
            "stride": stride,
            "max_question_length": longest,
        }


def test_every_recipe_is_a_config():
    from data_pipeline.tasks.catalog import TASKS

    for name in TASKS:
        config = FinetuningConfig(**recipe(name)).resolve(100)
        assert config.warmup_steps < config.steps
        assert config.evaluation_interval <= config.steps
    assert FinetuningConfig(**recipe("squad-2.0")).layer_decay == 0.75


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"layer_decay": 0.0}, r"`layer_decay` must be in \(0, 1\]"),
        ({"long_documents": "all"}, "`long_documents` must be one of"),
        ({"epochs": 0.0}, "`epochs` must be a positive number"),
        ({"patience": 0}, "`patience` must be a positive integer"),
        ({"steps": 0}, "`steps` must be a positive integer"),
        ({"class_weights": "some"}, "`class_weights` must be one of"),
        ({"hold_out": 1.0}, r"`hold_out` must be in \(0, 1\)"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=message):
        FinetuningConfig(**settings)
