"""How commands end: their exit status and the one line that helps."""

import errno
import os
import signal
import subprocess
import sys
import threading
import warnings

import pytest
import tensorflow as tf

from data_pipeline.command_line import run
from data_pipeline.command_line import warnings_in_a_line
from tests.conftest import ROOT


@pytest.fixture(autouse=True)
def signals():
    """`run` takes SIGTERM over; the test run gets it back."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


def raises(error):
    def main(argv):
        raise error

    return main


def one_line(capsys):
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.count("\n") == 1
    assert captured.err.endswith("\n")
    return captured.err


@pytest.mark.parametrize(("result", "status"), [(None, 0), (0, 0), (3, 3)])
def test_the_status_is_that_of_the_command(capsys, result, status):
    assert run(lambda argv: result) == status
    assert capsys.readouterr().err == ""


def test_arguments_reach_the_command():
    seen = []
    run(seen.append, ["--steps", "3"])
    run(seen.append)
    assert seen == [["--steps", "3"], None]


@pytest.mark.parametrize(
    "kind", [ValueError, TypeError, OSError, FileNotFoundError, RuntimeError]
)
def test_an_error_of_the_user_is_one_line(capsys, kind):
    assert run(raises(kind("`steps` is\n  wrong:\n\n7."))) == 1
    assert one_line(capsys) == "error: `steps` is wrong: 7.\n"


def test_an_error_of_the_system_names_the_file(capsys):
    assert run(lambda argv: open("no such/file")) == 1
    expected = f"error: no such/file: {os.strerror(errno.ENOENT)}.\n"
    assert one_line(capsys) == expected


@pytest.mark.parametrize("file", [None, "runs/model.keras"])
def test_a_full_disk(capsys, file):
    error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)
    assert run(raises(error)) == 1
    line = one_line(capsys)
    assert f"the disk is full while writing {file or 'the output'}." in line
    assert "free some space and run the command again" in line


@pytest.mark.parametrize("kind", [KeyError, AssertionError, IndexError])
def test_a_bug_keeps_its_traceback(capsys, kind):
    with pytest.raises(kind):
        run(raises(kind("ours")))
    assert capsys.readouterr().err == ""


def test_the_status_of_argparse_is_kept():
    with pytest.raises(SystemExit, match="2"):
        run(raises(SystemExit(2)))


def test_ctrl_c(capsys):
    assert run(raises(KeyboardInterrupt())) == 130
    assert one_line(capsys) == "stopped\n"


@pytest.mark.parametrize(
    ("number", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)]
)
def test_signals_unwind_what_is_half_written(capsys, number, status):
    done = []

    def main(argv):
        try:
            os.kill(os.getpid(), number)
            # Python runs the handler between two instructions of this loop.
            for _ in range(10**8):
                pass
            done.append("everything")
        finally:
            done.append("cleaned up")

    assert run(main) == status
    assert done == ["cleaned up"]
    assert one_line(capsys) == "stopped\n"


def test_outside_of_the_main_thread():
    results = []
    thread = threading.Thread(
        target=lambda: results.append(run(lambda argv: 7))
    )
    thread.start()
    thread.join()
    assert results == [7]


def test_the_log_of_tensorflow_is_quiet_unless_asked_for(monkeypatch):
    seen = []

    def main(argv):
        seen.append(os.environ["TF_CPP_MIN_LOG_LEVEL"])

    monkeypatch.delenv("TF_CPP_MIN_LOG_LEVEL", raising=False)
    run(main)
    monkeypatch.setenv("TF_CPP_MIN_LOG_LEVEL", "0")
    run(main)
    assert seen == ["3", "0"]


_TRAINING = """
import sys
sys.argv[0] = "-m"  # as where a package runs as a command
import xlnet_tf
from data_pipeline.command_line import run
import tensorflow as tf
f = tf.function(lambda x: x + 1, jit_compile=True)
run(lambda argv: f(tf.ones(3)) is None)
"""


class _Compiled(tf.Module):
    @tf.function(jit_compile=True)
    def _double(self, lengths):
        return 2 * lengths

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string, "text")])
    def double(self, text):
        return {"doubled": self._double(tf.strings.length(text))}


@pytest.mark.parametrize(
    "command", ["train", pytest.param("predict", marks=pytest.mark.slow)]
)
@pytest.mark.parametrize(("level", "is_quiet"), [(None, True), ("0", False)])
def test_what_xla_says_is_quiet_unless_asked_for(
    tmp_path, level, is_quiet, command
):
    arguments = ["-c", _TRAINING]
    if command == "predict":
        module = _Compiled()
        tf.saved_model.save(module, str(tmp_path / "1"), module.double)
        arguments = ["-m", "saved_models.predict", "--text", "a"]
        arguments += ["--model", tmp_path]
    environment = dict(os.environ)
    environment.pop("TF_CPP_MIN_LOG_LEVEL", None)
    if level is not None:
        environment["TF_CPP_MIN_LOG_LEVEL"] = level
    result = subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert result.returncode == 0, result.stderr
    assert ("Compiled cluster using XLA" in result.stderr) != is_quiet
    assert (result.stderr == "") == is_quiet


@pytest.mark.parametrize(
    ("body", "status", "line"),
    [
        ("raise ValueError('wrong')", 1, "error: wrong\n"),
        ("os.kill(os.getpid(), 15); time.sleep(60)", 143, "stopped\n"),
        ("os.kill(os.getpid(), 2); time.sleep(60)", 130, "stopped\n"),
    ],
)
def test_as_a_process(body, status, line):
    program = (
        "import os, sys, time\n"
        "from data_pipeline.command_line import run\n"
        f"def main(argv):\n    {body}\n"
        "sys.exit(run(main))\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", program],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert result.returncode == status
    assert result.stderr == line
    assert result.stdout == ""


def test_warnings_are_a_line(capsys):
    with warnings_in_a_line():
        for _ in range(2):
            warnings.warn("3 rows left out", stacklevel=1)
    assert capsys.readouterr().err == "warning: 3 rows left out\n" * 2


@pytest.mark.parametrize(
    ("program", "options"),
    [
        ("run", ["--only", "record_building", "--text", "nowhere/*"]),
        ("record_building", ["--input", "*", "--tokenizer", "nowhere"]),
        ("reading", ["--records", "nowhere"]),
    ],
)
def test_measurements_of_files_that_are_not_there(program, options, tmp_path):
    path = os.path.join(ROOT, "benchmarks", f"{program}.py")
    result = subprocess.run(
        [sys.executable, path, *options],
        cwd=tmp_path,
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
    )
    assert result.returncode == 1
    line = result.stderr.splitlines()[-1]
    assert line.startswith("error: ") and "nowhere" in line
    assert "Traceback" not in result.stderr
