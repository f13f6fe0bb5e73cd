"""Masks of dropout: hashes that behave like coin tosses."""

import itertools

import numpy as np
import pytest

from tests.support.oracle import as_numpy
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.dropout import keep_mask

SHAPE = (3, 7, 61, 211)
SEED = np.array([7, 9], "uint32")


def mask(seed=SEED, rate=0.3, shape=SHAPE, slice_of=None):
    return as_numpy(keep_mask(shape, rate, seed, slice_of))


def deviations(one, other):
    """How many standard deviations a correlation is from none."""
    one, other = one.ravel() - one.mean(), other.ravel() - other.mean()
    spread = np.sqrt((one**2).mean() * (other**2).mean())
    return abs((one * other).mean() / spread) * np.sqrt(one.size)


@pytest.mark.parametrize("rate", [0.1, 0.5, 0.9])
def test_the_share_that_is_dropped_is_the_rate_along_every_axis(rate):
    dropped = ~mask(rate=rate)
    for axis in range(4):
        others = tuple(i for i in range(4) if i != axis)
        count = dropped.size / dropped.shape[axis]
        spread = np.sqrt(rate * (1 - rate) / count)
        shares = dropped.mean(axis=others)
        assert (np.abs(shares - rate) < 5 * spread).all(), axis
        if dropped.shape[axis] > 50:  # neither more nor less than by chance
            assert 0.7 < shares.std() / spread < 1.3


def test_neighbours_on_no_axis_depend_on_each_other():
    kept = mask().astype("float64")
    for axis in range(4):
        one = np.delete(kept, 0, axis)
        other = np.delete(kept, -1, axis)
        assert deviations(one, other) < 5, axis


def test_seeds_that_are_close_give_masks_that_are_not():
    seeds = [
        SEED,
        SEED + np.array([1, 0], "uint32"),
        SEED + np.array([0, 1], "uint32"),
        as_numpy(fold_in(SEED, 1)),
        as_numpy(fold_in(SEED, -1)),
    ]
    masks = [mask(seed).astype("float64") for seed in seeds]
    for one, other in itertools.combinations(masks, 2):
        assert deviations(one, other) < 5
        assert deviations(one[..., 1:], other[..., :-1]) < 5
        assert deviations(one[..., 1:, :], other[..., :-1, :]) < 5


def test_a_part_draws_what_the_whole_would():
    whole = mask()
    first = [(2, 3), (4, 7), (0, 61), (0, 211)]
    part = mask(shape=(1, 3, 61, 211), slice_of=first)
    np.testing.assert_array_equal(part, whole[2:3, 4:7])


def test_what_is_kept_is_scaled_and_the_mean_stays():
    ones = np.ones((64, 997), "float32")
    dropped = as_numpy(dropout(ones, 0.25, SEED, 3))
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
    assert abs(dropped.mean() - 1) < 0.01


def test_without_a_seed_or_a_rate_nothing_happens():
    ones = np.ones((2, 3), "float32")
    assert dropout(ones, 0.5, None, 0) is ones
    assert dropout(ones, 0.0, SEED, 0) is ones


def test_one_axis_is_enough():
    assert 0.2 < mask(shape=(997,)).mean() - 0.45 < 0.3
