"""Tasks from TensorFlow Datasets, with `tfds.load` replaced."""

import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from tensorflow_datasets.core.download import downloader
from tensorflow_datasets.core.download.download_manager import (
    NonMatchingChecksumError,
)

from data_pipeline.tasks import tfds as task_sets
from data_pipeline.tasks.catalog import TASKS
from data_pipeline.tasks.examples import Answer
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import PairExample
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
        ("qnli", "question", "sentence", 1, "not_entailment"),
        ("qqp", "question1", "question2", 1, "1"),
        ("wnli", "sentence1", "sentence2", 0, "0"),
        ("sts-b", "sentence1", "sentence2", np.float32(2.5), 2.5),
    ):
        given.clear()
        given.update(pair(first, second, label, 7))
        found = read_by_name(task, "dev")
        name = TASKS[task].tfds
        where = f"{name} dev, example 0"
        assert found == [TextExample("7", "A", "B", expected, where)]
        matched = "_matched" if task == "mnli" else ""
        assert asked[-1] == (name, f"validation{matched}")
    given.update(pair("premise", "hypothesis", 1, 7))
    assert read_by_name("mnli", "dev_mismatched")[0].label == "neutral"
    assert asked[-1] == ("glue/mnli", "validation_mismatched")


def test_texts(loaded):
    given, asked = loaded
    given.update(text="Good.<br />Fine.", label=1)
    where = "imdb_reviews train, example 0"
    expected = TextExample("0", "Good. Fine.", None, "pos", where)
    assert read_by_name("imdb") == [expected]
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


def test_emails(loaded):
    given, asked = loaded
    given.update(email_body="Dear", subject_line="Hé")
    where = "aeslc dev, example 0"
    assert read_by_name("aeslc", "dev") == [
        PairExample("0", "Dear", "Hé", where)
    ]
    assert asked == [("aeslc", "validation")]


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
    given, asked = loaded
    given.update(tokens=["a", "b"], ner=[0, 5])
    where = "conll2003 train, example 0"
    expected = TokensExample("0", ("a", "b"), ("O", "B-LOC"), where)
    assert read_by_name("conll-2003") == [expected]
    read_by_name("conll-2003", "dev")
    assert asked == [("conll2003", "train"), ("conll2003", "dev")]


def test_features_and_classes_are_those_of_the_package(tmp_path):
    """Each set has the texts of its task, and classes in the stated order."""

    def info_of(name):
        return tfds.builder(name, data_dir=tmp_path, try_gcs=False).info

    named = {"imdb", "rte", "qnli", "mnli"}
    texts = {"ag-news": 2, "imdb": 1, "yelp-2": 1, "sst-2": 1, "cola": 1}
    for task in TASKS.values():
        if task.tfds is None or task.kind not in (
            "classification",
            "regression",
        ):
            continue
        features = info_of(task.tfds).features
        found = [name for name in task_sets._TEXTS if name in features]
        assert len(found) == texts.get(task.name, 2), task.name
        assert set(features) - {*found, "label", "idx"} == set(), task.name
        if task.kind == "regression":
            continue
        order = task_sets._LABELS.get(task.name, task.labels)
        assert len(features["label"].names) == len(order)
        if task.name in named:
            assert features["label"].names == list(order)
    tags = info_of("conll2003").features["ner"].feature.names
    assert tuple(tags) == TASKS["conll-2003"].labels


def test_what_is_not_there():
    for task in ("yelp-5", "classification"):
        message = f"task {task} needs your files: --data PATH.*not have the ta"
        with pytest.raises(ValueError, match=message):
            read_by_name(task)


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
        NonMatchingChecksumError("the archive is another one"),
    ):
        with pytest.raises(RuntimeError, match="give their path") as caught:
            read_by_name("rte")
        assert "\n" not in str(caught.value)
        assert type(error).__name__ in str(caught.value)
    monkeypatch.setitem(sys.modules, "tensorflow_datasets", None)
    with pytest.raises(RuntimeError, match="needs the package tensorflow-dat"):
        read_by_name("rte")
