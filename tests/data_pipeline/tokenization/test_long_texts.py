"""Long texts: time linear in the length, and the ids of the whole text."""

import random

import pytest

from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.graph import GraphTokenizer
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import released_tokenizers
from tests.support.samples import tiny_model
from tests.torture.long_texts import MODELS
from tests.torture.long_texts import PARTS
from tests.torture.long_texts import slow_ways

TEXT_PARTS = [
    part for parts in PARTS.values() for part in parts if isinstance(part, str)
]


def check(tokenizer, texts):
    """Ids and offsets of the graph against the tokenizer in Python."""
    graph = GraphTokenizer(tokenizer, is_traced=True)
    rows = zip(
        texts,
        graph(texts).to_list(),
        *(rows.to_list() for rows in graph.tokenize_with_offsets(texts)),
        strict=True,
    )
    for text, plain, ids, begins, ends in rows:
        found = ids, list(zip(begins, ends, strict=True))
        assert found == tokenizer.encode_with_offsets(text), text[:99]
        assert plain == ids == tokenizer.encode(text), text[:99]


@pytest.mark.parametrize("kind", PARTS)
def test_time_is_linear(kind):
    tokenizer = Tokenizer.from_model_proto(tiny_model())
    assert not list(slow_ways(tokenizer, PARTS[kind][0]))


def test_time_is_linear_with_the_released_vocabulary(shared):
    tokenizer = released_tokenizers(shared)[0]
    assert not list(slow_ways(tokenizer, "\0"))


def test_time_is_linear_with_pieces_that_are_blanks():
    model = tiny_model(**MODELS["blocks are letters"])
    tokenizer = Tokenizer.from_model_proto(model)
    assert not list(slow_ways(tokenizer, "\u2581"))


@pytest.mark.parametrize(
    "name",
    ["small", "no commas, digits or quotes", "bytes", "byte pairs"],
)
def test_runs_of_all_kinds_are_split_as_in_python(name):
    """Whatever stands where long words are cut."""
    tokenizer = Tokenizer.from_model_proto(tiny_model(**MODELS[name]))
    draw = random.Random(8)
    texts = []
    for _ in range(20):
        parts = [draw.choice(TEXT_PARTS)] * draw.choice([256, 300, 1024])
        for _ in range(draw.randint(0, 6)):
            place = draw.choice([0, 254, 255, 256, 257, len(parts)])
            parts.insert(place, draw.choice(TEXT_PARTS))
        texts.append("".join(parts))
        texts.append("".join(draw.choices(draw.sample(TEXT_PARTS, 4), k=900)))
    check(tokenizer, texts)


def test_letters_that_compose_to_a_known_one_are_not_cut_apart():
    """The vocabulary has the syllable, and none of its letters."""
    tokenizer = Tokenizer.from_model_proto(tiny_model())
    letters = "\u1112\u1161\u11ab"
    assert tokenizer.piece_to_id("\ud55c") > 0
    assert tokenizer.encode(letters)[-1] == tokenizer.piece_to_id("\ud55c")
    check(tokenizer, [letters * 700, f"a{letters * 700}\u1112"])


def test_unknown_words_are_one_piece_however_many_they_are():
    """In a model of words, which has no piece for the blank."""
    model = tiny_model(model_type="word", vocab_size=60)
    tokenizer = Tokenizer.from_model_proto(model)
    texts = ["xy zq " * 200, "\u5b57 " * 300, "xy 9, \u5b57"]
    check(tokenizer, texts)
    assert tokenizer.encode(texts[0]) == [0]


@pytest.mark.parametrize(
    "kind", [model_file.NORMAL, model_file.CONTROL, model_file.USER_DEFINED]
)
def test_a_piece_may_be_called_like_a_byte(kind):
    model = model_file.ModelProto.FromString(tiny_model())
    model.pieces[-1].piece, model.pieces[-1].type = "<0x41>", kind
    tokenizer = Tokenizer.from_model_proto(model.SerializeToString())
    check(tokenizer, ["\u5b57" * 3000, "a<0x41>\u5b57A\u5b57 <0x42>"])
