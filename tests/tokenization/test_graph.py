"""The tokenizer as a graph: the same ids, in core ops, in a fresh process."""

import json
import subprocess
import sys
import unicodedata

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.core.protobuf import saved_model_pb2

from data_pipeline.tokenization import graph as graph_tokenizer
from data_pipeline.tokenization.cleaning import preprocess
from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.graph import agreement
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import TEXTS
from tests.support.samples import random_texts
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences

# What TensorFlow Serving's copy of TensorFlow Text is sure to have.
TEXT_OPS = {"SentencepieceOp", "SentencepieceTokenizeOp"}
SIGNATURE = [tf.TensorSpec([None], tf.string)]


@pytest.fixture(scope="module")
def model_proto():
    return tiny_model()


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "uncased"])
def tokenizer(request, model_proto):
    return Tokenizer.from_model_proto(model_proto, lowercase=request.param)


@pytest.fixture(scope="module")
def graph(tokenizer):
    return GraphTokenizer(tokenizer)


def preprocessed(graph, texts):
    texts = tf.constant([text.encode() for text in texts])
    return [text.decode() for text in graph._normalize(texts).numpy()]


def test_agrees_on_texts(tokenizer):
    texts = [*TEXTS, *tiny_sentences(100)]
    assert agreement(tokenizer, texts, batch_size=7) == []


def test_agrees_on_random_texts(tokenizer):
    texts = list(random_texts(4000, seed=2))
    differences = agreement(tokenizer, texts)
    assert [texts[position] for position in differences] == []


def test_agrees_on_released_texts(shared):
    reference = shared / "reference" / "tokenization.json"
    model = shared / "data" / "spiece" / "spiece.model"
    if not reference.is_file() or not model.is_file():
        pytest.skip("there are no released texts beside the project")
    examples = json.loads(reference.read_text(encoding="utf-8"))
    for lowercase in (False, True):
        graph = GraphTokenizer(Tokenizer(model, lowercase))
        group = [e for e in examples if e["uncased"] == lowercase]
        ids = graph([e["text"] for e in group]).to_list()
        assert ids == [e["ids"] for e in group]
        assert len(group) == 162
        texts = list(random_texts(1000, seed=4))
        assert agreement(Tokenizer(model, lowercase), texts) == []


def test_preprocesses_texts(tokenizer, graph):
    # SentencePiece hides some of what differs here, with most models.
    texts = [*(t for t in TEXTS if "\ud800" not in t), *random_texts(1000, 8)]
    expected = [preprocess(text, tokenizer.lowercase) for text in texts]
    assert preprocessed(graph, texts) == expected


def test_preprocesses_every_character(tokenizer, graph):
    codes = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
    everything = "x" + "".join(map(chr, codes)) + "x"
    expected = preprocess(everything, tokenizer.lowercase)
    assert preprocessed(graph, [everything]) == [expected]


def test_preprocesses_each_character_beside_a_sigma(tokenizer, graph):
    # Sigma looks at its neighbours; all characters with case and a sample of
    # the others take each place.
    codes = [
        code
        for code in range(0x20000)
        if not 0xD800 <= code <= 0xDFFF
        and (
            code % 61 == 0
            or chr(code) != chr(code).swapcase()
            or unicodedata.category(chr(code)) in ("Mn", "Lm", "Sk", "Cf", "Lt")
        )
    ]
    texts = [
        form.format(chr(code))
        for code in codes
        for form in ("A\u03a3{}", "A\u03a3{}A", "{}\u03a3", "A{}\u03a3")
    ]
    texts += ["\u03a3", "A\u03a3", "\u03a3A", "A\u03a3\u03a3", "A''\u03a3''"]
    expected = [preprocess(text, tokenizer.lowercase) for text in texts]
    assert preprocessed(graph, texts) == expected


def test_rows_do_not_meet(graph):
    # A sigma that ends a row must not look at the next one.
    rows = ["aaΣ", "a", "Σ", "aaΣ", "", "\u00adΣ", "Σ"]
    together = graph(rows).to_list()
    assert together == [graph([row]).to_list()[0] for row in rows]


@pytest.mark.parametrize(
    "data",
    [
        b"a\xffb",
        b"\xe2\x82",
        b"\xf0\x90\x80 x",
        b"\xed\xa0\x80x",
        b"\xc0\x80",
        b"\xf4\x90\x80\x80",
        b"a \xe2\x80 \xc2\xa0b",
        b"\xc3\x28 caf\xc3\xa9",
        bytes(range(256)),
    ],
)
def test_invalid_bytes_are_replaced(tokenizer, graph, data):
    expected = tokenizer.encode(data.decode("utf-8", errors="replace"))
    assert graph([data]).to_list() == [expected]


def test_random_bytes_do_not_crash(tokenizer, graph):
    generator = np.random.default_rng(5)
    rows = [generator.bytes(n) for n in generator.integers(0, 99, 300)]
    expected = [
        tokenizer.encode(row.decode("utf-8", "replace")) for row in rows
    ]
    assert graph(rows).to_list() == expected


def test_no_rows_and_empty_rows(graph):
    ids = graph(tf.zeros([0], tf.string))
    assert ids.dtype == tf.int32
    assert ids.shape.as_list() == [0, None]
    assert graph(["", " ", "\u3000"]).to_list() == [[], [], []]


def test_long_texts(tokenizer, graph):
    sentences = list(tiny_sentences(600))
    blanks = " ".join(sentences * 25)[: 1 << 20]
    one_word = "".join(sentences[0].split()) * 1000
    accents = "größer " * 50_000
    for text in (blanks, accents, "\u0301" * 100_000, " " * (1 << 20)):
        assert graph([text]).to_list() == [tokenizer.encode(text)]
    assert len(graph([one_word]).to_list()[0]) > 1000


def test_in_functions_and_data_sets(tokenizer, graph):
    texts = list(random_texts(20, seed=6))
    expected = tokenizer.encode_batch(texts)
    texts = [text.encode() for text in texts]
    function = tf.function(graph, input_signature=SIGNATURE)
    assert function(tf.constant(texts)).to_list() == expected
    data = tf.data.Dataset.from_tensor_slices(texts).batch(6).map(graph)
    assert [ids for batch in data for ids in batch.to_list()] == expected


def test_comma_in_unknown_pieces():
    tokenizer = Tokenizer.from_model_proto(tiny_model(drop=",", symbols=()))
    texts = ["犭,", "犭\u0663,", "x \u0663, 9, ,", "犭犬\u0663,a", "", "3,"]
    assert agreement(tokenizer, texts) == []
    assert agreement(tokenizer, list(random_texts(1000, seed=7))) == []


def test_pieces_across_blanks_are_not_cut():
    symbol = "ba\u2581co"
    model = tiny_model(symbols=(symbol,), split_by_whitespace=False)
    tokenizer = Tokenizer.from_model_proto(model)
    assert not tokenizer.cuts_at_blanks
    text = "fi " + "ba co " * 300
    ids = GraphTokenizer(tokenizer)([text]).to_list()[0]
    assert ids == tokenizer.encode(text)
    assert ids.count(tokenizer.piece_to_id(symbol)) == 300


def test_tables_are_small(graph):
    tables = [
        table
        for name, tables in vars(graph._normalize).items()
        if name
        in ("_decompositions", "_decomposed", "_lower", "_kinds", "_blanks")
        for table in tables
    ]
    assert sum(table.numpy().nbytes for table in tables) < 1 << 20


def test_rank_is_checked(graph):
    with pytest.raises(ValueError, match="rank 1"):
        graph("a single text")


@pytest.mark.slow
def test_saved_and_loaded_in_a_fresh_process(tmp_path, model_proto):
    tokenizer = Tokenizer.from_model_proto(model_proto, lowercase=True)
    graph = GraphTokenizer(tokenizer)
    module = tf.Module()
    module.graph = graph
    module.encode = tf.function(
        lambda texts: graph(texts).to_tensor(), input_signature=SIGNATURE
    )
    tf.saved_model.save(module, tmp_path / "saved")
    texts = [text for text in TEXTS if text.isprintable()]
    (tmp_path / "texts.json").write_text(json.dumps(texts))
    (tmp_path / "load.py").write_text(
        "import json, pathlib, sys\n"
        "import tensorflow as tf, tensorflow_text\n"
        "here = pathlib.Path(__file__).parent\n"
        "texts = json.loads((here / 'texts.json').read_text())\n"
        "encode = tf.saved_model.load(str(here / 'saved')).encode\n"
        "ids = encode(tf.constant(texts)).numpy().tolist()\n"
        "assert 'data_pipeline' not in sys.modules\n"
        "(here / 'ids.json').write_text(json.dumps(ids))\n"
    )
    subprocess.run(
        [sys.executable, "load.py"],
        check=True,
        cwd=tmp_path,
        capture_output=True,
    )
    loaded = json.loads((tmp_path / "ids.json").read_text())
    for text, ids in zip(texts, loaded, strict=True):
        expected = tokenizer.encode(text)
        assert ids[: len(expected)] == expected
        assert not any(ids[len(expected) :])

    saved = saved_model_pb2.SavedModel()
    saved.ParseFromString((tmp_path / "saved/saved_model.pb").read_bytes())
    assert foreign_ops(saved.meta_graphs[0].graph_def) == TEXT_OPS


def foreign_ops(graph_def):
    """Names of the ops that TensorFlow's own library does not list."""
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


def test_agreement_names_the_lines_that_differ(tokenizer, monkeypatch):
    monkeypatch.setattr(
        GraphTokenizer, "_split_commas", lambda self, ids, chunks: (ids,)
    )
    texts = ["ba co", "in 1, 9, code", "ba"]
    assert agreement(tokenizer, texts) == [1]


def test_command(tmp_path, capsys, model_proto):
    (tmp_path / "spiece.model").write_bytes(model_proto)
    (tmp_path / "text.txt").write_text(
        "\n".join(tiny_sentences(20)), encoding="utf-8"
    )
    arguments = ["--tokenizer", str(tmp_path / "spiece.model")]
    arguments += ["--input", str(tmp_path / "*.txt"), "--lowercase"]
    assert graph_tokenizer.main(arguments) == 0
    assert "20 lines, 0 differ, 100.0000% agree" in capsys.readouterr().out


def test_a_seed_that_is_set_takes_no_tokenizer_away():
    tokenizer = Tokenizer.from_model_proto(tiny_model())
    text = next(iter(tiny_sentences(1)))
    first, second = GraphTokenizer(tokenizer), GraphTokenizer(tokenizer)
    data = tf.data.Dataset.from_tensors([text]).map(first)
    tf.random.set_seed(1)
    for graph in (first, second):
        assert graph([text])[0].numpy().tolist() == tokenizer.encode(text)
    del first, second, graph
    assert next(iter(data))[0].numpy().tolist() == tokenizer.encode(text)
