"""Exports of tasks answer raw strings as the tasks do in Keras."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tasks.examples import ChoiceExample
from tests.support.oracle import as_numpy
from tests.support.task_export_fixtures import IF_SLOW
from tests.support.task_export_fixtures import LABELS
from tests.support.task_export_fixtures import LENGTH
from tests.support.task_export_fixtures import OPTIONS
from tests.support.task_export_fixtures import OTHERS
from tests.support.task_export_fixtures import SENTENCES
from tests.support.task_export_fixtures import TEXTS
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import close
from tests.support.task_export_fixtures import decoded
from tests.support.task_export_fixtures import functions
from tests.support.task_export_fixtures import made
from tests.support.task_export_fixtures import make
from tests.support.task_export_fixtures import predict
from tests.support.task_export_fixtures import questions
from tests.support.task_export_fixtures import served
from tests.support.task_export_fixtures import shared_task
from tests.support.task_export_fixtures import softmax
from tests.support.task_export_fixtures import threshold


def of_ids(function, features):
    """Answers for ready features; `document_mask` is no input."""
    return ask(
        function,
        **{
            name: np.asarray(value)
            for name, value in features.items()
            if name != "document_mask"
        },
    )


@pytest.mark.parametrize("signature", ["serving_default", "pairs"])
def test_classes(signature):
    task, function = (
        shared_task("classifier"),
        functions("classifier")[signature],
    )
    x = {"text": TEXTS}
    if signature == "pairs":
        x["text_pair"] = OTHERS
    logits = predict(task, x)
    found = ask(function, **x)
    close(found["scores"], softmax(logits))
    assert found["scores"].std(axis=0).min() > 1e-3
    best = [LABELS[i] for i in logits.argmax(-1)]
    assert len(set(best)) > 1
    assert decoded(found["label"]) == best
    assert decoded(found["labels"]) == LABELS * len(TEXTS)
    by_ids = of_ids(functions("classifier")["ids"], task.preprocessor(x))
    close(by_ids["logits"], logits)
    assert decoded(by_ids["label"]) == best


@pytest.mark.parametrize("signature", ["serving_default", "pairs"])
def test_scores(signature):
    task, found = shared_task("regressor"), functions("regressor")
    x = {"text": TEXTS}
    if signature == "pairs":
        x["text_pair"] = OTHERS
    expected = predict(task, x)
    assert expected.std() > 1e-2
    close(ask(found[signature], **x)["score"], expected)
    close(of_ids(found["ids"], task.preprocessor(x))["score"], expected)


def test_options():
    task, found = shared_task("choice"), functions("choice")
    x = {"context": TEXTS, "question": OTHERS, "options": OPTIONS}
    logits = predict(task, x)
    answers = ask(found["serving_default"], **x)
    close(answers["scores"], softmax(logits))
    best = logits.argmax(-1)
    assert answers["answer"].tolist() == best.tolist()
    assert len(set(best)) == 2
    assert decoded(answers["option"]) == [
        options[i] for options, i in zip(OPTIONS, best, strict=True)
    ]
    by_ids = of_ids(found["ids"], task.preprocessor(x))
    close(by_ids["logits"], logits)
    assert by_ids["answer"].tolist() == best.tolist()


def test_a_long_question_keeps_its_options():
    """Sequences have room for less than 128 tokens; rows are fine-tuning's."""
    task = shared_task("choice")
    example = ChoiceExample("1", "ba co", "co de " * 99, ("ba fi", "po"))
    encoded = task.preprocessor.with_settings(sequence_length=LENGTH).encode(
        [example]
    )
    x = {
        "context": [example.context],
        "question": [example.question],
        "options": [list(example.options)],
    }
    ids = np.asarray(task.preprocessor(x)["token_ids"])[0]
    assert ids.tolist() == encoded.sequences["token_ids"].to_list()
    logits = predict(task, x)
    assert abs(logits[0, 0] - logits[0, 1]) > 1e-3
    close(
        ask(functions("choice")["serving_default"], **x)["scores"],
        softmax(logits),
    )


def test_documents():
    task, found = shared_task("ranker"), functions("ranker")["serving_default"]
    documents = [["co", "fi ba", "b"], ["fi"], [" ", "ba " * 50], ["b"], ["a"]]
    padded = [[*row, "", ""][:3] for row in documents]
    scores = predict(task, {"query": TEXTS, "documents": documents})
    answers = ask(found, query=TEXTS, documents=padded)
    close(answers["scores"], scores)
    assert (scores == np.float32(-1e30)).sum() == 7
    for row, order in enumerate(answers["order"]):
        assert sorted(order) == [0, 1, 2]
        assert (np.diff(scores[row, order]) <= 0).all()
    features = task.preprocessor({"query": TEXTS, "documents": padded})
    by_ids = of_ids(functions("ranker")["ids"], features)
    close(by_ids["scores"][0], scores[0])


def test_tags():
    task, found = shared_task("tagger"), functions("tagger")
    # The tokenizer drops the second word, which is an unknown piece then.
    texts = [*TEXTS[:3], "ba \u0301 co", *SENTENCES]
    words = [text.split() for text in texts]
    logits = predict(task, words)
    first = as_numpy(task.preprocessor.first_pieces(words))
    answers = ask(found["serving_default"], text=texts)
    assert answers["count"].tolist() == [len(row) for row in words]
    assert answers["words"].shape == (len(texts), max(map(len, words)))
    for row, expected in enumerate(words):
        count = len(expected)
        assert decoded(answers["words"][row, :count]) == expected
        places = np.flatnonzero(first[row])
        tags = [LABELS[i] for i in logits[row, places].argmax(-1)]
        scores = softmax(logits[row, places]).max(-1).tolist()
        missing = answers["tags"].shape[1] - len(tags)
        assert decoded(answers["tags"][row]) == tags + [""] * missing
        close(answers["scores"][row], scores + [0] * missing)
    assert len(set(decoded(answers["tags"]))) > 2
    assert not answers["tags"][2, LENGTH:].astype(bool).any()  # too long
    features = task.preprocessor(words)
    by_ids = of_ids(found["ids"], features)
    is_real = as_numpy(features["padding_mask"]) > 0
    close(by_ids["logits"][is_real], logits[is_real])
    close(by_ids["scores"], softmax(by_ids["logits"]))
    assert decoded(by_ids["labels"]) == LABELS * len(texts)


def check_answers(answers, expected):
    assert decoded(answers["answer"]) == [one["text"] for one in expected]
    for name in ("begin", "end", "score", "null_score"):
        close(answers[name], [one[name] for one in expected])
    for row, one in enumerate(expected):
        n_best = one["n_best"]
        missing = answers["n_best_answers"].shape[1] - len(n_best)
        found = decoded(answers["n_best_answers"][row])
        assert found == [x["text"] for x in n_best] + [""] * missing
        for name in ("begin", "end", "score"):
            found = answers[f"n_best_{name}s"][row, : len(n_best)]
            close(found, [x[name] for x in n_best])


def test_answers():
    task, found = shared_task("questions"), functions("questions")
    x = questions()
    expected = task.answer(*x.values(), n_best=3, null_threshold=threshold())
    has_none = [one for one in expected if one["n_best"] and not one["text"]]
    assert has_none and any(one["text"] for one in expected)
    answers = ask(found["serving_default"], **x)
    check_answers(answers, expected)
    for text, begin, end, context in zip(
        *(answers[name] for name in ("answer", "begin", "end")),
        x["context"],
        strict=True,
    ):
        assert text.decode() == (context[begin:end] if begin >= 0 else "")
    features = as_numpy(task.preprocessor(x))
    assert len(features["token_ids"]) > len(x["question"])
    outputs = predict(task, features)
    by_ids = of_ids(found["ids"], features)
    assert set(by_ids) == set(outputs)
    for name in ("class_logits", "start_top_scores", "end_top_scores"):
        # Where nothing may be, scores are -1e30 less something.
        is_likely = outputs[name] > -1e6
        close(by_ids[name][is_likely], outputs[name][is_likely])


def test_answers_are_as_long_as_in_fine_tuning():
    task, x = make("questions"), questions()
    expected = task.answer(*x.values(), n_best=3, max_answer_length=1)
    longer = task.answer(*x.values(), n_best=3)
    assert [a["text"] for a in expected] != [a["text"] for a in longer]
    task.max_answer_length = 1
    check_answers(ask(made(task)["serving_default"].function, **x), expected)


@pytest.mark.parametrize("name", IF_SLOW)
def test_no_rows(name):
    for function in served(name).values():
        _, specs = function.structured_input_signature
        empty = {
            key: np.zeros(
                [0, 2, 5][: spec.shape.rank],
                object if spec.dtype == tf.string else "int32",
            )
            for key, spec in specs.items()
        }
        for output in ask(function, **empty).values():
            assert len(output) == 0


@pytest.mark.parametrize(
    ("name", "signature", "inputs", "message"),
    [
        (
            "classifier",
            "pairs",
            {"text": ["ba"], "text_pair": ["ba", "co"]},
            "`text_pair` must have a row for each row of `text`",
        ),
        (
            "questions",
            "serving_default",
            {"question": ["ba", "co"], "context": ["ba"]},
            "`context` must have a row for each row of `question`",
        ),
        (
            "choice",
            "serving_default",
            {"context": ["ba"], "question": [""] * 2, "options": [["a"]]},
            "`question` must have a row for each row of `options`",
        ),
        (
            "choice",
            "serving_default",
            {
                "context": ["ba"],
                "question": [""],
                "options": np.zeros([1, 0], object),
            },
            "at least one option",
        ),
        (
            "ranker",
            "serving_default",
            {"query": ["ba"] * 2, "documents": [["a"]]},
            "`query` must have a row for each row of `documents`",
        ),
        (
            "choice",
            "ids",
            {
                "token_ids": np.full([1, 2, 3], 9, "int32"),
                "segment_ids": np.zeros([1, 2, 3], "int32"),
                "padding_mask": np.ones([1, 2, 4], "int32"),
            },
            "`padding_mask` must have the shape of `token_ids`",
        ),
        (
            "questions",
            "ids",
            {
                "token_ids": np.full([1, 7], 9, "int32"),
                "segment_ids": np.zeros([1, 7], "int32"),
                "padding_mask": np.ones([1, 7], "int32"),
                "answer_mask": np.ones([1, 7], "int32"),
                "class_index": np.full([1], 7, "int32"),
            },
            "`class_index` must be from 0 to T - 1",
        ),
    ],
)
def test_requests_that_do_not_fit(name, signature, inputs, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask(functions(name)[signature], **inputs)
