"""Tasks under XLA, and the files of every one of them."""

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


@pytest.mark.parametrize("task", TASKS)
def test_a_keras_file_gives_the_same_bits(task, tmp_path):
    model, features = make(task), features_of(task)
    model.save(tmp_path / "task.keras")
    again = keras.models.load_model(tmp_path / "task.keras")
    assert type(again) is type(model)
    assert largest_difference(again(features), model(features)) == 0
    assert again.get_config() == model.get_config()
