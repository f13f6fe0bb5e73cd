"""A step of training in every mode, to compare ways of computing layers."""

import importlib.util
import os
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer


def make_model(rematerialize=False, scan_layers=False, dtype=None, **overrides):
    """The same small model, however its layers are computed."""
    keras.utils.set_random_seed(4)
    settings = {"dropout": 0.3, "attention_dropout": 0.2, **overrides}
    backbone = XLNetBackbone(
        tiny_config(**settings),
        rematerialize=rematerialize,
        scan_layers=scan_layers,
        dtype=dtype,
    )
    return XLNetPretrainer(backbone)


def features(batch=0, num_layers=2):
    """A batch with memories and a seed."""
    arrays = {
        name: tf.constant(array[batch])
        for name, array in ArrayData().features.items()
    }
    rng = np.random.default_rng(1)
    memories = tuple(
        tf.constant(rng.normal(size=(4, 6, 22)), tf.float32)
        for _ in range(num_layers)
    )
    return {**arrays, "memories": memories, "dropout_seed": tf.constant([3, 5])}


def gradients_of(model, batch):
    """Gradients of a step of training, its loss and its memories."""
    variables = [v.value for v in model.trainable_variables]
    with tf.GradientTape() as tape:
        outputs = model(batch, training=True)
    gradients = tape.gradient(outputs["loss"], variables)
    gradients = [tf.convert_to_tensor(g) for g in gradients]
    return gradients, outputs["loss"], outputs["memories"]


def compared(one, other, relative):
    """Fails where tensors differ by more than a part of their largest entry."""
    flat, others = tf.nest.flatten(one), tf.nest.flatten(other)
    assert len(flat) == len(others) > 30
    for a, b in zip(flat, others, strict=True):
        a, b = (np.asarray(x, "float32") for x in (a, b))
        np.testing.assert_allclose(
            a, b, rtol=0, atol=relative * max(1e-3, np.abs(a).max())
        )


MODES = {
    "eager": lambda f: f,
    "graph": tf.function,
    "XLA": lambda f: tf.function(f, jit_compile=True),
}
MODES_BUT_XLA_SLOWLY = [
    pytest.param(mode, marks=pytest.mark.slow) if mode == "XLA" else mode
    for mode in MODES
]

needs_jax = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)


def said_under_jax(program):
    """What a Python program prints in a process with Keras on JAX."""
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
