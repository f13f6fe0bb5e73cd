"""The step of pretraining: the same numbers however it is spread."""

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
from xlnet_tf.training import pretraining_step as training_steps


def one_mirror():
    return tf.distribute.MirroredStrategy(["CPU:0"])


@pytest.fixture(scope="module")
def reference():
    return Trained(one_device())


SLOW = pytest.mark.slow
PARTS = {"gradient_accumulation_steps": 2}
XLA = {"jit_compile": True}


@pytest.mark.parametrize(
    ("make_strategy", "overrides"),
    [
        pytest.param(make_strategy, overrides, id=name, marks=marks)
        for name, make_strategy, overrides, marks in (
            ("two replicas", two_replicas, {}, SLOW),
            ("accumulation", one_device, PARTS, SLOW),
            ("XLA", one_device, XLA, ()),
            ("XLA, a strategy that could have replicas", one_mirror, XLA, SLOW),
            ("replicas and accumulation", two_replicas, PARTS, ()),
            (
                "replicas, rematerialised",
                two_replicas,
                {"rematerialize": True},
                SLOW,
            ),
        )
    ],
)
def test_however_spread_the_numbers_are_the_same(
    reference, make_strategy, overrides
):
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


def test_gradient_is_that_of_all_targets_not_of_replica_means():
    """The rows of the two replicas have different numbers of targets."""
    data = ArrayData()
    weights = data.features["target_weights"][0]
    halves = weights[: BATCH // 2].sum(), weights[BATCH // 2 :].sum()
    assert halves[0] != halves[1]


def test_the_memory_is_what_the_backbone_returned():
    trained = Trained(one_device(), steps=1, learning_rate=1e-12)
    features = {name: array[0] for name, array in ArrayData().features.items()}
    config = trained.model.config
    zeros = np.zeros((BATCH, config.memory_length, config.hidden_dim), "f")
    features["memories"] = (zeros,) * config.num_layers
    outputs = trained.model(features)
    for held, returned in zip(
        trained.memories, outputs["memories"], strict=True
    ):
        np.testing.assert_allclose(held, returned, atol=1e-5)


def test_without_memory():
    trained = Trained(one_device(), config=tiny_config(memory_length=0))
    assert trained.memory is None
    assert np.isfinite(trained.scalars["loss"])


def test_hidden_empty_memory_changes_the_first_step(reference):
    hidden = Trained(one_device(), steps=1, hide_empty_memory=True)
    shown = Trained(one_device(), steps=1)
    assert abs(hidden.scalars["loss"] - shown.scalars["loss"]) > 1e-4
    assert hidden.memory.is_real.value.numpy().min() == 1


@pytest.mark.slow
def test_dropout_follows_from_seed_and_step_alone():
    config = tiny_config(dropout=0.3, attention_dropout=0.2)
    one = Trained(one_device(), config=config)
    again = Trained(one_device(), config=config)
    for a, b in zip(one.weights, again.weights, strict=True):
        np.testing.assert_array_equal(a, b)
    other = Trained(one_device(), config=tiny_config())
    assert one.scalars["loss"] != other.scalars["loss"]


def test_replicas_and_parts_drop_different_values():
    """Equal rows in both halves of the batch give different losses."""
    config = tiny_config(dropout=0.5)
    training = settings(gradient_accumulation_steps=2)
    model, _, _ = training_steps.build(config, training, one_device())
    step = training_steps.GradientStep(model, None, 1, False)
    features = {
        name: tf.constant(array[0])
        for name, array in ArrayData().features.items()
    }
    seed = tf.constant([3, 7])
    fold_in = tf.random.experimental.stateless_fold_in
    told = [step(features, fold_in(seed, i))[1] for i in range(3)]
    assert len({float(metrics["loss"]) for metrics in told}) == 3


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
    model, optimizer, memory = training_steps.build(config, training, strategy)
    trainer = training_steps.PretrainingTrainer(
        model,
        optimizer,
        memory,
        training_steps.distribute_records(ArrayData(num_steps=1), training, strategy),
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
    evaluator = training_steps.PretrainingEvaluator(
        reference.model,
        training_steps.make_memory(reference.model, training, strategy),
        training_steps.distribute_records(ArrayData(seed=5), training, strategy),
        strategy,
    )
    before = [v.numpy() for v in reference.memory.memories]
    one = evaluator.evaluate(tf.constant(3))
    again = evaluator.evaluate(tf.constant(3))
    assert one == again
    for held, value in zip(before, reference.memory.memories, strict=True):
        np.testing.assert_array_equal(held, value.numpy())


def test_a_loss_that_is_not_finite_stops_the_run():
    with pytest.raises(RuntimeError, match=r"loss became nan.*steps 0 and 3"):
        Trained(
            one_device(), steps=3, learning_rate=1e30, max_gradient_norm=0.0
        )


def test_tokens_are_counted(reference):
    rate = reference.scalars["tokens_per_second"]
    assert rate > 0
