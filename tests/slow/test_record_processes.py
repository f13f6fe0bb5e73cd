"""Records built in several processes, on Apache Beam, or stopped by signals."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import pytest

from data_pipeline.pretraining import PretrainingData
from data_pipeline.records import beam as beam_records
from data_pipeline.records import build
from data_pipeline.records import part
from data_pipeline.records import processes
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import verify_records
from data_pipeline.records.schema import RecordSettings
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.conftest import ROOT
from tests.support.commands import python
from tests.support.record_fixtures import PART
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import record_options
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import small_parts
from tests.support.record_fixtures import write_corpus
from tests.torture import killed_building

OPTIONS = ("--validation-fraction", "0.2", "--both-directions")
THREADS = (
    *("--runner", "DirectRunner", "--direct_num_workers=2"),
    "--direct_running_mode=multi_threading",
)


def run(corpus, output, *more):
    return run_build(corpus, output, *OPTIONS, *more)


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    directory = tmp_path_factory.mktemp("records") / "corpus"
    return write_corpus(directory, files=3, documents=45)


@pytest.fixture(scope="module")
def local(corpus):
    """The set of one process, in small parts."""
    with small_parts():
        assert run(corpus, corpus.parent / "local") == 0
    return corpus.parent / "local"


@pytest.fixture
def beam():
    return pytest.importorskip(
        "apache_beam", reason="Apache Beam (the extra `beam`) is not installed"
    )


@pytest.mark.parametrize("frozen", [False, True])
def test_any_number_of_processes(corpus, tmp_path, frozen):
    """Workers of frozen records load TensorFlow."""
    more = ["--frozen"] * frozen
    with small_parts():
        assert run(corpus, tmp_path / "one", *more) == 0
        assert run(corpus, tmp_path / "two", *more, "--processes", 2) == 0
    assert digests(tmp_path / "one") == digests(tmp_path / "two")
    steps = []
    with small_parts():
        build.build_records(
            str(corpus / "*.txt"),
            Tokenizer(corpus / "spiece.model"),
            tmp_path / "three",
            RecordSettings(64),
            processes=2,
            progress=steps.append,
        )
    size = sum(path.stat().st_size for path in corpus.glob("*.txt"))
    assert sum(steps) == size and min(steps) >= 0


def die(job):
    """Replaces the work of a worker: the system ends it for memory."""
    os._exit(9)


def test_worker_that_dies(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(processes, "_work", die)
    assert run(corpus, tmp_path / "set", "--processes", 2) == 1
    assert "a worker process died" in capsys.readouterr().err
    assert not (tmp_path / "set").exists()


def test_killed_builds(tmp_path):
    """Real SIGKILLs; `make torture` makes more, at more moments."""
    trials = killed_building.trials(2, tmp_path, random.Random(0))
    assert not [trial for trial in trials if trial[1] is not None]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_command_is_resumed(tmp_path, number):
    corpus = write_corpus(tmp_path / "corpus", files=2)
    text = (corpus / "a.txt").read_text() + "\n\n"
    (corpus / "a.txt").write_text(text * 40)
    options = record_options(corpus, tmp_path / "set", "--processes", 2)
    code = (
        "import json, sys\n"
        "from data_pipeline import build_records\n"
        "from data_pipeline.base import command_line\n"
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
        while len(list(tmp_path.glob("set/.building/*.sha256"))) < 5:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
        process.send_signal(number)
        error = process.communicate(timeout=60)[1]
    assert process.returncode == 128 + number
    assert error == "stopped\n"
    with pytest.raises(FileNotFoundError, match="there is no manifest"):
        read_manifest(tmp_path / "set")
    with small_parts():
        assert run_build(corpus, tmp_path / "set") == 0
        assert run_build(corpus, tmp_path / "whole") == 0
    assert digests(tmp_path / "set") == digests(tmp_path / "whole")


def test_building_needs_no_tensorflow(corpus, tmp_path):
    """Workers start in a fraction of a second."""
    options = json.dumps(record_options(corpus, tmp_path / "set"))
    code = (
        "import sys\n"
        "from data_pipeline import build_records\n"
        f"build_records.main({options})\n"
        "assert not {'tensorflow', 'keras'} & set(sys.modules)\n"
    )
    python("-c", code)
    assert "manifest.json" in os.listdir(tmp_path / "set")


def test_help_loads_no_libraries():
    code = (
        "import sys\n"
        "from data_pipeline import build_records\n"
        "try:\n    build_records.main(['--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'tensorflow', 'numpy', 'sentencepiece', 'tqdm'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)\n"
    )
    done = python("-c", code)
    assert "--both-directions" in done.stdout


def test_beam_builds_the_same_bytes(beam, corpus, local, tmp_path, capsys):
    with small_parts():
        assert run(corpus, tmp_path / "beam", *THREADS) == 0
    assert "45 documents" in capsys.readouterr().out
    assert len(read_manifest(local).splits["train"]) > 6
    assert digests(tmp_path / "beam") == digests(local)
    assert verify_records(tmp_path / "beam") == []
    assert not (tmp_path / "beam" / ".building").exists()
    data = PretrainingData(tmp_path / "beam", 4)
    assert next(iter(data.dataset()))["token_ids"].shape == (4, 64)
    # A complete set is recognized by either builder.
    assert run(corpus, tmp_path / "beam") == 0
    assert "was complete already" in capsys.readouterr().out


def test_beam_divides_a_short_text_alike(beam, corpus, tmp_path):
    """A single document, of which no part could be held out."""
    text = "\n\n".join(path.read_text() for path in corpus.glob("*.txt"))
    (tmp_path / "text.txt").write_text(text)
    options = ("--input", tmp_path / "text.txt", "--text-format", "running")
    options += ("--validation-fraction", 0.1)
    assert run(corpus, tmp_path / "local", *options) == 0
    assert run(corpus, tmp_path / "beam", *options, *THREADS) == 0
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")
    assert read_manifest(tmp_path / "local").splits["validation"]


def test_beam_resumes_after_a_failure(
    beam, corpus, local, tmp_path, monkeypatch, capsys
):
    build_part, built = part.build_part, []

    def fail(directory, split, number, *rest):
        if (split, number) == ("train", 2):
            raise RuntimeError("the worker has no memory left.")
        built.append((split, number))
        return build_part(directory, split, number, *rest)

    one = ("--runner", "DirectRunner")
    with small_parts():
        with monkeypatch.context() as patch:
            patch.setattr(part, "build_part", fail)
            assert run(corpus, tmp_path / "set", *one) == 1
        error = capsys.readouterr().err.splitlines()[-1]
        assert error == "error: the worker has no memory left."
        assert not (tmp_path / "set" / "manifest.json").exists()
        done = list((tmp_path / "set" / ".building").glob("*.sha256"))
        assert len(done) == len(built)
        assert run(corpus, tmp_path / "set", *one) == 0
    assert digests(tmp_path / "set") == digests(local)


def test_beam_in_several_processes(beam, corpus, tmp_path):
    """Parts of the full size: patches do not reach other processes."""
    text = (corpus / "a.txt").read_text() + "\n\n"
    large = tmp_path / "large"
    large.mkdir()
    for number in range(3):
        (large / f"{number}.txt").write_text(text * (4_200_000 // len(text)))
    (large / "spiece.model").write_bytes((corpus / "spiece.model").read_bytes())
    assert run(large, tmp_path / "local") == 0
    options = (
        *("--runner", "DirectRunner", "--direct_num_workers=2"),
        "--direct_running_mode=multi_processing",
    )
    assert run(large, tmp_path / "beam", *options) == 0
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")


def test_beam_and_bad_text(beam, corpus, tmp_path, capsys):
    """Lone surrogates, and text that is replaced, as on one machine."""
    text = tmp_path / "text"
    text.mkdir()
    (text / "spiece.model").write_bytes((corpus / "spiece.model").read_bytes())
    (text / "a.txt").write_bytes((corpus / "a.txt").read_bytes() + b"A \xff.\n")
    lines = [json.dumps({"text": f"Cut \ud83d {i}."}) for i in range(99)]
    (text / "b.jsonl").write_text("\n".join([*lines, "{"]))
    options = ("--input", text / "a.txt", text / "b.jsonl")
    options = (*options, "--on-bad-text", "replace")
    assert run(text, tmp_path / "local", *options) == 0
    assert run(text, tmp_path / "beam", *options, *THREADS) == 0
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")
    totals = read_manifest(tmp_path / "beam").totals
    assert totals["replaced_characters"] == totals["skipped_lines"] == 1
    capsys.readouterr()
    options = (*options[:-1], "refuse", *THREADS)
    assert run(text, tmp_path / "refused", *options) == 1
    assert "invalid utf-8 at byte" in capsys.readouterr().err.splitlines()[-1]


def test_parts_that_workers_lost_are_told(beam, corpus, tmp_path, capsys):
    build_part = part.build_part

    def lose(directory, *rest):
        built = build_part(directory, *rest)
        os.truncate(os.path.join(directory, built.shards[0].file), 9)
        return built

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(part, "build_part", lose)
        assert run(corpus, tmp_path / "set", *THREADS) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert "parts that workers have written are not whole in" in error


def test_failures_of_any_kind_have_a_message():
    for error, kind in (
        (UnicodeEncodeError("utf-8", "\ud800", 0, 1, "no"), ValueError),
        (json.JSONDecodeError("no", "{", 1), ValueError),
        (RuntimeError("no"), RuntimeError),
    ):
        with pytest.raises(kind, match="no"):
            with beam_records._failures_in_one_line():
                raise error


def test_errors_of_beam_are_one_line(beam, corpus, tmp_path, capsys):
    for more, message in (
        (["--runner", "NoRunner"], "error: Unexpected pipeline runner: NoR"),
        ([*THREADS, "--no-such-option", "3"], "called so: --no-such-option."),
        ([*THREADS, "b.txt", "c.txt"], "called so: b.txt. See --help; quote"),
        ([*THREADS, "--encoding", "ascii"], ".txt: invalid ascii at byte "),
    ):
        assert run(corpus, tmp_path / "set", *more) == 1
        assert message in capsys.readouterr().err.splitlines()[-1]
        assert not (tmp_path / "set").exists()
