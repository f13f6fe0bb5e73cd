"""Metrics by name on two replicas: those of one device, for every task."""

import contextlib

import keras
import numpy as np
import pytest

import xlnet_tf
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import randomize
from tests.support.raw_strings import LABELS
from tests.support.raw_strings import TEXTS
from tests.support.raw_strings import backbone
from tests.support.raw_strings import preprocessor
from tests.support.replicas import two_replicas
from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor
from xlnet_tf.preprocessing.seq2seq import XLNetSeq2SeqPreprocessor
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor

ACCURACY = {"metrics": ["accuracy"], "weighted_metrics": ["accuracy"]}
SPANS = {"start_logits": np.arange(8) % 7, "end_logits": np.arange(8) % 5}
IDS = np.random.default_rng(0).integers(9, 30, (8, 7)).astype("int32")
CHOICES = {
    "context": TEXTS[:4],
    "question": TEXTS[4:8],
    "options": [["ba", "co", "de"]] * 4,
}
QUERIES = {"query": TEXTS[:4], "documents": [["ba", "x"], ["co", "de"]] * 2}
QUESTIONS = {"question": ["ba co?"] * 8, "context": TEXTS[:8]}
ANSWERS = {"answer_start": [0] * 8, "answer_text": [x[:2] for x in TEXTS[:8]]}


def _cases():
    """Yields class, its arguments, preprocessor, x, y, and what to compile."""
    yield (
        xlnet_tf.XLNetTextClassifier,
        {"num_classes": 2, "dropout": 0.0},
        preprocessor(),
        TEXTS,
        LABELS,
        ACCURACY,
    )
    yield (
        xlnet_tf.XLNetTextRegressor,
        {"dropout": 0.0},
        preprocessor(),
        TEXTS,
        np.arange(10.0),
        {"metrics": ["mae"], "weighted_metrics": ["mse"]},
    )
    yield (
        xlnet_tf.XLNetMultiLabelClassifier,
        {"num_classes": 3, "dropout": 0.0},
        preprocessor(),
        TEXTS,
        np.eye(10, 3),
        {"metrics": ["accuracy"], "weighted_metrics": ["mae"]},
    )
    yield (
        xlnet_tf.XLNetTokenClassifier,
        {"num_classes": 5, "dropout": 0.0},
        preprocessor(XLNetTokenClassifierPreprocessor),
        [["ba"], ["co", "de"], ["fi"], ["1,", "x"]],
        [[1], [2, 3], [4], [4, 0]],
        ACCURACY,
    )
    yield (
        xlnet_tf.XLNetMultipleChoice,
        {"dropout": 0.0},
        preprocessor(XLNetMultipleChoicePreprocessor),
        CHOICES,
        [0, 1, 2, 0],
        ACCURACY,
    )
    yield (
        xlnet_tf.XLNetRanker,
        {"dropout": 0.0},
        preprocessor(XLNetRankerPreprocessor),
        QUERIES,
        [[1, 0], [0, 1], [1, 1], [3, 0]],
        {"metrics": ["mae"]},
    )
    yield (
        xlnet_tf.XLNetSpanClassifier,
        {},
        None,
        {"token_ids": IDS},
        SPANS,
        {
            "loss": keras.losses.SparseCategoricalCrossentropy(True),
            "metrics": dict.fromkeys(SPANS, "accuracy"),
        },
    )
    yield (
        xlnet_tf.XLNetSeq2Seq,
        {"target_corruption": 0.0},
        XLNetSeq2SeqPreprocessor(tiny_tokenizer(), 19, target_length=5),
        TEXTS,
        TEXTS,
        ACCURACY,
    )
    # These have a loss of their own, and take no list of metrics.
    yield (
        xlnet_tf.XLNetQuestionAnswering,
        {"dropout": 0.0},
        XLNetQuestionAnsweringPreprocessor(
            tiny_tokenizer(), 31, stride=7, max_question_length=5
        ),
        QUESTIONS,
        ANSWERS,
        {},
    )
    yield (
        xlnet_tf.XLNetPretrainer,
        {},
        None,
        {
            "token_ids": IDS,
            "target_positions": IDS[:, :3] % 7,
            "target_ids": IDS[:, :3],
        },
        None,
        {},
    )


def test_every_task_takes_the_names_of_metrics():
    for cls, arguments, of_strings, x, y, compiled in _cases():

        def make(scope, cls=cls, arguments=arguments, **settings):
            with scope:
                task = randomize(cls(backbone(), **arguments))
                task.compile(keras.optimizers.SGD(0.0), **settings)
            return task

        one = make(contextlib.nullcontext(), **compiled, run_eagerly=True)
        two = make(two_replicas().scope(), **compiled, jit_compile=False)
        one.preprocessor = two.preprocessor = of_strings
        how = {"batch_size": 10, "verbose": 0}
        expected = one.evaluate(x, y, **how, return_dict=True)
        found = two.fit(x, y, shuffle=False, **how).history
        assert len(found) > 1 or not compiled, cls
        assert set(found) == set(expected), cls
        for name, values in found.items():
            message = f"{cls.__name__} {name}"
            assert values[0] == pytest.approx(expected[name], 1e-4), message


def test_a_functional_model_takes_the_names_of_metrics():
    histories = []
    for scope in (contextlib.nullcontext(), two_replicas().scope()):
        with scope:
            inner = randomize(backbone())
            inner.mask_embedding.trainable = False
            vector = inner.output["content"][:, -1]
            logits = keras.layers.Dense(2, kernel_initializer="ones")(vector)
            model = keras.Model(inner.input, logits)
            model.compile(
                keras.optimizers.SGD(0.1),
                keras.losses.SparseCategoricalCrossentropy(from_logits=True),
                **ACCURACY,
                jit_compile=False,
            )
        features = {"token_ids": IDS, "segment_ids": 0 * IDS}
        features["padding_mask"] = np.ones_like(IDS)
        how = {"batch_size": 8, "shuffle": False, "epochs": 2, "verbose": 0}
        fitted = model.fit(features, np.arange(8) % 2, **how)
        histories.append(fitted.history)
    one, two = histories
    assert len(one) == 3 and set(one) == set(two)
    for name, values in one.items():
        assert two[name] == pytest.approx(values, 1e-4), name


def test_no_batch_of_a_generator_is_lost_to_learn_its_shape():
    with two_replicas().scope():
        task = xlnet_tf.XLNetTextClassifier(
            backbone(), 2, preprocessor=preprocessor()
        )
        task.compile("adam", metrics=["accuracy"], jit_compile=False)
    batches = ((TEXTS[i::4], np.array(LABELS[i::4])) for i in range(4))
    # Keras would warn that the input ran out.
    task.fit(batches, steps_per_epoch=4, verbose=0)
    found = task.test_on_batch(TEXTS, LABELS, return_dict=True)
    assert set(found) == {"loss", "accuracy"}
