"""`--shard-size`: fewer files, and not one record, draw or memory another."""

import numpy as np
import pytest

from data_pipeline.pretraining import PretrainingData
from data_pipeline.records import part
from data_pipeline.records.manifest import read_manifest
from data_pipeline.records.manifest import verify_records
from tests.support.equality import assert_equal
from tests.support.record_fixtures import digests
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import run_build
from tests.support.record_fixtures import small_parts
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_corpus

OPTIONS = ("--validation-fraction", 0.2, "--both-directions")
SIZE = 400_000


def run(corpus, output, *more):
    with small_parts():
        return run_build(corpus, output, *OPTIONS, *more)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A text's set of a shard a part, `parts`, and of joined ones, `joined`."""
    directory = tmp_path_factory.mktemp("joined")
    corpus = write_corpus(directory / "corpus")
    assert run(corpus, directory / "parts") == 0
    size = ("--shard-size", "400KB")
    assert run(corpus, directory / "joined", *size) == 0
    return directory


def batches(directory, **options):
    data = PretrainingData(directory, 61, seed=3, **options)
    return data, take(data, data.steps_per_epoch + 3, num_parallel_calls=1)


def test_shards_are_joined_up_to_the_size(made):
    parts, joined = map(read_manifest, (made / "parts", made / "joined"))
    assert '"starts"' not in (made / "parts" / "manifest.json").read_text()
    assert verify_records(made / "joined") == []
    for split in ("train", "validation"):
        small, large = parts.splits[split], joined.splits[split]
        assert len(large) < len(small) or split == "validation"
        sizes = {
            x: [shard.bytes for shard in large if shard.direction == x]
            for x in ("forward", "backward")
        }
        for found in sizes.values():
            assert max(found) <= SIZE
            assert all(
                x + y > SIZE for x, y in zip(found, found[1:], strict=False)
            ), "the next shard would have fitted in whole"
        # Where the parts began.
        begins = np.cumsum([0, *(shard.records for shard in small)])
        first, found = 0, []
        for shard in large:
            found += [first, *(first + x for x in shard.starts)]
            first += shard.records
        assert found == begins[:-1].tolist() and first == begins[-1]


def test_batches_are_the_same(made):
    """With memory too: it ends where a part of the text does."""
    (data, one), (other, two) = (
        batches(made / "parts"),
        batches(made / "joined"),
    )
    assert data.num_records == other.num_records
    assert_equal(one, two)
    flags = np.array([batch["is_continuation"] for batch in one])
    assert not flags[1 : data.steps_per_epoch].all()
    # Damaged: the last record of a part, the first of the next, another one.
    manifest = read_manifest(made / "joined")
    shard = manifest.splits["train"][0]
    damaged = [shard.starts[0] - 1, shard.starts[0], shard.starts[1]]
    small = manifest.frame_bytes
    parts = read_manifest(made / "parts").splits["train"]
    files = []
    for record in damaged:
        number, place = 0, record
        while place >= parts[number].records:
            place -= parts[number].records
            number += 1
        files.append((made / "parts" / parts[number].file, place))
        files.append((made / "joined" / shard.file, record))
    try:
        for file, place in files:
            flip_byte(file, place * small + 20)
        found = [
            batches(made / x, skip_corrupt=True) for x in ("parts", "joined")
        ]
    finally:
        for file, place in files:
            flip_byte(file, place * small + 20)
    assert len(found[0][0].skipped) == len(found[1][0].skipped) == 3
    assert_equal(found[0][1], found[1][1])


def test_stopped_while_joining(made, tmp_path, monkeypatch, capsys):
    size = ("--shard-size", "400KB")

    def stop(*arguments):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(part, "_joined", stop)
        assert run(made / "corpus", tmp_path / "set", *size) == 130
    left = [path.name for path in (tmp_path / "set" / ".building").iterdir()]
    assert sum(name.endswith(".sha256") for name in left) > 4
    monkeypatch.setattr(part, "build_part", stop)
    assert run(made / "corpus", tmp_path / "set", *size) == 0
    assert digests(tmp_path / "set") == digests(made / "joined")
    assert not (tmp_path / "set" / ".building").exists()
    # Another size is another set.
    assert run(made / "corpus", tmp_path / "set", "--shard-size", "1GB") == 1
    error = capsys.readouterr().err
    assert "`shard_size` was 400KB and is 1GB" in error


def test_sizes_that_are_none(made, tmp_path, capsys):
    for size in ("much", "0", "0.1", "-3MB", "1e9", "9" * 15 + "TB", "MB"):
        options = ("--shard-size", size)
        argument = [f"--shard-size={size}"] if size[0] == "-" else options
        assert run(made / "corpus", tmp_path / "set", *argument) == 1
        error = capsys.readouterr().err
        assert "`shard_size` must be a number of bytes" in error
        assert error.count("\n") == 1
    assert not (tmp_path / "set").exists()
