"""Stopping of a run after its current step, by signals and time limits."""

import contextlib
import os
import signal
import socket
import threading
import time

import tensorflow as tf

from data_pipeline.base import command_line
from xlnet_tf.training.devices import has_peers
from xlnet_tf.training.devices import holds_anywhere

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Context in which SIGTERM, Ctrl-C and a time limit stop a run.

    Python handles a signal only when TensorFlow returns, after a whole loop of
    steps. For this reason a thread receives the signal and immediately sets a
    variable. The loop checks this variable after each step. A second signal
    raises KeyboardInterrupt when TensorFlow returns, so the run ends without a
    checkpoint.

    Several workers write a checkpoint together. So a request to one worker
    stops all workers at the same step. They stop after a loop of steps, or
    after a batch of an evaluation.

    Args:
        strategy: tf.distribute.Strategy.
        seconds: float, seconds until the time limit, which stops the run as
            SIGTERM does. None (default) for no limit.

    Attributes:
        flag: bool tf.Variable, True if the loop of steps must end. None with
            several workers.
    """

    def __init__(self, strategy, seconds=None):
        self._strategy = strategy
        self._received = None  # number of the first signal
        self._is_announced = self._is_handled = False
        self._timer = None
        if seconds is not None:
            self._timer = threading.Timer(max(0, seconds), self._end_of_time)
            self._timer.daemon = True
        self.flag = None
        if not has_peers(strategy):
            with tf.device("CPU:0"):
                self.flag = tf.Variable(False, trainable=False)

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            try:
                for number in _SIGNALS:
                    before = signal.signal(number, self._handle)
                    stack.callback(signal.signal, number, before)
                self._watch(stack)
                earlier = command_line.take_signal()
                if earlier is not None:
                    self._note(earlier)
            # Only the main thread may set handlers; a notebook may run in
            # another thread.
            except ValueError:
                pass
            if self._timer is not None:
                self._timer.start()
                stack.callback(self._timer.cancel)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *exception):
        self._stack.close()

    def _watch(self, stack):
        """Start the thread that receives signals and calls `_note`."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        before = signal.set_wakeup_fd(
            writer.fileno(), warn_on_full_buffer=False
        )

        def watch():
            with reader:
                while numbers := reader.recv(1):
                    if numbers[0] in _SIGNALS:
                        self._note(numbers[0])

        thread = threading.Thread(target=watch, daemon=True)
        thread.start()
        stack.callback(thread.join)
        stack.callback(writer.close)
        stack.callback(signal.set_wakeup_fd, before)

    def _note(self, number):
        """Print that the run will stop, and set the variable `flag`.

        Only the first call has an effect. This method may run in another
        thread while the main thread traces a function.
        """
        if self._is_announced:
            return
        self._is_announced = True
        self._received = self._received or number
        # The text is not written with sys.stderr, which may be in the middle of
        # a line.
        unit = b"step" if self.flag is not None else b"loop"
        os.write(
            2,
            b"stopping after this %s, with a checkpoint; once more to stop "
            b"without one\n" % unit,
        )
        if self.flag is not None:
            self.flag.assign(True)

    def _handle(self, number, frame):
        """Handle a signal in the main thread, after TensorFlow returned."""
        if self._is_handled:
            raise KeyboardInterrupt
        self._is_handled = True
        self._received = self._received or number

    def _end_of_time(self):
        # The time limit is no signal: a scheduler that also sends SIGTERM would
        # otherwise cost the run its checkpoint.
        os.write(2, b"the time limit is near\n")
        self._note(signal.SIGTERM)

    def is_requested(self):
        """Whether a stop was requested at any worker.

        All workers must call this method together.
        """
        return holds_anywhere(self._strategy, self._received is not None)

    @property
    def exit_status(self):
        """Exit status: 130 after Ctrl-C, 143 after SIGTERM or time limit."""
        return 130 if self._received == signal.SIGINT else 143


def time_left(settings, begun):
    """Return the seconds until a run must stop because of its `time_limit`.

    Args:
        settings: PretrainingSettings.
        begun: float, `time.monotonic()` at the start of the command.

    Returns:
        float, which is negative after the limit. None without a limit.
    """
    if settings.time_limit_seconds is None:
        return None
    passed = time.monotonic() - begun
    return settings.time_limit_seconds - settings.grace_period - passed
