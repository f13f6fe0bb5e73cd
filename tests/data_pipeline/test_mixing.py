"""Several sets in a batch: shares, memory, any start, any split of the rows."""

import itertools
import json

import numpy as np
import pytest

from data_pipeline.mixing import MixedPretrainingData
from data_pipeline.mixing import divide_rows
from data_pipeline.mixing import largest_batch
from data_pipeline.pretraining import PretrainingData
from tests.support.equality import assert_equal
from tests.support.record_fixtures import change_manifest
from tests.support.record_fixtures import flip_byte
from tests.support.record_fixtures import join
from tests.support.record_fixtures import take
from tests.support.record_fixtures import write_set


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Three sets of 37, 20 and 9 records, of other values each."""
    directory = tmp_path_factory.mktemp("mixed")
    for number, counts in enumerate(((13, 8, 16), (20,), (4, 5))):
        write_set(
            directory / "abc"[number], counts, validation=3, seed=7 + number
        )
    return directory


def mixed(made, batch_size=8, weights=(4, 3, 1), names="abc", **options):
    directories = [made / name for name in names]
    return MixedPretrainingData(directories, batch_size, weights, **options)


def test_rows_are_divided_by_weights():
    for weights, batch_size, expected in (
        ([0.7, 0.3], 10, [7, 3]),
        ([0.7, 0.3], 16, [11, 5]),
        ([1, 1, 1], 8, [3, 3, 2]),
        ([1, 1, 1], 3, [1, 1, 1]),
        ([99, 1], 16, [15, 1]),
        ([1e6, 1, 1, 1e6], 6, [2, 1, 1, 2]),
        ([1e9, 1, 1], 3, [1, 1, 1]),
        ([5.0], 4, [4]),
        ([1e-300, 1e300], 4, [1, 3]),
    ):
        assert divide_rows(weights, batch_size) == expected
    for weights in ([1, 0], [1, -1], [1, float("nan")], [1, float("inf")]):
        with pytest.raises(ValueError, match="must be positive numbers"):
            divide_rows(weights, 4)
    with pytest.raises(ValueError, match="sets of records .* mixed, 3"):
        divide_rows([1, 1, 1], 2)


def test_each_row_reads_one_set(made):
    """As that set alone is read in a batch of so many rows, with its flags."""
    data = mixed(made, seed=5)
    assert [x.batch_size for x in data.sets] == [4, 3, 1]
    assert data.num_records == 66 and data.steps_per_epoch == 6
    seeds = [x.seed for x in data.sets]
    assert seeds[0] == 5 and len(set(seeds)) == 3
    alone = [
        take(PretrainingData(made / name, rows, seed=seed), 25)
        for name, rows, seed in zip("abc", (4, 3, 1), seeds, strict=True)
    ]
    found = take(data, 25)
    assert_equal(found, [join(step) for step in zip(*alone, strict=True)])
    # Every row goes on in its text but where an epoch or a shard begins.
    flags = np.array([batch["is_continuation"] for batch in found])
    assert flags[1:].any(axis=0).all() and not flags.all()
    for step in (0, 7):
        sources = data.sources(step)
        places = [file.split("/")[-2] for file, _ in sources]
        assert places == [*"aaaabbbc"]


def test_any_start_and_any_rows_are_the_same(made):
    data = mixed(made, 8, (5, 3), "ac")
    whole = take(data, 14)
    for start in (7,):
        assert_equal(take(data, 14 - start, start_step=start), whole[start:])
    for first, count, replica in ((0, 8, 4), (2, 6, 3)):
        elements = take(
            data,
            3 * count // replica,
            start_step=2,
            first_row=first,
            num_rows=count,
            replica_batch=replica,
            num_parallel_calls=2,
        )
        assert all(len(x["token_ids"]) == replica for x in elements)
        steps = count // replica
        joined = [
            join(elements[n : n + steps])
            for n in range(0, len(elements), steps)
        ]
        expected = [
            {k: v[first : first + count] for k, v in batch.items()}
            for batch in whole[2:5]
        ]
        assert_equal(joined, expected)
    spec = data.dataset(replica_batch=2).element_spec
    assert all(x.shape.is_fully_defined() for x in spec.values())
    assert spec["token_ids"].shape[0] == 2
    for options in ({"first_row": 8}, {"replica_batch": 3}, {"start_step": -1}):
        with pytest.raises(ValueError, match="Received: "):
            data.dataset(**options)


def test_weights_are_one_for_each_set(made):
    found = mixed(made, weights=np.array([4, 3, 1]))
    assert [x.batch_size for x in found.sets] == [4, 3, 1]
    for weights in ([1, 2], [1, 2, 3, 4], []):
        with pytest.raises(ValueError, match="a number for each of 3 sets"):
            mixed(made, weights=weights)
    with pytest.raises(ValueError, match="at least one set"):
        MixedPretrainingData([], 4)


def test_weights_default_to_the_sizes(made):
    data = mixed(made, 13, None)
    assert [x.batch_size for x in data.sets] == [7, 4, 2]
    smaller = data.with_batch_size(3)
    assert [x.batch_size for x in smaller.sets] == [1, 1, 1]
    assert data.batch_size == 13 and smaller.batch_size == 3
    with pytest.raises(ValueError, match="number of records in the train"):
        mixed(made, 32, [1, 1, 5])


def test_the_largest_batch_that_is_full(made):
    held_out = mixed(made, 3, (4, 3, 1), split="validation")
    for most, multiple, expected in (
        (9, 1, 7),
        (9, 2, 6),
        (9, 4, 4),
        (2, 1, 0),
    ):
        assert largest_batch(held_out, most, multiple) == expected
    alone = PretrainingData(made / "a", 1, split="validation")
    for most, multiple, expected in (
        (9, 1, 3),
        (9, 2, 2),
        (2, 1, 2),
        (9, 4, 0),
    ):
        assert largest_batch(alone, most, multiple) == expected


def test_sets_that_cannot_be_mixed(made, tmp_path):
    for number, (options, name) in enumerate(
        (
            (dict(tokens=23), "sequence_length"),
            (dict(reuse=12, targets=4), "reuse_length"),
            (dict(targets=4), "num_predict"),
            ({}, "tokenizer"),
        )
    ):
        other = tmp_path / str(number)
        write_set(other, (9,), **options)
        if name == "tokenizer":
            file = other / "manifest.json"
            fields = json.loads(file.read_text())
            tokenizer = fields["tokenizer"] | {"sha256": "0b" * 32}
            change_manifest(file, tokenizer=tokenizer)
        with pytest.raises(ValueError, match=f"mixed: `{name}` is") as caught:
            MixedPretrainingData([made / "a", other], 4)
        assert str(other) in str(caught.value)
    write_set(tmp_path / "frozen", (9,), form="frozen")
    with pytest.raises(ValueError, match="mixed: `form` is"):
        MixedPretrainingData([made / "a", tmp_path / "frozen"], 4)


def test_damage_in_one_of_them(made, tmp_path):
    write_set(tmp_path / "d", (9,))
    data = MixedPretrainingData([made / "a", tmp_path / "d"], 4)
    flip_byte(tmp_path / "d" / "train-00000.tfrecord", 300)
    with pytest.raises(ValueError, match="d/train-00000.tfrecord"):
        data.explain_data_loss()
    data = MixedPretrainingData(
        [made / "a", tmp_path / "d"], 4, skip_corrupt=True
    )
    assert len(data.skipped) == 1 and data.num_records == 45
    assert len(list(itertools.islice(take(data, 5), 5))) == 5
