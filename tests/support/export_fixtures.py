"""A tiny pretrainer with a tiny tokenizer, its exports and its answers."""

import functools
import os
import pathlib
import tempfile

import filelock
import numpy as np
import tensorflow as tf
import tensorflow_text  # noqa: F401  registers SentencePiece's ops
from tensorflow.core.protobuf import saved_model_pb2

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import SPECIAL_IDS
from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models.client.operations import check_operations
from saved_models.export import export_model
from saved_models.settings import ExportSettings
from saved_models.signatures import signatures_for
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.samples import tiny_model
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer

LENGTH, CANDIDATES, PIECES = 47, 4, 300
# for float32 sums in another order, of logarithms of about 5
TOLERANCE = 1e-5
# Ops that TensorFlow Serving's copy of TensorFlow Text certainly has; the third
# is from the same library, for exports that return offsets.
TEXT_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp"}
ALLOWED_TEXT_OPS = TEXT_OPS | {"SentencepieceTokenizeWithOffsetsOp"}
PYTHON_OPS = {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
# Eight bits, in buckets and batches.
SMALL = {
    "seq_length_buckets": (16, LENGTH),
    "max_batch": 3,
    "precision": "int8",
}


@functools.cache
def tiny_tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


def pretrainer(dtype=None, **overrides):
    config = tiny_config(vocabulary_size=PIECES, **overrides)
    return randomize(XLNetPretrainer(XLNetBackbone(config, dtype=dtype)))


@functools.cache
def shared_model():
    """Model of one layer, which tests must not change."""
    return pretrainer(num_layers=1)


def module_of(model=None, **settings):
    """The signatures of a model as Python functions, without a SavedModel."""
    settings = {
        "sequence_length": LENGTH,
        "num_candidates": CANDIDATES,
        **settings,
    }
    model = model or shared_model()
    settings = ExportSettings(**settings).for_model(model)
    return signatures_for(model)(model, tiny_tokenizer(), settings)


def export(model, directory, **settings):
    """Write a SavedModel, check and load it, and return its signatures."""
    settings = {
        "sequence_length": LENGTH,
        "num_candidates": CANDIDATES,
        **settings,
    }
    export_model(model, tiny_tokenizer(), directory, **settings)
    check_operations(directory)
    return signatures_of(directory)


def artefact(tmp_path_factory, name, write):
    """Make a directory once, by `write(path)`, for all pytest workers."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    folder = base / "exports" / name
    folder.mkdir(parents=True, exist_ok=True)
    with filelock.FileLock(folder / "lock"):
        if not (folder / "whole").exists():
            write(folder)
            (folder / "whole").touch()
    return folder


@functools.cache
def _exports():
    return tempfile.TemporaryDirectory()  # removed when the tests end


@functools.cache
def shared_export(**settings):
    """The SavedModel of `shared_model`; for slow tests."""
    place = pathlib.Path(tempfile.mkdtemp(dir=_exports().name)) / "tiny" / "3"
    export(shared_model(), place, **settings)
    return place


@functools.cache
def shared_signatures(**settings):
    return signatures_of(shared_export(**settings))


def signatures_of(directory):
    return tf.saved_model.load(str(directory)).signatures


def ask(function, texts):
    return as_numpy(function(text=tf.constant(texts, tf.string)))


def encoded(text):
    """Features of a text, as in the released code, and the blanks' places."""
    ids = []
    for number, part in enumerate(text.split("<mask>")):
        ids += [MASK_ID] * (number > 0) + tiny_tokenizer().encode(part)
    ids = [*ids[: LENGTH - 2], SEP_ID, CLS_ID]
    blanks = [place for place, token in enumerate(ids) if token == MASK_ID]
    features = {
        "token_ids": np.array([ids]),
        "segment_ids": np.array([[0] * (len(ids) - 1) + [2]]),
    }
    if blanks:
        # No token sees a blank, and each blank is a target.
        features["perm_mask"] = np.zeros((1, len(ids), len(ids)))
        features["perm_mask"][:, :, blanks] = 1
        features["target_mapping"] = np.eye(len(ids))[None, blanks]
    return features, blanks


def log_probabilities(model, text):
    """Log-probabilities [blanks, V], by NumPy from the model itself."""
    query = model(encoded(text)[0])["query"]
    logits = as_numpy(model.logits(query))[0].astype("float64")
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def check_fill_in(outputs, row, expected, tolerance=TOLERANCE):
    """Check that `row` has the best entries of `expected` that are text."""
    assert outputs["count"][row] == len(expected)
    expected = np.array(expected)
    expected[:, list(SPECIAL_IDS.values())] = -np.inf
    for blank, of_vocabulary in enumerate(expected):
        best = np.sort(of_vocabulary)[::-1][:CANDIDATES]
        answer = outputs["log_probabilities"][row, blank]
        np.testing.assert_allclose(answer, best, atol=tolerance, rtol=0)
        ids = outputs["token_ids"][row, blank]
        np.testing.assert_allclose(of_vocabulary[ids], best, atol=tolerance)


def all_ops(directory):
    """Names of the ops in the graph and in all its functions."""
    library = graph_of(directory).library
    own = {function.signature.name for function in library.function}
    return {node.op for node in all_nodes(directory)} - own


def graph_of(directory):
    """GraphDef of a SavedModel."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((directory / "saved_model.pb").read_bytes())
    (meta_graph,) = saved.meta_graphs
    return meta_graph.graph_def


def all_nodes(directory):
    """list of NodeDef, the nodes of the graph and of all its functions."""
    graph = graph_of(directory)
    return [
        *graph.node,
        *(n for f in graph.library.function for n in f.node_def),
    ]


def foreign(ops):
    """Ops that TensorFlow itself does not contain."""
    return {
        op
        for op in ops
        if ">" in op or "Sentencepiece" in op or not hasattr(tf.raw_ops, op)
    }


def check_no_rows(signatures):
    for name, function in signatures.items():
        _, specs = function.structured_input_signature
        empty = {
            key: tf.zeros([0, *(x or 5 for x in spec.shape[1:])], spec.dtype)
            for key, spec in specs.items()
        }
        for output in function(**empty).values():
            assert len(output) == 0, name


def check_equal(answer, expected, atol=1e-5):
    assert set(answer) == set(expected)
    for name, value in expected.items():
        assert answer[name].shape == value.shape, name
        assert answer[name].dtype == value.dtype, name
        if value.dtype == object:
            np.testing.assert_array_equal(answer[name], value)
        else:
            np.testing.assert_allclose(answer[name], value, atol=atol)
