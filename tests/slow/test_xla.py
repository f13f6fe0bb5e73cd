"""Kernels, layers, losses and released numbers when compiled by XLA.

XLA fuses and reorders float32 sums.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.gradients import backbone_of
from tests.support.gradients import compared
from tests.support.gradients import features_of
from tests.support.gradients import step
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import as_numpy
from tests.xlnet_tf.model import test_reference_numbers as reference_numbers
from tests.xlnet_tf.model.kernels import test_kernels as kernel_tests
from tests.xlnet_tf.objectives.test_pretrainer import dataset
from tests.xlnet_tf.objectives.test_pretrainer import labelled
from tests.xlnet_tf.objectives.test_pretrainer import pretrainer
from xlnet_tf.model.fusion import without_products
from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain


def test_kernels(monkeypatch):
    for case, (inputs, rules) in kernel_tests.cases().items():
        expected = kernel_tests.gradients(plain.attend, inputs, rules)
        is_everything = case == "everything"
        ways = [(memory_efficient, None)]
        # Groups differ in the loop over heads, whatever the options.
        if is_everything:
            ways += [(memory_efficient, 1), (memory_efficient, 3)]
        if is_everything or case == "targets alone":
            ways += [(plain, None)]
        for kernel, group in ways:
            monkeypatch.setattr(
                memory_efficient, "heads_at_a_time", lambda *_, n=group: n
            )
            compiled = tf.function(
                lambda *inputs, kernel=kernel, rules=rules: (
                    kernel_tests.gradients(kernel.attend, list(inputs), rules)
                ),
                jit_compile=True,
            )
            found = compiled(*inputs)
            compared(expected, found, 1e-5, f"{case}, {kernel}, {group} heads")


@pytest.mark.parametrize(
    ("mode", "rematerialize"),
    [
        ("XLA", False),
        ("XLA", True),
        ("graph", True),
        ("between products", False),
        ("between products", True),
    ],
)
def test_every_way_to_run_the_layers(mode, rematerialize):
    backbone, features = backbone_of(num_layers=3), features_of(num_layers=3)
    for streams in ("both", "query"):
        expected = step(backbone, features, streams=streams)
        backbone.rematerialize = rematerialize

        def of_streams(x, streams=streams):
            return step(backbone, x, streams=streams)

        if mode == "between products":
            of_streams = without_products(of_streams)
        compiled = tf.function(of_streams, jit_compile=mode == "XLA")
        compared(expected, compiled(features), 1e-5)
        backbone.rematerialize = False


def test_shared_biases_and_bfloat16():
    """Recomputed layers are as near to float32 as those that are kept."""
    # Dropout would add noise of its own; that it is the same is tested above.
    no_dropout = {"dropout": 0.0, "attention_dropout": 0.0}
    settings = dict(untie_biases=False, num_layers=3, **no_dropout)
    features = features_of(num_layers=3)
    narrow = backbone_of("mixed_bfloat16", **settings)
    exact = step(backbone_of(**settings), features)[1]

    def errors():
        """Per gradient, the norm of its error by that of the gradient."""
        found = tf.function(lambda x: step(narrow, x)[1])(features)
        return [
            np.linalg.norm(one - other) / np.linalg.norm(other)
            for one, other in zip(as_numpy(found), as_numpy(exact), strict=True)
        ]

    kept = errors()
    narrow.rematerialize = True
    # bfloat16 has 8 bits; sums over layers come in another order.
    assert np.median(kept) < 0.05
    for one, other in zip(errors(), kept, strict=True):
        assert one < 1.5 * other + 0.005


def test_fit_with_recomputed_layers_learns(tmp_path):
    model = pretrainer(num_layers=3)
    model.backbone.rematerialize = True
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=True)
    batch = labelled()
    before = model.backbone.blocks[1].output_dense.kernel.numpy()
    first, *_, last = (
        model.train_on_batch(batch, return_dict=True)["loss"] for _ in range(15)
    )
    assert last < first
    after = model.backbone.blocks[1].output_dense.kernel.numpy()
    assert np.abs(after - before).max() > 1e-3
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert not loaded.backbone.rematerialize
    np.testing.assert_allclose(
        loaded(batch)["loss"], model(batch)["loss"], rtol=1e-5
    )


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_fit_takes_the_same_steps(dtype):
    losses = []
    for jit_compile in (False, True):
        model = pretrainer(
            dtype, dropout=0.0, attention_dropout=0.0, memory_length=M
        )
        model.attach_memory(B)
        model.compile(
            optimizer=keras.optimizers.SGD(0.1), jit_compile=jit_compile
        )
        made = [labelled(seed) for seed in range(3)]
        history = model.fit(dataset(*made), verbose=0).history
        losses.append(history["loss"][0])
    # XLA keeps sums of bfloat16 longer in float32 than eager kernels do.
    tolerance = 1e-4 if dtype == "float32" else 0.05
    assert abs(losses[0] - losses[1]) < tolerance


@pytest.mark.parametrize("name", reference_numbers.NAMES)
def test_the_numbers_of_the_released_code(name):
    """In the default tier, two of them are computed without XLA."""
    reference_numbers.check(name, "compact", jit_compile=True)
    reference_numbers.check(name, "literal")
    reference_numbers.check(name, "compact", kernel="plain")
