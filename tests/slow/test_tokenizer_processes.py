"""Tokenizers in processes that lack some of the libraries."""

import json
import os
import subprocess
import sys

import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.hugging_face import write_tokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.conftest import ROOT
from tests.support.commands import python
from tests.support.samples import TEXTS
from tests.support.samples import tiny_model

# What TensorFlow Serving's copy of TensorFlow Text is sure to have.
TEXT_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp"}
LOAD = """
import json, pathlib, sys
import tensorflow as tf, tensorflow_text
here = pathlib.Path(__file__).parent
texts = tf.constant(json.loads((here / "texts.json").read_text()))
loaded = tf.saved_model.load(str(here / "saved"))
ids = loaded.encode(texts).numpy().tolist()
offsets = [x.numpy().tolist() for x in loaded.encode_with_offsets(texts)]
assert "data_pipeline" not in sys.modules
(here / "found.json").write_text(json.dumps([ids, offsets]))
"""


def test_sample_is_the_same_in_every_process(tmp_path):
    code = (
        "from data_pipeline.train_tokenizer import train_tokenizer\n"
        "from tests.support.samples import tiny_sentences\n"
        "print(train_tokenizer(tiny_sentences(), 'x.model', 200, "
        "sentence_limit=300).digest)\n"
    )
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", code]
    found = {
        subprocess.check_output(command, cwd=tmp_path, env=env)
        for _ in range(3)
    }
    assert len(found) == 1


def test_saved_and_loaded_in_a_fresh_process(tmp_path):
    tokenizer = Tokenizer.from_model_proto(tiny_model(), lowercase=True)
    graph = GraphTokenizer(tokenizer)
    module = tf.Module()
    module.graph = graph
    signature = [tf.TensorSpec([None], tf.string)]

    @tf.function(input_signature=signature)
    def encode(texts):
        return graph(texts).to_tensor()

    @tf.function(input_signature=signature)
    def encode_with_offsets(texts):
        return [x.to_tensor() for x in graph.tokenize_with_offsets(texts)]

    module.encode = encode
    tf.saved_model.save(module, tmp_path / "ids")
    assert foreign_ops(tmp_path / "ids") == TEXT_OPS
    module.encode_with_offsets = encode_with_offsets
    tf.saved_model.save(module, tmp_path / "saved")
    assert foreign_ops(tmp_path / "saved") == TEXT_OPS | {
        "SentencepieceTokenizeWithOffsetsOp"
    }

    texts = [text for text in TEXTS if text.isprintable()]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    (tmp_path / "load.py").write_text(LOAD)
    python("load.py", cwd=tmp_path)
    plain, (rows, begins, ends) = json.loads(
        (tmp_path / "found.json").read_text()
    )
    assert plain == rows
    for row, text in enumerate(texts):
        ids, offsets = tokenizer.encode_with_offsets(text)
        size = len(ids)
        assert rows[row][:size] == ids
        assert not any(rows[row][size:])
        spans = zip(begins[row][:size], ends[row][:size], strict=True)
        assert list(spans) == offsets


def test_needs_no_other_library(tmp_path):
    write_tokenizer(Tokenizer.from_model_proto(tiny_model()), tmp_path)
    code = (
        "import sys\n"
        "for name in ('torch', 'transformers', 'tokenizers', 'tensorflow'):\n"
        "    sys.modules[name] = None\n"
        "from data_pipeline.tokenization import hugging_face as module\n"
        "import os\n"
        "os.unlink(sys.argv[1] + '/spiece.model')\n"
        "tokenizer = module.read_tokenizer(sys.argv[1])\n"
        "module.write_tokenizer(tokenizer, sys.argv[1])\n"
    )
    python("-c", code, tmp_path)
    assert (tmp_path / "spiece.model").is_file()


def foreign_ops(path):
    """Names of the ops that TensorFlow's own library does not list."""
    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((path / "saved_model.pb").read_bytes())
    graph_def = saved.meta_graphs[0].graph_def
    nodes = list(graph_def.node)
    for function in graph_def.library.function:
        nodes.extend(function.node_def)
    names = {node.op for node in nodes}
    names -= {f.signature.name for f in graph_def.library.function}
    assert not names & {"PyFunc", "EagerPyFunc", "PyFuncStateless"}
    return {
        name
        for name in names
        if name.startswith(("TFText", "Sentencepiece"))
        or not hasattr(tf.raw_ops, name)
    }
