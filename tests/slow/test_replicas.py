"""Training however spread: replicas, parts, XLA, precision, whole loops."""

import functools

import numpy as np
import pytest
import tensorflow as tf

from tests.support.checkpoints import TinyRun
from tests.support.equality import assert_equal
from tests.support.replicas import two_replicas
from tests.support.training_fixtures import BATCH
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import Trained
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import settings
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretrain
from xlnet_tf.training.on_tensorflow import MeanLoss


def evaluation_of(trained, data):
    return MeanLoss(
        trained.model,
        pretrain.evaluation_loss(trained.model),
        functools.partial(pretrain.read_batches, data, 0),
        settings(),
        one_device(),
    )


def one_mirror():
    return tf.distribute.MirroredStrategy(["CPU:0"])


@pytest.fixture(scope="module")
def reference():
    # A mean of the replicas' means would be another one: their numbers of
    # targets differ.
    weights = ArrayData().features["target_weights"][0]
    assert weights[: BATCH // 2].sum() != weights[BATCH // 2 :].sum()
    return Trained(one_device())


PARTS = {"gradient_accumulation_steps": 2}
XLA = {"jit_compile": True}
SPREADS = {
    "two replicas, rematerialised": (two_replicas, {"rematerialize": True}),
    "two replicas, accumulation": (two_replicas, PARTS),
    "XLA": (one_device, XLA),
    "XLA, a strategy that could have replicas, plain attention": (
        one_mirror,
        {**XLA, "attention_kernel": "plain"},
    ),
}


@pytest.mark.parametrize("name", SPREADS)
def test_however_spread_the_numbers_are_the_same(reference, name):
    make_strategy, overrides = SPREADS[name]
    spread = Trained(make_strategy(), **overrides)
    # float32 sums in another order, over five steps of Adam
    assert_equal(reference.weights, spread.weights, atol=1e-5)
    assert_equal(reference.memories, spread.memories, atol=1e-5)
    for name in ("loss", "accuracy", "gradient_norm"):
        np.testing.assert_allclose(
            reference.scalars[name], spread.scalars[name], rtol=1e-5
        )


def test_a_run_goes_on_on_more_replicas(reference, tmp_path):
    """Two steps on one device and three on two are five on one."""
    for make_strategy, last in ((one_device, 2), (two_replicas, 5)):
        process = TinyRun(
            tmp_path, make_strategy(), config=tiny_config(), interval=1
        )
        restored = process.restore()
        steps = process.backend.steps(
            *(process.model, process.optimizer, process.memory),
            pretrain.training_loss(process.model),
            functools.partial(
                pretrain.read_batches, ArrayData(), int(process.step.numpy())
            ),
            *(settings(), process.step),
        )
        steps.make(last - int(process.step.numpy()))
        process.checkpoints.save()
    assert restored.endswith("ckpt-2")
    # float32 sums in another order, over three steps of Adam
    assert_equal(
        reference.weights, process.model.trainable_variables, atol=1e-5
    )


def test_dropout_follows_from_seed_and_step_alone():
    config = tiny_config(dropout=0.3, attention_dropout=0.2)
    one = Trained(one_device(), config=config)
    again = Trained(one_device(), config=config)
    assert_equal(one.weights, again.weights)
    other = Trained(one_device(), config=tiny_config())
    assert one.scalars["loss"] != other.scalars["loss"]


def test_bfloat16_trains():
    trained = Trained(one_device(), precision="bfloat16")
    assert np.isfinite(trained.scalars["loss"])
    assert trained.memory.memories[0].dtype == "bfloat16"
    assert trained.weights[0].dtype == np.float32


@pytest.mark.parametrize("options", [{}, PARTS, {"rematerialize": True}])
def test_compiled_bfloat16(options):
    """Repeatable to the bit, and near the same training without XLA."""
    config = tiny_config(num_layers=3, dropout=0.3)
    options = {"config": config, "precision": "bfloat16", **options}
    plain = Trained(one_device(), **options)
    one, again = (Trained(one_device(), **options, **XLA) for _ in range(2))
    assert_equal(one.weights, again.weights)
    assert_equal(one.memories, again.memories)
    for name in ("loss", "gradient_norm"):  # bfloat16 has 8 bits
        np.testing.assert_allclose(
            one.scalars[name], plain.scalars[name], rtol=1e-2
        )


def test_a_tiny_model_overfits_one_batch():
    made = Trained(
        steps=0,
        config=tiny_config(hidden_dim=46, memory_length=0),
        data=ArrayData(num_steps=1),
        learning_rate=1e-2,
        warmup_steps=10,
        jit_compile=True,
        total_steps=150,
    )
    first = made.train(1)["loss"]
    made.train(148)
    last = made.train(1)["loss"]
    # about log(97) = 4.6 at the start; knowing the batch by heart is near 0
    assert first > 4.0
    assert last < 0.5


def test_evaluation_is_repeatable_and_leaves_training_alone(reference):
    evaluation = evaluation_of(reference, ArrayData(seed=5))
    before = reference.memories
    one = evaluation.evaluate(3, lambda: False)
    again = evaluation.evaluate(3, lambda: False)
    assert one == again
    assert_equal(before, reference.memories)


def test_a_loss_that_is_not_finite_ends_the_loop():
    made = Trained(steps=0, learning_rate=1e30, max_gradient_norm=0.0)
    report = made.steps.make(3)
    assert [x.is_finite for x in report.results] == [True, False]
    assert report.skipped_in_a_row == 1


def test_what_runs_on_replicas_is_compiled(monkeypatch):
    """TPUs refuse `strategy.run` outside of a tf.function."""
    original = tf.distribute.OneDeviceStrategy.run

    def run(self, function, *args, **kwargs):
        assert not tf.executing_eagerly(), function
        return original(self, function, *args, **kwargs)

    monkeypatch.setattr(tf.distribute.OneDeviceStrategy, "run", run)
    trained = Trained(one_device(), steps=1)
    evaluation_of(trained, ArrayData()).evaluate(1, lambda: False)
