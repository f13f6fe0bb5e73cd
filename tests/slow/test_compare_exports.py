"""What two exports get right: as the Keras model, and as after fine-tuning."""

import functools
import json
import pathlib
import tempfile

import numpy as np
import pytest

from data_pipeline.command_line import run
from data_pipeline.tasks.catalog import TASKS
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.reading import read_examples
from saved_models import compare
from saved_models import export
from saved_models.compare import compare_on_task
from saved_models.compare import read_labelled
from tests.support import finetuning_fixtures
from tests.support.export_fixtures import SMALL
from tests.support.export_fixtures import compared
from tests.support.export_fixtures import refused
from tests.support.export_fixtures import shared_export as pretrainer_export
from tests.support.oracle import as_numpy
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import between
from tests.support.task_export_fixtures import finetuned
from tests.support.task_export_fixtures import made
from tests.support.task_export_fixtures import make
from tests.support.task_export_fixtures import predict
from tests.support.task_export_fixtures import shared_export
from xlnet_tf.tasks.metrics import find_metric
from xlnet_tf.tasks.squad import scores_1
from xlnet_tf.tasks.squad import scores_2

TEXTS = ["ba co fi gu ha je ki lo", "", "de fi", "mu na po ra " * 3]
pytestmark = pytest.mark.slow

# task -> model of tests.support.task_export_fixtures
MODELS = {
    "classification": "classifier",
    "pair": "classifier",
    "regression": "regressor",
    "race": "choice",
    "ranking": "ranker",
    "ner": "tagger",
    "squad-1.1": "questions",
    "squad-2.0": "questions",
}
MODEL_LABELS = {
    "classifier": ("no", "yes", "other"),
    "tagger": ("O", "B-long", "I-long"),
}
PAIRS = [("ba co", "fi", "no"), ("fi gu", "ba ha", "yes"), ("je", "ki", "no")]


class Traced:
    """Signatures of raw text, asked as an export is, but not written."""

    def __init__(self, task, precision):
        self._signatures = made(task, precision=precision)
        self._functions = {
            name: signature.concrete()
            for name, signature in self._signatures.items()
            if name != "ids"
        }

    def signatures(self):
        return {
            name: (self._signatures[name].inputs, function.structured_outputs)
            for name, function in self._functions.items()
        }

    def predict(self, inputs, signature):
        return ask(self._functions[signature], **inputs)


@functools.cache
def model(name):
    return make(name, labels=MODEL_LABELS.get(name))


@functools.cache
def data_directory():
    return tempfile.TemporaryDirectory()  # removed when the tests end


def data(task):
    """A directory in the layout that fine-tuning reads."""
    directory = pathlib.Path(data_directory().name) / task
    if task == "pair":
        directory.mkdir(exist_ok=True)
        lines = ["\t".join(x) for x in [("text", "text_pair", "label"), *PAIRS]]
        (directory / "dev.tsv").write_text("\n".join(lines) + "\n")
    elif not directory.exists():
        finetuning_fixtures.write_task(directory, task)
    return directory


def column(examples, *names):
    return {n: [getattr(x, n) for x in examples] for n in names}


def of_classes(task, examples):
    logits = predict(task, column(examples, "text"))
    return _accuracy(task, examples, logits)


def of_pairs(task, examples):
    logits = predict(task, column(examples, "text", "text_pair"))
    return _accuracy(task, examples, logits)


def _accuracy(task, examples, logits):
    labels = [MODEL_LABELS["classifier"][i] for i in logits.argmax(-1)]
    targets = [x.label for x in examples]
    return {"accuracy": find_metric("accuracy")(targets, labels)}


def of_numbers(task, examples):
    found = predict(task, column(examples, "text", "text_pair"))
    targets = [x.label for x in examples]
    names = TASKS["sts-b"].metrics
    return {n: find_metric(n)(targets, found) for n in names}


def of_options(task, examples):
    x = column(examples, "context", "question")
    x["options"] = [list(example.options) for example in examples]
    found = predict(task, x).argmax(-1)
    targets = [x.answer for x in examples]
    accuracy = find_metric("accuracy")
    # All articles are of the folder "middle".
    return dict.fromkeys(
        ("accuracy", "accuracy_middle"), accuracy(targets, found)
    )


def of_documents(task, examples):
    queries = {}
    for example in examples:
        queries.setdefault(example.query_id, []).append(example)
    x = {
        "query": [group[0].query for group in queries.values()],
        "documents": [[x.document for x in g] for g in queries.values()],
    }
    relevance = [[x.relevance for x in group] for group in queries.values()]
    scores = [
        row[: len(group)]
        for row, group in zip(predict(task, x), relevance, strict=True)
    ]
    return {
        f"ndcg@{k}": find_metric(f"ndcg@{k}")(relevance, scores)
        for k in (10, 20)
    }


def of_tags(task, examples):
    words = [list(x.words) for x in examples]
    best = predict(task, words).argmax(-1)
    first = as_numpy(task.preprocessor.first_pieces(words))
    found = []
    for row, example in enumerate(examples):
        places = np.flatnonzero(first[row])
        tags = [MODEL_LABELS["tagger"][i] for i in best[row, places]]
        found.append(tags + ["O"] * (len(example.words) - len(tags)))
    targets = [list(x.tags) for x in examples]
    return {"entity_f1": find_metric("entity_f1")(targets, found)}


def _answers(task, examples):
    """Of every question, whatever the model's threshold."""
    x = column(examples, "question", "context")
    found = task.answer(
        x["question"], x["context"], n_best=3, null_threshold=None
    )
    return {x.id: a for x, a in zip(examples, found, strict=True)}


def partly_right(task, examples):
    """The examples, every other one with the model's own answer as the right
    one; the model takes some of them for unanswerable."""
    found = _answers(task, examples)
    task.null_threshold = between([x["null_score"] for x in found.values()])
    return [
        one._replace(
            answers=(Answer(found[one.id]["text"], 0),), is_impossible=False
        )
        if number % 2
        else one
        for number, one in enumerate(examples)
    ]


def of_questions_1(task, examples):
    found = _answers(task, examples)
    values = scores_1(examples, {n: a["text"] for n, a in found.items()})
    assert values["exact_match"] >= 50
    return values


def of_questions_2(task, examples):
    found = _answers(task, examples)
    texts = {name: answer["text"] for name, answer in found.items()}
    odds = {name: answer["null_score"] for name, answer in found.items()}
    best = scores_2(examples, texts, odds)
    served = scores_2(examples, texts, odds, task.null_threshold)
    spans = scores_2(examples, texts, odds, np.inf)
    assert 0 < served["f1"] <= best["best_f1"]
    return {
        "squad_f1": best["best_f1"],
        "exact_match": best["best_exact"],
        "null_threshold": best["best_f1_threshold"],
        "squad_f1_at_even_odds": best["f1"],
        "exact_match_at_even_odds": best["exact"],
        "squad_f1_if_answerable": spans["HasAns_f1"],
        "squad_f1_as_answered": served["f1"],
        "exact_match_as_answered": served["exact"],
    }


BY_KERAS = dict(
    zip(
        MODELS,
        (
            of_classes,
            of_pairs,
            of_numbers,
            of_options,
            of_documents,
            of_tags,
            of_questions_1,
            of_questions_2,
        ),
        strict=True,
    )
)


@pytest.mark.parametrize("task", MODELS)
def test_metrics_are_those_of_the_keras_model(task):
    keras_model = model(MODELS[task])
    examples = read_labelled(task, data(task), limit=8)
    if task.startswith("squad"):
        examples = partly_right(keras_model, examples)
    exact = Traced(keras_model, "float32")
    expected = BY_KERAS[task](keras_model, examples)
    metrics, agreement = compare_on_task(exact, exact, task, examples)
    assert set(metrics) == set(expected)
    assert any(expected.values())
    for name, (value, other) in metrics.items():
        assert value == other
        # R2 of a model that was not trained is far below 0.
        close = pytest.approx(expected[name], rel=1e-5, abs=1e-4)
        assert value == close, name
    assert agreement in (
        {"same_answers": 1},
        {"mean_difference": 0, "largest_difference": 0},
    )
    rounded = Traced(keras_model, "int8")
    both, agreement = compare_on_task(exact, rounded, task, examples)
    turned, _ = compare_on_task(rounded, exact, task, examples)
    for name, values in both.items():
        assert values[0] == pytest.approx(metrics[name][0], abs=1e-9)
        assert values == tuple(reversed(turned[name]))
    if task == "regression":
        largest = agreement["largest_difference"]
        assert 0 < agreement["mean_difference"] < largest < 2
        assert both["pearson"][0] != both["pearson"][1]
    else:
        assert 0.2 < agreement["same_answers"] <= 1


def write_table(directory, rows):
    file = directory / "mine.tsv"
    lines = ["\t".join(x) for x in [("text", "label"), *rows]]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return file


def test_eight_bits_cost_something(capsys, tmp_path):
    file = tmp_path / "texts"
    file.write_text("\n".join(TEXTS), encoding="utf-8")
    arguments = ["--model", str(pretrainer_export()), "--file", str(file)]
    arguments += ["--other", str(pretrainer_export(**SMALL))]
    capsys.readouterr()
    assert run(compare.main, arguments) == 0
    lines = capsys.readouterr().out.splitlines()
    figures = {name: float(value) for name, value in map(str.split, lines)}
    assert 0 < figures["mean_difference"] < figures["largest_difference"] < 0.5
    bits = figures["bits_per_token"], figures["other_bits_per_token"]
    assert 0 < abs(bits[0] - bits[1]) < 0.1


def test_an_export_of_another_model(capsys, tmp_path):
    place = shared_export("classifier")
    options = ["--model", place, "--other", place]
    file = write_table(tmp_path, [("ba", "O"), ("co", "new")])
    line = refused(
        capsys,
        compare.main,
        *(*options, "--task", "classification", "--data", file),
    )
    assert "mine.tsv, row 3: the label 'new' is not one of the export" in line
    directory = data("squad-1.1")
    line = refused(
        capsys,
        compare.main,
        *(*options, "--task", "squad-1.1", "--data", directory),
    )
    assert "an export of a model for question_answering, whose signatu" in line
    assert "It takes text and gives" in line


@pytest.mark.parametrize("task", ["classification", "ner", "squad-2.0"])
def test_an_export_gets_what_fine_tuning_measured(capsys, tmp_path, task):
    """One task of each kind of reading: texts, words, and windows.

    All tasks' metrics are held to the Keras model above.
    """
    lengths = {}
    if task.startswith("squad"):
        lengths = {"sequence_length": 90, "max_question_length": 64}
        lengths["stride"] = 128
    directory, files, _ = finetuned(tmp_path, task, **lengths)
    length = lengths.get("sequence_length", 24)
    for name in ("float32", "int8"):
        options = ["--model", directory, "--output", tmp_path / name]
        options += ["--sequence-length", length, "--precision", name]
        assert run(export.main, [str(x) for x in options]) == 0
    table = compared(
        capsys,
        *("--model", tmp_path / "float32", "--other", tmp_path / "int8"),
        *("--task", task, "--data", files),
    )
    expected = json.loads((directory / "results.json").read_text())["metrics"]
    assert expected
    for name, value in expected.items():
        assert table[name][0] == pytest.approx(value, rel=1e-4, abs=1e-4), name
    assert len(read_examples(task, files, "dev")) == table["examples"][0]
