"""All commands without a network, from a text to predictions."""

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


def commands():
    """Pairs of a command and its options, in the order of the work."""
    return [
        (
            "data_pipeline.train_tokenizer",
            "--input text.txt --output spiece.model --vocabulary-size 100",
        ),
        (
            "data_pipeline.build_records",
            "--input text.txt --tokenizer spiece.model --output records "
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
            "--task classification --data data.tsv --preset run/preset "
            f"--output tuned --sequence-length 16 {SHORT}",
        ),
        (
            "saved_models.export",
            "--model tuned --output served --check data.tsv",
        ),
        ("saved_models.predict", "--model served --text Ba"),
    ]


def test_no_command_needs_or_asks_for_a_network(tmp_path):
    unshare = shutil.which("unshare")
    apart = [unshare, "--map-root-user", "--net"]
    if unshare is None or subprocess.run([*apart, "true"]).returncode:
        pytest.skip("this system gives no network namespace of its own")
    lines = list(tiny_sentences(150))
    (tmp_path / "text.txt").write_text("\n".join(lines), encoding="utf-8")
    (tmp_path / "model.json").write_text(json.dumps(MODEL))
    rows = [f"{line}\t{number % 2}" for number, line in enumerate(lines[:20])]
    (tmp_path / "data.tsv").write_text("\n".join(["text\tlabel", *rows]))
    plan = [(name, options.split()) for name, options in commands()]
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    done = subprocess.run(
        [*apart, sys.executable, "-c", COMMANDS, "plan.json"],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    # The interface of the namespace is down: there is no other.
    assert '"label"' in done.stdout
    assert pathlib.Path(tmp_path, "tuned", "results.json").is_file()
