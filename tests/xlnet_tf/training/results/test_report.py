"""The page of a run, what it computes, and that no text can spoil it."""

import html.parser
import json

import numpy as np
import pytest

from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tokenization.symbols import BLANK
from tests.support.finetuning_steps import LABELS
from tests.support.finetuning_steps import make_examples
from tests.support.finetuning_steps import setup
from xlnet_tf.tasks.text_classifier import TextClassification
from xlnet_tf.training.results import analysis
from xlnet_tf.training.results import predictions
from xlnet_tf.training.results import report
from xlnet_tf.training.results.influence import influence_of_words

HOSTILE = (
    "<script>alert(1)</script>",
    "</style><img src=x onerror=alert(1)>",
    "&lt;b&gt; \x00\x1b[31m \ud800 \u2028 ]]>",
    "'\" onmouseover=alert(1) $x_{$",
)
EXAMPLES = [
    TextExample(str(i), text, HOSTILE[-i], LABELS[i % 2], f"a.csv, row {i + 2}")
    for i, text in enumerate(HOSTILE)
]
RESULTS = {
    "task": "classification",
    "metric": "accuracy",
    "metrics": {"accuracy": 0.5},
    "examples": 3,
    "steps": 4,
    "seed": 0,
    "preset": HOSTILE[0],
    "started_from": "pretrained",
}


class Parser(html.parser.HTMLParser):
    """Names of elements and of attributes, and the text."""

    def __init__(self, content):
        super().__init__()
        self.tags, self.names, self.text, self.sources = set(), set(), "", []
        self.feed(content)

    def handle_starttag(self, tag, attributes):
        self.tags.add(tag)
        self.names |= {name for name, _ in attributes}
        self.sources += [x for name, x in attributes if name == "src"]

    def handle_data(self, data):
        self.text += data


def write_course(directory):
    lines = [
        {"kind": "train", "step": 2, "loss": 1.5},
        {"kind": "eval", "step": 2, "accuracy": 0.5},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (directory / "metrics.jsonl").write_text(text)


def answers(examples, probability=0.75):
    labels = LABELS[:2]
    return [
        {
            "id": x.id,
            "label": labels[0],
            "probabilities": dict(zip(labels, (p, 1 - p), strict=True)),
        }
        for x in examples
        for p in [probability]
    ]


def test_no_text_is_markup(tmp_path):
    write_course(tmp_path)
    _, _, model = setup()
    task, labels = find_task("classification"), LABELS[:2]
    examples = [x._replace(text=f"ba {x.text}") for x in EXAMPLES[:2]]
    examples += EXAMPLES[3:]
    decoded = answers(examples)
    predictions.write_report(tmp_path, task, examples, decoded, labels)
    found = analysis.analyse(task, examples, decoded, labels)
    results = {**RESULTS, "analysis": found}
    model.labels = labels
    kind = TextClassification(model)
    report.write_page(
        tmp_path, results, task, kind, examples, decoded, labels + ("I-x",)
    )
    content = (tmp_path / report.PAGE_FILE).read_text("utf-8")
    shown = Parser(content)
    assert not shown.tags & {"script", "link", "iframe", "svg"}
    assert not {x for x in shown.names if x.startswith("on")}
    # Nothing is loaded from anywhere.
    assert len(shown.sources) == 6
    assert all(x.startswith("data:image/png;base64,") for x in shown.sources)
    assert "default-src 'none'" in content
    for text in (EXAMPLES[1].text, EXAMPLES[3].text, HOSTILE[0]):
        assert text in shown.text, text
    for heading in ("Course", "Answers", "Probabilities", "Worst errors"):
        assert f"<h2>{heading}</h2>" in content
    assert "green ones for what is true" in shown.text
    # What UTF-8 does not have is replaced.
    text = str(report._table(["a"], [[EXAMPLES[2].text]])[1][0].text)
    assert text.count("\N{REPLACEMENT CHARACTER}") == 3
    text.encode()


def test_a_picture_that_fails_costs_nothing_else(tmp_path, monkeypatch):
    def fail(*arguments):
        raise ZeroDivisionError("no\npicture")

    monkeypatch.setattr(report, "draw_curves", fail)
    monkeypatch.setattr(report, "influence_of_words", lambda *x: None)
    task = find_task("classification")
    examples = make_examples("classification")[:4]
    decoded = answers(examples)
    with pytest.warns(UserWarning, match="no section 'Course': .*no.*picture"):
        report.write_page(
            tmp_path, RESULTS, task, None, examples, decoded, LABELS
        )
    content = (tmp_path / report.PAGE_FILE).read_text("utf-8")
    assert "Worst errors" in content and "Course" not in content


def test_the_worst_errors_of_each_kind_of_task(tmp_path, monkeypatch):
    write_course(tmp_path)
    monkeypatch.setattr(report, "influence_of_words", lambda *x: None)
    choice = ChoiceExample("c", "", "why", ("yes", "no"), 1)
    numbers = [TextExample(str(i), f"t{i}", None, float(i)) for i in range(3)]
    for name, examples, decoded, wanted, absent in (
        (
            "regression",
            numbers,
            [{"id": "", "score": y} for y in (0, 9, 1)],
            ["t1", "t2"],
            "t0",
        ),
        (
            "race",
            [choice],
            [{"id": "c", "answer": 0, "probabilities": [0.7, 0.3]}],
            ["why", "0.7"],
            "nothing",
        ),
        (
            "ner",
            [x._replace(id=f"sentence{i}") for i, x in
             enumerate(make_examples("ner")[:2])],
            [{"id": "0", "words": ["zz"], "tags": list(x.tags)[:-1] + ["X"]}
             for x in make_examples("ner")[:2]],
            ["zz"],
            "nothing",
        ),
    ):  # fmt: skip
        results = {**RESULTS, "metric": "loss", "metrics": {"loss": 1.0}}
        report.write_page(
            tmp_path, results, find_task(name), None, examples, decoded
        )
        text = Parser((tmp_path / report.PAGE_FILE).read_text("utf-8")).text
        places = [text.index(x) for x in wanted]
        assert places == sorted(places) and absent not in text, name


def test_influence_is_the_slope_along_the_embedding():
    _, _, model = setup()
    table = model.backbone.token_embedding.embeddings
    weights = np.array([[1.0, -1.0, 0.0], [0.0, 0.0, 1.0]], "float32")
    texts = ["hatimuco zeje nawa", "a"]
    examples = [
        TextExample(str(i), text, "seguhaki nawa" if i else None)
        for i, text in enumerate(texts)
    ]
    found = influence_of_words(
        TextClassification(model), examples, LABELS, weights
    )
    assert [[word for word, _ in words] for words in found] == [
        ["hatimuco", "zeje", "nawa"],
        ["a", "|", "seguhaki", "nawa"],
    ]
    # Words of one piece each, which can be changed alone.
    tokenizer = model.preprocessor.tokenizer
    pieces = [tokenizer.id_to_piece(i) for i in range(9, 300)]
    words = [x[1:] for x in pieces if x[0] == BLANK and x[1:].isalpha()][:3]
    example = TextExample("", " ".join(words))
    ids = tokenizer.encode(example.text)
    assert len(ids) == len(set(ids)) == 3
    (found,) = influence_of_words(
        TextClassification(model), [example], LABELS, weights[:1]
    )
    original = np.array(table)
    for index, (word, value) in zip(ids, found, strict=True):
        values = []
        for scale in (1.01, 0.99):
            changed = original.copy()
            changed[index] *= scale
            table.assign(changed)
            logits = model(model.preprocessor([example.text]))
            values.append(float(np.sum(np.array(logits) * weights[:1])))
        slope = (values[0] - values[1]) / 0.02
        assert abs(slope) > 1e-4
        assert value == pytest.approx(slope, rel=0.02), word


def test_calibration():
    confidence = [0.95, 0.95, 0.95, 0.95, 0.55, 1.0]
    right = [True, True, True, False, False, True]
    mean, accuracy, count = analysis.calibration_bins(confidence, right)
    np.testing.assert_allclose(mean, [0.55, 0.96])
    np.testing.assert_allclose(accuracy, [0, 0.8])
    assert count.tolist() == [1, 5]
    error = analysis.calibration_error(confidence, right)
    assert error == pytest.approx((0.55 + 5 * 0.16) / 6)


def test_thresholds_of_two_classes():
    probability = np.array([0.1, 0.4, 0.35, 0.8])
    found = analysis.ranked(np.array([0, 0, 1, 1]) > 0, probability)
    assert found == pytest.approx(
        {
            "roc_auc": 0.75,
            "average_precision": 0.5 + 0.5 * 2 / 3,
            "best_threshold": 0.225,  # half way from 0.1 to 0.35
            "best_f1": 0.8,
        }
    )
    lines = analysis.notes_of({"positive": "b", **found})
    assert "F1 of b is highest, 0.8, from a probability of 0.225" in lines[0]
    task = find_task("classification")
    examples = [TextExample(x, "", None, x) for x in "aabb"]
    decoded = [
        {"label": "ab"[int(p > 0.5)], "probabilities": {"a": 1 - p, "b": p}}
        for p in probability
    ]
    some = analysis.analyse(task, examples, decoded, ("a", "b"))
    assert some["positive"] == "b" and some["roc_auc"] == 0.75
    one = analysis.analyse(task, examples[:2], decoded[:2], ("a", "b"))
    assert set(one) == {"calibration_error"}


def test_predictions_that_hardly_vary():
    task = find_task("regression")
    examples = [TextExample("", "", None, float(i)) for i in range(4)]
    for scale, told in ((0.01, True), (0.5, False)):
        decoded = [{"score": scale * i} for i in range(4)]
        found = analysis.analyse(task, examples, decoded)
        assert found["spread"] == pytest.approx(scale)
        lines = analysis.notes_of(found)
        assert [("hardly vary" in x) for x in lines] == [True] * told
    same = [x._replace(label=1.0) for x in examples]
    assert analysis.analyse(task, same, decoded) == {"spread": None}
    assert analysis.notes_of({"spread": None}) == []


def test_rows_of_predictions(tmp_path):
    rows = predictions.prediction_rows(EXAMPLES, answers(EXAMPLES))
    assert rows[1] == {
        "row": 3,
        "text": HOSTILE[1],
        "text_pair": HOSTILE[-1],
        "true_label": "B-x",
        "predicted_label": "O",
        "right": False,
        "id": "1",
        "label": "O",
        "probabilities": {"O": 0.75, "B-x": 0.25},
    }
    predictions.write_predictions(tmp_path / "a.jsonl", rows)
    lines = (tmp_path / "a.jsonl").read_text("utf-8").split("\n")
    assert json.loads(lines[2])["text"] == EXAMPLES[2].text
    unknown = EXAMPLES[0]._replace(label=None, where="a place")
    (row,) = predictions.prediction_rows([unknown], answers([unknown]))
    assert row["where"] == "a place"
    assert not {"right", "true_label"} & set(row)
    assert row["predicted_label"] == row["label"]
    number = TextExample("1", "x", None, 2.5)
    (row,) = predictions.prediction_rows([number], [{"id": "1", "score": 1.0}])
    assert row == {"text": "x", "true_score": 2.5, "id": "1", "score": 1.0}
    # Several classes are right in any order.
    several = TextExample("1", "x", None, ("10", "2"))
    for labels, right in ((["2", "10"], True), (["2"], False)):
        decoded = [{"id": "1", "labels": labels}]
        (row,) = predictions.prediction_rows([several], decoded)
        assert row["right"] is right
