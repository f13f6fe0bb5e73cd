"""Tiny tasks, their signatures, and exports of their fine-tuning runs."""

import functools
import pathlib
import tempfile

import keras
import numpy as np
import tensorflow as tf

import xlnet_tf
from data_pipeline.base.files import read_json_lines
from saved_models import export
from tests.support import finetuning_fixtures
from tests.support.commands import run
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import module_of
from tests.support.export_fixtures import signatures_of
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.samples import tiny_sentences
from tests.support.training_fixtures import tiny_config

LENGTH, SEGMENT = 24, 7
# float32, on logits that are spread to about 1 from about 0.01
TOLERANCE = 1e-4
SENTENCES = list(tiny_sentences(12))
# Short, empty, too long, not UTF-8, and what looks like a symbol.
TEXTS = [
    "ba co fi",
    "",
    " ".join(SENTENCES),
    b"ba \xff co\xe2\x82",
    "<cls> \u3000größer\u2028 co <sep>",
]
OTHERS = ["co", "fi " * 40, "", "ba", ""]
OPTIONS = [["co", ""], ["fi " * 150, "ba"], ["", ""], ["a", "b"], ["b", "a"]]
TASKS = {
    "classifier": (xlnet_tf.XLNetTextClassifier, {"num_classes": 3}),
    "several": (xlnet_tf.XLNetMultiLabelClassifier, {"num_classes": 3}),
    "regressor": (xlnet_tf.XLNetTextRegressor, {}),
    "choice": (xlnet_tf.XLNetMultipleChoice, {}),
    "ranker": (xlnet_tf.XLNetRanker, {}),
    "tagger": (xlnet_tf.XLNetTokenClassifier, {"num_classes": 3}),
    "questions": (xlnet_tf.XLNetQuestionAnswering, {}),
}
LABELS = ["O", "größer", "B-long"]
WITH_LABELS = ("classifier", "several", "tagger")
# Settings of the exported classifier: buckets, and batches of two rows.
PARTS = {"seq_length_buckets": (12, LENGTH), "max_batch": 2}


def make(name, segment_length=None, labels=None, **settings):
    cls, arguments = TASKS[name]
    arguments = dict(arguments)
    if name in WITH_LABELS:
        arguments["labels"] = labels or LABELS
    if segment_length:
        arguments["segment_length"] = segment_length
    if name == "questions":
        settings = {"stride": 5, "max_question_length": 6, **settings}
    config = tiny_config(
        vocabulary_size=PIECES,
        num_layers=1,
        memory_length=SEGMENT if segment_length else 0,
    )
    task = randomize(cls(xlnet_tf.XLNetBackbone(config), **arguments))
    task.preprocessor = cls.preprocessor_cls(
        tiny_tokenizer(), sequence_length=LENGTH, **settings
    )
    task.compile(run_eagerly=True)  # tracing takes longer
    if name != "questions":
        _spread(task, raw(name))
    return task


def _spread(task, x):
    """Change the last layer so that answers differ from text to text."""
    if "text" in x and isinstance(task, xlnet_tf.XLNetTokenClassifier):
        x = [row.split() for row in SENTENCES[:3]]
    layer = task.head.logits_dense
    logits = as_numpy(task(task.preprocessor(x))).reshape(-1, layer.units)
    scale = logits.std(axis=0)
    layer.kernel.assign(layer.kernel / scale)
    layer.bias.assign((layer.bias - logits.mean(axis=0)) / scale)


@functools.cache
def shared_task(name):
    """Task that tests must not change."""
    return make(name)


@functools.cache
def _directory():
    return tempfile.TemporaryDirectory()  # removed when the tests end


@functools.cache
def shared_export(name):
    """The SavedModel of a task, exported from a fine-tuning run's directory."""
    folder, task = pathlib.Path(_directory().name) / name, shared_task(name)
    if name == "questions":
        task.null_threshold = threshold()
    write_run(folder / "run", task)
    arguments = ["--model", folder / "run", "--output", folder / "served"]
    arguments += ["--sequence-length", LENGTH, "--num-candidates", 3]
    assert run(export.main, *arguments) == 0
    return folder / "served" / "1"


@functools.cache
def served(name):
    """The signatures of `shared_export`."""
    return signatures_of(shared_export(name))


@functools.cache
def functions(name):
    """The signatures of a shared task as functions, without a SavedModel."""
    task = shared_task(name)
    if name == "questions":
        task.null_threshold = threshold()
    return {n: s.function for n, s in made(task).items()}


def write_run(directory, task):
    """Write the files of a fine-tuning run that an export reads."""
    directory.mkdir(parents=True)
    task.save(directory / "model.keras")
    task.save_to_preset(directory / "best")


def made(task, **settings):
    """The signatures of a task, without a SavedModel."""
    settings = {"sequence_length": LENGTH, "num_candidates": 3, **settings}
    module = module_of(task, **settings)
    return _Held(module, module.signatures())


def finetuned(directory, task, **settings):
    """Directory of a fine-tuning run, and its predictions."""
    preset = finetuning_fixtures.write_preset(directory / "preset")
    data = finetuning_fixtures.write_task(directory / "data", task)
    training = finetuning_fixtures.write_training(directory, **settings)
    options = {"task": task, "data": data, "preset": preset}
    options |= {"output": directory / "run", "training": training}
    arguments = [x for n, v in options.items() for x in (f"--{n}", v)]
    assert finetuning_fixtures.run(*arguments) == 0
    rows = read_json_lines(directory / "run" / "held_out_predictions.jsonl")
    return directory / "run", data, rows


class _Held(dict):
    """Signatures, and the module that keeps their lookup tables alive."""

    def __init__(self, module, signatures):
        super().__init__(signatures)
        self.module = module


def ask(function, **inputs):
    return as_numpy(
        function(
            **{
                name: value
                if isinstance(value, np.ndarray)
                else tf.constant(value, tf.string)
                for name, value in inputs.items()
            }
        )
    )


def decoded(array):
    return [x.decode() for x in np.ravel(array)]


def close(found, expected, tolerance=TOLERANCE):
    expected = np.asarray(expected)
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, atol=tolerance, rtol=tolerance)


def predict(task, x):
    return task.predict(x, verbose=0)


def softmax(logits):
    return as_numpy(keras.ops.softmax(logits))


def raw(name):
    """A request for each task."""
    return {
        "classifier": {"text": TEXTS},
        "several": {"text": TEXTS},
        "regressor": {"text": TEXTS},
        "choice": {"context": TEXTS, "question": OTHERS, "options": OPTIONS},
        "ranker": {"query": TEXTS, "documents": OPTIONS},
        "tagger": {"text": TEXTS},
        "questions": questions(),
    }[name]


def questions(count=5):
    contexts = [SENTENCES[0], "", " ".join(SENTENCES[:4]), *SENTENCES[4:6]]
    asked = ["ba co", "", "fi " * 9, SENTENCES[4], ""]
    return {"question": asked[:count], "context": contexts[:count]}


def between(scores):
    """Middle of the scores' widest gap, which rounding cannot cross."""
    scores = np.sort(scores)
    widest = np.diff(scores).argmax()
    below, above = scores[widest : widest + 2]
    assert above - below > 100 * TOLERANCE
    return float((below + above) / 2)


@functools.cache
def threshold():
    """A threshold that some questions' null_score exceeds."""
    answers = shared_task("questions").answer(*questions().values())
    return between([one["null_score"] for one in answers])
