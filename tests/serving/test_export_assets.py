"""What lies in `assets.extra`: warm-up requests and the model card."""

import json

import numpy as np
import pytest
import tensorflow as tf

from saved_models import model_card
from saved_models import warm_up
from saved_models.signatures.base import Signature
from tests.serving.test_export_settings import SMALL
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import shared_export
from tests.support.export_fixtures import shared_signatures
from tests.support.export_fixtures import tiny_tokenizer

REQUESTS = [
    {"text": np.array([b"ba \xff", b"", "größer".encode()])},
    {"token_ids": np.array([[1, 2]], "int32"), "a": np.zeros([2, 3], "f4")},
    {"text": np.array([b"x" * 300])},
    {"memories": np.arange(6, dtype="float32").reshape(1, 2, 3)},
]


@pytest.fixture
def stubs():
    return pytest.importorskip(
        "tensorflow_serving.apis", reason="needs tensorflow-serving-api"
    )


@pytest.mark.parametrize("inputs", REQUESTS)
def test_the_bytes_are_those_of_the_official_messages(stubs, inputs):
    from tensorflow_serving.apis import predict_pb2
    from tensorflow_serving.apis import prediction_log_pb2

    request = predict_pb2.PredictRequest()
    request.model_spec.name = "tiny"
    request.model_spec.signature_name = "embed"
    for name, array in inputs.items():
        request.inputs[name].CopyFrom(warm_up.tensor_proto(array))
    log = prediction_log_pb2.PredictionLog(
        predict_log=prediction_log_pb2.PredictLog(request=request)
    )
    assert warm_up.prediction_log("tiny", "embed", inputs) == (
        log.SerializeToString(deterministic=True)
    )
    for name, array in inputs.items():
        back = tf.make_ndarray(request.inputs[name])
        np.testing.assert_array_equal(back, array)


def records(directory):
    file = directory / "assets.extra" / "tf_serving_warmup_requests"
    return [r.numpy() for r in tf.data.TFRecordDataset(str(file))]


def test_every_signature_answers_its_warm_up_requests(stubs):
    from tensorflow_serving.apis import prediction_log_pb2

    served = shared_signatures(**SMALL)
    asked = []
    for record in records(shared_export(**SMALL)):
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        assert request.model_spec.name == "tiny"
        inputs = {
            name: tf.constant(tf.make_ndarray(tensor))
            for name, tensor in request.inputs.items()
        }
        outputs = served[request.model_spec.signature_name](**inputs)
        assert all(len(value) == 1 for value in outputs.values())
        asked.append(request.model_spec.signature_name)
    assert set(asked) == set(served)
    for name in served:
        # One for each bucket, and of texts the example too.
        assert asked.count(name) == (2 if name.endswith("ids") else 3)


def test_there_is_a_warm_up_request_for_each_signature():
    found = records(shared_export())
    names = sorted(shared_signatures())
    assert len(found) == len(names)
    # ModelSpec: the name, then field 3 with its length.
    for name in names:
        spec = b"\n\x04tiny\x1a" + bytes([len(name)]) + name.encode()
        assert sum(spec in record for record in found) == 1
    # Zeros of a memory are not written out.
    assert max(map(len, found)) < 400


def test_too_many_warm_up_requests(tmp_path):
    signature = Signature(len, {}, "", {}, [{}] * 1001)
    with pytest.raises(ValueError, match="1001 warm-up requests.*reads 1000"):
        warm_up.write_requests(tmp_path, "tiny", {"a": signature})


def test_the_card_says_what_was_exported():
    directory = shared_export(**SMALL)
    file = directory / "assets.extra" / "model_card.json"
    card = json.loads(file.read_text(encoding="utf-8"))
    assert card["model"] == "XLNetPretrainer"
    assert card["config"]["vocabulary_size"] == PIECES
    assert card["config"]["memory_length"] == 6  # of the model, as it was
    assert card["vocabulary"] == {
        "sha256": tiny_tokenizer().digest,
        "size": PIECES,
        "lowercase": False,
    }
    assert card["num_parameters"] == 11652
    assert card["export"]["precision"] == "int8"
    assert card["export"]["seq_length_buckets"] == [16, 47]
    assert card["training"] is None
    served = shared_signatures(**SMALL)
    assert set(card["signatures"]) == set(served)
    for name, described in card["signatures"].items():
        for side, specs in (
            ("inputs", served[name].structured_input_signature[1]),
            ("outputs", served[name].structured_outputs),
        ):
            assert {
                key: (value["dtype"], value["shape"])
                for key, value in described[side].items()
            } == {
                key: (spec.dtype.name, spec.shape.as_list())
                for key, spec in specs.items()
            }
            assert all(v["meaning"] for v in described[side].values())


def test_the_cards_examples_are_answered():
    directory = shared_export()
    file = directory / "assets.extra" / "model_card.json"
    card = json.loads(file.read_text(encoding="utf-8"))
    for name, described in card["signatures"].items():
        request = described["example_request"]
        assert request["signature_name"] == name
        function = shared_signatures()[name]
        specs = function.structured_input_signature[1]
        answer = function(
            **{
                key: tf.constant(value, specs[key].dtype)
                for key, value in request["inputs"].items()
            }
        )
        assert set(answer) == set(described["outputs"])


def test_training_facts(tmp_path):
    assert model_card.training_facts(None) is None
    assert model_card.training_facts(tmp_path) is None
    run = {"steps": 9}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    assert model_card.training_facts(tmp_path) == {"run": run}
    lines = [
        {"kind": "train", "step": 4, "loss": 5.0},
        {"kind": "eval", "step": 4, "loss": 5.5},
        {"kind": "train", "step": 9, "loss": 3.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"kind": "tr')
    expected = {"run": run, "last": lines[2], "last_evaluation": lines[1]}
    for source in (tmp_path, tmp_path / "preset", tmp_path / "model.keras"):
        assert model_card.training_facts(source) == expected


def test_names_that_a_server_would_read_otherwise_are_refused():
    spec = {"text_bytes": tf.TensorSpec([None], tf.string)}
    with pytest.raises(ValueError, match="'text_bytes' must not end in '_byt"):
        Signature(tf.identity, spec, "", {}, [])
    text = {"text": tf.TensorSpec([None], tf.string)}
    bad = Signature(lambda text: {"a_bytes": text}, text, "", {}, [])
    with pytest.raises(ValueError, match="'a_bytes' must not end in '_bytes'"):
        bad.concrete()
    silent = Signature(lambda text: {"a": text}, text, "", {"text": "x"}, [])
    with pytest.raises(ValueError, match="needs a line in `meaning`.*: a"):
        silent.concrete()
    with pytest.raises(ValueError, match="an example must give text"):
        Signature(tf.identity, text, "", {}, [{"a": 1}])
