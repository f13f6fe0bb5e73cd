"""Which distances the layers get: of both signs, or of one.

Tolerance: 1e-5 absolute on layer-normalised outputs, for float32 sums that run
in another order.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.gradient_fixtures import compared
from tests.support.oracle import M
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from xlnet_tf.model import backbone as backbone_module
from xlnet_tf.model.attention_context import attention_context

TOLERANCE = 1e-5
D = 38
ONE_SIGN, BOTH_SIGNS = (M + T, D), (2, M + T + T, D)


@pytest.fixture
def shapes_of(monkeypatch):
    """Function of a backbone and how it is called to (outputs, shape of R)."""

    def called(backbone, with_both=False, **kwargs):
        shapes = []

        def spied(*args, one_sign):
            context = attention_context(
                *args, one_sign=one_sign and not with_both
            )
            shapes.append(tuple(context.position_encoding.shape))
            return context

        monkeypatch.setattr(backbone_module, "attention_context", spied)
        outputs = backbone(small_features(memory_length=M), **kwargs)
        (shape,) = shapes
        return outputs, shape

    return called


def test_the_sign_of_distances_makes_no_difference(shapes_of):
    backbone = small_backbone(memory_length=M)
    outputs, shape = shapes_of(backbone)
    expected, shape_of_both = shapes_of(backbone, with_both=True)
    assert (shape, shape_of_both) == (ONE_SIGN, BOTH_SIGNS)
    for stream in ("content", "query"):
        assert np.std(as_numpy(expected[stream])) > 0.1
        difference = largest_difference(outputs[stream], expected[stream])
        assert difference < TOLERANCE


def test_nor_to_the_gradients(shapes_of):
    backbone = small_backbone(
        memory_length=M, dropout=0.0, attention_dropout=0.0
    )
    gradients = []
    for with_both in (False, True):
        with tf.GradientTape() as tape:
            outputs, shape = shapes_of(
                backbone, with_both=with_both, training=True
            )
            loss = tf.reduce_sum(outputs["query"][..., :5] ** 2)
        assert shape == (BOTH_SIGNS if with_both else ONE_SIGN)
        of_variables = tape.gradient(
            loss, [v.value for v in backbone.trainable_variables]
        )
        gradients.append([tf.convert_to_tensor(g) for g in of_variables])
    compared(*gradients, TOLERANCE)


def test_dropped_values_have_both_signs(shapes_of):
    backbone = small_backbone(memory_length=M, dropout=0.5)
    assert shapes_of(backbone, training=True)[1] == BOTH_SIGNS
    assert shapes_of(backbone, training=False)[1] == ONE_SIGN


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "bfloat16"])
def test_narrow_products_are_rounded_once(shapes_of, policy):
    backbone = small_backbone(memory_length=M, dtype=policy)
    assert shapes_of(backbone)[1] == BOTH_SIGNS


def test_quantized_layers_compute_their_own_products(shapes_of):
    backbone = small_backbone(memory_length=M)
    expected, _ = shapes_of(backbone)
    backbone.quantize("int8")
    outputs, shape = shapes_of(backbone)
    assert shape == BOTH_SIGNS
    # Eight bits a weight are right to a few per cent.
    difference = largest_difference(outputs["content"], expected["content"])
    assert difference < 0.2
