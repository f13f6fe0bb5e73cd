"""Exports of all tasks, compiled exports, and exports of real runs."""

import json
import pathlib

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

from saved_models.client.operations import check_operations
from tests.support import export_fixtures as pretrainers
from tests.support.commands import python
from tests.support.export_fixtures import ALLOWED_TEXT_OPS
from tests.support.export_fixtures import PYTHON_OPS
from tests.support.export_fixtures import TEXT_OPS
from tests.support.export_fixtures import all_nodes
from tests.support.export_fixtures import all_ops
from tests.support.export_fixtures import check_equal
from tests.support.export_fixtures import check_no_rows
from tests.support.export_fixtures import foreign
from tests.support.oracle import with_targets
from tests.support.replicas import two_replicas
from tests.support.task_export_fixtures import LENGTH
from tests.support.task_export_fixtures import OPTIONS
from tests.support.task_export_fixtures import SEGMENT
from tests.support.task_export_fixtures import TASKS
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import close
from tests.support.task_export_fixtures import decoded
from tests.support.task_export_fixtures import finetuned
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

TEXT = "Ba co <mask> fi, 9 code <mask>"
PARTS = {"seq_length_buckets": (12, LENGTH), "max_batch": 2}
# TensorFlow and the one library of ops that a server adds, and no other
# package: tensorflow_text in Python would import Keras.
LOAD_ELSEWHERE = """
import json, sys

class Without:
    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, *arguments):
        if name.split(".")[0] not in (
            "keras", "tf_keras", "tensorflow_text", "sentencepiece",
            "xlnet_tf", "data_pipeline", "saved_models",
        ):
            return self.finder.find_spec(name, *arguments)

sys.meta_path = [Without(finder) for finder in sys.meta_path]
import tensorflow as tf
text, directory, ops = sys.argv[1:]
tf.load_op_library(ops)
loaded = tf.saved_model.load(directory)
answer = loaded.signatures["fill_in"](text=tf.constant([text]))
embedded = loaded.signatures["embed"](text=tf.constant([text]))
print(json.dumps([
    answer["token_ids"].numpy().tolist(),
    answer["log_probabilities"].numpy().tolist(),
    embedded["mean_embedding"].numpy().tolist(),
]))
"""


def test_it_answers_where_nothing_of_ours_is(tmp_path):
    ops = pathlib.Path(tensorflow_text.__file__).parent
    ops /= "python/ops/_sentencepiece_tokenizer.so"
    export = pretrainers.shared_export()
    result = python("-c", LOAD_ELSEWHERE, TEXT, export, ops, cwd=tmp_path)
    ids, log_probability, mean = map(np.array, json.loads(result.stdout))
    outputs = {
        "token_ids": ids,
        "log_probabilities": log_probability,
        "count": [2],
    }
    model = pretrainers.shared_model()
    expected = pretrainers.log_probabilities(model, TEXT)
    pretrainers.check_fill_in(outputs, 0, expected)
    assert mean.shape == (1, model.config.hidden_dim)


def test_a_small_export():
    """Eight bits, in buckets and in batches."""
    served = pretrainers.shared_signatures(**pretrainers.SMALL)
    texts = [TEXT, "", "ba <mask> " * 9, "je ki"]
    unsaved = pretrainers.module_of(precision="int8")
    check_equal(
        pretrainers.ask(served["embed"], texts),
        pretrainers.ask(unsaved.embed, texts),
    )
    filled = pretrainers.ask(served["fill_in"], texts)
    assert filled["count"].tolist() == [2, 0, 9, 0]
    directory = pretrainers.shared_export(**pretrainers.SMALL)
    check_no_rows(served)
    ops = all_ops(directory)
    assert {op.removeprefix("Stateless") for op in ops} >= {"Case", "While"}
    assert TEXT_OPS <= foreign(ops) <= ALLOWED_TEXT_OPS
    check_operations(directory)


@pytest.mark.usefixtures("frozen_heap")
def test_models_with_adapters_or_integers_are_written(tmp_path):
    texts = [TEXT, "ba <mask>"]
    for name, change in (
        ("adapters", lambda model: model.enable_lora(2)),
        ("integers", lambda model: model.quantize("int8")),
    ):
        model = pretrainers.pretrainer(num_layers=1)
        change(model)
        served = pretrainers.export(model, tmp_path / name / "1")
        unsaved = pretrainers.module_of(model)
        found = pretrainers.ask(served["embed"], texts)
        check_equal(found, pretrainers.ask(unsaved.embed, texts))


def test_a_pretrainer_compiled_by_xla():
    module = pretrainers.module_of(
        seq_length_buckets=[16, pretrainers.LENGTH],
        max_batch=4,
        jit_compile=True,
    )
    plain = pretrainers.module_of()
    texts = ["ba <mask>", "", TEXT]
    check_equal(
        pretrainers.ask(module.fill_in, texts),
        pretrainers.ask(plain.fill_in, texts),
        1e-4,
    )


def test_a_compiled_export_in_bfloat16_leaves_products_to_tensorflow(tmp_path):
    """XLA gets the operations between them, in the file too."""
    model, texts = pretrainers.pretrainer(), ["ba <mask>", "", TEXT]
    served = [
        pretrainers.export(
            model, tmp_path / f"{i}", precision="bfloat16", jit_compile=compiled
        )
        for i, compiled in enumerate([False, True])
    ]
    plain, compiled = (pretrainers.ask(one["embed"], texts) for one in served)
    check_equal(compiled, plain, atol=0.1)
    nodes = all_nodes(tmp_path / "1")
    marked = {node.op for node in nodes if node.attr["_XlaCompile"].b}
    assert {"AddV2", "Mul", "Rsqrt"} <= marked
    assert not marked & {"MatMul", "Einsum", "BatchMatMulV2"}


@pytest.mark.parametrize("name", TASKS)
def test_an_export_of_a_task(name):
    ops = all_ops(shared_export(name))
    expected = ALLOWED_TEXT_OPS if name == "questions" else TEXT_OPS
    assert foreign(ops) == expected
    assert not ops & PYTHON_OPS
    check_operations(shared_export(name))
    signatures = served(name)
    check_close(
        ask(signatures["serving_default"], **raw(name)),
        ask(functions(name)["serving_default"], **raw(name)),
    )
    check_no_rows(signatures)


def check_close(found, expected):
    assert set(found) == set(expected)
    for key, value in expected.items():
        if value.dtype == object:
            np.testing.assert_array_equal(found[key], value)
        else:
            close(found[key], value)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, PARTS) for name in TASKS),
        ("classifier", {**PARTS, "jit_compile": True}),
        ("questions", {**PARTS, "jit_compile": True}),
    ],
)
def test_answers_do_not_depend_on_shapes(name, settings):
    task = shared_task(name)
    if name == "questions":
        task.null_threshold = threshold()
    signatures = made(task, **settings)
    signature = signatures["serving_default"]
    function = signature.concrete()
    check_close(
        ask(function, **raw(name)),
        ask(functions(name)["serving_default"], **raw(name)),
    )
    for example in signature.examples:
        ask(function, **{n: x.tolist() for n, x in example.items()})


@pytest.mark.parametrize("name", ["regressor", "choice", "ranker"])
def test_long_texts_are_read_in_segments(name):
    task = make(name, segment_length=SEGMENT)
    expected = predict(task, raw(name))
    found = ask(made(task)["serving_default"].concrete(), **raw(name))
    if name == "choice":
        expected = softmax(expected)
    found = found["score" if name == "regressor" else "scores"]
    if name == "ranker":
        is_there = np.array(OPTIONS) != ""
        found, expected = found[is_there], expected[is_there]
    close(found, expected)


def test_a_model_of_two_replicas(tmp_path):
    strategy = two_replicas()
    with strategy.scope():
        model = pretrainers.pretrainer(num_layers=1)
    before = pretrainers.log_probabilities(model, TEXT)
    features, blanks = pretrainers.encoded(TEXT)
    del features["target_mapping"]
    features = with_targets(features | {"target_positions": np.array([blanks])})

    def step():
        with tf.GradientTape() as tape:
            loss = model(features, training=True)["loss"]
        variables = [v.value for v in model.trainable_variables]
        context = tf.distribute.get_replica_context()
        gradients = [
            context.all_reduce("SUM", tf.convert_to_tensor(gradient))
            for gradient in tape.gradient(loss, variables)
        ]
        for variable, gradient in zip(variables, gradients, strict=True):
            variable.assign_sub(0.1 * gradient)

    strategy.run(step)
    expected = pretrainers.log_probabilities(model, TEXT)
    assert np.abs(expected - before).max() > 1e-2
    signatures = pretrainers.export(model, tmp_path / "1")
    answer = pretrainers.ask(signatures["fill_in"], [TEXT])
    pretrainers.check_fill_in(answer, 0, expected)


def exported(directory, *options):
    """The default signature of `python -m saved_models.export`."""
    output = directory.parent / "served"
    command = ["-m", "saved_models.export", "--model", directory]
    result = python(*command, "--output", output, *options)
    assert result.stdout == f"wrote {output / '1'}\n"
    signatures = pretrainers.signatures_of(output / "1")
    return signatures["serving_default"]


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


def test_a_run_is_exported_as_it_predicted_answers(tmp_path):
    lengths = {"sequence_length": 24, "max_question_length": 8, "stride": 8}
    directory, data, predicted = finetuned(tmp_path, "squad-2.0", **lengths)
    function = exported(directory)
    held_out = json.loads((data / "dev-v2.0.json").read_text())["data"][0]
    answers = ask(
        function,
        context=[x["context"] for x in held_out["paragraphs"]],
        question=[x["qas"][0]["question"] for x in held_out["paragraphs"]],
    )
    assert decoded(answers["answer"]) == [x["answer"] for x in predicted]
    odds = [x["no_answer_odds"] for x in predicted]
    close(answers["null_score"], odds)
