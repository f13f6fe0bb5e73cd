"""Memory, dropout, empty batches and truth values on two replicas."""

import keras
import numpy as np
import tensorflow as tf

from tests.support.oracle import B
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_config
from tests.support.replicas import two_replicas
from tests.xlnet_tf.model.test_memory import TOLERANCE
from tests.xlnet_tf.model.test_memory import batches
from tests.xlnet_tf.model.test_memory import by_hand
from tests.xlnet_tf.model.test_memory import dataset
from tests.xlnet_tf.model.test_memory import pretrainer
from xlnet_tf import XLNetBackbone


def replicated():
    """A model on two replicas after two batches of fit, and those batches."""
    strategy = two_replicas()
    with strategy.scope():
        model = pretrainer(reuse_length=7)
        memory = model.attach_memory(B)
    made = batches(2, batch=2 * B)
    with strategy.scope():
        model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    model.fit(dataset(made), verbose=0)
    values = [
        strategy.experimental_local_results(v.value) for v in memory.memories
    ]
    return model, made, [as_numpy(v) for v in values]


def test_every_replica_remembers_what_it_read():
    _, made, values = replicated()
    for replica in range(2):
        rows = slice(replica * B, replica * B + B)
        mine = [{name: x[rows] for name, x in f.items()} for f in made]
        _, expected, _ = by_hand(pretrainer(reuse_length=7), mine)
        memories = tuple(value[replica] for value in values)
        assert largest_difference(memories, expected) < TOLERANCE


def test_a_model_on_replicas_can_be_saved(tmp_path):
    model, _, _ = replicated()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    weights = [as_numpy(w) for w in model.trainable_weights]
    difference = largest_difference(
        weights, [as_numpy(w) for w in again.trainable_weights]
    )
    assert difference == 0
    tf.train.Checkpoint(model=model).save(tmp_path / "checkpoint")
    model.memory.reset()


def test_truth_values_can_be_features_on_replicas():
    strategy = two_replicas()
    with strategy.scope():
        model = pretrainer(memory_length=0)
        model.compile(keras.optimizers.SGD(0.0), jit_compile=False)
    made = batches(1, batch=2 * B)
    made[0]["is_reversed"] = made[0]["is_reversed"].astype(bool)
    assert np.isfinite(model.fit(dataset(made), verbose=0).history["loss"][0])


def test_replicas_drop_different_values():
    """Rows that are the same on both, read once, without a step."""
    strategy = two_replicas()
    with strategy.scope():
        model = XLNetBackbone(small_config(dropout=0.5), seed=1)
    ids = np.zeros((2, T), "int32")
    call = tf.function(lambda: model(ids, training=True)["content"])
    outputs = strategy.experimental_local_results(strategy.run(call))
    assert largest_difference(*as_numpy(outputs)) > 0.1


def test_a_replica_without_rows_with_layers_recomputed():
    """Five rows in batches of four: the last row has a replica to itself."""
    strategy = two_replicas()
    with strategy.scope():
        model = pretrainer(memory_length=0)
        model.backbone.rematerialize = True
        model.compile(keras.optimizers.SGD(0.1), jit_compile=False)
    (features,) = batches(1, batch=5)
    data = tf.data.Dataset.from_tensor_slices(features).batch(4)
    losses = model.fit(data, verbose=0).history["loss"]
    assert np.isfinite(losses).all()
