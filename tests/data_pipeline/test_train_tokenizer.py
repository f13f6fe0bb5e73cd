"""Training a tokenizer: released settings, same file again, clear errors."""

import collections
import errno
import functools
import hashlib
import json
import os
import random
import tracemalloc

import pytest
import sentencepiece

from data_pipeline import train_tokenizer as module
from data_pipeline.base.command_line import run
from data_pipeline.tokenization.symbols import SPECIAL_SYMBOLS
from data_pipeline.tokenization.tokenizer import Tokenizer
from data_pipeline.train_tokenizer import train_tokenizer
from tests.support.samples import ACCENT_PAIRS
from tests.support.samples import accented_sentences
from tests.support.samples import tiny_sentences
from tests.torture import damaged_tokenizers


@pytest.fixture
def output(tmp_path):
    return tmp_path / "made" / "spiece.model"


def test_trains_a_usable_tokenizer(output):
    tokenizer = train_tokenizer(tiny_sentences(), output, vocabulary_size=300)
    assert tokenizer.vocabulary_size == 300
    assert tokenizer.path == str(output)
    assert Tokenizer(output).digest == tokenizer.digest
    pieces = [tokenizer.id_to_piece(index) for index in range(17)]
    assert tuple(pieces[:9]) == SPECIAL_SYMBOLS
    # The order of the released vocabulary.
    assert pieces[9:] == [".", "(", ")", '"', "-", "–", "£", "€"]
    text = "Bacode figu, (halo) 12."
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert [path.name for path in output.parent.iterdir()] == [output.name]


def test_model_holds_its_digest(output):
    """Other libraries read it, and what it becomes in an export has none."""
    tokenizer = train_tokenizer(tiny_sentences(), output, vocabulary_size=300)
    content = output.read_bytes()
    assert content[3:35] == hashlib.sha256(content[35:]).digest()
    plain = Tokenizer.from_model_proto(content[35:])
    assert plain.cleaning.model_proto == tokenizer.cleaning.model_proto
    for damaged in (
        content[:-1],
        content + b"\0",
        content[:900] + b"\1" + content[901:],
        b"\xc3" + content[1:],
        content[:9] + b"\1" + content[10:],
    ):
        output.write_bytes(damaged)
        with pytest.raises(ValueError, match="is damaged: .* Copy the file"):
            Tokenizer(output)


def test_no_flipped_bit_is_silent(tmp_path):
    """A few of each file; `make torture` makes hundreds."""
    trials = damaged_tokenizers.trials(36, tmp_path, random.Random(0))
    assert not [trial for trial in trials if trial[1] is not None]


def test_symbols_have_the_released_kinds(output):
    train_tokenizer(tiny_sentences(), output, vocabulary_size=300)
    processor = sentencepiece.SentencePieceProcessor(model_file=str(output))
    for symbol in ("<s>", "</s>", *module.CONTROL_SYMBOLS):
        assert processor.is_control(processor.piece_to_id(symbol))
    # <eop> may stand in text, <cls> may not.
    assert 8 in processor.encode("a<eop>b")
    assert 3 not in processor.encode("a<cls>b")
    assert processor.unk_id() == 0


def test_is_deterministic(tmp_path):
    digests = {
        train_tokenizer(
            tiny_sentences(),
            tmp_path / "spiece.model",
            vocabulary_size=300,
            sentence_limit=limit,
        ).digest
        for limit in (10_000_000, 599, 599, 10_000_000)
    }
    assert len(digests) == 2


def test_sample_of_more_sentences_than_the_limit(output, monkeypatch):
    """It is ours, because that of SentencePiece follows from the process."""
    chosen = [list(module.sample(range(1000), 10, seed)) for seed in (0, 0, 1)]
    assert chosen[0] == chosen[1] != chosen[2]
    assert len({*chosen[0]}) == 10
    assert list(module.sample(range(9), 10)) == list(range(9))
    counts = collections.Counter(
        value
        for seed in range(2000)
        for value in module.sample("abcde", 2, seed)
    )
    assert all(abs(count - 800) < 100 for count in counts.values())
    given = []

    def train(sentence_iterator, input_sentence_size, **settings):
        given.append(list(sentence_iterator))
        assert len(given[-1]) == input_sentence_size == 150
        raise RuntimeError("enough")

    name = "sentencepiece.SentencePieceTrainer.train"
    monkeypatch.setattr(name, train)
    for _ in range(2):
        with pytest.raises(ValueError, match="enough"):
            train_tokenizer(tiny_sentences(), output, 300, sentence_limit=150)
    assert given[0] == given[1]


def test_cleans_the_text_first(output):
    sentences = [f"``É{line}''\u00a0 É" for line in tiny_sentences()]
    tokenizer = train_tokenizer(
        sentences, output, vocabulary_size=300, lowercase=True
    )
    pieces = "".join(tokenizer.id_to_piece(i) for i in range(9, 300))
    assert "e" in pieces
    assert not set(pieces) & set("éÉE`\u00a0")
    assert pieces == pieces.lower()
    assert tokenizer.lowercase


def test_accents_are_kept_where_asked_for(output):
    sentences = [*accented_sentences(), "ﬁ ½"]
    train = functools.partial(train_tokenizer, sentences, output, 65)
    dropped, kept = train(), train(keep_accents=True)
    plain = Tokenizer.from_model_proto(output.read_bytes(), lowercase=False)
    assert plain.keep_accents and not dropped.keep_accents
    for with_mark, without in ACCENT_PAIRS:
        assert dropped.encode(with_mark) == dropped.encode(without)
        assert kept.encode(with_mark) != kept.encode(without)
        assert kept.encode(with_mark) == plain.encode(with_mark)
    content = output.read_bytes()
    assert content[3:35] == hashlib.sha256(content[35:]).digest()
    lower = train(keep_accents=True, lowercase=True)
    assert lower.encode("SCHÖN") == lower.encode("schön")
    assert lower.encode("SCHÖN") != lower.encode("SCHON")


def test_long_lines_are_not_left_out(output):
    lines = list(tiny_sentences())
    text = " ".join(lines)
    assert len(text) > 10_000
    tokenizer = train_tokenizer([text], output, vocabulary_size=300)
    assert tokenizer.vocabulary_size == 300
    cut = list(module._cut(text))
    assert max(map(len, cut)) <= 1000
    assert " ".join(cut) == text
    unbroken = "".join(text.split())
    assert "".join(module._cut(unbroken)) == unbroken


def test_long_lines_are_not_copied_for_each_piece():
    text = "a word " * 200_000
    tracemalloc.start()
    try:
        assert sum(map(len, module._cut(text))) > 1_300_000
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_keeps_the_old_file_when_it_fails(output):
    output.parent.mkdir()
    output.write_text("old")
    with pytest.raises(ValueError, match="too large"):
        train_tokenizer(tiny_sentences(), output)
    assert output.read_text() == "old"
    assert len(list(output.parent.iterdir())) == 1


def test_leaves_nothing_half_written(output, monkeypatch):
    def fail(source, target):
        raise OSError(errno.ENOSPC, "no room")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no room"):
        train_tokenizer(tiny_sentences(), output, vocabulary_size=300)
    assert list(output.parent.iterdir()) == []


def test_too_large_a_vocabulary_names_the_largest(output):
    with pytest.raises(ValueError, match="expected at most") as caught:
        train_tokenizer(tiny_sentences(), output, vocabulary_size=5000)
    largest = int(str(caught.value).split("at most ")[1].split(".")[0])
    tokenizer = train_tokenizer(
        tiny_sentences(), output, vocabulary_size=largest
    )
    assert tokenizer.vocabulary_size == largest


def test_what_is_refused(output):
    text, few = list(tiny_sentences()), "`sentence_limit` must be at least 101"
    for sentences, settings, error, match in (
        (text, (30,), ValueError, r"expected at least \d\d\. .*=30"),
        (text, (17,), ValueError, "`vocabulary_size` must be above 17"),
        (text, (300, 0.9), ValueError, "`character_coverage` must be from"),
        (text, (300, 1.1), ValueError, "`character_coverage` must be from"),
        (text, (300, 1.0, False, 0), ValueError, few),
        (text, (300, 1.0, False, 100), ValueError, few),
        ([], (), ValueError, "no text to train on"),
        (["", " \n", "\u0301"], (), ValueError, "no text to train on"),
        ("one text", (), TypeError, "not one str"),
    ):
        with pytest.raises(error, match=match):
            train_tokenizer(sentences, output, *settings)
        assert not output.exists()


def test_errors_of_the_input_keep_their_kind(output):
    def sentences(error):
        yield "ba co"
        raise error("while reading")

    for error in (UnicodeError, KeyboardInterrupt, OSError):
        with pytest.raises(error, match="while reading"):
            train_tokenizer(sentences(error), output)


def test_command(tmp_path, capfd):
    path = tmp_path / "text.jsonl"
    path.write_text(
        "\n".join(json.dumps({"text": line}) for line in tiny_sentences()),
        encoding="utf-8",
    )
    output = tmp_path / "spiece.model"
    arguments = ["--input", str(path), "--output", str(output)]
    assert run(module.main, [*arguments, "--vocabulary-size", "290"]) == 0
    printed = capfd.readouterr()
    assert f"290 pieces, sha256 {Tokenizer(output).digest}" in printed.out
    # SentencePiece says nothing of its own.
    note, _ = printed.out.splitlines()
    assert note.startswith("note: 0.") and "--keep-accents" in note
    assert printed.err.count("\n") == 1  # that it takes time

    text = path.read_bytes()
    path.write_bytes(text + b'\n{"text": "\xff"}\n')
    left_out = [*arguments, "--vocabulary-size=290", "--on-bad-text", "skip"]
    assert run(module.main, [*left_out, "--keep-accents"]) == 0
    printed = capfd.readouterr().out
    assert "; 1 skipped line(s) that could" in printed
    assert printed.count("\n") == 1 and Tokenizer(output).keep_accents
    path.write_bytes(text)

    assert run(module.main, arguments) == 0
    note, _, written = capfd.readouterr().out.splitlines()
    size = Tokenizer(output).vocabulary_size
    assert note.startswith(
        f"note: this text is enough for {size:,} pieces, not"
    )
    assert f"{size} pieces" in written

    for more, message in (  # before it says that it reads the text
        (("--vocabulary-size", "17"), "`vocabulary_size` must be above 17"),
        (("--character-coverage", "2"), "`character_coverage` must be from"),
        (("--sentence-limit", "0"), "`sentence_limit` must be at least 101"),
    ):
        assert run(module.main, [*arguments, *more]) == 1
        printed = capfd.readouterr()
        assert printed.err.startswith(f"error: {message}")
        assert printed.err.count("\n") == 1
