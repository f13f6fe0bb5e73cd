"""`python -m saved_models.compare`: what a precision costs."""

import numpy as np
import pytest

from data_pipeline.command_line import run
from saved_models import compare
from saved_models.client.local import Predictor
from tests.support.export_fixtures import SMALL
from tests.support.export_fixtures import refused
from tests.support.export_fixtures import shared_export
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer

TEXTS = ["ba co fi gu ha je ki lo", "", "de fi", "mu na po ra " * 3]


@pytest.fixture(scope="module")
def exact():
    return Predictor(shared_export())


def test_bits_are_those_of_the_model(exact):
    figures = compare.compare(exact, exact, TEXTS, batch_size=3)
    bits = []
    for text in TEXTS:
        ids = tiny_tokenizer().encode(text)
        for place in range(1, len(ids), 7):
            bits.append(-_log_probability(ids, place) / np.log(2))
    assert figures["tokens"] == len(bits) > 5
    np.testing.assert_allclose(figures["bits_per_token"], np.mean(bits), 1e-4)
    assert figures["other_bits_per_token"] == figures["bits_per_token"]
    assert figures["largest_difference"] == figures["mean_difference"] == 0
    assert figures["same_best"] == 1


def _log_probability(ids, place):
    """Of one token: all that are predicted of a text are hidden together."""
    hidden = list(range(1, len(ids), 7))
    features = {
        "token_ids": np.array([[*ids, 4, 3]]),
        "segment_ids": np.array([[0] * (len(ids) + 1) + [2]]),
    }
    length = len(ids) + 2
    features["perm_mask"] = np.zeros((1, length, length))
    features["perm_mask"][:, :, hidden] = 1
    features["target_mapping"] = np.eye(length)[None, [place]]
    query = shared_model()(features)["query"]
    logits = np.asarray(shared_model().logits(query))[0, 0].astype("float64")
    return logits[ids[place]] - np.log(np.exp(logits).sum())


def test_eight_bits_cost_something(capsys, tmp_path):
    file = tmp_path / "texts"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    arguments = ["--model", str(shared_export()), "--file", str(file)]
    arguments += ["--other", str(shared_export(**SMALL))]
    capsys.readouterr()
    assert run(compare.main, arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    figures = {name: float(value) for name, value in map(str.split, lines)}
    assert 0 < figures["mean_difference"] < figures["largest_difference"] < 0.5
    bits = figures["bits_per_token"], figures["other_bits_per_token"]
    assert 0 < abs(bits[0] - bits[1]) < 0.1


class Export:
    def __init__(self, **answer):
        self.answer = {name: np.array(x) for name, x in answer.items()}

    def signatures(self):
        return {"serving_default": ({}, dict.fromkeys(self.answer))}

    def predict(self, inputs):
        return self.answer


def test_answers_of_other_models():
    labels = {"labels": [[b"a", b"b", b"c"]] * 2}
    figures = compare.compare(
        Export(scores=[0.5, 0.25], label=[b"a", b"b"], **labels),
        Export(scores=[0.5, 0.5], label=[b"a", b"c"], **labels),
        ["x", "y"],
    )
    assert figures == {"largest_difference": 0.25, "same_answers": 0.5}
    numbers = Export(score=[1.0, 2.0]), Export(score=[1.0, 2.5])
    figures = compare.compare(*numbers, ["x", "y"])
    assert figures == {"largest_difference": 0.5, "same_answers": 1}
    with pytest.raises(
        ValueError, match="one gives label, score, the other score"
    ):
        compare.compare(
            Export(label=["a"], score=[0.5]), Export(score=[1.0]), ["x"]
        )


def test_it_needs_texts(capsys, tmp_path, exact):
    with pytest.raises(ValueError, match="no tokens to predict"):
        compare.compare(exact, exact, ["", ""])
    (tmp_path / "empty").write_text(" \n")
    options = ["--model", "a", "--other", "b", "--file", tmp_path / "empty"]
    assert "there is no text in" in refused(capsys, compare.main, *options)
    line = refused(capsys, compare.main, *options, "--split", "test")
    assert "--split and --columns are of --data" in line
