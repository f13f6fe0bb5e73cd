"""How commands end: their exit status and the one line that helps."""

import argparse
import contextlib
import errno
import gc
import io
import json
import os
import signal
import sys
import threading
import time
import warnings
from multiprocessing import popen_spawn_posix

import pytest

from data_pipeline.base.command_line import parse
from data_pipeline.base.command_line import print_lines
from data_pipeline.base.command_line import print_notes
from data_pipeline.base.command_line import run
from data_pipeline.base.command_line import warnings_in_a_line
from data_pipeline.base.files import json_line
from tests.conftest import ROOT
from tests.support.commands import python


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


def test_the_status_and_the_arguments_are_those_of_the_command(capsys):
    for result, status in ((None, 0), (0, 0), (3, 3)):
        assert run(lambda argv, result=result: result) == status
    seen = []
    run(seen.append, ["--steps", "3"])
    run(seen.append)
    assert seen == [["--steps", "3"], None]
    with pytest.raises(SystemExit, match="2"):  # of argparse
        run(raises(SystemExit(2)))
    assert capsys.readouterr().err == ""


def test_an_error_of_the_user_is_one_line(capsys):
    for kind in (ValueError, TypeError, OSError, RuntimeError):
        assert run(raises(kind("`steps` is\n  wrong:\n\n7."))) == 1
        assert one_line(capsys) == "error: `steps` is wrong: 7.\n"
    assert run(lambda argv: open("no such/file")) == 1
    expected = f"error: no such/file: {os.strerror(errno.ENOENT)}.\n"
    assert one_line(capsys) == expected


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_output_whatever_the_encoding_and_the_text(encoding, monkeypatch):
    """A line stays one, commands no terminal, and is JSON where it was."""
    hostile = "é▁😀\udcff\x1b[2J\x9b\r\nerror: \u202e\u2028forged"
    shown = r"\u001b[2J\u009b\u000d\u000aerror: \u202e\u2028forged"

    def succeed(argv):
        print_lines(f"class {hostile}", "next")
        print_notes(hostile)
        with warnings_in_a_line():
            warnings.warn(hostile, stacklevel=1)
        sys.stdout.write(json_line({"text": hostile}))

    def output_of(main):
        streams = [
            io.TextIOWrapper(io.BytesIO(), encoding, newline="")
            for _ in range(2)
        ]
        with monkeypatch.context() as patched:
            patched.setattr("sys.stdout", streams[0])
            patched.setattr("sys.stderr", streams[1])
            status = run(main)
            for stream in streams:
                stream.flush()
        lines = [x.buffer.getvalue().decode(encoding) for x in streams]
        assert all(x.isprintable() for x in "".join(lines).split("\n"))
        return status, *(x.split("\n") for x in lines)

    status, (first, second, line, _), (note, warning, _) = output_of(succeed)
    assert (status, second) == (0, "next")
    assert first.startswith("class ") and first.endswith(shown)
    assert note == first.removeprefix("class ")
    assert warning.startswith("warning: ")
    assert json.loads(line) == {"text": hostile}
    assert ("é" in first, "😀" in first) == {
        "ascii": (False, False),
        "latin-1": (True, False),
        "utf-8": (True, True),
    }[encoding]
    for error in (
        ValueError(hostile),
        FileNotFoundError(errno.ENOENT, "gone", hostile),
        UnicodeEncodeError("utf-8", hostile, 0, 1, "surrogates not allowed"),
    ):
        status, _, (line, _) = output_of(raises(error))
        assert status == 1 and line.startswith("error: ")


def test_streams_that_the_shell_has_closed(monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("sys.stdout", None)
        patched.setattr("sys.stderr", None)
        assert run(lambda argv: print_lines("a line")) == 0
        assert run(raises(ValueError("wrong"))) == 1
        for name in ("stdout", "stderr"):
            getattr(sys, name).close()


def test_a_full_disk(capsys):
    for file in (None, "runs/model.keras"):
        error = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), file)
        assert run(raises(error)) == 1
        line = one_line(capsys)
        assert f"the disk is full while writing {file or 'the output'}." in line
        assert "free some space and run the command again" in line


def test_output_whose_reader_has_gone(capsys, monkeypatch):
    """As of `head`: neither a line on it here, nor when Python ends."""

    def explain(argv):
        print("a line of help")
        raise SystemExit(0)

    def print_and_return(size):
        return lambda argv: print("x" * size)

    def write_elsewhere(argv):
        raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))

    def unread(main):
        reader, writer = os.pipe()
        os.close(reader)
        with open(writer, "w") as output, monkeypatch.context() as patched:
            patched.setattr("sys.stdout", output)
            return run(main)  # the output is flushed as it is closed

    assert unread(print_and_return(10)) == 0
    assert unread(print_and_return(10**5)) == 141
    assert unread(lambda argv: print("x", flush=True)) == 141
    with pytest.raises(SystemExit, match="0"):
        unread(explain)
    assert capsys.readouterr().err == ""
    assert unread(raises(ValueError("`steps` is wrong."))) == 1
    assert one_line(capsys) == "error: `steps` is wrong.\n"
    assert run(write_elsewhere) == 1
    assert "error: " in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(capsys):
    for kind in (KeyError, AssertionError, IndexError):
        with pytest.raises(kind):
            run(raises(kind("ours")))
    assert capsys.readouterr().err == ""


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


def swallowing(done):
    """A command that a library keeps from being interrupted, but once."""

    def main(argv):
        def swallow(phase, info):
            if not done:
                done.append("swallowed")
                os.kill(os.getpid(), signal.SIGTERM)

        gc.callbacks.append(swallow)
        try:
            gc.collect()
            for _ in range(1000):
                time.sleep(0.01)
            done.append("everything")
        finally:
            gc.callbacks.remove(swallow)
            time.sleep(0.3)  # the signal is sent again, and cleaning goes on
            done.append("cleaned up")

    return main


def test_a_signal_that_a_library_swallows_is_sent_again(capsys):
    done = []
    assert run(swallowing(done)) == 143
    assert done == ["swallowed", "cleaned up"]
    assert one_line(capsys) == "stopped\n"


def test_an_interruption_that_becomes_an_error_or_nothing(capsys):
    def fail(argv):
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)
        except KeyboardInterrupt:
            raise RuntimeError("a callback failed") from None

    def succeed(argv):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(10)

    for main in (fail, succeed):
        assert run(main) == 130
        assert one_line(capsys) == "stopped\n"
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


IMPORTING = """
import sys
from data_pipeline.base import command_line
def main(argv):
    import stopped_in_its_import
    print("everything")
print("begun")
sys.exit(command_line.run(main))
"""
IMPORTED = """
import os, signal, time
try:
    os.kill(os.getpid(), signal.{name})
    time.sleep(10)
except BaseException:
    pass
"""


@pytest.mark.parametrize(
    ("name", "status"), [("SIGINT", 130), ("SIGTERM", 143)]
)
def test_a_signal_in_the_middle_of_an_import(tmp_path, name, status):
    """Where an exception would be swallowed, and the module half made."""
    module = tmp_path / "stopped_in_its_import.py"
    module.write_text(IMPORTED.format(name=name))
    path = f"{tmp_path}:{ROOT}"
    process = python("-c", IMPORTING, PYTHONPATH=path, status=status)
    assert (process.stdout, process.stderr) == ("begun\n", "stopped\n")


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


def test_warnings_are_a_line(capsys):
    with warnings_in_a_line():
        for _ in range(2):
            warnings.warn("3 rows left out", stacklevel=1)
    assert capsys.readouterr().err == "warning: 3 rows left out\n" * 2


def test_empty_options_are_refused(capsys):
    """Of a shell, where a variable is not set."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--preset")
    parser.add_argument("--eval-data", nargs="+")
    parser.add_argument("--text", action="append", default=[])
    for argv, name in (
        (["--preset", ""], "preset"),
        (["--preset", " \n"], "preset"),
        (["--eval-data", "a", ""], "eval-data"),
        (["--text", ""], "text"),
    ):
        with pytest.raises(SystemExit, match="2"):
            parse(parser, argv)
        last = capsys.readouterr().err.splitlines()[-1]
        assert f"error: argument {name}: must not be empty" in last
    given = parse(parser, ["--text", "", "--text", "a"], ["text"])
    assert vars(given) == {"preset": None, "eval_data": None, "text": ["", "a"]}


def test_a_process_that_is_being_started_is_started():
    """It would end in a traceback; the signal is handled after it."""
    started = []

    def main(argv):
        body = "os.kill(os.getpid(), signal.SIGTERM); started.append(True)"
        file = popen_spawn_posix.__file__
        names = {"os": os, "signal": signal, "started": started}
        exec(compile(body, file, "exec"), names)
        time.sleep(10)

    assert run(main) == 143
    assert started
