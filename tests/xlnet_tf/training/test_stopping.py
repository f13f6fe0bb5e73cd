"""Stopping in time: signals, time limits, and what they interrupt."""

import contextlib
import os
import signal
import threading
import time
import types

import pytest
import tensorflow as tf

from data_pipeline.base import command_line
from tests.support.training_fixtures import Trained
from xlnet_tf.training import stopping
from xlnet_tf.training.settings import PretrainingSettings
from xlnet_tf.training.stopping import Stop

ONE_DEVICE = tf.distribute.OneDeviceStrategy("CPU:0")


def test_signals_stop_between_loops():
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        before = signal.getsignal(number)
        with Stop(ONE_DEVICE) as stop:
            assert not stop.is_requested()
            os.kill(os.getpid(), number)
            assert stop.is_requested()
            assert stop.exit_status == status
            with pytest.raises(KeyboardInterrupt):  # a second one
                os.kill(os.getpid(), number)
        assert signal.getsignal(number) is before
        assert signal.set_wakeup_fd(-1) == -1


def test_a_signal_that_came_before_stops_it_before_the_first_step():
    """Where a library has swallowed what it raised."""

    def main(argv):
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(10)
        with Stop(ONE_DEVICE) as stop:
            time.sleep(0.3)  # it is not sent a second time
            assert stop.is_requested()
            assert bool(stop.flag)
            return stop.exit_status

    assert command_line.run(main) == 143


def test_a_loop_ends_after_the_step_that_a_signal_comes_in():
    made = Trained(steps=0)
    with Stop(ONE_DEVICE) as stop:
        made.steps.make(1)  # compiles, and knows of no flag
        sender = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM))
        sender.start()
        report = made.steps.make(2**31 - 1, stop.flag)
        sender.join()
        assert 1 <= len(report.results) < 2**31 - 1
        assert stop.is_requested()
    # A loop has figures, and so a step.
    assert len(made.steps.make(5, stop.flag).results) == 1


def test_all_workers_stop_together(monkeypatch):
    """One that got no signal stops with its peers, as by SIGTERM."""
    monkeypatch.setattr(
        stopping, "holds_anywhere", lambda strategy, condition: True
    )
    monkeypatch.setattr(stopping, "has_peers", lambda strategy: True)
    stop = Stop(types.SimpleNamespace())
    assert stop.flag is None  # they would end their loops at other steps
    assert stop.is_requested()
    assert stop.exit_status == 143


def test_the_time_limit_stops_as_a_signal_does():
    with Stop(ONE_DEVICE, seconds=-1) as stop:
        stop._timer.join()
        assert stop.is_requested()
        assert stop.exit_status == 143
        # A scheduler's signal at its own limit leaves time for the checkpoint.
        os.kill(os.getpid(), signal.SIGTERM)
        assert bool(stop.flag)
    ended = []

    def elsewhere():  # where no signals are handled
        with Stop(ONE_DEVICE, seconds=0) as stop:
            stop._timer.join()
            if stop.is_requested():
                ended.append((stop.exit_status, bool(stop.flag.numpy())))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert ended == [(143, True)]


def test_times_of_settings(monkeypatch):
    monkeypatch.setattr(stopping.time, "monotonic", lambda: 1000.0)
    for limit, seconds in (
        ("90", 90),
        ("90s", 90),
        ("45m", 2700),
        ("1.5h", 5400),
        ("2 d", 172_800),
        (3600, 3600),
    ):
        config = PretrainingSettings(time_limit=limit, grace_period=20)
        assert stopping.time_left(config, 990.0) == seconds - 20 - 10
    assert stopping.time_left(PretrainingSettings(), 990.0) is None
    for limit, message in (
        ("soon", "`time_limit` must be a number of seconds.*'soon'"),
        ("3 weeks", "`time_limit` must be"),
        ("-5", "`time_limit` must be"),
        ("30", "`time_limit` must be more than `grace_period`.*30"),
    ):
        with pytest.raises(ValueError, match=message):
            PretrainingSettings(time_limit=limit)
    config = PretrainingSettings(checkpoint_time_interval="1.5m")
    assert config.checkpoint_time_seconds == 90
    assert PretrainingSettings().checkpoint_time_seconds is None
    for value, message in (
        ("often", "`checkpoint_time_interval` must be a number.*'often'"),
        ("0m", "`checkpoint_time_interval` must be more than 0.*'0m'"),
    ):
        with pytest.raises(ValueError, match=message):
            PretrainingSettings(checkpoint_time_interval=value)
