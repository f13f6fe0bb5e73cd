"""Warm-up, decay and AdamW, by hand; in `fit`: tests/slow."""

import math
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.equality import assert_equal
from tests.support.replicas import two_replicas
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import optimizer as optimizer_module
from xlnet_tf.optimizer import AdamW
from xlnet_tf.optimizer import WarmupSchedule

# Peak 2, 3 steps of warm-up, 11 in all. Rise: 2 * (step + 1) / 4. Then a
# share `left` of 8 steps, of which 0.2 stays where `final_fraction` says so.
SCHEDULES = {
    "linear": ({}, {0: 0.5, 2: 1.5, 3: 2, 5: 1.5, 7: 1, 10: 0.25, 11: 0}),
    "cosine": (
        {"decay": "cosine"},
        {1: 1, 3: 2, 5: 1 + math.sqrt(0.5), 7: 1, 9: 1 - math.sqrt(0.5), 99: 0},
    ),
    "constant": ({"decay": "constant"}, {0: 0.5, 3: 2, 7: 2, 11: 2, 99: 2}),
    "final fraction": (
        {"final_fraction": 0.2},
        {2: 1.5, 3: 2, 7: 0.4 + 1.6 * 0.5, 11: 0.4, 99: 0.4},
    ),
    "cosine to a fraction": (
        {"decay": "cosine", "final_fraction": 0.2},
        {3: 2, 7: 1.2, 11: 0.4},
    ),
    "no warm-up": ({"warmup_steps": 0}, {0: 2, 1: 20 / 11, 10: 2 / 11}),
}


def schedule(**overrides):
    return WarmupSchedule(
        **{"learning_rate": 2, "total_steps": 11, "warmup_steps": 3} | overrides
    )


def test_the_schedule_by_hand():
    for name, (overrides, expected) in SCHEDULES.items():
        rate = schedule(**overrides)
        for step, value in expected.items():
            # float32, cosines included
            found = float(rate(step))
            assert found == pytest.approx(value, abs=1e-6), (name, step)
            assert float(rate(tf.constant(step, tf.int64))) == found


def test_the_schedule_is_rebuilt_from_its_config():
    rate = schedule(decay="cosine", final_fraction=0.3)
    again = keras.optimizers.schedules.deserialize(
        keras.optimizers.schedules.serialize(rate)
    )
    assert type(again) is WarmupSchedule
    assert again.get_config() == rate.get_config()
    assert set(rate.get_config()) == {
        "learning_rate",
        "total_steps",
        "warmup_steps",
        "decay",
        "final_fraction",
    }


def test_the_schedule_refuses():
    for overrides, message in (
        ({"warmup_steps": 11}, "below the number of steps.*=11, steps=11"),
        ({"warmup_steps": -1}, "`warmup_steps` must be at least 0"),
        ({"decay": "poly"}, "`decay` must be .*Received: decay='poly'"),
    ):
        with pytest.raises(ValueError, match=message):
            schedule(**overrides)


def test_steps_of_adamw_equal_those_in_numpy():
    rng = np.random.default_rng(0)
    weights = {name: rng.normal(size=7) for name in ("kernel", "bias")}
    variables = [
        keras.Variable(value, name=name) for name, value in weights.items()
    ]
    optimizer = AdamW(
        schedule(learning_rate=0.03), weight_decay=0.4, beta_1=0.8, beta_2=0.95
    )
    moments = {name: [np.zeros(7), np.zeros(7)] for name in weights}
    for step in range(3):
        gradients = {name: rng.normal(size=7) for name in weights}
        optimizer.apply(
            [tf.constant(g, tf.float32) for g in gradients.values()], variables
        )
        rate = 0.03 * (step + 1) / 4
        for name, gradient in gradients.items():
            first, second = moments[name]
            first += 0.2 * (gradient - first)
            second += 0.05 * (gradient**2 - second)
            unbiased = first / (1 - 0.8 ** (step + 1))
            scale = np.sqrt(second / (1 - 0.95 ** (step + 1))) + 1e-6
            decay = 0.4 * weights[name] if name == "kernel" else 0
            # Decoupled: the decay does not pass through the moments.
            weights[name] = weights[name] - rate * (unbiased / scale + decay)
    # float32, and Keras adds epsilon before it corrects the bias
    assert_equal(variables, [*weights.values()], atol=1e-6)


@pytest.mark.parametrize("untie_biases", [True, False])
def test_what_is_decayed(untie_biases):
    model = XLNetPretrainer(
        XLNetBackbone(tiny_config(num_layers=1, untie_biases=untie_biases))
    )
    variables = model.trainable_variables
    for variable in variables:
        variable.assign(np.ones(variable.shape, "float32"))
    # Without a gradient nothing but the decay moves a weight.
    AdamW(0.5, weight_decay=0.1).apply(
        [tf.zeros(v.shape) for v in variables], variables
    )
    decayed, kept = set(), set()
    for variable in variables:
        value = np.unique(variable.numpy())
        assert value in (np.float32(0.95), np.float32(1)), variable.path
        (kept if value == 1 else decayed).add(
            variable.path.removeprefix("block_0/")
        )
    projections = {
        f"attention/{name}_projection/kernel"
        for name in ("query", "key", "value", "position", "output")
    }
    biases = "biases" if untie_biases else "shared_biases"
    assert decayed == projections | {
        f"{model.backbone.name}/mask_embedding",
        "token_embedding/embeddings",
        "attention/segment_encoding",
        "intermediate/kernel",
        "output_dense/kernel",
    }
    assert kept == {
        f"attention/{biases}/content_bias",
        f"attention/{biases}/position_bias",
        f"attention/{biases}/segment_bias",
        "attention_norm/gamma",
        "attention_norm/beta",
        "intermediate/bias",
        "output_dense/bias",
        "output_norm/gamma",
        "output_norm/beta",
        f"{model.head.name}/bias",
    }


def test_gradients_are_summed_is_in_the_config():
    config = AdamW(gradients_are_summed=True, weight_decay=0.7).get_config()
    again = AdamW.from_config(config)
    assert again.gradients_are_summed is True
    assert again.weight_decay == 0.7


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        # Replicas 0 and 1 bring the gradients (3, 0) and (0, 4).
        ({}, [3, 4]),
        ({"global_clipnorm": 1.0}, [0.6, 0.8]),
        ({"gradients_are_summed": True}, [3, 0]),
        ({"gradients_are_summed": True, "global_clipnorm": 1.0}, [1, 0]),
    ],
)
def test_gradients_are_summed_once(settings, expected):
    strategy = two_replicas()
    with strategy.scope():
        variable = keras.Variable([1.0, 1.0], name="kernel")
        optimizer = AdamW(0.1, beta_1=0.5, **settings)
        optimizer.build([variable])

    def step():
        context = tf.distribute.get_replica_context()
        of_replica = tf.constant([[3.0, 0.0], [0.0, 4.0]])
        gradient = of_replica[context.replica_id_in_sync_group]
        optimizer.apply([gradient], [variable])

    tf.function(lambda: strategy.run(step))()
    # The first moment is half of the gradient that was used.
    first_moment = optimizer._momentums[0].value
    np.testing.assert_allclose(
        2 * strategy.experimental_local_results(first_moment)[0].numpy(),
        expected,
        rtol=1e-6,
    )


def test_rows_that_repeat_are_added_before_their_norm_is_taken():
    """As the words of a batch in the gradient of their embeddings."""
    table = keras.Variable(np.ones([3, 2]), name="embeddings")
    optimizer = AdamW(0.1, beta_1=0.5, global_clipnorm=1.0)
    optimizer.build([table])
    gradient = tf.IndexedSlices(
        tf.constant([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0], [3.0, 0.0]]),
        indices=tf.constant([1, 1, 0, 1]),
        dense_shape=tf.constant([3, 2]),
    )
    optimizer.apply([gradient], [table])
    expected = np.array([[0, 0], [6, 4], [0, 0]]) / np.sqrt(6**2 + 4**2)
    np.testing.assert_allclose(
        2 * optimizer._momentums[0].numpy(), expected, rtol=1e-6
    )


def test_what_is_used_of_keras_is_still_there():
    """The names of COMPATIBILITY, in the text of the module."""
    names = re.findall(r"`(_\w+)`", optimizer_module.__doc__)
    assert len(names) == 7
    optimizer = keras.optimizers.AdamW()
    optimizer.build([keras.Variable([1.0])])
    for name in names:
        assert hasattr(optimizer, name), name


def test_narrow_weights_are_refused():
    for dtype in ("bfloat16", "float16"):
        variable = keras.Variable(np.ones(3, dtype), dtype=dtype)
        optimizer = AdamW(1e-3)
        optimizer.build([variable])  # as a loaded file does
        with pytest.raises(ValueError, match=f"dtype='mixed_{dtype}'"):
            optimizer.apply([np.ones(3, dtype)])
