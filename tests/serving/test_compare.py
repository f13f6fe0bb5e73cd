"""`python -m saved_models.compare`: two exports on texts and on tasks."""

import numpy as np
import pytest

from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import PairExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from saved_models import compare
from saved_models.client.local import Predictor
from saved_models.compare import compare_on_task
from saved_models.compare import read_labelled
from tests.support.export_fixtures import compared
from tests.support.export_fixtures import refused
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.task_export_fixtures import LABELS

TEXTS = ["ba co fi gu ha je ki lo", "", "de fi", "mu na po ra " * 3]


def test_bits_are_those_of_the_model(pretrainer_export):
    exact = Predictor(pretrainer_export)
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
    with pytest.raises(ValueError, match="no tokens to predict"):
        compare.compare(exact, exact, ["", ""])


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
    # NaN is no agreement, whichever export has it.
    lacking = Export(score=[np.nan, 2.0])
    for exports in ((numbers[0], lacking), (lacking, numbers[0])):
        figures = compare.compare(*exports, ["x", "y"])
        assert np.isnan(figures["largest_difference"])
        assert figures["same_answers"] == 0.5
    wider = Export(score=[[1.0, 2.0]] * 2), Export(score=[[1.0, 2.0, 0.0]] * 2)
    with pytest.raises(
        ValueError, match=r"different models: their `score` are"
    ):
        compare.compare(*wider, ["x", "y"])
    wider = [Export(answer=[[1] * size] * 2) for size in (1, 3)]
    with pytest.raises(ValueError, match="different models: their `answer` a"):
        compare.compare(*wider, ["x", "y"])
    names = [np.array([[b"a"] * size] * 2, object) for size in (2, 3)]
    wider = [Export(labels=labels) for labels in names]
    with pytest.raises(ValueError, match="different models: their `labels` a"):
        compare.compare(*wider, ["x", "y"])
    with pytest.raises(
        ValueError, match="one gives label, score, the other score"
    ):
        compare.compare(
            Export(label=["a"], score=[0.5]), Export(score=[1.0]), ["x"]
        )


class Told:
    """An export whose answers are told, an entry a row."""

    def __init__(self, inputs, **outputs):
        self.inputs, self.outputs, self.place = inputs, outputs, 0

    def again(self):
        return Told(self.inputs, **self.outputs)

    def signatures(self):
        inputs = dict.fromkeys(self.inputs)
        return {"serving_default": (inputs, dict.fromkeys(self.outputs))}

    def predict(self, inputs, signature):
        begin = self.place
        self.place += len(next(iter(inputs.values())))
        return {
            name: np.array(values[begin : self.place])
            for name, values in self.outputs.items()
        }


def texts(labels):
    scores = [[0.9, 0.1] if label == b"no" else [0.2, 0.8] for label in labels]
    return Told(
        ("text",),
        label=labels,
        labels=[[b"no", b"yes"]] * len(labels),
        scores=scores,
    )


def choices(answers):
    scores = np.eye(3)[answers]
    inputs = ("context", "question", "options")
    return Told(inputs, answer=answers, scores=scores)


def questions(answers):
    return Told(
        ("question", "context"),
        answer=answers,
        null_score=[-1.0] * len(answers),
        n_best_answers=[[answer, b"x"] for answer in answers],
    )


def rankings(scores):
    return Told(("query", "documents"), scores=[[score] for score in scores])


def targets(texts):
    values = [[-1.0]] * len(texts)
    return Told(
        ("text",), generated=[[x] for x in texts], log_probabilities=values
    )


CASES = {
    "aeslc": (
        [PairExample(str(i), "a", "ba co") for i in range(2)],
        targets([b"ba co", b"fi"]),
        targets([b"ba co", b"co ba"]),
        ("rouge1", 0.5, 1),
        0.5,
    ),
    "classification": (
        [TextExample(str(i), "a", None, "yes") for i in range(4)],
        texts([b"yes", b"no", b"yes", b"yes"]),
        texts([b"yes", b"yes", b"yes", b"yes"]),
        ("accuracy", 0.75, 1),
        0.75,
    ),
    "race": (
        [ChoiceExample(str(i), "c", "q", ("a", "b", "c"), 2) for i in range(4)],
        choices([2, 2, 0, 1]),
        choices([2, 2, 0, 0]),
        ("accuracy", 0.5, 0.5),
        0.75,
    ),
    "squad-1.1": (
        [
            QuestionExample(str(i), "ba co", "q", (Answer("ba", 0),))
            for i in "12"
        ],
        questions([b"ba", b"co"]),
        questions([b"ba", b"ba"]),
        ("exact_match", 50, 100),
        0.5,
    ),
    "ranking": (
        [
            RankingExample(query, query, document, document, float(document))
            for query in "ab"
            for document in "01"
        ],
        # The best document of one query differs; scores of the other do.
        rankings([0.1, 0.2, 0.3, 0.4]),
        rankings([0.1, 0.9, 0.8, 0.4]),
        ("ndcg@10", 1, pytest.approx((1 + 1 / np.log2(3)) / 2)),
        0.5,
    ),
}


def test_one_decision_differs():
    for task, case in CASES.items():
        examples, model, other, (metric, *values), same = case
        metrics, agreement = compare_on_task(model, other, task, examples)
        assert list(metrics[metric]) == values, task
        assert agreement == {"same_answers": same}, task


def test_numbers_that_differ():
    examples = [TextExample(str(i), "a", "b", i / 2) for i in range(3)]

    def export(*scores):
        told = Told(("text", "text_pair"), score=scores)
        told.signatures = lambda: {
            "pairs": (dict.fromkeys(told.inputs), {"score": None})
        }
        return told

    metrics, agreement = compare_on_task(
        export(0.0, 1.0, 2.0), export(0.0, 2.0, 1.5), "regression", examples
    )
    assert metrics["pearson"] == (
        pytest.approx(1),
        pytest.approx(1.5 / np.sqrt(2 * 13 / 6)),
    )
    assert agreement == {"mean_difference": 0.5, "largest_difference": 1.0}


def test_answers_at_the_threshold_of_the_export():
    """Of four questions, two without an answer; one wrongly left open."""
    examples = [
        QuestionExample(
            str(i), "ba co", "q", (Answer("ba", 0),) * (i < 2), i > 1
        )
        for i in range(4)
    ]
    export = Told(
        ("question", "context"),
        answer=[b"ba", b"", b"", b""],
        null_score=[-2.0, -1.0, 0.5, 3.0],
        n_best_answers=[[b"ba", b"x"]] * 4,
    )
    metrics, agreement = compare_on_task(
        export, export.again(), "squad-2.0", examples
    )
    values = {name: pair[0] for name, pair in metrics.items()}
    assert values == {
        "squad_f1": 100,
        "exact_match": 100,
        "null_threshold": -1.0,
        "squad_f1_at_even_odds": 100,
        "exact_match_at_even_odds": 100,
        "squad_f1_if_answerable": 100,
        "squad_f1_as_answered": 75,
        "exact_match_as_answered": 75,
    }
    assert agreement == {"same_answers": 1}


class Tagger:
    """Answers with tags that are told."""

    def __init__(self, tags, count):
        self.answer = {"tags": np.array([tags], object), "count": [count]}

    def signatures(self):
        return {"serving_default": ({"text": None}, {**self.answer})}

    def predict(self, inputs, signature):
        assert inputs == {"text": ["New York is  big"]}
        return self.answer


def test_tags_of_words_that_the_export_divides_or_did_not_read():
    words, tags = ("New York", "is", "", "big"), ("B-x", "O", "O", "B-x")
    example = TokensExample("0", words, tags, "a.conll, row 1")
    first = Tagger([b"B-x", b"O", b"O", b""], 4)
    second = Tagger([b"B-x", b"I-x", b"O", b"B-x", b""], 4)
    metrics, agreement = compare_on_task(first, second, "ner", [example])
    assert metrics == {"entity_f1": (pytest.approx(2 / 3), 1)}
    assert agreement == {"same_answers": 0.75}
    with pytest.raises(ValueError, match="row 1: the export read 3 words wher"):
        compare_on_task(first, Tagger([b"O"] * 3, 3), "ner", [example])


def test_exports_that_do_not_fit():
    example = TextExample("0", "a", None, "yes", "mine.tsv, row 3")
    for export, task, message in (
        (texts([b"no"]), "squad-2.0", "signature 'serving_default' takes"),
        (texts([b"no"]), "regression", "an export of a model for regression"),
        (choices([0]), "classification", "It takes context, options, question"),
        (texts([b"no"]), "classification", "the label 'new' is not one of"),
    ):
        wrong = example._replace(label="new")
        if task == "squad-2.0":
            wrong = QuestionExample("0", "c", "q")
        with pytest.raises(ValueError, match=message):
            compare_on_task(export, export, task, [wrong])


def test_outputs_that_are_not_numbers():
    example = TextExample("0", "a", None, 1.0)
    export = Told(("text",), score=[np.nan])
    with pytest.raises(ValueError, match="1 of 1 examples are not numbers"):
        compare_on_task(export, export, "regression", [example])


def test_examples_without_labels(tmp_path):
    (tmp_path / "test.tsv").write_text("index\tsentence\n0\tba\n")
    with pytest.raises(ValueError, match="test.tsv, row 2: the example has no"):
        read_labelled("sst-2", tmp_path)
    (tmp_path / "dev.tsv").write_text("sentence\tlabel\nba\t1\nco\t0\n")
    assert [x.label for x in read_labelled("sst-2", tmp_path)] == ["1", "0"]
    assert len(read_labelled("sst-2", tmp_path, limit=1)) == 1
    # A relevance of 0 is a label.
    rows = ["query\tdocument\trelevance", "a\tb\t0", "a\tc\t1"]
    (tmp_path / "mine.tsv").write_text("\n".join(rows) + "\n")
    found = read_labelled("ranking", tmp_path / "mine.tsv")
    assert [x.relevance for x in found] == [0, 1]


def test_columns_of_examples_are_guessed(tmp_path, capsys):
    rows = [f"so it is {i}\t{'ab'[i % 2]}" for i in range(8)]
    (tmp_path / "mine.tsv").write_text("\n".join(["remark\tverdict", *rows]))
    found = read_labelled("classification", tmp_path / "mine.tsv")
    assert [x.label for x in found] == [*"abababab"]
    told = "text column: remark, label column: verdict; guessed, see --columns"
    assert capsys.readouterr().err == f"{told}\n"


def test_the_command_on_a_task(capsys, tmp_path, classifier_export):
    texts = ["ba co fi", "gu ha", "größer", "je ki lo", "beyond the limit"]
    rows = zip(texts, [*LABELS, "O", "O"], strict=True)
    file = tmp_path / "mine.tsv"
    lines = ["text\tlabel", *map("\t".join, rows)]
    file.write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = ["--model", classifier_export, "--other", classifier_export]
    options += ["--task", "classification"]
    table = compared(capsys, *options, "--data", file, "--limit", 4)
    assert list(table) == ["accuracy", "same_answers", "examples"]
    accuracy, other, difference = table["accuracy"]
    assert accuracy == other and difference == 0
    assert table["same_answers"] == [1] and table["examples"] == [4]


def test_the_command_tells_how_far_it_is(told, tmp_path, classifier_export):
    texts, labelled = tmp_path / "texts.txt", tmp_path / "mine.tsv"
    texts.write_text("ba co fi\n" * 5)
    labelled.write_text("text\tlabel\n" + f"ba co\t{LABELS[0]}\n" * 5)
    command = ["--model", classifier_export, "--other", classifier_export]
    command += ["--batch-size", 2]
    task = ("--task", "classification", "--data", labelled)
    found = told(compare.main, *command, "--file", texts)
    assert "comparing: 3 of 3 batches, 100%" in found
    found = told(compare.main, *command, *task)
    assert "asking: 5 of 5 examples, 100%" in found
    assert told(compare.main, *command, "--file", texts, "--quiet") == ""


def test_the_command_refuses(capsys, tmp_path):
    empty = tmp_path / "empty"
    empty.write_text(" \n")
    for arguments, message in (
        (["--task", "sst-2"], "--task and --data belong together"),
        (["--data", "a", "--file", "b"], "--task and --data belong together"),
        (["--task", "sst-2", "--file", "b"], "either --file, or --task and"),
        ([], "either --file, or --task and --data"),
        (["--task", "a", "--data", "b"], "there is no task of this name"),
        (["--task", "sst-2", "--data", "gone"], "gone"),
        (["--file", "b", "--limit", "0"], "`--limit` must be at least 1"),
        (["--file", "b", "--batch-size", "0"], "`--batch-size` must be at"),
        (["--file", empty], "there is no text in"),
        (["--file", empty, "--split", "dev"], "--split needs --data"),
        (["--file", empty, "--columns", "text=a"], "`--columns` needs a table"),
    ):
        options = ["--model", "a", "--other", "b", *map(str, arguments)]
        assert message in refused(capsys, compare.main, *options), arguments
