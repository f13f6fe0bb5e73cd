"""Precision, buckets and batch limits change shapes and bytes, not answers."""

import numpy as np
import pytest
import tensorflow as tf

from saved_models.settings import ExportSettings
from saved_models.signatures.serving_model import ForwardPass
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import ask
from tests.support.export_fixtures import check_equal
from tests.support.export_fixtures import check_fill_in
from tests.support.export_fixtures import log_probabilities
from tests.support.export_fixtures import module_of
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import shared_model

TEXTS = ("Ba co <mask> fi, 9.", "", "ba <mask> " * 9, "je ki", "fi <mask>")


@pytest.fixture(scope="module")
def plain():
    return module_of()


def recorded_shapes(module):
    """The shapes of ids that the backbone sees from now on."""
    backbone, shapes = module._served.backbone, []

    def record(features, **options):
        shapes.append(tuple(features["token_ids"].shape))
        return backbone(features, **options)

    module._served.backbone = record
    return shapes


def test_buckets(plain):
    module = module_of(seq_length_buckets=[8, 16, LENGTH])
    shapes = recorded_shapes(module)
    for name in ("fill_in", "embed"):
        for texts in (TEXTS, ["je"]):
            answer = ask(getattr(module, name), texts)
            check_equal(answer, ask(getattr(plain, name), texts))
    assert {length for _, length in shapes} == {8, LENGTH}
    # The requests that warm a server up have a text for each bucket.
    examples = module.signatures()["embed"].examples
    assert len(examples) == 4
    for example in examples[1:]:
        ask(module.embed, example["text"].tolist())
    assert {length for _, length in shapes} == {8, 16, LENGTH}
    ids = tf.fill([1, LENGTH + 1], 9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="longest bucket"):
        module.embed_ids(ids, ids * 0, ids)


def test_batches_of_a_limit(plain):
    for limit in (2, 9):
        module = module_of(max_batch=limit)
        shapes = recorded_shapes(module)
        check_equal(ask(module.embed, TEXTS), ask(plain.embed, TEXTS))
        assert max(rows for rows, _ in shapes if rows) <= limit


def test_batches_of_as_many_tokens():
    """Without a limit of rows, 4096 tokens: a power of two of rows."""
    forward = ForwardPass(ExportSettings(), {"token_ids": 0})

    def step(features):
        ids = features["token_ids"]
        rows = tf.shape(ids)[0]
        return {"rows": tf.fill([rows], rows), "first": ids[:, 0]}

    for rows, width, expected in (
        (9, 512, 8),
        (300, 512, 8),
        (8, 512, 8),
        (70, 64, 64),
        (40, 100, 32),
        (3, 5000, 1),
        (5000, 1, 4096),
        (2, 512, 2),
    ):
        ids = tf.reshape(tf.range(rows * width), [rows, width])
        found = forward(step, {"token_ids": ids})
        assert found["rows"].numpy().tolist() == [expected] * rows
        assert (found["first"] == ids[:, 0]).numpy().all()


def test_warm_up_rows_of_a_compiled_export():
    module = module_of(jit_compile=True, max_batch=6)
    for signature in module.signatures().values():
        rows = [
            len(next(iter(example.values()))) for example in signature.examples
        ]
        assert rows == [1, 2, 4, 6]


def test_bfloat16(plain):
    module = module_of(precision="bfloat16")
    weights = [v for v in module._model_variables if v.dtype.is_floating]
    assert {v.dtype for v in weights} == {tf.bfloat16}
    answer, expected = ask(module.embed, TEXTS), ask(plain.embed, TEXTS)
    check_equal(answer, expected, atol=0.3)
    difference = np.abs(answer["embeddings"] - expected["embeddings"])
    assert 1e-4 < difference.mean() < 0.03


def test_a_model_of_mixed_bfloat16():
    model = pretrainer("mixed_bfloat16", num_layers=1)
    outputs = ask(module_of(model).fill_in, TEXTS[:1])
    assert outputs["log_probabilities"].dtype == np.float32
    # bfloat16 keeps 8 bits
    expected = log_probabilities(model, TEXTS[0])
    check_fill_in(outputs, 0, expected, tolerance=0.1)


def test_int8_of_a_model_of_four_bits():
    """What `quantize` made integers is not made integers once more."""
    model = pretrainer(num_layers=1)
    model.quantize("int4")
    exact = ask(module_of(model).fill_in, TEXTS)
    found = ask(module_of(model, precision="int8").fill_in, TEXTS)
    for name in ("log_probabilities", "token_ids"):
        assert exact[name].shape == found[name].shape
    apart = np.abs(exact["log_probabilities"] - found["log_probabilities"])
    assert apart.max() < 0.05


def test_int8(plain):
    module = module_of(precision="int8")
    answer, expected = ask(module.embed, TEXTS), ask(plain.embed, TEXTS)
    check_equal(answer, expected, atol=0.3)
    difference = np.abs(answer["embeddings"] - expected["embeddings"])
    assert 1e-4 < difference.mean() < 0.05
    stored = module._served._quantized
    names = {weight.path.split("/")[-1] for weight, *_ in stored}
    assert names == {"embeddings", "kernel"}
    originals = {w.path: w for w in shared_model().backbone.weights}
    for weight, values, scale in stored:
        assert values.dtype == tf.int8
        value = originals[weight.path].numpy()
        # One scale for each output; rounding errs by half of it at most.
        channels = {
            "embeddings": (value.shape[0], 1),
            "output_projection": (value.shape[0], 1, 1),
        }
        for name, shape in channels.items():
            if name in weight.path:
                assert scale.shape == shape
                break
        else:
            assert scale.shape == (1, *value.shape[1:])
        error = np.abs(values.numpy() * scale.numpy() - value)
        assert (error <= scale.numpy() * 0.5001).all()
        assert np.abs(values.numpy()).max() == 127

    # Biases and norms are stored as they are, and the scales are added.
    def size(module):
        return sum(v.numpy().nbytes for v in module._model_variables)

    assert size(module) < 0.5 * size(plain)
