"""Texts read segment by segment, against calls made one by one."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from xlnet_tf.tasks.long_documents import remember_segments

BATCH, SEGMENT, MEMORY, CLASSES = 3, 7, 5, 2


def make_config():
    return xlnet_tf.XLNetConfig(
        vocabulary_size=97,
        num_layers=2,
        num_heads=2,
        hidden_dim=16,
        intermediate_dim=24,
        memory_length=MEMORY,
        initializer_range=0.3,
    )


def make_model():
    return xlnet_tf.XLNetTextClassifier(
        xlnet_tf.XLNetBackbone(make_config(), seed=1),
        num_classes=CLASSES,
        segment_length=SEGMENT,
    )


@pytest.fixture(scope="module")
def config():
    return make_config()


@pytest.fixture(scope="module")
def model():
    """Read only."""
    return make_model()


def draw(length, padding=(0, 4, 11), seed=0):
    random = np.random.default_rng(seed)
    place = np.arange(length)
    real = place >= np.minimum(np.array(padding)[:, None], length - 2)
    ids = random.integers(9, 97, real.shape)
    return {
        "token_ids": np.where(real, ids, 0).astype("int32"),
        "segment_ids": np.where(real, 0, 4).astype("int32"),
        "padding_mask": real.astype("int32"),
    }


def by_hand(model, features):
    """Logits of calls of the backbone, one a segment."""
    length = features["token_ids"].shape[1]
    missing = -length % SEGMENT
    fillers = {"token_ids": 0, "segment_ids": 4, "padding_mask": 0}
    features = {
        name: np.pad(
            value, [[0, 0], [missing, 0]], constant_values=fillers[name]
        )
        for name, value in features.items()
    }
    state = {}
    for begin in range(0, length + missing, SEGMENT):
        part = {k: v[:, begin : begin + SEGMENT] for k, v in features.items()}
        outputs = model.backbone({**part, **state})
        state = {k: outputs[k] for k in ("memories", "memory_mask")}
    return model.head(outputs["content"])


def test_segments_in_turn(model):
    for length in (21, 16, 7, 5):
        features = draw(length)
        np.testing.assert_allclose(
            model(features), by_hand(model, features), atol=1e-5
        )


def test_padding_on_the_left_changes_nothing(model):
    features = draw(14, padding=(0, 0, 0))
    longer = {
        name: np.pad(value, [[0, 0], [SEGMENT * 2, 0]], constant_values=filler)
        for (name, value), filler in zip(
            features.items(), (0, 4, 0), strict=True
        )
    }
    np.testing.assert_allclose(model(longer), model(features), atol=1e-5)


def test_the_beginning_is_remembered_and_has_no_gradient(model):
    features = draw(21, padding=(0, 0, 0))
    changed = dict(features, token_ids=features["token_ids"].copy())
    changed["token_ids"][:, SEGMENT + 3] = 11
    assert np.abs(model(changed) - model(features)).min(axis=-1).max() > 1e-4

    embedding = model.backbone.token_embedding.embeddings
    with tf.GradientTape() as tape:
        loss = tf.reduce_sum(model(features, training=True))
    gradient = tf.convert_to_tensor(tape.gradient(loss, embedding.value))
    moved = np.flatnonzero(np.abs(gradient).sum(-1))
    assert set(moved) <= set(features["token_ids"][:, -SEGMENT:].ravel())


def test_dropout_differs_from_segment_to_segment(config):
    backbone = xlnet_tf.XLNetBackbone(
        config.replace(dropout=0.5, memory_length=2 * SEGMENT), seed=1
    )
    ids = np.tile(np.arange(10, 10 + SEGMENT, dtype="int32"), (1, 3))
    features = {"token_ids": ids, "dropout_seed": np.array([3, 5])}
    left = remember_segments(backbone, features, SEGMENT, training=True)
    first, second = np.split(np.asarray(left["memories"][0]), 2, axis=1)
    assert np.abs(first - second).max() > 0.1
    again = remember_segments(backbone, features, SEGMENT, training=True)
    np.testing.assert_array_equal(left["memories"][1], again["memories"][1])


def test_it_is_saved_with_the_model(model, tmp_path):
    features = draw(21)
    model.save(tmp_path / "m.keras")
    loaded = keras.models.load_model(tmp_path / "m.keras")
    assert loaded.segment_length == SEGMENT
    np.testing.assert_array_equal(loaded(features), model(features))


def test_errors(config, model):
    with pytest.raises(ValueError, match="give `memory_length` too"):
        xlnet_tf.XLNetTextClassifier(
            xlnet_tf.XLNetBackbone(config.replace(memory_length=0)),
            num_classes=2,
            segment_length=SEGMENT,
        )
    with pytest.raises(ValueError, match="Received: perm_mask"):
        model({**draw(14), "perm_mask": np.zeros((BATCH, 14, 14))})
