"""The compiled cleaning gives what its plain definition gives."""

import random
import re
import sys
import unicodedata

import pytest
import sentencepiece

from data_pipeline.tokenization.cleaning import blanks_class
from data_pipeline.tokenization.cleaning import compile_cleaning
from data_pipeline.tokenization.cleaning import final_sigma
from data_pipeline.tokenization.cleaning import preprocess
from data_pipeline.tokenization.model_file import USER_DEFINED
from data_pipeline.tokenization.model_file import ModelProto
from tests.support.samples import TEXTS
from tests.support.samples import random_texts
from tests.support.samples import tiny_model

# Each in another of SentencePiece's own maps.
RULES = ("nmt_nfkc", "identity", "nfkc", "nmt_nfkc_cf")


def processor(model_proto):
    return sentencepiece.SentencePieceProcessor(model_proto=model_proto)


def test_preprocess():
    for text, expected in (
        ("  a\u00a0 \n b\t", "a b"),
        ("``a'' '''b", '"a" "\'b'),
        ("' '", "' '"),
        ("fals\u00e9 \ufb01\u00bd", "false fi1\u20442"),
        ("a\u0323\u0301\U0001e944", "a"),
        ("\ud55c", "\u1112\u1161\u11ab"),
        ("x\ud800", "x\ufffd"),
    ):
        assert preprocess(text) == expected
    assert preprocess("ÀB ΣΟΦΟΣ İ", lowercase=True) == "ab σοφος i"
    with pytest.raises(TypeError, match="`text` must be a str"):
        preprocess(b"bytes")


def test_compiled_model_cleans_every_character():
    model = tiny_model()
    characters = [chr(c) for c in range(1, sys.maxunicode + 1)]
    characters = [c for c in characters if not "\ud800" <= c <= "\udfff"]
    text = "ab".join(characters)
    for lowercase in (False, True):
        compiled = processor(compile_cleaning(model, lowercase).model_proto)
        found = compiled.normalize(text).split("ab")
        expected = processor(model).normalize(preprocess(text, lowercase))
        expected = expected.split("ab")
        assert len(found) == len(expected) == len(characters)
        assert [
            rows
            for rows in zip(characters, found, expected, strict=True)
            if rows[1] != rows[2]
        ] == []


def test_compiled_model_cleans_texts():
    texts = [t for t in TEXTS if "\ud800" not in t]
    texts += random_texts(2000, seed=8)
    texts += ["\u1112\uffc2", "\ud558\u11ab", "\u314e\u314f", "\u09c7\u09be"]
    texts += ["``'''`` '"]
    for rule in RULES:
        model = tiny_model(normalization_rule_name=rule)
        bare = processor(model)
        for lowercase in (False, True):
            cleaning = compile_cleaning(model, lowercase)
            compiled = processor(cleaning.model_proto)
            for text in texts:
                expected = bare.normalize(preprocess(text, lowercase))
                text = final_sigma(text) if cleaning.has_sigma else text
                assert compiled.normalize(text) == expected, (rule, text)


def test_silent_characters():
    cleaning = compile_cleaning(tiny_model())
    assert {" ", "\u2581", "\u00a0", "\u200b", "\u00a8"} <= cleaning.blanks
    assert cleaning.dropped >= {"\x01", "\x7f"}
    assert "\u0301" in cleaning.marks and "\U0001e944" in cleaning.marks
    assert not cleaning.blanks & (cleaning.dropped | cleaning.marks)
    assert not cleaning.dropped & cleaning.marks
    identity = tiny_model(normalization_rule_name="identity")
    assert "\x01" not in compile_cleaning(identity).dropped


def test_symbols_that_clean_text_lacks():
    """They may not hide text from the cleaning, and stay pieces."""
    symbols = ("É", "''", "`", "ﬁ", "ba\u0301", "co")
    model = tiny_model(symbols=symbols, vocab_size=320)
    kinds = {
        entry.piece: entry.type
        for entry in ModelProto.FromString(
            compile_cleaning(model).model_proto
        ).pieces
    }
    assert {s for s in symbols if kinds[s] == USER_DEFINED} == {"co"}
    assert kinds["<eop>"] == USER_DEFINED
    bare = processor(model)
    compiled = processor(compile_cleaning(model).model_proto)
    for text in ("É ``co'' ba\u0301 ﬁ", "`co`", "a<eop>É"):
        expected = bare.encode(preprocess(text))
        assert compiled.encode(text) == expected


def test_final_sigma():
    """All characters with case and a sample of the others, in each place."""
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
    generator = random.Random(5)
    texts += [
        "".join(generator.choices("ΑΣΣςα.' \u00ad1\u0345Ϲ𝚺\n", k=9))
        for _ in range(3000)
    ]
    texts += ["Σ", "ΑΣ''Α", "ΑΣ'Α", "ΑΣ``Α"]
    for text in texts:
        found = final_sigma(text)
        assert len(found) == len(text)
        cleaned = preprocess(found).replace("\u03a3", "\u03c3").lower()
        assert cleaned == preprocess(text, lowercase=True), repr(text)


def test_sigma_matters_where_the_vocabulary_has_it():
    assert compile_cleaning(tiny_model(), lowercase=True).has_sigma
    assert not compile_cleaning(tiny_model()).has_sigma
    latin = tiny_model(drop="Σσς")
    assert not compile_cleaning(latin, lowercase=True).has_sigma


def test_blanks_class():
    found = re.findall(blanks_class(), "".join(map(chr, range(0x11000))))
    assert found == [c for c in map(chr, range(0x11000)) if c.isspace()]
