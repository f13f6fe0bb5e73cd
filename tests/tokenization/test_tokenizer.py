"""The tokenizer: released ids, exact offsets, errors that help."""

import hashlib
import json
import pickle
import random

import numpy as np
import pytest

from data_pipeline.tokenization import symbols
from data_pipeline.tokenization.cleaning import align
from data_pipeline.tokenization.cleaning import preprocess
from data_pipeline.tokenization.cleaning import split_comma
from data_pipeline.tokenization.cleaning import strip_accents
from data_pipeline.tokenization.symbols import SPECIAL_SYMBOLS
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import TEXTS
from tests.support.samples import random_texts
from tests.support.samples import released_ids
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences


@pytest.fixture(scope="module")
def model_proto():
    return tiny_model()


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "uncased"])
def tokenizer(request, model_proto):
    return Tokenizer.from_model_proto(model_proto, lowercase=request.param)


@pytest.fixture(scope="module")
def samples():
    return [*TEXTS, *tiny_sentences(50), *random_texts(1500, seed=1)]


def released_texts(shared):
    reference = shared / "reference" / "tokenization.json"
    model = shared / "data" / "spiece" / "spiece.model"
    for path in (reference, model):
        if not path.is_file():
            pytest.skip(f"there is no {path.name} beside the project")
    tokenizers = [Tokenizer(model, lowercase) for lowercase in (False, True)]
    for example in json.loads(reference.read_text(encoding="utf-8")):
        yield tokenizers[example["uncased"]], example


def test_released_ids(shared):
    count = 0
    for tokenizer, example in released_texts(shared):
        ids, offsets = tokenizer.encode_with_offsets(example["text"])
        assert tokenizer.encode(example["text"]) == example["ids"]
        assert ids == example["ids"]
        assert len(offsets) == len(ids)
        count += 1
    assert count == 324


def test_released_ids_in_batches(shared):
    examples = list(released_texts(shared))
    for lowercase in (False, True):
        group = [e for t, e in examples if t.lowercase == lowercase]
        tokenizer = next(t for t, _ in examples if t.lowercase == lowercase)
        ids = tokenizer.encode_batch([e["text"] for e in group])
        assert ids == [e["ids"] for e in group]
        flat, lengths = tokenizer.encode_flat([e["text"] for e in group])
        assert flat.tolist() == sum(ids, [])
        assert lengths.tolist() == [len(row) for row in ids]


def test_equals_the_plain_writing(tokenizer, samples):
    for text in samples[:400]:
        expected = released_ids(
            tokenizer.model_proto, text, tokenizer.lowercase
        )
        assert tokenizer.encode(text) == expected, repr(text)


def test_batch_and_offsets_give_the_same_ids(tokenizer, samples):
    batch = tokenizer.encode_batch(iter(samples), num_threads=2)
    for text, ids in zip(samples, batch, strict=True):
        assert tokenizer.encode(text) == ids
        assert tokenizer.encode_with_offsets(text)[0] == ids, repr(text)


def test_flat_gives_the_same_ids(tokenizer, samples):
    ids, lengths = tokenizer.encode_flat(samples)
    assert ids.dtype == np.int32 and lengths.dtype == np.int64
    expected = tokenizer.encode_batch(samples)
    assert lengths.tolist() == [len(row) for row in expected]
    assert ids.tolist() == sum(expected, [])
    # The digit-comma rule has something to do in them.
    texts = [preprocess(text, tokenizer.lowercase) for text in samples]
    assert len(ids) > sum(map(len, tokenizer._processor.encode(texts)))
    for some in ([], ["", " "]):
        ids, lengths = tokenizer.encode_flat(some)
        assert (len(ids), lengths.tolist()) == (0, [0] * len(some))


def test_comma_after_digit(model_proto):
    tokenizer = Tokenizer.from_model_proto(model_proto)
    pieces = [tokenizer.id_to_piece(i) for i in tokenizer.encode("1, 9, 270,")]
    assert pieces == [*"\u25811,\u25819,\u25812", "7", "0", ","] or pieces == [
        *("\u2581", "1", ",", "\u2581", "9", ",", "\u2581", "2", "7", "0", ",")
    ]
    assert tokenizer.piece_to_id("70,") not in tokenizer.encode("270,")


def test_comma_rule_of_one_piece():
    pieces = {"12": ["\u25811", "2"], "7": ["\u2581", "7"], "3": ["\u25813"]}
    encode = pieces.__getitem__
    assert split_comma("\u258112,", encode) == ["\u25811", "2", ","]
    assert split_comma("12,", encode) == ["1", "2", ","]
    assert split_comma("7,", encode) == ["7", ","]
    assert split_comma("\u25813,", encode) == ["\u25813", ","]
    assert split_comma("a,", encode) is None
    assert split_comma(",", encode) is None
    assert split_comma("12", encode) is None


def test_comma_in_unknown_pieces():
    # Without a comma in the vocabulary, "犭3," ends as an unknown piece.
    model = tiny_model(drop=",", symbols=())
    tokenizer = Tokenizer.from_model_proto(model)
    assert tokenizer.splits_unknown
    assert tokenizer.piece_to_id(",") == symbols.UNKNOWN_ID
    for text in (
        "犭,",
        "\u06603,",
        "犭\u0663,",
        "x \u0663, 9, ,",
        "犭犬\u0663,a",
    ):
        expected = released_ids(model, text)
        assert tokenizer.encode(text) == expected
        assert tokenizer.encode_with_offsets(text)[0] == expected
        assert tokenizer.encode_batch([text]) == [expected]
        assert tokenizer.encode_flat([text])[0].tolist() == expected
    assert tokenizer.encode("犭\u0663,").count(0) == 2


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("  a\u00a0 \n b\t", "a b"),
        ("``a'' '''b", '"a" "\'b'),
        ("' '", "' '"),
        ("fals\u00e9 \ufb01\u00bd", "false fi1\u20442"),
        ("a\u0323\u0301\U0001e944", "a"),
        ("\ud55c", "\u1112\u1161\u11ab"),
        ("x\ud800", "x\ufffd"),
    ],
)
def test_preprocess(text, expected):
    assert preprocess(text) == expected


def test_preprocess_lowercase():
    assert preprocess("ÀB ΣΟΦΟΣ İ", lowercase=True) == "ab σοφος i"


@pytest.mark.parametrize("lowercase", [False, True])
def test_align_names_the_source_of_each_character(samples, lowercase):
    for text in samples:
        normalized, begins, ends = align(text, lowercase)
        assert normalized == preprocess(text, lowercase)
        assert len(normalized) == len(begins) == len(ends)
        assert list(begins) == sorted(begins)
        assert list(ends) == sorted(ends)
        for character, begin, end in zip(normalized, begins, ends, strict=True):
            source = text[begin:end]
            if character == " " and source.isspace():
                continue
            if source.startswith(("``", "''")):
                assert character == '"'
                continue
            source = strip_accents(source)
            source = source.lower() if lowercase else source
            # A sigma alone does not know that it ends a word.
            assert character.replace("ς", "σ") in source.replace("ς", "σ")


def test_offsets_are_monotone_and_inside(tokenizer, samples):
    for text in samples:
        _, offsets = tokenizer.encode_with_offsets(text)
        begins = [begin for begin, _ in offsets]
        ends = [end for _, end in offsets]
        assert begins == sorted(begins), repr(text)
        assert ends == sorted(ends), repr(text)
        assert all(0 <= b <= e <= len(text) for b, e in offsets)


def test_offsets_of_plain_text_spell_the_pieces(tokenizer):
    generator = random.Random(3)
    letters = "abcdefgz ABMX 0123456789 ,.,-()\"'?<>"
    for _ in range(500):
        text = "".join(generator.choices(letters, k=generator.randint(0, 60)))
        text = " ".join(text.split()).replace("''", "'")
        ids, offsets = tokenizer.encode_with_offsets(text)
        for index, (begin, end) in zip(ids, offsets, strict=True):
            if index == symbols.UNKNOWN_ID:
                assert begin < end
                continue
            piece = tokenizer.id_to_piece(index).removeprefix("\u2581")
            source = text[begin:end]
            assert (source.lower() if tokenizer.lowercase else source) == piece


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # A dropped accent belongs to its letter, composed or not.
        ("  ba\u0301  co", [(2, 5), (7, 9)]),
        ("b\u00e1  co", [(0, 2), (4, 6)]),
        ("\u0301ba", [(1, 3)]),
        # One character, several pieces.
        ("ba \ufb01", [(0, 2), (3, 4)]),
        # Quotes of two characters.
        ("``ba''", [(0, 0), (0, 2), (2, 4), (4, 6)]),
        # SentencePiece itself drops these.
        ("\u200bba\u200b co\x01 ", [(1, 3), (5, 7)]),
    ],
)
def test_offsets_by_hand(text, expected):
    model = tiny_model(
        symbols=("\u2581ba", "\u2581co", "\u2581fi", "ba"), vocab_size=320
    )
    tokenizer = Tokenizer.from_model_proto(model)
    assert tokenizer.encode_with_offsets(text)[1] == expected


def test_offsets_of_a_split_comma(tokenizer):
    ids, offsets = tokenizer.encode_with_offsets("x  170,")
    pieces = [tokenizer.id_to_piece(index) for index in ids]
    assert pieces[-3:] == ["7", "0", ","]
    assert offsets[-3:] == [(4, 5), (5, 6), (6, 7)]


def test_decode(tokenizer):
    ids = tokenizer.encode("bacode fi 1, 9,")
    assert tokenizer.decode(ids) == "bacode fi 1, 9,"
    assert tokenizer.decode(np.array(ids)) == "bacode fi 1, 9,"
    assert tokenizer.decode([]) == ""
    control = [symbols.SEP_ID, symbols.CLS_ID]
    assert tokenizer.decode(ids + control) == "bacode fi 1, 9,"


def test_vocabulary(tokenizer, model_proto):
    assert tokenizer.vocabulary_size == 300
    assert tokenizer.digest == hashlib.sha256(model_proto).hexdigest()
    assert tokenizer.model_proto == model_proto
    for index, symbol in enumerate(SPECIAL_SYMBOLS):
        assert tokenizer.id_to_piece(index) == symbol
        assert tokenizer.piece_to_id(symbol) == index
    assert tokenizer.piece_to_id("no such piece") == 0
    assert symbols.END_OF_PARAGRAPH_ID == 8


def test_starts_word(tokenizer):
    starts = tokenizer.starts_word
    assert starts.dtype == bool
    assert starts.shape == (tokenizer.vocabulary_size,)
    expected = set('!"#$%&"()*+,-./:;?@[\\]^_`{|}~')
    for index in range(tokenizer.vocabulary_size):
        piece = tokenizer.id_to_piece(index)
        assert starts[index] == (piece[0] in "\u2581<" or piece in expected)
    assert 0 < starts.sum() < len(starts)


def test_pickles_without_the_file(tmp_path, model_proto):
    path = tmp_path / "spiece.model"
    path.write_bytes(model_proto)
    data = pickle.dumps(Tokenizer(path, lowercase=True))
    path.unlink()
    tokenizer = pickle.loads(data)
    assert tokenizer.path == str(path)
    assert tokenizer.lowercase
    assert tokenizer.encode("BA") == tokenizer.encode("ba")


def test_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="train_tokenizer"):
        Tokenizer(tmp_path / "spiece.model")


def test_directory(tmp_path):
    with pytest.raises(ValueError, match="not a directory"):
        Tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("content", "match"),
    [
        (b"", "the file is empty"),
        (b"not a model" * 9, "this is not one"),
        (b"\0" * 99, "this is not one"),
    ],
)
def test_not_a_model(tmp_path, content, match):
    path = tmp_path / "spiece.model"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=match):
        Tokenizer(path)


def test_cut_file(tmp_path, model_proto):
    path = tmp_path / "spiece.model"
    path.write_bytes(model_proto[:1001])
    with pytest.raises(ValueError, match="spiece.model"):
        Tokenizer(path)


def test_model_without_special_symbols():
    model = tiny_model(control_symbols=[], user_defined_symbols=["<cls>"])
    with pytest.raises(ValueError, match="<sep> at id 4, .*<eop> at id 8.*"):
        Tokenizer.from_model_proto(model)
    with pytest.raises(ValueError) as caught:
        Tokenizer.from_model_proto(model)
    assert "<cls> at id 3" not in str(caught.value)
    assert "python -m data_pipeline.train_tokenizer" in str(caught.value)


def test_piece_that_is_too_long():
    model = tiny_model(symbols=("é" * 501,))
    with pytest.raises(ValueError, match="a piece of 1002 bytes"):
        Tokenizer.from_model_proto(model)


@pytest.mark.parametrize("index", [-1, 300])
def test_id_outside_of_the_vocabulary(tokenizer, index):
    with pytest.raises(ValueError, match="0 <= id < 300"):
        tokenizer.decode([5, index])
    with pytest.raises(ValueError, match="0 <= id < 300"):
        tokenizer.id_to_piece(index)


def test_wrong_kinds(tokenizer):
    with pytest.raises(TypeError, match="`text` must be a str"):
        tokenizer.encode(b"bytes")
    with pytest.raises(TypeError, match="`text` must be a str"):
        tokenizer.encode_with_offsets(None)
    with pytest.raises(TypeError, match="not one str"):
        tokenizer.encode_batch("text")
    with pytest.raises(TypeError, match="`text` must be a str"):
        tokenizer.encode_batch(["text", 3])
