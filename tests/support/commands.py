"""Commands in this process, and Python in a process of its own."""

import os
import subprocess
import sys

from data_pipeline.base import command_line
from tests.conftest import ROOT


def run(main, *arguments):
    """Exit status of a command in this process."""
    return command_line.run(main, [str(x) for x in arguments])


def refused(capsys, main, *arguments):
    """The single line that a command prints for a user's error."""
    capsys.readouterr()
    assert run(main, *arguments) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1, captured.err
    assert captured.err.startswith("error: ")
    return captured.err


def python(*arguments, cwd=ROOT, status=0, input=None, **environment):
    """Run Python in a process of its own.

    Args:
        *arguments: arguments of Python, such as "-m", "xlnet_tf.train".
        cwd: path.
        status: int, the expected exit status, or None for any status.
        input: str or None.
        **environment: str, environment variables to add to this process's.

    Returns:
        subprocess.CompletedProcess with text.
    """
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3", **environment},
        input=input,
        capture_output=True,
        encoding="utf-8",
        timeout=1800,
    )
    said = f"{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
    assert status in (None, done.returncode), said
    return done
