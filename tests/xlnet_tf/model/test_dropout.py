"""Masks of dropout: hashes that behave like coin tosses."""

import itertools

import keras
import numpy as np
import pytest

import xlnet_tf
from tests.support.oracle import as_numpy
from tests.support.replicas import two_replicas
from xlnet_tf.model.bert.block import BertBlock
from xlnet_tf.model.block import XLNetBlock
from xlnet_tf.model.dropout import dropout
from xlnet_tf.model.dropout import dropouts
from xlnet_tf.model.dropout import fold_in
from xlnet_tf.model.dropout import hash_rows
from xlnet_tf.model.dropout import keep_mask
from xlnet_tf.model.dropout import keep_mask_of_rows
from xlnet_tf.model.dropout import random_bits
from xlnet_tf.model.dropout import seed_of_replica
from xlnet_tf.model.dropout import seeds_of_layers

SHAPE = (3, 7, 61, 211)
SEED = np.array([7, 9], "uint32")


def mask(seed=SEED, rate=0.3, shape=SHAPE):
    return as_numpy(keep_mask(shape, rate, fold_in(seed, 0)))


def deviations(one, other):
    """How many standard deviations a correlation is from none."""
    one, other = one.ravel() - one.mean(), other.ravel() - other.mean()
    spread = np.sqrt((one**2).mean() * (other**2).mean())
    return abs((one * other).mean() / spread) * np.sqrt(one.size)


def mixed(x):
    """lowbias32 of an int, as its author gives it."""
    x = (x ^ x >> 16) * 0x7FEB352D & 0xFFFFFFFF
    x = (x ^ x >> 15) * 0x846CA68B & 0xFFFFFFFF
    return x ^ x >> 16


def test_bits_are_the_same_in_every_version():
    """A run that goes on in a later version draws the same masks."""
    draw, width = -2, 5
    first = mixed(7 + draw * 0x9E3779B9 & 0xFFFFFFFF)
    second = mixed((9 + draw * 0xC13FA9A9 & 0xFFFFFFFF) ^ first)
    first = mixed(first ^ second)
    rows = [mixed(mixed(i + first & 0xFFFFFFFF) ^ second) for i in range(6)]
    expected = [
        [mixed(row + j * 0x9E3779B9 & 0xFFFFFFFF) for j in range(width)]
        for row in rows
    ]
    seed = as_numpy(fold_in(SEED, draw))
    np.testing.assert_array_equal(seed, [first, second])
    bits = as_numpy(random_bits((2, 3, width), seed))
    np.testing.assert_array_equal(bits.reshape(6, width), expected)


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
    masks = [mask(seed) for seed in seeds]
    masks = [mask.astype("float64") for mask in masks]
    for one, other in itertools.combinations(masks, 2):
        assert deviations(one, other) < 5
        assert deviations(one[..., 1:], other[..., :-1]) < 5
        assert deviations(one[..., 1:, :], other[..., :-1, :]) < 5


def test_a_part_draws_what_the_whole_would():
    rows = hash_rows(SHAPE[:-1], fold_in(SEED, 0))[2:3, 4:7]
    part = as_numpy(keep_mask_of_rows(rows, 200, 0.3))
    np.testing.assert_array_equal(part, mask()[2:3, 4:7, :, :200])


def test_what_is_kept_is_scaled_and_the_mean_stays():
    ones = np.ones((64, 997), "float32")
    dropped = as_numpy(dropout(ones, 0.25, SEED))
    assert set(np.unique(dropped)) == {0, np.float32(1 / 0.75)}
    assert abs(dropped.mean() - 1) < 0.01


def test_without_a_seed_or_a_rate_nothing_happens():
    ones = np.ones((2, 3), "float32")
    assert dropout(ones, 0.5, None) is ones
    assert dropout(ones, 0.0, SEED) is ones


def test_one_axis_is_enough():
    assert 0.2 < mask(shape=(997,)).mean() - 0.45 < 0.3


def test_seeds_that_differ_give_masks_that_differ():
    """Already in their first row."""
    seeds = [[7, i] for i in range(90)] + [[i << 20, 9] for i in range(90)]
    masks = {
        mask(np.array(seed, "uint32"), 0.5, (1, 1, 1, 64)).tobytes()
        for seed in seeds
    }
    assert len(masks) == len(seeds)


def test_derived_seeds_do_not_meet():
    """Segments, their layers, and the masks of each: numbers folded in turn."""
    numbers = np.arange(-4, 30)
    once = as_numpy(fold_in(SEED, numbers))
    twice = [as_numpy(fold_in(seed, numbers)) for seed in once]
    of_steps = [as_numpy(fold_in([8, step], numbers)) for step in range(99)]
    seeds = np.concatenate([once, *twice, *of_steps])
    assert len(np.unique(seeds, axis=0)) == len(seeds)
    for column in seeds.T:  # each word is that of 32 random bits
        assert len(np.unique(column)) > len(seeds) - 5
    for number, seed in zip(numbers, once, strict=True):
        np.testing.assert_array_equal(fold_in(SEED, int(number)), seed)


def test_all_masks_of_all_layers_have_seeds_of_their_own():
    of_layers = as_numpy(seeds_of_layers(SEED, 3))
    for layer, seeds in enumerate(of_layers):
        assert len(seeds) == 4
        for number, seed in enumerate(seeds):
            expected = fold_in(fold_in(SEED, layer), number)
            np.testing.assert_array_equal(seed, expected)


def test_masks_drawn_together_are_those_drawn_alone():
    (seeds,) = seeds_of_layers(SEED, 1)
    inputs = [np.ones((2, 5, width), "float32") for width in (8, 12)]
    together = dropouts(2, 0.5, seeds[:2], (2, 5))
    for drop, seed, values in zip(together, seeds[:2], inputs, strict=True):
        dropped = as_numpy(drop(values))
        np.testing.assert_array_equal(dropped, dropout(values, 0.5, seed))
        assert {*np.unique(dropped)} == {0.0, 2.0}
    for rate, given in ((0.0, seeds[:1]), (0.5, None)):
        (drop,) = dropouts(1, rate, given, (2, 5))
        assert drop(inputs[0]) is inputs[0]


def test_replicas_have_seeds_of_their_own():
    np.testing.assert_array_equal(seed_of_replica(SEED), SEED)
    strategy = two_replicas()
    seeds = strategy.run(lambda: seed_of_replica(SEED))
    one, other = strategy.experimental_local_results(seeds)
    assert (as_numpy(one) != as_numpy(other)).any()


@pytest.mark.parametrize("name", ["xlnet", "bert"])
def test_each_mask_of_a_layer_has_its_seed(name):
    """Attention's first, then in the order in which they are applied."""
    if name == "xlnet":
        config = xlnet_tf.XLNetConfig.from_size("tiny", dropout=0.5)
        block = XLNetBlock(config)
    else:
        config = xlnet_tf.BertConfig.from_size("tiny", dropout=0.5)
        block = BertBlock(config)
    block.build()
    seen = []
    shape = 2, 1, 3, config.hidden_dim
    rows, attended = np.random.default_rng(0).normal(size=shape).astype("f")

    class Attention:
        def __call__(self, *arguments, seed, **others):
            seen.append(seed)
            return attended

    (seeds,) = seeds_of_layers(SEED, 1)
    object.__setattr__(block, "attention", Attention())
    arguments = {"keys": rows, "context": None} if name == "xlnet" else {}
    found = block(rows, seeds=seeds, **arguments)
    np.testing.assert_array_equal(seen, seeds[:1])

    following = iter(seeds[1:])
    between = block.attention_norm(
        rows + dropout(attended, 0.5, next(following))
    )
    inner = keras.activations.gelu(
        block.intermediate(between), approximate=config.gelu == "tanh"
    )
    if name == "xlnet":
        inner = dropout(inner, 0.5, next(following))
    inner = dropout(block.output_dense(inner), 0.5, next(following))
    expected = block.output_norm(between + inner)
    np.testing.assert_allclose(found, expected, atol=1e-6)


def test_a_rate_near_one_keeps_hardly_anything():
    for rate in (0.999999, 1 - 1e-12):  # beyond 32 bits
        assert mask(rate=rate).sum() < 6
