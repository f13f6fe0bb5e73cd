"""Every task trains on raw strings; replicas too."""

import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import randomize
from tests.support.raw_strings import LABELS
from tests.support.raw_strings import LENGTH
from tests.support.raw_strings import TEXTS
from tests.support.raw_strings import backbone
from tests.support.raw_strings import classifier
from tests.support.raw_strings import expected_logits
from tests.support.raw_strings import preprocessor
from tests.support.raw_strings import quick
from tests.support.replicas import two_replicas
from tests.support.samples import tiny_sentences
from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor


def test_data_sets_and_weights():
    task = quick(classifier(dropout=0.0))
    data = tf.data.Dataset.from_tensor_slices(
        ({"text": TEXTS, "text_pair": TEXTS}, LABELS, [1.0] * 5 + [0.0] * 5)
    ).batch(4)
    task.fit(data, epochs=5, validation_data=data, verbose=0)
    logits = expected_logits(task, (TEXTS, TEXTS))
    assert (logits.argmax(-1) == 0).all()  # the only class that had a weight


def test_a_regressor_learns_and_weighs():
    task = quick(
        randomize(
            xlnet_tf.XLNetTextRegressor(
                backbone(), dropout=0.0, preprocessor=preprocessor()
            )
        )
    )
    y = np.array(LABELS, "float32")
    history = task.fit(TEXTS, y, epochs=15, verbose=0, batch_size=5).history
    assert history["loss"][-1] < 0.05
    weights = np.array([1] * 9 + [0], "float32")
    found = task.test_on_batch(TEXTS, y + 1, weights, return_dict=True)
    errors = np.square(expected_logits(task, TEXTS) - y - 1)[:9]
    np.testing.assert_allclose(found["loss"], errors.mean(), rtol=1e-4)
    rmse = found["root_mean_squared_error"]
    np.testing.assert_allclose(rmse, np.sqrt(errors.mean()), rtol=1e-4)


def test_choices_and_tokens_and_queries_are_fitted():
    """One step of each, from strings to logits of the documented shapes."""
    choice = {
        "context": TEXTS[:4],
        "question": TEXTS[4:8],
        "options": [["ba", "co", "de"]] * 4,
    }
    words = [["ba"], ["co", "de"], [], ["1,", "x"]]
    queries = {
        "query": TEXTS[:4],
        "documents": [["ba"], ["co", "de"], [], ["fi", "gu"]],
    }
    for cls, of_strings, arguments, x, y, shape in (
        (
            xlnet_tf.XLNetMultipleChoice,
            XLNetMultipleChoicePreprocessor,
            {},
            choice,
            [0, 1, 2, 0],
            (4, 3),
        ),
        (
            xlnet_tf.XLNetTokenClassifier,
            XLNetTokenClassifierPreprocessor,
            {"num_classes": 5},
            words,
            [[1], [2, 3], [], [4, 0]],
            (4, LENGTH, 5),
        ),
        (
            xlnet_tf.XLNetRanker,
            XLNetRankerPreprocessor,
            {},
            queries,
            [[1], [0, 1], [], [3, 0]],
            (4, 2),
        ),
    ):
        of_strings = preprocessor(of_strings)
        task = quick(cls(backbone(), preprocessor=of_strings, **arguments))
        history = task.fit(x, y, batch_size=4, verbose=0).history
        assert np.isfinite(history["loss"]).all()
        assert len(history) == 2
        assert task.predict(x, verbose=0).shape == shape


def test_two_replicas_take_strings():
    with two_replicas().scope():
        task = classifier(dropout=0.0)
    history = task.fit(TEXTS, LABELS, batch_size=5, verbose=0).history
    assert np.isfinite(history["loss"]).all()
    found = task.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)
    logits = expected_logits(task, TEXTS)
    assert found["accuracy"] == pytest.approx(
        np.mean(logits.argmax(-1) == LABELS)
    )


def test_questions_are_fitted():
    contexts = list(tiny_sentences(11))
    x = {"question": ["ba co?"] * 11, "context": contexts}
    y = {
        "answer_start": [2] * 11,
        "answer_text": [context[2:11] for context in contexts],
    }
    model = quick(
        xlnet_tf.XLNetQuestionAnswering(
            backbone(),
            preprocessor=XLNetQuestionAnsweringPreprocessor(
                tiny_tokenizer(), 31, stride=7, max_question_length=5
            ),
        )
    )
    history = model.fit(x, y, batch_size=11, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert np.isfinite(model.evaluate(x, y, batch_size=11, verbose=0))
