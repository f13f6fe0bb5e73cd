"""The compiled cleaning gives what its plain definition gives."""

import itertools
import random
import re
import sys
import unicodedata

import pytest
import sentencepiece

from data_pipeline.tokenization.cleaning import accents_note
from data_pipeline.tokenization.cleaning import blanks_class
from data_pipeline.tokenization.cleaning import compile_cleaning
from data_pipeline.tokenization.cleaning import count_accents
from data_pipeline.tokenization.cleaning import final_sigma
from data_pipeline.tokenization.cleaning import preprocess
from data_pipeline.tokenization.model_file import USER_DEFINED
from data_pipeline.tokenization.model_file import ModelProto
from data_pipeline.tokenization.model_file import with_accents
from tests.support.samples import TEXTS
from tests.support.samples import accented_texts
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
    kept = preprocess("``É''\u00a0 \ufb01\ud800", keep_accents=True)
    assert kept == '"É" \ufb01\ufffd'
    assert preprocess("ΆΣ Σ\u0301", True, keep_accents=True) == "άς σ\u0301"
    with pytest.raises(TypeError, match="`text` must be a str"):
        preprocess(b"bytes")


def test_accents_are_counted():
    for text, expected in (
        ("Hello", 0),
        ("schön scho\u0308n", 2),
        ("ấ", 1),
        ("한국어 \u1112\u1161 ﬁ ½ Ⅷ ｶ", 0),
        ("ป่า", 1),
        ("पढ़ना क्", 2),
        ("がパ\u3099", 3),
    ):
        assert count_accents(text) == expected, text
    assert accents_note(1, 1000) == "" == accents_note(0, 0)
    assert accents_note(2, 1000).startswith("note: 0.20% of the characters")
    assert "--keep-accents" in accents_note(2, 1000)


def test_compiled_model_cleans_every_character():
    characters = [chr(c) for c in range(1, sys.maxunicode + 1)]
    characters = [c for c in characters if not "\ud800" <= c <= "\udfff"]
    between = "0a0"  # composes with nothing
    text = between.join(characters)
    for lowercase, keep in itertools.product((False, True), repeat=2):
        model = with_accents(tiny_model()) if keep else tiny_model()
        compiled = processor(compile_cleaning(model, lowercase).model_proto)
        found = compiled.normalize(text).split(between)
        expected = processor(model).normalize(preprocess(text, lowercase, keep))
        expected = expected.split(between)
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
    texts += ["``'''`` '", *accented_texts()]
    for rule, keep in [*((rule, False) for rule in RULES), (RULES[0], True)]:
        model = tiny_model(normalization_rule_name=rule)
        model = with_accents(model) if keep else model
        bare = processor(model)
        for lowercase in (False, True):
            cleaning = compile_cleaning(model, lowercase)
            compiled = processor(cleaning.model_proto)
            for text in texts:
                expected = bare.normalize(preprocess(text, lowercase, keep))
                text = final_sigma(text, keep) if cleaning.has_sigma else text
                assert compiled.normalize(text) == expected, (rule, text)


def test_silent_characters():
    cleaning = compile_cleaning(tiny_model())
    assert {" ", "\u2581", "\u00a0", "\u200b", "\u00a8"} <= cleaning.blanks
    assert cleaning.dropped >= {"\x01", "\x7f"}
    assert "\u0301" in cleaning.marks and "\U0001e944" in cleaning.marks
    assert not cleaning.blanks & (cleaning.dropped | cleaning.marks)
    assert not cleaning.dropped & cleaning.marks
    assert not compile_cleaning(with_accents(tiny_model())).marks
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
    texts += ["Σ", "ΑΣ''Α", "ΑΣ'Α", "ΑΣ``Α", "Α\u0301Σ\u0301"]
    for text, keep in itertools.product(texts, (False, True)):
        found = final_sigma(text, keep)
        assert len(found) == len(text)
        cleaned = preprocess(found, False, keep)
        cleaned = cleaned.replace("\u03a3", "\u03c3").lower()
        assert cleaned == preprocess(text, True, keep), repr(text)


def test_sigma_matters_where_the_vocabulary_has_it():
    assert compile_cleaning(tiny_model(), lowercase=True).has_sigma
    assert not compile_cleaning(tiny_model()).has_sigma
    latin = tiny_model(drop="Σσς")
    assert not compile_cleaning(latin, lowercase=True).has_sigma


def test_blanks_class():
    found = re.findall(blanks_class(), "".join(map(chr, range(0x11000))))
    assert found == [c for c in map(chr, range(0x11000)) if c.isspace()]
