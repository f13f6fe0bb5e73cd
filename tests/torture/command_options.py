"""A command ends well, or says in one line what is wrong with what it got."""

import contextlib
import importlib
import io
import itertools
import json
import os
import re
import shutil
import signal
import stat
import unittest.mock

import xlnet_tf
from data_pipeline.base import command_line
from tests.house import options
from tests.support.artefacts import TASKS
from tests.support.artefacts import TOKENIZER
from tests.support.artefacts import Artefacts
from tests.support.samples import tiny_sentences

TRIALS = 2000
_SECONDS = 120  # that one command may take
_STATUSES = (0, 1, 2, 130, 143)  # docs/promises.md
# Values by their kind; the last ones of a number no option may accept, but for
# those of `_TAKE_NEGATIVE`.
_NOT_NUMBERS = ("", " ", "x", "1e", "0x10", "--", "1,5", "9" * 5000, "NaN m")
_NONSENSE = ("-1", "-7", "-2147483648", "nan", "inf", "-inf", "NaN", "1e999")
_INTEGERS = ("1", "2", "8", "24", "0", "2147483648", "18446744073709551616")
_INTEGERS += ("1" + "0" * 30, "1.5", "٣", "1_0")
_FLOATS = (
    "0.1",
    "0.5",
    "0.9",
    "1",
    "2",
    "0",
    "1e-320",
    "1e308",
    "1" + "0" * 400,
)
_WORDS = ("", " ", "nope", "größer", "\u202ex", "a" * 300, "-", "%s", "1")
_TAKE_NEGATIVE = ("--layer",)
_TAKE_BLANK = ("--text", "--before", "--prompt", "--stop", "--pieces")
# Values that would take long or reach beyond this machine, though they are
# those of the user's free will, are not given to these.
_NOT_HUGE = ("--seeds", "--processes", "--timeout", "--time-limit")
_NOT_GIVEN = ("--help", "-h", "--runner", "--tpu", "--trust", "--recipe")
_JSON_VALUES = (1, 8, 0, -1, 0.5, 10**400, 1e308, None, True, "", "x", [], [1])
_JSON_VALUES += ({}, {"a": {"b": [1]}}, "nan", float("nan"), "größer", [[]])
_BAD_FILES = (
    b"",
    b"[]",
    b"{",
    b"null",
    b'"x"',
    b"\xff\xfe\x00",
    b"a: [",
    b"? {a: 1}\n: 2",
    b"- 1\n- 2",
    b'{"steps": ' + b"9" * 5000 + b"}",
    b'{"steps": 1, "steps": {}, "nope": 2}',
    b"[" * 5000,
    b"&a [*a]",
    b"!!python/object/apply:os.getcwd []",
)


_CONFIG = ("activation", "dropout", "head_dim", "hidden_dim", "layout")
_CONFIG += ("memory_length", "num_heads", "num_layers", "vocabulary_size")
_BAD_ROWS = (
    b'{"text": 1, "prompt": {}}\n',
    b'{"text": null}\n[]\n',
    b'{"text": "\\ud800", "prompt": "\\ud800"}\n',
    b'{"text": ["ba"]}\n{"text": "ba"',
    b"text\tlabel\nba\n",
    b"label\nba\tco\tfi\n",
    b"\ttext\t\n\x00\t\xff\n",
)


class TimeIsUp(BaseException):
    """A command took more than `_SECONDS`; no command catches it."""


def trials(count, directory, generator, with_models=True):
    """Runs `count` commands in this process; see `tests.torture`.

    Their heavy work, which is steps of training, generation and tracing, is
    cut; all that comes before it is done.

    Args:
        count, directory, generator: see there.
        with_models: bool, whether the models that are given exist. Without
            them no command builds one.
    """
    inputs = Inputs(directory, with_models)
    with contextlib.ExitStack() as stack:
        cut(stack)
        stack.callback(os.chdir, os.getcwd())
        os.chdir(directory)  # for what a command writes beside itself
        for number in range(count):
            command = generator.choice(options.COMMANDS)
            output = str(directory / f"out-{number}")
            argv = _arguments(command, inputs, output, generator)
            yield command, _problem(command, argv)


class Inputs:
    """Small files of every kind that commands read, right and wrong ones.

    All paths lie in the directory of the trials, for a command may overwrite
    what it is given.

    Args:
        directory: path.
        with_models: see `trials`.
    """

    def __init__(self, directory, with_models):
        self.directory = directory
        self._numbers = itertools.count()
        text = self.write("text.txt", "\n".join(tiny_sentences(150)).encode())
        tokenizer = self.write("whole.model", TOKENIZER.read_bytes())
        data = directory / "data"
        shutil.copytree(TASKS / "classification", data)
        model, classifier = directory / "model", directory / "classifier"
        records, run = directory / "records", directory / "run"
        artefacts = Artefacts(directory / "artefacts")
        shutil.copytree(artefacts.get("records"), records)
        if with_models:
            shutil.copytree(artefacts.get("pretrained"), run)
            shutil.copytree(run / "preset", model)
            task = xlnet_tf.XLNetTextClassifier.from_preset(
                model, num_classes=2, labels=["no", "yes"]
            )
            task.save_to_preset(classifier)
        else:
            run.mkdir()
            self.write("run/metrics.jsonl", b'{"kind": "train", "step": 1}\n')
        rows = self.write("rows.jsonl", b'{"text": "ba", "prompt": "ba"}\n')
        self.usual = {
            "data_pipeline.build_records": {
                "--input": [text],
                "--tokenizer": [tokenizer],
                "--sequence-length": [24],
                "--processes": [1],
            },
            "data_pipeline.inspect": {"records": [records]},
            "data_pipeline.train_tokenizer": {
                "--input": [text],
                "--vocabulary-size": [100],
            },
            "saved_models.export": {"--model": [model]},
            "saved_models.predict": {"--model": [model], "--text": ["ba"]},
            "xlnet_tf.convert": {"--from": [model]},
            "xlnet_tf.evaluate": {"--model": [model], "--text": [text]},
            "xlnet_tf.finetune": {
                "--task": ["classification"],
                "--data": [data],
                "--preset": [classifier],
                "--steps": [1],
                "--sequence-length": [16],
                "--strategy": ["one_device"],
            },
            "xlnet_tf.generate": {"--model": [model], "--prompt": ["ba co"]},
            "xlnet_tf.train": {
                "--config": ["tiny"],
                "--records": [records],
                "--steps": [1],
                "--batch-size": [2],
                "--strategy": ["one_device"],
            },
            "masks": {"--pieces": ["a", "b", "c"]},
            "attention": {"--model": [model], "--text": ["ba co"]},
            "memory": {
                "--model": [model],
                "--before": ["ba"],
                "--text": ["ba co"],
            },
            "curve": {"runs": [run]},
        }
        link, socket = directory / "link", directory / "socket"
        link.symlink_to(directory / "nowhere")
        os.mknod(socket, stat.S_IFSOCK | 0o600)
        wrong = [text / "below", link, socket, "a" * 300, "nope://bucket/a"]
        self.paths = [
            *(text, rows, data, model, classifier, records, run, tokenizer),
            *(directory, directory / "none", "", " ", "[", "**", "~", *wrong),
            self.write("größer \u202e.txt", "größer\n".encode()),
            self.write("empty", b""),
            self.write("bytes", bytes(range(256)) * 9),
            self.write("cut.model", TOKENIZER.read_bytes()[:3000]),
            *(
                self.write(f"rows-{x}.{'jsonl' if x % 2 else 'tsv'}", content)
                for x, content in enumerate(_BAD_ROWS)
            ),
        ]
        # Not those, which later commands need.
        there = directory / "there"
        shutil.copytree(TASKS / "classification", there)
        self.outputs = [there, there / "train.tsv", "1", "größer/a.png", *wrong]

    def write(self, name, content):
        """Path of a new file."""
        path = self.directory / name
        path.write_bytes(content)
        return path

    def settings(self, fields, generator):
        """Path of a file of random settings."""
        ending = generator.choice([".json", ".yaml", ".yml", ".txt", ""])
        name = f"settings-{next(self._numbers)}{ending}"
        if generator.random() < 0.3:
            return self.write(name, generator.choice(_BAD_FILES))
        drawn = generator.sample(fields, min(len(fields), 3))
        drawn += ["nope"] * (generator.random() < 0.1)
        count = generator.randint(0, len(drawn))
        values = {x: generator.choice(_JSON_VALUES) for x in drawn[:count]}
        return self.write(name, json.dumps(values).encode())


def _arguments(command, inputs, output, generator):
    """list of str: usual options, some of them changed, and others."""
    parser, name, argv = options.parser(command), command, []
    if command == "xlnet_tf.show":
        (pictures,) = (x for x in parser._actions if x.dest == "picture")
        name = generator.choice(list(pictures.choices))
        parser, argv = pictures.choices[name], [name]
        output += ".png"
    actions = {
        (x.option_strings or [x.dest])[
            -1 if len(x.option_strings) < 2 else 0
        ]: x
        for x in parser._actions
    }
    place = "--to" if command == "xlnet_tf.convert" else "--output"
    given = dict(inputs.usual[name])
    if place in actions:
        given[place] = [output]
    fields = [x.dest for x in actions.values()]
    known = [x for x in actions if x not in _NOT_GIVEN]
    for option in generator.sample(known, generator.randint(0, 3)):
        action = actions[option]
        given[option] = []
        if action.nargs != 0:
            several = 3 if action.nargs == "+" else 1
            given[option] = [
                _value(option, action, inputs, fields, generator)
                for _ in range(generator.randint(1, several))
            ]
    # What is not given may be fetched from the network.
    kept = ["--data", "--task", "--strategy"]
    for option in [x for x in given if x not in kept]:
        if generator.random() < 0.03:
            del given[option]
    for option, values in given.items():
        argv += [option] * (option in parser._option_string_actions)
        argv += [_shortened(option, str(x)) for x in values]
    return argv


def _shortened(option, text):
    return "1" if option in _NOT_HUGE and len(text) > 4 else text


def _value(option, action, inputs, fields, generator):
    """A value of an option: most of its kind, some of another one."""
    name = option.lstrip("-")
    if name in ("output", "to", "export", "compilation-cache"):
        return generator.choice([*inputs.outputs, *_WORDS])
    if name in ("training", "settings", "generation"):
        return inputs.settings(fields, generator)
    if name == "config" and generator.random() < 0.7:
        return inputs.settings(_CONFIG, generator)
    if option == "--strategy":
        return generator.choice(["auto", "one_device", "mirrored", "", "nope"])
    if action.choices and generator.random() < 0.8:
        return generator.choice(list(action.choices))
    kind = getattr(action.type, "__name__", "str")
    if kind in ("int", "_positive", "_not_negative"):
        return generator.choice(_INTEGERS + _NONSENSE + _NOT_NUMBERS)
    if kind == "float":
        return generator.choice(_FLOATS + _NONSENSE + _NOT_NUMBERS)
    if generator.random() < 0.5:
        return generator.choice(inputs.paths)
    return generator.choice(_WORDS + _INTEGERS)


def _problem(command, argv):
    """What was wrong with how a command ended, or None."""
    main = importlib.import_module(command).main
    out, error, shown = io.StringIO(), io.StringIO(), f"{command} {argv}"
    before = signal.getsignal(signal.SIGTERM)
    signal.signal(signal.SIGALRM, _stop)
    try:
        with (
            unittest.mock.patch.dict(os.environ),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
        ):
            signal.alarm(_SECONDS)
            status = command_line.run(main, argv)
    except SystemExit as left:
        status = left.code
    except BaseException as left:
        if isinstance(left, KeyboardInterrupt):
            raise
        return f"{shown}: {type(left).__name__}: {str(left)[:300]}"
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGTERM, before)
    lines = error.getvalue().splitlines()
    last = lines[-1] if lines else ""
    if status not in _STATUSES:
        return f"{shown}: the status is {status!r}"
    if "Traceback" in error.getvalue():
        return f"{shown}: a traceback: {last}"
    if status in (1, 2) and not re.match(r"error: .{10,}", last):
        return f"{shown}: the last line is {last!r}"
    nonsense = status == 0 and _accepted_nonsense(command, argv)
    return f"{shown}: accepted {nonsense}" if nonsense else None


def _accepted_nonsense(command, argv):
    """An option and its value that no command may accept, or None."""
    for option, value in itertools.pairwise(argv):
        if not option.startswith("--") or value.startswith("--"):
            continue
        if value in _NONSENSE and option not in _TAKE_NEGATIVE + _TAKE_BLANK:
            return f"{option} {value}"
        if value.strip() == "" and option not in _TAKE_BLANK:
            return f"{option} {value!r}"
    return None


def _stop(number, frame):
    raise TimeIsUp(f"it took more than {_SECONDS} s")


def cut(stack):
    """Replaces what takes long; `stack` ends it."""
    from saved_models import export
    from saved_models.versions import latest_version
    from xlnet_tf import loading
    from xlnet_tf.training import finetune
    from xlnet_tf.training import loop
    from xlnet_tf.training import pretrain
    from xlnet_tf.training.directory import claim_identity
    from xlnet_tf.training.directory import opened

    def pretrain_nothing(settings, backend, export=None, begun=None):
        run = loop.Run(settings, backend)
        data = pretrain.open_data(settings, backend.num_replicas)
        identity = pretrain.identity_of(data, settings)
        with opened(run.output, True, "--batch-size"):
            claim_identity(run, identity, pretrain.KIND)
        return 0

    def finetune_nothing(settings, backend, data, begun=None):
        run = loop.Run(settings, backend)
        task = finetune.prepare(run, data)
        identity = finetune.identity_of(task)
        with opened(run.output, True, "--batch-size"):
            claim_identity(run, identity, finetune.KIND)
        return 0, None

    def check_alone(model, tokenizer, directory, source, overwrite, **settings):
        settings = export.ExportSettings(**settings).for_model(model)
        export._check(model, tokenizer, settings)

    def nothing(generator, prompts, first=0):
        return [(prompt, []) for prompt in prompts]

    models = {}

    def load(path, verify=True):
        if path not in models:
            models[path] = loaded(path, verify)
        return models[path]

    def load_export(directory, verify=True, trust=False):
        latest_version(directory)
        raise ValueError("the export is not loaded.")

    def read_by_name(task, split="train"):
        raise OSError("the network is not there.")

    loaded = loading.load
    perplexity = (1.0, 1, 1.0)
    for name, value in {
        "data_pipeline.tasks.reading.read_by_name": read_by_name,
        "saved_models.loading.load": load_export,
        "saved_models.export.export_model": check_alone,
        "saved_models.export.load": load_export,
        "saved_models.predict.load": load_export,
        "xlnet_tf.generation.generator.TextGenerator.all": nothing,
        "xlnet_tf.generation.generator.TextGenerator.stream": lambda *x: [],
        "xlnet_tf.loading.load": load,
        "xlnet_tf.training.finetune.finetune": finetune_nothing,
        "xlnet_tf.training.pretrain.pretrain": pretrain_nothing,
        "xlnet_tf.training.perplexity.evaluate_with_memory": (
            lambda *x, **named: perplexity
        ),
        "xlnet_tf.training.perplexity.evaluate_with_window": (
            lambda *x, **named: perplexity
        ),
    }.items():
        stack.enter_context(unittest.mock.patch(name, value))
