"""Precision, buckets and batch limits change shapes and bytes, not answers."""

import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from saved_models.settings import ExportSettings
from saved_models.signatures import signatures_for
from tests.support.export_fixtures import CANDIDATES
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import shared_export
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import shared_signatures
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy

TEXTS = ("Ba co <mask> fi, 9.", "", "ba <mask> " * 9, "je ki", "fi <mask>")
SMALL = {
    "seq_length_buckets": (16, LENGTH),
    "max_batch": 3,
    "precision": "int8",
}


def signatures(model=None, **settings):
    settings.setdefault("sequence_length", LENGTH)
    settings = ExportSettings(num_candidates=CANDIDATES, **settings)
    model = model or shared_model()
    return signatures_for(model)(model, tiny_tokenizer(), settings)


@pytest.fixture(scope="module")
def plain():
    return signatures()


def asked(module, name, texts=TEXTS):
    return as_numpy(getattr(module, name)(tf.constant(texts, tf.string)))


def check_equal(answer, expected, atol=1e-5):
    assert set(answer) == set(expected)
    for name, value in expected.items():
        assert answer[name].shape == value.shape, name
        assert answer[name].dtype == value.dtype, name
        if value.dtype == object:
            np.testing.assert_array_equal(answer[name], value)
        else:
            np.testing.assert_allclose(answer[name], value, atol=atol)


def recorded_shapes(module):
    """The shapes of ids that the backbone sees from now on."""
    backbone, shapes = module._served.backbone, []

    def record(features, **options):
        shapes.append(tuple(features["token_ids"].shape))
        return backbone(features, **options)

    module._served.backbone = record
    return shapes


@pytest.mark.parametrize("name", ["fill_in", "embed"])
def test_buckets(plain, name):
    module = signatures(seq_length_buckets=[8, 16, LENGTH])
    shapes = recorded_shapes(module)
    check_equal(asked(module, name), asked(plain, name))
    check_equal(asked(module, name, ["je"]), asked(plain, name, ["je"]))
    assert {length for _, length in shapes} == {8, LENGTH}


def test_ids_beyond_the_longest_bucket_are_refused():
    module = signatures(seq_length_buckets=[8, 16], sequence_length=16)
    ids = tf.fill([1, 17], 9)
    with pytest.raises(tf.errors.InvalidArgumentError, match="longest bucket"):
        module.embed_ids(ids, ids * 0, ids)


@pytest.mark.parametrize("name", ["fill_in", "embed"])
@pytest.mark.parametrize("limit", [1, 2, 5, 9])
def test_batches_of_a_limit(plain, name, limit):
    module = signatures(max_batch=limit)
    shapes = recorded_shapes(module)
    check_equal(asked(module, name), asked(plain, name))
    assert max(rows for rows, _ in shapes if rows) <= limit
    for output in asked(module, name, []).values():
        assert len(output) == 0


def test_compiled_by_xla(plain):
    module = signatures(
        seq_length_buckets=[16, LENGTH], max_batch=4, jit_compile=True
    )
    check_equal(asked(module, "fill_in"), asked(plain, "fill_in"), 1e-4)
    shapes = recorded_shapes(module)
    texts = ["ba <mask>"] * 3
    check_equal(
        asked(module, "fill_in", texts), asked(plain, "fill_in", texts), 1e-4
    )
    assert shapes == [(4, 16)]
    rows = [
        (len(e["text"]), len(e["text"][0]))
        for e in module.signatures()["embed"].examples
    ]
    assert sorted({count for count, _ in rows}) == [1, 2, 4]


@pytest.mark.parametrize("buckets", [(8, 16, LENGTH), (5, 30)])
def test_there_is_a_request_for_every_bucket(buckets):
    module = signatures(seq_length_buckets=buckets, sequence_length=buckets[-1])
    shapes = recorded_shapes(module)
    for name, signature in module.signatures().items():
        shapes.clear()
        for example in signature.examples:
            signature.function(
                **{
                    key: tf.constant(
                        value.tolist(), signature.inputs[key].dtype
                    )
                    for key, value in example.items()
                }
            )
        assert {length for _, length in shapes} == set(buckets), name


def test_bfloat16(plain):
    module = signatures(precision="bfloat16")
    weights = [v for v in module._model_variables if v.dtype.is_floating]
    assert {v.dtype for v in weights} == {tf.bfloat16}
    answer, expected = asked(module, "embed"), asked(plain, "embed")
    check_equal(answer, expected, atol=0.3)
    difference = np.abs(answer["embeddings"] - expected["embeddings"])
    assert 1e-4 < difference.mean() < 0.03


def test_int8(plain):
    module = signatures(precision="int8")
    answer, expected = asked(module, "embed"), asked(plain, "embed")
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


@pytest.mark.slow
def test_an_export_with_everything(plain):
    served = shared_signatures(**SMALL)
    text = tf.constant(TEXTS)
    exact = as_numpy(served["embed"](text=text))
    check_equal(exact, asked(signatures(precision="int8"), "embed"))
    filled = as_numpy(served["fill_in"](text=text))
    assert filled["count"].tolist() == [1, 0, 9, 0, 1]
    for function in (served["embed"], served["fill_in"]):
        for output in function(text=tf.constant([], tf.string)).values():
            assert len(output) == 0


def test_int8_takes_a_quarter_of_the_space():
    def size(directory):
        return sum(
            f.stat().st_size for f in (directory / "variables").iterdir()
        )

    # Biases and norms stay as they are, and the scales come to it.
    assert size(shared_export(**SMALL)) < 0.5 * size(shared_export())


def test_a_row_does_not_depend_on_its_place():
    # In training, the second half of such a model's batches reads backwards.
    module = signatures(pretrainer(num_layers=1, reverse_half_batch=True))
    alone = asked(module, "embed", ["ba co fi"])
    twice = asked(module, "embed", ["ba co fi"] * 2)
    for row in range(2):
        np.testing.assert_allclose(
            twice["embeddings"][row], alone["embeddings"][0], atol=1e-6
        )


def test_a_backbone_serves_embeddings(plain):
    module = signatures(shared_model().backbone)
    assert set(module.signatures()) == {
        "serving_default",
        "embed",
        "embed_ids",
        "document_segment",
        "document_segment_ids",
    }
    check_equal(asked(module, "embed"), asked(plain, "embed"))


def test_a_model_without_signatures():
    model = xlnet_tf.XLNetPretrainer
    with pytest.raises(ValueError, match="a type cannot be exported; these"):
        signatures_for(model)
