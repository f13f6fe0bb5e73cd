"""An export in a program without Python: equal numbers, hostile texts, load."""

import random

import numpy as np
import tensorflow as tf

from tests.slow.native_server.serving_program import ask_program
from tests.slow.native_server.serving_program import check_same
from tests.slow.native_server.serving_program import load_lines
from tests.slow.native_server.serving_program import run_program
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import shared_export
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import shared_signatures
from tests.support.oracle import as_numpy
from tests.support.samples import TEXTS
from tests.torture import hostile_serving

TEXT = b"Ba co <mask> fi, in 1, 9 code."
MEGABYTE = 1_000_000
HOSTILE = [
    b"",
    b" ",
    b"\x00",
    bytes(range(256)),
    b"\xff\xfe ba \xe2\x82 \xc0\x80 \xed\xa0\x80 <mask>",
    "".join(map(chr, [*range(32), *range(127, 160)])).encode(),
    b"<mask><cls><sep><pad><unk></s><s><eod><eop>",
    b"<mask>" * 50,
    "\U0001f469\u200d\U0001f469\u200d\U0001f467 \U0001f1e9\U0001f1ea".encode(),
    "e\u0301".encode() * 100,
    "\u202eba co\u202c \ufeff\u200b".encode(),
    "\u2581\u2581<mask>\u2581".encode(),
    b"a" * MEGABYTE,
    b"ba co fi " * (MEGABYTE // 9),
    b" " * MEGABYTE,
    b"<mask>" * (MEGABYTE // 6),
    "\U0001f600".encode() * (MEGABYTE // 4),
    b"\xff" * MEGABYTE,
]


def texts(*rows):
    return {"text": np.array(rows, object).reshape(-1)}


def fill_in(*rows):
    return "fill_in", texts(*rows)


def requests_of_ids():
    draw = np.random.default_rng(0)
    ids = draw.integers(9, PIECES, (2, 9)).astype("int32")
    mask = np.ones_like(ids)
    mask[1, 6:] = 0
    layers, memory, width = 1, shared_model().config.memory_length, 22
    memories = draw.normal(size=(2, layers, memory, width))
    remembered = np.array([[0, 1, 1, 1, 1, 1], [0, 0, 0, 0, 0, 1]], "int32")
    assert remembered.shape[1] == memory
    features = {"token_ids": ids, "segment_ids": ids * 0, "padding_mask": mask}
    memories = {
        "memories": memories.astype("float32"),
        "memory_mask": remembered,
    }
    return {
        "fill_in_ids": {
            **features,
            "target_positions": np.array([[1, 4], [0, 2]], "int32"),
        },
        "embed_ids": features,
        "document_segment_ids": {
            "token_ids": ids,
            "padding_mask": mask,
            **memories,
        },
        "document_segment": {**texts(TEXT, b"fi"), **memories},
        "serving_default": texts(TEXT, b"", "größer <mask>".encode()),
        "embed": texts(TEXT, b"\xff ba", b""),
    }


def by_python(signature, request):
    tensors = {
        name: tf.constant(array.tolist(), tf.string)
        if array.dtype == object
        else tf.constant(array)
        for name, array in request.items()
    }
    return as_numpy(shared_signatures()[signature](**tensors))


def test_numbers_are_those_of_python(tmp_path):
    requests = list(requests_of_ids().items()) * 2
    answers = ask_program(shared_export(), requests, tmp_path)
    for request, answer in zip(requests, answers, strict=True):
        check_same(answer, by_python(*request))


def test_hostile_texts_have_an_answer_each(tmp_path):
    requests = [fill_in(text) for text in HOSTILE]
    requests += [fill_in(), fill_in(*HOSTILE[:12]), fill_in(TEXT)]
    answers = ask_program(shared_export(), requests, tmp_path)
    for answer, (_, request) in zip(answers, requests, strict=True):
        rows = len(request["text"])
        assert not isinstance(answer, str), answer
        assert {len(output) for output in answer.values()} == {rows}
        assert np.isfinite(answer["log_probabilities"]).all()
        for row, text in enumerate(request["text"]):
            blanks = min(text.count(b"<mask>"), LENGTH - 2)
            assert answer["count"][row] <= blanks
    # The last one is answered as if nothing had happened before.
    expected = by_python(*requests[-1])["log_probabilities"]
    np.testing.assert_allclose(
        answers[-1]["log_probabilities"], expected, atol=1e-5
    )


def test_requests_that_do_not_fit_are_refused_clearly(tmp_path):
    good = requests_of_ids()["fill_in_ids"]
    wrong = {
        "`token_ids` must be from 0 to 299; some are too large": {
            "token_ids": good["token_ids"] + PIECES
        },
        "`token_ids` must be from 0 to 299; some are negative": {
            "token_ids": good["token_ids"] - PIECES
        },
        "`segment_ids` must have the shape of `token_ids`": {
            "segment_ids": good["segment_ids"][:, 1:]
        },
        "`padding_mask` must have the shape of `token_ids`": {
            "padding_mask": good["padding_mask"][1:]
        },
        "`target_positions` must be from 0 to T - 1": {
            "target_positions": good["target_positions"] + 8
        },
        "`target_positions` must have a row for each row": {
            "target_positions": good["target_positions"][1:]
        },
    }
    requests = [("fill_in_ids", good | change) for change in wrong.values()]
    memory = requests_of_ids()["document_segment"]
    requests.append(("document_segment", {**memory, **texts(TEXT)}))
    wrong["`memories` must have a row for each document"] = {}
    requests.append(("fill_in_ids", good))
    *answers, last = ask_program(shared_export(), requests, tmp_path)
    for message, answer in zip(wrong, answers, strict=True):
        assert isinstance(answer, str) and message in answer
    assert last["log_probabilities"].shape == (2, 2, PIECES)


def test_the_program_refuses_what_is_not_there(tmp_path):
    lines = tmp_path / "lines"
    lines.write_text("ba\n")
    for export, signature, message in (
        (tmp_path, "fill_in", "cannot load"),
        (shared_export(), "classify", "there is no signature classify"),
    ):
        options = ("--texts", lines, "--signature", signature, "--load", 1)
        result = run_program(export, *options, check=False)
        assert result.returncode == 1
        assert message in result.stderr


def test_the_load_generator_counts(tmp_path):
    requests = [fill_in(TEXT), fill_in(b"fi <mask>")]
    lines = load_lines(shared_export(), requests, tmp_path, 30, (1, 3))
    assert [line["concurrency"] for line in lines] == [1, 3]
    for line in lines:
        assert line["requests"] == 30 and line["failed"] == 0
        assert 0 < line["p50_ms"] <= line["p95_ms"] <= line["p99_ms"]
        assert len(line["resident_mb"]) == 11


def test_memory_is_flat_over_ten_thousand_requests(tmp_path):
    draw = np.random.default_rng(0)
    requests = [
        fill_in(*[" ".join(["ba co <mask> fi"] * draw.integers(1, 9))] * rows)
        for rows in (1, 2, 4, 8)
    ]
    (line,) = load_lines(shared_export(), requests, tmp_path, 10_000, (8,))
    assert line["failed"] == 0
    # The first tenth fills the allocators.
    memory = line["resident_mb"][1:]
    assert memory[-1] - memory[0] < 0.05 * memory[0], memory


def test_random_inputs_end_no_server(tmp_path):
    draw = np.random.default_rng(1)
    words = [
        b"<mask>",
        b"<sep>",
        b" ",
        b"\n",
        *(t.encode(errors="surrogatepass") for t in TEXTS),
    ]

    def text():
        kind = draw.integers(3)
        if kind == 0:
            return draw.bytes(draw.integers(0, 200))
        if kind == 1:
            return b"".join(words[i] for i in draw.integers(len(words), size=9))
        codes = draw.integers(0, 0x110000, draw.integers(0, 99))
        return "".join(map(chr, codes)).encode(errors="surrogatepass")

    requests = [
        fill_in(*[text() for _ in range(draw.integers(0, 4))])
        for _ in range(2_500)
    ]
    answers = ask_program(shared_export(), requests, tmp_path)
    for answer, (_, request) in zip(answers, requests, strict=True):
        assert not isinstance(answer, str), answer
        assert len(answer["count"]) == len(request["text"])
        assert np.isfinite(answer["log_probabilities"]).all()


def test_answers_to_hostile_texts_under_load_are_those_alone(tmp_path):
    found = hostile_serving.trials(300, tmp_path, random.Random(0))
    assert [x for x in found if x[1] is not None] == []
