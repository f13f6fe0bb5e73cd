"""`export` of Keras: any B and T, or in LiteRT given ones; every model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.bert_models import WITH_BIAS
from tests.support.bert_models import bert_backbone
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


def filled(model, batch, num_tokens):
    """Features of a model's signature, of these sizes; ids that differ."""
    random = np.random.default_rng(0)
    sizes = {2: (batch, num_tokens), 3: (batch, 2, num_tokens)}
    features = {
        name: np.ones(sizes[len(spec.shape)], "int32")
        for name, spec in model.input_signature().items()
    }
    ids = features["token_ids"]
    ids[...] = random.permutation(97)[: ids.size].reshape(ids.shape)
    features["segment_ids"][..., 1:4] = 0
    features["padding_mask"][..., :2] = 0
    return features


def models():
    """Every model that takes features of texts, of each backbone."""
    plain = small_backbone(num_layers=1)
    plain.attention_kernel = "plain"
    yield from (plain, small_backbone(num_layers=1, attention_type="causal"))
    for backbone in (
        small_backbone(num_layers=1),
        bert_backbone(num_layers=1, **WITH_BIAS),
    ):
        yield backbone
        yield xlnet_tf.XLNetTextClassifier(backbone, 2)
        yield xlnet_tf.XLNetTokenClassifier(backbone, 2)
        yield xlnet_tf.XLNetMultipleChoice(backbone)
        yield xlnet_tf.XLNetSpanClassifier(backbone)
        logits = keras.layers.Dense(2)(backbone.output["content"][:, -1])
        functional = keras.Model(backbone.input, logits)
        functional.input_signature = backbone.input_signature
        yield functional


def compared(model, features, found):
    """Fails if one of the outputs is none of those of the model."""
    expected = [as_numpy(x) for x in keras.tree.flatten(model(features))]
    assert len(found) == len(expected), model.name
    for one in found:
        near = [
            x
            for x in expected
            if x.shape == one.shape and np.abs(x - one).max() < 1e-4
        ]
        assert near, model.name


def test_models_run_in_litert(tmp_path):
    """At sizes that are known; without operations of TensorFlow itself."""
    litert = pytest.importorskip("ai_edge_litert.interpreter")
    for model in models():
        for batch, tokens in ((1, 7), (3, 11)):
            features = filled(model, batch, tokens)
            signature = {
                name: keras.InputSpec("int32", shape=x.shape, name=name)
                for name, x in features.items()
            }
            path = str(tmp_path / "model.tflite")
            model.export(
                path,
                format="litert",
                input_signature=[signature],
                verbose=False,
            )
            run = litert.Interpreter(path).get_signature_runner()
            compared(model, features, list(run(**features).values()))


# Keras gives NumPy 2 a name that tf2onnx needs.
@pytest.mark.filterwarnings("ignore:In the future `np.object`:FutureWarning")
def test_models_run_in_onnx_runtime(tmp_path):
    reason = "needs tf2onnx and onnxruntime, of the extra `onnx`"
    pytest.importorskip("tf2onnx", reason=reason)
    onnxruntime = pytest.importorskip("onnxruntime", reason=reason)
    for model in models():
        if isinstance(model, xlnet_tf.BertBackbone):
            break  # tf2onnx does not convert the GELU by erf of a BERT
        path = str(tmp_path / "model.onnx")
        model(filled(model, 1, 7))  # Keras refuses a functional one before
        model.export(path, format="onnx", verbose=False)
        session = onnxruntime.InferenceSession(path)
        for batch, tokens in ((1, 7), (3, 11)):
            features = filled(model, batch, tokens)
            compared(model, features, session.run(None, features))


def test_models_run_in_openvino(tmp_path):
    openvino = pytest.importorskip("openvino", reason="needs openvino")
    for number, model in enumerate(models()):
        path = tmp_path / str(number)
        model.export(path, verbose=False)
        exact = {"INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.Core().compile_model(path, "CPU", exact)
        for batch, tokens in ((1, 7), (3, 11)):
            features = filled(model, batch, tokens)
            given = {
                tensor: features[name]
                for tensor in compiled.inputs
                for name in features
                if name in tensor.get_any_name()
            }
            compared(model, features, list(compiled(given).values()))


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
