"""Equal layers as calls of one TensorFlow function: the same numbers."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert_models import WITH_BIAS
from tests.support.bert_models import bert_backbone
from tests.support.bert_models import bert_features
from tests.support.gradients import backbone_of
from tests.support.gradients import compared
from tests.support.gradients import features_of
from tests.support.gradients import step
from xlnet_tf.model.fusion import without_products

PRODUCTS = {"BatchMatMulV2", "Einsum", "MatMul"}


def equal_layers():
    return backbone_of(num_layers=3)


def frozen_weight():
    backbone = backbone_of(num_layers=3)
    backbone.blocks[0].output_dense.kernel.trainable = False
    return backbone


def adapters():
    backbone = backbone_of(num_layers=3)
    backbone.enable_lora(2)
    for variable in backbone.trainable_variables:
        variable.assign(variable + 0.1)
    return backbone


def another_dropout():
    backbone = backbone_of(num_layers=3)
    backbone.blocks[0].attention.dropout = 0.5
    return backbone


@pytest.mark.parametrize(
    ("make", "calls"),
    [
        (equal_layers, 2),
        (frozen_weight, 1),
        (another_dropout, 1),
        (adapters, 2),
    ],
)
def test_the_same_outputs_and_gradients(make, calls):
    """The last layer is no call of a function."""
    backbone, features = make(), features_of(num_layers=3)
    expected = step(backbone, features)
    function = compiled(backbone)
    compared(expected, function(features), 1e-5)
    graph = function.get_concrete_function(features).graph.as_graph_def()
    counts = collections.Counter(
        node.attr["f"].func.name
        for node in graph.node
        if node.op in ("PartitionedCall", "StatefulPartitionedCall")
    )
    ((name, count),) = counts.most_common(1)
    assert count == calls
    (called,) = (
        one for one in graph.library.function if one.signature.name == name
    )
    assert called.attr["_noinline"].b  # one copy for XLA


def test_xla_gets_no_product_of_a_gradient():
    backbone = backbone_of("mixed_bfloat16", num_layers=3)
    function = compiled(backbone).get_concrete_function(
        features_of(num_layers=3)
    )
    functions = function.graph.as_graph_def().library.function
    nodes = [node for one in functions for node in one.node_def]
    marked = {node.op for node in nodes if node.attr["_XlaCompile"].b}
    assert {node.op for node in nodes} >= PRODUCTS
    assert not marked & PRODUCTS
    # Softmax and GELU.
    assert marked >= {"Exp", "Tanh", "Mul", "Sum"}
    backward = [x for x in functions if "__backward" in x.signature.name]
    nodes = [node for one in backward for node in one.node_def]
    marked = {node.op for node in nodes if node.attr["_XlaCompile"].b}
    assert marked >= {"RsqrtGrad", "Tanh", "Mul", "Sum"}


def compiled(backbone):
    return tf.function(without_products(lambda x: step(backbone, x)))


def test_the_position_bias_of_bert_has_a_gradient():
    backbone = bert_backbone(num_layers=3, **WITH_BIAS)
    seed = np.array([3, 5], "int32")
    features = tf.nest.map_structure(
        tf.constant, {**bert_features(), "dropout_seed": seed}
    )
    # Softmax ignores the bias of the keys: its gradient is 0, rounding apart.
    for block in backbone.blocks:
        block.attention.key_projection.trainable = False
    expected = step(backbone, features)
    compared(expected, compiled(backbone)(features), 1e-5)
