"""Records built on Apache Beam are those that one machine builds."""

import collections
import hashlib
import sys

import pytest
import tensorflow as tf

from data_pipeline import build_records
from data_pipeline import command_line
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records import part as part_building
from data_pipeline.records.writer import read_manifest
from data_pipeline.records.writer import verify_records
from data_pipeline.text import documents as text_files
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    """Three files of documents, and `spiece.model`."""
    directory = tmp_path_factory.mktemp("corpus")
    (directory / "spiece.model").write_bytes(tiny_model())
    lines = list(tiny_sentences(900))
    for number in range(3):
        begin = 300 * number
        text = "\n\n".join(
            "\n".join(lines[i : i + 20]) for i in range(begin, begin + 300, 20)
        )
        (directory / f"{number}.txt").write_text(text, encoding="utf-8")
    return directory


@pytest.fixture
def beam():
    return pytest.importorskip(
        "apache_beam", reason="Apache Beam (the extra `beam`) is not installed"
    )


@pytest.fixture
def small_parts(monkeypatch):
    """Parts of a few documents; threads see it, other processes do not."""
    planner = text_files.PartPlanner.__init__
    monkeypatch.setattr(planner, "__defaults__", (9000,))


def run(corpus, output, *more):
    return command_line.run(
        build_records.main,
        [
            *("--input", str(corpus / "*.txt")),
            *("--tokenizer", str(corpus / "spiece.model")),
            *("--output", str(output)),
            *("--sequence-length", "64", "--validation-fraction", "0.2"),
            *("--processes", "1", "--both-directions"),
            *map(str, more),
        ],
    )


def digests(directory):
    return {
        path.name: hashlib.sha256(path.read_bytes()).hexdigest()
        for path in directory.iterdir()
    }


def records_of(directory, split):
    """How often each record is in a split."""
    shards = read_manifest(directory).splits[split]
    paths = [str(directory / shard.file) for shard in shards]
    return collections.Counter(
        record.numpy() for record in tf.data.TFRecordDataset(paths)
    )


THREADS = (
    *("--runner", "DirectRunner", "--direct_num_workers=2"),
    "--direct_running_mode=multi_threading",
)


def test_equals_a_local_build(beam, corpus, tmp_path, small_parts, capsys):
    assert run(corpus, tmp_path / "local") == 0
    assert run(corpus, tmp_path / "beam", *THREADS) == 0
    assert "45 documents" in capsys.readouterr().out
    for split in ("train", "validation"):
        found = records_of(tmp_path / "beam", split)
        assert found == records_of(tmp_path / "local", split)
        count = read_manifest(tmp_path / "beam").num_records(split)
        assert found.total() == count > 400
    # There is more than one part, and even their order is the same.
    assert len(read_manifest(tmp_path / "beam").splits["train"]) > 6
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")
    assert verify_records(tmp_path / "beam") == []
    assert not (tmp_path / "beam" / ".building").exists()
    data = PretrainingData(tmp_path / "beam", 4)
    assert next(iter(data.dataset()))["token_ids"].shape == (4, 64)
    # A finished set is recognised whoever built it.
    assert run(corpus, tmp_path / "beam") == 0
    assert "was complete already" in capsys.readouterr().out


def test_goes_on_after_a_failure(
    beam, corpus, tmp_path, small_parts, monkeypatch, capsys
):
    build, built = part_building.build_part, []

    def fail(split, number, *rest):
        if (split, number) == ("train", 2):
            raise RuntimeError("the worker has no memory left.")
        built.append((split, number))
        return build(split, number, *rest)

    one = ("--runner", "DirectRunner")
    with monkeypatch.context() as patch:
        patch.setattr("data_pipeline.records.beam.build_part", fail)
        assert run(corpus, tmp_path / "set", *one) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert error == "error: the worker has no memory left."
    assert not (tmp_path / "set" / "manifest.json").exists()
    done = list((tmp_path / "set" / ".building").glob("*.done"))
    assert len(done) == len(built)
    assert run(corpus, tmp_path / "set", *one) == 0
    assert run(corpus, tmp_path / "local") == 0
    assert digests(tmp_path / "set") == digests(tmp_path / "local")


@pytest.mark.slow
def test_several_worker_processes(beam, corpus, tmp_path):
    """Text of three parts, as large as they are."""
    text = (corpus / "0.txt").read_text() + "\n\n"
    big = tmp_path / "big"
    big.mkdir()
    for number in range(3):
        (big / f"{number}.txt").write_text(text * (4_200_000 // len(text)))
    (big / "spiece.model").write_bytes((corpus / "spiece.model").read_bytes())
    assert run(big, tmp_path / "local") == 0
    options = ("--direct_num_workers=2", "--direct_running_mode")
    assert (
        run(
            big,
            tmp_path / "beam",
            *("--runner", "DirectRunner", *options, "multi_processing"),
        )
        == 0
    )
    assert digests(tmp_path / "beam") == digests(tmp_path / "local")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--runner", "NoRunner"], "error: Unexpected pipeline runner: NoR"),
        ([*THREADS, "--no-such-option", "3"], "called so: --no-such-option."),
        ([*THREADS, "b.txt", "c.txt"], "called so: b.txt. See --help; quote"),
        ([*THREADS, "--encoding", "ascii"], ".txt: invalid ascii at byte "),
    ],
)
def test_one_line_errors(beam, corpus, tmp_path, capsys, more, message):
    assert run(corpus, tmp_path / "set", *more) == 1
    error = capsys.readouterr().err.splitlines()[-1]
    assert message in error
    assert not (tmp_path / "set").exists()


def test_beam_options_need_a_runner(corpus, tmp_path, capsys):
    with pytest.raises(SystemExit):
        run(corpus, tmp_path / "set", "--direct_num_workers=2")
    assert "unrecognized arguments: --direct" in capsys.readouterr().err


def test_without_beam(corpus, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "apache_beam", None)
    assert run(corpus, tmp_path / "set", "--runner", "DirectRunner") == 1
    assert capsys.readouterr().err == (
        "error: `runner` needs Apache Beam, and it is not installed. Install "
        "the extra `beam`: pip install 'xlnet_tf[beam]' -c constraints.txt.\n"
    )
    assert not (tmp_path / "set").exists()
