"""Training however spread: replicas, parts, XLA, precision, whole loops."""

import numpy as np
import orbit
import pytest
import tensorflow as tf

from tests.support.replicas import two_replicas
from tests.support.training_fixtures import BATCH
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import Trained
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import settings
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretraining_step
from xlnet_tf.training.runs.checkpoints import RunCheckpoints
from xlnet_tf.training.runs.memory_rows import MemoryRows

pytestmark = pytest.mark.slow


def one_mirror():
    return tf.distribute.MirroredStrategy(["CPU:0"])


@pytest.fixture(scope="module")
def reference():
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
    for one, other in zip(reference.weights, spread.weights, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    for one, other in zip(reference.memories, spread.memories, strict=True):
        np.testing.assert_allclose(one, other, atol=1e-5)
    for name in ("loss", "accuracy", "gradient_norm"):
        np.testing.assert_allclose(
            reference.scalars[name], spread.scalars[name], rtol=1e-5
        )
    assert spread.scalars["tokens_per_second"] > 0


def test_a_run_goes_on_on_more_replicas(reference, tmp_path):
    """Two steps on one device and three on two are five on one."""
    found = None
    for make_strategy, last in ((one_device, 2), (two_replicas, 5)):
        strategy, training = make_strategy(), settings()
        model, optimizer, memory = pretraining_step.build(
            tiny_config(), training, strategy
        )
        with strategy.scope():
            step = orbit.utils.create_global_step()
        saved = RunCheckpoints(
            tf.train.Checkpoint(model=model, optimizer=optimizer, step=step),
            tmp_path,
            MemoryRows(memory, strategy, tmp_path),
            strategy,
            interval=1,
            max_to_keep=2,
        )
        found = saved.restore_or_initialize()
        trainer = pretraining_step.PretrainingTrainer(
            model,
            optimizer,
            memory,
            pretraining_step.distribute_records(
                ArrayData(), training, strategy, start_step=int(step.numpy())
            ),
            training,
            strategy,
            step,
        )
        trainer.train(tf.constant(last - int(step.numpy())))
        saved.save()
    assert found.endswith("ckpt-2")
    for one, other in zip(
        reference.weights, model.trainable_variables, strict=True
    ):
        # float32 sums in another order, over three steps of Adam
        np.testing.assert_allclose(one, other.numpy(), atol=1e-5)


def test_gradient_is_that_of_all_targets_not_of_replica_means():
    """The rows of the two replicas have different numbers of targets."""
    weights = ArrayData().features["target_weights"][0]
    halves = weights[: BATCH // 2].sum(), weights[BATCH // 2 :].sum()
    assert halves[0] != halves[1]


def test_dropout_follows_from_seed_and_step_alone():
    config = tiny_config(dropout=0.3, attention_dropout=0.2)
    one = Trained(one_device(), config=config)
    again = Trained(one_device(), config=config)
    for a, b in zip(one.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    other = Trained(one_device(), config=tiny_config())
    assert one.scalars["loss"] != other.scalars["loss"]


def test_bfloat16_trains():
    trained = Trained(one_device(), precision="bfloat16")
    assert np.isfinite(trained.scalars["loss"])
    assert trained.memory.memories[0].dtype == "bfloat16"
    assert trained.weights[0].dtype == np.float32


def test_a_tiny_model_overfits_one_batch():
    training = settings(
        steps=150, learning_rate=1e-2, warmup_steps=10, jit_compile=True
    )
    strategy = one_device()
    config = tiny_config(hidden_dim=46, memory_length=0)
    model, optimizer, memory = pretraining_step.build(
        config, training, strategy
    )
    trainer = pretraining_step.PretrainingTrainer(
        model,
        optimizer,
        memory,
        pretraining_step.distribute_records(
            ArrayData(num_steps=1), training, strategy
        ),
        training,
        strategy,
        orbit.utils.create_global_step(),
    )
    first = trainer.train(tf.constant(1))["loss"]
    trainer.train(tf.constant(148))
    last = trainer.train(tf.constant(1))["loss"]
    # about log(97) = 4.6 at the start; knowing the batch by heart is near 0
    assert first > 4.0
    assert last < 0.5


def test_evaluation_is_repeatable_and_leaves_training_alone(reference):
    strategy = one_device()
    training = settings()
    evaluator = pretraining_step.PretrainingEvaluator(
        reference.model,
        pretraining_step.make_memory(reference.model, training, strategy),
        pretraining_step.distribute_records(
            ArrayData(seed=5), training, strategy
        ),
        strategy,
    )
    before = [v.numpy() for v in reference.memory.memories]
    one = evaluator.evaluate(tf.constant(3))
    again = evaluator.evaluate(tf.constant(3))
    assert one == again
    for held, value in zip(before, reference.memory.memories, strict=True):
        np.testing.assert_array_equal(held, value.numpy())


def test_a_loss_that_is_not_finite_stops_the_run():
    with pytest.raises(RuntimeError, match=r"loss became nan.*at step 2\."):
        Trained(
            one_device(), steps=3, learning_rate=1e30, max_gradient_norm=0.0
        )


def test_what_runs_on_replicas_is_compiled(monkeypatch):
    """TPUs refuse `strategy.run` outside of a tf.function."""
    original = tf.distribute.OneDeviceStrategy.run

    def run(self, function, *args, **kwargs):
        assert not tf.executing_eagerly(), function
        return original(self, function, *args, **kwargs)

    monkeypatch.setattr(tf.distribute.OneDeviceStrategy, "run", run)
    trained = Trained(one_device(), steps=1)
    evaluator = pretraining_step.PretrainingEvaluator(
        trained.model,
        trained.memory,
        pretraining_step.distribute_records(
            ArrayData(), settings(), one_device()
        ),
        one_device(),
    )
    evaluator.evaluate(tf.constant(1))
