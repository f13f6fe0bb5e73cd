"""BERT's backbone: positions, masks, precision, and ways to compute it."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert_models import WITH_BIAS
from tests.support.bert_models import B
from tests.support.bert_models import T
from tests.support.bert_models import bert_backbone
from tests.support.bert_models import bert_config
from tests.support.bert_models import bert_features
from tests.support.bert_models import pseudo_features
from tests.support.gradients import compared
from tests.support.gradients import step
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from xlnet_tf import BertBackbone
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetPretrainer
from xlnet_tf.model.bert.position_bias import relative_position_buckets

SEED = np.array([3, 5], "int32")


def content(backbone, features, **arguments):
    return as_numpy(backbone(features, **arguments)["content"])


def test_the_weights_are_as_many_as_the_config_says():
    for overrides in ({}, WITH_BIAS, {"num_segments": 0}, {"head_dim": 3}):
        backbone = bert_backbone(**overrides)
        count = backbone.config.num_parameters()
        assert backbone.count_params() == count, overrides


def test_a_row_alone_is_as_in_a_ragged_batch():
    features = bert_features()
    for overrides in ({}, WITH_BIAS):
        backbone = bert_backbone(**overrides)
        batched = content(backbone, features)
        for row in range(B):
            real = np.flatnonzero(features["padding_mask"][row])
            alone = {k: v[row : row + 1, real] for k, v in features.items()}
            del alone["padding_mask"]
            expected = batched[row, real]
            found = content(backbone, alone)[0]
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-6)
            # Padding is not read at all.
            changed = dict(features, token_ids=features["token_ids"].copy())
            changed["token_ids"][features["padding_mask"] == 0] = 5
            other = content(backbone, changed)[row, real]
            np.testing.assert_array_equal(other, expected)


def test_positions_are_those_that_are_given_and_may_be_shared():
    features = bert_features()
    del features["padding_mask"]
    positions = np.tile(np.arange(T, dtype="int32"), (B, 1))
    positions[:, 5:8] = [[2], [3], [12]]
    order = np.random.default_rng(1).permutation(T)
    for overrides in ({}, WITH_BIAS):
        backbone = bert_backbone(**overrides)
        given = dict(features, position_ids=positions)
        expected = content(backbone, given)
        # The order of tokens says nothing beside their positions.
        shuffled = {k: v[:, order] for k, v in given.items()}
        found = content(backbone, shuffled)
        np.testing.assert_allclose(found, expected[:, order], 0, 2e-6)
        plain = content(backbone, features)
        assert np.abs(plain - expected).max() > 1e-2
        given["position_ids"] = np.tile(np.arange(T, dtype="int32"), (B, 1))
        np.testing.assert_array_equal(content(backbone, given), plain)


def test_segments_beyond_the_last_count_as_the_last():
    backbone, features = bert_backbone(), bert_features()
    features["segment_ids"][:, -3:] = 2
    expected = content(backbone, features)
    features["segment_ids"][:, -3:] = [4, 3, 2]
    np.testing.assert_array_equal(content(backbone, features), expected)
    del features["segment_ids"]
    without = content(backbone, features)
    features["segment_ids"] = np.zeros_like(features["token_ids"])
    np.testing.assert_array_equal(content(backbone, features), without)


def test_buckets_are_those_of_t5():
    # Typed from Mesh TensorFlow's rule for 8 buckets and a distance of 20:
    # distances 0 and 1 alone, then [2, 7) and from 7 on.
    positions = np.array([[0, 1, 2, 5, 6, 7, 40]], "int32")
    found = as_numpy(relative_position_buckets(positions, 8, 20))[0]
    np.testing.assert_array_equal(found[0], [0, 5, 6, 6, 6, 7, 7])
    np.testing.assert_array_equal(found[:, 0], [0, 1, 2, 2, 2, 3, 3])
    # UniLMv2's: 8 distances alone and 8 ranges, the last from 91 on.
    positions = np.array([[0, 7, 8, 11, 12, 90, 91]], "int32")
    found = as_numpy(relative_position_buckets(positions, 32, 128))[0]
    np.testing.assert_array_equal(found[:, 0], [0, 7, 8, 8, 9, 14, 15])
    np.testing.assert_array_equal(found[0], [0, 23, 24, 24, 25, 30, 31])


def embedded(backbone, features):
    """(content, tape, embeddings that the tape tells apart by place)."""
    rows = tf.Variable(
        tf.gather(backbone.token_embedding.embeddings, features["token_ids"])
    )
    original = backbone.token_embedding.call
    backbone.token_embedding.call = lambda token_ids: tf.identity(rows)
    try:
        with tf.GradientTape(persistent=True) as tape:
            outputs = backbone(features)["content"]
            # Cubed, because a normalised row sums to a constant.
            parts = [tf.reduce_sum(x**3) for x in tf.unstack(outputs, axis=1)]
    finally:
        backbone.token_embedding.call = original
    return parts, tape, rows


def test_pseudo_tokens_leak_nothing():
    """The gradient of row i for embedding j is zero unless j is before i."""
    backbone, features = bert_backbone(**WITH_BIAS), pseudo_features()
    rank, is_pseudo = features["factorization_rank"], features["is_pseudo"]
    parts, tape, rows = embedded(backbone, features)
    checked = 0
    for i, part in enumerate(parts):
        found = np.abs(tape.gradient(part, rows).numpy()).max(-1)
        for b, j in np.ndindex(found.shape):
            # All that row i sees sees no later step, and no other's [P].
            if is_pseudo[b, j]:
                is_seen = is_pseudo[b, i] and rank[b, i] == rank[b, j]
            else:
                is_seen = rank[b, j] <= rank[b, i] - is_pseudo[b, i]
            assert (found[b, j] > 1e-9) == is_seen, (b, i, j)
            checked += not is_seen
    assert checked > 100


def test_masks_of_both_forms_agree():
    features, backbone = bert_features(), bert_backbone()
    random = np.random.default_rng(2)
    rank = random.integers(-1, 4, (B, T)).astype("int32")
    perm_mask = rank[:, None, :] > rank[:, :, None]
    compact = content(backbone, dict(features, factorization_rank=rank))
    literal = content(backbone, dict(features, perm_mask=perm_mask))
    np.testing.assert_array_equal(compact, literal)
    assert np.abs(compact - content(backbone, features)).max() > 1e-2


def test_a_row_that_sees_nothing_gets_no_information():
    attention = bert_backbone().blocks[0].attention
    rows = np.random.default_rng(0).normal(size=(B, T, 35)).astype("float32")
    mask = np.ones((B, T, T), bool)
    mask[1, 4] = False
    found = as_numpy(attention(rows, attention_mask=mask))
    bias = as_numpy(attention.output_projection.bias)
    np.testing.assert_allclose(found[1, 4], bias, rtol=0, atol=1e-6)
    assert np.abs(found[0, 4] - bias).max() > 1e-2


def test_recomputed_layers_give_equal_numbers():
    features = {**pseudo_features(), "dropout_seed": SEED}
    for overrides in ({}, WITH_BIAS):
        backbone = bert_backbone(
            dropout=0.3, attention_dropout=0.2, **overrides
        )
        expected = step(backbone, features)
        assert all(np.abs(x).max() > 0 for x in expected[1])
        backbone.rematerialize = True
        compared(step(backbone, features), expected, 1e-5)


def test_equal_dropout_seeds_drop_equal_values():
    backbone, features = bert_backbone(dropout=0.4), bert_features()
    results = [
        content(backbone, dict(features, dropout_seed=seed), training=True)
        for seed in (SEED, SEED, SEED + 1)
    ]
    np.testing.assert_array_equal(results[0], results[1])
    assert np.abs(results[0] - results[2]).max() > 1e-2
    plain = content(backbone, dict(features, dropout_seed=SEED))
    np.testing.assert_array_equal(plain, content(backbone, features))


def test_dropout_of_one_kind_alone_changes_the_numbers():
    features = bert_features()
    for name in ("dropout", "attention_dropout"):
        rates = {"dropout": 0.0, "attention_dropout": 0.0, name: 0.5}
        backbone = bert_backbone(**rates)
        one = content(backbone, features, training=True)
        two = content(backbone, features, training=True)
        assert np.abs(one - two).max() > 1e-2, name


def test_bfloat16_is_near_float32():
    features = pseudo_features()
    for overrides in ({}, WITH_BIAS):
        expected = content(bert_backbone(**overrides), features)
        backbone = bert_backbone(dtype="mixed_bfloat16", **overrides)
        assert backbone.compute_dtype == "bfloat16"
        found = content(backbone, features).astype("float32")
        assert np.abs(found - expected).max() < 0.05
        assert np.sqrt(np.mean((found - expected) ** 2)) < 0.01


def test_a_graph_takes_any_batch_and_length():
    backbone, features = bert_backbone(**WITH_BIAS), bert_features()
    spec = {k: tf.TensorSpec([None, None], "int32") for k in features}

    @tf.function(input_signature=[spec])
    def call(features):
        return backbone(features)["content"]

    for batch, length in ((3, 11), (1, 4)):
        part = {k: v[:batch, :length] for k, v in features.items()}
        part = {k: tf.constant(v) for k, v in part.items()}
        np.testing.assert_allclose(
            call(part), content(backbone, part), rtol=0, atol=2e-6
        )


def test_frozen_layers_stay_frozen_in_a_copy():
    backbone = BertBackbone(bert_config(), trainable=False)
    assert not backbone.trainable_weights
    backbone = bert_backbone()
    backbone.blocks[1].trainable = False
    copy = BertBackbone.from_config(backbone.get_config())
    assert copy.blocks[0].trainable and not copy.blocks[1].trainable


def test_what_a_bert_cannot_do_is_refused():
    backbone, features = bert_backbone(), bert_features()
    long = dict.fromkeys(features, np.ones((1, 14), "int32"))
    for changes, message in [
        ({"memories": ()}, "BertBackbone takes no `memories`: there is no mem"),
        ({"is_reversed": np.ones(B)}, "takes no `is_reversed`: its positions"),
        ({"is_pseudo": np.ones((B, T))}, "`is_pseudo` needs `factorization_r"),
        (
            {"attention_mask": np.ones(3)},
            "no feature `attention_mask`; did you mean",
        ),
        (long, "at most `max_positions` tokens a row, 13.* 14 tokens"),
        (
            {"position_ids": np.full((B, T), 13)},
            "`position_ids` must be from 0 to 12. Received: 13",
        ),
        (
            {"position_ids": np.full((B, T), -1)},
            "`position_ids` must be from 0 to 12. Received: -1",
        ),
        (
            {"position_ids": np.zeros((2, T), int)},
            r"`position_ids` must have the shape .* = \(3, 11\). .*\(2, 11\)",
        ),
        ({"segment_ids": np.full((B, T), -1)}, "must be from 0 to 2147483647"),
    ]:
        with pytest.raises(ValueError, match=message):
            backbone({**features, **changes})
    # As many tokens as one likes, where they share positions.
    backbone({**long, "position_ids": np.full((1, 14), 3)})
    with pytest.raises(ValueError, match="no query stream.*streams='query'"):
        backbone(features, streams="query")
    with pytest.raises(ValueError, match="attention_kernel='memory_efficient'"):
        BertBackbone(bert_config(), attention_kernel="memory_efficient")
    other = XLNetBackbone(XLNetConfig(97, 1, 2, 8, 4))
    for name in ("position_ids", "is_pseudo"):
        with pytest.raises(ValueError, match=f"XLNetBackbone takes no `{name}"):
            other({**features, name: features["token_ids"] * 0})


def test_a_pretrainer_needs_an_objective_without_queries():
    features, model = bert_features(), XLNetPretrainer(bert_backbone())
    assert [x.name for x in model.objectives] == ["masked"]  # the default
    logits = model.logits(model(features)["content"])
    assert logits.shape == (B, T, 97)
    for objective in ("permutation", ["permutation", "next_sentence"]):
        with pytest.raises(ValueError, match="stream, XLNetBackbone. Receiv"):
            XLNetPretrainer(bert_backbone(), objective=objective)


def test_the_transform_of_the_head_has_the_activation_of_the_config():
    rows = np.random.default_rng(0).normal(size=(1, 3, 35)).astype("float32")
    results = []
    for overrides in ({}, {"activation": "relu"}, {"gelu": "tanh"}):
        backbone = bert_backbone(**overrides)
        model = XLNetPretrainer(backbone, has_transform=True)
        randomize(model.head, seed=1)
        results.append(as_numpy(model.logits(rows)))
        inner = as_numpy(model.head.transform(rows))
        if overrides.get("activation") == "relu":
            normed = model.head.transform_norm(np.maximum(inner, 0))
            table = as_numpy(backbone.token_embedding.embeddings)
            expected = as_numpy(normed) @ table.T + as_numpy(model.head.bias)
            np.testing.assert_allclose(results[-1], expected, 0, 1e-5)
    assert np.abs(results[0] - results[1]).max() > 1e-2
    assert 0 < np.abs(results[0] - results[2]).max() < 1e-2
