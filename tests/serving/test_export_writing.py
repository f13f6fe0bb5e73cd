"""What an export is made of, what it needs, and that it appears whole."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text
from tensorflow.core.protobuf import saved_model_pb2

from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models.export import export_model
from saved_models.settings import ExportSettings
from saved_models.signatures import PretrainerSignatures
from saved_models.versions import latest_version
from saved_models.versions import next_version
from tests.serving.test_export_settings import SMALL
from tests.support.export_fixtures import CANDIDATES
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import check_fill_in
from tests.support.export_fixtures import export
from tests.support.export_fixtures import log_probabilities
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import shared_export
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.samples import tiny_model

TEXT = "Ba co <mask> fi, 9 code <mask>"
# What TensorFlow Serving's copy of TensorFlow Text is sure to have; the third
# is of the same library, for exports that answer with places in the text.
TEXT_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp"}
ALLOWED_TEXT_OPS = TEXT_OPS | {"SentencepieceTokenizeWithOffsetsOp"}
PYTHON_OPS = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}

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


@pytest.fixture(scope="module")
def model():
    return shared_model()


@pytest.fixture
def without_graphs(monkeypatch):
    """Makes an export quick: a file of one word for the graph."""

    def save(module, path, functions):
        assert functions == {}
        tf.io.gfile.makedirs(path)
        tf.io.write_file(f"{path}/saved_model.pb", "graph")

    monkeypatch.setattr(PretrainerSignatures, "signatures", lambda self: {})
    monkeypatch.setattr(tf.saved_model, "save", save)


def all_ops(directory):
    """Names of the ops in the graph and in all functions of it."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((directory / "saved_model.pb").read_bytes())
    (meta_graph,) = saved.meta_graphs
    graph = meta_graph.graph_def
    nodes = [
        *graph.node,
        *(n for f in graph.library.function for n in f.node_def),
    ]
    own = {function.signature.name for function in graph.library.function}
    return {node.op for node in nodes} - own


def foreign(ops):
    """Those that TensorFlow's own library does not list."""
    return {
        op
        for op in ops
        if ">" in op or "Sentencepiece" in op or not hasattr(tf.raw_ops, op)
    }


@pytest.mark.parametrize(
    ("settings", "more"),
    [
        ({}, set()),
        pytest.param(SMALL, {"Case", "While"}, marks=pytest.mark.slow),
    ],
)
def test_only_ops_that_a_server_has(settings, more):
    ops = all_ops(shared_export(**settings))
    assert {"Einsum", "GatherV2", "Erf", "Tanh"} & ops  # functions were read
    assert {op.removeprefix("Stateless") for op in ops} >= more
    assert TEXT_OPS <= foreign(ops) <= ALLOWED_TEXT_OPS
    assert not ops & PYTHON_OPS


def test_foreign_ops_would_be_seen(tmp_path):
    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def call(self, text):
            words = tensorflow_text.WhitespaceTokenizer().tokenize(text)
            return tf.numpy_function(len, [words.flat_values], tf.int64)

    tf.saved_model.save(Module(), tmp_path / "1")
    ops = all_ops(tmp_path / "1")
    assert any(op.startswith("TFText>") for op in foreign(ops))
    assert ops & PYTHON_OPS


def test_it_answers_where_nothing_of_ours_is(tmp_path, model):
    ops = pathlib.Path(tensorflow_text.__file__).parent
    ops /= "python/ops/_sentencepiece_tokenizer.so"
    result = subprocess.run(
        [sys.executable, "-c", LOAD_ELSEWHERE, TEXT, shared_export(), ops],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    ids, log_probability, mean = map(np.array, json.loads(result.stdout))
    outputs = {
        "token_ids": ids,
        "log_probabilities": log_probability,
        "count": [2],
    }
    check_fill_in(outputs, 0, log_probabilities(model, TEXT))
    assert mean.shape == (1, model.config.hidden_dim)


def test_mixed_bfloat16():
    model = pretrainer("mixed_bfloat16", num_layers=1)
    module = PretrainerSignatures(
        model, tiny_tokenizer(), ExportSettings(LENGTH, CANDIDATES)
    )
    outputs = as_numpy(tf.function(module.fill_in)(tf.constant([TEXT])))
    assert outputs["log_probabilities"].dtype == np.float32
    # bfloat16 keeps 8 bits, and a graph rounds fewer times than Python does.
    check_fill_in(outputs, 0, log_probabilities(model, TEXT), tolerance=0.1)


@pytest.mark.parametrize("part", ["model", "backbone", "token_embedding"])
def test_weights_that_do_not_learn_are_exported(
    tmp_path, monkeypatch, without_graphs, part
):
    model = pretrainer(num_layers=1)
    expected = log_probabilities(model, TEXT)
    {
        "model": model,
        "backbone": model.backbone,
        "token_embedding": model.backbone.token_embedding,
    }[part].trainable = False
    saved = []
    monkeypatch.setattr(
        tf.saved_model, "save", lambda module, *_: saved.append(module)
    )
    with pytest.raises(FileNotFoundError):  # for nothing was written
        export(model, tmp_path / "1")
    (module,) = saved
    answer = module.fill_in(tf.constant([TEXT]))
    outputs = {name: value.numpy() for name, value in answer.items()}
    check_fill_in(outputs, 0, expected)


def test_a_server_sees_the_old_version_or_the_whole_new_one(
    tmp_path, monkeypatch, model, without_graphs
):
    name = tmp_path / "tiny"
    export_model(model, tiny_tokenizer(), next_version(name))
    seen = []

    def look(module, path, functions):
        tf.io.gfile.makedirs(path)
        seen.append(latest_version(name))
        tf.io.write_file(f"{path}/saved_model.pb", "new graph")
        seen.append(latest_version(name))

    monkeypatch.setattr(tf.saved_model, "save", look)
    export_model(model, tiny_tokenizer(), next_version(name))
    assert seen == [name / "1"] * 2
    assert latest_version(name) == name / "2"
    assert sorted(f.name for f in (name / "2").rglob("*")) == [
        "assets.extra",
        "model_card.json",
        "saved_model.pb",
        "tf_serving_warmup_requests",
    ]


def test_it_appears_whole_under_its_name(tmp_path, model, without_graphs):
    path = export_model(model, tiny_tokenizer(), tmp_path / "new" / "7")
    assert path == tmp_path / "new" / "7"
    assert (path / "saved_model.pb").read_text() == "graph"
    assert [p.name for p in path.parent.iterdir()] == ["7"]


@pytest.mark.parametrize("error", [OSError, KeyboardInterrupt])
@pytest.mark.parametrize("overwrite", [False, True])
def test_what_is_half_written_is_removed(
    tmp_path, monkeypatch, model, without_graphs, error, overwrite
):
    directory = tmp_path / "1"
    if overwrite:
        directory.mkdir()
        (directory / "saved_model.pb").write_text("before")
    save, halves = tf.saved_model.save, []

    def stop(module, path, functions):
        save(module, path, functions)
        halves.append(path)
        assert tf.io.gfile.exists(path)
        raise error("stopped")

    monkeypatch.setattr(tf.saved_model, "save", stop)
    with pytest.raises(error, match="stopped"):
        export_model(model, tiny_tokenizer(), directory, overwrite=overwrite)
    assert halves and halves != [str(directory)]
    left = [p.relative_to(tmp_path) for p in tmp_path.rglob("*")]
    assert len(left) == (2 if overwrite else 0)
    if overwrite:
        assert (directory / "saved_model.pb").read_text() == "before"


def test_an_existing_version_is_kept_or_replaced(
    tmp_path, model, without_graphs
):
    directory = tmp_path / "1"
    directory.mkdir()
    (directory / "old").write_text("old")
    with pytest.raises(FileExistsError, match="1 exists. Give the next ver"):
        export_model(model, tiny_tokenizer(), directory)
    assert (directory / "old").read_text() == "old"
    export_model(model, tiny_tokenizer(), directory, overwrite=True)
    assert not (directory / "old").exists()
    assert (directory / "saved_model.pb").is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["1"]


@pytest.mark.parametrize(
    ("name", "settings", "message"),
    [
        ("demo", {}, "must end in a version number.*demo/1"),
        ("1.0", {}, "must end in a version number"),
        ("-1", {}, "must end in a version number"),
        ("\u00b2", {}, "must end in a version number"),
        ("1", {"sequence_length": 2}, "must be at least 3.*sequence_length=2"),
        ("1", {"seq_length_buckets": [2, 8]}, "every bucket must be at least"),
        ("1", {"seq_length_buckets": [9, 8]}, "`seq_length_buckets` must rise"),
        (
            "1",
            {"seq_length_buckets": [8, 9], "sequence_length": 10},
            "the largest bucket must be `sequence_length`",
        ),
        ("1", {"precision": "int4"}, "`precision` must be one of float32, "),
        ("1", {"max_batch": 0}, "`max_batch` must be at least 1"),
        ("1", {"memory_length": -1}, "`memory_length` must be at least 0"),
        ("1", {"num_candidates": 0}, "`num_candidates` must be between 1 and"),
        ("1", {"num_candidates": 301}, "vocabulary's size, 300.*301"),
    ],
)
def test_settings_are_checked_before_anything_is_written(
    tmp_path, model, without_graphs, name, settings, message
):
    with pytest.raises(ValueError, match=message):
        export_model(model, tiny_tokenizer(), tmp_path / name, **settings)
    assert not list(tmp_path.iterdir())


def test_the_tokenizer_must_be_the_models(tmp_path, model, without_graphs):
    other = Tokenizer.from_model_proto(tiny_model(vocab_size=290))
    with pytest.raises(
        ValueError, match="tokenizer has 290 pieces and the model 300 tokens"
    ):
        export_model(model, other, tmp_path / "1")
    assert not list(tmp_path.iterdir())
