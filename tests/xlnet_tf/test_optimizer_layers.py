"""Layer-wise learning rates: how far one step moves each layer."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.equality import assert_equal
from tests.support.replicas import two_replicas
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule
from xlnet_tf.optimizer import layer_factors

RATE, DECAY = 0.03, 0.6
# What a step of each part of two layers is multiplied by, written out.
EXPECTED = {
    "token_embedding": 0.36,
    "mask_embedding": 0.36,
    "shared_biases": 0.36,
    "block_0": 0.6,
    "block_1": 1.0,
    "head": 1.0,
}


def part_of(path):
    """The key of EXPECTED; shared biases lie below the first block."""
    return next(part for part in (*EXPECTED, "block_2") if part in path)


def make_model(**overrides):
    keras.utils.set_random_seed(2)
    overrides = {"memory_length": 0, "untie_biases": False, **overrides}
    return XLNetPretrainer(XLNetBackbone(tiny_config(**overrides)))


def moved(model, optimizer, gradients, strategy=None):
    """How far one step moves every variable, by path."""
    variables = model.trainable_variables
    before = [v.numpy().copy() for v in variables]
    optimizer.build(variables)

    @tf.function
    def step():
        if strategy is None:
            optimizer.apply(gradients, variables)
        else:
            strategy.run(lambda: optimizer.apply(gradients, variables))

    step()
    return {
        v.path: v.numpy() - old
        for v, old in zip(variables, before, strict=True)
    }


def random_gradients(model, scale=1.0):
    rng = np.random.default_rng(0)
    return [
        tf.constant(scale * rng.normal(size=v.shape), tf.float32)
        for v in model.trainable_variables
    ]


def test_a_step_is_slower_the_lower_the_layer():
    model = make_model()
    gradients = random_gradients(model)
    before = {v.path: v.numpy() for v in model.trainable_variables}
    optimizer = AdamW(RATE, weight_decay=0.4, layer_decay=DECAY, epsilon=1e-12)
    steps = moved(model, optimizer, gradients)
    assert {part_of(path) for path in steps} == set(EXPECTED)
    for gradient, (path, step) in zip(gradients, steps.items(), strict=True):
        rate = RATE * EXPECTED[part_of(path)]
        decayed = 0.4
        if any(
            word in path.split("/")[-1] for word in ("bias", "gamma", "bet")
        ):
            decayed = 0
        start = before[path] * (1 - rate * decayed)
        # Adam's first step is the sign of the gradient times the rate.
        expected = start - rate * np.sign(gradient) - before[path]
        np.testing.assert_allclose(step, expected, atol=2e-6, err_msg=path)


def test_two_replicas_move_as_one():
    strategy = two_replicas()
    settings = {"weight_decay": 0.4, "layer_decay": DECAY}
    with strategy.scope():
        model = make_model()
        optimizer = AdamW(RATE, gradients_are_summed=True, **settings)
        optimizer.build(model.trainable_variables)
    gradients = random_gradients(model)
    replicas = moved(model, optimizer, gradients, strategy=strategy)
    alone = make_model()
    one = moved(alone, AdamW(RATE, **settings), gradients)
    assert_equal([*replicas.values()], [*one.values()], atol=1e-7)


def test_decay_of_gradients_is_as_released():
    """A step barely changes, because Adam divides by the gradient's size."""
    model = make_model(num_layers=3)
    ones = [tf.ones(v.shape) * 1e-4 for v in model.trainable_variables]
    epsilon = 1e-6
    optimizer = AdamW(
        RATE,
        weight_decay=0.4,
        epsilon=epsilon,
        layer_decay=DECAY,
        layer_decay_on="gradient",
    )
    before = {v.path: v.numpy() for v in model.trainable_variables}
    steps = moved(model, optimizer, ones)
    factors = {"block_0": DECAY**2, "block_1": DECAY}
    for path, step in steps.items():
        factor = factors.get(part_of(path), 1.0)
        # Keras adds epsilon to the uncorrected root: sqrt(1 - 0.999) of it.
        root = 0.001**0.5 * factor * 1e-4
        size = RATE * root / (root + epsilon)
        weights = before[path]
        if not any(word in path for word in ("bias", "gamma", "beta")):
            size = size + RATE * 0.4 * weights  # decay is not slowed down
        np.testing.assert_allclose(-step, size, rtol=2e-4, err_msg=path)


@pytest.mark.parametrize(
    ("mode", "epsilon", "low", "high"),
    [
        # 24 layers at 0.75: 0.00134 of the step is what is meant.
        ("step", 1e-6, 0.00133, 0.00135),
        ("gradient", 1e-8, 0.90, 0.94),
        ("gradient", 1e-6, 0.05, 0.12),
    ],
)
def test_what_is_left_at_the_bottom_of_a_large_model(mode, epsilon, low, high):
    variables = [keras.Variable(np.zeros(1), name="kernel") for _ in range(24)]
    for layer, variable in enumerate(variables):
        variable._path = f"block_{layer}/kernel"
    optimizer = AdamW(
        RATE,
        weight_decay=0,
        # the released optimizer corrects no bias: as after many steps
        beta_1=0.0,
        beta_2=0.0,
        epsilon=epsilon,
        layer_decay=0.75,
        layer_decay_on=mode,
    )
    optimizer.apply([tf.constant([8.6e-5])] * 24, variables)
    ratio = variables[0].numpy()[0] / variables[23].numpy()[0]
    assert low < ratio < high


def test_fit_moves_no_weight_but_by_its_layer():
    model = make_model(untie_biases=True)
    before = {v.path: v.numpy() for v in model.trainable_variables}
    model.compile(
        optimizer=AdamW(RATE, weight_decay=0, layer_decay=DECAY, epsilon=1e-12),
        run_eagerly=True,
    )
    model.fit(ArrayData().dataset(), steps_per_epoch=1, verbose=0)
    for variable in model.trainable_variables:
        step = np.abs(variable.numpy() - before[variable.path])
        expected = RATE * EXPECTED[part_of(variable.path)]
        assert step.max() == pytest.approx(expected, rel=1e-3), variable.path


def test_the_config_keeps_it():
    optimizer = AdamW(
        WarmupSchedule(RATE, 10), layer_decay=DECAY, layer_decay_on="gradient"
    )
    again = AdamW.from_config(optimizer.get_config())
    assert again.layer_decay == DECAY
    assert again.layer_decay_on == "gradient"


def test_without_embeddings():
    variables = make_model().trainable_variables
    factors = layer_factors(variables, DECAY, with_embeddings=False)
    for variable, factor in zip(variables, factors, strict=True):
        part = part_of(variable.path)
        assert factor == (0.6 if part == "block_0" else 1.0), variable.path


def test_it_refuses():
    for settings, message in (
        ({"layer_decay": 0.0}, "`layer_decay` must be above 0.*layer_decay=0"),
        ({"layer_decay": 1.5}, "at most 1. Received: layer_decay=1.5"),
        ({"layer_decay_on": "loss"}, "`layer_decay_on` must be .*'loss'"),
    ):
        with pytest.raises(ValueError, match=message):
            AdamW(**settings)
    variable = keras.Variable(np.zeros(3), name="kernel")
    with pytest.raises(ValueError, match="needs variables of an XLNetBackbone"):
        AdamW(layer_decay=DECAY).build([variable])
