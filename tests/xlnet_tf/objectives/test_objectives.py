"""Objectives by name, in a list, and one of the user's own."""

import keras
import numpy as np
import pytest
from keras import ops

from tests.support.oracle import largest_difference
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf import XLNetPretrainer
from xlnet_tf import objectives
from xlnet_tf.objectives import NextSentence
from xlnet_tf.objectives import Objective
from xlnet_tf.objectives import Permutation
from xlnet_tf.objectives.objective import LossTerms
from xlnet_tf.objectives.pretrainer import make_objectives


def batch():
    features = with_targets(small_features())
    return {**features, "is_next": np.array([True, False, True])}


def pretrainer(*args, **kwargs):
    backbone = small_backbone(dropout=0.0, attention_dropout=0.0)
    return randomize(XLNetPretrainer(backbone, *args, **kwargs))


class FirstToken(Objective):
    """Predicts the first token of a row from its content."""

    name = "first_token"
    weight = 0.5
    streams = "both"
    reads_query = False
    metric_names = ("loss", "first_token_loss")

    def __init__(self, weight=0.5):
        self.weight = weight

    def features(self, batch):
        tokens = ops.convert_to_tensor(batch["token_ids"])
        hidden = ops.concatenate([tokens[:, :1] * 0, tokens[:, 1:]], axis=1)
        return {"token_ids": hidden}

    def has_labels(self, batch):
        return True

    def predict(self, model, outputs, batch, training=None):
        logits = model.logits(outputs["content"][:, :1])
        labels = ops.cast(batch["token_ids"], "int32")[:, :1]
        return {
            "first_token_loss": ops.sparse_categorical_crossentropy(
                labels, logits, from_logits=True
            )
        }

    def terms(self, outputs, batch):
        loss = outputs["first_token_loss"]
        metrics = {"loss": loss, "first_token_loss": loss}
        return LossTerms(loss, ops.ones_like(loss), metrics)

    def get_config(self):
        return {**super().get_config(), "weight": self.weight}


def test_names_dicts_and_objects_make_the_same_model():
    expected = pretrainer(next_sentence_weight=0.7)
    outputs = expected(batch())
    paths = [w.path.split("/", 1)[1] for w in expected.weights]
    assert any("next_sentence_head" in w.path for w in expected.weights)
    for objective in (
        [Permutation(), NextSentence(0.7)],
        ["permutation", {"name": "next_sentence", "weight": 0.7}],
    ):
        model = pretrainer(objective)
        assert [w.path.split("/", 1)[1] for w in model.weights] == paths
        assert largest_difference(model(batch()), outputs) == 0
        assert model.next_sentence_weight == 0.7
        assert model.get_config()["objective"] == [{"name": "permutation"}]
        assert model.get_config()["next_sentence_weight"] == 0.7
    model = pretrainer(
        [Permutation(), NextSentence(0.7)], next_sentence_weight=2
    )
    assert model.next_sentence_weight == 0.7
    alone = pretrainer("permutation")
    assert alone.next_sentence_weight == 0
    assert alone.metric_names == pretrainer().metric_names


def test_an_objective_of_ones_own(tmp_path, monkeypatch):
    monkeypatch.setitem(objectives.OBJECTIVES, "first_token", FirstToken)
    model, features = pretrainer(FirstToken()), batch()
    outputs = model(features, training=True)
    assert "query" not in outputs and "token_loss" not in outputs
    changed = {**features, "token_ids": features["token_ids"].copy()}
    changed["token_ids"][:, 0] = 3
    # It is hidden from the backbone.
    content = model(changed)["content"]
    assert largest_difference(content, outputs["content"]) < 1e-5
    loss, metrics, weight = model.loss_sums(outputs, features)
    assert abs(float(outputs["loss"]) - float(loss) / 3) < 1e-5
    assert float(weight) == 3 and set(metrics) == set(model.metric_names)
    model.compile(
        keras.optimizers.SGD(0.1), jit_compile=False, run_eagerly=True
    )
    model.fit({"token_ids": features["token_ids"]}, verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    assert isinstance(again.objectives[0], FirstToken)
    assert largest_difference(again(features), model(features)) == 0


def test_what_cannot_be_is_refused():
    for arguments, message in (
        (dict(objective="words"), "must be one of permutation, causal"),
        (dict(objective=[]), "must name one objective"),
        (dict(objective=["permutation"] * 2), "several different ones"),
        (dict(objective=NextSentence()), "needs another objective before it"),
        (dict(next_sentence_weight=-1), "next_sentence_weight=-1"),
    ):
        with pytest.raises(ValueError, match=message):
            make_objectives(**arguments)
    with pytest.raises(ValueError, match="must be positive.*weight=0"):
        NextSentence(weight=0)
