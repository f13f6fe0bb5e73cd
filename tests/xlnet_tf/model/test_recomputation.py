"""Layers kept or recomputed, by any kernel: the same numbers.

Tolerance: 3e-6 of the largest entry, for float32 sums in another order.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support import oracle
from tests.support.gradients import backbone_of
from tests.support.gradients import compared
from tests.support.gradients import features_of
from tests.support.gradients import step
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig


@pytest.mark.parametrize("streams", ["both", "query"])
def test_every_way_gives_the_same_numbers(streams):
    """Outputs, memories and gradients, dropout included."""
    backbone, features = backbone_of(num_layers=3), features_of(num_layers=3)
    expected = step(backbone, features, streams=streams)
    assert ("content" in expected[0]) == (streams == "both")
    backbone.rematerialize = True
    found = step(backbone, features, streams=streams)
    compared(expected, found, 3e-6, "rematerialize")
    backbone.rematerialize = False
    backbone.attention_kernel = "plain"
    found = step(backbone, features, streams=streams)
    compared(expected, found, 1e-5, "plain")


def test_a_frozen_layer():
    backbone = backbone_of()
    backbone.blocks[0].trainable = False
    expected = step(backbone, features_of())
    assert len(expected[1]) < 30
    backbone.rematerialize = True
    compared(expected, step(backbone, features_of()), 3e-6)


def test_no_rows_and_no_targets():
    """The last batch of a replica may have no rows."""
    features = features_of()
    seed = features.pop("dropout_seed")
    no_rows = tf.nest.map_structure(lambda x: x[:0], features)
    no_targets = {**features, "target_positions": tf.zeros((3, 0), "int32")}
    for given in (no_rows, no_targets):
        for way in ("auto", "plain", "rematerialize"):
            backbone = backbone_of()
            if way == "rematerialize":
                backbone.rematerialize = True
            else:
                backbone.attention_kernel = way
            outputs, found = step(backbone, {**given, "dropout_seed": seed})
            rows = given["token_ids"].shape[0]
            targets = given["target_positions"].shape[1]
            assert outputs["query"].shape == (rows, targets, 38), way
            assert all(np.isfinite(x).all() for x in found), way
            assert rows or not any(np.any(x) for x in found), way


def test_layers_run_again_for_the_gradient(monkeypatch):
    backbone, calls = backbone_of(), []
    for block in backbone.blocks:

        def counted(*args, block=block, call=block.call, **kwargs):
            calls.append(block.name)
            return call(*args, **kwargs)

        monkeypatch.setattr(block, "call", counted)
    for rematerialize, again in ((False, []), (True, ["block_1", "block_0"])):
        backbone.rematerialize = rematerialize
        calls.clear()
        step(backbone, features_of())
        assert calls == ["block_0", "block_1", *again]
    calls.clear()
    backbone(features_of(), training=False)
    assert calls == ["block_0", "block_1"]


def test_recomputed_layers_compiled_by_xla_give_the_same():
    """The one compilation of the default tier; the rest is in `slow`."""
    backbone, features = backbone_of(), features_of()
    expected = step(backbone, features)
    backbone.rematerialize = True
    compiled = tf.function(
        lambda features: step(backbone, features), jit_compile=True
    )
    compared(expected, compiled(features), 1e-5)


def test_the_way_is_no_part_of_the_config():
    arguments = dict(rematerialize=True, attention_kernel="plain")
    config = oracle.small_config()
    backbone = XLNetBackbone(config, name="x", **arguments)
    assert backbone.get_config() == XLNetBackbone(config, name="x").get_config()
    again = XLNetBackbone.from_config(backbone.get_config())
    assert again.attention_kernel == "auto"
    assert not again.rematerialize


def test_the_expected_bytes_follow_the_way():
    backbone = XLNetBackbone(oracle.small_config(memory_length=5))
    rows, keys, heads = 13 + 7, 13 + 5, 11
    kept = rows * (12 * 38 + 3 * 23) + heads * rows * keys
    scores = 4 * 3 * heads * rows * keys
    assert backbone.expected_bytes(3, 13, 7) == 4 * (scores + 3 * 2 * kept)
    whole = backbone.expected_bytes(64, 512, 85)
    assert whole < backbone.expected_bytes(65, 512, 85)
    backbone.rematerialize = True
    assert backbone.expected_bytes(64, 512, 85) < whole
    long = backbone.expected_bytes(64, 2048)
    backbone.attention_kernel = "plain"  # keeps all scores of a layer
    assert backbone.expected_bytes(64, 2048) > 2 * long


def test_the_expected_bytes_are_near_those_that_xla_holds():
    """XLNet-Base, two rows of 512 tokens, 85 targets and memory 384."""

    def expected(dtype):
        backbone = XLNetBackbone(oracle.small_config(), dtype=dtype)
        backbone.config = XLNetConfig(memory_length=384)
        return backbone.expected_bytes(2, 512, 85)

    assert expected("float32") == pytest.approx(1.95e9, rel=0.1)
    assert expected("bfloat16") == expected("float32") / 2


def test_an_unknown_kernel_is_refused():
    with pytest.raises(ValueError, match="`attention_kernel` must be one of"):
        XLNetBackbone(oracle.small_config(), attention_kernel="slow")
