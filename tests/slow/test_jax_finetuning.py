"""Fine-tuning on Keras' JAX backend, by the command, in processes of its own.

TensorFlow's runs of the same commands, from the same weights, say what is
right: the curve, the metrics, the files, the answers.
"""

import importlib.util
import json
import shutil

import numpy as np
import pytest

import saved_models
import xlnet_tf
from saved_models import check
from saved_models.settings import ExportSettings
from tests.support import backend_runs
from tests.support import finetuning_fixtures
from tests.support.artefacts import MODEL
from tests.support.commands import python
from tests.support.killed_runs import end_of
from tests.support.samples import tiny_sentences
from xlnet_tf import objectives
from xlnet_tf.loading import load_tokenizer
from xlnet_tf.loading import open_model
from xlnet_tf.training.step import MOST_SKIPPED

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        importlib.util.find_spec("jax") is None, reason="jax is not installed"
    ),
]
STEPS = 50
TASKS = ("classification", "multi-label", "regression", "ranking", "race")
TASKS += ("ner", "squad-1.1", "squad-2.0", "seq2seq")
# Ways to train a classifier, by the settings that differ.
WAYS = {
    "dropout": {"dropout": 0.1, "attention_dropout": 0.1},
    "parts": {
        "gradient_accumulation_steps": 2,
        "class_weights": "balanced",
        "layer_decay": 0.75,
    },
    "adapters": {"lora_rank": 2},
    "memory": {
        "long_documents": "memory",
        "sequence_length": 8,
        "document_length": 24,
    },
    "windows": {"long_documents": "windows", "sequence_length": 12},
}


class Commands:
    """Command lines of runs below a directory, of one preset."""

    def __init__(self, directory):
        self.directory = directory
        self.preset = finetuning_fixtures.write_preset(
            directory / "preset", dropout=0.0, attention_dropout=0.0
        )

    def data(self, task):
        place = self.directory / "data" / task
        if not place.exists():
            finetuning_fixtures.write_task(place, task)
        return place

    def finetune(self, task, output, *more, **given):
        place = self.directory / "settings" / output
        place.mkdir(parents=True, exist_ok=True)
        training = finetuning_fixtures.write_training(
            place,
            **{
                "steps": STEPS,
                "steps_per_loop": 5,
                "evaluation_interval": 25,
                "checkpoint_interval": 25,
                "dropout": 0.0,
                "attention_dropout": 0.0,
                "num_beams": 1,
                "sequence_length": 16,
                "target_corruption": 0.0,
                "target_length": 6,
                **given,
            },
        )
        data = self.data(task)
        if task == "seq2seq":
            more += ("--columns", "source=en,target=de")
            more += ("--eval-data", data / "dev.en")
        return [
            *("xlnet_tf.finetune", "--task", task, "--data", data),
            *("--preset", self.preset, "--training", training),
            *("--output", self.directory / output),
            *("--strategy", "one_device", "--quiet", *more),
        ]


def on_tensorflow(*runs):
    assert [*backend_runs.main(runs)] == [0] * len(runs)


def on_jax(*runs, devices=1):
    statuses, process = backend_runs.run_on_jax(runs, devices)
    assert statuses == [0] * len(runs), process.stderr[-3000:]
    assert "has no section" not in process.stderr  # of the report


def lines(directory):
    """list of dict, the figures of a run that do not depend on the time."""
    found = (directory / "metrics.jsonl").read_text().splitlines()
    found = [json.loads(line) for line in found]
    for line in found:
        line.pop("rows_per_second", None)
    return found


def assert_same_run(found, expected, tolerance=1e-4):
    """The curve, the metrics and the names of the files of two runs."""
    one, other = lines(found), lines(expected)
    assert len(one) == len(other) == STEPS // 5 + 2
    for line, wanted in zip(one, other, strict=True):
        assert line == pytest.approx(wanted, rel=tolerance, abs=tolerance)
    names = [
        {
            str(x.relative_to(place))
            for x in place.rglob("*")
            if x.is_file() and "tfevents" not in x.name
        }
        for place in (found, expected)
    ]
    assert names[0] == names[1]


@pytest.fixture(scope="module")
def commands(tmp_path_factory):
    return Commands(tmp_path_factory.mktemp("runs"))


@pytest.fixture(scope="module")
def of_tasks(commands):
    """Runs of JAX, one of each kind of task."""
    on_jax(*(commands.finetune(x, f"jax/{x}") for x in TASKS))


@pytest.fixture(scope="module")
def of_ways(commands):
    """Runs of JAX, one of each way to train."""
    runs = [
        commands.finetune("classification", f"jax/{name}", **given)
        for name, given in WAYS.items()
    ]
    on_jax(*runs)


@pytest.mark.parametrize("task", TASKS)
def test_a_task_is_trained_as_by_tensorflow(commands, of_tasks, task):
    on_tensorflow(commands.finetune(task, f"tf/{task}"))
    found, expected = (commands.directory / x / task for x in ("jax", "tf"))
    if task == "seq2seq":  # one beam finds another target than greedy search
        for place in (found, expected):
            keep_losses(place)
    assert_same_run(found, expected)


def keep_losses(directory):
    kept = [
        {k: x[k] for k in ("kind", "step", "loss", "gradient_norm") if k in x}
        for x in lines(directory)
    ]
    text = "".join(f"{json.dumps(x)}\n" for x in kept)
    (directory / "metrics.jsonl").write_text(text)


@pytest.mark.parametrize("way", WAYS)
def test_a_way_is_that_of_tensorflow(commands, of_ways, way):
    """Dropout too, whose random numbers follow from seed and step."""
    run = commands.finetune("classification", f"tf/{way}", **WAYS[way])
    on_tensorflow(run)
    found, expected = (commands.directory / x / way for x in ("jax", "tf"))
    assert_same_run(found, expected)


def test_a_stopped_run_goes_on_to_the_bit(commands):
    """With adapters, whose other weights a checkpoint keeps too; seeds."""
    given = {"lora_rank": 2, "dropout": 0.1, "steps": 12}
    given |= {"steps_per_loop": 2, "evaluation_interval": 6}

    def run(output, *more, **others):
        return commands.finetune(
            "classification", output, *more, **given, **others
        )

    whole, parts = run("whole/run"), run("parts/run")
    stopped = [f"{backend_runs.STOPPED}{parts[0]}", *parts[1:]]
    seeds = run("seeds", "--seeds", "2")
    runs = [whole, stopped, parts, seeds]
    statuses, process = backend_runs.run_on_jax(runs)
    assert statuses == [0, 143, 0, 0], process.stderr[-3000:]
    places = [commands.directory / x for x in ("whole", "parts")]
    expected, found = map(end_of, places)
    assert expected.keys() == found.keys() and len(found) > 10
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value, name)
    assert (commands.directory / "seeds/seed-1/results.json").is_file()


def test_two_devices_are_as_one(commands, of_tasks):
    run = commands.finetune("classification", "jax/two")
    run[run.index("one_device")] = "mirrored"
    on_jax(run, devices=2)
    expected = commands.directory / "jax/classification"
    assert_same_run(commands.directory / "jax/two", expected)


def test_each_backend_reads_the_runs_of_the_other(commands, of_tasks):
    """The same answers; a run that is not done is refused."""
    directory = commands.directory
    name, file = "classification", commands.data("classification") / "dev.tsv"
    shutil.copytree(directory / "jax" / name, directory / "read/jax")
    on_tensorflow(
        commands.finetune(name, "read/tf"),
        commands.finetune(name, "read/jax", "--predict", file),
    )
    measure = ["xlnet_tf.evaluate", "--model", directory / "read/tf"]
    measure += ["--task", name, "--data", file, "--quiet", "--predictions"]
    on_tensorflow([*measure, directory / "read/measured-by-tf"])
    on_jax(
        commands.finetune(name, "read/tf", "--predict", file),
        [*measure, directory / "read/measured-by-jax"],
    )
    names = ("tf/predictions.jsonl", "jax/predictions.jsonl")
    names += ("measured-by-tf", "measured-by-jax")
    answers = [answers_of(directory / "read" / name) for name in names]
    assert answers[0].keys() == answers[1].keys() and len(answers[0]) > 10
    for found in answers[1:]:
        assert found == pytest.approx(answers[0], abs=2e-3)


def answers_of(file):
    """dict of a text and a class to its probability, of JSON lines."""
    rows = [json.loads(x) for x in file.read_text().splitlines()]
    return {
        (row["text"], name): share
        for row in rows
        for name, share in row["probabilities"].items()
    }


def test_steps_that_are_not_finite_end_a_run(commands):
    """At the first of them, or after as many as are skipped."""
    runs = [
        commands.finetune(
            "ner", f"diverged/{how}", "--on-not-finite", how, learning_rate=1e30
        )
        for how in ("stop", "skip")
    ]
    statuses, process = backend_runs.run_on_jax(runs)
    assert statuses == [1, 1]
    for how, count in (("stop", 1), ("skip", MOST_SKIPPED + 1)):
        place = commands.directory / "diverged" / how
        found = (place / "not_finite.jsonl").read_text().splitlines()
        found = [json.loads(x) for x in found]
        steps = [x["step"] for x in found]
        assert steps == [*range(steps[0], steps[0] + count)]
        assert all(len(x["rows"]) == 4 for x in found)
    assert "after 20 that were skipped in a row" in process.stderr


def test_an_unfinished_run_is_of_its_backend(commands):
    run = commands.finetune("ner", "open/run", steps=12)
    stopped = [f"{backend_runs.STOPPED}{run[0]}", *run[1:]]
    assert [*backend_runs.main([stopped])] == [143]
    statuses, process = backend_runs.run_on_jax([run])
    assert statuses == [1]
    assert "another backend of Keras" in process.stderr


def test_what_jax_does_not_do_is_refused(commands):
    """In a line, before anything is trained."""
    runs = [
        commands.finetune("seq2seq", "refused/1", num_beams=4),
        commands.finetune("ner", "refused/2", precision="float16"),
        ["xlnet_tf.generate", "--model", commands.preset, "--prompt", "a"],
    ]
    runs[2] += ["--num-beams", "2"]
    statuses, process = backend_runs.run_on_jax(runs)
    errors = [x for x in process.stderr.splitlines() if x[:6] == "error:"]
    assert statuses == [1] * len(runs) and len(errors) == len(runs)
    assert all("KERAS_BACKEND=tensorflow" in x for x in errors), errors
    assert not (commands.directory / "refused").exists()


def test_a_pretrained_model_answers_as_on_tensorflow(commands):
    """Generated, streamed, scored, filled in; perplexity."""
    directory = commands.directory
    causal = directory / "causal"
    config = xlnet_tf.XLNetConfig(**MODEL, attention_type="causal")
    pretrainer = xlnet_tf.XLNetPretrainer(
        xlnet_tf.XLNetBackbone(config, seed=2), objective=objectives.Causal()
    )
    tokenizer = load_tokenizer(commands.preset)
    pretrainer.save_to_preset(causal, tokenizer=tokenizer)
    text = directory / "text.txt"
    text.write_text("\n".join(tiny_sentences(9)), encoding="utf-8")
    measure = ["xlnet_tf.evaluate", "--model", causal, "--text", text]
    measure += ["--quiet", "--output"]
    answer = "tests.support.model_answers"
    assert_same_files(
        directory / "pretrained",
        lambda place: [
            [answer, commands.preset, place / "permutation"],
            [answer, causal, place / "causal"],
            [*measure, place / "memory", "--memory-length", 8],
            [*measure, place / "window", "--window", 12],
        ],
    )


def test_a_task_answers_raw_strings_as_on_tensorflow(commands, of_tasks):
    directory = commands.directory
    tasks = ("squad-2.0", "classification", "ner")
    models = [directory / "jax" / x for x in tasks]
    assert_same_files(
        directory / "tasks",
        lambda place: [
            ["tests.support.model_answers", model, place / model.name]
            for model in models
        ],
    )


def test_an_export_is_as_its_model(commands, of_tasks, monkeypatch):
    directory, data = commands.directory, commands.data("classification")
    run, export = directory / "jax/classification", directory / "export/1"
    file = data / "dev.tsv"
    # In a process of its own, which becomes another program.
    done = python(
        *("-m", "saved_models.export", "--model", run, "--output", export),
        *("--check", file, "--quiet"),
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
    )
    assert f"wrote {export}" in done.stdout
    stored = open_model(run)
    model, tokenizer = stored.load(), stored.tokenizer()
    monkeypatch.setitem(check.TOLERANCES, "float32", 1e-5)
    found = check.check(
        *(model, tokenizer, ExportSettings(), saved_models.load(export)),
        *check.read_file(model, stored, str(file)),
    )
    assert len(found) == 2 and all(close for _, close in found.values()), found


def assert_same_files(directory, runs_to):
    """Runs of both backends write the same JSON to a place of their own."""
    places = [directory / backend for backend in ("jax", "tf")]
    for place in places:
        place.mkdir(parents=True)
    on_jax(*runs_to(places[0]))
    on_tensorflow(*runs_to(places[1]))
    names = [sorted(x.name for x in place.iterdir()) for place in places]
    assert names[0] == names[1]
    for name in names[0]:
        both = [json.loads((place / name).read_text()) for place in places]
        for values in both:
            if isinstance(values, dict):
                del values["tokens_per_second"]
        assert_near(*both)


def assert_near(found, expected):
    """Trees of JSON with the same texts, and numbers that are close."""
    if isinstance(expected, (list, dict)):
        assert len(found) == len(expected)
        keys = expected if isinstance(expected, dict) else range(len(expected))
        for key in keys:
            assert_near(found[key], expected[key])
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-4, abs=1e-4)
    else:
        assert found == expected
