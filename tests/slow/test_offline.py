"""All commands, from a text to predictions: without a network, in ASCII."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

from tests.conftest import ROOT
from tests.support.samples import tiny_sentences

# In one process, for importing TensorFlow takes most of a short command's time.
# The hook sees what is tried, which a library might pass over in silence.
COMMANDS = """
import importlib, json, sys

tried = []

def watch(event, arguments):
    if event in ("socket.connect", "socket.getaddrinfo", "urllib.Request"):
        tried.append(f"{event} {arguments[-2:]}")

sys.addaudithook(watch)
from data_pipeline.base import command_line

for name, argv in json.load(open(sys.argv[1])):
    main = importlib.import_module(name).main
    if command_line.run(main, argv):
        sys.exit(f"{name} failed")
sys.exit(f"connections: {tried}" if tried else 0)
"""
MODEL = {"num_layers": 1, "num_heads": 2, "hidden_dim": 16}
MODEL |= {"vocabulary_size": 100, "intermediate_dim": 24}
SHORT = "--steps 1 --batch-size 2 --strategy one_device --no-jit-compile"


def commands(text="text.txt"):
    """Pairs of a command and its options, in the order of the work."""
    pairs = [
        (
            "data_pipeline.train_tokenizer",
            "--input TEXT.txt --output spiece.model --vocabulary-size 100",
        ),
        (
            "data_pipeline.build_records",
            "--input TEXT.txt --tokenizer spiece.model --output records "
            "--sequence-length 24 --processes 1",
        ),
        (
            "xlnet_tf.train",
            f"--config model.json --records records --output run {SHORT}",
        ),
        ("xlnet_tf.show", "curve run --output curve.png"),
        (
            "xlnet_tf.generate",
            "--model run --prompt Ba --max-new-tokens 2 --output made.jsonl",
        ),
        ("xlnet_tf.convert", "--from run/preset --to hf --format hf"),
        (
            "xlnet_tf.finetune",
            "--task classification --data data.jsonl --preset run/preset "
            f"--output tuned --sequence-length 16 {SHORT}",
        ),
        (
            "saved_models.export",
            "--model tuned --output served --check data.jsonl",
        ),
        ("saved_models.predict", "--model served --text Ba"),
    ]
    return [
        (name, [text if x == "TEXT.txt" else x for x in options.split()])
        for name, options in pairs
    ]


def run(folder, plan, labels, before=(), **environment):
    """Run commands in a folder; its texts have two classes."""
    lines = list(tiny_sentences(150))
    (folder / plan[0][1][1]).write_text("\n".join(lines), encoding="utf-8")
    (folder / "model.json").write_text(json.dumps(MODEL))
    (folder / "data.jsonl").write_text(
        "".join(
            json.dumps({"text": line, "label": labels[number % 2]}) + "\n"
            for number, line in enumerate(lines[:20])
        )
    )
    (folder / "plan.json").write_text(json.dumps(plan))
    return subprocess.run(
        [*before, sys.executable, "-c", COMMANDS, "plan.json"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
    )


def test_no_command_needs_or_asks_for_a_network(tmp_path):
    unshare = shutil.which("unshare")
    apart = [unshare, "--map-root-user", "--net"]
    if unshare is None or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("this system gives no network namespace of its own")
    done = run(tmp_path, commands(), ["0", "1"], apart)
    assert done.returncode == 0, done.stderr[-2000:]
    # The interface of the namespace is down: there is no other.
    assert '"label"' in done.stdout
    assert pathlib.Path(tmp_path, "tuned", "results.json").is_file()


def test_every_command_prints_what_a_terminal_in_ascii_lacks(tmp_path):
    """Names that are not UTF-8, classes with emoji and escape sequences."""
    labels = ["\U0001f600\x1b[2J\x9b", "b\r\nerror: forged"]
    plan = commands(os.fsdecode(b"te\xffxt\x1b.txt"))
    more = ["--text", "\U0001f600 \x1b[2J\u2581"]
    plan[-1] = (plan[-1][0], [*plan[-1][1], *more])
    plan.insert(2, ("data_pipeline.inspect", ["records"]))
    task = ["--task", "classification", "--data", "data.jsonl"]
    plan.append(("xlnet_tf.evaluate", ["--model", "tuned", *task]))
    done = run(tmp_path, plan, labels, PYTHONIOENCODING="ascii")
    assert done.returncode == 0, done.stderr[-2000:]
    shown = done.stdout + done.stderr
    assert shown.isascii()
    assert all(x.isprintable() for x in shown.split("\n")), ascii(shown)
    assert "\nerror" not in shown
    answers = [x for x in done.stdout.split("\n") if x.startswith('{"text"')]
    found = [json.loads(line) for line in answers]
    assert found[1]["text"] == more[1]
    assert {x["label"] for x in found} <= {*labels}
    report = (tmp_path / "tuned" / "report.txt").read_text("utf-8")
    assert all(x.isprintable() for x in report.split("\n"))
    assert labels[0][0] in report


@pytest.mark.parametrize(
    ("content", "environment", "message"),
    [
        ('{"backend": "theano"}', {}, '"backend" of home/keras.json'),
        ('{"backend": 7}', {}, '"backend" of home/keras.json'),
        ('{"floatx": "float8"}', {}, "another value of home/keras.json"),
        ("[]", {}, "another value of home/keras.json"),
        ("{}", {"KERAS_BACKEND": "cntk"}, "environment variable KERAS_BACKEND"),
    ],
)
def test_settings_of_keras_that_it_cannot_read(
    tmp_path, content, environment, message
):
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "keras.json").write_text(content)
    environment = {"KERAS_HOME": "home", **environment}
    plan = [("xlnet_tf.convert", ["--from", "text", "--to", "b"])]
    done = run(tmp_path, plan, ["0", "1"], **environment)
    assert done.returncode == 1
    error = done.stderr.split("\n")[0]
    assert error.startswith("error: Keras cannot be imported (")
    assert message in error
