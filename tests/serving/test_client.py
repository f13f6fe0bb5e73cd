"""The client, against servers on this machine that are not TF Serving."""

import json
import socket
import sys
import time

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.command_line import run
from saved_models import predict
from saved_models.client import client as client_module
from saved_models.client.client import connect
from tests.slow.native_server.serving_servers import NAME
from tests.slow.native_server.serving_servers import grpc_server
from tests.slow.native_server.serving_servers import rest_server
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import refused
from tests.support.export_fixtures import shared_export
from tests.support.export_fixtures import shared_signatures

TEXTS = ["Ba co <mask> fi.", "", "größer 한국 <mask>"]


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 0.001)


@pytest.fixture(scope="module", params=["rest", "grpc"])
def served(request):
    """URL, name and failures of a server."""
    if request.param == "rest":
        with rest_server(shared_signatures()) as (url, failures):
            yield url, None, failures
    else:
        pytest.importorskip(
            "tensorflow_serving", reason="needs tensorflow-serving-api"
        )
        with grpc_server(shared_signatures(), shared_export()) as made:
            url, failures = made
            yield url, NAME, failures


@pytest.fixture
def client(served):
    url, name, failures = served
    failures.codes, failures.seconds, failures.count = [], 0, 0
    with connect(url, name, timeout=60) as client:
        yield client


@pytest.fixture
def failures(served):
    return served[-1]


def transient(url):
    return "UNAVAILABLE" if url.startswith("grpc") else 503


@pytest.mark.parametrize("signature", ["serving_default", "embed"])
@pytest.mark.parametrize("texts", [TEXTS, [b"\xff ba <mask>"]])
def test_texts(client, signature, texts):
    answer = client(texts, signature)
    function = shared_signatures()[signature]
    expected = function(text=tf.constant(texts, tf.string))
    assert set(answer) == set(expected)
    for name, value in expected.items():
        value = value.numpy()
        assert answer[name].dtype == value.dtype
        if value.dtype == object:
            np.testing.assert_array_equal(answer[name], value)
        else:
            np.testing.assert_allclose(answer[name], value, atol=1e-6)


def test_no_texts_have_no_answers(client):
    answer = client([], "embed")
    assert answer["embeddings"].dtype == np.float32
    assert answer["embeddings"].shape[::2] == (0, 22)
    assert all(len(value) == 0 for value in answer.values())


def test_a_single_output_has_its_name(client):
    ids = np.array([[9, 20, 31, 4, 3]], "int32")
    answer = client.predict(
        {
            "token_ids": ids,
            "segment_ids": np.zeros_like(ids).tolist(),
            "padding_mask": np.ones_like(ids),
            "target_positions": [[1]],
        },
        "fill_in_ids",
    )
    assert list(answer) == ["log_probabilities"]
    total = np.exp(answer["log_probabilities"]).sum(-1)
    np.testing.assert_allclose(total, 1, rtol=1e-5)


def test_a_document(client):
    segments = ["Ba co de fi", "gu ha", "", "je <cls> ki"]
    answers = list(client.document(segments))
    alone = list(client.document(segments[-1:]))[0]
    assert len(answers) == 4
    assert [int(a["memory_mask"].sum()) for a in answers[:1]] == [6]
    difference = answers[-1]["mean_embedding"] - alone["mean_embedding"]
    assert np.abs(difference).max() > 1e-3
    with pytest.raises(ValueError, match="segment 1 is .* tokens too long"):
        list(client.document(["ba", "ba co fi" * LENGTH]))


@pytest.mark.parametrize("count", [1, 3])
def test_it_tries_again_where_the_server_is_away(
    client, failures, served, count
):
    failures.codes = [transient(served[0])] * count
    assert client(TEXTS)["count"].tolist() == [1, 0, 1]
    assert failures.count == count + 1


def test_it_gives_up(client, failures, served):
    failures.codes = [transient(served[0])] * 9
    with pytest.raises(ConnectionError, match="told.*Tried 5 times"):
        client(TEXTS)
    assert failures.count == 5
    failures.codes = []


def test_a_refused_request_is_not_tried_again(client, failures, served):
    failures.codes = [
        "INVALID_ARGUMENT" if served[0].startswith("grpc") else 400
    ]
    with pytest.raises(ValueError, match="400|INVALID_ARGUMENT"):
        client(TEXTS)
    assert failures.count == 1


def test_what_the_graph_refuses(client):
    ids = np.array([[9, 999]], "int32")
    with pytest.raises(ValueError, match="must be from 0 to 299; some are"):
        client.predict(
            {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids > 0},
            "embed_ids",
        )


@pytest.mark.parametrize(
    ("inputs", "signature", "message"),
    [
        ({"text": ["a"]}, "classify", "no signature 'classify'; it has .*emb"),
        ({"text": ["a"]}, "embed_ids", "takes .*token_ids.*Received: text"),
    ],
)
def test_what_the_model_does_not_take(
    client, failures, inputs, signature, message
):
    with pytest.raises(ValueError, match=message):
        client.predict(inputs, signature)
    assert failures.count == 0


def test_the_time_limit(served, failures, client):
    client.signatures()
    client._timeout = 0.2
    failures.seconds = 1.5
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within 0.. s"):
        client(TEXTS)
    assert time.monotonic() - begun < 1.4
    time.sleep(1.5)  # until the server has finished
    assert failures.count == 1


def test_no_server_is_one_clear_line(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/v1/models/tiny"
    line = refused(capsys, predict.main, "--url", url, "--text", "a")
    assert "cannot be reached" in line and "Tried 5 times" in line


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--url", "http://host:8501"], "server must be http://HOST:PORT/v1/m"),
        (["--url", "grpc://host:8500"], "with a name"),
        (["--url", "ftp://host/v1/models/a"], "server must be http"),
        (["--url", "http://h/v1/models/a", "--model", "b"], "either --model"),
        ([], "either --model or --url"),
    ],
)
def test_predict_refuses(capsys, arguments, message):
    line = refused(capsys, predict.main, *arguments, "--text", "a")
    assert message in line


def test_predict_from_a_server(capsys, served, client):
    url, name, _ = served
    arguments = ["--url", url, *(["--name", name] if name else [])]
    for text in TEXTS:
        arguments += ["--text", text]
    capsys.readouterr()
    assert run(predict.main, arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, text in zip(lines, TEXTS, strict=True):
        values = json.loads(line)
        assert values["text"] == text
        assert len(values["candidates"]) == text.count("<mask>")


def test_a_model_that_is_not_there(served):
    url, name, _ = served
    if name:
        unknown = connect(url, "other")
    else:
        unknown = connect(url.replace(NAME, "other"))
    with unknown, pytest.raises(ValueError, match="404|NOT_FOUND"):
        unknown(["a"])


def test_without_the_stubs_grpc_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(RuntimeError, match=r"pip install 'xlnet_tf\[serving\]"):
        connect("grpc://host:8500", "tiny")
