"""Commands that examples run: each once, and stopped with the program."""

import os
import signal
import subprocess
import sys
import time

import pytest

from examples import commands
from tests.conftest import ROOT

STOPPED = """
from examples.commands import run
run("-c", "import pathlib, time; pathlib.Path(r'{ready}').touch();"
    "time.sleep(60)")
"""


def test_what_is_printed_and_what_fails(capsys):
    assert commands.run("-c", "print(3)", capture=True) == "3\n"
    assert capsys.readouterr().out == "\n$ python -c 'print(3)'\n"
    with pytest.raises(SystemExit) as failed:
        commands.run("-c", "raise SystemExit(7)")
    assert failed.value.code == 7


def test_a_command_runs_once_with_the_same_weights(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(commands, "run", lambda *command: ran.append(command))
    preset = tmp_path / "preset"
    preset.mkdir()
    (preset / "model.weights.h5").write_bytes(b"1")
    for expected in (1, 1):
        commands.run_once(tmp_path, "-c", "a", preset=preset)
        assert len(ran) == expected
    commands.run_once(tmp_path, "-c", "b", preset=preset)
    assert len(ran) == 2
    (preset / "model.weights.h5").write_bytes(b"2")
    assert not commands.is_done(tmp_path, "-c", "b", preset=preset)


def test_a_command_runs_again_with_other_settings(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(commands, "run", lambda *command: ran.append(command))
    settings, output = tmp_path / "settings.json", tmp_path / "out.json"
    command = ("-c", "a", "--training", settings, "--output", output)
    settings.write_text("1")
    commands.run_once(tmp_path, *command)
    output.write_text("what the command writes is none of its settings")
    commands.run_once(tmp_path, *command)
    assert len(ran) == 1
    settings.write_text("2")  # as a recipe writes them, to the same path
    commands.run_once(tmp_path, *command)
    assert len(ran) == 2


def test_options_are_those_of_the_command_line():
    settings = {"lower_case": True, "some_size": 3, "reuse": False}
    assert commands.options_of(settings) == [
        *("--lower-case", "--some-size", 3, "--no-reuse")
    ]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_reaches_the_command(tmp_path, number):
    """It may then write a checkpoint; its status is that of the program."""
    ready = tmp_path / "ready"
    process = subprocess.Popen(
        [sys.executable, "-c", STOPPED.format(ready=ready)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    deadline = time.monotonic() + 60
    while not ready.exists():
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    # Python's own, where a command of the library has 128 + 2 too.
    assert process.wait(timeout=60) == 128 + number
