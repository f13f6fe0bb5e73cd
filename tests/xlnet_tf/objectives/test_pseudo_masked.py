"""UniLMv2: one pass equals a pass for every step, and nothing leaks."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.objectives.draws import hash_words
from data_pipeline.objectives.permutation import select_targets
from data_pipeline.objectives.pseudo_masked import draw_blocks
from tests.support.bert_models import SIZES
from tests.support.bert_models import bert_backbone
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.objectives import PseudoMasked

MASK, PSEUDO = 6, 8
B, T, P = 3, 11, 5
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
# float32 sums in another order, on losses of about 5
TOLERANCE = 1e-5


def pretrainer(losses="both", **overrides):
    backbone = bert_backbone(**{**NO_DROPOUT, **overrides})
    objective = PseudoMasked(losses)
    return randomize(XLNetPretrainer(backbone, objective=objective))


def batch(seed=0, rows=B):
    """Targets in blocks of one or two; the last of each row is padding."""
    random = np.random.default_rng(seed)
    ids = random.integers(9, 97, (rows, T)).astype("int32")
    positions = np.stack(
        [np.sort(random.permutation(T)[:P]) for _ in range(rows)]
    ).astype("int32")
    blocks = np.array([[1, 0, 0, 2, 0]] * rows, "int32")
    blocks[:, :4] = np.stack([random.permutation(b) for b in blocks[:, :4]])
    weights = np.array([[1, 1, 1, 0.5, 0]] * rows, "float32")
    corrupted = ids.copy()
    np.put_along_axis(corrupted, positions[:, :4], MASK, axis=1)
    corrupted[0, positions[0, 0]] = ids[0, positions[0, 0]]  # one that stays
    return {
        "token_ids": corrupted,
        "segment_ids": random.integers(0, 2, (rows, T)).astype("int32"),
        "target_positions": positions,
        "target_ids": np.take_along_axis(ids, positions, axis=1),
        "target_weights": weights,
        "target_blocks": blocks,
    }


def naive_losses(model, features, row):
    """(autoencoding, partially autoregressive) [P] by a pass for each step.

    The pass of a step has the text, the true tokens of the steps before it
    and the [P] of its own, each pair at the position it stands for; all see
    what was there before them.
    """
    text = {k: v[row] for k, v in features.items()}
    real = text["target_weights"] > 0

    def losses(ids, rank, positions, rows, labels):
        outputs = model.backbone(
            {
                "token_ids": ids[None],
                "position_ids": positions[None],
                "segment_ids": text["segment_ids"][positions][None],
                "factorization_rank": rank[None],
            }
        )
        logits = as_numpy(model.logits(outputs["content"]))[0, rows]
        logits = logits.astype("float64")
        log_sum = np.log(np.exp(logits).sum(-1))
        return log_sum - logits[np.arange(len(labels)), labels]

    place = np.arange(T)
    first = losses(
        text["token_ids"],
        np.full(T, -1),
        place,
        text["target_positions"],
        text["target_ids"],
    )
    second = np.zeros(P)
    blocks = text["target_blocks"]
    for step in range(blocks[real].max() + 1):
        before = np.flatnonzero(real & (blocks < step))
        now = np.flatnonzero(real & (blocks == step))
        ids = [text["token_ids"], text["target_ids"][before]]
        positions = [place, text["target_positions"][before]]
        ids.append(np.full(len(now), PSEUDO))
        positions.append(text["target_positions"][now])
        rank = [np.full(T, -1), blocks[before], np.full(len(now), step)]
        rows = T + len(before) + np.arange(len(now))
        second[now] = losses(
            np.concatenate(ids),
            np.concatenate(rank),
            np.concatenate(positions),
            rows,
            text["target_ids"][now],
        )
    return first, second


def test_one_pass_equals_a_pass_for_every_step():
    for overrides in ({}, {"relative_position_buckets": 8}):
        model, features = pretrainer(**overrides), batch()
        outputs = as_numpy(model(features))
        real = features["target_weights"] > 0
        for row in range(B):
            first, second = naive_losses(model, features, row)
            for name, expected in (
                ("autoencoding_loss", first),
                ("partially_autoregressive_loss", second),
                ("token_loss", first + second),
            ):
                np.testing.assert_allclose(
                    outputs[name][row][real[row]],
                    expected[real[row]],
                    rtol=0,
                    atol=TOLERANCE,
                )
        weights = features["target_weights"]
        mean = (outputs["token_loss"] * weights).sum() / weights.sum()
        assert abs(outputs["loss"] - mean) < TOLERANCE


def appended_gradients(model, features):
    """d loss of row r / d embedding of the appended tokens j, [2, P, B, 2P].

    First of autoencoding, then of the partially autoregressive losses.
    """
    backbone, tables = model.backbone, []
    original = backbone.token_embedding.call

    def call(token_ids):
        if not tables:
            tables.append(tf.Variable(original(token_ids)))
        return tf.identity(tables[0])

    model(features)  # the shapes
    backbone.token_embedding.call = call
    names = ("autoencoding_loss", "partially_autoregressive_loss")
    try:
        with tf.GradientTape(persistent=True) as tape:
            outputs = model(features)
            sums = [
                [tf.reduce_sum(x) for x in tf.unstack(outputs[name], axis=1)]
                for name in names
            ]
    finally:
        backbone.token_embedding.call = original
    found = [
        [np.abs(tape.gradient(x, tables[0])).max(-1) for x in of_name]
        for of_name in sums
    ]
    return np.array(found)[..., T:]


def drawn(rows, goal=4):
    """A batch of different factorizations as they are drawn for training."""
    features = batch(seed=3, rows=rows)
    state = hash_words(3, tf.range(2 * rows, dtype=tf.int64))
    steps = draw_blocks(state, tf.zeros([2 * rows, T], tf.bool), goal)
    different = np.random.default_rng(0).permutation(np.unique(steps, axis=0))
    steps = tf.constant(different[:rows])
    ids = features["token_ids"]
    positions, target_ids, weights = select_targets(
        tf.constant(ids), steps >= 0, goal + 5
    )
    blocks = tf.gather(steps, positions, batch_dims=1)
    return {
        **features,
        "token_ids": np.where(steps >= 0, MASK, ids),
        "target_positions": positions.numpy(),
        "target_ids": target_ids.numpy(),
        "target_weights": weights.numpy(),
        "target_blocks": tf.where(weights > 0, blocks, 0).numpy(),
    }


def test_nothing_leaks():
    """200 factorizations: who sees whose true token, through two layers."""
    model = pretrainer()
    features = drawn(rows=200)
    found = appended_gradients(model, features) > 0  # [2, P, rows, 2P]
    P = features["target_ids"].shape[1]
    pseudo, true = found[..., :P], found[..., P:]
    real = features["target_weights"] > 0
    blocks = features["target_blocks"]
    # The rows of the text see nothing that is appended.
    assert not found[0].any()
    for p in range(P):
        mine = real[:, p]
        same = real & (blocks == blocks[:, p : p + 1])
        before = real & (blocks < blocks[:, p : p + 1])
        np.testing.assert_array_equal(pseudo[1, p][mine], same[mine])
        np.testing.assert_array_equal(true[1, p][mine], before[mine])
        assert not true[1, p][mine, p].any()  # never itself


def test_one_of_the_losses_alone():
    features = batch()
    both = as_numpy(pretrainer()(features))
    for losses in ("autoencoding", "partially_autoregressive"):
        model = pretrainer(losses)
        outputs = as_numpy(model(features))
        expected = both[f"{losses}_loss"]
        np.testing.assert_allclose(outputs["token_loss"], expected, 0, 1e-6)
        again = type(model).from_config(model.get_config())
        assert again.objectives[0].losses == losses
        _, metrics, _ = model.loss_sums(outputs, features)
        # The other loss is not reported, which would be as a perfect 0.
        assert set(metrics) == {"loss", "accuracy", f"{losses}_loss"}
        assert float(metrics[f"{losses}_loss"]) == float(metrics["loss"]) > 0


def test_padding_on_the_left_changes_nothing():
    """Positions count real tokens; or they are those that are given."""
    model, features = pretrainer(), batch()
    expected = as_numpy(model(features)["token_loss"])
    shifted = dict(features)
    for name in ("token_ids", "segment_ids"):
        shifted[name] = np.pad(features[name], [[0, 0], [2, 0]])
    shifted["padding_mask"] = np.pad(np.ones((B, T), "int32"), [[0, 0], [2, 0]])
    shifted["target_positions"] = features["target_positions"] + 2
    real = features["target_weights"] > 0
    found = as_numpy(model(shifted)["token_loss"])
    np.testing.assert_allclose(found[real], expected[real], 0, TOLERANCE)
    place = np.tile(np.arange(T, dtype="int32")[::-1], (B, 1))
    other = as_numpy(model({**features, "position_ids": place})["token_loss"])
    assert np.abs(other - expected)[real].min() > 1e-4


def test_one_batch_is_learnt():
    model, features = pretrainer(), batch(rows=2)
    model.compile(keras.optimizers.Adam(1e-2), jit_compile=False)
    assert float(model(features)["loss"]) > 6
    # Ten steps an epoch: an iterator takes longer than a step.
    batches = tf.data.Dataset.from_tensors(features).repeat(10)
    history = model.fit(batches, epochs=5, verbose=0).history
    assert 0.3 > history["loss"][-1]
    assert history["accuracy"][-1] == 1


def test_blanks_are_filled_in_by_the_text():
    """Without blocks nothing is appended, and the head reads the text."""
    model, features = pretrainer(), batch()
    blanks = {
        k: features[k] for k in ("token_ids", "segment_ids", "target_positions")
    }
    content = model(blanks)["content"]
    assert content.shape == (B, T, SIZES["hidden_dim"])
    rows = model.objectives[0].rows({"content": content}, blanks)
    logits = as_numpy(model.logits(rows))
    expected = as_numpy(model(features)["autoencoding_loss"])
    log_sum = np.log(np.exp(logits.astype("float64")).sum(-1))
    labels = features["target_ids"][:, :, None]
    found = log_sum - np.take_along_axis(logits, labels, axis=-1)[:, :, 0]
    np.testing.assert_allclose(found, expected, rtol=0, atol=TOLERANCE)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="backbone that takes `position_ids`"):
        XLNetPretrainer(small_backbone(), objective="pseudo_masked")
    with pytest.raises(ValueError, match="`pseudo_mask_id` must be a token"):
        XLNetPretrainer(
            bert_backbone(), objective=PseudoMasked(pseudo_mask_id=97)
        )
    with pytest.raises(ValueError, match="`losses` must be one of both"):
        PseudoMasked("all")
    features = batch()
    del features["target_blocks"]
    with pytest.raises(ValueError, match="need `target_blocks`"):
        pretrainer()(features)
