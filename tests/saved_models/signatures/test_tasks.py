"""Signatures of tasks, as Python functions, answer as the tasks in Keras."""

import re

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.features.packing import pack
from saved_models.signatures.tokens import count_words
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.task_export_fixtures import LABELS
from tests.support.task_export_fixtures import LENGTH
from tests.support.task_export_fixtures import OTHERS
from tests.support.task_export_fixtures import SEGMENT
from tests.support.task_export_fixtures import SENTENCES
from tests.support.task_export_fixtures import TEXTS
from tests.support.task_export_fixtures import TOLERANCE
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import close
from tests.support.task_export_fixtures import decoded
from tests.support.task_export_fixtures import functions
from tests.support.task_export_fixtures import made
from tests.support.task_export_fixtures import make
from tests.support.task_export_fixtures import predict
from tests.support.task_export_fixtures import questions
from tests.support.task_export_fixtures import raw
from tests.support.task_export_fixtures import shared_task
from tests.support.task_export_fixtures import softmax
from tests.support.task_export_fixtures import threshold
from tests.support.tensor_sizes import recorded_sizes


def of_ids(name, x):
    """Answers for the features of raw input; `document_mask` is no input."""
    features = shared_task(name).preprocessor(x)
    return ask(
        functions(name)["ids"],
        **{
            name: np.asarray(value)
            for name, value in features.items()
            if name != "document_mask"
        },
    )


def test_classes_and_scores():
    for x in ({"text": TEXTS}, {"text": TEXTS, "text_pair": OTHERS}):
        signature = "pairs" if len(x) > 1 else "serving_default"
        logits = predict(shared_task("classifier"), x)
        found = ask(functions("classifier")[signature], **x)
        close(found["scores"], softmax(logits))
        assert found["scores"].std(axis=0).min() > 1e-3
        best = [LABELS[i] for i in logits.argmax(-1)]
        assert len(set(best)) > 1
        assert decoded(found["label"]) == best
        assert decoded(found["labels"]) == LABELS * len(TEXTS)
        by_ids = of_ids("classifier", x)
        close(by_ids["logits"], logits)
        assert decoded(by_ids["label"]) == best
        scores = predict(shared_task("regressor"), x)
        assert scores.std() > 1e-2
        found = functions("regressor")[signature]
        close(ask(found, **x)["score"], scores)
        close(of_ids("regressor", x)["score"], scores)


@pytest.mark.usefixtures("frozen_heap")
def test_adapters_are_merged_and_integers_stay():
    for name, change in (("lora", adapted), ("int8", quantized)):
        task = make("classifier")
        plain = predict(task, TEXTS)
        change(task)
        logits = predict(task, TEXTS)
        assert np.abs(logits - plain).max() > 10 * TOLERANCE, name
        signatures = made(task)
        found = ask(signatures["serving_default"].function, text=TEXTS)
        close(found["scores"], softmax(logits))
        served = signatures.module._served
        assert not [v for v in served.variables if "lora" in v.name]
        integers = [v for v in served.variables if v.dtype == tf.int8]
        assert bool(integers) == (name == "int8")


def adapted(task):
    task.enable_lora(2)
    for weight in task.backbone.trainable_weights:
        weight.assign(weight + 0.2)


def quantized(task):
    task.quantize("int8")


def test_any_number_of_classes():
    for x in ({"text": TEXTS}, {"text": TEXTS, "text_pair": OTHERS}):
        signature = "pairs" if len(x) > 1 else "serving_default"
        logits = predict(shared_task("several"), x)
        found = ask(functions("several")[signature], **x)
        assert set(found) == {"labels", "scores", "chosen"}
        close(found["scores"], 1 / (1 + np.exp(-logits)))
        np.testing.assert_array_equal(found["chosen"], found["scores"] >= 0.5)
        assert 0 < found["chosen"].mean() < 1
        assert decoded(found["labels"]) == LABELS * len(TEXTS)
        close(of_ids("several", x)["logits"], logits)


def test_windows_of_a_long_text_are_averaged():
    room, stride = 6, 4
    texts = ["", "ba co fi ba co fi ba co fi ba", "ba", "fi " * 6]
    task, tokenizer = shared_task("classifier"), tiny_tokenizer()
    signature = made(task, sequence_length=room + 2, window_stride=stride)
    function = signature["serving_default"].function
    found = ask(function, text=texts)["scores"]
    for text, answer in zip(texts, found, strict=True):
        ids = tokenizer.encode(text)
        windows = [ids[:room]]
        while len(ids) > room:
            ids = ids[stride:]
            windows.append(ids[:room])
        windows = tf.ragged.constant(windows, tf.int32, ragged_rank=1)
        features = pack(windows, sequence_length=room + 2)
        outputs = as_numpy(task(features, training=False))
        close(answer, softmax(outputs.mean(axis=0)))


def test_long_texts_are_read_in_segments():
    task = make("classifier", segment_length=SEGMENT)
    found = ask(made(task)["serving_default"].function, **raw("classifier"))
    close(found["scores"], softmax(predict(task, raw("classifier"))))


def test_options():
    task, x = shared_task("choice"), raw("choice")
    # Sequences have no room for this question, but its options are kept.
    x = {
        "context": [*x["context"], "ba co"],
        "question": [*x["question"], "co de " * 99],
        "options": [*x["options"], ["ba fi", "po"]],
    }
    logits = predict(task, x)
    assert abs(logits[-1, 0] - logits[-1, 1]) > 1e-3
    answers = ask(functions("choice")["serving_default"], **x)
    close(answers["scores"], softmax(logits))
    best = logits.argmax(-1)
    assert answers["answer"].tolist() == best.tolist()
    assert len(set(best)) == 2
    assert decoded(answers["option"]) == [
        options[i] for options, i in zip(x["options"], best, strict=True)
    ]
    by_ids = of_ids("choice", x)
    close(by_ids["logits"], logits)
    assert by_ids["answer"].tolist() == best.tolist()


def test_documents():
    task = shared_task("ranker")
    documents = [["co", "fi ba", "b"], ["fi"], [" ", "ba " * 50], ["b"], ["a"]]
    padded = [[*row, "", ""][:3] for row in documents]
    scores = predict(task, {"query": TEXTS, "documents": documents})
    x = {"query": TEXTS, "documents": padded}
    answers = ask(functions("ranker")["serving_default"], **x)
    close(answers["scores"], scores)
    assert (scores == np.float32(-1e30)).sum() == 7
    for row, order in enumerate(answers["order"]):
        assert sorted(order) == [0, 1, 2]
        assert (np.diff(scores[row, order]) <= 0).all()
    close(of_ids("ranker", x)["scores"][0], scores[0])


def test_tags():
    task = shared_task("tagger")
    # The tokenizer drops the second word of the fourth text: it is unknown.
    texts = [*TEXTS[:3], "ba \u0301 co", *SENTENCES]
    words = [text.split() for text in texts]
    logits = predict(task, words)
    first = as_numpy(task.preprocessor.first_pieces(words))
    answers = ask(functions("tagger")["serving_default"], text=texts)
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
    # Blanks of Unicode separate words, and bytes that are not UTF-8 do not;
    # nor do spaces that do not break a line, as in files of words.
    for text, expected in (
        (b"a\xff\xe2\x80\x83b", ["a\ufffd", "b"]),
        (
            "10\u00a0000 a\u202fb\u3000c".encode(),
            ["10\u00a0000", "a\u202fb", "c"],
        ),
    ):
        odd = ask(functions("tagger")["serving_default"], text=[text])
        assert decoded(odd["words"]) == expected
        assert count_words(text.decode(errors="replace")) == len(expected)
    by_ids = of_ids("tagger", words)
    is_real = as_numpy(task.preprocessor(words)["padding_mask"]) > 0
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
    task, x = shared_task("questions"), questions()
    expected = task.answer(*x.values(), n_best=3, null_threshold=threshold())
    has_none = [one for one in expected if one["n_best"] and not one["text"]]
    assert has_none and any(one["text"] for one in expected)
    answers = ask(functions("questions")["serving_default"], **x)
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
    by_ids = of_ids("questions", x)
    assert set(by_ids) == set(outputs)
    for name in ("class_logits", "start_top_scores", "end_top_scores"):
        # Where nothing may be, scores are -1e30 less something.
        is_likely = outputs[name] > -1e6
        close(by_ids[name][is_likely], outputs[name][is_likely])


def test_settings_of_questions():
    task, x = make("questions"), questions()
    expected = task.answer(*x.values(), n_best=3, max_answer_length=1)
    longer = task.answer(*x.values(), n_best=3)
    assert [a["text"] for a in expected] != [a["text"] for a in longer]
    task.max_answer_length = 1
    found = ask(made(task)["serving_default"].function, **x)
    check_answers(found, expected)
    module = made(task, stride=3).module
    assert module._preprocessor.settings() == {
        **task.preprocessor.settings(),
        "stride": 3,
        "pad_to_longest": True,
    }


def ids(**changed):
    """Ready ids of one row of two sequences of three tokens."""
    names = ("token_ids", "segment_ids", "padding_mask")
    return {name: np.ones([1, 2, 3], "int32") for name in names} | changed


REFUSED = [
    (
        *("classifier", "pairs"),
        {"text": ["ba"], "text_pair": ["ba", "co"]},
        "`text_pair` must have a row for each row of `text`",
    ),
    (
        *("questions", "serving_default"),
        {"question": ["ba", "co"], "context": ["ba"]},
        "`context` must have a row for each row of `question`",
    ),
    (
        *("choice", "serving_default"),
        {"context": ["ba"], "question": [""] * 2, "options": [["a"]]},
        "`question` must have a row for each row of `options`",
    ),
    (
        *("choice", "serving_default"),
        {
            "context": ["ba"],
            "question": [""],
            "options": np.zeros([1, 0], object),
        },
        "at least one option",
    ),
    (
        *("ranker", "serving_default"),
        {"query": ["ba"] * 2, "documents": [["a"]]},
        "`query` must have a row for each row of `documents`",
    ),
    (
        *("choice", "ids"),
        ids(padding_mask=np.ones([1, 2, 4], "int32")),
        "`padding_mask` must have the shape of `token_ids`",
    ),
    (
        *("ranker", "ids"),
        ids(token_ids=np.full([1, 2, 3], 300, "int32")),
        "`token_ids` must be from 0 to 299; some are too large",
    ),
    (
        *("questions", "ids"),
        {name: value[0] for name, value in ids().items()}
        | {
            "answer_mask": np.ones([2, 3], "int32"),
            "class_index": np.array([0, 3], "int32"),
        },
        "`class_index` must be from 0 to T - 1",
    ),
]


def test_requests_that_do_not_fit():
    for name, signature, inputs, message in REFUSED:
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            ask(functions(name)[signature], **inputs)


def test_the_bounds_of_a_request():
    """Each is a setting, and what is above is refused in one line."""
    limits = {
        "max_request_bytes": 30,
        "max_request_tokens": 12,
        "max_request_windows": 3,
        "window_stride": 2,
        "sequence_length": 6,
    }
    module = made(shared_task("classifier"), **limits).module
    functions = {name: x for name, (_, x) in module.traced().items()}
    ids = np.ones([1, 6], "int32")
    names = ("token_ids", "segment_ids", "padding_mask")
    for signature, inputs, message in (
        ("serving_default", {"text": ["ba", "ba".ljust(28)]}, ""),
        ("serving_default", {"text": ["bab", "ba".ljust(28)]}, "30 bytes of "),
        ("serving_default", {"text": ["ba " * 9]}, "3 windows in a r"),
        ("pairs", {"text": ["ba"] * 2, "text_pair": ["co"] * 2}, ""),
        ("pairs", {"text": ["ba"] * 9, "text_pair": ["c"] * 9}, "12 tokens i"),
        ("ids", dict.fromkeys(names, ids.repeat(2, 0)), ""),
        ("ids", dict.fromkeys(names, ids.repeat(3, 0)), "12 tokens in a req"),
        ("ids", dict.fromkeys(names, ids.repeat(2, 1)), "6 tokens in a row"),
    ):
        function = functions[signature]
        if not message:
            ask(function, **inputs)
            continue
        message = f"there may be at most {message}"
        with pytest.raises(tf.errors.InvalidArgumentError, match=message) as e:
            ask(function, **inputs)
        line = e.value.message.split("\n\t [[")[0].strip().rsplit("\n", 1)[-1]
        assert re.search(rf"\[{message}.* Received:\] \[\d+\]", line), line
    limits = {"max_request_tokens": 40, "sequence_length": 6}
    module = made(shared_task("tagger"), **limits).module
    with pytest.raises(tf.errors.InvalidArgumentError, match="40 words in a r"):
        ask(module.tag, text=["a " * 20, "b", "c"])
    with pytest.raises(ValueError, match="`max_request_bytes` must be a posi"):
        made(shared_task("classifier"), max_request_bytes=0)


def test_what_is_refused_takes_no_memory():
    """Not even for the sequences: all are as wide as the longest."""
    limits = {"max_request_tokens": 2000, "max_request_windows": 999}
    tasks = {
        name: made(shared_task(name), **limits)
        for name in ("classifier", "ranker", "choice", "questions")
    }
    tasks["windows"] = made(
        shared_task("classifier"), **limits, window_stride=1
    )
    long, many = "ba " * 1500, [""] * 999
    a_pair = {"text": [long, *many], "text_pair": [long, *many]}
    a_question = {"question": ["a"], "context": [long], "options": [many]}
    documents = {"query": [long], "documents": [many]}
    questions = {"question": [long, *many], "context": [long, *many]}
    for name, signature, inputs, message in (
        ("classifier", "serving_default", {"text": [long, *many]}, "2000 tok"),
        ("classifier", "pairs", a_pair, "2000 tokens in a request, padding"),
        ("windows", "serving_default", {"text": [long]}, "999 windows in a r"),
        ("ranker", "serving_default", documents, "2000 tokens in a request"),
        ("choice", "serving_default", a_question, "2000 tokens in a request"),
        ("questions", "serving_default", questions, "999 windows in a request"),
    ):
        message = f"there may be at most {message}"
        with (
            recorded_sizes() as sizes,
            pytest.raises(tf.errors.InvalidArgumentError, match=message),
        ):
            ask(tasks[name][signature].function, **inputs)
        # 1000 sequences of 24 tokens would take 192,000 bytes.
        assert max(sizes) < 60_000, name


def test_options_repeat_their_question_within_bounds():
    function = made(shared_task("choice"), max_request_bytes=2000)
    function = function["serving_default"].function
    for question, options in (
        ("why " * 99, ["ba"] * 9),
        ("_" * 99, ["ba" * 20]),
    ):
        x = {"context": ["co"], "question": [question], "options": [options]}
        with (
            recorded_sizes() as sizes,
            pytest.raises(
                tf.errors.InvalidArgumentError,
                match="at most 2000 bytes of questions with their options in",
            ),
        ):
            ask(function, **x)
        assert max(sizes) < 2000
    ask(function, context=["co"], question=["_" * 9], options=[["ba" * 9] * 9])


def test_settings_that_do_not_fit():
    task = shared_task("questions")
    with pytest.raises(ValueError, match="must hold a question"):
        made(task, sequence_length=9)
    with pytest.raises(ValueError, match="has no setting stride; it has sequ"):
        made(shared_task("classifier"), stride=7)
