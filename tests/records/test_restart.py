"""Interrupted builds are resumed, or refused with a reason."""

import os
import shutil

import pytest

from data_pipeline.records import build
from data_pipeline.records.schema import RecordSettings
from data_pipeline.records.writer import verify_records
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import small_parts
from tests.support.record_fixtures import write_corpus
from tests.support.samples import tiny_model

OPTIONS = ("--validation-fraction", "0.2", "--both-directions")


def run(corpus, output, *more):
    return run_build(corpus, output, *OPTIONS, *more)


@pytest.fixture(autouse=True)
def parts():
    with small_parts():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Text, its set, and a build stopped by Ctrl-C before its fourth part."""
    directory = tmp_path_factory.mktemp("restart")
    corpus = write_corpus(directory / "corpus", files=2)
    with small_parts(), pytest.MonkeyPatch.context() as patch:
        assert run(corpus, directory / "complete") == 0
        build_part, left = build._build, [1] * 3

        def stop(*arguments):
            if not left:
                raise KeyboardInterrupt
            left.pop()
            return build_part(*arguments)

        patch.setattr(build, "_build", stop)
        assert run(corpus, directory / "stopped") == 130
    return directory


@pytest.fixture
def stopped(made, tmp_path):
    return shutil.copytree(made / "stopped", tmp_path / "set")


@pytest.fixture
def corpus(made, tmp_path):
    return shutil.copytree(made / "corpus", tmp_path / "corpus")


@pytest.fixture
def built_parts(monkeypatch):
    """Numbers of the parts that are built, not loaded."""
    build_part, numbers = build._build, []

    def count(job, *rest):
        numbers.append((job.split, job.number))
        return build_part(job, *rest)

    monkeypatch.setattr(build, "_build", count)
    return numbers


def test_resumed_build_has_the_same_bytes(made, corpus, stopped, built_parts):
    assert [path.name for path in stopped.iterdir()] == [".building"]
    left = {path.name for path in (stopped / ".building").iterdir()}
    assert len([name for name in left if name.endswith(".done")]) == 3
    assert "pid" not in left
    assert run(corpus, stopped) == 0
    splits = [split for split, _ in built_parts]
    assert len(splits) > 1 and ("train", 0) not in built_parts
    assert digests(stopped) == digests(made / "complete")
    assert verify_records(stopped) == []
    assert not (stopped / ".building").exists()


def test_stopped_before_the_first_part_leaves_nothing(
    corpus, tmp_path, monkeypatch
):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(build, "_build", stop)
    assert run(corpus, tmp_path / "set") == 130
    assert not (tmp_path / "set").exists()


def test_finished_parts_are_verified(made, corpus, tmp_path, built_parts):
    def flip(shard):
        content = bytearray(shard.read_bytes())
        content[-30] ^= 1
        shard.write_bytes(content)

    for damage, name in (
        (flip, "train-1-backward"),
        (lambda x: os.truncate(x, x.stat().st_size - 1), "train-1-backward"),
        (lambda shard: shard.unlink(), "train-1-backward"),
        (lambda mark: mark.write_text("{"), "train-1.done"),
    ):
        shutil.rmtree(tmp_path / "set", ignore_errors=True)
        output = shutil.copytree(made / "stopped", tmp_path / "set")
        damage(output / ".building" / name)
        built_parts.clear()
        assert run(corpus, output) == 0
        assert ("train", 1) in built_parts
        assert ("train", 0) not in built_parts
        assert digests(output) == digests(made / "complete")


def change_tokenizer(corpus):
    (corpus / "spiece.model").write_bytes(tiny_model(vocab_size=310))


def change_length(corpus):
    with open(corpus / "b.txt", "a", encoding="utf-8") as file:
        file.write("More.\n")


def change_text(corpus):
    text = (corpus / "a.txt").read_text(encoding="utf-8")
    (corpus / "a.txt").write_text(text.swapcase(), encoding="utf-8")


def test_another_build_is_refused(made, stopped, tmp_path, capsys):
    before = digests(stopped / ".building")
    for number, (change, more, message) in enumerate(
        (
            (None, ["--seed", 5], "`seed` was 0 and is 5"),
            (None, ["--num-predict", 5], "`num_predict` was 10 and is 5"),
            (None, ["--text-format", "running"], "`text_format` was auto and"),
            (None, ["--lowercase"], "`lowercase` was False and is True"),
            (change_tokenizer, [], "`tokenizer` was "),
            (change_length, [], "`input` file b.txt had "),
            (lambda c: (c / "c.txt").write_text("."), [], "`input` was 2 file"),
            (lambda c: (c / "b.txt").rename(c / "c.txt"), [], "b.txt and has"),
            (change_text, [], "is another than the stopped build has read"),
        )
    ):
        corpus = shutil.copytree(made / "corpus", tmp_path / str(number))
        if change is not None:
            change(corpus)
        assert run(corpus, stopped, *more) == 1
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert message in error and "--overwrite" in error
        assert digests(stopped / ".building").items() >= before.items()


def test_overwriting(made, corpus, stopped, tmp_path, built_parts):
    """An equal plan is resumed; another one begins again."""
    other = shutil.copytree(stopped, tmp_path / "other")
    assert run(corpus, stopped, "--overwrite") == 0
    assert ("train", 0) not in built_parts
    assert run(corpus, other, "--overwrite", "--seed", 5) == 0
    assert ("train", 0) in built_parts
    assert run(corpus, tmp_path / "whole", "--seed", 5) == 0
    assert digests(other) == digests(tmp_path / "whole")
    assert digests(other) != digests(stopped)


def test_complete_set_is_recognized(
    made, corpus, tmp_path, capsys, built_parts
):
    output = shutil.copytree(made / "complete", tmp_path / "set")
    before = digests(output)
    # The number of processes is not part of the plan.
    assert run(corpus, output, "--processes", 2) == 0
    assert "was complete already\n" in capsys.readouterr().out
    assert not built_parts and digests(output) == before
    assert run(corpus, output, "--seed", 1) == 1
    error = capsys.readouterr().err
    assert "holds a set of records already, and `seed` was 0 and is 1" in error
    os.truncate(output / "train-00001.tfrecord", 100)
    assert run(corpus, output) == 1
    assert "train-00001.tfrecord: the shard has 100" in capsys.readouterr().err


def test_stopped_while_renaming(corpus, tmp_path, monkeypatch, built_parts):
    replace = os.replace

    def fail(source, target):
        if target.endswith("train-00002.tfrecord"):
            raise OSError(5, "Input/output error", target)
        replace(source, target)

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", fail)
        assert run(corpus, tmp_path / "set") == 1
    assert list((tmp_path / "set").glob("*")) == [tmp_path / "set/.building"]
    built_parts.clear()
    assert run(corpus, tmp_path / "set") == 0
    assert not built_parts


def test_progress_counts_all_bytes_once(corpus, stopped):
    steps = []
    build.build_records(
        str(corpus / "*.txt"),
        Tokenizer(corpus / "spiece.model"),
        stopped,
        RecordSettings(64, validation_fraction=0.2, both_directions=True),
        progress=steps.append,
    )
    size = sum(path.stat().st_size for path in corpus.glob("*.txt"))
    assert sum(steps) == size and min(steps) >= 0 and len(steps) > 3
