"""Running the commands of this project, each once, whatever stops between."""

import pathlib
import shlex
import signal
import subprocess
import sys

from xlnet_tf.files import read_json
from xlnet_tf.files import sha256_of
from xlnet_tf.files import write_json

ROOT = pathlib.Path(__file__).resolve().parents[1]


def run(*command, capture=False):
    """Print and run a command.

    Args:
        *command: what follows `python`.
        capture: bool, whether to return what it prints, after printing it.

    Returns:
        str, empty unless captured.

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
        printed = process.communicate()[0] or ""
    finally:
        for number, handler in zip(signals, before, strict=True):
            signal.signal(number, handler)
    print(printed, end="", flush=True)
    if process.returncode:
        # As in a shell: 128 plus the number of the signal.
        status = process.returncode
        raise SystemExit(status if status > 0 else 128 - status)
    return printed


def run_once(output, *command, preset=None):
    """Run a command unless it is done, with these weights.

    Args:
        output: path of what it writes; `command.json` there tells it is done.
        *command: what follows `python`.
        preset: path of the weights it starts from, or None.

    Raises:
        SystemExit: with its status, if it fails or is stopped.
    """
    if is_done(output, *command, preset=preset):
        return
    run(*command)
    write_json(output / "command.json", _identity(command, preset))


def is_done(output, *command, preset=None):
    """Whether `run_once` of the same arguments would do nothing."""
    done = output / "command.json"
    return done.is_file() and read_json(done) == _identity(command, preset)


def _identity(command, preset):
    """Identity of a run: its command line and initial weights."""
    files = () if preset is None else sorted(preset.glob("*.weights.h5"))
    digests = [sha256_of(file) for file in files]
    return [[str(part) for part in command], digests]
