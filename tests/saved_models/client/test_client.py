"""The client, against servers in this process that are not TF Serving."""

import base64
import json
import re
import socket
import sys
import threading
import time

import numpy as np
import pytest
import tensorflow as tf

import saved_models
from data_pipeline.base.command_line import run
from saved_models import predict
from saved_models.client import client as client_module
from saved_models.client.client import as_texts
from saved_models.client.errors import InvalidRequest
from tests.support.commands import refused
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import check_equal
from tests.support.export_servers import NAME
from tests.support.export_servers import grpc_server
from tests.support.export_servers import rest_server
from tests.support.export_servers import write_certificate
from tests.support.oracle import as_numpy

TEXTS = ["Ba co <mask> fi.", "", "größer 한국 <mask>"]

pytestmark = pytest.mark.xdist_group("exports")


@pytest.fixture(autouse=True)
def quick_retries(monkeypatch):
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 0.001)


@pytest.fixture(scope="module", params=["rest", "grpc"])
def served(request, pretrainer_signatures, pretrainer_export):
    """URL, name and failures of a server."""
    if request.param == "rest":
        with rest_server(pretrainer_signatures) as (url, failures):
            yield url, None, failures
    else:
        pytest.importorskip(
            "tensorflow_serving", reason="needs tensorflow-serving-api"
        )
        with grpc_server(pretrainer_signatures, pretrainer_export) as made:
            url, failures = made
            yield url, NAME, failures


@pytest.fixture
def client(served):
    url, name, failures = served
    failures.codes, failures.seconds, failures.count = [], 0, 0
    with saved_models.connect(url, name, timeout=60) as client:
        yield client


@pytest.fixture
def failures(served):
    return served[-1]


def test_texts(client, pretrainer_signatures):
    for signature in ("serving_default", "embed"):
        for texts in (TEXTS, [b"\xff ba <mask>"]):
            answer = client(texts, signature)
            function = pretrainer_signatures[signature]
            expected = function(text=tf.constant(texts, tf.string))
            expected = as_texts(as_numpy(expected))
            check_equal(answer, expected, atol=1e-6)


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


def test_retries(client, failures, served, monkeypatch):
    # A fiftieth of the waits, whose number is what counts.
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 0.002)
    monkeypatch.setattr(client_module, "_LONGEST_WAIT", 0.04)
    is_grpc = served[0].startswith("grpc")
    away = "UNAVAILABLE" if is_grpc else 503
    for count in (1, 3):
        failures.codes, failures.count = [away] * count, 0
        assert client(TEXTS)["count"].tolist() == [1, 0, 1]
        assert failures.count == count + 1
    # As long as there is time, if no number is given.
    failures.codes, failures.count = [away] * 30, 0
    assert client(TEXTS)["count"].tolist() == [1, 0, 1]
    assert failures.count == 31
    client._retries = 4
    failures.codes, failures.count = [away] * 9, 0
    with pytest.raises(ConnectionError, match="told.*Tried 5 times"):
        client(TEXTS)
    assert failures.count == 5
    # What is refused, and what failed, is not tried again.
    for codes, error in (
        (("INVALID_ARGUMENT", 400), InvalidRequest),
        (("UNAUTHENTICATED", 401), ValueError),
        (("PERMISSION_DENIED", 403), ValueError),
        (("INTERNAL", 500), RuntimeError),
        (("UNIMPLEMENTED", 501), RuntimeError),
        (("DEADLINE_EXCEEDED", 504), TimeoutError),
    ):
        failures.codes, failures.count = [codes[not is_grpc]], 0
        with pytest.raises(error) as raised:
            client(TEXTS)
        assert failures.count == 1, codes
        assert type(raised.value) is error
    # Nor one that is answered too late.
    client._timeout, failures.seconds, failures.count = 0.2, 0.8, 0
    begun = time.monotonic()
    with pytest.raises(TimeoutError, match="no answer within 0.. s"):
        client(TEXTS)
    assert time.monotonic() - begun < 0.7
    time.sleep(0.8)  # until the server has finished
    assert failures.count == 1


def test_what_is_refused(client, failures, served):
    ids = np.array([[9, 999]], "int32")
    wrong = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": ids > 0}
    with pytest.raises(ValueError, match="must be from 0 to 299; some are"):
        client.predict(wrong, "embed_ids")
    failures.count = 0
    for inputs, signature, message in (
        ({"text": ["a"]}, "classify", "no signature 'classify'; it has .*emb"),
        ({"text": ["a"]}, "embed_ids", "takes .*token_ids.*Received: text"),
        ({"text": [["a"]]}, "embed", "must be a list of texts. Received: ..'a"),
        (
            {"text": "a"},
            "embed",
            "`text` must be a list of texts. Received: 'a",
        ),
        ({"text": []}, "embed", "must have at least one row. Received: 0 r"),
        ({"text": ["a", None]}, "embed", "list of texts. Received: None"),
        ({"text": [1]}, "embed", "list of texts. Received: 1"),
        ({"text": ["\ud800"]}, "embed", "list of texts. Received: '.ud800'"),
        *(
            ({**wrong, "token_ids": ids}, "embed_ids", message)
            for ids, message in (
                ([[7.9, 8]], r"whole numbers of int32. Received: 7.9"),
                ([[2**32 + 7, 8]], r"int32. Received: 4294967303"),
                ([[np.nan, 8]], r"int32. Received: nan"),
                ([["7", "8"]], r"int32. Received: '7'"),
                ([[7, None]], r"int32. Received: None"),
                ([[7], [7, 8]], "lists of whole numbers; its lists differ in"),
                ([7, 8], r"lists of whole numbers. Received: \[7, 8\]"),
            )
        ),
    ):
        with pytest.raises(ValueError, match=message):
            client.predict(inputs, signature)
    assert failures.count == 0
    url, name, _ = served
    other = (url, "other") if name else (url.replace(NAME, "other"), None)
    with saved_models.connect(*other) as unknown:
        with pytest.raises(ValueError, match="404|NOT_FOUND"):
            unknown(["a"])


def test_numbers_are_taken_as_they_are_or_refused():
    kinds = {"f": np.float32, "i": np.int64, "b": np.bool_}
    known = {x: ({"x": (np.dtype(kinds[x]), [-1])}, {}) for x in kinds}

    def taken(kind, values):
        return client_module.request_arrays({"x": values}, known, kind)["x"]

    for kind, values in (
        ("f", [0.5, 1, 2**70]),
        ("f", np.array([1, 2.5], object)),
        ("i", [1, 2.0, -(2**63)]),
        ("i", [2**63 - 1, True]),
        ("b", [True, False]),
    ):
        found = taken(kind, values)
        assert found.dtype == kinds[kind]
        np.testing.assert_array_equal(found, np.array(values, kinds[kind]))
    for kind, values, wrong in (
        ("f", ["0.5"], "'0.5'"),
        ("f", [1.5, "a"], "'a'"),
        ("f", [1.5, None], "None"),
        ("f", [1e39], "1e+39"),
        ("f", [1.0, np.nan], "nan"),  # JSON has no such number
        ("f", [-np.inf], "-inf"),
        ("f", [10**400], "1000"),
        ("f", [b"1"], "b'1'"),
        ("i", [1, 2**63], "9.22"),
        ("i", [1, None], "None"),
        ("b", ["False"], "'False'"),
        ("b", [1], "1"),
    ):
        with pytest.raises(ValueError, match="^`x` must be a list of") as error:
            taken(kind, values)
        assert f"Received: {wrong}" in str(error.value)


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


def test_what_predict_says_of_servers(capsys):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    gone = f"http://127.0.0.1:{port}/v1/models/tiny"
    for arguments, *messages in (
        (
            ["--url", gone, "--timeout", "0.1"],
            *("cannot be reached", "refused", "Tried "),
        ),
        (["--url", "http://host:8501"], "server must be http://HOST:PORT/v1/m"),
        (["--url", "grpc://host:8500"], "with a name"),
        (["--url", "ftp://host/v1/models/a"], "server must be http"),
        (["--url", "http://h/v1/models/a", "--model", "b"], "either --model"),
        (["--url", gone, "--ca-file", "a"], "is for https:// and grpcs://"),
        (
            ["--url", "grpcs://h:1", "--name", "a", "--ca-file", "gone.pem"],
            "no certificates at gone.pem",
        ),
        (["--url", gone, "--header", "secret"], "`--header` must be NAME:VAL"),
        ([], "either --model or --url"),
    ):
        line = refused(capsys, predict.main, *arguments, "--text", "a")
        assert all(message in line for message in messages)


def test_servers_that_are_not_tensorflow_servings():
    """Bytes that answer a request -> the error."""
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
    moved = b"HTTP/1.1 302 Found\r\nLocation: http://a/b\r\n"
    moved += b"Content-Length: 0\r\n\r\n"
    for reply, error, message in (
        (head % (2, b"{}"), RuntimeError, "metadata is not TensorFlow Serv"),
        (head % (2, b"no"), RuntimeError, "did not answer in JSON"),
        (head % (13, b'{"a":1,"a":2}'), RuntimeError, "not answer in JSON"),
        (head % (9, b"{}"), ConnectionError, "closed the connection"),
        (b"", ConnectionError, "closed the connection"),
        (moved, ValueError, "metadata leads to http://a/b; ask that address"),
        (head % (300, b"[" * 300), RuntimeError, "gave more than 200 bytes"),
    ):
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/models/tiny"
            answering = _answer_once(server, reply)
            options = {"retries": 0, "max_reply_bytes": 200}
            with saved_models.connect(url, **options) as client:
                with pytest.raises(error, match=message):
                    client.signatures()
            answering.join()


def test_answers_that_do_not_fit_the_signature():
    known = {
        "serving_default": (
            {"text": (np.dtype(object), [-1])},
            {
                "score": (np.dtype("float32"), [-1]),
                "scores": (np.dtype("float32"), [-1, 3]),
            },
        )
    }
    head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s"
    for outputs, message in (
        ({"score": [1]}, "gave other outputs than its signature"),
        ([1, 2], "gave other outputs than its signature"),
        ({"score": [1], "scores": [[1, 2, 3]]}, "`score` in the shape .1., ex"),
        ({"score": [1, 2], "scores": [[1, 2]] * 2}, "shape .2, 2., expected"),
        ({"score": [1, 2], "scores": [[1, 2], [3]]}, "gave other outputs"),
        ({"score": ["1", "2"], "scores": [[1] * 3] * 2}, "gave other outputs"),
        ({"score": [1, None], "scores": [[1] * 3] * 2}, "gave other outputs"),
        ({"score": ["a", 2], "scores": [[1] * 3] * 2}, "gave other outputs"),
    ):
        content = json.dumps({"outputs": outputs}).encode()
        with socket.create_server(("127.0.0.1", 0)) as server:
            url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/models/tiny"
            answering = _answer_once(server, head % (len(content), content))
            with saved_models.connect(url, retries=0) as client:
                client._signatures = known
                with pytest.raises(RuntimeError, match=message):
                    client(["a", "b"])
            answering.join()


def test_one_time_limit_for_all_of_a_reply():
    """Each byte comes in time, and the reply does not."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/v1/models/tiny"
        stop = threading.Event()

        def drip():
            connection, _ = server.accept()
            with connection:
                connection.recv(10_000)
                connection.sendall(b"HTTP/1.1 200 OK\r\n")
                while not stop.wait(0.05):
                    connection.sendall(b"a: b\r\n")

        thread = threading.Thread(target=drip)
        thread.start()
        with saved_models.connect(url, timeout=0.3) as client:
            with pytest.raises(TimeoutError, match="no answer within 0.. s"):
                client.signatures()
        stop.set()
        thread.join()


def test_time_limits_that_are_none():
    for timeout in (0, -1, float("nan"), float("inf"), 1e12):
        with pytest.raises(ValueError, match="`timeout` must be a number of s"):
            saved_models.connect("http://a/v1/models/b", timeout=timeout)


def test_waits_between_attempts(monkeypatch):
    """They grow, differ between clients, and last until the time is over."""
    now, waits = [0.0], []
    monkeypatch.setattr(client_module, "_FIRST_WAIT", 0.1)
    monkeypatch.setattr(client_module.time, "monotonic", lambda: now[0])

    def sleep(seconds):
        waits[-1].append(seconds)
        now[0] += seconds

    monkeypatch.setattr(client_module.time, "sleep", sleep)

    class Away:
        def signatures(self, timeout):
            raise client_module.Unavailable("away.")

    for _ in range(2):
        waits.append([])
        with pytest.raises(ConnectionError, match="away. Tried .. times"):
            client_module.Client(Away(), timeout=30).signatures()
    for some in waits:
        assert 26 < sum(some) <= 30 and max(some) <= 3
        assert all(0.5 <= some[i] / 0.1 / 2**i <= 1.5 for i in range(5))
    assert waits[0] != waits[1]


def test_headers_and_certificates(
    capsys, tmp_path, pretrainer_signatures, pretrainer_export
):
    """TLS with an authority of one's own, and authorization."""
    pytest.importorskip("cryptography", reason="makes the certificate")
    pair = write_certificate(tmp_path)
    token = tmp_path / "token"
    token.write_text("authorization: Bearer a:b\n")

    def check(url, made, *name):
        assert url.split("localhost")[0] in ("https://", "grpcs://")
        made.authorization = "Bearer a:b"
        asked = ["--url", url, *name, "--text", TEXTS[0]]
        asked += ["--ca-file", str(pair[0])]
        assert run(predict.main, [*asked, "--header", f"@{token}"]) == 0
        assert "candidates" in capsys.readouterr().out
        assert re.search("401|UNAUTHEN", refused(capsys, predict.main, *asked))

    with rest_server(pretrainer_signatures, pair) as (url, made):
        check(url, made)
        with saved_models.connect(url) as client:
            with pytest.raises(ConnectionError, match="no certificate that is"):
                client.signatures()
    pytest.importorskip(
        "tensorflow_serving", reason="needs tensorflow-serving-api"
    )
    with grpc_server(pretrainer_signatures, pretrainer_export, pair) as made:
        check(*made, "--name", NAME)


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    monkeypatch.delenv("no_proxy", raising=False)
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"127.0.0.1:{server.getsockname()[1]}"
        for proxy in (f"http://{place}", place, f"http://user:p%40w@{place}"):
            monkeypatch.setenv("http_proxy", proxy)
            reply = b"HTTP/1.1 418 No\r\nContent-Length: 6\r\n\r\nteapot"
            requests = []
            answering = _answer_once(server, reply, requests)
            with saved_models.connect("http://h.invalid/v1/models/a") as client:
                with pytest.raises(ValueError, match="metadata: 418: teapot"):
                    client.signatures()
            answering.join()
            expected = base64.b64encode(b"user:p@w") if "user" in proxy else b""
            (found,) = [
                line.removeprefix("proxy-authorization: basic ")
                for line in requests[0].decode().lower().split("\r\n")
                if line.startswith("proxy-authorization")
            ] or [""]
            assert found == expected.decode().lower()


def _answer_once(server, reply, requests=None):
    def answer():
        connection, _ = server.accept()
        with connection:
            request = connection.recv(10_000)
            if requests is not None:
                requests.append(request)
            connection.sendall(reply)

    thread = threading.Thread(target=answer)
    thread.start()
    return thread


def test_without_the_stubs_grpc_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorflow_serving", None)
    monkeypatch.setitem(sys.modules, "tensorflow_serving.apis", None)
    with pytest.raises(RuntimeError, match="pip install 'tensorflow-s"):
        saved_models.connect("grpc://host:8500", "tiny")
