"""Raw questions in front of the task: features, training, answers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.features.question_answering import make_windows
from data_pipeline.features.span_merging import merge_windows
from data_pipeline.tasks.examples import QuestionExample
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import randomize
from tests.support.samples import tiny_sentences
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor

SETTINGS = {"sequence_length": 31, "stride": 7, "max_question_length": 5}
CONTEXTS = [
    text if row % 3 else text[: len(text) // 3]
    for row, text in enumerate(tiny_sentences(11))
]
QUESTIONS = [" ".join(text.split()[:3]) + "?" for text in tiny_sentences(11)]
STARTS = [-1 if row % 4 == 3 else 2 + row for row in range(11)]
ANSWERS = [
    "" if start < 0 else context[start : start + 9]
    for start, context in zip(STARTS, CONTEXTS, strict=True)
]
X = {"question": QUESTIONS, "context": CONTEXTS}
Y = {"answer_start": STARTS, "answer_text": ANSWERS}


def make(**settings):
    return XLNetQuestionAnsweringPreprocessor(
        tiny_tokenizer(), **{**SETTINGS, **settings}
    )


@pytest.fixture(scope="module")
def preprocessor():
    return make()


@pytest.fixture(scope="module")
def task(preprocessor):
    config = tiny_config(vocabulary_size=300, num_layers=1)
    return randomize(
        XLNetQuestionAnswering(XLNetBackbone(config), preprocessor=preprocessor)
    )


def examples():
    return [
        QuestionExample(str(row), context, question)
        for row, (question, context) in enumerate(
            zip(QUESTIONS, CONTEXTS, strict=True)
        )
    ]


def windows():
    return make_windows(
        examples(), tiny_tokenizer(), *SETTINGS.values(), training=False
    )


def equal(one, other):
    keras.tree.map_structure(np.testing.assert_array_equal, one, other)


def test_all_windows_to_predict(preprocessor):
    expected = windows()
    found = preprocessor(X)
    assert set(found) == {
        "token_ids",
        "segment_ids",
        "padding_mask",
        "answer_mask",
        "class_index",
    }
    assert len(expected) > len(CONTEXTS)
    np.testing.assert_array_equal(found["class_index"], expected.class_index)
    is_real = found["padding_mask"].numpy() > 0
    for name in ("token_ids", "segment_ids", "answer_mask"):
        values = found[name].numpy()
        assert values.shape == (len(expected), 31)
        np.testing.assert_array_equal(values[is_real], getattr(expected, name))


def test_one_question(preprocessor):
    one = {"question": QUESTIONS[1], "context": CONTEXTS[1]}
    row = {name: [value] for name, value in one.items()}
    assert preprocessor(row)["token_ids"].shape[0] > 1
    equal(preprocessor(one), preprocessor(row))
    y = {"answer_start": STARTS[1], "answer_text": ANSWERS[1]}
    batch = preprocessor(row, {name: [value] for name, value in y.items()})
    equal(
        preprocessor(one, y),
        keras.tree.map_structure(lambda part: part[0], batch),
    )


def test_labels_are_the_answers(preprocessor):
    features, labels, weights = preprocessor(X, Y)
    assert set(labels) == {
        "start_positions",
        "end_positions",
        "is_impossible",
    }
    np.testing.assert_array_equal(weights, np.ones(11))
    np.testing.assert_array_equal(
        labels["is_impossible"], [float(start < 0) for start in STARTS]
    )
    for row, answer in enumerate(ANSWERS):
        start = int(labels["start_positions"][row])
        end = int(labels["end_positions"][row])
        assert start == features["start_positions"][row]
        if not answer:
            assert start == end == features["class_index"][row]
            continue
        ids = features["token_ids"][row, start : end + 1].numpy()
        # The label is the pieces around the answer.
        assert answer.strip() in tiny_tokenizer().decode(ids)


def test_answers_that_are_not_there_have_no_weight(preprocessor):
    y = {**Y, "answer_text": ["nowhere", *ANSWERS[1:]]}
    _, labels, weights = preprocessor(X, y, np.arange(11) + 2.0)
    expected = np.arange(11) + 2.0
    expected[0] = 0
    np.testing.assert_array_equal(weights, expected)
    assert labels["is_impossible"][0] == 1


def test_in_data_sets(preprocessor):
    data = tf.data.Dataset.from_tensor_slices((X, Y)).batch(11)
    equal(next(iter(data.map(preprocessor))), preprocessor(X, Y))
    data = tf.data.Dataset.from_tensor_slices(X).batch(11)
    equal(next(iter(data.map(preprocessor))), preprocessor(X))


def test_as_wide_as_the_longest():
    # 40 letters are fewer pieces than that.
    narrow = make(pad_to_longest=True, sequence_length=200)(X)
    wide = make(sequence_length=200)(X)
    width = int(max(wide["class_index"])) + 1
    assert narrow["token_ids"].shape[1] == width < 200
    np.testing.assert_array_equal(
        narrow["token_ids"], wide["token_ids"][:, :width]
    )


def test_config_and_preset(preprocessor, tmp_path):
    again = XLNetQuestionAnsweringPreprocessor.from_config(
        preprocessor.get_config()
    )
    assert again.settings() == {**SETTINGS, "pad_to_longest": False}
    equal(again(X), preprocessor(X))
    preprocessor.save_to_preset(tmp_path)
    saved = XLNetQuestionAnsweringPreprocessor.from_preset(tmp_path, stride=9)
    assert saved.settings() == {**preprocessor.settings(), "stride": 9}


def test_the_task_answers(task):
    answers = task.answer(QUESTIONS, CONTEXTS, batch_size=3, n_best=4)
    batch = task.preprocessor(X)
    outputs = {name: value.numpy() for name, value in task(dict(batch)).items()}
    expected = merge_windows(examples(), windows(), outputs, n_best_size=4)
    assert len(answers) == 11
    assert any(answer["text"] for answer in answers)
    for row, found in enumerate(answers):
        best = [one for one in expected.n_best[str(row)] if one["text"]]
        assert [one["text"] for one in found["n_best"]] == [
            one["text"] for one in best
        ]
        assert found["text"] == expected.texts[str(row)]
        if found["text"]:
            part = CONTEXTS[row][found["begin"] : found["end"]]
            assert part == found["text"]
        scores = [one["start_log_prob"] + one["end_log_prob"] for one in best]
        np.testing.assert_allclose(
            [one["score"] for one in found["n_best"]], scores, rtol=1e-5
        )
        np.testing.assert_allclose(
            found["null_score"], expected.null_odds[str(row)], rtol=1e-4
        )


def test_one_answer_and_the_threshold(task):
    found = task.answer(QUESTIONS[1], CONTEXTS[1])
    assert found["text"]
    threshold = found["null_score"]
    same = task.answer(QUESTIONS[1], CONTEXTS[1], null_threshold=threshold)
    assert same == found
    null = task.answer(
        QUESTIONS[1], CONTEXTS[1], null_threshold=threshold - 0.1
    )
    assert (null["text"], null["begin"], null["end"]) == ("", -1, -1)
    assert null["n_best"] == found["n_best"]


@pytest.mark.slow
def test_trains_on_raw_strings(task):
    model = XLNetQuestionAnswering.from_config(task.get_config())
    history = model.fit(X, Y, batch_size=11, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()
    assert np.isfinite(model.evaluate(X, Y, batch_size=11, verbose=0))


def test_blocks_of_questions(task, monkeypatch):
    expected = task.answer(QUESTIONS[:5], CONTEXTS[:5])
    monkeypatch.setattr("xlnet_tf.preprocessing.questions._BLOCK", 2)
    found = task.answer(QUESTIONS[:5], CONTEXTS[:5])
    assert [one["text"] for one in found] == [one["text"] for one in expected]
    assert task.answer([], []) == []


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda p: p(["a"]), TypeError, "`x` must be a dict of question"),
        (lambda p: p(X, sample_weight=[1.0] * 11), ValueError, "needs `y`"),
        (lambda p: p(X, STARTS), ValueError, "`y` must be a dict"),
        (
            lambda p: p(X, {"answer_start": STARTS}),
            ValueError,
            "answer_start and answer_text. Received: answer_start",
        ),
        (
            lambda p: p(X, {**Y, "answer_start": [0.5] * 11}),
            TypeError,
            "must be integers",
        ),
        (lambda p: make(sequence_length=8), ValueError, "at least 9"),
        (lambda p: make(stride=0), ValueError, "`stride`"),
        (
            lambda p: setattr(p, "sequence_length", 8),
            ValueError,
            "at least 9",
        ),
    ],
)
def test_errors(preprocessor, call, error, message):
    with pytest.raises(error, match=message):
        call(preprocessor)


def test_errors_of_answers(task):
    with pytest.raises(ValueError, match="a context for each question"):
        task.answer(QUESTIONS, CONTEXTS[:2])
    config = {**task.get_config(), "preprocessor": None}
    with pytest.raises(ValueError, match="has no preprocessor"):
        XLNetQuestionAnswering.from_config(config).answer("a", "b")
