"""Layers computed again for the gradient: the same numbers, less memory."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from tests.support.gradient_fixtures import MODES
from tests.support.gradient_fixtures import MODES_BUT_XLA_SLOWLY
from tests.support.gradient_fixtures import compared
from tests.support.gradient_fixtures import features
from tests.support.gradient_fixtures import gradients_of
from tests.support.gradient_fixtures import make_model
from tests.support.gradient_fixtures import needs_jax
from tests.support.gradient_fixtures import said_under_jax

ROOT = pathlib.Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("mode", MODES_BUT_XLA_SLOWLY)
def test_gradients_and_memories_are_the_same(mode):
    """Dropout included: both times the same values are dropped."""
    run = MODES[mode]
    expected = MODES["graph"](gradients_of)
    plain, again = make_model(), make_model(rematerialize=True)
    batch = features()
    # float32 sums in another order
    compared(
        expected(plain, batch), run(gradients_of)(again, batch), relative=3e-6
    )


@pytest.mark.slow
def test_shared_biases_and_bfloat16():
    settings = {"untie_biases": False, "dtype": "mixed_bfloat16"}
    run = tf.function(gradients_of)
    results = [
        run(make_model(rematerialize=rematerialize, **settings), features())
        for rematerialize in (False, True)
    ]
    # bfloat16 has 8 bits; sums over layers come in another order
    compared(*results, relative=0.02)


def test_a_frozen_layer():
    results = []
    for rematerialize in (False, True):
        model = make_model(rematerialize=rematerialize)
        model.backbone.blocks[0].trainable = False
        gradients, _, _ = gradients_of(model, features())
        results.append(gradients)
    assert len(results[0]) == len(results[1]) < 30
    for a, b in zip(*results, strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)


@pytest.mark.parametrize("rematerialize", [False, True])
def test_layers_run_again_for_the_gradient(rematerialize, monkeypatch):
    model = make_model(rematerialize=rematerialize)
    calls = []
    for block in model.backbone.blocks:

        def counted(*args, block=block, call=block.call, **kwargs):
            calls.append(block.name)
            return call(*args, **kwargs)

        monkeypatch.setattr(block, "call", counted)
    gradients_of(model, features())
    again = ["block_1", "block_0"] if rematerialize else []
    assert calls == ["block_0", "block_1", *again]
    calls.clear()
    model(features(), training=False)
    assert calls == ["block_0", "block_1"]


def test_it_is_no_part_of_the_saved_model():
    config = make_model(rematerialize=True).backbone.get_config()
    assert config == make_model().backbone.get_config() | {
        "name": config["name"]
    }


UNDER_JAX = """
import jax, keras, numpy as np, xlnet_tf
from xlnet_tf import XLNetConfig, XLNetBackbone
assert keras.backend.backend() == "jax"
config = XLNetConfig(
    vocabulary_size=31, num_layers=2, num_heads=2, hidden_dim=14, head_dim=6,
    intermediate_dim=19, memory_length=5, dropout=0.3, attention_dropout=0.2,
)
model = XLNetBackbone(config, seed=1)
rng = np.random.default_rng(0)
batch = {
    "token_ids": rng.integers(0, 31, (2, 7)),
    "memories": tuple(rng.normal(size=(2, 2, 5, 14)).astype("float32")),
    "dropout_seed": np.array([1, 2]),
}
def loss(weights):
    outputs, _ = model.stateless_call(
        weights, [v.value for v in model.non_trainable_variables], batch,
        training=True,
    )
    return (outputs["content"] ** 3).sum()
weights = [v.value for v in model.trainable_variables]
plain = jax.jit(jax.grad(loss))(weights)
model.rematerialize = True
again = jax.jit(jax.grad(lambda x: loss(x))).lower(weights)
assert "optimization_barrier" in again.as_text()
again = again.compile()(weights)
for a, b in zip(plain, again, strict=True):
    scale = max(1e-3, np.abs(a).max())
    np.testing.assert_allclose(a, b, atol=1e-5 * scale)
print("equal")
"""


@pytest.mark.slow
@needs_jax
def test_under_jax():
    assert said_under_jax(UNDER_JAX).strip() == "equal"


@needs_jax
@pytest.mark.slow
def test_it_saves_memory():
    """What XLA wants beside weights, of a step with many small layers."""

    def temporary_bytes(*options):
        program = str(ROOT / "benchmarks" / "tpu_step.py")
        sizes = (
            "--num-layers",
            "6",
            "--batch-size",
            "4",
            "--memory-length",
            "8",
        )
        done = subprocess.run(
            [sys.executable, program, "--topology", "cpu", "--config", "tiny"]
            + [*sizes, "--sequence-length", "64", "--num-predict", "11"]
            + ["--reuse-length", "16", *options],
            capture_output=True,
            encoding="utf-8",
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return json.loads(done.stdout.splitlines()[-1])["temporary_bytes"]

    # 83 of 115 MB: in so small a model the vocabulary, which stays, has most.
    assert temporary_bytes("--rematerialize") < 0.75 * temporary_bytes()
