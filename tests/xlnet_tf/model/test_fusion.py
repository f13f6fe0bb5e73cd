"""Which operations XLA gets of a function whose products it leaves."""

import tensorflow as tf

from xlnet_tf.model.fusion import without_products


def test_products_and_variables_are_not_marked():
    kernel = tf.Variable(tf.ones([3, 4]))

    def function(x):
        product = tf.einsum("ab,bc->ac", x, kernel)
        return tf.nn.softmax(tf.matmul(product, kernel, transpose_b=True) + 1)

    spec = tf.TensorSpec([2, 3])
    graph = tf.function(without_products(function)).get_concrete_function(spec)
    marks = {
        node.op: node.attr["_XlaCompile"].b
        for node in graph.graph.as_graph_def().node
        if "_XlaCompile" in node.attr
    }
    assert not marks["Einsum"] and not marks["MatMul"]
    assert not marks["ReadVariableOp"]
    assert marks["Softmax"] and marks["AddV2"]
