"""Damaged records are named, or skipped, and the rest is as it was."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.manifest import read_manifest
from tests.support.record_fixtures import RECORDS
from tests.support.record_fixtures import cut
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import join
from tests.support.record_fixtures import numbers
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_set


@pytest.fixture
def damaged(tmp_path):
    """Records 5, 6 and 30 of 37 are damaged: shards hold 13, 8, 16."""
    write_set(tmp_path)
    frame = read_manifest(tmp_path).frame_bytes
    flip_byte(tmp_path / "train-00000.tfrecord", 5 * frame + 40)
    flip_byte(tmp_path / "train-00000.tfrecord", 6 * frame + 2)
    flip_byte(tmp_path / "train-00002.tfrecord", 10 * frame - 1)
    flip_byte(tmp_path / "train-00002.tfrecord", 9 * frame + 50)
    return tmp_path


def test_damage_stops_the_run_and_is_explained(damaged):
    data = PretrainingData(damaged, 1)
    with pytest.raises(tf.errors.DataLossError):
        take(data, 20)
    offset = 5 * data.manifest.frame_bytes
    with pytest.raises(
        ValueError,
        match=rf"train-00000.tfrecord: record 5 at byte offset {offset}: "
        r".*\(and 2 more\).*--skip-corrupt",
    ):
        data.explain_data_loss()


def test_skip_corrupt(damaged):
    whole = PretrainingData(write_and_return(damaged / "whole"), 1)
    data = PretrainingData(damaged, 1, skip_corrupt=True)
    assert [place.record for place in data.skipped] == [5, 6, 9]
    assert data.num_records == data.steps_per_epoch == 34
    read = take(data, 34)
    kept = [n for n in range(RECORDS) if n not in (5, 6, 30)]
    assert [n for batch in read for n in numbers(batch)] == kept
    # What is left keeps its permutation.
    expected = take(whole, RECORDS)
    for batch in read:
        number = numbers(batch)[0]
        np.testing.assert_array_equal(
            batch["factorization_rank"], expected[number]["factorization_rank"]
        )
        starts = number in (0, 7, 13, 21, 31)
        assert batch["is_continuation"][0] == (not starts)
    rows = join(take(PretrainingData(damaged, 2, skip_corrupt=True), 17))
    assert sorted(numbers(rows)) == kept
    whole.explain_data_loss()  # nothing to explain


def write_and_return(directory):
    write_set(directory)
    return directory


def test_cut_shard_is_refused_or_skipped(tmp_path):
    write_set(tmp_path)
    frame = read_manifest(tmp_path).frame_bytes
    cut(tmp_path / "train-00001.tfrecord", 3 * frame + 7)
    with pytest.raises(ValueError, match="it is cut in record 3"):
        PretrainingData(tmp_path, 1)
    data = PretrainingData(tmp_path, 1, skip_corrupt=True)
    assert len(data.skipped) == 5
    assert data.num_records == 32
    take(data, 33)


def test_dropped_shard(tmp_path):
    write_set(tmp_path)
    (tmp_path / "train-00002.tfrecord").unlink()
    for skip_corrupt in (False, True):
        with pytest.raises(FileNotFoundError, match="train-00002.tfrecord"):
            PretrainingData(tmp_path, 1, skip_corrupt=skip_corrupt)


def test_a_shard_of_another_set_is_refused_where_sums_are_read(tmp_path):
    write_set(tmp_path, (8, 8))
    (tmp_path / "train-00000.tfrecord").write_bytes(
        (tmp_path / "train-00001.tfrecord").read_bytes()
    )
    with pytest.raises(ValueError, match="another file than was built"):
        PretrainingData(tmp_path, 1, skip_corrupt=True)
