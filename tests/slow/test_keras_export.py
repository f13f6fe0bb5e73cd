"""`export` of Keras: every model, without a signature, at any B and T."""

import keras
import numpy as np
import tensorflow as tf

import xlnet_tf
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_backbone


def test_every_model_is_exported_by_default(tmp_path):
    backbone = small_backbone(num_layers=1, memory_length=5)
    for model in (
        backbone,
        xlnet_tf.XLNetTextClassifier(backbone, 2),
        xlnet_tf.XLNetTextClassifier(backbone, 2, segment_length=3),
        xlnet_tf.XLNetTokenClassifier(backbone, 2),
        xlnet_tf.XLNetPretrainer(backbone),
        xlnet_tf.XLNetRanker(backbone),
        xlnet_tf.XLNetQuestionAnswering(backbone, num_starts=2, num_ends=2),
        xlnet_tf.XLNetSpanClassifier(backbone),
    ):
        path = str(tmp_path / model.name)
        model.export(path, verbose=False)
        loaded = tf.saved_model.load(path)  # it owns the variables
        for rows, tokens in ((2, 7), (3, 4)):
            sizes = (rows, tokens, 5)  # of a ranker [B, O, T]
            features = {
                name: np.ones(sizes[: len(spec.shape)], "int32")
                for name, spec in model.input_signature().items()
            }
            # No two are equal, so that no scores tie.
            ids = np.arange(9, 9 + features["token_ids"].size, dtype="int32")
            features["token_ids"] = ids.reshape(features["token_ids"].shape)
            found, expected = loaded.serve(features), model(features)
            if isinstance(expected, dict):
                assert set(expected) - set(found) <= {"memories", "memory_mask"}
                expected = {name: expected[name] for name in found}
            difference = largest_difference(as_numpy(found), expected)
            assert difference < 1e-5, model.name


def test_a_trained_model_is_exported_by_default(tmp_path):
    model = xlnet_tf.XLNetTextClassifier(small_backbone(num_layers=1), 2)
    ids = np.arange(9, 23, dtype="int32").reshape(2, 7)
    features = {"token_ids": ids, "segment_ids": 0 * ids}
    features["padding_mask"] = np.ones_like(ids)
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy"],
    )
    model.fit(features, np.array([0, 1]), verbose=0)
    model.export(tmp_path / "model", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "model"))
    features = {k: features[k] for k in model.input_signature()}
    found, expected = loaded.serve(features), model(features)
    assert largest_difference(as_numpy(found), expected) < 1e-5
