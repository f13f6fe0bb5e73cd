"""The permutation language model: its loss, its metrics, and that it learns."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import SIZES
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import P
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import literal
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf import XLNetPretrainer
from xlnet_tf.objectives import Permutation

# float32 sums in another order, on losses of about 5
TOLERANCE = 1e-5


def pretrainer(dtype=None, **overrides):
    model = XLNetPretrainer(small_backbone(dtype=dtype, **overrides))
    bias = np.random.default_rng(1).normal(size=SIZES["vocabulary_size"])
    model.head.bias.assign(bias.astype("float32"))
    return model


def labelled(seed=0, **kwargs):
    return with_targets(small_features(seed, **kwargs), seed)


def dataset(*made):
    stacked = {name: np.stack([x[name] for x in made]) for name in made[0]}
    return tf.data.Dataset.from_tensor_slices(stacked)


def loss_by_hand(model, features):
    """float64 [B, P] losses and logits from the query stream."""
    query = as_numpy(model(features)["query"]).astype("float64")
    table = as_numpy(model.backbone.token_embedding.embeddings)
    logits = query @ table.astype("float64").T + as_numpy(model.head.bias)
    token_loss = np.zeros((len(query), P))
    for b, p in np.ndindex(token_loss.shape):
        log_sum = np.log(np.exp(logits[b, p]).sum())
        token_loss[b, p] = log_sum - logits[b, p, features["target_ids"][b, p]]
    return token_loss, logits


def test_content_is_left_out_where_nobody_wants_it():
    model, features = pretrainer(), labelled()
    losses = {"loss", "query", "token_loss", "token_correct"}
    expected = as_numpy(model(features))
    assert set(expected) == {*losses, "content"}
    assert set(model(features, training=True)) == losses
    unlabelled = {**features, "target_ids": None}
    assert set(model(unlabelled, training=True)) == {"content", "query"}
    outputs = as_numpy(model(features, streams="query"))
    assert set(outputs) == losses
    for name in ("query", "token_loss", "loss"):
        difference = largest_difference(outputs[name], expected[name])
        assert difference < TOLERANCE
    unlabelled = {**features, "target_ids": None}
    for training in (False, True):
        outputs = model(unlabelled, training=training)
        assert set(outputs) == {"content", "query"}


def test_the_loss_equals_that_by_hand():
    model, features = pretrainer(), labelled()
    expected, logits = loss_by_hand(model, features)
    outputs = as_numpy(model(features))
    np.testing.assert_allclose(
        outputs["token_loss"], expected, atol=TOLERANCE, rtol=0
    )
    weights = features["target_weights"]
    mean = (expected * weights).sum() / weights.sum()
    assert abs(outputs["loss"] - mean) < TOLERANCE
    correct = logits.argmax(-1) == features["target_ids"]
    np.testing.assert_array_equal(outputs["token_correct"], correct)
    np.testing.assert_allclose(
        as_numpy(model.logits(outputs["query"])), logits, atol=TOLERANCE
    )


def test_weights_scale_each_target_and_default_to_one():
    model, features = pretrainer(), labelled()
    expected, _ = loss_by_hand(model, features)
    del features["target_weights"]
    assert abs(float(model(features)["loss"]) - expected.mean()) < TOLERANCE
    one = np.zeros((B, P), "int32")
    one[1, 3] = 1
    loss = float(model({**features, "target_weights": one})["loss"])
    assert abs(loss - expected[1, 3]) < TOLERANCE


def test_the_sums_are_those_of_the_loss():
    model, features = pretrainer(), labelled()
    outputs = as_numpy(model(features))
    loss, metrics, weight = as_numpy(model.loss_sums(outputs, features))
    weights = features["target_weights"]
    assert abs(weight - weights.sum()) < TOLERANCE
    assert abs(loss / weight - outputs["loss"]) < TOLERANCE
    assert metrics["loss"] == loss
    correct = (outputs["token_correct"] * weights).sum()
    assert abs(metrics["accuracy"] - correct) < TOLERANCE
    assert tuple(metrics) == model.metric_names == ("loss", "accuracy")


def test_a_batch_without_weight_has_no_loss():
    none = {**labelled(), "target_weights": np.zeros((B, P), "float32")}
    assert float(pretrainer()(none)["loss"]) == 0


def test_compact_and_literal_features_give_the_same_outputs():
    for memory_length in (0, M):
        model = pretrainer(memory_length=memory_length)
        features = labelled(memory_length=memory_length)
        outputs = model(features), model(literal(features))
        assert largest_difference(*outputs) == 0


def test_labels_without_their_places_are_refused():
    model, features = pretrainer(), labelled()
    del features["target_positions"]
    for training in (False, True):
        with pytest.raises(ValueError, match="need `target_positions` or `ta"):
            model(features, training=training)


def test_evaluate_gives_accuracy_and_bits_by_target_weight():
    model = pretrainer()
    made = [labelled(seed) for seed in range(3)]
    # One right answer with a weight that shows.
    _, logits = loss_by_hand(model, made[0])
    made[0]["target_ids"][1, 3] = logits[1, 3].argmax()
    made[0]["target_weights"][1, 3] = 5
    losses, hits, weights = [], [], []
    for features in made:
        token_loss, logits = loss_by_hand(model, features)
        losses.append(token_loss)
        hits.append(logits.argmax(-1) == features["target_ids"])
        weights.append(features["target_weights"])
    model.compile(jit_compile=False, run_eagerly=True)
    result = model.evaluate(dataset(*made), verbose=0, return_dict=True)
    bits = np.average(losses, weights=weights) / np.log(2)
    assert abs(result["bits_per_token"] - bits) < TOLERANCE
    accuracy = np.average(hits, weights=weights)
    assert 0 < accuracy < 1
    assert abs(result["accuracy"] - accuracy) < TOLERANCE


def test_a_keras_file_gives_the_same_bits(tmp_path):
    model, features = pretrainer(memory_length=M, reuse_length=3), labelled()
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert again.config == model.config
    assert largest_difference(again(features), model(features)) == 0


def test_a_trained_model_goes_on_from_its_keras_file(tmp_path):
    def compiled(model):
        optimizer = keras.optimizers.SGD(0.1, momentum=0.9)
        model.compile(optimizer, jit_compile=False, run_eagerly=True)
        return model

    model = compiled(pretrainer(dropout=0.0, attention_dropout=0.0))
    model.fit(dataset(labelled(0), labelled(1)), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    again.jit_compile, again.run_eagerly = False, True
    # The same weights with an optimizer that forgot its momentum.
    fresh = keras.models.load_model(tmp_path / "model.keras", compile=False)
    features = labelled()
    assert largest_difference(again(features), model(features)) == 0
    for each in (model, again, compiled(fresh)):
        each.fit(dataset(labelled(2)), verbose=0)
    assert largest_difference(again(features), model(features)) < TOLERANCE
    assert largest_difference(fresh(features), model(features)) > 1e-3


def test_mixed_bfloat16_keeps_weights_and_loss_in_float32():
    features = labelled()
    mixed, exact = pretrainer("mixed_bfloat16"), pretrainer()
    outputs = mixed(features)
    dtypes = {
        name: keras.backend.standardize_dtype(value.dtype)
        for name, value in outputs.items()
    }
    assert dtypes["query"] == dtypes["content"] == "bfloat16"
    assert dtypes["loss"] == dtypes["token_loss"] == "float32"
    assert {w.dtype for w in mixed.trainable_weights} == {"float32"}
    # bfloat16 keeps 8 bits, a relative 0.4%, of each rounded value.
    difference = float(outputs["loss"]) - float(exact(features)["loss"])
    assert 0 < abs(difference) < 0.1


def test_every_weight_learns_from_the_loss():
    model = pretrainer(memory_length=M)
    with tf.GradientTape() as tape:
        loss = model(labelled(memory_length=M))["loss"]
    variables = [v.value for v in model.trainable_variables]
    for variable, gradient in zip(
        model.trainable_variables, tape.gradient(loss, variables), strict=True
    ):
        assert gradient is not None, variable.path
        largest = np.abs(tf.convert_to_tensor(gradient).numpy()).max()
        assert largest > 1e-6, variable.path


def test_the_first_objective_has_its_weight():
    """In the call and in a training run, as in `fit`; and in files."""

    class Heavier(Permutation):
        name = "heavier"
        weight = 2.0

    features = labelled()
    plain = pretrainer()
    model = XLNetPretrainer(plain.backbone, objective=Heavier())
    model.head.bias.assign(plain.head.bias)
    expected = 2 * as_numpy(plain(features)["loss"])
    outputs = model(features)
    assert as_numpy(outputs["loss"]) == pytest.approx(expected, rel=1e-6)
    loss, _, weight = model.loss_sums(outputs, features)
    assert as_numpy(loss / weight) == pytest.approx(expected, rel=1e-6)
    assert model.get_config()["objective"] == [{"name": "heavier"}]


def test_a_name_of_another_objective_is_warned_of():
    """A file would be loaded as that one."""

    class Heavier(Permutation):
        weight = 2.0

    model = XLNetPretrainer(pretrainer().backbone, objective=Heavier())
    with pytest.warns(UserWarning, match="Heavier has the name of Permutation"):
        model.get_config()


def test_one_objective_predicts_tokens():
    with pytest.raises(ValueError, match="one objective that predicts tokens"):
        XLNetPretrainer(
            pretrainer().backbone, objective=["permutation", "masked"]
        )


def test_weights_are_one_for_each_target():
    """Others would be spread over all targets, and counted as a few."""
    model, features = pretrainer(), labelled()
    rows, targets = features["target_ids"].shape
    for shape in ((rows, 1), (targets,), (rows, targets + 1)):
        features["target_weights"] = np.ones(shape, "float32")
        with pytest.raises(ValueError, match=r"one for each target, \[B, P\]"):
            model(features)
