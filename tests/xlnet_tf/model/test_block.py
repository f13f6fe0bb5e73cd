"""Feed-forward of a layer: training and inference compute it differently."""

import numpy as np
import pytest
import tensorflow as tf
from tensorflow.python.eager import context

import xlnet_tf
from xlnet_tf.model.block import XLNetBlock
from xlnet_tf.model.dropout import seeds_of_layers

ACTIVATIONS = [
    ({"activation": "gelu", "gelu": "tanh"}, b"GeluApproximate"),
    ({"activation": "gelu", "gelu": "erf"}, b"GeluExact"),
    ({"activation": "relu"}, b"Relu"),
]


@pytest.mark.parametrize("activation, fused", ACTIVATIONS)
@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_a_product_is_merged_with_bias_and_activation(activation, fused, dtype):
    block, rows = block_and_rows(activation, dtype)
    nodes = nodes_that_ran(tf.function(block.finish), rows, rows)
    if not any(node.op.startswith("_Mkl") for node in nodes):
        pytest.skip("this TensorFlow computes without oneDNN")
    merged = [
        list(node.attr["fused_ops"].list.s)
        for node in nodes
        if "FusedMatMul" in node.op
    ]
    assert sorted(merged) == [[b"BiasAdd"], [b"BiasAdd", fused]]


@pytest.mark.parametrize("activation", [named for named, _ in ACTIVATIONS])
@pytest.mark.parametrize(
    "dtype, atol, rtol",
    [
        ("float32", 1e-5, 1e-7),
        # Neighbours of bfloat16 differ by up to 2**-7 of their value.
        ("mixed_bfloat16", 0.03, 2**-7),
    ],
)
def test_inference_is_training_without_dropout(activation, dtype, atol, rtol):
    block, rows = block_and_rows(activation, dtype)
    (seeds,) = seeds_of_layers(tf.constant([1, 2]), 1)
    trained = tf.function(block.finish)(rows, rows, seeds)
    inferred = tf.function(block.finish)(rows, rows)
    trained, inferred = (tf.cast(x, "float32") for x in (trained, inferred))
    np.testing.assert_allclose(inferred, trained, atol=atol, rtol=rtol)


def block_and_rows(activation, dtype):
    config = xlnet_tf.XLNetConfig.from_size("tiny", dropout=0.0, **activation)
    block = XLNetBlock(config, dtype=dtype)
    block.build()
    rows = tf.random.stateless_normal([2, 64, config.hidden_dim], [3, 4])
    return block, tf.cast(rows, block.compute_dtype)


def nodes_that_ran(function, *arguments):
    """Nodes of the graph into which TensorFlow turned a function."""
    context.enable_run_metadata()
    try:
        function(*arguments)
        metadata = context.export_run_metadata()
    finally:
        context.disable_run_metadata()
    return [node for graph in metadata.partition_graphs for node in graph.node]
