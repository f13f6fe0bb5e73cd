"""`python -m saved_models.predict --inputs`: every signature of every task."""

import json

import numpy as np
import pytest

from saved_models import predict
from saved_models.client.local import Predictor
from tests.serving.test_predict_command import answered
from tests.slow.native_server.serving_servers import NAME
from tests.slow.native_server.serving_servers import grpc_server
from tests.slow.native_server.serving_servers import rest_server
from tests.support.export_fixtures import refused
from tests.support.task_export_fixtures import IF_SLOW
from tests.support.task_export_fixtures import OTHERS
from tests.support.task_export_fixtures import TEXTS
from tests.support.task_export_fixtures import TOLERANCE
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import raw
from tests.support.task_export_fixtures import served
from tests.support.task_export_fixtures import shared_export


def rows_of(name):
    """One object a row; bytes that are no text are not in JSON."""
    columns = {
        key: [x if isinstance(x, (str, list)) else "ba" for x in values]
        for key, values in raw(name).items()
    }
    return [
        dict(zip(columns, values, strict=True))
        for values in zip(*columns.values(), strict=True)
    ]


def write_rows(directory, rows):
    file = directory / "rows.jsonl"
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def plain(value):
    if isinstance(value, list):
        return [plain(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


def check_line(line, row, outputs, number):
    """The line holds a row and what the signature says of it."""
    assert {**line, **row} == line
    assert set(line) == {*row, *outputs}
    for name, output in outputs.items():
        expected = plain(output.tolist()[number])
        if "count" in outputs and isinstance(expected, list):
            assert not any(expected[outputs["count"][number] :])
            expected = expected[: outputs["count"][number]]
        if output.dtype.kind == "f":
            # rounded, and computed in batches of another size
            np.testing.assert_allclose(line[name], expected, atol=TOLERANCE)
        else:
            assert line[name] == expected


@pytest.mark.parametrize("name", IF_SLOW)
def test_every_task(capsys, tmp_path, name):
    rows = rows_of(name)
    file = write_rows(tmp_path, rows)
    options = ("--inputs", file, "--batch-size", 2)
    lines = answered(capsys, "--model", shared_export(name), *options)
    columns = {key: [row[key] for row in rows] for key in rows[0]}
    outputs = ask(served(name)["serving_default"], **columns)
    for number, (line, row) in enumerate(zip(lines, rows, strict=True)):
        check_line(line, row, outputs, number)


@pytest.mark.slow
def test_queries_may_differ_in_how_many_documents_they_have(capsys, tmp_path):
    documents = [["co", "fi ba", "b"], ["fi"], ["ba " * 50, "a"]]
    rows = [{"query": "ba co", "documents": x} for x in documents]
    file = write_rows(tmp_path, rows)
    model = shared_export("ranker")
    lines = answered(capsys, "--model", model, "--inputs", file)
    padded = [[*x, "", ""][:3] for x in documents]
    outputs = ask(
        served("ranker")["serving_default"],
        query=["ba co"] * 3,
        documents=padded,
    )
    for line, scores, x in zip(
        lines, outputs["scores"], documents, strict=True
    ):
        np.testing.assert_allclose(line["scores"], scores[: len(x)], atol=1e-5)
        assert sorted(line["order"]) == list(range(len(x)))


@pytest.fixture(params=["rest", "grpc"])
def server(request):
    """Options that ask a server of the classifier."""
    signatures = served("classifier")
    if request.param == "rest":
        with rest_server(signatures) as (url, _):
            yield "--url", url
    else:
        pytest.importorskip(
            "tensorflow_serving", reason="needs tensorflow-serving-api"
        )
        directory = shared_export("classifier")
        with grpc_server(signatures, directory) as (url, _):
            yield "--url", url, "--name", NAME


def test_a_server_answers_as_this_process(capsys, tmp_path, server):
    pairs = zip(TEXTS, OTHERS, strict=True)
    rows = [{"text": a, "text_pair": b} for a, b in pairs if type(a) is str]
    file = write_rows(tmp_path, rows)
    options = ("--inputs", file, "--signature", "pairs")
    expected = answered(
        capsys, "--model", shared_export("classifier"), *options
    )
    assert len({line["label"] for line in expected}) > 1
    assert answered(capsys, *server, *options) == expected


def test_ready_ids(capsys, tmp_path):
    ids = [[9, 20, 31, 4, 3], [9, 4, 3]]
    rows = [
        {
            "token_ids": x,
            "segment_ids": [0] * len(x),
            "padding_mask": [1] * len(x),
        }
        for x in ids
    ]
    options = ("--model", shared_export("classifier"), "--signature", "ids")
    file = write_rows(tmp_path, rows)
    lines = answered(capsys, *options, "--inputs", file)
    assert [line["token_ids"] for line in lines] == ids
    assert all(abs(sum(line["scores"]) - 1) < 1e-5 for line in lines)
    rows[1]["padding_mask"] = [1]
    file = write_rows(tmp_path, rows[1:])
    line = refused(capsys, predict.main, *options, "--inputs", file)
    assert "rows.jsonl, line 1: assertion failed: [`padding_mask` mus" in line


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        ('{"text": 3}', [], "rows.jsonl, line 1: `text` must be a text; 3 is"),
        ('{"text": "a"}\n{', [], "rows.jsonl, line 2: this is not JSON: "),
        ("\n", [], "nothing to ask: give --text or --file, or --inputs"),
        ('{"text": "a"}', ["--text", "b"], "either --inputs, or --text and"),
        ('{"text": "a"}', ["--signature", "pairs"], "line 1: it lacks `text_p"),
        ('{"text": "a"}', ["--signature", "x"], "no signature 'x'; it has ids"),
        ('{"text": "a"}', ["--batch-size", "0"], "at least 1. Received: 0."),
    ],
)
def test_predict_refuses(capsys, tmp_path, content, options, message):
    file = tmp_path / "rows.jsonl"
    file.write_text(content)
    options = [
        "--inputs",
        file,
        *options,
        "--model",
        shared_export("classifier"),
    ]
    assert message in refused(capsys, predict.main, *options)


def test_what_a_text_alone_cannot_ask(capsys):
    options = ("--model", shared_export("questions"), "--text", "ba")
    line = refused(capsys, predict.main, *options)
    assert "takes context, question, not text alone: give --inputs." in line


def test_arrays_of_another_rank():
    predictor = Predictor(shared_export("classifier"))
    with pytest.raises(ValueError, match="`text` must have 1 axes.* 2 axes"):
        predictor([["a"]])
    with pytest.raises(ValueError, match="takes .*_pair.* Received: text"):
        predictor(["a"], "pairs")
