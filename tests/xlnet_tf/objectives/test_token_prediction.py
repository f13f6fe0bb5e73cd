"""Causal and masked language models: who is seen, memory, losses, learning."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.oracle import SIZES
from tests.support.oracle import B
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.objectives import Causal
from xlnet_tf.objectives import Masked
from xlnet_tf.objectives import Permutation

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
# float32 sums in another order, on losses of about 5
TOLERANCE = 1e-5


def pretrainer(objective, **overrides):
    backbone = small_backbone(**{**NO_DROPOUT, **overrides})
    return randomize(XLNetPretrainer(backbone, objective=objective))


def causal(**overrides):
    return pretrainer(Causal(), attention_type="causal", **overrides)


def tokens(batch=B, length=T + 1, seed=0):
    random = np.random.default_rng(seed)
    return random.integers(9, 97, (batch, length)).astype("int32")


def next_tokens(ids):
    return {"token_ids": ids[:, :-1], "target_ids": ids[:, 1:]}


def hidden(ids, seed=0):
    """Features of `Masked`: four positions of each row, one of them padding."""
    random = np.random.default_rng(seed)
    positions = np.stack(
        [np.sort(random.permutation(T)[:4]) for _ in range(len(ids))]
    ).astype("int32")
    corrupted = ids[:, :T].copy()
    np.put_along_axis(corrupted, positions, 6, axis=1)
    return {
        "token_ids": corrupted,
        "target_positions": positions,
        "target_ids": np.take_along_axis(ids, positions, axis=1),
        "target_weights": np.array([[1, 1, 0.5, 0]] * len(ids), "float32"),
    }


def losses_by_hand(model, stream, target_ids):
    table = as_numpy(model.backbone.token_embedding.embeddings)
    logits = as_numpy(stream).astype("float64") @ table.T.astype("float64")
    logits += as_numpy(model.head.bias)
    chosen = np.take_along_axis(logits, target_ids[:, :, None], axis=-1)
    return np.log(np.exp(logits).sum(-1)) - chosen[:, :, 0]


def test_two_segments_with_memory_equal_one_long_segment():
    ids = tokens(length=2 * T + 1)
    whole = causal()
    expected = whole(next_tokens(ids))["token_loss"]
    model = causal(memory_length=T)
    model.set_weights(whole.get_weights())
    first = model({**next_tokens(ids[:, : T + 1])})
    second = model({**next_tokens(ids[:, T:]), "memories": first["memories"]})
    found = np.concatenate([first["token_loss"], second["token_loss"]], 1)
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)
    alone = model(next_tokens(ids[:, T:]))["token_loss"]
    assert np.abs(alone - second["token_loss"]).max() > 1e-2


def test_a_longer_memory_than_in_training():
    """The weights do not depend on the length; an infinite memory is exact."""
    ids = tokens(length=3 * 5 + 1)
    expected = causal()(next_tokens(ids))["token_loss"]
    model = causal(memory_length=10)
    memories, found = None, []
    for begin in (0, 5, 10):
        segment = next_tokens(ids[:, begin : begin + 6])
        outputs = model({**segment, "memories": memories})
        memories = outputs["memories"]
        found.append(outputs["token_loss"])
    np.testing.assert_allclose(
        np.concatenate(found, 1), expected, rtol=0, atol=TOLERANCE
    )


def test_same_length_limits_what_a_token_sees():
    ids, other = tokens(), tokens(seed=1)
    changed = np.concatenate([other[:, :1], ids[:, 1:]], axis=1)
    memories = tuple(
        np.zeros((B, 3, SIZES["hidden_dim"]), "float32")
        for _ in range(SIZES["num_layers"])
    )
    for same_length, last_of_first in ((False, T), (True, 1 + 2 * 3)):
        model = causal(memory_length=3, same_length=same_length)
        loss, after = (
            model({**next_tokens(x), "memories": memories})["token_loss"]
            for x in (ids, changed)
        )
        differs = np.abs(loss - after).max(0) > 1e-6
        # Through L = 2 layers, of which each looks back over M = 3 tokens.
        assert differs[:last_of_first].all()
        assert not differs[last_of_first:].any()


def gradients(model, features, num_outputs):
    """|d token_loss[:, p] / d embedding of token j|, [outputs, B, T].

    The table that scores the words is another one.
    """
    backbone = model.backbone
    table = tf.constant(backbone.token_embedding.embeddings)
    content = tf.Variable(tf.gather(table, features["token_ids"]))
    original = backbone.token_embedding.call
    backbone.token_embedding.call = lambda token_ids: tf.identity(content)
    try:
        with tf.GradientTape(persistent=True) as tape:
            loss = model(features)["token_loss"]
            outputs = [tf.reduce_sum(loss[:, p]) for p in range(num_outputs)]
    finally:
        backbone.token_embedding.call = original
    return np.stack(
        [np.abs(tape.gradient(x, content)).max(-1) for x in outputs]
    )


def test_a_causal_model_sees_no_later_token():
    found = gradients(causal(), next_tokens(tokens()), T)
    token, key = np.arange(T)[:, None], np.arange(T)
    np.testing.assert_array_equal(
        found > 0, np.repeat((key <= token)[:, None], B, axis=1)
    )


def test_a_masked_model_sees_all_tokens_that_are_given():
    """Those at the targets too: what stands there is not the true token."""
    features = hidden(tokens())
    found = gradients(pretrainer(Masked()), features, 4)
    assert (found > 0).all()
    true = features["target_ids"]
    at = np.take_along_axis(
        features["token_ids"], features["target_positions"], axis=1
    )
    assert (at != true).all()


def test_memory_tells_a_masked_model_nothing_of_the_next_record():
    """With the ranks of `MaskedReader`, and not without them."""
    reuse, ids = T // 2, tokens(length=T)
    changed = ids.copy()
    changed[:, reuse + 1] = 9 + (changed[:, reuse + 1] - 8) % 80
    assert (changed != ids).any(axis=1).all()
    model = pretrainer(Masked(), memory_length=T, reuse_length=reuse)
    rank = np.where(np.arange(T) < reuse, -1, 0).astype("int32")
    # The record after: what was new text is its reused half.
    after = hidden(np.concatenate([ids[:, reuse:], tokens(seed=1)], axis=1))
    for ranks, is_hidden in (
        ({"factorization_rank": np.tile(rank, (B, 1))}, True),
        ({}, False),
    ):
        losses = []
        for before in (ids, changed):
            outputs = model({"token_ids": before, **ranks})
            memories = {"memories": outputs["memories"]}
            losses.append(model({**after, **memories, **ranks})["token_loss"])
        difference = np.abs(losses[0] - losses[1]).max()
        assert difference < 1e-6 if is_hidden else difference > 1e-5


def test_losses_by_hand():
    ids = tokens()
    for objective, model, features in (
        ("causal", causal(), next_tokens(ids)),
        ("masked", pretrainer(Masked()), hidden(ids)),
    ):
        outputs = as_numpy(model(features))
        stream = outputs["content"]
        if objective == "masked":
            positions = features["target_positions"][:, :, None]
            stream = np.take_along_axis(stream, positions, axis=1)
        expected = losses_by_hand(model, stream, features["target_ids"])
        np.testing.assert_allclose(
            outputs["token_loss"], expected, rtol=0, atol=TOLERANCE
        )
        weights = features.get("target_weights", np.ones_like(expected))
        mean = (expected * weights).sum() / weights.sum()
        assert abs(outputs["loss"] - mean) < TOLERANCE
        assert "query" not in outputs


def test_the_order_of_the_text_sees_what_a_causal_model_sees():
    """Their content streams agree; their query rows and losses need not."""
    ids = tokens()
    other, model = causal(), pretrainer(Permutation())
    expected = other(next_tokens(ids))["content"]
    model.set_weights(other.get_weights())
    order = np.tile(np.arange(T, dtype="int32"), (B, 1))
    features = {"token_ids": ids[:, :T], "factorization_rank": order}
    found = model(features)["content"]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_one_batch_is_learnt_and_nothing_idle_is_trained():
    ids = tokens(batch=2)
    for model, features in (
        (causal(), next_tokens(ids)),
        (pretrainer(Masked()), hidden(ids)),
    ):
        assert not model.reads_query
        names = {x.path.split("/")[-1] for x in model.trainable_variables}
        assert "mask_embedding" not in names
        model.compile(keras.optimizers.Adam(1e-2), jit_compile=False)
        assert float(model(features)["loss"]) > 3
        # Ten steps an epoch: an iterator takes longer than a step.
        batches = tf.data.Dataset.from_tensors(features).repeat(10)
        history = model.fit(batches, epochs=4, verbose=0).history
        assert 0.2 > history["loss"][-1]
        assert history["bits_per_token"][-1] < 0.3
        assert history["accuracy"][-1] == 1


def test_files_keep_the_objective(tmp_path):
    for model in (causal(), pretrainer(Masked())):
        name = model.objectives[0].name
        model.save_to_preset(tmp_path / name)
        again = XLNetPretrainer.from_preset(tmp_path / name)
        assert [x.name for x in again.objectives] == [name]
        assert again.config == model.config


def test_objectives_that_do_not_fit_the_backbone():
    for objective, attention_type in (
        (Causal(), "bidirectional"),
        (Masked(), "causal"),
    ):
        backbone = small_backbone(attention_type=attention_type)
        with pytest.raises(ValueError, match="needs a backbone with attention"):
            XLNetPretrainer(backbone, objective=objective)
    with pytest.raises(ValueError, match="`target_ids` need `target_positions"):
        pretrainer(Masked())(next_tokens(tokens()))
