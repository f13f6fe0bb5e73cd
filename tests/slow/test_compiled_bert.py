"""BERT's backbone compiled: XLA, `fit` and exports."""

import keras
import numpy as np
import tensorflow as tf

from tests.support.bert_models import WITH_BIAS
from tests.support.bert_models import bert_backbone
from tests.support.bert_models import bert_features
from tests.support.bert_models import pseudo_features
from tests.support.gradients import compared
from tests.support.gradients import step
from tests.support.oracle import as_numpy
from xlnet_tf import XLNetTextClassifier

SEED = np.array([3, 5], "int32")


def test_xla_gives_the_numbers_and_gradients_of_eager_mode():
    features = {**pseudo_features(), "dropout_seed": SEED}
    features = {k: tf.constant(v) for k, v in features.items()}
    for dtype, ways, tolerance in (
        ("float32", ("plain", "rematerialize"), 1e-4),
        ("mixed_bfloat16", ("rematerialize",), 0.1),
    ):
        backbone = bert_backbone(
            dtype=dtype, dropout=0.3, attention_dropout=0.2, **WITH_BIAS
        )
        outputs, gradients = step(backbone, features)
        for way in ways:
            backbone.rematerialize = way == "rematerialize"
            compiled = tf.function(
                lambda backbone=backbone: step(backbone, features),
                jit_compile=True,
            )
            found = compiled()
            compared(found[0], outputs, tolerance, f"{dtype} {way}")
            for variable, one, two in zip(
                backbone.trainable_variables, found[1], gradients, strict=True
            ):
                # A softmax does not change with a bias of the keys: rounding.
                if not variable.path.endswith("key_projection/bias"):
                    difference = tf.norm(one - two) / tf.norm(two)
                    assert difference < tolerance, (way, variable.path)


def test_a_classifier_learns_in_fit():
    features, labels = bert_features(batch=6), np.array([0, 1] * 3)
    backbone = bert_backbone(**WITH_BIAS)
    model = XLNetTextClassifier(backbone, num_classes=2, summary="first")
    model.compile(keras.optimizers.Adam(0.01))
    losses = model.fit(features, labels, epochs=15, verbose=0).history["loss"]
    assert losses[-1] < 0.5 * losses[0], losses


def test_an_export_answers_as_the_model(tmp_path):
    backbone, features = bert_backbone(**WITH_BIAS), bert_features()
    backbone.export(tmp_path / "export", verbose=False)
    served = tf.saved_model.load(str(tmp_path / "export"))
    for length in (11, 4):
        part = {k: tf.constant(v[:, :length]) for k, v in features.items()}
        found = served.serve(part)["content"]
        expected = as_numpy(backbone(part)["content"])
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
