"""Raw questions in front of the task: features, training, answers."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import has_text
from data_pipeline.tasks.reading import read_examples
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import randomize
from tests.support.samples import tiny_sentences
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf.preprocessing.questions import XLNetQuestionAnsweringPreprocessor
from xlnet_tf.tasks.losses import SpanLoss
from xlnet_tf.tasks.question_answering import QuestionAnswering
from xlnet_tf.training.settings import FinetuningSettings

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


def equal(one, other):
    keras.tree.map_structure(np.testing.assert_array_equal, one, other)


def examples(count=11, **fields):
    """The questions as examples of a file."""
    return [
        QuestionExample(
            str(row),
            CONTEXTS[row],
            QUESTIONS[row],
            (Answer(ANSWERS[row], STARTS[row]),) if ANSWERS[row] else (),
            **fields,
        )
        for row in range(count)
    ]


def example(context, *answers, question="ba?", **fields):
    answers = [
        Answer(text, context.find(text)) if isinstance(text, str) else text
        for text in answers
    ]
    return QuestionExample("1", context, question, tuple(answers), **fields)


def test_encoded_windows_are_those_of_a_call(preprocessor):
    expected = preprocessor(X)
    encoded = preprocessor.encode(examples())
    assert len(encoded) == len(expected["class_index"]) > len(CONTEXTS)
    assert set(encoded.dense) == {"class_index", "example"}
    np.testing.assert_array_equal(
        encoded.dense["class_index"], expected["class_index"]
    )
    assert np.unique(encoded.dense["example"]).tolist() == list(range(11))
    for name, column in encoded.sequences.items():
        filler = encoded.fillers[name]
        padded = column.to_tensor(filler, shape=[None, 31])
        np.testing.assert_array_equal(padded, expected[name], name)
    assert set(encoded.sequences) == {"token_ids", "segment_ids", "answer_mask"}
    assert encoded.side == "right"
    for name in ("begins", "ends", "is_max_context"):
        assert encoded.unbatched[name].nrows() == len(encoded)


def test_labels_of_encoded_windows():
    preprocessor = make(sequence_length=64)
    good = example("ba co fi", "co")
    wrong = example("ba co fi", Answer("co", 4))
    both = example("ba co fi", Answer("co", -5), "fi")
    empty = example("ba co fi", Answer(" ", 2))
    dropped = example("ba \u200b co", "\u200b")
    none = example("ba co fi", "co", is_impossible=True)
    encoded = preprocessor.encode(
        [good, wrong, both, empty, dropped, none, example("ba")], training=True
    )
    assert encoded.dense["example"].tolist() == [0, 2, 3, 4, 5, 6]
    assert encoded.dense["is_impossible"].tolist() == [0, 0, 1, 1, 1, 1]
    assert encoded.dense["is_impossible"].dtype == np.float32
    counts = encoded.counts
    assert counts["contexts"] == 3
    assert counts["windows"] == 6
    assert (counts["answers"], counts["misplaced"]) == (4, 2)
    # Answers without text are none.
    assert (counts["left_out"], counts["impossible"]) == (1, 4)
    starts, ends = (
        encoded.dense[f"{edge}_position"] for edge in ("start", "end")
    )
    index = encoded.dense["class_index"]
    np.testing.assert_array_equal(starts[2:], index[2:])
    np.testing.assert_array_equal(ends[2:], index[2:])
    ids = encoded.sequences["token_ids"].to_list()
    decoded = [
        tiny_tokenizer().decode(row[start : end + 1])
        for row, start, end in zip(ids, starts, ends, strict=True)
    ]
    assert [text.strip() for text in decoded[:2]] == ["co", "fi"]
    assert encoded.notes[0].startswith(
        "windows   7 questions about 3 contexts: 6 windows; 0 questions cut, 0 "
        "contexts split; 2 windows with an answer, 4 questions without one; 4 "
        "answers, 0 not at the borders of pieces, 2 not at their place; 1 "
    )
    assert not encoded.unbatched


def test_counts_of_cuts():
    one = example("ba co fi gu ha je ki lo", "co fi gu ha je ki")
    short = make(sequence_length=9, stride=2, max_question_length=2)
    counts = short.encode([one, one], training=True).counts
    assert counts["out_of_reach"] == counts["cut_questions"] == 2
    assert counts["split_contexts"] == counts["contexts"] == 1
    assert counts["windows"] > 2


# Answers need not end where pieces do: "73 million" in "$73 million", "Japan"
# in "Japanese". Measured: 0.9969 and 0.9979.
def test_answers_of_squad_map_back(shared):
    model = shared / "data" / "spiece" / "spiece.model"
    preprocessor = XLNetQuestionAnsweringPreprocessor(Tokenizer(model), 256)
    for task, name in (
        ("squad-1.1", "dev-v1.1.partA"),
        ("squad-2.0", "dev-v2.0.partA"),
    ):
        file = shared / "data" / "squad" / f"{name}.json"
        found = read_examples(task, file)[::4]
        encoded = preprocessor.encode(found, training=True)
        counts = encoded.counts
        assert counts["misplaced"] == counts["out_of_reach"] == 0
        assert counts["inexact"] <= 0.005 * counts["answers"]
        impossible = sum(one.is_impossible for one in found)
        assert counts["impossible"] == impossible
        windows = preprocessor.encode(found)
        begins, ends = (
            windows.unbatched[name].to_list() for name in ("begins", "ends")
        )
        exact, answered = 0, set()
        rows = np.flatnonzero(encoded.dense["is_impossible"] == 0)
        for row in rows:
            number = encoded.dense["example"][row]
            begin = begins[row][encoded.dense["start_position"][row]]
            end = ends[row][encoded.dense["end_position"][row]]
            one = found[number]
            spans = [(a.start, a.start + len(a.text)) for a in one.answers]
            assert any(begin <= b and e <= end for b, e in spans), one.id
            texts = {answer.text.strip() for answer in one.answers}
            exact += one.context[begin:end].strip() in texts
            answered.add(number)
        assert exact >= 0.995 * len(rows)
        assert len(answered) == len(found) - impossible


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
    assert set(labels) == {"start_positions", "end_positions", "is_impossible"}
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


def test_answers_without_text_are_none(preprocessor):
    """Whatever their place, and they count in the loss."""
    texts = ["", " \t", "\u200b", "\u3000\ufeff", "\u0301", "nowhere"]
    y = {"answer_start": [3, 0, 2, 1, 2, 2], "answer_text": texts}
    x = {name: column[:6] for name, column in X.items()}
    _, labels, weights = preprocessor(x, y)
    np.testing.assert_array_equal(weights, [1, 1, 1, 1, 1, 0])
    np.testing.assert_array_equal(labels["is_impossible"], np.ones(6))
    np.testing.assert_array_equal(
        labels["start_positions"], labels["end_positions"]
    )
    # By the same characters as in files.
    texts = list(map(chr, range(0x600)))
    texts += ["\u200b", "\u2028", "\u3000", "\ud7a3", "\ufeff", "\ufffd"]
    x = {name: [column[0]] * len(texts) for name, column in X.items()}
    y = {"answer_start": [99] * len(texts), "answer_text": texts}
    expected = [not has_text(x) for x in texts]
    np.testing.assert_array_equal(preprocessor(x, y)[2], expected)


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


def test_the_task_answers_and_decodes_alike(task):
    answers = task.answer(QUESTIONS, CONTEXTS, batch_size=3, n_best=4)
    found = examples()
    encoded = task.preprocessor.encode(found)
    outputs, kind = task(task.preprocessor(X)), QuestionAnswering(task)
    collected = {k: v.numpy() for k, v in kind.collect(outputs).items()}
    task.n_best_size = 4
    decoded = kind.decode(collected, encoded, found)
    task.n_best_size = 5
    assert [one["id"] for one in decoded] == [one.id for one in found]
    assert any(one["answer"] for one in decoded)
    for row, (one, other) in enumerate(zip(answers, decoded, strict=True)):
        best = [x for x in other["n_best"] if x["text"]]
        assert [x["text"] for x in one["n_best"]] == [x["text"] for x in best]
        assert one["text"] == other["answer"]
        if one["text"]:
            part = CONTEXTS[row][one["begin"] : one["end"]]
            assert part == one["text"]
        scores = [x["start_log_prob"] + x["end_log_prob"] for x in best]
        np.testing.assert_allclose(
            [x["score"] for x in one["n_best"]], scores, rtol=1e-5
        )
        np.testing.assert_allclose(
            one["null_score"], other["no_answer_odds"], rtol=1e-4
        )
    check_threshold(task, collected, encoded, found, decoded)


def check_threshold(task, collected, encoded, found, always):
    odds, kind = [x["no_answer_odds"] for x in always], QuestionAnswering(task)
    kind.adopt({"null_threshold": float(np.median(odds))})
    some = kind.decode(collected, encoded, found)
    for one, other in zip(task.answer(QUESTIONS, CONTEXTS), some, strict=True):
        if abs(one["null_score"] - np.median(odds)) > 1e-4:
            assert one["text"] == other["answer"]
    task.null_threshold = None
    for one, other in zip(some, always, strict=True):
        is_null = one["no_answer_odds"] > np.median(odds)
        assert one["answer"] == ("" if is_null else other["answer"])
        assert one["n_best"][0]["text"] == other["n_best"][0]["text"]
    broken = {**collected, "class_logits": collected["class_logits"] * np.nan}
    with pytest.raises(ValueError, match="NaN in class_logits"):
        kind.decode(broken, encoded, found)
    double = [found[1]._replace(where="dev.json, row 2"), *found[1:]]
    with pytest.raises(ValueError, match="dev.json|Received: id='1' twice"):
        kind.decode(collected, encoded, double)


def test_the_loss_of_a_run(task, preprocessor):
    """Whether there is an answer counts where questions may have none."""
    features, labels, _ = preprocessor(X, Y)
    features["start_position"] = features.pop("start_positions")
    features["end_position"] = labels["end_positions"]
    features["is_impossible"] = labels["is_impossible"]
    kind = QuestionAnswering(task)
    outputs = kind.outputs_of(features, training=False)
    assert "start_top_scores" in outputs
    outputs = kind.outputs_of(features, training=True)
    for spec, tells in (("squad-1.1", False), ("squad-2.0", True)):
        arguments = kind.arguments_for(
            find_task(spec), FinetuningSettings(), None
        )
        assert arguments["null_threshold"] == (0.0 if tells else None)
        config = {**task.get_config(), **arguments}
        other = XLNetQuestionAnswering.from_config(config)
        assert other.null_threshold == arguments["null_threshold"]
        known = outputs if tells else dict(outputs)
        if not tells:
            del known["class_logits"]
        expected = SpanLoss()(labels, known)
        total, weight = QuestionAnswering(other).loss_sums(outputs, features)
        assert weight == 11
        np.testing.assert_allclose(total / weight, expected, rtol=1e-5)


def test_configs_have_the_arguments_of_answers(task):
    task = XLNetQuestionAnswering.from_config(task.get_config())
    assert (task.max_answer_length, task.n_best_size) == (64, 5)
    task.null_threshold = -0.5
    again = XLNetQuestionAnswering.from_config(task.get_config())
    assert again.null_threshold == -0.5


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


def test_blocks_of_questions(task, monkeypatch):
    expected = task.answer(QUESTIONS[:5], CONTEXTS[:5])
    monkeypatch.setattr("xlnet_tf.preprocessing.answers._BLOCK", 2)
    found = task.answer(QUESTIONS[:5], CONTEXTS[:5])
    assert [one["text"] for one in found] == [one["text"] for one in expected]
    assert task.answer([], []) == []


def test_errors(preprocessor):
    for call, error, message in (
        (lambda p: p(["a"]), TypeError, "`x` must be a dict of question"),
        (lambda p: p(X, sample_weight=[1.0] * 11), ValueError, "needs `y`"),
        (lambda p: p(X, STARTS), ValueError, "`y` must be a dict"),
        (
            lambda p: p(X, {"answer_start": STARTS}),
            ValueError,
            "answer_start and answer_text. Received: answer_start",
        ),
        (
            # As Hugging Face's data sets have them.
            lambda p: p(X, {k: [[x] for x in v] for k, v in Y.items()}),
            ValueError,
            "`answer_start` must be one for each question.* 2 axes",
        ),
        (
            lambda p: p(X, {**Y, "answer_start": [0.5] * 11}),
            TypeError,
            "must be integers",
        ),
        (lambda p: make(sequence_length=8), ValueError, "at least 9"),
        (lambda p: make(stride=0), ValueError, "`stride`"),
        (lambda p: setattr(p, "sequence_length", 8), ValueError, "at least 9"),
        (
            lambda p: p.encode([example("ba")], training=True),
            ValueError,
            "training needs answers, and no example has one",
        ),
        (
            lambda p: p.encode(
                [example("ba", question="ba " * 40, where="dev.json, row 7")],
                max_question_length=64,
            ),
            ValueError,
            "dev.json, row 7: .*a question of .*`max_question_length`",
        ),
    ):
        with pytest.raises(error, match=message):
            call(preprocessor)


def test_errors_of_answers(task):
    with pytest.raises(ValueError, match="a context for each question"):
        task.answer(QUESTIONS, CONTEXTS[:2])
    config = {**task.get_config(), "preprocessor": None}
    with pytest.raises(ValueError, match="has no preprocessor"):
        XLNetQuestionAnswering.from_config(config).answer("a", "b")
