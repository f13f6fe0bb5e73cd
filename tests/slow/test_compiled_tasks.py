"""Tasks under XLA."""

import keras
import pytest
import tensorflow as tf

from tests.support.oracle import largest_difference
from tests.xlnet_tf.tasks.test_task import TASKS
from tests.xlnet_tf.tasks.test_task import features_of
from tests.xlnet_tf.tasks.test_task import make

# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


@pytest.mark.parametrize("task", TASKS)
def test_the_compiled_task_gives_the_same(task):
    model, features = make(task), features_of(task)
    inputs = keras.tree.map_structure(tf.constant, features)
    compiled = tf.function(model, jit_compile=True)(inputs)
    assert largest_difference(compiled, model(features)) < 1e-5
