"""The command `build_records`: contents of a set, splits, errors."""

import concurrent.futures
import errno
import json
import os
import sys

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline import build_records
from data_pipeline.base.files import copy_tree
from data_pipeline.inspect import describe
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records import build as builder
from data_pipeline.records import held_out
from data_pipeline.records import processes
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import verify_records
from data_pipeline.records.plan import read_plan
from data_pipeline.records.plan import write_plan
from data_pipeline.records.reading import parse_records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.text.documents import Corpus
from data_pipeline.text.documents import Document
from data_pipeline.text.documents import read_documents
from data_pipeline.tokenization.hugging_face import write_tokenizer
from data_pipeline.tokenization.model_file import with_accents
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import record_options
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import small_parts
from tests.support.record_fixtures import write_corpus
from tests.support.samples import tiny_model


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    return write_corpus(tmp_path_factory.mktemp("records") / "corpus")


def build(corpus, output, *more):
    assert run_build(corpus, output, *more) == 0
    return read_manifest(output)


def parsed(directory, manifest, split="train", direction="forward"):
    """All records of a split, as arrays."""
    paths = [
        str(directory / shard.file)
        for shard in manifest.splits[split]
        if shard.direction == direction
    ]
    batch = tf.data.TFRecordDataset(paths).batch(100_000)
    values = parse_records(next(iter(batch)), manifest)
    return {name: value.numpy() for name, value in values.items()}


def test_set_and_summary(corpus, tmp_path, capsys):
    manifest = build(corpus, tmp_path / "set")
    output = capsys.readouterr().out
    assert verify_records(tmp_path / "set") == []
    tokenizer = Tokenizer(corpus / "spiece.model")
    assert manifest.tokenizer == {
        "sha256": tokenizer.digest,
        "vocabulary_size": 300,
        "lowercase": False,
        "keep_accents": False,
        "file": "spiece.model",
    }
    model = (tmp_path / "set" / "spiece.model").read_bytes()
    assert model == (corpus / "spiece.model").read_bytes()
    lengths = (
        manifest.sequence_length,
        manifest.reuse_length,
        manifest.permutation_length,
        manifest.num_predict,
    )
    assert lengths == (64, 32, 32, 10)
    assert manifest.totals["documents"] == 40
    assert f"40 documents, {manifest.totals['characters']:,}" in output
    assert f"{manifest.num_records('train'):,} train records in 1" in output
    values = parsed(tmp_path / "set", manifest)
    count = values["is_target"].sum(1)
    assert count.max() == 10 and count.mean() > 8
    # The first halves are the tokens of the text, one after the other.
    ids = [
        i
        for document in read_documents(str(corpus / "a.txt"))
        for i in [*sum(tokenizer.encode_batch(document), []), 7]
    ]
    stream = values["token_ids"][:, :32].reshape(-1)
    assert stream.tolist() == ids[: len(stream)]
    assert manifest.totals["tokens"] == len(ids)


def test_bytes_depend_on_text_settings_and_seed_only(corpus, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        build(corpus, tmp_path / name, "--seed", seed)
    a, b, c = (digests(tmp_path / name) for name in "abc")
    assert a == b
    assert a["train-00000.tfrecord"] != c["train-00000.tfrecord"]


class InProcess:
    """Executor that runs a job at its submission, in this process."""

    def __init__(self, max_workers, mp_context, initializer, initargs):
        tokenizer, settings, _ = initargs
        processes._worker.update(tokenizer=tokenizer, settings=settings)

    def submit(self, function, job):
        future = concurrent.futures.Future()
        future.set_result(function(job))
        return future

    def shutdown(self, cancel_futures=False):
        processes._worker.clear()


def test_any_number_of_processes(corpus, tmp_path, monkeypatch):
    """With real processes in `tests/slow`."""
    name = "concurrent.futures.ProcessPoolExecutor"
    monkeypatch.setattr(name, InProcess)
    with small_parts():
        for number in (1, 2, 3):
            options = ("--processes", number, "--both-directions")
            build(corpus, tmp_path / str(number), *options)
    one, two, three = (digests(tmp_path / name) for name in "123")
    assert one == two == three and len(one) > 10


def test_both_directions(corpus, tmp_path):
    with small_parts():
        manifest = build(corpus, tmp_path / "set", "--both-directions")
    directions = [shard.direction for shard in manifest.splits["train"]]
    assert directions == sorted(directions, reverse=True)
    assert directions.count("forward") == directions.count("backward") > 2
    forward = parsed(tmp_path / "set", manifest)
    backward = parsed(tmp_path / "set", manifest, direction="backward")
    assert not forward["is_reversed"].any()
    assert backward["is_reversed"].all()
    there = forward["token_ids"][:, :32].reshape(-1).tolist()
    back = backward["token_ids"][:, :32].reshape(-1)[::-1].tolist()
    # Both read the stream of the first part, from its two ends.
    middle = there[1000:1100]
    assert any(back[i : i + 100] == middle for i in range(len(back) - 100))


def test_frozen_stores_the_masks(corpus, tmp_path):
    manifest = build(
        corpus, tmp_path / "set", "--frozen", "--spans", "subwords"
    )
    values = parsed(tmp_path / "set", manifest)
    tokens, mask = values["token_ids"], values["perm_mask"]
    real = values["is_target"] & (tokens != 3) & (tokens != 4)
    np.testing.assert_array_equal(values["target_mapping"].sum(1), real)
    assert mask[:, :32, 32:].all() and not mask[:, 32:, :32].any()
    itself = mask[:, np.arange(64), np.arange(64)]
    np.testing.assert_array_equal(itself, real)
    batch = next(iter(PretrainingData(tmp_path / "set", 3).dataset()))
    np.testing.assert_array_equal(batch["perm_mask"][0], mask[0])


def test_reuse_length_zero(corpus, tmp_path):
    manifest = build(corpus, tmp_path / "set", "--reuse-length", 0)
    assert manifest.permutation_length == 64
    values = parsed(tmp_path / "set", manifest)
    assert values["is_target"].sum(1).max() == 10
    next(iter(PretrainingData(tmp_path / "set", 3).dataset()))


def test_validation_documents(corpus, tmp_path):
    everything = build(corpus, tmp_path / "all")
    manifest = build(corpus, tmp_path / "set", "--validation-fraction", 0.2)
    assert manifest.totals == everything.totals

    def halves(directory, manifest, split):
        return parsed(directory, manifest, split)["token_ids"][:, :32].tolist()

    def joined(rows):
        return ",".join(str(token) for row in rows for token in row)

    # No half of the held-out records is anywhere in the training text.
    train = joined(halves(tmp_path / "set", manifest, "train"))
    text = joined(halves(tmp_path / "all", everything, "train"))
    validation = halves(tmp_path / "set", manifest, "validation")
    assert len(validation) > 200
    assert not any(joined([half]) in train for half in validation)
    assert sum(joined([half]) in text for half in validation) > 150


def test_each_split_has_a_document():
    for count in (2, 3, 40):
        documents = [Document("x", "running")] * count
        for fraction in (1e-9, 0.3, 1 - 1e-9):
            settings = RecordSettings(validation_fraction=fraction, seed=count)
            threshold = held_out.validation_threshold(
                lambda documents=documents: (d for d in documents), settings
            )
            parts = held_out.numbered_parts(documents, threshold, settings.seed)
            splits = [split for split, _, _ in parts]
            assert splits == ["train", "validation"], (count, fraction)


def test_threshold_of_many_documents(monkeypatch):
    """Found in one pass, and not from a list of hashes that grows."""
    hashes, number_of = [], held_out._document_hash

    def count(seed, number):
        hashes.append(number_of(seed, number))
        return hashes[-1]

    monkeypatch.setattr(held_out, "_document_hash", count)
    for fraction, expected in (
        (1e-9, lambda: sorted(hashes)[1023]),
        (1 - 1e-9, lambda: sorted(hashes)[-2]),
    ):
        # Of 1,024 characters, one a document.
        settings = RecordSettings(
            validation_fraction=fraction, sequence_length=128
        )
        hashes.clear()
        document = Document("x", "running")
        threshold = held_out.validation_threshold(
            lambda document=document: (document for _ in range(20_000)),
            settings,
        )
        assert threshold == expected() and len(hashes) == 20_000


def test_a_sequence_is_held_out_of_little_text(corpus, tmp_path):
    """However small the fraction is, and the documents."""
    settings = {"validation_fraction": 1e-6, "sequence_length": 32}
    text = tmp_path / "text.txt"
    words = "the cat sat on a mat and saw a dog . "
    text.write_text("\n\n".join([words * 2] * 60))
    manifest = builder.build_records(
        Corpus(text, "sentences"),
        Tokenizer(corpus / "spiece.model"),
        tmp_path / "set",
        RecordSettings(**settings),
    )
    counts = {
        split: sum(shard.records for shard in shards)
        for split, shards in manifest.splits.items()
    }
    assert 0 < counts["validation"] < counts["train"] / 5


def test_a_written_unk_is_no_other_language(corpus, tmp_path, capsys):
    """WikiText has <unk> in the place of rare words."""
    text, words = tmp_path / "text.txt", "the cat sat on a mat ."
    for symbol, said in (("<unk>", "note: the"), ("\u4e16", "warning: more")):
        text.write_text(f"{words} {symbol} {words}\n" * 50, encoding="utf-8")
        build(corpus, tmp_path / symbol, "--input", text)
        output = capsys.readouterr().out
        assert f"unknown\n{said}" in output
        assert "itself contains <unk> 50 times" in output or symbol != "<unk>"
        assert output.endswith(f"wrote {tmp_path / symbol}\n")


def test_far_more_or_less_is_held_out_than_asked_for(corpus, tmp_path, capsys):
    """Documents are held out whole, and a text may have few."""
    text = tmp_path / "text.txt"
    options = ("--validation-fraction", 0.05, "--text-format", "sentences")
    for count in (6, 400):
        words = "the cat sat on a mat and saw a dog . " * (1500 // count)
        text.write_text("\n\n".join([words] * count))
        build(corpus, tmp_path / f"{count}", "--input", text, *options)
        said = "warning: --validation-fraction asks for 0.05 of the text, and"
        assert (said in capsys.readouterr().out) == (count == 6)


def test_the_documents_of_a_short_text_are_divided(tmp_path):
    """At paragraphs, nothing is lost, and about the fraction is held out."""
    paragraphs = [(f"{i} " * 50).strip() for i in range(800)]
    text = "\n\n".join(paragraphs)
    settings = RecordSettings(64, validation_fraction=0.05)
    for texts in ([text], ["\n\n".join(x) for x in two_parts(paragraphs)]):
        for number, part in enumerate(texts):
            (tmp_path / f"{number}.txt").write_text(part)
        whole = Corpus(tmp_path / "*.txt", "running")
        size = held_out.piece_characters(whole.documents, settings)
        corpus = whole.divided(size)
        assert "\n\n".join(x.text for x in corpus.documents()) == text
        assert len(list(whole.documents())) == len(texts)
        threshold = held_out.validation_threshold(corpus.documents, settings)
        sizes = {"train": 0, "validation": 0}
        for split, _, part in held_out.numbered_parts(
            corpus.documents(), threshold, 0
        ):
            sizes[split] += sum(len(document.text) for document in part)
        share = sizes["validation"] / sum(sizes.values())
        assert 0.01 < share < 0.12, share
    # Many documents, a long text, and none to hold out stay as they are.
    document = Document(text, "running")
    for count, times, fraction in ((5, 1, 0.05), (1, 60, 0.05), (1, 1, 0)):
        many = [document._replace(text=document.text * times)] * count
        settings = RecordSettings(64, validation_fraction=fraction)
        assert (
            held_out.piece_characters(lambda m=many: (x for x in m), settings)
            is None
        )


def two_parts(values):
    middle = len(values) // 3
    return values[:middle], values[middle:]


def test_text_and_set_in_buckets(corpus, tmp_path, bucket, capsys):
    for name in ("a.txt", "spiece.model"):
        copy_tree(corpus / name, f"{bucket}/text/{name}")
    options = ("--validation-fraction", 0.2)
    build(corpus, tmp_path / "local", *options)
    remote = (
        *("--input", f"{bucket}/text/*.txt", "--output", f"{bucket}/set"),
        *("--tokenizer", f"{bucket}/text/spiece.model"),
    )
    capsys.readouterr()
    assert run_build(corpus, "", *options, *remote) == 0
    printed = capsys.readouterr()
    assert printed.err.count("\n") == 1
    assert "where nothing can be locked: see to it that no" in printed.err
    assert printed.out.endswith(f"wrote {bucket}/set\n")
    copy_tree(f"{bucket}/set", tmp_path / "copy")
    assert digests(tmp_path / "copy") == digests(tmp_path / "local")
    assert not (tmp_path / "copy" / ".building").exists()
    assert not any("ram:" in name for name in os.listdir())


def test_several_inputs(corpus, tmp_path):
    """As the shell makes them of a pattern that is not quoted."""
    for name in "ab":
        (tmp_path / f"{name}.txt").write_bytes((corpus / "a.txt").read_bytes())
    paths = [tmp_path / "b.txt", tmp_path / "a.txt"]
    build(corpus, tmp_path / "one", "--input", tmp_path / "*.txt")
    build(corpus, tmp_path / "two", "--input", *paths)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")


def test_tokenizer_of_a_directory(corpus, tmp_path, capsys):
    build(corpus, tmp_path / "file")
    build(corpus, tmp_path / "directory", "--tokenizer", corpus)
    assert digests(tmp_path / "file") == digests(tmp_path / "directory")
    (tmp_path / "empty").mkdir()
    capsys.readouterr()
    options = ("--tokenizer", tmp_path / "empty")
    assert run_build(corpus, tmp_path / "none", *options) == 1
    error = capsys.readouterr().err
    assert "tokenizer" in error and error.count("\n") == 1
    assert not (tmp_path / "none").exists()


def test_case_that_is_given_goes_before_the_directory(corpus, tmp_path):
    tokenizer = Tokenizer(corpus / "spiece.model", lowercase=True)
    (tmp_path / "uncased").mkdir()
    write_tokenizer(tokenizer, tmp_path / "uncased")
    more = ("--tokenizer", tmp_path / "uncased")
    assert build(corpus, tmp_path / "a", *more).tokenizer["lowercase"] is True
    found = build(corpus, tmp_path / "b", *more, "--no-lowercase")
    assert found.tokenizer["lowercase"] is False


def test_a_directory_below_home(corpus, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    build(corpus, "~/set")
    build(corpus, "~/set")  # it is complete
    assert PretrainingData("~/set", 1).directory == str(tmp_path / "set")


def test_a_plan_of_very_many_files(tmp_path):
    plan = {"input": ["a" * 100] * 2**19}  # more than a model's JSON may have
    write_plan(tmp_path, plan)
    assert read_plan(tmp_path) == plan


def test_guess_is_told_and_kept(corpus, tmp_path, capsys):
    manifest = build(corpus, tmp_path / "auto")
    output = capsys.readouterr().out
    assert output.startswith("the text format was guessed: sentences\n")
    assert manifest.text_format == "sentences"
    build(corpus, tmp_path / "named", "--text-format", "sentences")
    assert "guessed" not in capsys.readouterr().out
    auto, named = (digests(tmp_path / name) for name in ("auto", "named"))
    for name in ("build.json", "SHA256SUMS"):
        assert auto.pop(name) != named.pop(name)
    assert auto == named


def test_unknown_tokens_are_reported(corpus, tmp_path, capsys):
    (tmp_path / "x.txt").write_text("Ж Я Ю щ " * 300 + "ba co de " * 99)
    model = corpus / "spiece.model"
    (tmp_path / "spiece.model").write_bytes(model.read_bytes())
    build(tmp_path, tmp_path / "set")
    output = capsys.readouterr().out
    assert "warning: more than 1 % of the tokens are unknown" in output


@pytest.mark.parametrize(
    "letters, cause",
    [
        ("BAcode", "Is it made for this language"),
        ("bacode", "It has no capital letters: give --lowercase."),
        ("犬猫鳥魚", "Is it made for this language"),  # a script without case
    ],
)
def test_the_cause_of_unknown_tokens(letters, cause, tmp_path, capsys):
    words = [first + second for first in letters for second in letters]
    model = tiny_model(
        sentences=lambda: [f"{' '.join(words)}."] * 9,
        hard_vocab_limit=False,
    )
    (tmp_path / "spiece.model").write_bytes(model)
    (tmp_path / "x.txt").write_text("Ж Я Ю щ. " * 900)
    build(tmp_path, tmp_path / "set")
    assert f"unknown to the tokenizer. {cause}" in capsys.readouterr().out


def test_dropped_accents_are_told(corpus, tmp_path, capsys):
    plain, kept = corpus / "spiece.model", tmp_path / "kept.model"
    kept.write_bytes(with_accents(plain.read_bytes()))
    text = tmp_path / "text.txt"
    for letter, tokenizer, count in (
        ("o", plain, None),
        ("\u00f6", plain, 60),
        ("\u00f6", kept, None),
    ):
        words = f"the cat sat on a mat and {letter} saw a dog . " * 2
        text.write_text("\n\n".join([words] * 30), encoding="utf-8")
        options = ("--input", text, "--tokenizer", tokenizer, "--overwrite")
        manifest = build(corpus, tmp_path / "set", *options)
        said = "\nnote: 2.50% of the characters of this text lose"
        assert (said in capsys.readouterr().out) == (count is not None)
        assert manifest.totals.get("dropped_accents") == count
        assert manifest.tokenizer["keep_accents"] == (tokenizer == kept)
        lines = "\n".join(describe(tmp_path / "set", manifest))
        assert ("pieces, accents kept, SHA" in lines) == (tokenizer == kept)


def test_few_targets_are_told(corpus, tmp_path, capsys):
    """Words that are longer than a half's goal, as between rare blanks."""
    said = "targets on average, and room for"
    text = tmp_path / "text.txt"
    for name, words in (("long", "abcdefgh" * 40), ("short", "abc de " * 45)):
        text.write_text("\n\n".join([words] * 60))
        build(corpus, tmp_path / name, "--input", text)
        assert (said in capsys.readouterr().out) == (name == "long")
        manifest = read_manifest(tmp_path / name)
        assert ("targets" in manifest.totals) == (name == "long")
    build(corpus, tmp_path / "subwords", "--input", text, "--spans=subwords")
    assert said not in capsys.readouterr().out


def test_long_sentences_are_told(corpus, tmp_path, capsys):
    """In which B seldom follows on A, with the way out of each format."""
    text, said = tmp_path / "text.txt", "B seldom follows on A"
    line = "the cat sat on a mat and saw a dog"
    for text_format, lines, advice in (
        ("running", [line] * 300, "give --text-format sentences."),
        ("sentences", [30 * f"{line} "] * 20, "Divide long lines"),
        ("jsonl", ['{"text": "%s"}' % (30 * line)] * 20, "a capital letter"),
        ("sentences", [line] * 300, None),
    ):
        text.write_text("\n".join(lines))
        manifest = build(
            *(corpus, tmp_path / "set", "--input", text, "--overwrite"),
            *("--text-format", text_format),
        )
        output = capsys.readouterr().out
        assert (said in output) == bool(advice), text_format
        assert (advice or "wrote") in output, text_format
        if advice is None:
            assert manifest.totals["sentences"] == 300


def test_one_line_errors(corpus, tmp_path, capsys, monkeypatch):
    def check(message):
        text = capsys.readouterr().err
        assert text.startswith("error: ") and text.count("\n") == 1
        assert message in text
        assert not (tmp_path / "set").exists()

    cut = ["--sequence-length", 4096, "--validation-fraction", 0.02]
    for more, message in (
        (["--reuse-length", 64], "`reuse_length` must be between 0 and"),
        (["--num-predict", 63], "`num_predict` must be at least 1 and leave"),
        (["--permutation-length", 24], "`permutation_length` must divide"),
        (["--tokens-per-target", 0], "`tokens_per_target` must be a positive"),
        (["--sequence-length", -2], "`sequence_length` must be a positive"),
        (["--validation-fraction", 1], "`validation_fraction` must be in "),
        (["--seed", -1], "`seed` must be an integer from 0"),
        (["--spans", "x"], "`spans` must be one of"),
        (["--processes", 0], "`processes` must be at least 1"),
        (["--sequence-length", 65536], "too short for a single sequence"),
        ([*cut, "--text-format", "running"], "a single short document"),
        (cut, "held-out"),
        (["--tokenizer", "no.model"], "SentencePiece model"),
        (["--input", "no*.txt"], "no file matches `input`"),
        (["--encoding", "ascii"], "invalid ascii at byte"),
        (["--encoding", "zlib"], "`encoding` is not one that Python knows"),
        (["--input", str(corpus)], "`input` must name files, not a directory"),
        (["--input", "s4://bucket/*.txt"], "paths that begin with s4://"),
        (["--settings", "no/build.json"], "there is no file no/build"),
    ):
        assert run_build(corpus, tmp_path / "set", *more) == 1, more
        check(message)

    def flush(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data_pipeline.base.files.flush", flush)
    assert run_build(corpus, tmp_path / "set") == 1
    check("the disk is full while writing")
    # Apache Beam: not installed, or its options without a runner.
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert run_build(corpus, tmp_path / "set", "--runner", "DirectRunner") == 1
    check("pip install 'apache-beam>=2.77,<3'.")
    for options in (["--direct_num_workers=2"], ["--text-format", "x"]):
        with pytest.raises(SystemExit):
            build_records.main(
                record_options(corpus, tmp_path / "set", *options)
            )
        assert options[0].split("=")[0] in capsys.readouterr().err


def test_settings_of_a_file_and_of_another_set(corpus, tmp_path, capsys):
    file = tmp_path / "settings.yaml"
    file.write_text("sequence_length: 32\nspans: subwords\n")
    build(corpus, tmp_path / "a", "--settings", file)
    build(corpus, tmp_path / "b", "--settings", tmp_path / "a" / "build.json")
    first, second = (read_manifest(tmp_path / name) for name in "ab")
    assert first == second
    # How the text was read is part of a plan.
    options = ["--encoding", "latin-1", "--text-format", "running"]
    build(corpus, tmp_path / "c", *options, "--lowercase")
    build(corpus, tmp_path / "d", "--settings", tmp_path / "c" / "build.json")
    first, second = (
        json.loads((tmp_path / name / "build.json").read_text())
        for name in "cd"
    )
    assert first == second and first["lowercase"]
    # An option wins, also with the value that it has where it is not given.
    options = ["--encoding", "utf-8", "--text-format", "auto", "--no-lowercase"]
    plan = tmp_path / "c" / "build.json"
    build(corpus, tmp_path / "e", "--settings", plan, *options)
    third = json.loads((tmp_path / "e" / "build.json").read_text())
    assert third["encoding"] == "utf-8" and not third["lowercase"]
    assert third["text_format"] != "running"
    first, second = (read_manifest(tmp_path / name) for name in "ab")
    assert (first.spans, first.sequence_length) == ("subwords", 64)
    # One that was changed is read without the set's checksums alone.
    plan.write_text(plan.read_text().replace("running", "sentences"))
    assert run_build(corpus, tmp_path / "f", "--settings", plan) == 1
    assert f"{plan} is damaged" in capsys.readouterr().err
    (tmp_path / "c" / "SHA256SUMS").unlink()
    build(corpus, tmp_path / "f", "--settings", plan)
