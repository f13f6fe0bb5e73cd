"""A build that was stopped goes on where it stopped, or says why not."""

import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import pytest

from data_pipeline import build_records
from data_pipeline import command_line
from data_pipeline.records import build as building
from data_pipeline.records.writer import read_manifest
from data_pipeline.records.writer import verify_records
from data_pipeline.text import documents as text_files
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences

ROOT = pathlib.Path(__file__).resolve().parents[2]
PART = 9000  # characters, so that small texts make many parts


@pytest.fixture(autouse=True)
def small_parts(monkeypatch):
    planner = text_files.PartPlanner.__init__
    monkeypatch.setattr(planner, "__defaults__", (PART,))


@pytest.fixture(scope="module")
def model():
    return tiny_model()


@pytest.fixture
def corpus(tmp_path, model):
    directory = tmp_path / "corpus"
    directory.mkdir()
    (directory / "spiece.model").write_bytes(model)
    lines = list(tiny_sentences(800))
    for name, begin in (("a", 0), ("b", 400)):
        text = "\n\n".join(
            "\n".join(lines[i : i + 20]) for i in range(begin, begin + 400, 20)
        )
        (directory / f"{name}.txt").write_text(text, encoding="utf-8")
    return directory


def arguments(corpus, output, *more):
    return [
        *("--input", str(corpus / "*.txt")),
        *("--tokenizer", str(corpus / "spiece.model")),
        *("--output", str(output)),
        *("--sequence-length", "64", "--validation-fraction", "0.2"),
        *("--processes", "1", "--both-directions"),
        *map(str, more),
    ]


def run(corpus, output, *more):
    return command_line.run(
        build_records.main, arguments(corpus, output, *more)
    )


def digests(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
        if path.is_file()
    }


@pytest.fixture
def built_parts(monkeypatch):
    """The numbers of the parts that are built, not found."""
    build, numbers = building._build, []

    def count(job, *rest):
        numbers.append((job.split, job.number))
        return build(job, *rest)

    monkeypatch.setattr(building, "_build", count)
    return numbers


@pytest.fixture
def stopped(corpus, tmp_path, monkeypatch):
    """A build that Ctrl-C stopped before its fourth part."""
    build, left = building._build, [1] * 3

    def stop(*arguments):
        if not left:
            raise KeyboardInterrupt
        left.pop()
        return build(*arguments)

    with monkeypatch.context() as patch:
        patch.setattr(building, "_build", stop)
        assert run(corpus, tmp_path / "set") == 130
    return tmp_path / "set"


def test_goes_on_where_it_stopped(corpus, tmp_path, stopped, built_parts):
    assert [path.name for path in stopped.iterdir()] == [".building"]
    left = {path.name for path in (stopped / ".building").iterdir()}
    assert len([name for name in left if name.endswith(".done")]) == 3
    assert "pid" not in left
    assert run(corpus, stopped) == 0
    again = list(built_parts)
    assert run(corpus, tmp_path / "whole") == 0
    assert len(again) == len(built_parts) - len(again) - 3 > 1
    assert digests(stopped) == digests(tmp_path / "whole")
    assert verify_records(stopped) == []
    assert not (stopped / ".building").exists()


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGINT, marks=pytest.mark.slow),
        signal.SIGTERM,
        pytest.param(signal.SIGKILL, marks=pytest.mark.slow),
    ],
)
def test_stopped_command_goes_on(corpus, tmp_path, number):
    text = (corpus / "a.txt").read_text() + "\n\n"
    (corpus / "a.txt").write_text(text * 40)
    options = arguments(corpus, tmp_path / "set", "--processes", 2)
    code = (
        "import json, sys\n"
        "from data_pipeline import build_records, command_line\n"
        "from data_pipeline.text import documents\n"
        f"documents.PartPlanner.__init__.__defaults__ = ({PART},)\n"
        "main = build_records.main\n"
        f"sys.exit(command_line.run(main, {json.dumps(options)}))\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        deadline = time.monotonic() + 60
        while len(list(tmp_path.glob("set/.building/*.done"))) < 5:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    if number != signal.SIGKILL:
        assert process.returncode == 128 + number
        assert error == "stopped\n"
    with pytest.raises(FileNotFoundError, match="there is no manifest"):
        read_manifest(tmp_path / "set")
    assert run(corpus, tmp_path / "set") == 0
    assert run(corpus, tmp_path / "whole") == 0
    assert digests(tmp_path / "set") == digests(tmp_path / "whole")


def test_stopped_before_the_first_part_leaves_nothing(
    corpus, tmp_path, monkeypatch
):
    def stop(*arguments):
        raise KeyboardInterrupt

    monkeypatch.setattr(building, "_build", stop)
    assert run(corpus, tmp_path / "set") == 130
    assert not (tmp_path / "set").exists()


@pytest.mark.parametrize("damage", ["flip", "cut", "remove", "mark"])
def test_finished_parts_are_verified(
    corpus, tmp_path, stopped, built_parts, damage
):
    shard = stopped / ".building" / "train-1-backward"
    if damage == "flip":
        content = bytearray(shard.read_bytes())
        content[-30] ^= 1
        shard.write_bytes(content)
    elif damage == "cut":
        os.truncate(shard, shard.stat().st_size - 1)
    elif damage == "remove":
        shard.unlink()
    else:
        (stopped / ".building" / "train-1.done").write_text("{")
    assert run(corpus, stopped) == 0
    assert ("train", 1) in built_parts
    assert ("train", 0) not in built_parts
    assert run(corpus, tmp_path / "whole") == 0
    assert digests(stopped) == digests(tmp_path / "whole")


def change_tokenizer(corpus):
    (corpus / "spiece.model").write_bytes(tiny_model(vocab_size=310))


def change_length(corpus):
    with open(corpus / "b.txt", "a", encoding="utf-8") as file:
        file.write("More.\n")


def change_text(corpus):
    text = (corpus / "a.txt").read_text(encoding="utf-8")
    (corpus / "a.txt").write_text(text.swapcase(), encoding="utf-8")


@pytest.mark.parametrize(
    ("change", "more", "message"),
    [
        (None, ["--seed", 5], "`seed` was 0 and is 5"),
        (None, ["--num-predict", 5], "`num_predict` was 10 and is 5"),
        (None, ["--text-format", "running"], "`text_format` was auto and is"),
        (None, ["--lowercase"], "`lowercase` was False and is True"),
        (change_tokenizer, [], "`tokenizer` was "),
        (change_length, [], "`input` file b.txt had "),
        (lambda c: (c / "c.txt").write_text("."), [], "`input` was 2 file(s)"),
        (lambda c: (c / "b.txt").rename(c / "c.txt"), [], "file b.txt and has"),
        (change_text, [], "is another than the stopped build has read"),
    ],
)
def test_another_build_is_refused(
    corpus, tmp_path, capsys, stopped, built_parts, change, more, message
):
    if change is not None:
        change(corpus)
    before = digests(stopped / ".building")
    assert run(corpus, stopped, *more) == 1
    error = capsys.readouterr().err
    assert error.count("\n") == 2  # after the fixture's "stopped"
    assert message in error and "--overwrite" in error
    assert digests(stopped / ".building").items() >= before.items()
    # To start again must be said, and is as if nothing had been there.
    built_parts.clear()
    if change is change_text:
        return
    assert run(corpus, stopped, *more, "--overwrite") == 0
    assert ("train", 0) in built_parts
    assert run(corpus, tmp_path / "whole", *more) == 0
    assert digests(stopped) == digests(tmp_path / "whole")


def test_overwriting_goes_on_too(corpus, stopped, built_parts):
    assert run(corpus, stopped, "--overwrite") == 0
    assert ("train", 0) not in built_parts


def test_finished_set_is_recognised(corpus, tmp_path, capsys, built_parts):
    assert run(corpus, tmp_path / "set") == 0
    before = digests(tmp_path / "set")
    assert "wrote " in capsys.readouterr().out
    built_parts.clear()
    # Who builds, and how fast, is no part of what it is made from.
    assert run(corpus, tmp_path / "set", "--processes", 2) == 0
    assert "was complete already\n" in capsys.readouterr().out
    assert not built_parts and digests(tmp_path / "set") == before
    assert run(corpus, tmp_path / "set", "--seed", 1) == 1
    error = capsys.readouterr().err
    assert "holds a set of records already, and `seed` was 0 and is 1" in error
    os.truncate(tmp_path / "set" / "train-00001.tfrecord", 100)
    assert run(corpus, tmp_path / "set") == 1
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


def test_progress_counts_all_bytes_once(corpus, tmp_path, stopped):
    from data_pipeline.records.schema import RecordSettings
    from data_pipeline.tokenization.tokenizer import Tokenizer

    size = sum(path.stat().st_size for path in corpus.glob("*.txt"))
    for output, processes in ((stopped, 1), (tmp_path / "two", 2)):
        steps = []
        building.build_records(
            str(corpus / "*.txt"),
            Tokenizer(corpus / "spiece.model"),
            output,
            RecordSettings(64, validation_fraction=0.2, both_directions=True),
            processes=processes,
            progress=steps.append,
        )
        assert sum(steps) == size and min(steps) >= 0


class Stream:
    """Where nobody looks on."""

    def __init__(self):
        self.text = ""

    def isatty(self):
        return False

    def write(self, text):
        self.text += text

    def flush(self):
        pass
