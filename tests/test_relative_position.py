"""R, and scores by distance re-indexed by key."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.reference import B
from tests.reference import M
from tests.reference import P
from tests.reference import T
from tests.reference import sinusoid
from xlnet_tf.relative_position import distances_by_key
from xlnet_tf.relative_position import keys_by_distance
from xlnet_tf.relative_position import relative_position_encoding

N, D, K = 11, 38, M + T


def random(*shape):
    return np.random.default_rng(0).normal(size=shape).astype("float32")


def encoding(*args, **kwargs):
    return ops.convert_to_numpy(relative_position_encoding(*args, **kwargs))


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize("clamp", [0, 7])
def test_each_row_is_the_sinusoid_of_its_distance(clamp, is_reversed):
    r = encoding(T, K, D, clamp, is_reversed)
    assert r.shape == (K + T, D)
    for row in range(K + T):
        distance = K - row
        if clamp:
            distance = max(-clamp, min(clamp, distance))
        if is_reversed:
            distance = -distance
        # float32 sines of angles up to 18 are right to about 2e-6
        np.testing.assert_allclose(r[row], sinusoid(distance, D), atol=5e-6)


def test_clamping_merges_exactly_the_far_distances():
    r = encoding(T, K, D, clamp_length=7)
    distances = K - np.arange(K + T)
    same_as_far = [np.array_equal(row, r[0]) for row in r]
    np.testing.assert_array_equal(same_as_far, distances >= 7)
    same_as_future = [np.array_equal(row, r[-1]) for row in r]
    np.testing.assert_array_equal(same_as_future, distances <= -7)


def test_reversal_mirrors_the_table():
    forwards, backwards = encoding(T, T, D), encoding(T, T, D, 0, True)
    # distances T .. 1 - T; mirrored, all but the first change places
    np.testing.assert_array_equal(backwards[1:], forwards[1:][::-1])
    assert np.abs(backwards - forwards).max() > 0.5


@pytest.mark.parametrize("policy", ["float32", "mixed_bfloat16", "bfloat16"])
def test_positions_stay_exact_above_256_under_any_policy(policy):
    before = keras.config.dtype_policy()
    floatx = keras.config.floatx()
    keras.config.set_dtype_policy(policy)
    try:
        if policy == "bfloat16":
            keras.config.set_floatx("bfloat16")
        r = relative_position_encoding(3, 521, D)
        assert keras.backend.standardize_dtype(r.dtype) == "float32"
        r = ops.convert_to_numpy(r)
    finally:
        keras.config.set_dtype_policy(before)
        keras.config.set_floatx(floatx)
    for distance in (257, 509, 511, 521):
        # float32 keeps 521 radians to about 3e-5; bfloat16 would be off by 1
        np.testing.assert_allclose(
            r[521 - distance], sinusoid(distance, D), atol=1e-4
        )


def test_content_scores_are_found_by_loops():
    scores = random(B, N, T, K + T)
    by_key = ops.convert_to_numpy(distances_by_key(scores, None, K))
    assert by_key.shape == (B, N, T, K)
    for t in range(T):
        for k in range(K):
            distance = (M + t) - k
            column = K - distance  # the row of R for that distance
            np.testing.assert_array_equal(
                by_key[:, :, t, k], scores[:, :, t, column]
            )


def test_content_scores_without_memory_are_found_by_loops():
    scores = random(B, N, T, T + T)
    by_key = ops.convert_to_numpy(distances_by_key(scores, None, T))
    for t in range(T):
        for k in range(T):
            np.testing.assert_array_equal(
                by_key[:, :, t, k], scores[:, :, t, T - t + k]
            )


def test_the_figure_of_the_docstring():
    scores = np.array(list("abcdefghij")).reshape(1, 1, 2, 5)
    numbers = np.vectorize(ord)(scores).astype("float32")
    by_key = ops.convert_to_numpy(distances_by_key(numbers, None, 3))
    letters = ["".join(map(chr, row.astype(int))) for row in by_key[0, 0]]
    assert letters == ["cde", "ghi"]


def with_targets():
    rows = random(B, N, T, K + T)
    positions = np.stack(
        [np.random.default_rng(b).permutation(T)[:P] for b in range(B)]
    ).astype("int32")
    at_targets = np.stack([rows[b][:, positions[b]] for b in range(B)])
    return np.concatenate([rows, at_targets], axis=2), positions


def test_target_rows_equal_the_rows_of_the_full_shift():
    rows, positions = with_targets()
    shifted = ops.convert_to_numpy(
        distances_by_key(rows, positions[:, None], K)
    )
    full = ops.convert_to_numpy(distances_by_key(rows[:, :, :T], None, K))
    assert shifted.shape == (B, N, T + P, K)
    np.testing.assert_array_equal(shifted[:, :, :T], full)
    for b in range(B):
        np.testing.assert_array_equal(
            shifted[b, :, T:], full[b][:, positions[b]]
        )


@pytest.mark.parametrize("has_targets", [False, True])
def test_going_back_is_the_transpose(has_targets):
    """<shift(x), y> = <x, transpose(y)> for all x and y."""
    rows, positions = with_targets()
    positions = positions[:, None]
    if not has_targets:
        rows, positions = rows[:, :, :T], None
    other = random(B, N, rows.shape[2], K)
    there = ops.convert_to_numpy(distances_by_key(rows, positions, K))
    back = ops.convert_to_numpy(keys_by_distance(other, positions, K + T))
    assert back.shape == rows.shape
    # Every score stands at one distance alone, or at none.
    again = ops.convert_to_numpy(distances_by_key(back, positions, K))
    np.testing.assert_array_equal(again, other)
    np.testing.assert_allclose(
        (there * other).sum(), (rows * back).sum(), rtol=1e-5
    )
    assert np.count_nonzero(back) == np.count_nonzero(other)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="only TensorFlow compiles for lengths that it does not know",
)
def test_lengths_need_not_be_known():
    import tensorflow as tf

    rows, positions = with_targets()
    other = random(B, N, T + P, K)
    anything = tf.TensorSpec([None] * 4, tf.float32)

    @tf.function(
        input_signature=[anything, anything, tf.TensorSpec([], "int32")]
    )
    def both(rows, other, num_keys):
        return (
            distances_by_key(rows, positions[:, None], num_keys),
            keys_by_distance(other, positions[:, None], tf.shape(rows)[3]),
        )

    there, back = both(rows, other, K)
    np.testing.assert_array_equal(
        there, distances_by_key(rows, positions[:, None], K)
    )
    np.testing.assert_array_equal(
        back, keys_by_distance(other, positions[:, None], K + T)
    )
