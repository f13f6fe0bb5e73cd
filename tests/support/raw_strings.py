"""Ten texts of two classes, and small tasks with raw strings as inputs."""

import keras

import xlnet_tf
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.training_fixtures import tiny_config
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor

LENGTH = 11
TEXTS = [f"{first} {last}" for first in ("ba", "co") for last in "bcdfg"]
LABELS = [0] * 5 + [1] * 5


def backbone():
    return xlnet_tf.XLNetBackbone(
        tiny_config(vocabulary_size=PIECES, num_layers=1, memory_length=0)
    )


def preprocessor(cls=XLNetTextClassifierPreprocessor, **settings):
    return cls(tiny_tokenizer(), sequence_length=LENGTH, **settings)


def classifier(**arguments):
    arguments = {"preprocessor": preprocessor(), **arguments}
    task = xlnet_tf.XLNetTextClassifier(backbone(), num_classes=2, **arguments)
    return randomize(task)


def quick(task):
    """Compile the task with eager steps, because tracing takes longer."""
    task.compile(
        keras.optimizers.Adam(5e-3), jit_compile=False, run_eagerly=True
    )
    return task


def tagger(**settings):
    """A tagger of three classes, compiled as `quick` does."""
    return quick(
        xlnet_tf.XLNetTokenClassifier(
            backbone(),
            3,
            preprocessor=preprocessor(XLNetTokenClassifierPreprocessor),
            dropout=0.0,
            **settings,
        )
    )


def expected_logits(task, texts):
    features = task.preprocessor(texts)
    return as_numpy(task(features))
