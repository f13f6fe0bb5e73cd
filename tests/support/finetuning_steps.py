"""A model, examples and their rows for single steps of fine-tuning."""

import functools

import tensorflow as tf

import xlnet_tf
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf.tasks import task_kind
from xlnet_tf.training.settings import FinetuningSettings

LABELS = ("O", "B-x", "I-x")


def make_config(**settings):
    return FinetuningSettings(
        **{
            "steps": 4,
            "batch_size": 4,
            "learning_rate": 1e-2,
            "sequence_length": 24,
            "warmup_steps": 1,
            "target_length": 4,
            "num_beams": 1,
            # Each replica would draw its own.
            "target_corruption": 0.0,
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
    if name == "seq2seq":
        return [
            PairExample(str(i), text, text.split()[0])
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
    kind = task_kind(spec.kind)
    task = kind.model_class
    return task(
        xlnet_tf.XLNetBackbone(size, seed=5),
        **({"dropout": 0.0} if task.head_has_dropout else {}),
        preprocessor=task.preprocessor_cls(
            tokenizer(), **kind.preprocessor_settings(spec, config)
        ),
        **kind.arguments_for(spec, config, LABELS),
    )


def around(name, model):
    """TaskKind of a task, with this model."""
    return task_kind(find_task(name).kind)(model)


@functools.cache
def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


def encoded(name, examples, training, config):
    spec = find_task(name)
    kind = task_kind(spec.kind)
    preprocessor = kind.model_class.preprocessor_cls(
        tokenizer(), **kind.preprocessor_settings(spec, config)
    )
    return preprocessor.encode(
        examples,
        LABELS,
        training=training,
        **kind.encoding_arguments(spec, config),
    )


def setup(name="classification", strategy=None, **settings):
    tf.keras.utils.set_random_seed(7)
    strategy = strategy or tf.distribute.OneDeviceStrategy("CPU:0")
    config = make_config(**settings)
    with strategy.scope():
        model = make_model(name, config)
    return strategy, config, model
