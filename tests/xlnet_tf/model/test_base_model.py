"""A backbone, or a task, as a part of the user's own Keras model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.bert_models import bert_backbone
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features

TEXTS = ("token_ids", "segment_ids", "padding_mask")
TOLERANCE = 1e-5


def texts(batch=B):
    return {k: v for k, v in small_features(batch=batch).items() if k in TEXTS}


def rated_texts():
    """(features and a further input, labels)."""
    stars = np.arange(B, dtype="float32")[:, None]
    return {**texts(), "stars": stars}, np.array([0, 1, 1])


def functional(backbone, **arguments):
    """Two classes of the class token's vector and of a further input."""
    stars = keras.Input((1,), name="stars")
    vector = backbone.output["content"][:, -1]
    vector = keras.layers.Concatenate()([vector, stars])
    logits = keras.layers.Dense(2, name="logits", **arguments)(vector)
    return keras.Model({**backbone.input, "stars": stars}, logits)


def compiled(model):
    """`fit` may be called; the mask embedding, which has no gradient, rests."""
    for layer in model.layers:
        if isinstance(layer, xlnet_tf.XLNetBackbone):
            layer.mask_embedding.trainable = False
    model.compile(
        "sgd",
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
        run_eagerly=True,
    )
    return model


def test_inputs_and_outputs_of_every_model():
    remembering = small_backbone(memory_length=M)
    for model, names in (
        (small_backbone(), {"content"}),
        (remembering, {"content", "memories", "memory_mask"}),
        (bert_backbone(), {"content"}),
        (xlnet_tf.XLNetTextClassifier(small_backbone(), 2), None),
        (xlnet_tf.XLNetSpanClassifier(small_backbone()), None),
    ):
        assert list(model.input) == list(model.input_signature())
        assert model.inputs == list(model.input.values())
        assert model.output is model.output
        if names:
            assert set(model.output) == names
        assert len(model.outputs) == len(keras.tree.flatten(model.output))
        features = texts()
        whole = keras.Model(model.input, model.output)
        found, expected = whole(features), model(features)
        assert largest_difference(found, expected) < TOLERANCE, model
        whole = keras.Model(model.inputs, model.outputs)
        flat = keras.tree.flatten(expected)
        found = whole(list(features.values()))
        found = found if isinstance(found, list) else [found]
        assert largest_difference(found, flat) < TOLERANCE, model


def test_saving_does_not_call_a_model_for_its_output():
    """TensorFlow reads every attribute that `dir` names."""
    names = dir(small_backbone())
    assert {"input", "inputs", "input_signature"} <= set(names)
    assert not {"output", "outputs"} & set(names)


def test_a_functional_model_learns_and_is_saved(tmp_path):
    model = compiled(functional(small_backbone()))
    x, y = rated_texts()
    history = model.fit(x, y, batch_size=2, epochs=2, verbose=0).history
    assert set(history) == {"accuracy", "loss"}
    expected = model.predict(x, verbose=0)
    model.save(tmp_path / "model.keras")
    saved = keras.models.load_model(tmp_path / "model.keras")
    clone = keras.models.clone_model(model)
    config = keras.Model.from_config(model.get_config())
    for again in (saved, clone, config):
        again.set_weights(model.get_weights())
        found = again.predict(x, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-6)
        assert len(again.trainable_weights) == len(model.trainable_weights)
    # A batch of one: Keras keeps the axis.
    alone = {name: value[:1] for name, value in x.items()}
    found = saved.predict(alone, verbose=0)
    np.testing.assert_allclose(found, expected[:1], atol=TOLERANCE)


def test_a_functional_model_equals_its_parts():
    backbone = small_backbone()
    model = functional(backbone)
    x, _ = rated_texts()
    vector = as_numpy(backbone(texts())["content"])[:, -1]
    vector = np.concatenate([vector, x["stars"]], axis=-1)
    expected = as_numpy(model.get_layer("logits")(vector))
    np.testing.assert_allclose(as_numpy(model(x)), expected, atol=TOLERANCE)


def test_a_frozen_backbone_of_a_functional_model():
    backbone = small_backbone()
    model = functional(backbone)
    backbone.trainable = False
    assert [v.path for v in model.trainable_weights] == [
        "logits/kernel",
        "logits/bias",
    ]
    before = backbone.get_weights()
    compiled(model).fit(*rated_texts(), verbose=0)
    assert largest_difference(before, backbone.get_weights()) == 0


def test_two_texts_share_a_backbone():
    backbone = small_backbone()
    pair = {}
    for side in ("left", "right"):
        inputs = {
            name: keras.Input((None,), dtype="int32", name=f"{side}_{name}")
            for name in TEXTS
        }
        pair[side] = inputs, backbone(inputs)["content"][:, -1]
    (left, one), (right, other) = pair.values()
    inputs = [*left.values(), *right.values()]
    likeness = keras.layers.Dot(1, normalize=True)([one, other])
    model = keras.Model(inputs, likeness)
    assert len(model.weights) == len(backbone.weights)
    values = list(texts().values())
    same = as_numpy(model([*values, *values]))
    np.testing.assert_allclose(same, np.ones((B, 1)), atol=TOLERANCE)


def test_gradients_of_a_loop_of_the_users_own():
    """Of all weights but the mask embedding, which only targets read."""
    backbone = small_backbone()
    with tf.GradientTape() as tape:
        content = backbone(texts(), training=True)["content"]
        loss = tf.reduce_sum(content[:, -1] ** 3)
    weights = backbone.trainable_variables
    found = tape.gradient(loss, weights)
    missing = [w.name for w, x in zip(weights, found, strict=True) if x is None]
    assert missing == ["mask_embedding"]


def test_the_policy_of_keras_is_that_of_the_layers():
    keras.config.set_dtype_policy("mixed_bfloat16")
    try:
        backbone = small_backbone()
        model = functional(backbone, dtype="float32")
    finally:
        keras.config.set_dtype_policy("float32")
    assert backbone.output["content"].dtype == "bfloat16"
    assert {w.dtype for w in backbone.weights} == {"float32"}
    exact = functional(small_backbone())
    exact.get_layer("logits").set_weights(
        model.get_layer("logits").get_weights()
    )
    x, _ = rated_texts()
    found = model(x)
    assert found.dtype == tf.float32
    assert 0 < largest_difference(found, exact(x)) < 0.1


@pytest.mark.parametrize("cls", ["XLNetTextClassifier", "XLNetSpanClassifier"])
def test_summaries_count_what_there_is(cls):
    arguments = (2,) if cls == "XLNetTextClassifier" else ()
    lines, model = [], getattr(xlnet_tf, cls)(small_backbone(), *arguments)
    model.summary(print_fn=lines.append)
    text = "\n".join(lines)
    assert f"Total params: {model.count_params():,}" in text
    assert f"Non-trainable params: {38:,}" in text
    unused = [w.name for w in model.non_trainable_weights]
    assert unused == ["mask_embedding"]
    before = len(model.non_trainable_variables)
    model.backbone.trainable = False
    head = {id(w) for w in model.head.weights}
    assert {id(w) for w in model.trainable_weights} == head
    assert len(model.non_trainable_variables) > before


def test_layers_of_a_scope_of_keras_are_recomputed_by_the_backbone():
    for scope, expected in (
        (dict(mode="full"), True),
        (dict(mode="larger_than", output_size_threshold=1), True),
        (dict(mode="list_of_layers", layer_names=["block_1"]), True),
        (dict(mode="list_of_layers", layer_names=["dense"]), False),
        (dict(mode="activations"), False),
        (dict(mode=None), False),
    ):
        with keras.RematScope(**scope):
            backbone = small_backbone()
            task = xlnet_tf.XLNetTextClassifier(backbone, 2)
        assert backbone.rematerialize == expected, scope
        assert task._remat_mode is None
        assert task.head.logits_dense._remat_mode is None
        assert backbone.block_0.attention_norm._remat_mode is None
    rates = {"dropout": 0.0, "attention_dropout": 0.0}
    with keras.RematScope(mode="full"):
        backbone = small_backbone(**rates)
    recomputed = compiled(functional(backbone))
    kept = compiled(functional(small_backbone(**rates)))
    kept.set_weights(recomputed.get_weights())
    x, y = rated_texts()
    for model in (kept, recomputed):
        model.fit(x, y, verbose=0)
    found = as_numpy(recomputed.weights)
    assert largest_difference(found, as_numpy(kept.weights)) < TOLERANCE
