"""A command that is stopped at any moment ends with status 143 or 130.

SIGTERM or Ctrl-C come while Python starts, while libraries are imported, and
later, until the command would have ended. `stopped_training` compares what
stopped runs come to.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from tests.support import artefacts
from tests.support import finetuning_fixtures
from tests.support import killed_runs

TRIALS = 100
_ROOT = pathlib.Path(__file__).resolve().parents[2]
_TIMEOUT = 300
# At most so many seconds from the signal to the end.
_GRACE = 30
_NUMBERS = (signal.SIGTERM, signal.SIGINT)


def trials(count, directory, generator):
    """Yields (label, problem) of each trial; see `tests.torture`."""
    commands = _commands(directory)
    seconds = {}
    for number in range(count):
        name = list(commands)[number % len(commands)]
        argv = commands[name]
        if name not in seconds:
            seconds[name] = _seconds(argv, directory / f"{name}-whole")
        sent = generator.choice(_NUMBERS)
        after = generator.uniform(0, seconds[name])
        output = directory / f"{name}-{number}"
        yield f"{name}, {sent.name}", _problem(argv, output, sent, after)


def _commands(directory):
    """dict of names to lists of the arguments of Python, but for --output."""
    for name in ("pretraining", "finetuning"):
        (directory / name).mkdir()
    pretraining = killed_runs.pretraining(directory / "pretraining")
    finetuning = killed_runs.finetuning(directory / "finetuning")
    text = directory / "text.txt"
    text.write_text("\n\n".join(artefacts.tiny_sentences(2000)))
    build = ["--input", text, "--tokenizer", artefacts.TOKENIZER]
    build += ["--text-format", "sentences", "--sequence-length", "32"]
    preset = finetuning_fixtures.write_preset(directory / "exported")
    commands = {
        "train": ["xlnet_tf.train", *pretraining.options],
        "finetune": ["xlnet_tf.finetune", *finetuning.options],
        "build_records": ["data_pipeline.build_records", *build],
        "export": ["saved_models.export", "--model", preset],
    }
    return {k: ["-m", *map(str, v)] for k, v in commands.items()}


def _start(argv, output):
    return subprocess.Popen(
        [sys.executable, *argv, "--output", str(output)],
        cwd=_ROOT,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )


def _seconds(argv, output):
    """Seconds of the command that nobody stops."""
    begun = time.monotonic()
    with _start(argv, output) as process:
        error = process.communicate(timeout=_TIMEOUT)[1]
    if process.returncode:
        raise RuntimeError(error)
    return time.monotonic() - begun


def _problem(argv, output, sent, after):
    """Stops a command; a str that says what went wrong, or None."""
    with _start(argv, output) as process:
        time.sleep(after)
        if process.poll() is not None:  # it was faster than before
            return None
        process.send_signal(sent)
        begun = time.monotonic()
        try:
            error = process.communicate(timeout=_TIMEOUT)[1]
        except subprocess.TimeoutExpired:
            process.kill()
            return f"hangs {after:.2f} s after its start"
    took = time.monotonic() - begun
    # Before its first line the signal itself ends it: 143 or 130 of a shell.
    statuses = (128 + sent, -sent)
    last = "".join(error.strip().splitlines()[-1:])
    if process.returncode == 0 and took < 1:
        return None  # it was past its last write
    if process.returncode not in statuses or took > _GRACE:
        return (
            f"status {process.returncode} {took:.1f} s after {sent.name}, "
            f"{after:.2f} s after its start: {last}"
        )
    if "Traceback" in error and process.returncode != -sent:
        return f"a traceback {after:.2f} s after its start: {last}"
    return None
