"""Running the commands of this project, each once, whatever stops between."""

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
    """Print and run a command.

    Args:
        *command: what follows `python`.
        capture: bool, whether to return what it prints instead of printing it.

    Returns:
        str, or None unless captured.

    Raises:
        SystemExit: with its status, if it fails or is stopped.
    """
    command = [str(part) for part in command]
    print(f"\n$ python {shlex.join(command)}", flush=True)
    process = subprocess.Popen(
        [sys.executable, *command],
        cwd=ROOT,
        stdout=subprocess.PIPE if capture else None,
        encoding="utf-8",
        # Not in the terminal's group, so that Ctrl-C arrives once, by `stop`.
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
        # As in a shell: 128 plus the number of the signal.
        status = process.returncode
        raise SystemExit(status if status > 0 else 128 - status)
    return printed


def run_once(output, *command, preset=None):
    """Run a command unless it is done, with these files and weights.

    Args:
        output: path of what it writes; `command.json` there tells it is done.
        *command: what follows `python`.
        preset: path of the weights it starts from, or None.

    Raises:
        SystemExit: with its status, if it fails or is stopped.
    """
    if is_done(output, *command, preset=preset):
        return
    identity = _identity(command, preset)
    run(*command)
    write_json(output / "command.json", identity)


def is_done(output, *command, preset=None):
    """Whether `run_once` of the same arguments would do nothing."""
    done = output / "command.json"
    return done.is_file() and read_json(done) == _identity(command, preset)


def _identity(command, preset):
    """Identity of a run: its command line, files and initial weights."""
    words = [str(part) for part in command]
    # Its settings, above all, which are written anew to the same path.
    files = [
        ROOT / word
        for option, word in zip(["", *words], words, strict=False)
        if option != "--output" and os.path.isfile(ROOT / word)
    ]
    if preset is not None:
        files += sorted(preset.glob("*.weights.h5"))
    return [words, [sha256_of(file) for file in files]]


def options_of(settings):
    """Options of a command that give these settings, list.

    Args:
        settings: dict of str to value, with "_" where options have "-".
    """
    options = []
    for name, value in settings.items():
        name = name.replace("_", "-")
        if isinstance(value, bool):
            options.append(f"--{name}" if value else f"--no-{name}")
        else:
            options += [f"--{name}", value]
    return options
