"""The optimizer inside of `fit`: the same on two replicas, and saved."""

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

STEPS = 5
# below the gradient's norm at every one of the steps, so that clipping acts
CLIP = 0.05


def clipped():
    return AdamW(1e-2, weight_decay=0.1, epsilon=1e-6, global_clipnorm=CLIP)


class Fitted:
    """A few steps of `fit` on a strategy, and what they left."""

    def __init__(self, strategy):
        keras.utils.set_random_seed(3)
        with strategy.scope():
            self.model = XLNetPretrainer(
                XLNetBackbone(tiny_config(num_layers=1, memory_length=0))
            )
            self.model.compile(optimizer=clipped())
        data = ArrayData()
        # Equal numbers of targets, for Keras averages the replicas' means.
        data.features["target_weights"][:] = 1
        self.loss = self.model.fit(
            data.dataset(), steps_per_epoch=STEPS, verbose=0
        ).history["loss"][0]
        self.weights = [v.numpy() for v in self.model.trainable_variables]

    def difference(self, other):
        pairs = zip(self.weights, other.weights, strict=True)
        return max(np.abs(a - b).max() for a, b in pairs)


@pytest.fixture(scope="module")
def one_device():
    return Fitted(tf.distribute.OneDeviceStrategy("CPU:0"))


@pytest.fixture(scope="module")
def replicas():
    return Fitted(two_replicas())


def test_fit_on_two_replicas_equals_one_device(one_device, replicas):
    # float32 sums in another order, over five steps of Adam
    assert one_device.difference(replicas) < 1e-5


def test_fit_on_two_replicas_reports_the_same_loss(one_device, replicas):
    # The gradient is that of this loss, so it is not doubled either.
    assert replicas.loss == pytest.approx(one_device.loss, rel=1e-5)


def test_a_compiled_pretrainer_keeps_its_optimizer(tmp_path):
    model = XLNetPretrainer(
        XLNetBackbone(tiny_config(num_layers=1, memory_length=0))
    )
    model.compile(
        optimizer=AdamW(
            WarmupSchedule(0.03, total_steps=11, decay="cosine"),
            weight_decay=0.3,
            global_clipnorm=CLIP,
        )
    )
    data = ArrayData().dataset()
    model.fit(data, steps_per_epoch=2, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert type(again.optimizer) is AdamW
    assert again.optimizer.get_config() == model.optimizer.get_config()
    assert int(again.optimizer.iterations) == 2
    for each in (model, again):
        each.fit(data.skip(2), steps_per_epoch=1, verbose=0)
    # Moments, step and what is not decayed came along: the same step, but
    # for the order of sums, which differs between two compiled functions
    # on a busy machine. Without the moments some differ by 1e-2.
    assert_equal(
        model.trainable_variables, again.trainable_variables, atol=1e-7
    )


def test_what_is_frozen_after_a_fit_is_left_alone():
    model = XLNetPretrainer(
        XLNetBackbone(tiny_config(num_layers=1, memory_length=0))
    )
    model.compile(optimizer=AdamW(0.1))
    data = ArrayData().dataset()
    model.fit(data, steps_per_epoch=1, verbose=0)
    model.backbone.trainable = False
    before = [v.numpy() for v in model.backbone.weights]
    bias = model.head.bias.numpy()
    model.fit(data, steps_per_epoch=1, verbose=0)
    for one, other in zip(before, model.backbone.weights, strict=True):
        if "seed" not in other.path:
            np.testing.assert_array_equal(one, other.numpy(), other.path)
    assert np.abs(bias - model.head.bias.numpy()).max() > 0.01
