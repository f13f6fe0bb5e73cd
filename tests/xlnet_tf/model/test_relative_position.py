"""R, and scores by distance re-indexed by key."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.equality import assert_equal
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import P
from tests.support.oracle import T
from tests.support.oracle import sinusoid
from xlnet_tf.model.kernels.distances import make_position_blocks
from xlnet_tf.model.kernels.distances import sum_position_blocks
from xlnet_tf.model.kernels.projections import mirror_distances
from xlnet_tf.model.kernels.relative_shift import relative_shift
from xlnet_tf.model.kernels.relative_shift import relative_shift_targets
from xlnet_tf.model.kernels.relative_shift import (
    relative_shift_targets_transpose,
)
from xlnet_tf.model.kernels.relative_shift import relative_shift_transpose
from xlnet_tf.model.relative_position import relative_position_encoding

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


@pytest.mark.skipif(
    keras.backend.backend() == "jax", reason="JAX has no float64 by default"
)
def test_float64_is_exact():
    r = encoding(T, K, D, dtype="float64")
    for row in range(K + T):
        np.testing.assert_allclose(r[row], sinusoid(K - row, D), atol=1e-14)


@pytest.mark.parametrize("num_tokens", [1, T, K])
@pytest.mark.parametrize("clamp", [0, 7])
def test_the_table_follows_from_distances_of_one_sign(clamp, num_tokens):
    half = encoding(1, K - 1, D, clamp)
    sines = np.where(np.arange(D) < D // 2, half, 0)
    cosines = half - sines
    for sign, is_reversed in ((1, False), (-1, True)):
        both = ops.convert_to_numpy(
            mirror_distances(cosines, sign * sines, num_tokens)
        )
        table = encoding(num_tokens, K, D, clamp, is_reversed)
        assert both.shape == table.shape
        # no token is K from a key
        np.testing.assert_array_equal(both[1:], table[1:])


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
    by_key = ops.convert_to_numpy(relative_shift(scores, K))
    assert by_key.shape == (B, N, T, K)
    for t in range(T):
        for k in range(K):
            distance = (M + t) - k
            column = K - distance  # the row of R for that distance
            np.testing.assert_array_equal(
                by_key[:, :, t, k], scores[:, :, t, column]
            )


def targets():
    """Rows of all tokens, and those of some of them apart."""
    rows = random(B, N, T, K + T)
    positions = np.stack(
        [np.random.default_rng(b).permutation(T)[:P] for b in range(B)]
    ).astype("int32")
    at_targets = np.stack([rows[b][:, positions[b]] for b in range(B)])
    return rows, at_targets, positions


def test_target_rows_equal_the_rows_of_the_full_shift():
    rows, at_targets, positions = targets()
    shifted = ops.convert_to_numpy(
        relative_shift_targets(at_targets, positions[:, None], K, T)
    )
    full = ops.convert_to_numpy(relative_shift(rows, K))
    assert shifted.shape == (B, N, P, K)
    for b in range(B):
        np.testing.assert_array_equal(shifted[b], full[b][:, positions[b]])


@pytest.mark.parametrize("kind", ["tokens", "targets"])
def test_going_back_is_the_transpose(kind):
    """<shift(x), y> = <x, transpose(y)> for all x and y."""
    rows, at_targets, positions = targets()
    positions = positions[:, None]

    def shift(scores):
        if kind == "tokens":
            return ops.convert_to_numpy(relative_shift(scores, K))
        return ops.convert_to_numpy(
            relative_shift_targets(scores, positions, K, T)
        )

    if kind == "tokens":
        other = random(B, N, T, K)
        back = ops.convert_to_numpy(relative_shift_transpose(other))
    else:
        rows, other = at_targets, random(B, N, P, K)
        back = ops.convert_to_numpy(
            relative_shift_targets_transpose(other, positions, T, K + T)
        )
    assert back.shape == rows.shape
    # Every score stands at one distance alone, or at none.
    np.testing.assert_array_equal(shift(back), other)
    np.testing.assert_allclose(
        (shift(rows) * other).sum(), (rows * back).sum(), rtol=1e-5
    )
    assert np.count_nonzero(back) == np.count_nonzero(other)


@pytest.mark.parametrize(
    ("num_tokens", "num_blocks"),
    [(13, 1), (64, 1), (96, 1), (512, 4), (201, 3)],
)
def test_blocks_hold_the_distances_that_their_tokens_have(
    num_tokens, num_blocks
):
    num_keys = num_tokens + M
    distances = np.arange(num_keys + num_tokens, dtype="float32")[:, None]
    blocks = ops.convert_to_numpy(
        make_position_blocks(distances, num_tokens, num_keys)
    )
    size = num_tokens // num_blocks
    assert blocks.shape == (num_blocks, num_keys + size, 1)
    # Scores that are their own column, shifted within the blocks and whole.
    whole = np.broadcast_to(distances[:, 0], (num_tokens, len(distances)))
    expected = ops.convert_to_numpy(relative_shift(whole.copy(), num_keys))
    scores = np.broadcast_to(
        blocks[:, None, :, 0], (num_blocks, size, num_keys + size)
    )
    found = ops.convert_to_numpy(relative_shift(scores.copy(), num_keys))
    np.testing.assert_array_equal(found.reshape(expected.shape), expected)
    # The transpose: each block's part of the table, where it was cut out.
    gradient = random(2, *blocks.shape[:2], 3)
    rows = random(2, len(distances), 3)
    of_rows = ops.convert_to_numpy(
        make_position_blocks(rows, num_tokens, num_keys)
    )
    back = ops.convert_to_numpy(sum_position_blocks(gradient, num_tokens))
    assert back.shape == rows.shape
    np.testing.assert_allclose(
        (rows * back).sum(), (of_rows * gradient).sum(), rtol=1e-4
    )


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="only TensorFlow compiles for lengths that it does not know",
)
def test_lengths_need_not_be_known():
    import tensorflow as tf

    rows, at_targets, positions = targets()
    positions = positions[:, None]
    other = random(B, N, P, K)
    anything = tf.TensorSpec([None] * 4, tf.float32)
    length = tf.TensorSpec([], tf.int32)

    @tf.function(input_signature=[anything] * 3 + [length] * 2)
    def all_of_them(rows, at_targets, other, num_keys, num_tokens):
        return (
            relative_shift(rows, num_keys),
            relative_shift_transpose(other),
            relative_shift_targets(at_targets, positions, num_keys, num_tokens),
            relative_shift_targets_transpose(
                other, positions, num_tokens, num_keys + num_tokens
            ),
            make_position_blocks(rows, num_tokens, num_keys),
        )

    expected = (
        relative_shift(rows, K),
        relative_shift_transpose(other),
        relative_shift_targets(at_targets, positions, K, T),
        relative_shift_targets_transpose(other, positions, T, K + T),
        rows[..., None, :, :],
    )
    found = all_of_them(rows, at_targets, other, K, T)
    assert_equal(found, expected)
