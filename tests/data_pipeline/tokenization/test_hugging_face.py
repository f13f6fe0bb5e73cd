"""Tokenizer files of model directories: the released ids from each format."""

import base64
import errno
import json
import os
import shutil

import pytest

from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.hugging_face import check_tokenizer
from data_pipeline.tokenization.hugging_face import find_tokenizer_file
from data_pipeline.tokenization.hugging_face import has_tokenizer
from data_pipeline.tokenization.hugging_face import read_tokenizer
from data_pipeline.tokenization.hugging_face import write_tokenizer
from data_pipeline.tokenization.model_file import ModelProto
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import TEXTS
from tests.support.samples import accented_model
from tests.support.samples import accented_texts
from tests.support.samples import random_texts
from tests.support.samples import released_texts
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from tests.support.tokenizer_files import assert_same_model
from tests.support.tokenizer_files import change
from tests.support.tokenizer_files import change_model
from tests.support.tokenizer_files import pieces

PRESET = "assets/tokenizer/vocabulary.spm"


@pytest.fixture(scope="module")
def model_proto():
    return tiny_model()


@pytest.fixture(scope="module", params=[False, True], ids=["cased", "uncased"])
def tokenizer(request, model_proto):
    return Tokenizer.from_model_proto(model_proto, lowercase=request.param)


@pytest.fixture
def directory(tmp_path, model_proto):
    """A directory as Hugging Face has it, of a cased tokenizer."""
    path = tmp_path / "model"
    write_tokenizer(Tokenizer.from_model_proto(model_proto), path)
    (path / "SHA256SUMS").unlink()  # of what is changed here
    return path


@pytest.fixture
def alone(directory):
    """The same, with nothing but `tokenizer.json`."""
    (directory / "spiece.model").unlink()
    (directory / "tokenizer_config.json").unlink()
    return directory


def test_round_trip(tokenizer, tmp_path):
    write_tokenizer(tokenizer, tmp_path)
    first = read_tokenizer(tmp_path)
    assert first.path == str(tmp_path / "spiece.model")
    assert first.model_proto == tokenizer.model_proto
    (tmp_path / "spiece.model").unlink()
    second = read_tokenizer(tmp_path)
    assert_same_model(second.model_proto, tokenizer.model_proto)
    (tmp_path / "tokenizer_config.json").unlink()
    third = read_tokenizer(tmp_path)
    texts = [*TEXTS, *tiny_sentences(50), *random_texts(500, seed=1)]
    for again in (first, second, third):
        assert again.lowercase == tokenizer.lowercase
        assert again.encode_batch(texts) == tokenizer.encode_batch(texts)


@pytest.mark.parametrize(
    "settings",
    [
        {"normalization_rule_name": "identity"},
        {"byte_fallback": True, "vocab_size": 600},
        {"symbols": ()},
    ],
    ids=["no table", "bytes", "no comma pieces"],
)
def test_round_trip_of_other_models(settings, tmp_path):
    check_round_trip(tiny_model(**settings), tmp_path)


def test_round_trip_of_kept_accents(tmp_path):
    """From each file alone, and from transformers' other files beside it."""
    texts = [*accented_texts(), *TEXTS]
    for lowercase in (False, True):
        kept = Tokenizer.from_model_proto(accented_model(), lowercase)
        directory = tmp_path / f"{lowercase}"
        write_tokenizer(kept, directory)
        (directory / "SHA256SUMS").unlink()
        plain = ModelProto.FromString(kept.model_proto)
        plain.ClearField("keep_accents")
        plain = plain.SerializeToString()
        for gone, model in (
            ((), kept.model_proto),
            ((), plain),
            (("tokenizer.json",), plain),
            (("spiece.model", "tokenizer_config.json"), None),
        ):
            files = shutil.copytree(directory, tmp_path / "files")
            if model is not None:
                (files / "spiece.model").write_bytes(model)
            for name in gone:
                (files / name).unlink()
            again = read_tokenizer(files, lowercase)
            assert again.keep_accents
            assert again.encode_batch(texts) == kept.encode_batch(texts)
            shutil.rmtree(files)
        config = json.loads((directory / "tokenizer_config.json").read_text())
        assert config["keep_accents"]
        assert config["tokenizer_class"] == "PreTrainedTokenizerFast"


def test_round_trip_of_another_control_symbol(tmp_path):
    model = ModelProto.FromString(tiny_model(symbols=("<end>",)))
    entry = next(p for p in model.pieces if p.piece == "<end>")
    # Given as one, it would have taken the place of <eop>.
    entry.type = model_file.CONTROL
    check_round_trip(model.SerializeToString(), tmp_path)


def check_round_trip(model_proto, tmp_path):
    tokenizer = Tokenizer.from_model_proto(model_proto)
    write_tokenizer(tokenizer, tmp_path)
    (tmp_path / "spiece.model").unlink()
    again = read_tokenizer(tmp_path)
    assert_same_model(again.model_proto, model_proto)
    texts = [*TEXTS, "a<end>b", "犬 犭"]
    assert again.encode_batch(texts) == tokenizer.encode_batch(texts)


def test_scores_that_are_not_lowered_stay(alone, model_proto):
    # What version 5 of transformers makes of a lone spiece.model.
    vocabulary = [[p.piece, p.score] for p in pieces(model_proto)]
    values = json.loads((alone / "tokenizer.json").read_text("utf-8"))
    assert values["model"]["vocab"] != vocabulary
    lowered = {
        old[0]: old[1] - new[1]
        for old, new in zip(vocabulary, values["model"]["vocab"], strict=True)
        if old != new
    }
    assert {"70,", "9,", "\u25811,"} <= lowered.keys()
    assert set(lowered.values()) == {100}
    change_model(alone / "tokenizer.json", vocab=vocabulary)
    again = read_tokenizer(alone)
    assert_same_model(again.model_proto, model_proto)


def test_a_dot_that_is_called_special_stays_text(alone, model_proto):
    tokens = [
        {"id": index, "content": entry.piece, "special": True}
        for index, entry in enumerate(pieces(model_proto))
        if index < 9 or entry.type == model_file.USER_DEFINED
    ]
    assert "." in {token["content"] for token in tokens}
    change(alone / "tokenizer.json", added_tokens=tokens)
    again = read_tokenizer(alone)
    assert_same_model(again.model_proto, model_proto)


def test_older_file_without_a_type(alone, model_proto):
    values = json.loads((alone / "tokenizer.json").read_text("utf-8"))
    del values["model"]["type"]
    del values["model"]["byte_fallback"]
    change(alone / "tokenizer.json", model=values["model"])
    assert_same_model(read_tokenizer(alone).model_proto, model_proto)


def test_order_of_the_files(tmp_path, directory, model_proto):
    def found():
        return find_tokenizer_file(directory).relative_to(directory).as_posix()

    assert found() == "spiece.model"
    other = tiny_model(vocab_size=310)
    (directory / PRESET).parent.mkdir(parents=True)
    (directory / PRESET).write_bytes(other)
    assert found() == PRESET
    assert read_tokenizer(directory).model_proto == other
    (directory / PRESET).unlink()
    (directory / "spiece.model").unlink()
    assert found() == "tokenizer.json"
    assert read_tokenizer(directory).path is None
    (directory / "tokenizer.json").unlink()
    assert find_tokenizer_file(directory) is None
    assert find_tokenizer_file(tmp_path / "absent") is None


@pytest.mark.parametrize("name", [PRESET, "spiece.model"])
@pytest.mark.parametrize(
    ("ours", "config", "normalizer", "expected"),
    [
        (None, None, None, False),
        (True, None, None, True),
        (False, {"do_lower_case": True}, None, False),
        (None, {"do_lower_case": True}, "NFKD", True),
        (None, {"do_lower_case": False}, "Lowercase", False),
        (None, {}, "Lowercase", True),
        (None, None, "NFKD", False),
    ],
)
def test_lowercase(
    tmp_path, model_proto, name, ours, config, normalizer, expected
):
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_bytes(model_proto)
    values = {}
    if ours is not None:
        values["lowercase"] = ours
    if normalizer is not None:
        inner = [{"type": normalizer}, {"type": "StripAccents"}]
        inner = [{"type": "Sequence", "normalizers": inner}, {"type": "NFKD"}]
        values["normalizer"] = {"type": "Sequence", "normalizers": inner}
    if values:
        (tmp_path / "tokenizer.json").write_text(json.dumps(values))
    if config is not None:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    if name == PRESET and not values:
        with pytest.raises(FileNotFoundError, match="tokenizer.json is miss"):
            read_tokenizer(tmp_path)
    else:
        assert read_tokenizer(tmp_path).lowercase is expected
    assert read_tokenizer(tmp_path, lowercase=not expected).lowercase is (
        not expected
    )


def test_records_of_another_tokenizer_are_refused(tmp_path, model_proto):
    """Whichever files the model's directory has, and by case too."""
    cased = Tokenizer.from_model_proto(model_proto)
    lower = Tokenizer.from_model_proto(model_proto, lowercase=True)
    model = ModelProto.FromString(model_proto)
    first, second = model.pieces[20].piece, model.pieces[21].piece
    model.pieces[20].piece, model.pieces[21].piece = second, first
    swapped = Tokenizer.from_model_proto(model.SerializeToString())
    write_tokenizer(cased, tmp_path / "all")
    for kept in ("spiece.model", "tokenizer.json"):
        (tmp_path / kept).mkdir()
        shutil.copy(tmp_path / "all" / kept, tmp_path / kept)
    preset = tmp_path / "preset" / "assets/tokenizer"
    preset.mkdir(parents=True)
    (preset / "vocabulary.spm").write_bytes(model_proto)
    for name in ("all", "spiece.model", "tokenizer.json", "preset"):
        check_tokenizer(tmp_path / name, cased)
        with pytest.raises(ValueError, match="another tokenizer than .*uild"):
            check_tokenizer(tmp_path / name, swapped)
    for name in ("all", "tokenizer.json"):
        with pytest.raises(
            ValueError, match="are of lower-cased text, .* reads cased text"
        ):
            check_tokenizer(tmp_path / name, lower)
    # They say nothing of the case.
    check_tokenizer(tmp_path / "spiece.model", lower)
    check_tokenizer(tmp_path / "preset", lower)
    (tmp_path / "preset" / "tokenizer.json").write_text('{"lowercase": true}')
    check_tokenizer(tmp_path / "preset", lower)
    with pytest.raises(ValueError, match="are of cased text, .* --lowercase"):
        check_tokenizer(tmp_path / "preset", cased)
    (tmp_path / "empty").mkdir()
    check_tokenizer(tmp_path / "empty", swapped)
    kept = Tokenizer.from_model_proto(model_file.with_accents(model_proto))
    write_tokenizer(kept, tmp_path / "kept")
    check_tokenizer(tmp_path / "kept", kept)
    for name, records, message in (
        ("all", kept, "records keeps accents, .* drops them. Build .*/all"),
        ("kept", cased, "records drops accents, .* keeps them. Build .*/kept"),
    ):
        with pytest.raises(ValueError, match=message):
            check_tokenizer(tmp_path / name, records)


def test_files_are_replaced_whole(directory, tokenizer, monkeypatch):
    before = {f.name: f.read_bytes() for f in directory.iterdir()}

    def fail(*arguments):
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="no space"):
        write_tokenizer(tokenizer, directory)
    assert {f.name: f.read_bytes() for f in directory.iterdir()} == before
    monkeypatch.undo()
    write_tokenizer(tokenizer, directory)
    names = {f.name for f in directory.iterdir()}
    assert names == {*before, "SHA256SUMS"}
    assert directory.joinpath("spiece.model").stat().st_mode & 0o777 == 0o644


@pytest.mark.parametrize(
    ("settings", "match"),
    [
        ({"model_type": "bpe"}, "is not a Unigram model"),
        ({"split_by_whitespace": False}, "does not cut texts at blanks"),
        ({"add_dummy_prefix": False}, "does not cut texts at blanks"),
    ],
)
def test_models_that_cannot_be_written(settings, match, tmp_path):
    tokenizer = Tokenizer.from_model_proto(tiny_model(**settings))
    with pytest.raises(ValueError, match=match):
        write_tokenizer(tokenizer, tmp_path)
    assert not list(tmp_path.iterdir())


def test_no_tokenizer(tmp_path):
    with pytest.raises(FileNotFoundError, match="expected spiece.model, tok"):
        read_tokenizer(tmp_path)
    with pytest.raises(FileNotFoundError, match="there is no directory"):
        read_tokenizer(tmp_path / "absent")
    (tmp_path / "vocab.txt").write_text("[PAD]\n[UNK]\nthe\n")
    with pytest.raises(FileNotFoundError, match="vocab.txt is of WordPiece"):
        read_tokenizer(tmp_path)
    file = tmp_path / "x.model"
    file.write_bytes(b"")
    with pytest.raises(FileNotFoundError, match="x.model is a file"):
        read_tokenizer(file)
    (tmp_path / "tokenizer.json").write_text('{"lowercase": true}')
    with pytest.raises(FileNotFoundError, match="vocabulary.spm is missing"):
        read_tokenizer(tmp_path)


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"type": "BPE", "vocab": {"a": 1}}, "of type 'BPE'"),
        ({"type": "WordPiece", "vocab": {"a": 1}}, "of type 'WordPiece'"),
        ({"vocab": {"a": 1}}, "vocabulary of type 'dict'"),
        ({"vocab": 3}, '"vocab" is not a list'),
        ({"vocab": [["<unk>", 0], ["a"]]}, 'entry 1 of "vocab"'),
        ({"vocab": [["<unk>", True]]}, 'entry 0 of "vocab"'),
        ({"vocab": [["<unk>", float("nan")]]}, 'entry 0 of "vocab"'),
        ({"vocab": [["<unk>", 1e39]]}, 'entry 0 of "vocab"'),
        ({"vocab": [["\ud800", 0]]}, 'entry 0 of "vocab"'),
        (
            {"vocab": [["<unk>", 0], ["<s>", 0], ["</s>", 0], ["x", 0]]},
            "expected <cls> at id 3, <sep> at id 4, .*begin with <unk>, <s>",
        ),
        ({"unk_id": 1}, "expected unk_id=0"),
    ],
)
def test_tokenizers_of_other_models(alone, entries, match):
    file = alone / "tokenizer.json"
    change_model(file, **entries)
    with pytest.raises(ValueError, match=match) as caught:
        read_tokenizer(alone)
    assert str(caught.value).startswith(str(file))


def test_tokenizers_of_other_berts_are_passed_over(alone):
    """Such as XLM-R's pieces, or BPE, beside a BERT that can be read."""
    file = alone / "tokenizer.json"
    assert has_tokenizer(alone)
    (alone / "config.json").write_text('{"model_type": "bert"}')
    assert has_tokenizer(alone)
    for entries in (
        {"vocab": [["<s>", 0], ["<pad>", 0], ["</s>", 0], ["<unk>", 0]]},
        {"type": "BPE", "vocab": {"a": 1}},
        {"type": "WordPiece", "vocab": {"a": 1}},
    ):
        change_model(file, **entries)
        assert not has_tokenizer(alone)
    change_model(file, type="BPE", vocab={"a": 1})
    (alone / "config.json").write_text('{"model_type": "xlnet"}')
    assert has_tokenizer(alone)


def test_piece_that_is_there_twice(alone, model_proto):
    vocabulary = [[p.piece, p.score] for p in pieces(model_proto)]
    change_model(alone / "tokenizer.json", vocab=[*vocabulary, ["x", -3.0]])
    with pytest.raises(ValueError, match="tokenizer.json .*already defined"):
        read_tokenizer(alone)


@pytest.mark.parametrize(
    ("entries", "match"),
    [
        ({"model": None}, 'it has no "model"'),
        ({"added_tokens": [{"id": 1}]}, '"added_tokens" is not a list'),
        ({"normalizer": {"type": 3}}, '"normalizer" has an entry without'),
        ({"normalizer": {"type": "Sequence"}}, '"normalizers" is not a list'),
        (
            {
                "normalizer": {
                    "type": "Precompiled",
                    "precompiled_charsmap": "\u00e9",
                }
            },
            '"precompiled_charsmap" is not base64',
        ),
        (
            {
                "normalizer": {
                    "type": "Precompiled",
                    "precompiled_charsmap": base64.b64encode(b"ab").decode(),
                }
            },
            "is damaged",
        ),
    ],
)
def test_damaged_values(alone, entries, match):
    change(alone / "tokenizer.json", **entries)
    with pytest.raises(ValueError, match=match) as caught:
        read_tokenizer(alone)
    assert str(caught.value).startswith(f"{alone / 'tokenizer.json'} is dam")


@pytest.mark.parametrize("name", ["tokenizer.json", "tokenizer_config.json"])
def test_damaged_files(directory, name):
    file = directory / name
    content = file.read_bytes()
    for damage in (content[: len(content) // 2], b"\xff", b"[" * 100_000):
        file.write_bytes(damage)
        with pytest.raises(ValueError, match=f"{name} is damaged: .* not JSON"):
            read_tokenizer(directory)
    file.write_bytes(b"[]")
    with pytest.raises(ValueError, match="does not hold a JSON object"):
        read_tokenizer(directory)


def test_settings_of_the_wrong_kind(directory):
    file = directory / "tokenizer_config.json"
    change(file, do_lower_case="no")
    with pytest.raises(ValueError, match='"do_lower_case" in .*: "no"'):
        read_tokenizer(directory)
    assert not read_tokenizer(directory, lowercase=False).lowercase
    change(file, do_lower_case=False, keep_accents=1)
    with pytest.raises(ValueError, match='"keep_accents" in .*: 1. Correct'):
        read_tokenizer(directory)
    change(file, keep_accents=False)
    (directory / "added_tokens.json").write_text('{"<x>": "1"}')
    with pytest.raises(ValueError, match="added_tokens.json is damaged"):
        read_tokenizer(directory)


@pytest.mark.parametrize("name", ["tokenizer.json", "added_tokens.json"])
def test_warns_of_added_tokens(directory, name):
    if name == "added_tokens.json":
        tokens = {"[B]": 301, "[A]": 300, ".": 9}
        (directory / name).write_text(json.dumps(tokens))
    else:
        tokens = [{"id": 301, "content": "[B]"}, {"id": 300, "content": "[A]"}]
        change(directory / name, added_tokens=tokens)
    with pytest.warns(UserWarning, match=r"it adds \[A\], \[B\] to the"):
        assert read_tokenizer(directory).vocabulary_size == 300


def test_warns_of_other_preprocessing(directory):
    change(directory / "tokenizer_config.json", keep_accents=True)
    message = "model asks .*: its tokenizer.json drops accents"
    with pytest.warns(UserWarning, match=message):
        assert read_tokenizer(directory).keep_accents
    change(directory / "tokenizer_config.json", keep_accents=False)
    inner = [{"type": "NFC"}, {"type": "StripAccents"}, {"type": "Prepend"}]
    normalizer = {"type": "Sequence", "normalizers": inner}
    change(directory / "tokenizer.json", normalizer=normalizer)
    with pytest.warns(UserWarning, match="it has the normalizer Prepend"):
        assert not read_tokenizer(directory).keep_accents


def test_warns_of_pieces_that_hugging_face_never_makes(tmp_path, model_proto):
    """Vowel signs, which it drops with the marks that combine."""
    model = ModelProto.FromString(model_proto)
    for number, piece in enumerate(["\u0915\u093f", "\u0e31", "か", "क"], 1):
        model.pieces[-number].piece = piece
    tokenizer = Tokenizer.from_model_proto(model.SerializeToString())
    normal = sum(x.type == model_file.NORMAL for x in model.pieces)
    message = (
        f"never makes 2 of the {normal} pieces .{2 / normal:.1%}., such as"
    )
    with pytest.warns(UserWarning, match=message):
        write_tokenizer(tokenizer, tmp_path / "model")


@pytest.mark.filterwarnings("error")
def test_does_not_warn_of_what_is_usual(directory):
    read_tokenizer(directory)
    (directory / "spiece.model").unlink()
    read_tokenizer(directory)


def test_published_file_gives_the_released_model(shared, tmp_path):
    published = shared / "data/spiece/hf_xlnet-base-cased_tokenizer.json"
    if not published.is_file():
        pytest.skip(f"there is no {published.name} beside the project")
    shutil.copy(published, tmp_path / "tokenizer.json")
    for expected, examples in released_texts(shared):
        tokenizer = read_tokenizer(tmp_path, expected.lowercase or None)
        assert tokenizer.path is None
        assert tokenizer.lowercase == expected.lowercase
        assert_same_model(tokenizer.model_proto, expected.model_proto)
        ids = tokenizer.encode_batch([e["text"] for e in examples])
        assert ids == [e["ids"] for e in examples]
        assert len(examples) == 162
