"""Paths with a scheme, in every option that takes a path."""

import argparse
import contextlib
import importlib
import json
import pathlib
import re
import time

import fsspec
import pytest

from data_pipeline.base import command_line
from data_pipeline.tasks.reading import read_examples
from saved_models.versions import latest_version
from tests.house import options
from tests.torture import command_options

# Options whose value is a path, by command or picture.
PATHS = {
    "data_pipeline.build_records": (
        *("--input", "--output", "--settings", "--tokenizer"),
    ),
    "data_pipeline.inspect": ("records",),
    "data_pipeline.train_tokenizer": ("--input", "--output"),
    "saved_models.export": (
        *("--check", "--generation", "--model", "--output", "--settings"),
        "--tokenizer",
    ),
    "saved_models.predict": (
        *("--ca-file", "--file", "--header", "--inputs", "--model"),
    ),
    "xlnet_tf.convert": ("--config", "--from", "--to", "--tokenizer"),
    "xlnet_tf.evaluate": (
        *("--data", "--model", "--output", "--predictions", "--text"),
        "--tokenizer",
    ),
    "xlnet_tf.finetune": (
        *("--compilation-cache", "--data", "--eval-data", "--output"),
        *("--predict", "--preset", "--training"),
    ),
    "xlnet_tf.generate": ("--input", "--model", "--output", "--tokenizer"),
    "xlnet_tf.show masks": ("--output", "--tokenizer"),
    "xlnet_tf.show attention": ("--model", "--output", "--tokenizer"),
    "xlnet_tf.show memory": ("--model", "--output", "--tokenizer"),
    "xlnet_tf.show curve": ("--output", "runs"),
    "xlnet_tf.train": (
        *("--compilation-cache", "--config", "--eval-records", "--export"),
        *("--output", "--preset", "--records", "--training"),
    ),
}

# Other options of text, which a new one must stand beside if it is no path.
NO_PATHS = """
--attention-kernel --backbone --before --blocks --checkpoint-time-interval
--class-weights --columns --coordinator --data-service --decay --encoding --head
--layer-decay-on --log-to --long-documents --masked-unit --memory --metric
--name --objective --on-not-finite --order --pieces --precision --prompt
--pseudo-masked-losses --runner --runtime --set --shard-size --signature
--spans --split --stop --strategy --task --text --text-field --time-limit --tpu
--url
""".split()
# Not opened before a run's first step or after its last one.
NOT_RUN = ("--compilation-cache", "--predict")
# What is written here though models, and the work on them, are replaced.
WRITTEN = {
    "data_pipeline.build_records": ("--output",),
    "data_pipeline.train_tokenizer": ("--output",),
    "xlnet_tf.convert": ("--to",),
    "xlnet_tf.evaluate": ("--output", "--predictions"),
    "xlnet_tf.generate": ("--output",),
    "xlnet_tf.show": ("--output",),
}
ENDINGS = {"--config": ".json", "xlnet_tf.show --output": ".png"}
SERVER = {"--url": ["https://127.0.0.1:1/v1/models/m"], "--model": None}
TASK = {"--task": ["classification"], "--file": None, "--text": None}
# Options that another one needs, and None for those that it excludes.
BESIDE = {
    "saved_models.predict --ca-file": SERVER,
    "saved_models.predict --header": SERVER,
    "saved_models.predict --inputs": {"--text": None},
    "xlnet_tf.evaluate --data": TASK,
    "xlnet_tf.evaluate --predictions": {**TASK, "--data": ["given"]},
    "xlnet_tf.show masks --tokenizer": {"--pieces": None, "--text": ["ba"]},
}


def test_every_option_is_a_path_or_not():
    """See PATHS and NO_PATHS; the frozen list has all of them."""
    found = {name: set() for name in PATHS}
    for command in options.COMMANDS:
        for name, option in options_of_text(options.parser(command), command):
            if option in PATHS.get(name, ()):
                found[name].add(option)
            else:
                assert option in NO_PATHS, f"is {option} of {name} a path?"
    assert found == {name: set(PATHS[name]) for name in PATHS}


def options_of_text(parser, name):
    """Yield the name and the first string of each option of any text."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for picture, below in action.choices.items():
                yield from options_of_text(below, f"{name} {picture}")
        elif action.nargs != 0 and action.type in (None, str):
            if not action.choices:
                yield name, (action.option_strings or [action.dest])[0]


def test_no_command_takes_a_scheme_for_a_folder(tmp_path, monkeypatch, capsys):
    """It reads or writes there, or names the whole path in a line."""
    (tmp_path / "inputs").mkdir()
    (tmp_path / "here").mkdir()
    inputs = command_options.Inputs(tmp_path / "inputs", with_models=True)
    monkeypatch.chdir(tmp_path / "here")
    pathlib.Path("given").touch()
    memory = fsspec.filesystem("memory")
    with contextlib.ExitStack() as stack:
        stack.callback(memory.store.clear)
        command_options.cut(stack)
        # Undone before what `cut` replaces, or that would be left replaced.
        replace_models(stack.enter_context(pytest.MonkeyPatch.context()))
        for number, (name, option) in enumerate(cases()):
            ending = ENDINGS.get(f"{name.split()[0]} {option}", "")
            ending = ending or ENDINGS.get(option, "")
            for scheme in ("memory", "nosuch"):
                url = f"{scheme}://bucket/{number}/file{ending}"
                argv = arguments(inputs, name, option, url, tmp_path)
                main = importlib.import_module(name.split()[0]).main
                status = command_line.run(main, argv)
                out, error = capsys.readouterr()
                shown = f"{name} {argv}: {error}"
                assert not list(pathlib.Path().glob("*:")), shown
                assert not re.search(f"{scheme}:/[^/]", out + error), shown
                if scheme == "nosuch":
                    assert status == 1, shown
                    last = error.splitlines()[-1]
                    assert last.startswith(f"error: {url}: paths that"), shown
                elif option in WRITTEN.get(name.split()[0], ()):
                    assert status == 0 and memory.exists(url), shown


def cases():
    """Yield commands and options that are run."""
    for name, paths in PATHS.items():
        yield from ((name, x) for x in paths if x not in NOT_RUN)


def replace_models(monkeypatch):
    """Look for exports without loading them, and read data without a model."""

    def load(directory, *options):
        if "://" in directory:
            latest_version(directory)

    def evaluate_task(model, task, data, *arguments, **options):
        if "://" in data:
            read_examples(task, data)
        return {"accuracy": 1.0}, []

    monkeypatch.setattr("saved_models.loading.load", load)
    monkeypatch.setattr("saved_models.predict.load", load)
    evaluation = "xlnet_tf.training.evaluation.evaluate_task"
    monkeypatch.setattr(evaluation, evaluate_task)


def arguments(inputs, name, option, url, folder):
    """list of str: usual options, with a path in one of them."""
    command, _, picture = name.partition(" ")
    given = dict(inputs.usual[picture or command])
    frozen = json.loads(options.FILE.read_text(encoding="utf-8"))
    for output in ("--output", "--to"):
        if f"{picture} {output}".strip() in frozen[command]:
            ending = ".png" if picture else ""
            given[output] = [folder / f"out{time.monotonic_ns()}{ending}"]
    given |= BESIDE.get(f"{name} {option}", {})
    given[option] = [f"@{url}" if option == "--header" else url]
    argv = [picture] if picture else []
    for key, values in given.items():
        if values is not None:
            argv += [key] if key.startswith("-") else []
            argv += map(str, values)
    return argv
