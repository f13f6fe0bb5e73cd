"""Outputs and gradients of small backbones, to compare ways to compute them."""

import numpy as np
import tensorflow as tf

from tests.support import oracle


def features_of(num_layers=2, **changes):
    """All features of the backbone, with a dropout seed."""
    features = oracle.small_features(memory_length=oracle.M)
    random = np.random.default_rng(1)
    shape = features["memories"][0].shape
    features["memories"] = tuple(
        random.normal(size=shape).astype("float32") for _ in range(num_layers)
    )
    features["dropout_seed"] = np.array([3, 5], "int32")
    return tf.nest.map_structure(tf.constant, {**features, **changes})


def backbone_of(dtype=None, **overrides):
    """A backbone with every option on, for the features of `features_of`."""
    settings = dict(
        memory_length=oracle.M,
        reuse_length=7,
        clamp_length=4,
        dropout=0.3,
        attention_dropout=0.2,
    )
    return oracle.small_backbone(dtype=dtype, **{**settings, **overrides})


def step(backbone, features, training=True, **kwargs):
    """(outputs, list of gradients of all trainable variables)."""
    variables = [v.value for v in backbone.trainable_variables]
    with tf.GradientTape() as tape:
        outputs = backbone(features, training=training, **kwargs)
        # Cubed, because a normalised row sums to a constant.
        loss = sum(
            tf.reduce_sum(tf.cast(outputs[name], "float32") ** 3)
            for name in ("content", "query")
            if name in outputs
        )
    gradients = tape.gradient(
        loss, variables, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return outputs, [tf.convert_to_tensor(x) for x in gradients]


def compared(one, other, relative, message=""):
    """Fail if tensors differ by more than `relative * largest entry`."""
    flat, others = tf.nest.flatten(one), tf.nest.flatten(other)
    assert len(flat) == len(others) > 0
    for a, b in zip(flat, others, strict=True):
        a, b = (np.asarray(x, "float32") for x in (a, b))
        np.testing.assert_allclose(
            a,
            b,
            rtol=0,
            atol=relative * max(1e-3, np.abs(a).max()),
            err_msg=message,
        )
