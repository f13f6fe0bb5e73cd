"""The tokenizer: released ids, exact offsets, errors that help."""

import hashlib
import pickle
import random
import unicodedata

import numpy as np
import pytest

from data_pipeline.tokenization import symbols
from data_pipeline.tokenization.cleaning import compile_cleaning
from data_pipeline.tokenization.cleaning import split_comma
from data_pipeline.tokenization.symbols import SPECIAL_SYMBOLS
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import ACCENT_PAIRS
from tests.support.samples import TEXTS
from tests.support.samples import accented_model
from tests.support.samples import random_texts
from tests.support.samples import released_ids
from tests.support.samples import released_texts
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf import XLNetTextClassifierPreprocessor


@pytest.fixture(scope="module")
def model_proto():
    return tiny_model()


@pytest.fixture(scope="module")
def tokenizers(model_proto):
    """Cased, uncased."""
    return [
        Tokenizer.from_model_proto(model_proto, lowercase)
        for lowercase in (False, True)
    ]


@pytest.fixture(scope="module")
def tokenizer(tokenizers):
    return tokenizers[0]


@pytest.fixture(scope="module")
def samples():
    return [*TEXTS, *tiny_sentences(50), *random_texts(1000, seed=1)]


def test_released_ids(shared):
    count = 0
    for tokenizer, examples in released_texts(shared):
        texts = [example["text"] for example in examples]
        expected = [example["ids"] for example in examples]
        assert [tokenizer.encode(text) for text in texts] == expected
        assert tokenizer.encode_batch(texts) == expected
        flat, lengths = tokenizer.encode_flat(texts)
        assert flat.tolist() == sum(expected, [])
        assert lengths.tolist() == [len(row) for row in expected]
        for text, ids in zip(texts, expected, strict=True):
            found, offsets = tokenizer.encode_with_offsets(text)
            assert found == ids and len(offsets) == len(ids)
        count += len(examples)
    assert count == 324


def test_equals_the_plain_writing(tokenizers, samples):
    for tokenizer in tokenizers:
        for text in samples:
            expected = released_ids(
                tokenizer.model_proto, text, tokenizer.lowercase
            )
            assert tokenizer.encode(text) == expected, repr(text)


def test_all_ways_give_the_same_ids(tokenizers, samples):
    for tokenizer in tokenizers:
        batch = tokenizer.encode_batch(iter(samples), num_threads=2)
        for text, ids in zip(samples, batch, strict=True):
            assert tokenizer.encode(text) == ids
            assert tokenizer.encode_with_offsets(text)[0] == ids, repr(text)
        ids, lengths = tokenizer.encode_flat(samples)
        assert ids.dtype == np.int32 and lengths.dtype == np.int64
        assert lengths.tolist() == [len(row) for row in batch]
        assert ids.tolist() == sum(batch, [])
        for some in ([], ["", " "]):
            ids, lengths = tokenizer.encode_flat(some)
            assert (len(ids), lengths.tolist()) == (0, [0] * len(some))


def test_comma_after_digit(tokenizer):
    ids, offsets = tokenizer.encode_with_offsets("x  170, 9,")
    pieces = [tokenizer.id_to_piece(index) for index in ids]
    assert pieces[-6:-2] == ["7", "0", ",", "\u2581"]
    assert pieces[-2:] == ["9", ","]
    assert offsets[-6:-2] == [(4, 5), (5, 6), (6, 7), (7, 7)]
    assert tokenizer.piece_to_id("70,") not in ids
    # A mark on the comma is part of it.
    assert tokenizer.encode_with_offsets("70,\u0301")[1][-1] == (2, 4)


def test_comma_rule_of_one_piece():
    pieces = {"12": ["\u25811", "2"], "7": ["\u2581", "7"], "3": ["\u25813"]}
    for piece, expected in (
        ("\u258112,", ["\u25811", "2", ","]),
        ("12,", ["1", "2", ","]),
        ("7,", ["7", ","]),
        ("\u25813,", ["\u25813", ","]),
        ("a,", None),
        (",", None),
        ("12", None),
    ):
        assert split_comma(piece, pieces.__getitem__) == expected


def test_comma_in_unknown_pieces():
    # Without a comma in the vocabulary, "犭3," ends as an unknown piece.
    model = tiny_model(drop=",", symbols=())
    tokenizer = Tokenizer.from_model_proto(model)
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


def test_offsets_are_monotone_and_inside(tokenizers, samples):
    for tokenizer in tokenizers:
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
            assert text[begin:end] == piece


def test_offsets_by_hand():
    model = tiny_model(
        symbols=("\u2581ba", "\u2581co", "\u2581fi", "ba"), vocab_size=320
    )
    tokenizer = Tokenizer.from_model_proto(model)
    for text, expected in (
        # A dropped accent belongs to its letter, composed or not.
        ("  ba\u0301  co", [(2, 5), (7, 9)]),
        ("b\u00e1  co", [(0, 2), (4, 6)]),
        ("\u0301ba", [(1, 3)]),
        # One character, several pieces.
        ("ba \ufb01", [(0, 2), (3, 4)]),
        ("ba\u2026", [(0, 2), *[(2, 3)] * 3]),
        # Quotes of two characters; a blank alone is empty.
        ("``ba''", [(0, 0), (0, 2), (2, 4), (4, 6)]),
        ("ba  ``", [(0, 2), (2, 2), (4, 6)]),
        # SentencePiece itself drops these.
        ("\u200bba\u200b co\x01 ", [(1, 3), (5, 7)]),
    ):
        assert tokenizer.encode_with_offsets(text)[1] == expected, repr(text)


def test_decode(tokenizer):
    ids = tokenizer.encode("bacode fi 1, 9,")
    assert tokenizer.decode(ids) == "bacode fi 1, 9,"
    assert tokenizer.decode(np.array(ids)) == "bacode fi 1, 9,"
    assert tokenizer.decode([]) == ""
    control = [symbols.SEP_ID, symbols.CLS_ID]
    assert tokenizer.decode(ids + control) == "bacode fi 1, 9,"


def test_vocabulary(tokenizers, model_proto):
    for tokenizer in tokenizers:
        assert tokenizer.vocabulary_size == 300
        # The bytes of the file, not those that clean.
        assert tokenizer.digest == hashlib.sha256(model_proto).hexdigest()
        assert tokenizer.model_proto == model_proto
        for index, symbol in enumerate(SPECIAL_SYMBOLS):
            assert tokenizer.id_to_piece(index) == symbol
            assert tokenizer.piece_to_id(symbol) == index
        assert tokenizer.piece_to_id("no such piece") == 0
    starts = tokenizer.starts_word
    assert starts.dtype == bool and starts.shape == (300,)
    marks = set('!"#$%&"()*+,-./:;?@[\\]^_`{|}~')
    for index in range(300):
        piece = tokenizer.id_to_piece(index)
        assert starts[index] == (piece[0] in "\u2581<" or piece in marks)
    assert 0 < starts.sum() < len(starts)


def test_bytes_of_characters_start_no_word():
    tokenizer = Tokenizer.from_model_proto(
        tiny_model(byte_fallback=True, vocab_size=600)
    )
    ids = tokenizer.encode("ba Ж")
    starts = [bool(tokenizer.starts_word[index]) for index in ids[-3:]]
    assert tokenizer.id_to_piece(ids[-1]) == "<0x96>"
    assert starts == [True, False, False]


def test_pickles_without_the_file(tmp_path, model_proto):
    path = tmp_path / "spiece.model"
    path.write_bytes(model_proto)
    data = pickle.dumps(Tokenizer(path, lowercase=True))
    path.unlink()
    compile_cleaning.cache_clear()  # as in a process of its own
    tokenizer = pickle.loads(data)
    assert compile_cleaning.cache_info().misses == 0
    assert tokenizer.path == str(path)
    assert tokenizer.lowercase
    assert tokenizer.encode("BA") == tokenizer.encode("ba")


def test_files_that_are_no_models(tmp_path, model_proto):
    path = tmp_path / "spiece.model"
    with pytest.raises(FileNotFoundError, match="train_tokenizer"):
        Tokenizer(path)
    with pytest.raises(ValueError, match="not a directory"):
        Tokenizer(tmp_path)
    for content, match in (
        (b"", "the file is empty"),
        (b"not a model" * 9, "this is not one"),
        (b"\0" * 99, "this is not one"),
        (b"[PAD]\n[UNK]\n[CLS]\nthe\n", "of a WordPiece tokenizer, as BERT's"),
        (model_proto[:1001], "spiece.model"),
    ):
        path.write_bytes(content)
        with pytest.raises(ValueError, match=match) as caught:
            Tokenizer(path)
        # Where in the code of SentencePiece says nothing to a user.
        assert ".cc(" not in str(caught.value)
        assert "INTERNAL" not in str(caught.value)


def test_models_of_others():
    model = tiny_model(control_symbols=[], user_defined_symbols=["<cls>"])
    with pytest.raises(
        ValueError, match="<sep> at id 4, .*<eop> at id 8.*train_tokenizer"
    ) as caught:
        Tokenizer.from_model_proto(model)
    assert "<cls> at id 3" not in str(caught.value)
    with pytest.raises(ValueError, match="a piece of 1002 bytes"):
        Tokenizer.from_model_proto(tiny_model(symbols=("é" * 501,)))


def test_accents_are_kept_by_a_model_that_says_so():
    model = accented_model()
    for lowercase in (False, True):
        kept = Tokenizer.from_model_proto(model, lowercase)
        assert kept.keep_accents and "keep_accents=True" in repr(kept)
        for with_mark, without in ACCENT_PAIRS:
            assert kept.encode(with_mark) != kept.encode(without)
            assert 0 not in kept.encode(f"{with_mark} {without}")
            decomposed = unicodedata.normalize("NFD", with_mark)
            assert kept.encode(decomposed) == kept.encode(with_mark)
            assert kept.decode(kept.encode(decomposed)) == with_mark
    ids, offsets = kept.encode_with_offsets("Scho\u0308n 9,")
    assert ids == kept.encode("schön 9,")
    assert offsets == [(0, 6), (6, 6), (7, 8), (8, 9)]
    again = pickle.loads(pickle.dumps(kept))
    assert again.keep_accents and again.encode("schön") == kept.encode("schön")


def test_wrong_arguments(tokenizer):
    for call, error, match in (
        (lambda: tokenizer.encode(b"bytes"), TypeError, "`text` must be a str"),
        (
            lambda: tokenizer.encode_with_offsets(None),
            TypeError,
            "`text` must be a str",
        ),
        (lambda: tokenizer.encode_batch("text"), TypeError, "not one str"),
        (lambda: tokenizer.encode_batch(["a", 3]), TypeError, "must be a str"),
        (lambda: tokenizer.encode_flat(["a", 3]), TypeError, "must be a str"),
        (lambda: tokenizer.decode([5, -1]), ValueError, "0 <= id < 300"),
        (lambda: tokenizer.decode([300]), ValueError, "0 <= id < 300"),
        (lambda: tokenizer.id_to_piece(300), ValueError, "0 <= id < 300"),
    ):
        with pytest.raises(error, match=match):
            call()


def test_a_tokenizer_is_shown_with_what_decides_its_ids(tokenizers):
    cased, uncased = tokenizers
    size = f"{cased.vocabulary_size:,} pieces"
    rest = "keep_accents=False>"
    assert repr(cased) == f"<Tokenizer: {size}, lowercase=False, {rest}"
    assert repr(uncased) == f"<Tokenizer: {size}, lowercase=True, {rest}"
    shown = repr(XLNetTextClassifierPreprocessor(cased, sequence_length=32))
    assert shown.startswith("<XLNetTextClassifierPreprocessor: sequence_le")
    assert shown.endswith(f"{cased!r}>")
