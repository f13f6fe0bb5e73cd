"""Builds go on from finished parts, or are refused with a reason."""

import json
import os
import pathlib
import resource
import shutil
import subprocess

import pytest

from data_pipeline.records import build
from data_pipeline.records import part
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import verify_records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.record_fixtures import change_plan
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import small_parts
from tests.support.record_fixtures import stopped_after
from tests.support.record_fixtures import write_corpus
from tests.support.samples import tiny_model

OPTIONS = ("--validation-fraction", "0.2", "--both-directions")


def run(corpus, output, *more):
    return run_build(corpus, output, *OPTIONS, *more)


def refused(capsys, *arguments):
    """The one line of a build that is refused, or stopped by its text."""
    capsys.readouterr()
    assert run(*arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and error.count("\n") == 1, error
    return error


@pytest.fixture(autouse=True)
def parts():
    with small_parts():
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Text, its set, and a build stopped by Ctrl-C before its fourth part."""
    directory = tmp_path_factory.mktemp("restart")
    corpus = write_corpus(directory / "corpus", files=2)
    with small_parts():
        assert run(corpus, directory / "complete") == 0
        with stopped_after(3):
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
    build_part, numbers = part.build_part, []

    def count(directory, split, number, *rest):
        numbers.append((split, number))
        return build_part(directory, split, number, *rest)

    monkeypatch.setattr(part, "build_part", count)
    return numbers


def test_resumed_build_has_the_same_bytes(made, corpus, stopped, built_parts):
    assert [path.name for path in stopped.iterdir()] == [".building"]
    left = {path.name for path in (stopped / ".building").iterdir()}
    assert len([name for name in left if name.endswith(".sha256")]) == 3
    assert not {"lock", "owner"} & left
    assert run(corpus, stopped) == 0
    splits = [split for split, _ in built_parts]
    assert len(splits) > 1 and ("train", 0) not in built_parts
    assert digests(stopped) == digests(made / "complete")
    assert verify_records(stopped) == []
    assert not (stopped / ".building").exists()


def test_stopped_before_the_first_part_leaves_nothing(corpus, tmp_path):
    with stopped_after(0):
        assert run(corpus, tmp_path / "set") == 130
    assert not (tmp_path / "set").exists()


def test_damaged_parts_are_built_again(made, corpus, tmp_path, built_parts):
    def flip(shard):
        flip_byte(shard, shard.stat().st_size - 30)

    def change(counts):
        fields = json.loads(counts.read_text())
        fields["documents"] += 1
        counts.write_text(json.dumps(fields))

    for damage, name in (
        (flip, "train-1-backward"),
        (lambda x: os.truncate(x, x.stat().st_size - 1), "train-1-backward"),
        (lambda shard: shard.unlink(), "train-1-backward"),
        (change, "train-1.json"),
        (lambda counts: counts.unlink(), "train-1.json"),
        (lambda listing: listing.unlink(), "train-1.sha256"),
        (lambda listing: listing.write_text(""), "train-1.sha256"),
        (lambda listing: listing.write_text("{"), "train-1.sha256"),
        (flip, "train-1.sha256"),
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
        )
    ):
        corpus = shutil.copytree(made / "corpus", tmp_path / str(number))
        if change is not None:
            change(corpus)
        error = refused(capsys, corpus, stopped, *more)
        assert message in error and "--overwrite" in error
        assert digests(stopped / ".building").items() >= before.items()


def test_damaged_plans(made, corpus, tmp_path, capsys):
    """They differ; no finished part is deleted, unless that is wanted."""
    plan = tmp_path / "set" / ".building" / "build.json"
    whole = json.loads((made / "stopped/.building/build.json").read_text())
    unreadable = "its build.json is missing or damaged"
    for content, message in (
        (None, unreadable),
        ("{", unreadable),
        ("[]", unreadable),
        ("{}", "its build.json has version None"),
        (json.dumps(whole | {"seed": 5}), "`seed` was 5 and is 0"),
        (json.dumps(whole | {"input": 7}), "`input` was 7 and is"),
        (json.dumps(whole | {"input": [7, "b.txt"]}), "had the file 7 and has"),
        (json.dumps(whole | {"input_bytes": [None]}), "was 1 file(s) and is 2"),
        (json.dumps(whole | {"numpy": []}), "numpy was version [] and is"),
    ):
        shutil.rmtree(tmp_path / "set", ignore_errors=True)
        shutil.copytree(made / "stopped", tmp_path / "set")
        plan.unlink() if content is None else plan.write_text(content)
        before = digests(plan.parent)
        error = refused(capsys, corpus, tmp_path / "set")
        assert "3 finished part(s)" in error
        assert message in error
        assert digests(plan.parent) == before
    assert run(corpus, tmp_path / "set", "--overwrite") == 0
    assert digests(tmp_path / "set") == digests(made / "complete")


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


def test_parts_of_other_text_are_built_again(
    corpus, stopped, tmp_path, built_parts
):
    """Of files with the same names and sizes; the other parts are kept."""
    change_text(corpus)
    assert run(corpus, tmp_path / "whole") == 0
    every = sorted(built_parts)
    built_parts.clear()
    assert run(corpus, stopped) == 0
    assert ("train", 0) in built_parts and sorted(built_parts) == every
    assert digests(stopped) == digests(tmp_path / "whole")
    # The text of the last part alone.
    other = tmp_path / "other"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(build, "_check_splits", stop_here)
        assert run(corpus, other) == 130
    text = (corpus / "b.txt").read_bytes()
    (corpus / "b.txt").write_bytes(text[:-20] + text[-20:].swapcase())
    built_parts.clear()
    assert run(corpus, other) == 0
    assert 0 < len(built_parts) < len(every)
    assert run(corpus, tmp_path / "again") == 0
    assert digests(other) == digests(tmp_path / "again")


def stop_here(*arguments):
    raise KeyboardInterrupt


def spoil_bytes(corpus):
    with open(corpus / "b.txt", "ab") as file:
        file.write(b"\n\nAn \xff and more.\n")


def spoil_compression(corpus):
    (corpus / "c.txt.gz").write_bytes(b"\x1f\x8b")


def test_bad_text_keeps_finished_parts(made, tmp_path, capsys, built_parts):
    """Of all kinds; they are of use until the text is changed."""
    for number, (spoil, message) in enumerate(
        (
            (spoil_bytes, "b.txt: invalid utf-8 at byte"),
            (lambda x: (x / "c.txt").write_text(""), "c.txt: the file holds"),
            (lambda x: (x / "c.json").write_text("{"), "c.json:1: the line is"),
            (spoil_compression, "c.txt.gz: the compressed file is damaged"),
        )
    ):
        corpus = shutil.copytree(made / "corpus", tmp_path / f"text{number}")
        spoil(corpus)
        output = tmp_path / f"set{number}"
        text = ("--input", str(corpus / "*.*[tnz]"), "--text-format", "auto")
        # Past the head, whose format is guessed before any part is built.
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("data_pipeline.text.compression.CHUNK_BYTES", 99)
            patch.setattr("data_pipeline.text.documents._HEAD_CHARACTERS", 99)
            patch.setattr("data_pipeline.text.documents._HEADS", 1)
            error = refused(capsys, corpus, output, *text)
            assert message in error
            assert "finished part(s)" in error and "begins anew" in error
            built_parts.clear()
            assert run(corpus, output, *text) == 1
            assert ("train", 0) not in built_parts
            assert message in capsys.readouterr().err
        shutil.copy(made / "corpus" / "b.txt", corpus)
        for file in corpus.glob("c.*"):
            file.unlink()
        assert "`input` " in refused(capsys, corpus, output, *text)
        assert run(corpus, output, *text, "--overwrite") == 0
        assert digests(output) == digests(made / "complete")


def test_lack_of_memory_keeps_finished_parts(
    made, corpus, tmp_path, monkeypatch, capsys, built_parts
):
    build_part = part.build_part

    def fail(directory, split, number, *rest):
        if number == 2:
            raise MemoryError
        return build_part(directory, split, number, *rest)

    with monkeypatch.context() as patch:
        patch.setattr(part, "build_part", fail)
        error = refused(capsys, corpus, tmp_path / "set")
    assert "not enough memory" in error
    built_parts.clear()
    assert run(corpus, tmp_path / "set") == 0
    assert ("train", 0) not in built_parts
    assert digests(tmp_path / "set") == digests(made / "complete")


def test_disk_that_fills_up(made, corpus, tmp_path, capsys, built_parts):
    """One line names the file, nothing is half written, and it goes on."""
    output = tmp_path / "set"
    shards = [x.stat().st_size for x in (made / "complete").glob("*.tfrecord")]
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # The limit of a file stands for that of a disk: no part but the smallest
    # has room.
    limit = (min(shards) + max(shards)) // 2
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        assert run(corpus, output) == 1
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    error = capsys.readouterr().err
    assert error.count("\n") == 1 and "File too large" in error
    assert ".building/train-" in error or ".building/validation-" in error
    left = list(output.rglob("*"))
    assert not [path for path in left if path.name.startswith(".tmp-")]
    assert run(corpus, output) == 0
    assert digests(output) == digests(made / "complete")


def test_bad_text_is_replaced_or_skipped(made, corpus, tmp_path, capsys):
    """And counted; a build that bad text has stopped goes on with either."""
    spoil_bytes(corpus)
    (corpus / "c.txt").write_text(" \n")
    (corpus / "d.jsonl").write_text("[" * 100_000 + '\n{"text": "One."}\n')
    text = ("--input", corpus / "*.txt", corpus / "*.jsonl")
    stopped, skipped = tmp_path / "stopped", tmp_path / "skipped"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("data_pipeline.text.compression.CHUNK_BYTES", 99)
        patch.setattr("data_pipeline.text.documents._HEAD_CHARACTERS", 99)
        patch.setattr("data_pipeline.text.documents._HEADS", 1)
        assert run(corpus, stopped, *text) == 1
    assert list((stopped / ".building").glob("*.sha256"))
    shutil.copytree(stopped, skipped)
    for output, choice, other, replaced, lines in (
        (stopped, "replace", "skip", 1, 1),
        (skipped, "skip", "replace", 0, 2),
    ):
        assert run(corpus, output, *text, "--on-bad-text", choice) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        totals = read_manifest(output).totals
        assert totals.get("replaced_characters", 0) == replaced
        assert totals["skipped_lines"] == lines
        assert totals["empty_files"] == 1
        assert last == (
            f"wrote {output}"
            + "; 1 replaced character(s) that were no text" * replaced
            + f"; {lines} skipped line(s) that could not be read"
            "; 1 file(s) without text"
        )
        error = refused(capsys, corpus, output, *text, "--on-bad-text", other)
        assert f"`on_bad_text` was {choice} and is {other}" in error
    assert (
        read_manifest(stopped).totals["characters"]
        == read_manifest(skipped).totals["characters"] + 14
    )


def test_other_releases_of_libraries(made, corpus, stopped, tmp_path, capsys):
    """A build does not mix them; a complete set may be of another one."""
    complete = shutil.copytree(made / "complete", tmp_path / "complete")
    for directory, status in ((stopped / ".building", 1), (complete, 0)):
        change_plan(directory / "build.json", numpy="1.21")
        output = directory.parent if status else directory
        assert run(corpus, output) == status
    assert "numpy was version 1.21 and is" in capsys.readouterr().err


@pytest.mark.parametrize("version", [3, 5, None])
def test_plans_of_other_versions(made, corpus, tmp_path, capsys, version):
    """Refused, whatever fields they have; `--overwrite` begins again."""
    for name in ("stopped", "complete"):
        output = shutil.copytree(made / name, tmp_path / name)
        (plan,) = output.rglob("build.json")
        change_plan(plan, building_version=version, libraries=[])
        before = digests(plan.parent)
        error = refused(capsys, corpus, output)
        assert str(plan.parent) in error
        assert (
            f"its build.json has version {version}, where this library writes "
            "version 4" in error
        )
        assert "`overwrite` (--overwrite)" in error
        assert digests(plan.parent) == before
        assert run(corpus, output, "--overwrite") == 0
        assert digests(output) == digests(made / "complete")


def test_complete_set_of_other_text(made, corpus, tmp_path, capsys):
    """Of the same names and sizes, wherever it is."""
    output = shutil.copytree(made / "complete", tmp_path / "set")
    same = shutil.copytree(corpus, tmp_path / "same")
    assert run(same, output) == 0
    before = digests(output)
    change_text(corpus)
    capsys.readouterr()
    error = refused(capsys, corpus, output)
    assert f"`input` file {corpus}/a.txt has changed since the set" in error
    assert "--overwrite" in error and digests(output) == before
    change_plan(output / "build.json", input_sha256=[])
    assert "a.txt has changed since the set" in refused(capsys, same, output)
    (output / "build.json").unlink()
    error = refused(capsys, same, output)
    assert "its build.json is missing or damaged" in error


def test_sums_of_a_set(made):
    """`sha256sum -c` of the system reads them; no file is left out."""
    names = {path.name for path in (made / "complete").iterdir()}
    done = subprocess.run(
        ["sha256sum", "-c", "SHA256SUMS"],
        cwd=made / "complete",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    listed = {line.split(":")[0] for line in done.stdout.splitlines()}
    assert listed == names - {"SHA256SUMS"} and len(listed) > 6


def test_complete_set_is_recognized(
    made, corpus, tmp_path, capsys, built_parts
):
    output = shutil.copytree(made / "complete", tmp_path / "set")
    before = digests(output)
    # The number of processes is not part of the plan.
    assert run(corpus, output, "--processes", 2) == 0
    assert "was complete already\n" in capsys.readouterr().out
    assert not built_parts and digests(output) == before
    error = refused(capsys, corpus, output, "--seed", 1)
    assert "holds a set of records already, and `seed` was 0 and is 1" in error
    os.truncate(output / "train-00001.tfrecord", 100)
    error = refused(capsys, corpus, output)
    assert "train-00001.tfrecord: the shard has 100" in error


def test_killed_when_it_was_complete(made, corpus, tmp_path, monkeypatch):
    """The next command removes what is left; not a build that goes on."""
    output = tmp_path / "set"
    clear = build.RecordSetWriter.clear

    def killed(self, *arguments):
        if (output / "manifest.json").exists():
            raise KeyboardInterrupt
        clear(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(build.RecordSetWriter, "clear", killed)
        assert run(corpus, output) == 130
    assert (output / "manifest.json").exists()
    assert (output / ".building" / "placing.json").exists()
    assert run(corpus, output) == 0
    assert not (output / ".building").exists()
    assert digests(output) == digests(made / "complete")
    (output / ".building").mkdir()
    (output / ".building" / "lock").touch()
    assert run(corpus, output) == 0
    assert not (output / ".building").exists()
    shutil.copytree(made / "stopped" / ".building", output / ".building")
    assert run(corpus, output) == 0
    assert (output / ".building" / "train-0.sha256").exists()


def test_stopped_while_the_files_are_placed(
    made, corpus, tmp_path, monkeypatch, built_parts
):
    """The next command places the others, whatever else it is to do."""
    replace = pathlib.Path.replace

    def fail(source, target):
        if target.name == "train-00002.tfrecord":
            raise OSError(5, "Input/output error", target)
        return replace(source, target)

    for number, (more, status, is_built) in enumerate(
        (
            ([], 0, False),
            (["--overwrite"], 0, False),
            (["--seed", 5], 1, False),
            (["--seed", 5, "--overwrite"], 0, True),
        )
    ):
        output = tmp_path / f"set{number}"
        with monkeypatch.context() as patch:
            patch.setattr(pathlib.Path, "replace", fail)
            assert run(corpus, output) == 1
        assert not (output / "manifest.json").exists()
        built_parts.clear()
        assert run(corpus, output, *more) == status
        assert bool(built_parts) == is_built
        assert is_built or digests(output) == digests(made / "complete")
        assert verify_records(output) == []
        assert not (output / ".building").exists()


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
