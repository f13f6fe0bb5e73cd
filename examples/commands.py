"""Functions that run the commands of this project, once each."""

import os
import pathlib
import shlex
import signal
import subprocess
import sys

from data_pipeline.base.files import read_json
from data_pipeline.base.files import sha256_of
from data_pipeline.base.files import write_json

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(*command, capture=False):
    """Print and run a Python command.

    Args:
        *command: the arguments after `python`.
        capture: bool, whether to return the command's output instead of
            printing it. Default False.

    Returns:
        str, the output, or None if the output is not captured.

    Raises:
        SystemExit: if the command fails or is stopped. The exception has the
            exit status of the command.
    """
    command = [str(part) for part in command]
    print(f"\n$ python {shlex.join(command)}", flush=True)
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE if capture else None,
        encoding="utf-8",
        # With a separate process group, Ctrl-C reaches the command only once,
        # through `stop`.
        start_new_session=True,
    )

    def stop(number, frame):
        if process.poll() is None:
            process.send_signal(number)

    signals = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    before = [signal.signal(number, stop) for number in signals]
    try:
        printed = process.communicate()[0]
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
    if process.returncode:
        # After a signal, a shell's status is 128 plus the signal's number.
        status = process.returncode
        raise SystemExit(status if status > 0 else 128 - status)
    return printed


def run_once(output, *command, preset=None):
    """Run a command unless a finished run had the same files and weights.

    Args:
        output: path of the directory for the command's output. The file
            `command.json` in this directory identifies the finished command.
        *command: the arguments after `python`.
        preset: path of the initial weights, or None.

    Raises:
        SystemExit: if the command fails or is stopped. The exception has the
            exit status of the command.
    """
    if is_done(output, *command, preset=preset):
        return
    identity = _identity(command, preset)
    run(*command)
    write_json(output / "command.json", identity)


def is_done(output, *command, preset=None):
    """Whether a command is finished; see `run_once` for the arguments."""
    done = output / "command.json"
    return done.is_file() and read_json(done) == _identity(command, preset)


def _identity(command, preset):
    """Identify a command by its words, input files and initial weights."""
    words = [str(part) for part in command]
    # Hash the input files, above all settings files, which may have changed at
    # the same path.
    files = [
        ROOT / word
        for option, word in zip(["", *words], words, strict=False)
        if option != "--output" and os.path.isfile(ROOT / word)
    ]
    if preset is not None:
        files += sorted(preset.glob("*.weights.h5"))
    return [words, [sha256_of(file) for file in files]]


def options_of(settings):
    """Convert settings to a list of options of a command.

    Args:
        settings: dict from the name of an option to a value. The names have
            "_" instead of "-".
    """
    options = []
    for name, value in settings.items():
        name = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{name}" if value else f"--no-{name}")
        else:
            options += [f"--{name}", value]
    return options
