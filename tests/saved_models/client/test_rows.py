"""Rows of requests: read from files, refused with their line, asked at once."""

import numpy as np
import pytest

from saved_models.client.errors import InvalidRequest
from saved_models.client.rows import ask_rows
from saved_models.client.rows import check_rows
from saved_models.client.rows import read_json_lines
from saved_models.client.rows import read_texts

TEXT, INT32 = np.dtype(object), np.dtype("int32")
FLOAT32, BOOL = np.dtype("float32"), np.dtype(bool)
SIGNATURES = {
    "serving_default": ({"text": (TEXT, [-1])}, {}),
    "pairs": ({"text": (TEXT, [-1]), "text_pair": (TEXT, [-1])}, {}),
    "options": ({"options": (TEXT, [-1, -1])}, {}),
    "ids": ({"token_ids": (INT32, [-1, -1])}, {}),
    "memory": ({"memories": (FLOAT32, [-1, 2, 3])}, {}),
    "flag": ({"flag": (BOOL, [-1])}, {}),
}


def written(directory, content):
    file = directory / "rows.jsonl"
    file.write_bytes(
        content if isinstance(content, bytes) else content.encode()
    )
    return file


def checked(directory, content, signature="serving_default"):
    rows, places = read_json_lines(written(directory, content))
    check_rows(rows, places, SIGNATURES, signature)
    return rows


def test_texts_are_lines(tmp_path):
    content = "\ufeffa\u2028b\x0bc\x85d\r\n\n  \ne\rf\n"
    found = read_texts(written(tmp_path, content))
    assert found == ["a\u2028b\x0bc\x85d", "", "  ", "e", "f"]
    with pytest.raises(ValueError, match="is not UTF-8 at byte 2"):
        read_texts(written(tmp_path, b"ab\xff"))


def test_what_fits(tmp_path):
    for signature, content, rows in (
        ("serving_default", '\ufeff{"text": "größer"}\r\n\n', 1),
        # A line of text that Python would divide.
        ("serving_default", '{"text": "a\u2028b\x85c"}\n{"text": ""}', 2),
        ("pairs", '{"text_pair": "b", "text": "a"}', 1),
        ("options", '{"options": ["a", "b"]}\n{"options": []}', 2),
        ("ids", '{"token_ids": [1, 2]}', 1),
        ("memory", '{"memories": [[1, 2.5, 3], [4, 5, 6]]}', 1),
        ("flag", '{"flag": true}', 1),
    ):
        assert len(checked(tmp_path, content, signature)) == rows


GOOD = {
    "serving_default": '{"text": "a"}',
    "pairs": '{"text": "a", "text_pair": "b"}',
    "options": '{"options": ["a"]}',
    "ids": '{"token_ids": [1]}',
    "memory": '{"memories": [[1, 2, 3], [1, 2, 3]]}',
    "flag": '{"flag": false}',
}
BAD = {
    ("serving_default", '{"text": "a"'): "this is not JSON: Expecting",
    ("serving_default", b'{"text": "\xff"}'): "this is not JSON: 'utf-8' codec",
    ("serving_default", "[" * 100_000): "this is not JSON: maximum recursion",
    ("serving_default", '"a"'): 'a line must be an object, {"name": value,',
    ("serving_default", "{}"): "it lacks `text`; the signature 'serving_defau",
    ("serving_default", '{"text": "a", "text_pair": "b"}'): "it has an unknown "
    "`text_pair`; the signature 'serving_default' takes text. The signature "
    "'pairs' takes these.",
    (
        "serving_default",
        '{"tex": "a"}',
    ): "lacks `text` and has an unknown `tex`",
    (
        "serving_default",
        '{"text": null}',
    ): "`text` must be a text. Received: None.",
    (
        "serving_default",
        '{"text": ["a"]}',
    ): "`text` must be a text. Received: [",
    (
        "serving_default",
        r'{"text": "\ud800"}',
    ): r"`text` must be a text. Received: '\ud800'.",
    ("pairs", '{"text": "a"}'): "it lacks `text_pair`; the signature 'pairs' "
    "takes text, text_pair. The signature 'serving_default' takes these.",
    ("options", '{"options": "a"}'): "`options` must be a list of texts. Recei",
    ("options", '{"options": ["a", 1]}'): "list of texts. Received: 1.",
    ("options", '{"options": ["a", ["b"]]}'): "list of texts. Received: ['b'].",
    ("options", '{"options": [["a"]]}'): "`options` must be a list of texts. ",
    (
        "ids",
        '{"token_ids": [1.5]}',
    ): "list of whole numbers of int32. Received: 1.5.",
    ("ids", '{"token_ids": [null]}'): "numbers of int32. Received: None.",
    ("ids", f'{{"token_ids": [{2**31}]}}'): "Received: 2147483648.",
    ("memory", '{"memories": [1]}'): "`memories` must be a list of lists of nu",
    ("memory", '{"memories": [[1], [2, 3]]}'): "its lists differ in length",
    ("memory", '{"memories": [[1], [2]]}'): "must have the sizes [2, 3], -1 wh",
    ("memory", '{"memories": [[NaN, 1, 1], [1, 1, 1]]}'): "Received: nan.",
    ("memory", '{"memories": [[1e39, 1, 1]]}'): "Received: 1e+39.",
    ("memory", f'{{"memories": [[1{400 * "0"}, 1, 1]]}}'): "Received: 1000",
    ("flag", '{"flag": true, "flag": false}'): "the key 'flag' is there twice",
    ("flag", '{"flag": 1}'): "`flag` must be true or false. Received: 1.",
}


def test_what_does_not_fit_is_named_with_its_line(tmp_path):
    for (signature, line), expected in BAD.items():
        encoded = line if isinstance(line, bytes) else line.encode()
        content = GOOD[signature].encode() + b"\n\n" + encoded + b"\n"
        with pytest.raises(ValueError) as error:
            checked(tmp_path, content, signature)
        message = str(error.value)
        place = f"{tmp_path / 'rows.jsonl'}, line 3: "
        assert message.startswith(place), message
        assert expected in message
        assert len(message) < 400
    with pytest.raises(ValueError, match="no signature 'x'; it has .*pairs"):
        checked(tmp_path, '{"text": "a"}', "x")


class Export:
    """Answers with the lengths of texts, and keeps what it was asked."""

    def __init__(self):
        self.asked = []

    def predict(self, inputs, signature):
        self.asked.append(inputs["options"])
        if any("bad" in options for options in inputs["options"]):
            raise InvalidRequest("no.")
        lengths = [sum(map(len, x)) for x in inputs["options"]]
        return {"length": np.array(lengths)}


def test_rows_of_a_shape_that_follow_each_other_are_asked_at_once():
    options = [["a"], ["bc"], ["d"], ["e", "f"], ["gh"], []]
    export, rows = Export(), [{"options": x} for x in options]
    answers = list(ask_rows(export, rows, "options", batch_size=2))
    assert [int(x["length"]) for x in answers] == [1, 2, 1, 2, 2, 0]
    assert export.asked == [
        [["a"], ["bc"]],
        [["d"]],
        [["e", "f"]],
        [["gh"]],
        [[]],
    ]


def test_an_answer_or_an_error_a_row(tmp_path):
    """A blank line and a refused row leave the others their answers."""
    content = '\n{"options": ["a"]}\n{"options": ["bad"]}\n\n\n'
    content += '{"options": ["c", "d"]}\n\n \n'
    rows, places = read_json_lines(written(tmp_path, content))
    check_rows(rows, places, SIGNATURES, "options")
    answers = list(ask_rows(Export(), rows, "options", 9, places))
    assert [x if isinstance(x, dict) else str(x) for x in answers] == [
        f"{places[0]}: the line is blank.",
        {"length": 1},
        f"{places[2]}: no.",
        f"{places[3]}: the line is blank.",
        f"{places[4]}: the line is blank.",
        {"length": 2},
    ]
    assert places[-1].endswith("rows.jsonl, line 6")
    with pytest.raises(ValueError, match="must be at least 1. Received: 0"):
        list(ask_rows(Export(), rows, "options", batch_size=0))
