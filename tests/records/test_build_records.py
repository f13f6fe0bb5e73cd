"""The command that turns text into records."""

import errno
import hashlib
import json
import os
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline import build_records
from data_pipeline import command_line
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records import build as building
from data_pipeline.records import held_out
from data_pipeline.records.parsing import parse_records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.records.writer import read_manifest
from data_pipeline.records.writer import verify_records
from data_pipeline.text import documents as text_files
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """A directory with `spiece.model` and text of 40 documents."""
    directory = tmp_path_factory.mktemp("corpus")
    (directory / "spiece.model").write_bytes(tiny_model())
    lines = list(tiny_sentences(800))
    text = "\n\n".join("\n".join(lines[i : i + 20]) for i in range(0, 800, 20))
    (directory / "a.txt").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few documents, so that small texts make many."""
    planner = text_files.PartPlanner.__init__
    monkeypatch.setattr(planner, "__defaults__", (9000,))


def arguments(corpus, output, *more):
    return [
        *("--input", str(corpus / "*.txt")),
        *("--tokenizer", str(corpus / "spiece.model")),
        *("--output", str(output)),
        *("--sequence-length", "64"),
        *("--processes", "1"),
        *map(str, more),
    ]


def build(corpus, output, *more):
    status = command_line.run(
        build_records.main, arguments(corpus, output, *more)
    )
    assert status == 0
    return read_manifest(output)


def error_of(capsys, corpus, output, *more):
    status = command_line.run(
        build_records.main, arguments(corpus, output, *more)
    )
    assert status == 1
    text = capsys.readouterr().err
    assert text.startswith("error: ") and text.count("\n") == 1
    return text


def digests(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
    }


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
        "file": "spiece.model",
    }
    model = (tmp_path / "set" / "spiece.model").read_bytes()
    assert model == tokenizer.model_proto
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
    # The stream of the first halves is the text.
    text = text_files.read_documents(str(corpus / "a.txt"))
    ids = [
        i
        for document in text
        for i in [*sum(tokenizer.encode_batch(document), []), 7]
    ]
    stream = values["token_ids"][:, :32].reshape(-1)
    assert stream.tolist() == ids[: len(stream)]
    assert manifest.totals["tokens"] == len(ids)


@pytest.mark.parametrize(
    # Workers must load TensorFlow for frozen records.
    "frozen",
    [False, pytest.param(True, marks=pytest.mark.slow)],
)
def test_any_number_of_processes(corpus, tmp_path, small_parts, frozen):
    """Byte for byte; the parts are the same because they come from here."""
    more = ["--both-directions", "--validation-fraction", 0.2]
    more += ["--frozen"] * frozen
    manifest = build(corpus, tmp_path / "one", *more)
    build(corpus, tmp_path / "two", *more, "--processes", 2)
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    directions = [shard.direction for shard in manifest.splits["train"]]
    assert directions == sorted(directions, reverse=True)
    assert directions.count("forward") == directions.count("backward") > 2


def test_seed(corpus, tmp_path):
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        build(corpus, tmp_path / name, "--seed", seed)
    a, b, c = (digests(tmp_path / name) for name in "abc")
    assert a == b
    assert a["train-00000.tfrecord"] != c["train-00000.tfrecord"]


def test_backward_records(corpus, tmp_path):
    manifest = build(corpus, tmp_path / "set", "--both-directions")
    forward = parsed(tmp_path / "set", manifest)
    backward = parsed(tmp_path / "set", manifest, direction="backward")
    assert not forward["is_reversed"].any()
    assert backward["is_reversed"].all()
    there = forward["token_ids"][:, :32].reshape(-1).tolist()
    back = backward["token_ids"][:, :32].reshape(-1)[::-1].tolist()
    # Both read the same stream, from its two ends.
    middle = there[len(there) // 2 :][:200]
    assert any(back[i : i + 200] == middle for i in range(len(back) - 200))


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
    whole = build(corpus, tmp_path / "whole")
    manifest = build(corpus, tmp_path / "set", "--validation-fraction", 0.2)
    assert manifest.totals == whole.totals

    def halves(directory, manifest, split):
        return parsed(directory, manifest, split)["token_ids"][:, :32].tolist()

    def joined(rows):
        return ",".join(str(token) for row in rows for token in row)

    # No half of the held-out records is anywhere in the text trained on.
    train = joined(halves(tmp_path / "set", manifest, "train"))
    every = joined(halves(tmp_path / "whole", whole, "train"))
    held_out = halves(tmp_path / "set", manifest, "validation")
    assert len(held_out) > 200
    assert not any(joined([half]) in train for half in held_out)
    assert sum(joined([half]) in every for half in held_out) > 150


@pytest.mark.parametrize("fraction", [1e-9, 0.3, 1 - 1e-9])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_each_split_has_a_document(fraction, count):
    documents = [text_files.Document("x", "running")] * count
    settings = RecordSettings(validation_fraction=fraction, seed=count)
    threshold = held_out.validation_threshold(
        lambda: (d for d in documents), settings
    )
    parts = held_out.numbered_parts(documents, threshold, settings.seed)
    assert [split for split, _, _ in parts] == ["train", "validation"]


def test_unknown_tokens_are_reported(corpus, tmp_path, capsys):
    (tmp_path / "x.txt").write_text("Ж Я Ю щ " * 300 + "ba co de " * 99)
    model = corpus / "spiece.model"
    (tmp_path / "spiece.model").write_bytes(model.read_bytes())
    build(tmp_path, tmp_path / "set")
    output = capsys.readouterr().out
    assert "warning: more than 1 % of the tokens are unknown" in output


def test_overwrite(corpus, tmp_path, capsys):
    build(corpus, tmp_path / "set")
    before = digests(tmp_path / "set")
    text = error_of(capsys, corpus, tmp_path / "set", "--seed", 1)
    assert "holds a set of records already" in text
    assert digests(tmp_path / "set") == before
    build(corpus, tmp_path / "set", "--seed", 1, "--overwrite")
    assert digests(tmp_path / "set") != before


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--reuse-length", 64], "`reuse_length` must be between 0 and"),
        (["--num-predict", 63], "`num_predict` must be at least 1 and leave"),
        (["--permutation-length", 24], "`permutation_length` must divide"),
        (["--tokens-per-target", 0], "`tokens_per_target` must be a positive"),
        (["--sequence-length", -2], "`sequence_length` must be a positive"),
        (
            ["--validation-fraction", 1],
            "`validation_fraction` must be in ",
        ),
        (["--seed", -1], "`seed` must be an integer from 0"),
        (["--processes", 0], "`processes` must be at least 1"),
        (["--sequence-length", 65536], "too short for a single sequence"),
        (["--text-format", "running", "--validation-fraction", 0.1], "two doc"),
        (
            ["--sequence-length", 4096, "--validation-fraction", 0.02],
            "held-out",
        ),
        (["--tokenizer", "no.model"], "SentencePiece model"),
        (["--input", "no*.txt"], "no file matches `input`"),
        (["--encoding", "ascii"], "invalid ascii at byte"),
    ],
)
def test_one_line_errors(corpus, tmp_path, capsys, more, message):
    text = error_of(capsys, corpus, tmp_path / "set", *more)
    assert message in text
    assert not (tmp_path / "set").exists()


def test_unknown_choice(corpus, tmp_path, capsys):
    text = error_of(capsys, corpus, tmp_path / "set", "--spans", "x")
    assert "`spans` must be one of" in text
    with pytest.raises(SystemExit):
        build_records.main(
            arguments(corpus, tmp_path / "set", "--text-format", "x")
        )


def test_settings_of_a_file_and_of_another_set(corpus, tmp_path):
    file = tmp_path / "settings.yaml"
    file.write_text("sequence_length: 32\nspans: subwords\n")
    build(corpus, tmp_path / "a", "--settings", str(file))
    plan = str(tmp_path / "a" / "build.json")
    build(corpus, tmp_path / "b", "--settings", plan)
    first, second = (read_manifest(tmp_path / name) for name in "ab")
    assert first == second
    assert first.spans == "subwords"


def test_full_disk(corpus, tmp_path, capsys, monkeypatch):
    def flush(file):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("data_pipeline.files._flush", flush)
    text = error_of(capsys, corpus, tmp_path / "set")
    assert "the disk is full while writing" in text
    assert not (tmp_path / "set").exists()


def test_help_is_quick_and_complete():
    code = (
        "import sys\n"
        "from data_pipeline import build_records\n"
        "try:\n    build_records.main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'tensorflow', 'numpy', 'sentencepiece', 'tqdm'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "--both-directions" in done.stdout


def test_building_needs_no_tensorflow(corpus, tmp_path):
    """Workers start in a fraction of a second."""
    more = json.dumps(arguments(corpus, tmp_path / "set"))
    code = (
        "import sys\n"
        "from data_pipeline import build_records\n"
        f"build_records.main({more})\n"
        "assert 'tensorflow' not in sys.modules\n"
        "assert 'keras' not in sys.modules\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "manifest.json" in os.listdir(tmp_path / "set")


def die(job):
    """In the place of a worker's work: the system ends it for memory."""
    os._exit(9)


def test_worker_that_dies(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(building, "_work", die)
    text = error_of(capsys, corpus, tmp_path / "set", "--processes", 2)
    assert "a worker process died" in text
    assert not (tmp_path / "set").exists()
