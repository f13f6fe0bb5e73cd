"""Exports of tasks in a program without Python: raw text, hostile and wrong."""

import numpy as np
import pytest

from tests.slow.native_server.serving_program import ask_program
from tests.slow.native_server.serving_program import check_same
from tests.slow.native_server.test_serving_program import HOSTILE
from tests.support.task_export_fixtures import OTHERS
from tests.support.task_export_fixtures import TASKS
from tests.support.task_export_fixtures import TEXTS
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import raw
from tests.support.task_export_fixtures import served
from tests.support.task_export_fixtures import shared_export

SHORT = HOSTILE[:12]
LONG = [b"ba co fi " * 2_000, b" " * 20_000, b"\xff" * 20_000]


def strings(values):
    """An array of bytes; NumPy would cut zeros off strings of its own."""
    flat = np.asarray(values, object)
    found = np.empty(flat.shape, object)
    for place, text in np.ndenumerate(flat):
        found[place] = text.encode() if isinstance(text, str) else text
    return found


def good_requests(name):
    """A request for each signature of raw text."""
    requests = {"serving_default": raw(name)}
    if "pairs" in served(name):
        requests["pairs"] = {"text": TEXTS, "text_pair": OTHERS}
    return [
        (signature, {key: strings(value) for key, value in inputs.items()})
        for signature, inputs in requests.items()
    ]


def filled(request, texts):
    """The request with other texts in all inputs, a row each."""
    signature, inputs = request
    texts = strings(texts)
    # Each input has its texts in another order.
    columns = [np.roll(texts, number) for number in range(len(inputs) + 1)]
    return signature, {
        key: column if inputs[key].ndim == 1 else np.stack(columns[:2], axis=1)
        for key, column in zip(inputs, columns[1:], strict=True)
    }


def by_python(name, request):
    signature, inputs = request
    return ask(served(name)[signature], **inputs)


def check_answers(name, requests, directory):
    answers = ask_program(shared_export(name), requests, directory)
    for answer, request in zip(answers, requests, strict=True):
        check_same(answer, by_python(name, request))


@pytest.mark.parametrize("name", TASKS)
def test_answers_are_those_of_python(name, tmp_path):
    check_answers(name, good_requests(name) * 2, tmp_path)


@pytest.mark.parametrize("name", TASKS)
def test_hostile_texts_have_the_answers_of_python(name, tmp_path):
    requests = []
    for request in good_requests(name):
        requests += [filled(request, texts) for texts in (SHORT, LONG)]
        requests += [filled(request, [text]) for text in (b"", b"\x00")]
        signature, inputs = request
        no_rows = {key: value[:0] for key, value in inputs.items()}
        requests += [(signature, no_rows), request]
    check_answers(name, requests, tmp_path)


def wrong_requests(request):
    """Pairs of a request that does not fit, and what its error says."""
    signature, inputs = request
    for key, value in inputs.items():
        if len(inputs) > 1:
            yield {**inputs, key: value[1:]}, "must have a row for each row of"
        if value.ndim == 2 and key == "options":
            yield {**inputs, key: value[:, :0]}, "at least one option"
        yield {**inputs, key: value[None]}, ""
        yield {**inputs, key: np.arange(len(value), dtype="int32")}, ""
        yield {k: v for k, v in inputs.items() if k != key}, "must feed a value"


@pytest.mark.parametrize("name", TASKS)
def test_what_does_not_fit_is_refused_and_the_program_goes_on(name, tmp_path):
    requests, messages = [], []
    for good in good_requests(name):
        for inputs, message in wrong_requests(good):
            requests += [(good[0], inputs), good]
            messages.append(message)
    answers = ask_program(shared_export(name), requests, tmp_path)
    for answer, message in zip(answers[::2], messages, strict=True):
        assert isinstance(answer, str) and message in answer
    for answer, request in zip(answers[1::2], requests[1::2], strict=True):
        check_same(answer, by_python(name, request))
