"""Exports of tasks answer raw strings as the tasks do in Keras."""

import functools
import json
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.command_line import run
from saved_models import export
from saved_models.loading import load_model
from saved_models.loading import load_tokenizer
from saved_models.settings import ExportSettings
from saved_models.signatures import signatures_for
from tests import finetuning_fixtures
from tests.export_fixtures import PIECES
from tests.export_fixtures import signatures_of
from tests.export_fixtures import tiny_tokenizer
from tests.reference import as_numpy
from tests.reference import randomize
from tests.test_export_writing import ALLOWED_TEXT_OPS
from tests.test_export_writing import PYTHON_OPS
from tests.test_export_writing import TEXT_OPS
from tests.test_export_writing import all_ops
from tests.test_export_writing import foreign
from tests.tokenizer_samples import tiny_sentences
from tests.training_fixtures import tiny_config

LENGTH, SEGMENT = 24, 7
# float32, on logits that are spread to about 1 from about 0.01
TOLERANCE = 1e-4
SENTENCES = list(tiny_sentences(12))
# Short, empty, too long, not UTF-8, and what looks like a symbol.
TEXTS = [
    "ba co fi",
    "",
    " ".join(SENTENCES),
    b"ba \xff co\xe2\x82",
    "<cls> \u3000größer\u2028 co <sep>",
]
OTHERS = ["co", "fi " * 40, "", "ba", ""]
OPTIONS = [["co", ""], ["fi " * 150, "ba"], ["", ""], ["a", "b"], ["b", "a"]]
TASKS = {
    "classifier": (xlnet_tf.XLNetTextClassifier, {"num_classes": 3}),
    "regressor": (xlnet_tf.XLNetTextRegressor, {}),
    "choice": (xlnet_tf.XLNetMultipleChoice, {}),
    "ranker": (xlnet_tf.XLNetRanker, {}),
    "tagger": (xlnet_tf.XLNetTokenClassifier, {"num_classes": 3}),
    "questions": (xlnet_tf.XLNetQuestionAnswering, {}),
}
LABELS = ["O", "größer", "B-long"]
WITH_LABELS = ("classifier", "tagger")
# What takes longest is to export, so by default some tasks are only traced.
EXPORTED = ["classifier", "questions"]
IF_SLOW = [
    pytest.param(name, marks=() if name in EXPORTED else pytest.mark.slow)
    for name in TASKS
]


def make(name, segment_length=None, **settings):
    cls, arguments = TASKS[name]
    arguments = dict(arguments)
    if name in WITH_LABELS:
        arguments["labels"] = LABELS
    if segment_length:
        arguments["segment_length"] = segment_length
    if name == "questions":
        settings = {"stride": 5, "max_question_length": 6, **settings}
    config = tiny_config(
        vocabulary_size=PIECES,
        num_layers=1,
        memory_length=SEGMENT if segment_length else 0,
    )
    task = randomize(cls(xlnet_tf.XLNetBackbone(config), **arguments))
    task.preprocessor = cls.preprocessor_cls(
        tiny_tokenizer(), sequence_length=LENGTH, **settings
    )
    task.compile(run_eagerly=True)  # tracing takes longer
    if name != "questions":
        _spread(task, raw(name))
    return task


def _spread(task, x):
    """Changes the last layer so that answers differ from text to text."""
    if "text" in x and isinstance(task, xlnet_tf.XLNetTokenClassifier):
        x = [row.split() for row in SENTENCES[:3]]
    layer = task.head.logits_dense
    logits = predict(task, x).reshape(-1, layer.units)
    scale = logits.std(axis=0)
    layer.kernel.assign(layer.kernel / scale)
    layer.bias.assign((layer.bias - logits.mean(axis=0)) / scale)


@pytest.fixture(scope="module")
def tasks():
    """Each task, made when it is first asked for."""
    return _Made(make)


@pytest.fixture(scope="module")
def exports(tmp_path_factory, tasks):
    """Each task as a SavedModel, of the directory of a fine-tuning run."""

    def make_export(name):
        folder = tmp_path_factory.mktemp(name)
        details = {}
        if name == "questions":
            details["threshold"] = threshold(tasks[name])
        write_run(folder / "run", tasks[name], **details)
        arguments = ["--model", folder / "run", "--output", folder / "served"]
        arguments += ["--sequence-length", LENGTH, "--num-candidates", 3]
        assert run(export.main, list(map(str, arguments))) == 0
        return folder / "served" / "1"

    return _Made(make_export)


@pytest.fixture(scope="module")
def served(exports):
    return _Made(lambda name: signatures_of(exports[name]))


@pytest.fixture(scope="module")
def functions(tasks, served):
    """The functions of each task: exported, or as they are."""

    def of_task(name):
        if name in EXPORTED:
            return served[name]
        return {n: s.function for n, s in made(tasks[name]).items()}

    return _Made(of_task)


class _Made(dict):
    def __init__(self, function):
        super().__init__()
        self._function = function

    def __missing__(self, name):
        self[name] = self._function(name)
        return self[name]


def write_run(directory, task, **details):
    """What fine-tuning leaves, as far as an export reads it."""
    directory.mkdir(parents=True)
    task.save(directory / "model.keras")
    task.save_to_preset(directory / "best")
    results = json.dumps({"details": details})
    (directory / "results.json").write_text(results)


def made(task, **settings):
    """The signatures of a task that is not written."""
    settings = {"sequence_length": LENGTH, "num_candidates": 3, **settings}
    settings = ExportSettings(**settings)
    module = signatures_for(task)(task, tiny_tokenizer(), settings)
    return _Held(module, module.signatures())


class _Held(dict):
    """Signatures, and the module without whose tables they do not work."""

    def __init__(self, module, signatures):
        super().__init__(signatures)
        self.module = module


def ask(function, **inputs):
    return as_numpy(
        function(
            **{
                name: value
                if isinstance(value, np.ndarray)
                else tf.constant(value, tf.string)
                for name, value in inputs.items()
            }
        )
    )


def decoded(array):
    return [x.decode() for x in np.ravel(array)]


def close(found, expected, tolerance=TOLERANCE):
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=tolerance)


def predict(task, x):
    return task.predict(x, verbose=0)


def softmax(logits):
    return as_numpy(keras.ops.softmax(logits))


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
def test_classes(tasks, functions, signature):
    task, function = tasks["classifier"], functions["classifier"][signature]
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
    by_ids = of_ids(functions["classifier"]["ids"], task.preprocessor(x))
    close(by_ids["logits"], logits)
    assert decoded(by_ids["label"]) == best


@pytest.mark.parametrize("signature", ["serving_default", "pairs"])
def test_scores(tasks, functions, signature):
    task, found = tasks["regressor"], functions["regressor"]
    x = {"text": TEXTS}
    if signature == "pairs":
        x["text_pair"] = OTHERS
    expected = predict(task, x)
    assert expected.std() > 1e-2
    close(ask(found[signature], **x)["score"], expected)
    close(of_ids(found["ids"], task.preprocessor(x))["score"], expected)


def test_options(tasks, functions):
    task, found = tasks["choice"], functions["choice"]
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


def test_documents(tasks, functions):
    task, found = tasks["ranker"], functions["ranker"]["serving_default"]
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
    by_ids = of_ids(functions["ranker"]["ids"], features)
    close(by_ids["scores"][0], scores[0])


def test_tags(tasks, functions):
    task, found = tasks["tagger"], functions["tagger"]
    # The second word is dropped by the tokenizer.
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
        if row == 3:
            tags.insert(1, "")
            scores.insert(1, 0)
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


def questions(count=5):
    contexts = [SENTENCES[0], "", " ".join(SENTENCES[:4]), *SENTENCES[4:6]]
    asked = ["ba co", "", "fi " * 9, SENTENCES[4], ""]
    return {"question": asked[:count], "context": contexts[:count]}


@functools.cache
def threshold(task):
    """A null_score that some questions are above."""
    scores = [one["null_score"] for one in task.answer(*questions().values())]
    return float(np.median(scores))


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


def test_answers(tasks, functions):
    task, found = tasks["questions"], functions["questions"]
    x = questions()
    expected = task.answer(
        *x.values(), n_best=3, null_threshold=threshold(task)
    )
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


@pytest.mark.parametrize("name", IF_SLOW)
def test_no_rows(served, name):
    for function in served[name].values():
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
def test_requests_that_do_not_fit(functions, name, signature, inputs, message):
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        ask(functions[name][signature], **inputs)


@pytest.mark.parametrize("name", IF_SLOW)
def test_only_ops_that_a_server_has(exports, name):
    ops = all_ops(exports[name])
    expected = ALLOWED_TEXT_OPS if name == "questions" else TEXT_OPS
    assert foreign(ops) == expected
    assert not ops & PYTHON_OPS
    assert "Einsum" in ops


@pytest.mark.parametrize("name", IF_SLOW)
def test_what_lies_beside_an_export(exports, tasks, served, name):
    extra = exports[name] / "assets.extra"
    card = json.loads((extra / "model_card.json").read_text("utf-8"))
    assert card["model"] == type(tasks[name]).__name__
    assert set(card["signatures"]) == set(served[name])
    assert "serving_default" in card["signatures"]
    for key, signature in card["signatures"].items():
        request = signature["example_request"]["inputs"]
        _, specs = served[name][key].structured_input_signature
        answer = served[name][key](
            **{n: tf.constant(request[n], specs[n].dtype) for n in specs}
        )
        assert {len(value) for value in answer.values()} == {1}
        for output in signature["outputs"].values():
            assert output["shape"][0] is None
    requests = tf.data.TFRecordDataset(
        str(extra / "tf_serving_warmup_requests")
    )
    assert len(list(requests)) == len(card["signatures"])


@pytest.mark.parametrize("name", TASKS)
def test_the_directory_of_a_run_says_which_task_it_is(tmp_path, tasks, name):
    write_run(tmp_path / "run", tasks[name], threshold=-1.5)
    for path in ("run", "run/best", "run/model.keras"):
        model = load_model(tmp_path / path)
        assert type(model) is type(tasks[name])
        expected = -1.5 if name == "questions" else None
        assert getattr(model, "null_threshold", None) == expected
        tokenizer = load_tokenizer(tmp_path / path)
        assert tokenizer.digest == tiny_tokenizer().digest


def raw(name):
    """A request for each task."""
    return {
        "classifier": {"text": TEXTS},
        "regressor": {"text": TEXTS},
        "choice": {"context": TEXTS, "question": OTHERS, "options": OPTIONS},
        "ranker": {"query": TEXTS, "documents": OPTIONS},
        "tagger": {"text": TEXTS},
        "questions": questions(),
    }[name]


SETTINGS = {
    "in parts": {"seq_length_buckets": (12, LENGTH), "max_batch": 2},
    "compiled": {
        "seq_length_buckets": (12, LENGTH),
        "max_batch": 2,
        "jit_compile": True,
    },
}


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        pytest.param(
            name,
            settings,
            marks=()
            if (name, settings) == ("classifier", "in parts")
            else pytest.mark.slow,
        )
        for name in TASKS
        for settings in SETTINGS
    ],
)
def test_answers_do_not_depend_on_shapes(tasks, functions, name, settings):
    expected = ask(functions[name]["serving_default"], **raw(name))
    signatures = made(tasks[name], **SETTINGS[settings])
    signature = signatures["serving_default"]
    function = signature.concrete()
    found = ask(function, **raw(name))
    assert set(found) == set(expected)
    for key, value in expected.items():
        if value.dtype == object:
            np.testing.assert_array_equal(found[key], value)
        else:
            close(found[key], value)
    for example in signature.examples:
        ask(function, **{n: x.tolist() for n, x in example.items()})


@pytest.mark.parametrize(
    "name",
    [
        "classifier",
        *(
            pytest.param(n, marks=pytest.mark.slow)
            for n in ("regressor", "choice", "ranker")
        ),
    ],
)
def test_long_texts_are_read_in_segments(name):
    task = make(name, segment_length=SEGMENT)
    x = raw(name)
    expected = predict(task, x)
    function = made(task)["serving_default"].concrete()
    found = ask(function, **x)
    if name in ("classifier", "choice"):
        expected = softmax(expected)
    found = found["score" if name == "regressor" else "scores"]
    if name == "ranker":
        is_there = np.array(OPTIONS) != ""
        found, expected = found[is_there], expected[is_there]
    close(found, expected)


def test_too_short_for_a_question(tasks):
    with pytest.raises(ValueError, match="must hold a question"):
        made(tasks["questions"], sequence_length=9)


def finetuned(directory, task, **settings):
    """The directory of a fine-tuning run, and what it predicted."""
    preset = finetuning_fixtures.write_preset(directory / "preset")
    data = finetuning_fixtures.write_task(directory / "data", task)
    training = finetuning_fixtures.write_training(directory, **settings)
    options = {"task": task, "data": data, "preset": preset}
    options |= {"output": directory / "run", "training": training}
    arguments = [x for n, v in options.items() for x in (f"--{n}", v)]
    assert finetuning_fixtures.run(*arguments) == 0
    file = directory / "run" / "held_out_predictions.jsonl"
    rows = file.read_text("utf-8").splitlines()
    return directory / "run", data, [json.loads(row) for row in rows]


def exported(directory, *options):
    """What `python -m saved_models.export` writes."""
    output = directory.parent / "served"
    command = [sys.executable, "-m", "saved_models.export", "--model"]
    command += [directory, "--output", output, *options]
    root = pathlib.Path(__file__).resolve().parent.parent
    result = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"wrote {output / '1'}\n"
    return signatures_of(output / "1")["serving_default"]


@pytest.mark.slow
def test_a_run_is_exported_as_it_predicted_classes(tmp_path):
    directory, data, predicted = finetuned(tmp_path, "classification")
    function = exported(directory, "--sequence-length", "24")
    rows = (data / "dev.tsv").read_text("utf-8").splitlines()[1:]
    answers = ask(function, text=[row.split("\t")[0] for row in rows])
    assert decoded(answers["label"]) == [x["label"] for x in predicted]
    probabilities = [list(x["probabilities"].values()) for x in predicted]
    close(answers["scores"], probabilities)
    assert decoded(answers["labels"][0]) == list(predicted[0]["probabilities"])


@pytest.mark.slow
def test_a_run_is_exported_as_it_predicted_answers(tmp_path):
    lengths = {"sequence_length": 90, "max_question_length": 64, "stride": 128}
    run_directory, data, predicted = finetuned(tmp_path, "squad-2.0", **lengths)
    function = exported(run_directory, "--sequence-length", "90")
    held_out = json.loads((data / "dev-v2.0.json").read_text())["data"][0]
    answers = ask(
        function,
        context=[x["context"] for x in held_out["paragraphs"]],
        question=[x["qas"][0]["question"] for x in held_out["paragraphs"]],
    )
    assert decoded(answers["answer"]) == [x["answer"] for x in predicted]
    odds = [x["no_answer_odds"] for x in predicted]
    close(answers["null_score"], odds)
