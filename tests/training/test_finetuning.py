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
from xlnet_tf.training import finetuning_steps as finetuning
from xlnet_tf.training.finetuning_config import FinetuningConfig
from xlnet_tf.training.finetuning_config import recipe
from xlnet_tf.training.finetuning_kinds import make_kind

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


def make_model(kind):
    config = xlnet_tf.XLNetConfig(
        vocabulary_size=300,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        dropout=0.0,
        attention_dropout=0.0,
        initializer_range=0.2,
    )
    return kind.model_class(
        xlnet_tf.XLNetBackbone(config, seed=5),
        dropout=0.0,
        **kind.model_arguments(),
    )


def setup(name="classification", strategy=None, **settings):
    tf.keras.utils.set_random_seed(7)
    strategy = strategy or tf.distribute.OneDeviceStrategy("CPU:0")
    config = make_config(**settings)
    tokenizer = Tokenizer.from_model_proto(tiny_model())
    kind = make_kind(find_task(name), config, LABELS, tokenizer)
    with strategy.scope():
        model = make_model(kind)
    return strategy, config, kind, model


def train(name="classification", strategy=None, **settings):
    """Weights after the steps, and the loss of the last loop."""
    strategy, config, kind, model = setup(name, strategy, **settings)
    rows = kind.encode(make_examples(name), True)
    batches = Batches(rows, config.batch_size, kind.lengths(), seed=3)
    with strategy.scope():
        optimizer = finetuning.make_optimizer(model, config)
        step = orbit.utils.create_global_step()
    trainer = finetuning.FinetuningTrainer(
        model,
        kind,
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
        strategy, config, kind, model = setup(name, batch_size=batch_size)
        rows = kind.encode(examples, False)
        batches = Batches(rows, batch_size, kind.lengths())
        dataset = finetuning.distribute(batches, config, strategy)
        evaluator = finetuning.FinetuningEvaluator(
            model, kind, {"dev": (examples, rows, dataset)}, strategy
        )
        _, outputs = evaluator.collect("dev")
        found.append((evaluator.evaluate(), outputs))
    assert found[0][0] == found[1][0]
    for key, value in found[0][1].items():
        np.testing.assert_allclose(value, found[1][1][key], atol=1e-5)


def test_windows_of_a_text_are_averaged():
    strategy, config, kind, model = setup(
        sequence_length=9, long_documents="windows", stride=3
    )
    examples = make_examples("classification")
    rows = kind.encode(examples, False)
    assert len(rows) > len(examples)
    logits = np.random.default_rng(0).normal(size=(len(rows), 3))
    scores = kind.scores(examples, rows, {"logits": logits})
    for index in range(len(examples)):
        mine = logits[rows.dense["example"] == index]
        np.testing.assert_allclose(scores[index], mine.mean(axis=0))


def test_balanced_classes_weigh_equally():
    _, _, kind, _ = setup(class_weights="balanced")
    examples = make_examples("classification")[:7]  # 3, 2 and 2 of them
    rows = kind.encode(examples, True)
    totals = np.bincount(rows.dense["label"], rows.dense["row_weight"])
    np.testing.assert_allclose(totals, totals[0], rtol=1e-6)
    rows = kind.encode(examples, False)
    np.testing.assert_array_equal(rows.dense["row_weight"], 1)


def test_balanced_classes_weigh_equally_in_windows():
    _, _, kind, _ = setup(
        class_weights="balanced",
        long_documents="windows",
        sequence_length=8,
        stride=4,
    )
    examples = make_examples("classification")[:7]
    examples[0] = examples[0]._replace(text=" ".join([examples[0].text] * 9))
    rows = kind.encode(examples, True)
    assert len(rows) > 2 * len(examples)
    totals = np.bincount(rows.dense["label"], rows.dense["row_weight"])
    np.testing.assert_allclose(totals, totals[0], rtol=1e-6)


def test_lengths_of_texts_read_in_segments():
    config = make_config(
        sequence_length=16, long_documents="memory", document_length=100
    )
    kind = make_kind(find_task("classification"), config, LABELS, None)
    assert kind.lengths() == (16, 32, 48, 64, 96, 112)
    assert kind.model_arguments()["segment_length"] == 16


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("ner", {}, {"sequence_length": 24}),
        ("race", {}, {"sequence_length": 24}),
        ("classification", {}, {"sequence_length": 24}),
        (
            "classification",
            {"long_documents": "memory", "document_length": 100},
            {"sequence_length": 100},
        ),
        (
            "squad-2.0",
            {"stride": 5, "max_question_length": 9},
            {"sequence_length": 24, "stride": 5, "max_question_length": 9},
        ),
        (
            # No longer question leaves room for a context.
            "squad-1.1",
            {},
            {"sequence_length": 24, "stride": 128, "max_question_length": 20},
        ),
    ],
)
def test_strings_are_preprocessed_as_examples(name, settings, expected):
    tokenizer = Tokenizer.from_model_proto(tiny_model())
    kind = make_kind(find_task(name), make_config(**settings), LABELS, None)
    assert kind.preprocessor_settings() == expected
    preprocessor = kind.model_class.preprocessor_cls(tokenizer)
    preprocessor = preprocessor.with_settings(**expected)
    assert preprocessor.settings().items() >= expected.items()
    assert preprocessor.tokenizer is tokenizer


@pytest.mark.parametrize("length", [12, 24])
def test_what_is_not_read_is_said(length):
    _, _, kind, _ = setup(sequence_length=length)
    examples = [
        x._replace(text=x.text[:5] if index % 3 else x.text)
        for index, x in enumerate(make_examples("classification"))
    ]
    tokens = [len(kind.tokenizer.encode(x.text)) + 2 for x in examples]
    full = sum(x >= length for x in tokens)
    kind.encode(examples, False)
    assert kind.notes() == []
    kind.encode(examples, True)
    assert 0 < full < len(examples)
    assert f"cut       {full} of {len(examples)} texts" in kind.notes()[0]


def test_words_that_are_not_read_are_counted():
    _, _, kind, _ = setup("ner", sequence_length=12)
    examples = make_examples("ner")
    rows = kind.encode(examples, True)
    words = sum(len(x.words) for x in examples)
    lost = words - rows.dense["words"].sum()
    assert lost > 0
    assert f"cut       {lost} of {words} words" in kind.notes()[0]
    _, _, kind, _ = setup("ner", sequence_length=200)
    kind.encode(examples, True)
    assert kind.notes() == []


@pytest.mark.parametrize("name", ["ner", "race", "squad-2.0", "ranking"])
def test_long_documents_are_texts_with_a_class_or_number(name):
    config = make_config(long_documents="windows")
    with pytest.raises(ValueError, match=f"'windows' for the task {name}"):
        make_kind(find_task(name), config, LABELS, None)


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
