"""One step, eagerly: accumulation, memory, dropout, divisors, errors.

Replicas, XLA and whole loops are in `tests/slow/test_replicas.py`.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.equality import assert_equal
from tests.support.training_fixtures import BATCH
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import Trained
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import settings
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretrain
from xlnet_tf.training.on_tensorflow import Means
from xlnet_tf.training.on_tensorflow import Steps
from xlnet_tf.training.step import LoopReport
from xlnet_tf.training.step import StepResult
from xlnet_tf.training.update import make_update

pytestmark = pytest.mark.usefixtures("eager_functions")


def batch(number=0):
    arrays = ArrayData().features
    return {name: tf.constant(array[number]) for name, array in arrays.items()}


def make_steps(config=None, first_half_length=0, **overrides):
    """Steps on one device, of the same initial weights each time."""
    made = Trained(
        steps=0, config=config, first_half_length=first_half_length, **overrides
    )
    return made.steps, made.model, made.memory


SEED = tf.constant([3, 7])


def test_parts_add_up_to_the_whole():
    whole, _, whole_memory = make_steps()
    parts, _, parts_memory = make_steps(gradient_accumulation_steps=2)
    for number in range(2):  # the second reads the memory of the first
        one, state = whole.gradients(batch(number), SEED)
        whole_memory.write(state)
        other, state = parts.gradients(batch(number), SEED)
        parts_memory.write(state)
        assert_equal(one, other, rtol=1e-4, atol=1e-5)
    assert_equal(whole_memory.memories, parts_memory.memories, atol=1e-5)


def test_a_first_half_is_computed_apart():
    """The same gradients and memory, with dropout, without its other scores."""
    half, config = 5, tiny_config(dropout=0.1, attention_dropout=0.2)
    features = batch()
    ranks = features["factorization_rank"]
    behind = tf.cast(tf.range(ranks.shape[1]) >= half, ranks.dtype)
    features["factorization_rank"] = ranks + behind * ranks.shape[1]
    found = []
    for length in (0, half):
        steps, _, memory = make_steps(config, length)
        sums, state = steps.gradients(features, SEED)
        memory.write(state)
        values = [x.value for x in memory.memories]
        found.append(tf.nest.flatten(sums) + values)
        # Scores that are left out are seen to be missing.
        other, _ = steps.gradients(batch(), SEED)
        found[-1].append(other[1]["loss"])
    assert_equal(found[0][:-1], found[1][:-1], rtol=1e-4, atol=1e-5)
    assert abs(found[0][-1] - found[1][-1]) > 1e-3


def test_sums_their_weight_and_the_memory():
    steps, model, memory = make_steps()
    features = batch()
    (_, metrics, weight), state = steps.gradients(features, SEED)
    memory.write(state)
    assert float(weight) == features["target_weights"].numpy().sum()
    zeros = tf.zeros([BATCH, 6, 22])
    outputs = model({**features, "memories": (zeros, zeros)})
    np.testing.assert_allclose(
        metrics["loss"] / weight, outputs["loss"], rtol=1e-5
    )
    assert_equal(memory.memories, outputs["memories"], atol=1e-5)


def test_masked_empty_memory_changes_the_first_step():
    masked, _, memory = make_steps(hide_empty_memory=True)
    attended, _, _ = make_steps()
    losses = [
        float(x.gradients(batch(), SEED)[0][1]["loss"])
        for x in (masked, attended)
    ]
    assert abs(losses[0] - losses[1]) > 1e-3
    memory.write(masked.gradients(batch(), SEED)[1])
    assert memory.is_real.value.numpy().min() == 1


def test_without_memory():
    steps, _, memory = make_steps(tiny_config(memory_length=0))
    assert memory is None
    (_, metrics, _), state = steps.gradients(batch(), SEED)
    assert np.isfinite(metrics["loss"])
    assert state == {}


def test_parts_and_seeds_have_dropout_masks_of_their_own():
    """Equal rows in both halves of the batch give different losses."""
    config = tiny_config(dropout=0.5, memory_length=0)
    steps, _, _ = make_steps(config)
    fold_in = tf.random.experimental.stateless_fold_in
    seeds = [fold_in(SEED, i) for i in (0, 1, 2, 0)]
    losses = [float(steps.gradients(batch(), x)[0][1]["loss"]) for x in seeds]
    assert losses[0] == losses[3]
    assert len(set(losses)) == 3
    made = Trained(steps=0, config=config, gradient_accumulation_steps=2)
    half = {k: v[: BATCH // 2] for k, v in batch().items()}
    twice = {k: tf.concat([v, v], axis=0) for k, v in half.items()}
    seeds, loss = [], pretrain.training_loss(made.model)

    def noted(features):
        seeds.append(tuple(features["dropout_seed"].numpy()))
        return loss.outputs(features)

    halves = Steps(
        *(made.model, made.optimizer, None, loss._replace(outputs=noted)),
        *(None, made.settings, tf.Variable(0), made.strategy),
    )
    halves.gradients(twice, SEED)
    assert len(set(seeds)) == 2


def test_bfloat16():
    steps, model, memory = make_steps(precision="bfloat16")
    (gradients, metrics, _), state = steps.gradients(batch(), SEED)
    assert np.isfinite(metrics["loss"])
    assert state["memories"][0].dtype == memory.memories[0].dtype == "bfloat16"
    assert {g.dtype for g in gradients} == {tf.float32}
    assert {v.dtype for v in model.trainable_variables} == {"float32"}


class Recorded:
    """Stands for an optimizer."""

    def apply(self, gradients, variables):
        self.gradients = [np.array(g) for g in gradients]


def test_the_update_divides_then_clips():
    gradients = [tf.constant([3.0, 0.0]), tf.constant([4.0])]
    for largest, weight, expected in (
        (0.0, 2.0, (1.5, 2.0)),
        (10.0, 2.0, (1.5, 2.0)),
        (1.0, 2.0, (0.6, 0.8)),
        (1.0, 0.0, (0.6, 0.8)),  # no target at all
    ):
        optimizer = Recorded()
        config = settings(max_gradient_norm=largest)
        update = make_update(optimizer, [], config, one_device())
        norm, is_finite = update(gradients, 1.0, tf.constant(weight))
        assert is_finite
        assert float(norm) == pytest.approx(5 / max(weight, 1e-6))
        found = optimizer.gradients
        assert (found[0][0], found[1][0]) == pytest.approx(expected)


def test_xla_compiles_the_update_but_on_a_cpu():
    config = settings(jit_compile=True)
    for device, is_compiled in (("CPU:0", False), ("GPU:0", True)):
        strategy = tf.distribute.OneDeviceStrategy(device)
        update = make_update(Recorded(), [], config, strategy)
        assert hasattr(update, "get_concrete_function") == is_compiled


def test_means_weigh_steps():
    means = Means(("loss",), one_device())
    means.update({"loss": tf.constant(6.0)}, tf.constant(3.0))
    means.update({"loss": tf.constant(1.0)}, tf.constant(1.0))
    means.update({"loss": tf.constant(0.0)}, tf.constant(0.0))
    assert means.result() == {"loss": pytest.approx(7 / 4)}
    means.reset()
    means.update({"loss": tf.constant(1.0)}, tf.constant(2.0))
    assert means.result() == {"loss": pytest.approx(0.5)}
    # Nothing was to be predicted: no loss of 0, which would be the best.
    means.reset()
    means.update({"loss": tf.constant(0.0)}, tf.constant(0.0))
    assert np.isnan(means.result()["loss"])


def test_means_on_jax_weigh_steps():
    pytest.importorskip("jax")
    from xlnet_tf.training.on_jax import _means

    assert _means({"loss": 7.0}, 4.0) == {"loss": 7 / 4}
    assert np.isnan(_means({"loss": 0.0}, 0.0)["loss"])


def test_the_mean_norm_is_of_finite_steps():
    results = [StepResult(1, 2.0, 3.0), StepResult(2, np.nan, 9.0)]
    results += [StepResult(3, 1.0, np.inf), StepResult(4, 4.0, 5.0)]
    found = LoopReport({"loss": 3.0}, 0.1, results, 0, 1.0).scalars()
    assert found["gradient_norm"] == 4.0
    assert found["skipped_steps"] == 2
    found = LoopReport({"loss": 3.0}, 0.1, results[1:3], 2, 1.0).scalars()
    assert np.isnan(found["gradient_norm"])


def test_the_mask_embedding_learns_only_with_targets():
    """Of a batch without targets the gradient is zero, not missing."""
    steps, model, _ = make_steps()
    features = batch()
    features["target_weights"] *= 0
    (gradients, _, weight), _ = steps.gradients(features, SEED)
    assert float(weight) == 0
    assert len(gradients) == len(model.trainable_variables)
    assert max(np.abs(g).max() for g in gradients) == 0
