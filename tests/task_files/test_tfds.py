"""Tasks from TensorFlow Datasets, with `tfds.load` replaced."""

import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import downloader

from data_pipeline.tasks import tfds as task_sets
from data_pipeline.tasks.catalog import TASKS
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import QuestionExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from data_pipeline.tasks.tfds import read_by_name


@pytest.fixture
def loaded(monkeypatch):
    """The row that `tfds.load` returns, and its arguments so far."""
    asked, given = [], {}

    def load(name, split):
        asked.append((name, split))
        return tf.data.Dataset.from_tensors(given)

    monkeypatch.setattr(tfds, "load", load)
    return given, asked


def pair(first, second, label, idx):
    return {first: "A", second: "B", "label": label, "idx": np.int32(idx)}


def test_pairs(loaded):
    given, asked = loaded
    for task, first, second, label, expected in (
        ("mnli", "premise", "hypothesis", 0, "entailment"),
        ("mnli", "premise", "hypothesis", 2, "contradiction"),
        ("mnli", "premise", "hypothesis", -1, None),
        ("qnli", "question", "sentence", 1, "not_entailment"),
        ("qqp", "question1", "question2", 1, "1"),
        ("wnli", "sentence1", "sentence2", 0, "0"),
        ("sts-b", "sentence1", "sentence2", np.float32(2.5), 2.5),
        ("sts-b", "sentence1", "sentence2", np.float32(-1), None),
    ):
        given.clear()
        given.update(pair(first, second, label, 7))
        found = read_by_name(task, "dev")
        name = TASKS[task].tfds
        where = f"{name} dev, example 0"
        assert found == [TextExample("7", "A", "B", expected, where)]
        matched = "_matched" if task == "mnli" else ""
        assert asked[-1] == (name, f"validation{matched}")


def test_texts(loaded):
    given, asked = loaded
    given.update(text="Good.<br />Fine.", label=1)
    assert read_by_name("imdb", "test")[0].text == "Good. Fine."
    assert read_by_name("imdb", "test")[0].label == "pos"
    assert read_by_name("yelp-2")[0].label == "2"
    given.clear()
    given.update(title="T", description="D\\e", label=3)
    found = read_by_name("ag-news")[0]
    assert (found.text, found.label) == ("T D e", "4")


def test_squad(loaded):
    given, _ = loaded
    given.update(id="i", title="t", context="c", question="q")
    answers = {"text": ["a", "b"], "answer_start": np.array([3, 5], np.int32)}
    given.update(answers=answers, is_impossible=False)
    assert read_by_name("squad-2.0", "dev") == [
        QuestionExample(
            "i",
            "c",
            "q",
            (Answer("a", 3), Answer("b", 5)),
            False,
            "t",
            "question i",
        )
    ]


def test_squad_1_1_does_not_say_what_has_no_answer(loaded):
    given, _ = loaded
    given.update(id="i", title="t", context="c", question="q")
    given.update(answers={"text": ["c"], "answer_start": np.array([0])})
    found = read_by_name("squad-1.1", "dev")[0]
    assert (found.answers, found.is_impossible) == ((Answer("c", 0),), False)


def test_race(loaded):
    given, asked = loaded
    options = [["a", "b", "c", "d"], ["e", "f", "g", "h"]]
    given.update(
        article="text",
        example_id="high1.txt",
        questions=["q", "r"],
        answers=["B", "D"],
        options=tf.ragged.constant(options),
    )
    found = read_by_name("race")
    assert asked == [("race/middle", "train"), ("race/high", "train")]
    assert found[3] == ChoiceExample(
        "high1.txt/1",
        "text",
        "r",
        ("e", "f", "g", "h"),
        3,
        "high",
        "high1.txt, question 2",
    )


def test_conll(loaded):
    given, _ = loaded
    given.update(tokens=["a", "b"], ner=[0, 5])
    where = "conll2003 train, example 0"
    expected = TokensExample("0", ("a", "b"), ("O", "B-LOC"), where)
    assert read_by_name("conll-2003") == [expected]


def test_features_and_classes_are_those_of_the_package(tmp_path):
    """Features exist in the package, and classes are in the stated order."""
    named = {"imdb", "rte", "qnli", "mnli"}
    for name in task_sets._TEXTS:
        task = TASKS[name]
        builder = tfds.builder(task.tfds, data_dir=tmp_path, try_gcs=False)
        features = builder.info.features
        for joined in task_sets._TEXTS[name]:
            assert set(joined) <= set(features)
        if task.kind == "regression":
            continue
        order = task_sets._LABELS.get(name, task.labels)
        assert len(features["label"].names) == len(order)
        if name in named:
            assert features["label"].names == list(order)
    features = tfds.builder("conll2003", data_dir=tmp_path, try_gcs=False)
    tags = features.info.features["ner"].feature.names
    assert tuple(tags) == TASKS["conll-2003"].labels


def test_what_is_not_there():
    for task in ("yelp-5", "classification"):
        message = f"task {task} needs your files: --data PATH.*not have the ta"
        with pytest.raises(ValueError, match=message):
            read_by_name(task)
    with pytest.raises(ValueError, match="does not have a dev split of imdb"):
        read_by_name("imdb", "dev")


def test_no_network_and_no_package(monkeypatch):
    def load(name, split):
        # Ten, whose waits double, take minutes.
        assert downloader.MAX_RETRIES <= 4
        raise error

    monkeypatch.setattr(tfds, "load", load)
    for error in (
        OSError("no network\nmore"),
        ModuleNotFoundError("No module named 'importlib_resources'"),
        tf.errors.UnavailableError(None, None, "no network"),
    ):
        with pytest.raises(RuntimeError, match="give their path") as caught:
            read_by_name("rte")
        assert "\n" not in str(caught.value)
        assert type(error).__name__ in str(caught.value)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(RuntimeError, match="needs the package tensorflow-dat"):
        read_by_name("rte")
