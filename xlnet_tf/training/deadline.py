"""A time limit for a call into TensorFlow that Python cannot interrupt."""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
import threading

# Ends silently when its input is closed, as by the end of its parent.
_BESIDE = """\
import select, sys
if not select.select([sys.stdin], [], [], float(sys.argv[1]))[0]:
    sys.stderr.write(f"error: {sys.argv[2]}\\n")
"""


@contextlib.contextmanager
def deadline(seconds, message):
    """Context that ends the process, with status 1, where it takes too long.

    For calls that hold Python's lock while they wait, so that neither a thread
    nor the handler of a signal runs: a small process beside this one prints the
    message, and then `faulthandler`, which needs no lock, ends this one.
    Ctrl-C ends it at once. SIGTERM is kept for the end of the context:
    TensorFlow's handler of it would lose it.

    Args:
        seconds: float.
        message: str, one line.
    """
    with contextlib.ExitStack() as stack:
        stack.enter_context(_signals_set_aside())
        nowhere = stack.enter_context(open(os.devnull, "w", encoding="utf-8"))
        command = [sys.executable, "-I", "-S", "-c", _BESIDE]
        stack.enter_context(
            subprocess.Popen(
                [*command, str(seconds), message],
                stdin=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C does not reach it
            )
        )
        # One second later, so that the line is printed first.
        faulthandler.dump_traceback_later(seconds + 1, exit=True, file=nowhere)
        stack.callback(faulthandler.cancel_dump_traceback_later)
        yield


@contextlib.contextmanager
def _signals_set_aside():
    if threading.current_thread() is not threading.main_thread():
        yield  # as in a notebook, where no handlers can be set
        return
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    terminated = signal.getsignal(signal.SIGTERM) or signal.SIG_DFL
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.signal(signal.SIGTERM, terminated)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
