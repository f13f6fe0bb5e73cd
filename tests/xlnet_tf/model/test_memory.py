"""What one segment leaves to the next, and the holder of it between batches.

Memory is copied, never computed, so most comparisons here are exact.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.support.equality import assert_equal
from tests.support.oracle import SIZES
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import P
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_backbone
from tests.support.oracle import small_config
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf import StatefulMemory
from xlnet_tf import XLNetPretrainer
from xlnet_tf.model.memory import next_memory
from xlnet_tf.model.memory import next_memory_mask

# Graph and eager mode order float32 sums differently.
TOLERANCE = 1e-5


def pretrainer(memory_length=M, **overrides):
    """Without dropout, so that fit and a plain call agree."""
    no_dropout = dict(dropout=0.0, attention_dropout=0.0)
    return XLNetPretrainer(
        small_backbone(memory_length=memory_length, **no_dropout, **overrides)
    )


def batches(count=3, batch=B, **extra):
    """Features of several batches, whole numbers as Keras' replicas want."""
    made = []
    for seed in range(count):
        features = with_targets(small_features(seed, batch), seed)
        features["is_reversed"] = features["is_reversed"].astype("int32")
        made.append({**features, **{k: v[seed] for k, v in extra.items()}})
    return made


def dataset(made):
    stacked = {name: np.stack([x[name] for x in made]) for name in made[0]}
    return tf.data.Dataset.from_tensor_slices(stacked)


def fit(model, made):
    """One epoch that leaves the weights as they are; returns the mean loss."""
    model.compile(
        keras.optimizers.SGD(0.0), jit_compile=False, run_eagerly=True
    )
    return model.fit(dataset(made), verbose=0).history["loss"][0]


def by_hand(model, made, mask_unwritten=False):
    """The same with memory as an argument: losses, memories, their mask."""
    rows = len(made[0]["token_ids"])
    length, width = model.config.memory_length, model.config.hidden_dim
    memories = (np.zeros((rows, length, width), "float32"),) * 2
    is_real = np.zeros((rows, length), bool)
    losses = []
    for features in made:
        features = dict(features)
        if mask_unwritten:
            starts = ~features.pop("is_continuation")
            is_real = is_real & ~starts[:, None]
            features["memory_mask"] = is_real
        outputs = as_numpy(model({**features, "memories": memories}))
        memories, is_real = outputs["memories"], outputs["memory_mask"]
        losses.append(outputs["loss"])
    return np.mean(losses), memories, is_real


def held(memory):
    return tuple(as_numpy(memory.memories))


def test_the_last_tokens_are_remembered_after_the_older_memory():
    content = np.arange(1, 8, dtype="float32").reshape(1, 7, 1)
    memory = -np.arange(1, 6, dtype="float32").reshape(1, 5, 1)

    def remembered(*args):
        return as_numpy(next_memory(content, *args))[0, :, 0].tolist()

    assert remembered(None, 3) == [5, 6, 7]
    assert remembered(None, 11) == [1, 2, 3, 4, 5, 6, 7]
    assert remembered(memory, 11) == [-2, -3, -4, -5, 1, 2, 3, 4, 5, 6, 7]
    assert remembered(memory, 5) == [3, 4, 5, 6, 7]
    # Only the first 3 tokens are reused by the next segment.
    assert remembered(memory, 5, 3) == [-4, -5, 1, 2, 3]
    assert remembered(memory, 2, 3) == [2, 3]
    assert remembered(None, 5, 3) == [1, 2, 3]


def test_no_gradient_flows_into_memory():
    content = tf.Variable(np.ones((2, 7, 3), "float32"))
    with tf.GradientTape() as tape:
        value = ops.sum(next_memory(content, None, 5)) + ops.sum(content[:, 0])
    gradient = tape.gradient(value, content).numpy()
    assert gradient[:, 0].all()
    assert not gradient[:, 1:].any()


def test_the_mask_follows_the_tokens_into_memory():
    features = {
        "token_ids": np.zeros((2, 4), "int32"),
        "padding_mask": np.array([[1, 1, 0, 0], [0, 1, 1, 1]], "int32"),
    }

    def mask(*args):
        return as_numpy(next_memory_mask(features, *args)).astype(int).tolist()

    assert mask(3) == [[1, 0, 0], [1, 1, 1]]
    assert mask(7) == [[1, 1, 0, 0], [0, 1, 1, 1]]
    features["memories"] = (np.zeros((2, 3, 1)),)
    assert mask(5, 3) == [[1, 1, 1, 1, 0], [1, 1, 0, 1, 1]]
    features["memory_mask"] = np.array([[0, 0, 1], [0, 1, 1]], bool)
    assert mask(5, 3) == [[0, 1, 1, 1, 0], [1, 1, 0, 1, 1]]
    del features["padding_mask"]
    assert mask(7) == [[0, 0, 1, 1, 1, 1, 1], [0, 1, 1, 1, 1, 1, 1]]


def test_each_layer_is_remembered_as_it_entered():
    backbone = small_backbone(memory_length=M, reuse_length=7)
    features = small_features(memory_length=M)
    memories = as_numpy(backbone(features)["memories"])
    table = as_numpy(backbone.token_embedding.embeddings)
    embedded = table[features["token_ids"]]
    # 5 of the first 7 tokens, as they enter the first layer
    np.testing.assert_array_equal(memories[0], embedded[:, 2:7])
    assert np.abs(memories[1] - memories[0]).max() > 0.1


def test_memories_of_a_length_that_is_known_in_the_call():
    """A graph of memories that grow, from none at all, of rows of any length.

    Nor does it know how many rows, tokens and targets there will be.
    """
    for overrides in ({}, dict(attention_type="causal", same_length=True)):
        backbone = small_backbone(memory_length=M, **overrides)
        given = small_features()
        inputs = {
            name: keras.Input((None,) * (x.ndim - 1), dtype=x.dtype.name)
            for name, x in given.items()
        }
        inputs["memory_mask"] = keras.Input((None,), dtype="bool")
        memories = [keras.Input((None, 38)) for _ in range(2)]
        outputs = backbone({**inputs, "memories": tuple(memories)})
        graph = keras.Model([inputs, memories], outputs)
        for length, rows, tokens, targets in (
            (0, B, T, P),
            (1, B, T, P),
            (M, B, T, P),
            (M, 1, T - 4, P),
            (1, 2, T, 1),
        ):
            features = small_features(memory_length=M)
            kept = [x[:rows, M - length :] for x in features.pop("memories")]
            hidden = features.pop("memory_mask")[:rows, M - length :]
            positions = features.pop("target_positions")
            features = {
                name: x[:rows, :tokens] if x.ndim > 1 else x[:rows]
                for name, x in features.items()
            }
            positions = np.minimum(positions[:rows, :targets], tokens - 1)
            features |= {"target_positions": positions, "memory_mask": hidden}
            expected = backbone({**features, "memories": kept})
            found = graph([features, kept])
            assert found["content"].shape == (rows, tokens, 38)
            assert found["query"].shape == (rows, targets, 38)
            assert largest_difference(found, expected) < TOLERANCE


def test_fit_carries_memory_from_batch_to_batch():
    model = pretrainer(reuse_length=7)
    made = batches()
    expected_loss, expected, _ = by_hand(model, made)
    memory = model.attach_memory(B)
    assert abs(fit(model, made) - expected_loss) < TOLERANCE
    assert largest_difference(held(memory), expected) < TOLERANCE
    # A second epoch does not start with zeros: the loss is another one.
    assert abs(fit(model, made) - expected_loss) > 1e-4


def test_hidden_empty_memory_starts_afresh_where_a_text_begins():
    starts = [[False] * B, [True, False, True], [False, True, True]]
    made = batches(is_continuation=np.array(starts))
    model = pretrainer()
    expected_loss, expected, is_real = by_hand(model, made, mask_unwritten=True)
    memory = model.attach_memory(B, mask_unwritten=True)
    assert abs(fit(model, made) - expected_loss) < TOLERANCE
    assert largest_difference(held(memory), expected) < TOLERANCE
    np.testing.assert_array_equal(as_numpy(memory.is_real) > 0, is_real)
    plain = pretrainer()
    plain.attach_memory(B)
    assert abs(fit(plain, made) - expected_loss) > 1e-4


def test_empty_memory_is_attended_unless_hidden():
    model = pretrainer()
    (features,) = batches(1)
    without = as_numpy(model(features)["query"])
    model.attach_memory(B)
    attended = as_numpy(model(features, training=True)["query"])
    model.attach_memory(B, mask_unwritten=True)
    hidden = as_numpy(model(features, training=True)["query"])
    assert largest_difference(hidden, without) < TOLERANCE
    assert largest_difference(attended, without) > 1e-3


def test_a_new_memory_is_the_one_that_is_saved(tmp_path):
    rows = B + 1
    model = pretrainer()
    (features,) = batches(1)
    model.attach_memory(B)
    model(features, training=True)
    memory = model.attach_memory(rows)
    memory.memories[0].assign_add(np.full(memory.memories[0].shape, 2.0))
    model.save(tmp_path / "model.keras")
    loaded = keras.models.load_model(tmp_path / "model.keras")
    assert loaded.memory.batch_size == rows
    assert_equal(held(memory), held(loaded.memory))
    assert len(loaded.weights) == len(model.weights)


def test_inference_and_given_memories_leave_the_held_memory_alone():
    model = pretrainer()
    memory = model.attach_memory(B)
    (features,) = batches(1)
    model(features)
    given = small_features(memory_length=M)["memories"]
    model({**features, "memories": given}, training=True)
    assert not np.any(held(memory))
    model(features, training=True)
    assert np.all(np.any(held(memory), axis=(1, 2, 3)))


def test_reset_forgets_everything():
    model = pretrainer()
    memory = model.attach_memory(B, mask_unwritten=True)
    model(batches(1)[0], training=True)
    assert np.any(held(memory)) and np.any(as_numpy(memory.is_real))
    memory.reset()
    assert not np.any(held(memory)) and not np.any(as_numpy(memory.is_real))


def test_a_batch_of_another_size_is_refused():
    model = pretrainer()
    model.attach_memory(B + 2)
    with pytest.raises(ValueError, match="holds 5 rows and the batch has 3"):
        model(batches(1)[0], training=True)


def test_a_memory_without_length_is_refused():
    with pytest.raises(ValueError, match="Received: memory_length=0"):
        XLNetPretrainer(small_backbone()).attach_memory(B)


def test_a_memory_is_rebuilt_from_its_config():
    config = small_config(memory_length=M)
    memory = StatefulMemory.for_config(config, B, mask_unwritten=True, name="x")
    again = StatefulMemory.from_config(memory.get_config())
    assert again.get_config() == memory.get_config()
    shapes = [tuple(m.shape) for m in again.memories]
    assert shapes == [(B, M, SIZES["hidden_dim"])] * SIZES["num_layers"]


def filled(mask_unwritten=True):
    model = pretrainer()
    memory = model.attach_memory(B, mask_unwritten=mask_unwritten)
    random = np.random.default_rng(3)
    for variable in [*memory.memories, memory.is_real]:
        variable.assign(random.integers(0, 2, variable.shape))
    return model


def test_keras_files_hold_the_memory(tmp_path):
    model = filled()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.memory.mask_unwritten
    assert largest_difference(held(again.memory), held(model.memory)) == 0
    is_real = as_numpy(again.memory.is_real)
    np.testing.assert_array_equal(is_real, as_numpy(model.memory.is_real))


def test_tensorflow_checkpoints_hold_the_weights_and_the_memory(tmp_path):
    model = filled()
    before = as_numpy(model.weights)
    path = tf.train.Checkpoint(model=model).save(tmp_path / "checkpoint")
    for weight in model.weights:
        weight.assign(ops.ones_like(weight) * 7)
    tf.train.Checkpoint(model=model).restore(path).assert_consumed()
    assert largest_difference(as_numpy(model.weights), before) == 0
