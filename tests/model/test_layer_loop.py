"""Layers as one program in a loop: the same numbers, a smaller program.

Of the three layers of most models here two are run in the loop: the last one of
a pretraining step computes other rows and stands after it.
"""

import keras
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


@pytest.mark.parametrize(
    "rematerialize", [False, pytest.param(True, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("mode", MODES_BUT_XLA_SLOWLY)
def test_gradients_and_memories_are_the_same(mode, rematerialize):
    plain = make_model(num_layers=3)
    scanned = make_model(
        rematerialize=rematerialize, scan_layers=True, num_layers=3
    )
    batch = features(num_layers=3)
    # float32 sums in another order
    compared(
        tf.function(gradients_of)(plain, batch),
        MODES[mode](gradients_of)(scanned, batch),
        relative=3e-6,
    )


@pytest.mark.slow
def test_shared_biases_and_bfloat16():
    settings = {
        "untie_biases": False,
        "dtype": "mixed_bfloat16",
        "num_layers": 3,
    }
    results = [
        tf.function(gradients_of)(
            make_model(scan_layers=scan_layers, **settings),
            features(num_layers=3),
        )
        for scan_layers in (False, True)
    ]
    # bfloat16 has 8 bits; sums over layers come in another order
    compared(*results, relative=0.02)


@pytest.mark.parametrize("memory_length", [0, 6])
def test_content_alone(memory_length):
    """Without memories, targets or dropout."""
    batch = {"token_ids": features()["token_ids"]}
    outputs = [
        make_model(
            scan_layers=scan_layers, memory_length=memory_length
        ).backbone(batch)
        for scan_layers in (False, True)
    ]
    assert outputs[0].keys() == outputs[1].keys()
    for one, other in zip(*map(tf.nest.flatten, outputs), strict=True):
        np.testing.assert_allclose(one, other, atol=1e-6)


@pytest.mark.slow
def test_the_program_does_not_grow_with_the_layers():
    def operations(num_layers, scan_layers):
        model = make_model(scan_layers=scan_layers, num_layers=num_layers)
        function = tf.function(gradients_of).get_concrete_function(
            model, features(num_layers=num_layers)
        )
        graph = function.graph.as_graph_def()
        functions = graph.library.function
        return len(graph.node) + sum(len(f.node_def) for f in functions)

    # Reading and stacking weights is what is left of a layer.
    small, large = operations(3, True), operations(6, True)
    assert large - small < 0.2 * (operations(6, False) - operations(3, False))


@pytest.mark.slow
def test_it_fits_and_is_no_part_of_the_saved_model(tmp_path):
    model = make_model(scan_layers=True, num_layers=3)
    config = model.backbone.get_config()
    assert "scan_layers" not in config
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=True)
    batch = features(num_layers=3)
    before = model.backbone.blocks[1].output_dense.kernel.numpy()
    first, *_, last = (
        model.train_on_batch(batch, return_dict=True)["loss"] for _ in range(15)
    )
    assert last < first
    after = model.backbone.blocks[1].output_dense.kernel.numpy()
    assert np.abs(after - before).max() > 1e-3
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not loaded.backbone.scan_layers
    np.testing.assert_allclose(
        loaded(batch)["loss"], model(batch)["loss"], rtol=1e-5
    )


UNDER_JAX = """
import numpy as np, xlnet_tf
config = xlnet_tf.XLNetConfig.from_size("tiny")
model = xlnet_tf.XLNetBackbone(config, scan_layers=True)
try:
    model({"token_ids": np.ones((2, 7), "int32")})
except RuntimeError as error:
    print(error)
"""


@pytest.mark.slow
@needs_jax
def test_under_jax():
    said = said_under_jax(UNDER_JAX)
    assert "`scan_layers` works on TensorFlow alone" in said
