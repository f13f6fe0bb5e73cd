"""The fast attention kernel against the plain one.

The plain one is held to loops in `test_attention`. Tolerance: 1e-5 of the
largest entry, for float32 sums in another order.
"""

import warnings

import numpy as np
import pytest
import tensorflow as tf

from tests.support.equality import assert_equal
from tests.support.gradients import compared
from tests.support.oracle import as_numpy
from xlnet_tf.model import kernels
from xlnet_tf.model.kernels import distances
from xlnet_tf.model.kernels import fused
from xlnet_tf.model.kernels import memory_efficient
from xlnet_tf.model.kernels import plain
from xlnet_tf.model.kernels.contract import AttentionInputs
from xlnet_tf.model.kernels.contract import AttentionRules

B, N, T, M, P, H = 3, 6, 9, 5, 4, 2
K, Q, R = M + T, T + P, M + 2 * T
F = 4  # tokens of a first half
SEED = np.array([3, 5], "uint32")
REVERSED = np.array([True, False, True])
TOLERANCE = 1e-5
GROUPS = (None, 3)  # heads at a time; None for all at once


def tensors(directions=1):
    random = np.random.default_rng(0)
    shapes = (
        (B, N, Q, H),
        *[(N, H)] * 4,
        (B, N, K, H),
        (B, N, K, H),
        (directions, N, R, H),
    )
    return [
        tf.constant(random.normal(size=s).astype("float32")) for s in shapes
    ]


def make_rules(**changes):
    random = np.random.default_rng(1)
    mask = random.random((B, Q, K)) < 0.6
    mask[1, 3] = False  # a row that sees nothing
    positions = [random.permutation(T)[:P] for _ in range(B)]
    values = dict(
        mask=mask,
        other_segment=random.random((B, Q, K)) < 0.5,
        is_reversed=None,
        target_positions=np.array(positions, "int32"),
        dropout=0.3,
        seed=None,
    )
    values = {**values, **changes}
    return AttentionRules(
        **{
            name: tf.constant(x) if isinstance(x, np.ndarray) else x
            for name, x in values.items()
        }
    )


def content_alone():
    """Inputs and rules of the content stream, without targets."""
    inputs, rules = tensors(), make_rules(target_positions=None)
    inputs[0] = inputs[0][:, :, :T]
    return inputs, rules._replace(
        mask=rules.mask[:, :T], other_segment=rules.other_segment[:, :T]
    )


def targets_alone(**changes):
    """Inputs and rules of the query stream's rows."""
    inputs = tensors(2 if "is_reversed" in changes else 1)
    rules = make_rules(streams="query", **changes)
    inputs[0] = inputs[0][:, :, T:]
    mask = as_promised(rules) if rules.first_half_length else rules.mask
    return inputs, rules._replace(
        mask=mask[:, T:], other_segment=rules.other_segment[:, T:]
    )


def first_half(**changes):
    """Inputs and rules by which F first tokens see none of those behind."""
    inputs = tensors(2 if "is_reversed" in changes else 1)
    rules = make_rules(first_half_length=F, **changes)
    # The first token behind sees the last one: no distance is further ahead.
    positions, mask = rules.target_positions.numpy(), rules.mask.numpy()
    positions[:, 0], mask[:, T, -1] = F, True
    rules = rules._replace(
        target_positions=tf.constant(positions), mask=tf.constant(mask)
    )
    return inputs, rules._replace(mask=as_promised(rules))


def as_promised(rules):
    """The mask without the keys behind that rows of a first half would see."""
    targets = rules.target_positions.numpy()
    position = np.broadcast_to(np.arange(T), (B, T))
    position = np.concatenate([position, targets], axis=1)
    is_behind = np.arange(K) >= M + F
    may_see = ~((position < F)[..., None] & is_behind)  # [B, Q, K]
    return tf.logical_and(rules.mask, may_see)


def first_half_of_content():
    inputs, rules = content_alone()
    mask = rules.mask.numpy()
    mask[:, :F, M + F :] = False
    return inputs, rules._replace(mask=tf.constant(mask), first_half_length=F)


def cases():
    """dict of name to (inputs, rules): each option by itself, and all."""
    both = tensors(2)
    return {
        "everything": (both, make_rules(seed=SEED, is_reversed=REVERSED)),
        "no dropout": (tensors(), make_rules()),
        "dropout": (tensors(), make_rules(seed=SEED)),
        "reversed rows": (both, make_rules(is_reversed=REVERSED)),
        "no mask, no segments": (
            tensors(),
            make_rules(mask=None, other_segment=None),
        ),
        "one mask for all": (
            tensors(),
            make_rules(mask=make_rules().mask[:1].numpy()),
        ),
        "content alone": content_alone(),
        "targets alone": targets_alone(),
        "first half": first_half(),
        "first half of all": first_half(is_reversed=REVERSED, seed=SEED),
        "first half of content": first_half_of_content(),
        "first half, targets alone": targets_alone(first_half_length=F),
        "reversed targets": targets_alone(is_reversed=REVERSED, seed=SEED),
    }


# AutoGraph would convert the body of the loop over heads, for nothing.
@tf.autograph.experimental.do_not_convert
def gradients(kernel, inputs, rules):
    """(attended, gradients of all inputs)."""
    shape = inputs[0].shape
    upstream = np.random.default_rng(2).normal(size=(B, *shape[1:]))
    with tf.GradientTape() as tape:
        tape.watch(inputs)
        output = kernel(AttentionInputs(*inputs), rules)
        loss = tf.reduce_sum(tf.cast(output, "float32") * upstream)
    zero = tf.UnconnectedGradients.ZERO
    found = tape.gradient(loss, inputs, unconnected_gradients=zero)
    return output, [tf.convert_to_tensor(x) for x in found]


@pytest.fixture
def in_groups(monkeypatch):
    """Function that sets how many heads are computed at a time."""

    def apply(group):
        monkeypatch.setattr(
            memory_efficient, "heads_at_a_time", lambda *_: group
        )

    return apply


def test_the_fast_kernel_equals_the_plain_one(in_groups):
    for name, (inputs, rules) in cases().items():
        expected = gradients(plain.attend, inputs, rules)
        assert np.std(as_numpy(expected[0])) > 0.1
        for group in (*GROUPS, 1) if name == "everything" else GROUPS:
            in_groups(group)
            found = gradients(memory_efficient.attend, inputs, rules)
            compared(expected, found, TOLERANCE, f"{name}, {group} heads")


def test_scores_of_a_first_half_are_left_out(in_groups):
    """Whatever the mask says: nothing of shape [Q, K] is computed."""
    in_groups(None)
    inputs, kept = first_half(seed=SEED)
    broken = kept._replace(mask=make_rules().mask)
    expected = memory_efficient.attend(AttentionInputs(*inputs), kept)
    found = memory_efficient.attend(AttentionInputs(*inputs), broken)
    np.testing.assert_array_equal(found[:, :, :F], expected[:, :, :F])


def test_narrow_types_are_near_float32(in_groups):
    """Weights are kept in 8 or 11 bits of precision, of either sign."""
    inputs, rules = cases()["dropout"]
    expected = gradients(plain.attend, inputs, rules)
    for dtype, tolerance in (("bfloat16", 0.03), ("float16", 0.004)):
        narrow = [tf.cast(tensor, dtype) for tensor in inputs]
        for kernel in (plain.attend, memory_efficient.attend):
            for group in GROUPS:
                in_groups(group)
                found = gradients(kernel, narrow, rules)
                assert found[0].dtype == dtype
                compared(expected, found, tolerance, f"{dtype}, {group} heads")


def test_float64_is_float64_throughout(in_groups):
    inputs, rules = cases()["everything"]
    wide = [tf.cast(tensor, "float64") for tensor in inputs]
    expected, of_plain = gradients(plain.attend, wide, rules)
    for group in GROUPS:
        in_groups(group)
        found, of_groups = gradients(memory_efficient.attend, wide, rules)
        assert found.dtype == "float64"
        assert_equal([expected, *of_plain], [found, *of_groups], atol=1e-12)


def test_large_values_do_not_overflow_in_float16(in_groups):
    """Their sum over the keys, which is divided at last, would."""
    tokens = 1024
    shapes = ((1, 1, 1, H), *[(1, H)] * 4, (1, 1, tokens, H))
    inputs = [tf.zeros(shape, "float16") for shape in shapes]
    inputs.append(tf.fill(shapes[-1], tf.cast(70, "float16")))
    inputs.append(tf.zeros((1, 1, 2 * tokens, H), "float16"))
    rules = AttentionRules(
        mask=None,
        other_segment=None,
        is_reversed=None,
        target_positions=tf.zeros((1, 1), "int32"),
        streams="query",
    )
    for kernel in (plain.attend, memory_efficient.attend):
        for group in (None, 1):
            in_groups(group)
            with tf.GradientTape() as tape:
                tape.watch(inputs[6])
                output = kernel(AttentionInputs(*inputs), rules)
                loss = tf.reduce_sum(tf.cast(output, "float32"))
            np.testing.assert_allclose(output, 70.0)
            gradient = tape.gradient(loss, inputs[6])
            np.testing.assert_allclose(gradient, 1 / tokens)


def test_no_examples_and_no_rows(in_groups):
    inputs, rules = cases()["everything"]
    without_examples = [
        x if index in (1, 2, 3, 4, 7) else x[:0]
        for index, x in enumerate(inputs)
    ]
    rules_of_none = rules._replace(
        mask=rules.mask[:0],
        other_segment=rules.other_segment[:0],
        is_reversed=rules.is_reversed[:0],
        target_positions=rules.target_positions[:0],
    )
    for kernel in (plain.attend, memory_efficient.attend):
        output = kernel(AttentionInputs(*without_examples), rules_of_none)
        assert output.shape == (0, N, Q, H)


def test_a_row_that_sees_nothing_gets_zeros_and_gives_no_gradient(in_groups):
    inputs, rules = tensors(), make_rules()
    for kernel in (plain.attend, memory_efficient.attend):
        for group in GROUPS:
            in_groups(group)
            output, found = gradients(kernel, inputs, rules)
            assert not as_numpy(output)[1, :, 3].any()
            assert as_numpy(output)[1, :, 2].any()
            assert not as_numpy(found[0])[1, :, 3].any()
            assert all(np.isfinite(as_numpy(x)).all() for x in found)


def test_position_blocks_give_the_same(in_groups, monkeypatch):
    for name in ("everything", "content alone"):
        inputs, rules = cases()[name]
        expected = gradients(plain.attend, inputs, rules)
        for size in (None, T // 3, 1):
            monkeypatch.setattr(
                distances, "_block_size", lambda _, size=size: size
            )
            found = gradients(memory_efficient.attend, inputs, rules)
            compared(expected, found, TOLERANCE, f"{name}, blocks of {size}")


def test_gradients_if_the_batch_size_is_not_known():
    for name in ("dropout", "reversed rows"):
        inputs, rules = cases()[name]
        without_examples = [1, 2, 3, 4, 7]  # vectors of heads, and distances
        signature = [
            tf.TensorSpec(
                tensor.shape
                if index in without_examples
                else [None, *tensor.shape[1:]]
            )
            for index, tensor in enumerate(inputs)
        ]

        def found(*inputs, rules=rules):
            assert inputs[0].shape[0] is None
            return gradients(memory_efficient.attend, list(inputs), rules)

        found = tf.function(found, input_signature=signature)
        expected = gradients(plain.attend, inputs, rules)
        compared(expected, found(*inputs), TOLERANCE, name)


def test_only_very_many_scores_are_computed_in_groups():
    heads = memory_efficient.heads_at_a_time
    assert heads(8, 12, 512, 896) is None
    assert heads(32, 12, 512, 896) == 12
    assert heads(1, 12, 2048, 4096) == 2
    assert heads(1, 12, 8192, 8192) == 1
    sizes = ((32, 12, 512, 64), 512, 896, "float32")
    for name in ("auto", "fused"):  # there is no chip for it
        assert kernels.heads_at_a_time(name, *sizes) == 12
    assert kernels.heads_at_a_time("plain", *sizes) is None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "COMPILE_FOR", "tpu")
        assert kernels.heads_at_a_time("fused", *sizes) == 0
        sizes = ((32, 12, 500, 64), 500, 896, "float32")
        assert kernels.heads_at_a_time("fused", *sizes) == 12


def test_kernels_are_found_by_name():
    assert kernels.find_kernel("plain") is plain.attend
    assert kernels.find_kernel("auto") is memory_efficient.attend
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fused, "has_accelerator", lambda: True)
        assert kernels.find_kernel("auto") is fused.attend
        assert kernels.find_kernel("plain") is plain.attend
    with pytest.raises(ValueError, match="Received: attention_kernel='slow'"):
        kernels.find_kernel("slow")


def test_tensorflow_on_a_gpu_is_told_why(monkeypatch):
    sizes = (1, 1, 128, 64), 128, 128, "float32"
    problem = fused.why_unsupported(*sizes)
    assert problem == "there is no TPU or GPU that it could run on"
    gpu = tf.config.LogicalDevice("/device:GPU:0", "GPU")
    monkeypatch.setattr(tf.config, "list_logical_devices", lambda: [gpu])
    problem = fused.why_unsupported(*sizes)
    assert "TensorFlow cannot call a kernel of a GPU" in problem
    monkeypatch.setattr(fused, "COMPILE_FOR", "tpu")
    monkeypatch.setattr("keras.distribution.distribution", lambda: "several")
    assert "`keras.distribution`" in fused.why_unsupported(*sizes)


def test_a_kernel_that_cannot_run_is_replaced_and_that_is_said_once(
    monkeypatch,
):
    monkeypatch.setattr(fused, "_warned", set())
    inputs, rules = AttentionInputs(*tensors()), make_rules()
    with pytest.warns(UserWarning, match="instead of `fused`: there is no TPU"):
        found = fused.attend(inputs, rules)
    expected = memory_efficient.attend(inputs, rules)
    np.testing.assert_array_equal(found, expected)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fused.attend(inputs, rules)
