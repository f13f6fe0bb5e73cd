"""GELU: values of Keras, and the gradient of automatic differentiation."""

import keras
import numpy as np
import tensorflow as tf

from xlnet_tf.model.activation import gelu


def gradient_of(function, inputs):
    """(values, gradient), arrays of float64."""
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        outputs = function(inputs)
    found = (outputs, tape.gradient(outputs, inputs))
    assert all(x.dtype == inputs.dtype for x in found)
    return [tf.cast(x, "float64").numpy() for x in found]


def test_values_and_gradients_are_those_of_keras():
    """To one rounding of each type."""
    points = tf.constant(np.linspace(-9, 9, 1001))
    for form in ("erf", "tanh"):
        for dtype, rtol, atol in (
            ("float64", 1e-6, 1e-8),
            ("float32", 1e-6, 5e-6),
            ("bfloat16", 2**-8, 5e-6),
        ):
            inputs = tf.cast(points, dtype)
            found = gradient_of(lambda x, form=form: gelu(x, form), inputs)
            expected = gradient_of(
                lambda x, form=form: keras.activations.gelu(x, form == "tanh"),
                tf.cast(inputs, "float64"),
            )
            np.testing.assert_allclose(found, expected, rtol=rtol, atol=atol)
