"""`data_pipeline.inspect`: counts, a record in words, damage."""

import fsspec
import pytest

from data_pipeline import inspect
from data_pipeline.base import command_line
from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.reading import tokenizer_of_records
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support import artefacts
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import write_set


@pytest.fixture(scope="module")
def records(tmp_path_factory):
    return artefacts.Artefacts(tmp_path_factory.mktemp("set")).get("records")


def _rows(printed):
    """Rank, if any, position and piece of each target."""
    rows = [line.split() for line in printed.splitlines()]
    begin = rows.index(["target", "rank", "position", "piece"]) + 1
    return [row[1:] for row in rows[begin:] if row and row[0].isdecimal()]


def test_counts_and_a_record(records, capsys):
    assert inspect.main([str(records), "--record", "1"]) == 0
    printed = capsys.readouterr().out
    data = PretrainingData(records, 1)
    assert f"train      {data.num_records} sequences of" in printed
    assert "all checksums are right" in printed
    # The order in which the run sees it: by rank.
    batch = next(data.dataset(start_step=1).as_numpy_iterator())
    tokenizer = tokenizer_of_records(records, data.manifest)
    ranks, positions, ids = (
        batch[name][0]
        for name in ("factorization_rank", "target_positions", "target_ids")
    )
    count = int(batch["target_weights"].sum())
    expected = sorted(
        (ranks[position], position, tokenizer.id_to_piece(int(index)))
        for position, index in zip(positions[:count], ids[:count], strict=True)
    )
    rows = [line.split() for line in printed.splitlines()]
    begin = rows.index(["target", "rank", "position", "piece"]) + 1
    found = [
        (int(rank), int(position), piece)
        for _, rank, position, piece in rows[begin : begin + count]
    ]
    assert found == expected
    words = [tokenizer.id_to_piece(int(i)) for i in batch["token_ids"][0]]
    for word in words:
        assert word in printed


def test_other_objectives(records, capsys):
    for objective in ("masked", "causal", "pseudo_masked"):
        argv = [str(records), "--no-verify", "--objective", objective]
        assert inspect.main(argv) == 0
        assert f"by {objective}" in capsys.readouterr().out
    argv = [str(records), "--no-verify", "--objective", "pseudo_masked"]
    assert inspect.main([*argv, "--record", "1"]) == 0
    ranks = [int(rank) for rank, *_ in _rows(capsys.readouterr().out)]
    data = PretrainingData(records, 1, objective="pseudo_masked")
    batch = next(data.dataset(start_step=1).as_numpy_iterator())
    blocks = batch["target_blocks"][batch["target_weights"] > 0]
    assert ranks == sorted(blocks.tolist()) and len(set(ranks)) > 1


def test_stored_permutations(tmp_path, capsys):
    tokenizer = Tokenizer(artefacts.TOKENIZER)
    write_set(tmp_path / "set", (9,), form="frozen", tokenizer=tokenizer)
    assert inspect.main([str(tmp_path / "set"), "--record", "1"]) == 0
    rows = _rows(capsys.readouterr().out)
    batch = next(
        PretrainingData(tmp_path / "set", 1)
        .dataset(start_step=1, literal=True)
        .as_numpy_iterator()
    )
    mapping = batch["target_mapping"][0][batch["target_weights"][0] > 0]
    expected = sorted(mapping.argmax(axis=-1).tolist())
    assert [int(position) for position, _ in rows] == expected


def test_records_where_fsspec_finds_them(records, capsys):
    """The same lines as of a local set."""
    assert inspect.main([str(records), "--record", "3"]) == 0
    expected = capsys.readouterr().out
    memory = fsspec.filesystem("memory")
    try:
        memory.put(str(records), "/far/set", recursive=True)
        argv = ["memory://far/set", "--record", "3"]
        assert inspect.main(argv) == 0
        printed = capsys.readouterr().out
        assert "all checksums are right" in printed
        assert printed.replace("memory://far/set", str(records)) == expected
        (shard, *_) = sorted(memory.glob("/far/set/train-*"))
        content = bytearray(memory.cat(shard))
        content[len(content) // 2] ^= 1
        memory.pipe(shard, bytes(content))
        assert inspect.main(argv) == 1
        assert "damaged    memory://far/set/train-" in capsys.readouterr().out
        argv.append("--no-verify")
        assert command_line.run(inspect.main, argv) == 1
        error = capsys.readouterr().err
        assert "damaged bytes. Copy the file again" in error
    finally:
        memory.rm("/far", recursive=True)


def test_damage_and_mistakes(tmp_path, capsys):
    records = artefacts.Artefacts(tmp_path).get("records")
    (shard, *_) = sorted(records.glob("train-*"))
    # not in the first or last record, which are checked before all else
    flip_byte(shard, shard.stat().st_size // 2)
    assert inspect.main([str(records), "--record", "1"]) == 1
    printed = capsys.readouterr().out
    assert "damaged    " in printed and shard.name in printed
    for argv, message in (
        ([str(records), "--no-verify"], "damaged bytes"),
        ([str(records), "--record", "100000"], "records, from 0 on"),
        ([str(tmp_path / "none")], "none"),
    ):
        assert command_line.run(inspect.main, argv) == 1
        error = capsys.readouterr().err
        assert message in error and len(error.splitlines()) == 1
