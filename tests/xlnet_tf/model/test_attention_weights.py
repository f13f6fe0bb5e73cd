"""Attention weights that a backbone gives: those that it computes with."""

import numpy as np
from keras import ops

from tests.support.bert_models import bert_backbone
from tests.support.oracle import as_numpy
from tests.support.oracle import small_backbone

T, M = 7, 4


def features(num_rows=2):
    draw = np.random.default_rng(3)
    return {
        "token_ids": draw.integers(9, 90, (num_rows, T)),
        "segment_ids": np.repeat([[0, 0, 0, 1, 1, 1, 2]], num_rows, 0),
        "padding_mask": np.array([[1] * T, [1] * 5 + [0] * 2])[:num_rows],
    }


def with_memory(backbone):
    config = backbone.config
    draw = np.random.default_rng(4)
    shape = (config.num_layers, 2, M, config.hidden_dim)
    return {
        **features(),
        "memories": tuple(draw.normal(size=shape).astype("float32")),
        "memory_mask": np.array([[0, 0, 1, 1], [1, 1, 1, 1]]),
        "is_reversed": np.array([False, True]),
    }


def check_layers(backbone, inputs, values_of):
    """Each layer's output follows from its weights, values and inputs."""
    outputs = backbone(inputs, layer_inputs=True, attention_weights=True)
    rows = [*outputs["layer_inputs"], outputs["content"]]
    weights = outputs["attention_weights"]
    assert len(weights) == backbone.config.num_layers > 1
    for layer, block in enumerate(backbone.blocks):
        values = values_of(layer, block, rows[layer])  # [B, N, K, H]
        attended = block.attention.output_projection(
            merged(ops.einsum("bnqk,bnkh->bnqh", weights[layer], values), block)
        )
        found = block.finish(rows[layer], attended)
        np.testing.assert_allclose(
            as_numpy(found), as_numpy(rows[layer + 1]), atol=1e-5
        )
    return [as_numpy(x) for x in weights]


def merged(attended, block):
    """What the output projection of XLNet or of BERT takes."""
    if len(block.attention.output_projection.kernel.shape) == 3:
        return attended
    batch_size, _, num_tokens, _ = ops.shape(attended)
    swapped = ops.transpose(attended, [0, 2, 1, 3])
    return ops.reshape(swapped, [batch_size, num_tokens, -1])


def test_xlnet_with_memory_padding_segments_and_both_directions():
    backbone = small_backbone(0, memory_length=M)
    inputs = with_memory(backbone)

    def values_of(layer, block, rows):
        keys = ops.concatenate([inputs["memories"][layer], rows], axis=1)
        return block.attention.value_projection(keys)

    weights = check_layers(backbone, inputs, values_of)
    for layer in weights:
        assert layer.shape[1:] == (backbone.config.num_heads, T, M + T)
        np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-5)
        assert (layer[0, :, :, :2] == 0).all()  # memory that is not there
        assert (layer[1, :, :5, M + 5 :] == 0).all()  # padding


def test_bert():
    backbone = bert_backbone(0, num_layers=2)

    def values_of(layer, block, rows):
        attention = block.attention
        shape = [*ops.shape(rows)[:2], attention.num_heads, attention.head_dim]
        values = ops.reshape(attention.value_projection(rows), shape)
        return ops.transpose(values, [0, 2, 1, 3])

    inputs = features()
    inputs["segment_ids"] = np.minimum(inputs["segment_ids"], 1)
    for layer in check_layers(backbone, inputs, values_of):
        np.testing.assert_allclose(layer.sum(-1), 1, atol=1e-5)
        assert (layer[1, :, :5, 5:] == 0).all()


def test_weights_of_layers_that_would_be_recomputed():
    """And targets have rows of their own, which do not see themselves."""
    for make in (small_backbone, bert_backbone):
        backbone = make(0)
        inputs = features(1)
        inputs["segment_ids"] = inputs["segment_ids"] % 2
        if backbone.has_query_stream:
            inputs["target_positions"] = np.array([[2, 4]])
        expected = backbone(inputs, attention_weights=True)
        backbone.rematerialize = True
        found = backbone(inputs, attention_weights=True)
        for name in ("content", "attention_weights"):
            np.testing.assert_allclose(
                as_numpy(found[name]), as_numpy(expected[name]), atol=1e-6
            )
        if backbone.has_query_stream:
            weights = as_numpy(found["attention_weights"][0])
            assert weights.shape[2] == T + 2
            assert (weights[:, :, T, 2] == 0).all()
            assert (weights[:, :, T + 1, 4] == 0).all()
            np.testing.assert_allclose(weights.sum(-1), 1, atol=1e-5)
