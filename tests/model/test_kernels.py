"""The softmax and its own gradient, whole and for a few heads at a time."""

import keras
import numpy as np
import pytest

from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from xlnet_tf.model import relative_position
from xlnet_tf.model.dropout import keep_mask
from xlnet_tf.model.kernels import memory_efficient as attention_core
from xlnet_tf.model.kernels.memory_efficient import AttentionRules
from xlnet_tf.model.kernels.memory_efficient import attend
from xlnet_tf.model.relative_position import targets_by_key
from xlnet_tf.model.relative_position import tokens_by_key

tf = pytest.importorskip("tensorflow")

B, N, T, M, P, H = 3, 10, 9, 5, 4, 2
K, Q, R = M + T, T + P, M + 2 * T
SEED = np.array([3, 5], "uint32")


@pytest.fixture(params=[None, 1, 5], ids=["whole", "1 head", "5 heads"])
def group(request, monkeypatch):
    monkeypatch.setattr(
        attention_core, "heads_at_a_time", lambda *_: request.param
    )
    return request.param


def tensors(directions=1):
    random = np.random.default_rng(0)
    shapes = (
        (B, N, Q, H),
        (N, H),
        (N, H),
        (B, N, Q),
        (B, N, K, H),
        (B, N, K, H),
        (directions, N, R, H),
    )
    return [
        tf.constant(random.normal(size=s).astype("float32")) for s in shapes
    ]


def rules(**changes):
    random = np.random.default_rng(1)
    mask = random.random((B, Q, K)) < 0.6
    mask[1, 3] = False  # a row that sees nothing
    positions = [random.permutation(T)[:P] for _ in range(B)]
    values = dict(
        mask=tf.constant(mask),
        other_segment=tf.constant(random.random((B, Q, K)) < 0.5),
        is_reversed=None,
        target_positions=tf.constant(np.array(positions, "int32")),
        dropout=0.3,
        seed=None,
    )
    return AttentionRules(**{**values, **changes})


def plain(tensors, rules):
    """The same in single steps, for automatic differentiation."""
    query, bias, position_bias, difference, key, value, position = tensors
    position_query = (query + position_bias[:, None]) * H**-0.5
    query = (query + bias[:, None]) * H**-0.5
    if rules.is_reversed is not None:
        position = tf.gather(position, tf.cast(rules.is_reversed, tf.int32))
    positions = rules.target_positions
    scores = tf.einsum("bnqh,bnkh->bnqk", query, key)
    by_distance = tf.matmul(
        position_query,
        tf.broadcast_to(position, (B, N, *position.shape[2:])),
        transpose_b=True,
    )
    num_tokens = position.shape[2] - K
    by_key = tokens_by_key(by_distance[:, :, :num_tokens], K)
    if positions is not None:
        of_targets = targets_by_key(
            by_distance[:, :, num_tokens:], positions[:, None], K
        )
        by_key = tf.concat([by_key, of_targets], axis=2)
    scores += by_key
    if rules.other_segment is not None:
        other = tf.cast(rules.other_segment, tf.float32)[:, None]
        scores += other * difference[..., None]
    if rules.mask is not None:
        scores = tf.where(rules.mask[:, None], scores, -1e30)
    weights = tf.nn.softmax(scores)
    if rules.mask is not None:
        sees = tf.reduce_any(rules.mask, axis=-1)[:, None, :, None]
        weights = tf.where(sees, weights, 0.0)
    if rules.seed is not None:
        keep = keep_mask(weights.shape, rules.dropout, rules.seed)
        weights = tf.where(keep, weights / (1 - rules.dropout), 0.0)
    return tf.matmul(weights, value)


def gradients(function, tensors, rules):
    upstream = np.random.default_rng(2).normal(size=(B, N, Q, H))
    with tf.GradientTape() as tape:
        tape.watch(tensors)
        output = function(tensors, rules)
        loss = tf.reduce_sum(output * upstream.astype("float32"))
    zero = tf.UnconnectedGradients.ZERO
    return output, tape.gradient(loss, tensors, unconnected_gradients=zero)


def check_gradients(changes, is_compiled):
    directions = 2 if "is_reversed" in changes else 1
    inputs, given = tensors(directions), rules(**changes)
    expected = gradients(plain, inputs, given)

    def attended(tensors, rules):
        return attend(*tensors, rules)

    def both():
        return gradients(attended, inputs, given)

    if is_compiled:
        both = tf.function(both, jit_compile=True)
    assert largest_difference(both(), expected) < 2e-5


@pytest.mark.parametrize(
    "is_compiled",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["eager", "xla"],
)
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"seed": tf.constant(SEED)},
        {"is_reversed": tf.constant([True, False, True])},
        {"mask": None, "other_segment": None},
        {"mask": rules().mask[:1]},
    ],
    ids=["all", "dropout", "reversed", "nothing hidden", "one mask"],
)
def test_outputs_and_gradients_equal_those_of_single_steps(
    group, changes, is_compiled
):
    check_gradients(changes, is_compiled)


def test_gradients_of_dropout_when_compiled():
    check_gradients({"seed": tf.constant(SEED)}, True)


def test_bfloat16_gradients_are_near_those_of_float32(group):
    """Weights are kept in 8 bits of precision, of either sign."""
    inputs, given = tensors(), rules(seed=tf.constant(SEED))
    expected = gradients(plain, inputs, given)

    def rounded(tensors, rules):
        tensors = [tf.cast(tensor, "bfloat16") for tensor in tensors]
        return tf.cast(attend(*tensors, rules), "float32")

    output, found = gradients(rounded, inputs, given)
    for one, other in zip(
        [output, *found], [expected[0], *expected[1]], strict=True
    ):
        scale = np.abs(other).max()
        np.testing.assert_allclose(one, other, atol=0.03 * scale)


def test_content_rows_alone(group):
    inputs = tensors()
    inputs[0], inputs[3] = inputs[0][:, :, :T], inputs[3][:, :, :T]
    given = rules()
    given = given._replace(
        target_positions=None,
        mask=given.mask[:, :T],
        other_segment=given.other_segment[:, :T],
    )
    output = attend(*inputs, given)
    assert output.shape == (B, N, T, H)
    assert largest_difference(output, plain(inputs, given)) < 2e-6


@pytest.mark.parametrize("reversed_rows", [None, [True, False, True]])
def test_rows_of_targets_alone(group, reversed_rows):
    directions = 2 if reversed_rows else 1
    is_reversed = reversed_rows and tf.constant(reversed_rows)
    given = rules(is_reversed=is_reversed)
    alone = given._replace(
        mask=given.mask[:, T:],
        other_segment=given.other_segment[:, T:],
        has_content=False,
    )
    inputs = tensors(directions)

    def found(attended):
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = attended(*inputs)
            loss = tf.reduce_sum(output**2)
        return output, tape.gradient(loss, inputs)

    expected = found(lambda *some: attend(*some, given)[:, :, T:])

    def of_targets(query, u, v, difference, *others):
        query, difference = query[:, :, T:], difference[:, :, T:]
        return attend(query, u, v, difference, *others, alone)

    assert expected[0].shape == (B, N, P, H)
    assert largest_difference(found(of_targets), expected) < 2e-5


@pytest.mark.parametrize("has_targets", [True, False])
def test_blocks_of_tokens_give_the_same(group, has_targets, monkeypatch):
    monkeypatch.setattr(relative_position, "_block_size", lambda _: None)
    inputs, given = tensors(), rules()
    if not has_targets:
        inputs[0], inputs[3] = inputs[0][:, :, :T], inputs[3][:, :, :T]
        given = rules(target_positions=None, mask=None, other_segment=None)

    def found():
        upstream = np.random.default_rng(2).normal(size=inputs[0].shape)
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = attend(*inputs, given)
            loss = tf.reduce_sum(output * upstream.astype("float32"))
        zero = tf.UnconnectedGradients.ZERO
        return output, tape.gradient(loss, inputs, unconnected_gradients=zero)

    whole = found()
    monkeypatch.setattr(relative_position, "_block_size", lambda _: T // 3)
    assert largest_difference(found(), whole) < 2e-5


@pytest.mark.parametrize("reversed_rows", [None, [True, False, True]])
def test_gradients_where_the_batch_size_is_not_known(reversed_rows):
    changes, directions = {"seed": tf.constant(SEED)}, 1
    if reversed_rows:
        changes, directions = {"is_reversed": tf.constant(reversed_rows)}, 2
    inputs, given = tensors(directions), rules(**changes)
    without_examples = [1, 2, 6]  # both biases and the distances

    @tf.function(
        input_signature=[
            tf.TensorSpec(
                tensor.shape
                if index in without_examples
                else [None, *tensor.shape[1:]]
            )
            for index, tensor in enumerate(inputs)
        ]
    )
    def found(*tensors):
        assert tensors[0].shape[0] is None
        return gradients(lambda t, r: attend(*t, r), list(tensors), given)

    expected = gradients(plain, inputs, given)
    assert largest_difference(found(*inputs), expected) < 2e-5


def test_a_row_that_sees_nothing_gets_zeros_and_gives_no_gradient(group):
    inputs, given = tensors(), rules()
    output, found = gradients(lambda t, r: attend(*t, r), inputs, given)
    assert not as_numpy(output)[1, :, 3].any()
    assert as_numpy(output)[1, :, 2].any()
    assert not as_numpy(found[0])[1, :, 3].any()
    assert all(np.isfinite(as_numpy(value)).all() for value in found)


def test_only_very_many_scores_are_computed_in_parts():
    heads = attention_core.heads_at_a_time
    assert heads(8, 12, 512, 896) is None
    assert heads(32, 12, 512, 896) == 12
    assert heads(1, 12, 2048, 4096) == 2
    assert heads(1, 12, 8192, 8192) == 1


def test_the_gradient_agrees_with_a_finite_difference(group):
    inputs, given = tensors(), rules()
    weight = keras.Variable(np.full((), 1.5, "float32"))

    @tf.function
    def step():
        with tf.GradientTape() as tape:
            scaled = [inputs[0] * weight.value, *inputs[1:]]
            output = attend(*scaled, given)
            loss = tf.reduce_sum(output**2)
        return tape.gradient(loss, weight.value)

    width = 1e-2
    losses = [
        float(
            tf.reduce_sum(
                plain([inputs[0] * (1.5 + w), *inputs[1:]], given) ** 2
            )
        )
        for w in (width, -width)
    ]
    slope = (losses[0] - losses[1]) / (2 * width)
    np.testing.assert_allclose(float(step()), slope, rtol=2e-3)
