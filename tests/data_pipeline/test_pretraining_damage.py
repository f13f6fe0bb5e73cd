"""Damaged records are named or skipped; other batches stay the same."""

import os
import random
import shutil

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.pretraining import PretrainingData
from data_pipeline.records.manifest import read_manifest
from tests.support.record_fixtures import RECORDS
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import join
from tests.support.record_fixtures import numbers
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_set
from tests.torture import damaged_records


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """Records 5, 6 and 30 of 37 are damaged: shards hold 13, 8, 16."""
    directory = tmp_path_factory.mktemp("records") / "damaged"
    write_set(directory)
    frame = read_manifest(directory).frame_bytes
    flip_byte(directory / "train-00000.tfrecord", 5 * frame + 40)
    flip_byte(directory / "train-00000.tfrecord", 6 * frame + 2)
    flip_byte(directory / "train-00002.tfrecord", 10 * frame - 1)
    flip_byte(directory / "train-00002.tfrecord", 9 * frame + 50)
    return directory


def test_damage_stops_the_run_and_is_explained(damaged):
    data = PretrainingData(damaged, 1)
    with pytest.raises(tf.errors.DataLossError):
        take(data, 20)
    offset = 5 * data.manifest.frame_bytes
    with pytest.raises(
        ValueError,
        match=rf"train-00000.tfrecord: record 5 at byte offset {offset}: "
        r".*\(and 1 more in it\).*--skip-corrupt",
    ):
        data.explain_data_loss()
    # The shards that are being read are looked at first.
    with pytest.raises(
        ValueError,
        match="00002.tfrecord: record 9 at .*[0-9]: damaged bytes. Copy",
    ):
        data.explain_data_loss(step=25)


def test_skip_corrupt(damaged, tmp_path):
    write_set(tmp_path)
    undamaged = PretrainingData(tmp_path, 1)
    data = PretrainingData(damaged, 1, skip_corrupt=True)
    assert [bad.record for bad in data.skipped] == [5, 6, 9]
    assert data.num_records == data.steps_per_epoch == 34
    batches = take(data, 34)
    kept = [n for n in range(RECORDS) if n not in (5, 6, 30)]
    assert [n for batch in batches for n in numbers(batch)] == kept
    # The other records keep their permutations.
    expected = take(undamaged, RECORDS)
    for batch in batches:
        number = numbers(batch)[0]
        np.testing.assert_array_equal(
            batch["factorization_rank"], expected[number]["factorization_rank"]
        )
        starts = number in (0, 7, 13, 21, 31)
        assert batch["is_continuation"][0] == (not starts)
    rows = join(take(PretrainingData(damaged, 2, skip_corrupt=True), 17))
    assert sorted(numbers(rows)) == kept
    undamaged.explain_data_loss()  # nothing to explain


def test_shards_that_are_cut_missing_or_of_another_set(tmp_path):
    write_set(tmp_path / "set")
    frame = read_manifest(tmp_path / "set").frame_bytes
    cut = shutil.copytree(tmp_path / "set", tmp_path / "cut")
    os.truncate(cut / "train-00001.tfrecord", 3 * frame + 7)
    with pytest.raises(ValueError, match="it is cut in record 3"):
        PretrainingData(cut, 1)
    data = PretrainingData(cut, 1, skip_corrupt=True)
    assert (len(data.skipped), data.num_records) == (5, 32)
    take(data, 33)
    missing = shutil.copytree(tmp_path / "set", tmp_path / "missing")
    (missing / "train-00002.tfrecord").unlink()
    for skip_corrupt in (False, True):
        with pytest.raises(FileNotFoundError, match="train-00002.tfrecord"):
            PretrainingData(missing, 1, skip_corrupt=skip_corrupt)
    foreign = tmp_path / "foreign"
    write_set(foreign, (8, 8))
    (foreign / "train-00000.tfrecord").write_bytes(
        (foreign / "train-00001.tfrecord").read_bytes()
    )
    with pytest.raises(ValueError, match="another file than was built"):
        PretrainingData(foreign, 1, skip_corrupt=True)


def test_no_damage_is_silent(tmp_path):
    """One trial of each kind; `make torture` makes hundreds."""
    trials = damaged_records.trials(
        len(damaged_records.DAMAGE), tmp_path, random.Random(0)
    )
    assert not [trial for trial in trials if trial[1] is not None]
