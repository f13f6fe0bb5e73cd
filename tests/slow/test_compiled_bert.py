"""BERT's backbone compiled: XLA, JAX, `fit` and exports."""

import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.conftest import ROOT
from tests.support.bert_models import WITH_BIAS
from tests.support.bert_models import bert_backbone
from tests.support.bert_models import bert_features
from tests.support.bert_models import pseudo_features
from tests.support.commands import python
from tests.support.gradients import compared
from tests.support.gradients import step
from tests.support.oracle import as_numpy
from xlnet_tf import XLNetTextClassifier

GOLDEN = ROOT / "tests" / "golden" / "peers" / "bert"
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


JAX = """
import jax, keras, numpy as np, sys, xlnet_tf
assert keras.backend.backend() == "jax"
model = xlnet_tf.XLNetPretrainer.from_preset(sys.argv[1])
expected = dict(np.load(sys.argv[1] + "/expected.npz"))
names = "token_ids", "segment_ids", "perm_mask", "position_ids"
logits = model.logits(model({x: expected[x] for x in names})["content"])
np.testing.assert_allclose(logits, expected["literal_logits"], 0, 1e-5)
assert "tensorflow" not in sys.modules
print("agrees")

config = xlnet_tf.BertConfig(
    vocabulary_size=31, num_layers=2, num_heads=2, hidden_dim=14,
    intermediate_dim=19, dropout=0.3, attention_dropout=0.2,
    relative_position_buckets=8, relative_position_max_distance=6,
)
model = xlnet_tf.BertBackbone(config, seed=1)
rng = np.random.default_rng(0)
batch = {
    "token_ids": rng.integers(0, 31, (2, 7)),
    "factorization_rank": rng.integers(-1, 3, (2, 7)),
    "dropout_seed": np.array([1, 2]),
}
def loss(weights):
    outputs, _ = model.stateless_call(
        weights, [v.value for v in model.non_trainable_variables], batch,
        training=True,
    )
    return (outputs["content"] ** 3).sum()
weights = [v.value for v in model.trainable_variables]
plain = jax.jit(jax.grad(loss))(weights)
model.rematerialize = True
again = jax.jit(jax.grad(lambda x: loss(x)))(weights)
for one, two in zip(plain, again, strict=True):
    assert np.abs(one).max() > 0
    # But for a bias of the keys, which a softmax does not change with.
    scale = max(np.abs(one).max(), 1)
    np.testing.assert_allclose(one / scale, two / scale, rtol=0, atol=1e-5)
print("recomputes")
"""


@pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)
def test_jax_agrees_and_recomputes():
    done = python("-c", JAX, GOLDEN, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")
    assert done.stdout.split() == ["agrees", "recomputes"]


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
