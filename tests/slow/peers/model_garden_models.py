"""Random models of Model Garden's, their inputs, and how they are saved."""

import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import literal
from tests.support.oracle import small_features

REASON = "XLNet of tf-models-official cannot be imported"
tf_keras = pytest.importorskip("tf_keras", reason=REASON)
networks = pytest.importorskip("official.nlp.modeling.networks", reason=REASON)
models = pytest.importorskip("official.nlp.modeling.models", reason=REASON)

B, T, M, L = 4, 13, 5, 3
SIZES = dict(
    vocab_size=97,
    num_layers=L,
    num_attention_heads=5,
    head_size=6,
    hidden_size=30,  # heads times their size, or their code fails
    inner_size=23,
)
RELEASED_SIZES = dict(
    n_token=97, n_layer=L, n_head=5, d_head=6, d_model=30, d_inner=23
)
# Both compute in float32, about 1 in size, in another order.
TOLERANCE = 1e-5


def network(**overrides):
    settings = dict(
        **SIZES,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
        attention_type="bi",
        bi_data=False,
        initializer=tf_keras.initializers.RandomNormal(seed=1),
        tie_attention_biases=False,
        inner_activation="gelu",
    )
    return networks.XLNetBase(**{**settings, **overrides})


def randomize(model, seed=0):
    random = np.random.default_rng(seed)
    for weight in model.weights:
        value = random.normal(0, 0.15, weight.shape)
        if "gamma" in weight.name:
            value = value + 1
        weight.assign(value)
    return model


def features(seed=0, with_targets=False, with_memory=False):
    """Ours: padded on both sides, with a permutation and memory if wanted."""
    values = literal(small_features(seed, batch=B))
    del values["is_reversed"]
    if not with_targets:
        del values["perm_mask"], values["target_mapping"]
    if with_memory:
        random = np.random.default_rng(seed)
        values["memories"] = tuple(
            random.normal(size=(B, M, SIZES["hidden_size"])).astype("float32")
            for _ in range(L)
        )
    return values


def theirs(values):
    """The arguments of `XLNetBase` for our features: masks say who may."""
    arguments = dict(
        input_ids=values["token_ids"],
        segment_ids=values.get("segment_ids"),
        input_mask=tf.cast(values["padding_mask"], tf.float32),
    )
    if "memories" in values:
        arguments["state"] = list(map(tf.constant, values["memories"]))
    if "perm_mask" in values:
        arguments.update(
            permutation_mask=tf.constant(1 - values["perm_mask"]),
            target_mapping=tf.constant(values["target_mapping"]),
            masked_tokens=tf.ones((B, T)),
        )
    return arguments


def write_config(directory, **overrides):
    """`xlnet_config.json`, with fields of ours where it has no name."""
    values = dict(**RELEASED_SIZES, ff_activation="gelu", untie_r=True)
    path = pathlib.Path(directory) / "xlnet_config.json"
    path.write_text(json.dumps({**values, **overrides}))


def save(directory, /, **objects):
    """As `tf.train.Checkpoint` does, which all of their trainers use."""
    tf.train.Checkpoint(**objects).save(str(directory / "ckpt"))


def trainer_objects(model):
    """What Orbit's trainer saves, after a step of a legacy optimizer."""
    optimizer = tf_keras.optimizers.legacy.Adam(0.0)
    variables = model.trainable_variables
    optimizer.apply_gradients([(tf.ones_like(v), v) for v in variables])
    return dict(
        global_step=tf.Variable(3, dtype=tf.int64),
        model=model,
        optimizer=optimizer,
        **model.checkpoint_items,
    )


def assert_equal(expected, received):
    expected, received = (
        [keras.ops.convert_to_numpy(x) for x in keras.tree.flatten(tree)]
        for tree in (expected, received)
    )
    assert [x.shape for x in expected] == [x.shape for x in received]
    for x, y in zip(expected, received, strict=True):
        np.testing.assert_allclose(y, x, rtol=0, atol=TOLERANCE)
        assert np.abs(x).max() > 0.1


def classifier_inputs(values):
    return dict(
        input_word_ids=values["token_ids"],
        input_type_ids=values["segment_ids"],
        input_mask=values["padding_mask"],
    )
