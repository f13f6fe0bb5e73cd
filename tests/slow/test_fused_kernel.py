"""The kernel of TPUs in Pallas' interpreter, by `jax2tf`, against `plain`.

No quick test can have it: the interpreter takes many seconds to compile.
"""

import importlib.util
import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.support import kernel_inputs
from tests.support.gradients import compared
from tests.support.padded_kernel import padded
from tests.xlnet_tf.model.test_reference_numbers import check
from xlnet_tf.model import kernels
from xlnet_tf.model.kernels import fused
from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain
from xlnet_tf.model.kernels.contract import AttentionInputs
from xlnet_tf.model.kernels.contract import AttentionRules

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)
TOLERANCE = 1e-5


@pytest.fixture(autouse=True)
def interpreted(monkeypatch):
    import jax

    # JAX would look for a TPU, and keep its compiler from other processes.
    jax.config.update("jax_platforms", "cpu")
    monkeypatch.setattr(fused, "INTERPRET", "tpu")


def operands(*sizes):
    """Tensors of `kernel_inputs`."""
    return [tf.constant(x) for x in kernel_inputs.operands(*sizes)]


def rules_of(inputs, targets, **changes):
    """AttentionRules of `kernel_inputs`."""
    values = kernel_inputs.rules_of(inputs, targets, **changes)
    return AttentionRules(
        **{
            name: tf.constant(x) if isinstance(x, np.ndarray) else x
            for name, x in values.items()
        }
    )


def gradients(kernel, inputs, rules):
    """(attended, gradients of all inputs)."""
    random = np.random.default_rng(2)
    upstream = random.normal(size=inputs[0].shape).astype("float32")

    @tf.function(autograph=False)
    def run(*inputs):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = kernel(AttentionInputs(*inputs), rules)
            loss = tf.reduce_sum(tf.cast(output, "float32") * upstream)
        zero = tf.UnconnectedGradients.ZERO
        return output, tape.gradient(loss, inputs, unconnected_gradients=zero)

    output, found = run(*inputs)
    return output, [tf.convert_to_tensor(x) for x in found]


REVERSED = np.array([True, False])
CASES = {
    "everything": ((128, 128, 20, 2), {"is_reversed": REVERSED}),
    "targets alone": ((128, 128, 8, 1, "query"), {"streams": "query"}),
    "content alone, no masks": (
        (128, 0, 0),
        {"mask": None, "other_segment": None, "dropout": 0.0, "seed": None},
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_it_equals_the_plain_kernel(name):
    shape, changes = CASES[name]
    inputs = operands(*shape)
    rules = rules_of(inputs, shape[2], **changes)
    expected = gradients(plain.attend, inputs, rules)
    assert np.std(expected[0]) > 0.05
    found = gradients(fused.attend, inputs, rules)
    compared(expected, found, TOLERANCE, name)


def test_blocks_that_see_no_late_keys_are_skipped():
    """With the same numbers as without."""
    from xlnet_tf.model.kernels.pallas import tpu

    inputs = operands(256, 128, 0)
    mask = rules_of(inputs, 0).mask.numpy()
    mask[0, :128, 256:] = False  # of the first example alone
    rules = rules_of(inputs, 0, mask=mask)
    codes = tpu._codes(rules, mask.shape)
    sizes = tpu.Sizes(
        *(256, 0, 384, 2, 64, 256, 1), 0.0, "float32", interpret=True
    )
    early = tpu._sees_early_keys_only(codes.numpy(), sizes)
    np.testing.assert_array_equal(early, [[1, 0], [0, 0]])
    expected = gradients(plain.attend, inputs, rules)
    found = gradients(fused.attend, inputs, rules)
    compared(expected, found, TOLERANCE, "early keys")


def test_bfloat16_is_nearer_to_float32_than_the_other_kernel():
    inputs = operands(128, 128, 20)
    rules = rules_of(inputs, 20)
    expected = gradients(plain.attend, inputs, rules)
    narrow = [tf.cast(x, "bfloat16") for x in inputs]

    def errors(kernel):
        output, found = gradients(kernel, narrow, rules)
        assert output.dtype == "bfloat16"
        return [
            float(
                np.sqrt(np.mean((tf.cast(two, "float32") - one) ** 2))
                / np.std(one)
            )
            for one, two in zip(
                [expected[0], *expected[1]], [output, *found], strict=True
            )
        ]

    ours, other = errors(fused.attend), errors(memory_efficient.attend)
    assert max(ours) < 0.01
    assert max(ours) < max(other)


def test_other_sizes_are_computed_by_the_other_kernel(monkeypatch):
    inputs = operands(96, 32, 4)
    rules = rules_of(inputs, 4)
    expected = memory_efficient.attend(AttentionInputs(*inputs), rules)
    monkeypatch.setattr(fused, "_warned", set())
    with pytest.warns(UserWarning, match=r"tokens \(96\).*multiples of 128"):
        found = fused.attend(AttentionInputs(*inputs), rules)
    np.testing.assert_array_equal(found, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of 64 tokens too: it was said
        inputs = operands(64, 32, 4)
        fused.attend(AttentionInputs(*inputs), rules_of(inputs, 4))
    for shape in ((0, 2, 128, 64), (2, 2, 0, 64)):
        problem = fused.why_unsupported(shape, 128, 128, "float32")
        assert problem == "there are no rows"


@pytest.mark.parametrize(
    "name", ["bidirectional_data", "tied_biases_relu_clamp"]
)
def test_it_agrees_with_the_released_code(name, monkeypatch):
    """Outputs, memories and every gradient of a whole model."""
    calls = []

    def counted(inputs, rules):
        num_keys = inputs.key.shape[2]
        num_tokens = inputs.position.shape[2] - num_keys
        calls.append(
            fused.why_unsupported(
                tuple(inputs.query.shape), num_tokens, num_keys, "float32"
            )
        )
        return fused.attend(inputs, rules)

    monkeypatch.setitem(kernels.KERNELS, "fused", padded(counted))
    check(name, "compact", kernel="fused")
    assert calls == [None, None]
