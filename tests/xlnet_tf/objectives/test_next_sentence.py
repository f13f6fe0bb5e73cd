"""Next-sentence prediction beside the permutation language model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.base import command_line
from tests.support.oracle import B
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf import XLNetPretrainer
from xlnet_tf import convert

# float32 sums in another order, on losses of about 5
TOLERANCE = 1e-5
WEIGHT = 0.7
IS_NEXT = np.array([True, False, True])


def pretrainer(weight=WEIGHT, seed=3, **overrides):
    model = XLNetPretrainer(
        small_backbone(dropout=0.0, attention_dropout=0.0, **overrides),
        next_sentence_weight=weight,
    )
    if weight:
        random = np.random.default_rng(seed)
        for variable in model.next_sentence_head.trainable_weights:
            variable.assign(random.normal(size=variable.shape))
    return model


def labelled(seed=0):
    features = with_targets(small_features(seed), seed)
    return {**features, "is_next": np.roll(IS_NEXT, seed)}


def dataset(*made):
    stacked = {name: np.stack([x[name] for x in made]) for name in made[0]}
    return tf.data.Dataset.from_tensor_slices(stacked)


def by_hand(model, features):
    """float64 [B] losses and bool [B] hits, from the class token, the last."""
    last = as_numpy(model(features)["content"])[:, -1].astype("float64")
    summary, kernel_bias, logits, logits_bias = (
        as_numpy(variable).astype("float64")
        for variable in model.next_sentence_head.trainable_weights
    )
    scores = np.tanh(last @ summary + kernel_bias) @ logits + logits_bias
    true = features["is_next"].astype(int)
    loss = np.log(np.exp(scores).sum(-1)) - scores[np.arange(B), true]
    return loss, scores.argmax(-1) == true


def test_the_loss_equals_that_by_hand():
    model, features = pretrainer(), labelled()
    loss, hits = by_hand(model, features)
    outputs = as_numpy(model(features))
    np.testing.assert_allclose(
        outputs["next_sentence_loss"], loss, atol=TOLERANCE
    )
    np.testing.assert_array_equal(outputs["next_sentence_correct"], hits)
    # A row weighs as much as its targets together.
    weights = features["target_weights"]
    rows = weights.sum(1)
    assert len(set(rows.tolist())) == B
    tokens = (outputs["token_loss"] * weights).sum() / weights.sum()
    expected = tokens + WEIGHT * (loss * rows).sum() / rows.sum()
    assert abs(outputs["loss"] - expected) < TOLERANCE
    objective, metrics, total = as_numpy(model.loss_sums(outputs, features))
    assert abs(total - weights.sum()) < TOLERANCE
    assert abs(objective / total - expected) < TOLERANCE
    assert abs(metrics["loss"] / total - tokens) < TOLERANCE
    accuracy = (hits * rows).sum() / rows.sum()
    assert 0 < accuracy < 1
    assert abs(metrics["next_sentence_accuracy"] / total - accuracy) < TOLERANCE


def test_without_a_weight_there_is_none_of_it():
    model, features = pretrainer(0.0), labelled()
    outputs = model(features)
    assert not [name for name in outputs if "next" in name]
    assert model.metric_names == ("loss", "accuracy")
    del features["is_next"]
    assert float(model(features)["loss"]) == float(outputs["loss"])


def test_a_missing_label_is_named_in_training_and_left_out_otherwise():
    model, features = pretrainer(), labelled()
    tokens = model(features)["token_loss"]
    del features["is_next"]
    with pytest.raises(ValueError, match="needs the feature `is_next`"):
        model(features, training=True)
    outputs = as_numpy(model(features))
    assert largest_difference(outputs["token_loss"], tokens) == 0
    weights = features["target_weights"]
    mean = (outputs["token_loss"] * weights).sum() / weights.sum()
    assert abs(outputs["loss"] - mean) < TOLERANCE
    model.compile(jit_compile=False, run_eagerly=True)
    result = model.evaluate(dataset(features), verbose=0, return_dict=True)
    assert set(result) == {"loss", "accuracy", "bits_per_token"}


def test_fit_and_evaluate_have_the_loss_of_the_call():
    model, made = pretrainer(), [labelled(seed) for seed in range(3)]
    losses = [float(model(features)["loss"]) for features in made]
    hits, rows = [], []
    for features in made:
        hits.append(by_hand(model, features)[1])
        rows.append(features["target_weights"].sum(1))
    model.compile(
        keras.optimizers.SGD(0.0), jit_compile=False, run_eagerly=True
    )
    result = model.evaluate(dataset(*made), verbose=0, return_dict=True)
    assert abs(result["loss"] - np.mean(losses)) < TOLERANCE
    accuracy = np.average(hits, weights=rows)
    assert 0 < accuracy < 1
    assert abs(result["next_sentence_accuracy"] - accuracy) < TOLERANCE
    history = model.fit(dataset(*made), verbose=0).history
    assert abs(history["loss"][0] - np.mean(losses)) < TOLERANCE


def test_every_weight_learns_from_it():
    model, features = pretrainer(), labelled()
    variables = [v.value for v in model.trainable_variables]
    with tf.GradientTape(persistent=True) as tape:
        outputs = model(features)
        objective, metrics, _ = model.loss_sums(outputs, features)
        of_rows = objective - metrics["loss"]
    for target in (objective, of_rows):
        for variable, gradient in zip(
            model.trainable_variables,
            tape.gradient(target, variables),
            strict=True,
        ):
            # What predicts tokens alone has no part in the class token.
            if target is of_rows and variable.path.endswith(
                ("head/bias", "mask_embedding")
            ):
                assert gradient is None or not np.any(gradient)
                continue
            assert gradient is not None, variable.path
            largest = np.abs(tf.convert_to_tensor(gradient).numpy()).max()
            assert largest > 1e-6, variable.path


def test_files_keep_its_head(tmp_path):
    model, features = pretrainer(), labelled()
    model.save(tmp_path / "model.keras")
    model.save_to_preset(tmp_path / "preset")
    for again in (
        keras.models.load_model(tmp_path / "model.keras"),
        XLNetPretrainer.from_preset(tmp_path / "preset"),
    ):
        assert again.next_sentence_weight == WEIGHT
        assert largest_difference(again(features), model(features)) == 0


def test_presets_are_read_with_or_without_its_head(tmp_path):
    features = labelled()
    for saved, read in ((0.0, WEIGHT), (WEIGHT, 0.0)):
        source = pretrainer(saved)
        source.head.bias.assign(np.arange(97) / 97)
        source.save_to_preset(tmp_path / str(saved))
        model = XLNetPretrainer.from_preset(
            tmp_path / str(saved), next_sentence_weight=read
        )
        expected, outputs = source(features), model(features)
        for name in ("query", "token_loss"):
            assert largest_difference(outputs[name], expected[name]) == 0
        if read:
            assert np.ptp(as_numpy(outputs["next_sentence_loss"])) > 0
        else:
            assert "next_sentence_loss" not in outputs
    masked = XLNetPretrainer(small_backbone(), "masked", next_sentence_weight=1)
    masked.save_to_preset(tmp_path / "masked")
    model = XLNetPretrainer.from_preset(
        tmp_path / "masked", next_sentence_weight=0.0
    )
    assert [x.name for x in model.objectives] == ["masked"]


def test_other_formats_say_that_they_leave_it_out(tmp_path, capsys):
    # Hugging Face's heads share the width of the model.
    model, features = pretrainer(num_heads=2, head_dim=19), labelled()
    model.save_to_preset(tmp_path / "ours")
    expected = model(features)["token_loss"]
    for form in ("hf", "tf1"):
        argv = ["--from", tmp_path / "ours", "--to", tmp_path / form]
        argv = [str(x) for x in [*argv, "--format", form]]
        assert command_line.run(convert.main, argv) == 0
        said = capsys.readouterr().err
        assert "no place for the head of next-sentence" in said
        again = XLNetPretrainer.from_preset(tmp_path / form)
        found = again(features)["token_loss"]
        assert largest_difference(found, expected) < TOLERANCE
