"""Training in float16: a scaled loss, whose overflows are left out.

Replicas and XLA are in `tests/slow/test_not_finite_runs.py`.
"""

import numpy as np
import orbit
import pytest
import tensorflow as tf

from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import settings
from tests.support.training_fixtures import tiny_config
from xlnet_tf.training import pretraining_step
from xlnet_tf.training.update import LossScale


def make_trainer(precision):
    training = settings(precision=precision)
    model, optimizer, memory = pretraining_step.build(
        tiny_config(dropout=0.0, attention_dropout=0.0), training, one_device()
    )
    data = pretraining_step.distribute_records(
        ArrayData(), training, one_device()
    )
    return pretraining_step.PretrainingTrainer(
        model,
        optimizer,
        memory,
        data,
        training,
        one_device(),
        orbit.utils.create_global_step(),
    ), optimizer


@pytest.mark.usefixtures("eager_functions")
def test_losses_and_norms_are_those_of_float32():
    results = []
    for precision in ("float32", "float16"):
        trainer, optimizer = make_trainer(precision)
        trainer.train(tf.constant(2))
        results.append([x[1:] for x in trainer.results.of_loop()])
    assert optimizer.loss_scale.value.numpy() == 2.0**15
    np.testing.assert_allclose(*results, rtol=0.02)
    assert trainer.model.backbone.compute_dtype == "float16"
    assert {x.dtype for x in trainer.model.trainable_variables} == {"float32"}


@pytest.mark.usefixtures("eager_functions")
def test_too_large_a_scale_is_halved_until_steps_are_finite():
    trainer, optimizer = make_trainer("float16")
    optimizer.loss_scale.value.assign(2.0**19)
    before = [x.numpy() for x in trainer.model.trainable_variables]
    trainer.train(tf.constant(1))
    for variable, value in zip(
        trainer.model.trainable_variables, before, strict=True
    ):
        np.testing.assert_array_equal(variable, value)
    assert optimizer.loss_scale.value.numpy() == 2.0**18
    trainer.train(tf.constant(4))
    assert trainer.results.of_loop()[-1].is_finite
    assert 2.0**14 <= optimizer.loss_scale.value.numpy() <= 2.0**17


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
