"""How alike the answers of two exports are, where one decision differs."""

import numpy as np
import pytest

from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from saved_models.compare import compare_on_task


class Told:
    """An export whose answers are told, an entry a row."""

    def __init__(self, inputs, **outputs):
        self.inputs, self.outputs, self.place = inputs, outputs, 0

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


CASES = {
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


@pytest.mark.parametrize("task", CASES)
def test_one_decision_differs(task):
    examples, model, other, (metric, *values), same = CASES[task]
    metrics, agreement = compare_on_task(model, other, task, examples)
    assert list(metrics[metric]) == values
    assert agreement == {"same_answers": same}
