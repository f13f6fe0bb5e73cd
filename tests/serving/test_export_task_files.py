"""What exports of tasks are made of, and from: runs, shapes, segments."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.features.packing import pack
from saved_models.loading import load_model
from saved_models.loading import load_tokenizer
from tests.serving.test_export_writing import ALLOWED_TEXT_OPS
from tests.serving.test_export_writing import PYTHON_OPS
from tests.serving.test_export_writing import TEXT_OPS
from tests.serving.test_export_writing import all_ops
from tests.serving.test_export_writing import foreign
from tests.support import finetuning_fixtures
from tests.support.export_fixtures import signatures_of
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.task_export_fixtures import IF_SLOW
from tests.support.task_export_fixtures import LENGTH
from tests.support.task_export_fixtures import OPTIONS
from tests.support.task_export_fixtures import SEGMENT
from tests.support.task_export_fixtures import TASKS
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import close
from tests.support.task_export_fixtures import decoded
from tests.support.task_export_fixtures import functions
from tests.support.task_export_fixtures import made
from tests.support.task_export_fixtures import make
from tests.support.task_export_fixtures import predict
from tests.support.task_export_fixtures import raw
from tests.support.task_export_fixtures import served
from tests.support.task_export_fixtures import shared_export
from tests.support.task_export_fixtures import shared_task
from tests.support.task_export_fixtures import softmax
from tests.support.task_export_fixtures import threshold
from tests.support.task_export_fixtures import write_run
from xlnet_tf.weights.hugging_face_writer import save_hugging_face


@pytest.mark.parametrize("name", IF_SLOW)
def test_only_ops_that_a_server_has(name):
    ops = all_ops(shared_export(name))
    expected = ALLOWED_TEXT_OPS if name == "questions" else TEXT_OPS
    assert foreign(ops) == expected
    assert not ops & PYTHON_OPS
    assert "Einsum" in ops


@pytest.mark.parametrize("name", IF_SLOW)
def test_what_lies_beside_an_export(name):
    extra = shared_export(name) / "assets.extra"
    card = json.loads((extra / "model_card.json").read_text("utf-8"))
    assert card["model"] == type(shared_task(name)).__name__
    assert set(card["signatures"]) == set(served(name))
    assert "serving_default" in card["signatures"]
    for key, signature in card["signatures"].items():
        request = signature["example_request"]["inputs"]
        _, specs = served(name)[key].structured_input_signature
        answer = served(name)[key](
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
def test_the_directory_of_a_run_says_which_task_it_is(tmp_path, name):
    details = {"threshold": -1.5, "max_answer_length": 3}
    write_run(tmp_path / "run", shared_task(name), **details)
    for path in ("run", "run/best", "run/model.keras"):
        model = load_model(tmp_path / path)
        assert type(model) is type(shared_task(name))
        expected = -1.5 if name == "questions" else None
        assert getattr(model, "null_threshold", None) == expected
        expected = 3 if name == "questions" else None
        assert getattr(model, "max_answer_length", None) == expected
        tokenizer = load_tokenizer(tmp_path / path)
        assert tokenizer.digest == tiny_tokenizer().digest


def of_a_width_that_others_have(cls, **arguments):
    config = xlnet_tf.XLNetConfig(
        vocabulary_size=40,
        num_layers=1,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=8,
    )
    return cls(xlnet_tf.XLNetBackbone(config), **arguments)


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (xlnet_tf.XLNetPretrainer, {}),
        (xlnet_tf.XLNetTextClassifier, {"num_classes": 2}),
        (xlnet_tf.XLNetTextRegressor, {}),
        (xlnet_tf.XLNetMultipleChoice, {}),
        (xlnet_tf.XLNetTokenClassifier, {"num_classes": 3}),
        (xlnet_tf.XLNetQuestionAnswering, {}),
    ],
)
def test_directories_of_others_say_which_task_it_is(tmp_path, cls, arguments):
    model = of_a_width_that_others_have(cls, **arguments)
    save_hugging_face(model, tmp_path)
    assert type(load_model(tmp_path)) is cls


def test_heads_that_no_export_serves_are_refused(tmp_path):
    spans = of_a_width_that_others_have(xlnet_tf.XLNetSpanClassifier)
    spans.save_to_preset(tmp_path / "ours")
    save_hugging_face(spans, tmp_path / "theirs")
    for directory in ("ours", "theirs"):
        with pytest.raises(
            ValueError, match="a XLNetSpanClassifier, which cannot be exported"
        ):
            load_model(tmp_path / directory)


def test_of_several_heads_one_is_to_be_chosen(tmp_path):
    model = of_a_width_that_others_have(xlnet_tf.XLNetTextRegressor)
    save_hugging_face(model, tmp_path)
    file = tmp_path / "config.json"
    config = json.loads(file.read_text())
    del config["architectures"]
    file.write_text(json.dumps(config))
    with pytest.raises(ValueError, match="several heads.*xlnet_tf.convert"):
        load_model(tmp_path)


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
def test_answers_do_not_depend_on_shapes(name, settings):
    expected = ask(functions(name)["serving_default"], **raw(name))
    task = shared_task(name)
    if name == "questions":
        task.null_threshold = threshold()
    signatures = made(task, **SETTINGS[settings])
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


def test_too_short_for_a_question():
    with pytest.raises(ValueError, match="must hold a question"):
        made(shared_task("questions"), sequence_length=9)


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
    root = pathlib.Path(__file__).resolve().parents[2]
    result = subprocess.run(command, cwd=root, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"wrote {output / '1'}\n"
    return signatures_of(output / "1")["serving_default"]


@pytest.mark.parametrize("name", ["classifier", "regressor"])
def test_windows_of_a_long_text_are_averaged(name):
    task, room, stride = shared_task(name), 6, 4
    texts = ["", "ba co fi ba co fi ba co fi ba", "ba", "fi " * 6]
    function = made(task, sequence_length=room + 2, window_stride=stride)[
        "serving_default"
    ].concrete()
    found = ask(function, text=texts)[
        "scores" if name == "classifier" else "score"
    ]
    tokenizer = tiny_tokenizer()
    for text, answer in zip(texts, found, strict=True):
        ids = tokenizer.encode(text)
        windows = [ids[:room]]
        while len(ids) > room:
            ids = ids[stride:]
            windows.append(ids[:room])
        outputs = []
        for window in windows:
            features = pack(
                tf.ragged.constant([window], tf.int32, ragged_rank=1),
                sequence_length=room + 2,
            )
            outputs.append(task(features, training=False)[0])
        expected = np.mean(outputs, axis=0)
        close(answer, softmax(expected) if name == "classifier" else expected)
    assert {len(x) for x in ask(function, text=[]).values()} == {0}


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [{}, {"long_documents": "windows", "sequence_length": 8, "stride": 3}],
    ids=["cut", "windows"],
)
def test_a_run_is_exported_as_it_predicted_classes(tmp_path, settings):
    directory, data, predicted = finetuned(
        tmp_path, "classification", **settings
    )
    function = exported(directory)  # with the lengths of the run
    rows = (data / "dev.tsv").read_text("utf-8").splitlines()[1:]
    answers = ask(function, text=[row.split("\t")[0] for row in rows])
    assert decoded(answers["label"]) == [x["label"] for x in predicted]
    probabilities = [list(x["probabilities"].values()) for x in predicted]
    close(answers["scores"], probabilities)
    assert decoded(answers["labels"][0]) == list(predicted[0]["probabilities"])


@pytest.mark.slow
def test_a_run_is_exported_as_it_predicted_answers(tmp_path):
    run_directory, data, predicted = finetuned(
        tmp_path,
        "squad-2.0",
        sequence_length=24,
        max_question_length=8,
        stride=8,
    )
    function = exported(run_directory)
    held_out = json.loads((data / "dev-v2.0.json").read_text())["data"][0]
    answers = ask(
        function,
        context=[x["context"] for x in held_out["paragraphs"]],
        question=[x["qas"][0]["question"] for x in held_out["paragraphs"]],
    )
    assert decoded(answers["answer"]) == [x["answer"] for x in predicted]
    odds = [x["no_answer_odds"] for x in predicted]
    close(answers["null_score"], odds)
