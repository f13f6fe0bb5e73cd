"""Relative attention of both kernels against four plain loops.

Tolerance: 2e-5 absolute on outputs of size about 1, for float32 sums over 38
values in another order than the float64 loops.
"""

from dataclasses import replace

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.support import oracle
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import P
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_features
from xlnet_tf.model.attention import AttentionBiases
from xlnet_tf.model.attention import AttentionContext
from xlnet_tf.model.attention import RelativeAttention
from xlnet_tf.model.kernels.contract import AttentionRules
from xlnet_tf.model.kernels.distances import EncodedDistances
from xlnet_tf.model.relative_position import relative_position_encoding

N, H, D = 11, 17, 38
TOLERANCE = 2e-5


def layer(biases=None, seed=0):
    attention = RelativeAttention(N, H, D, biases=biases)
    attention.build()
    return randomize(attention, seed)


def weights_of(attention):
    return as_numpy(
        {
            "q": attention.query_projection.kernel,
            "k": attention.key_projection.kernel,
            "v": attention.value_projection.kernel,
            "r": attention.position_projection.kernel,
            "o": attention.output_projection.kernel,
            "u": attention.biases.content_bias,
            "v_bias": attention.biases.position_bias,
            "b": attention.biases.segment_bias,
            "s": attention.segment_encoding,
        }
    )


def inputs(memory=M, has_targets=True, is_reversed=None, clamp=0, mask=True):
    """Random rows and keys, our context, and the same for the oracle."""
    random = np.random.default_rng(1)
    num_targets = P if has_targets else 0
    rows = random.normal(size=(B, T + num_targets, D)).astype("float32")
    keys = random.normal(size=(B, memory + T, D)).astype("float32")
    features = small_features(memory_length=memory)
    positions = features["target_positions"][:, :num_targets]
    order = np.broadcast_to(np.arange(T), (B, T))
    row_position = np.concatenate([order, positions], axis=1) + memory
    segment = random.integers(0, 2, (B, memory + T))
    row_segment = np.take_along_axis(segment, row_position, axis=1)
    may_attend = np.ones((B, T + num_targets, memory + T), bool)
    if mask:
        may_attend = oracle.attention_mask(features, memory)
        may_attend = may_attend[:, : T + num_targets]
    directions = [False] if is_reversed is None else [False, True]
    context = AttentionContext(
        distances=distances_of(
            [
                relative_position_encoding(T, memory + T, D, clamp, backwards)
                for backwards in directions
            ]
        ),
        rules=AttentionRules(
            mask=may_attend if mask else None,
            other_segment=row_segment[:, :, None] != segment[:, None, :],
            is_reversed=is_reversed,
            target_positions=positions if has_targets else None,
        ),
    )
    loops = dict(
        row_position=row_position,
        mask=may_attend,
        segments=(row_segment, segment),
        is_reversed=[False] * B if is_reversed is None else is_reversed,
        clamp=clamp,
    )
    return rows, keys, context, loops


def distances_of(encoding):
    """EncodedDistances of R of both directions, or of half of R."""
    encoding = ops.stack(encoding) if isinstance(encoding, list) else encoding
    return EncodedDistances(encoding, num_unneeded=0)


def with_rules(context, **changes):
    return replace(context, rules=context.rules._replace(**changes))


CASES = {
    "with memory": dict(),
    "without memory": dict(memory=0),
    "content only": dict(has_targets=False),
    "all seen": dict(mask=False),
    "clamped": dict(clamp=3),
    "reversed": dict(is_reversed=np.array([False, True, True])),
    "all at once": dict(is_reversed=np.array([True, False, True]), clamp=3),
}


def test_attention_equals_plain_loops():
    attention = layer()
    for name, case in CASES.items():
        rows, keys, context, loops = inputs(**case)
        expected = oracle.relative_attention(
            rows, keys, weights_of(attention), **loops
        )
        assert np.std(expected) > 0.1  # not agreement on nothing
        half = relative_position_encoding(
            1, keys.shape[1] - 1, D, loops["clamp"]
        )
        for distances in (context.distances, distances_of(half)):
            for kernel in ("plain", "memory_efficient"):
                changed = replace(context, distances=distances, kernel=kernel)
                output = as_numpy(attend(attention, rows, keys, changed))
                assert output.shape == rows.shape
                np.testing.assert_allclose(
                    output,
                    expected,
                    atol=TOLERANCE,
                    err_msg=f"{name}, {kernel}, R {distances.encoding.shape}",
                )


def attend(attention, rows, keys, context):
    """Attention whose first keys are memory."""
    memory, content = keys[:, : keys.shape[1] - T], keys[:, -T:]
    memory = memory if memory.shape[1] else None
    return attention(rows, content, context=context, memory=memory)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow",
    reason="takes its gradient with TensorFlow",
)
def test_memory_is_a_constant_to_the_gradient():
    attention = layer()
    rows, keys, context, _ = inputs()
    memory, content = map(tf.constant, (keys[:, :M], keys[:, M:]))
    with tf.GradientTape() as tape:
        tape.watch([memory, content])
        output = attention(rows, content, context=context, memory=memory)
    of_memory, of_content = tape.gradient(output, [memory, content])
    assert of_memory is None
    assert np.abs(of_content).max() > 1e-3


def test_without_segments_no_segment_score_is_added():
    attention = layer()
    rows, keys, context, loops = inputs()
    context = with_rules(context, other_segment=None)
    # All in one segment is the same for every key.
    loops["segments"] = (np.zeros((B, T + P)), np.zeros((B, M + T)))
    expected = oracle.relative_attention(
        rows, keys, weights_of(attention), **loops
    )
    output = as_numpy(attention(rows, keys, context=context))
    np.testing.assert_allclose(output, expected, atol=TOLERANCE)


def test_hidden_keys_change_nothing_at_all():
    attention = layer()
    rows, keys, context, _ = inputs()
    mask = context.rules.mask.copy()
    mask[:, :, 6] = False
    context = with_rules(context, mask=mask)
    before = as_numpy(attention(rows, keys, context=context))
    changed = keys.copy()
    changed[:, 6] += 100
    np.testing.assert_array_equal(
        as_numpy(attention(rows, changed, context=context)), before
    )


def test_two_layers_can_share_their_biases():
    biases = AttentionBiases(N, H, name="shared")
    first, second = layer(biases, seed=0), layer(biases, seed=1)
    assert first.biases is second.biases is biases
    rows, keys, context, loops = inputs()
    output = as_numpy(first(rows, keys, context=context))
    # `second` was filled last: the biases that `first` uses are now its.
    expected = oracle.relative_attention(
        rows, keys, weights_of(second) | own_kernels(first), **loops
    )
    np.testing.assert_allclose(output, expected, atol=TOLERANCE)


def own_kernels(attention):
    weights = weights_of(attention)
    return {name: weights[name] for name in ("q", "k", "v", "r", "o", "s")}


def test_dropout_falls_on_the_attention_probabilities():
    attention = layer()
    attention.dropout = 0.5
    rows, keys, context, _ = inputs()
    seed = np.array([3, 5], "int32")
    without = as_numpy(attention(rows, keys, context=context))
    dropped = as_numpy(attention(rows, keys, context=context, seed=seed))
    again = as_numpy(attention(rows, keys, context=context, seed=seed))
    np.testing.assert_array_equal(dropped, again)
    seen = context.rules.mask.any(axis=-1)
    assert (np.abs(dropped - without).max(axis=-1)[seen] > 1e-3).all()


def test_a_layer_is_rebuilt_from_its_config():
    attention = RelativeAttention(N, H, D, 0.25, 0.5, name="relative")
    again = RelativeAttention.from_config(attention.get_config())
    assert again.get_config() == attention.get_config()
    assert (again.num_heads, again.head_dim, again.hidden_dim) == (N, H, D)
    biases = AttentionBiases(N, H, 0.5)
    config = RelativeAttention(N, H, D, biases=biases).get_config()
    with pytest.raises(ValueError, match="shares its biases: add `biases`"):
        RelativeAttention.from_config(config)
    again = RelativeAttention.from_config({**config, "biases": biases})
    assert again.biases is biases and again.get_config() == config
    again = AttentionBiases.from_config(biases.get_config())
    assert again.get_config() == biases.get_config()
