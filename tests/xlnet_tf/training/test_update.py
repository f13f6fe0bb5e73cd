"""Training in float16: a scaled loss, whose overflows are left out.

Replicas and XLA are in `tests/slow/test_not_finite_runs.py`.
"""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.equality import assert_equal
from tests.support.training_fixtures import Trained
from xlnet_tf.training.update import LossScale


@pytest.mark.usefixtures("eager_functions")
def test_losses_and_norms_are_those_of_float32():
    results = []
    for precision in ("float32", "float16"):
        made = Trained(steps=0, precision=precision)
        results.append([x[1:] for x in made.steps.make(2).results])
    assert made.optimizer.loss_scale.value.numpy() == 2.0**15
    np.testing.assert_allclose(*results, rtol=0.02)
    assert made.model.backbone.compute_dtype == "float16"
    assert {x.dtype for x in made.model.trainable_variables} == {"float32"}


@pytest.mark.usefixtures("eager_functions")
def test_too_large_a_scale_is_halved_until_steps_are_finite():
    made = Trained(steps=0, precision="float16")
    scale = made.optimizer.loss_scale.value
    scale.assign(2.0**19)
    before = made.weights
    made.train(1)
    assert_equal(made.weights, before)
    assert scale.numpy() == 2.0**18
    assert made.steps.make(4).results[-1].is_finite
    assert 2.0**14 <= scale.numpy() <= 2.0**17


def test_the_scale_follows_the_steps():
    scale = LossScale()
    scale.value.assign(4.0)
    for is_finite, expected in ((False, 2.0), (False, 1.0), (False, 1.0)):
        scale.adapt(tf.constant(is_finite))
        assert scale.value.numpy() == expected
    adapt = tf.function(scale.adapt)
    for _ in range(1999):
        adapt(tf.constant(True))
    assert scale.value.numpy() == 1.0
    adapt(tf.constant(True))
    assert scale.value.numpy() == 2.0
    for _ in range(1999):
        adapt(tf.constant(True))
    assert scale.value.numpy() == 2.0
