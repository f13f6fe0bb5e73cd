"""Stopping in time: signals, time limits, and what they interrupt."""

import contextlib
import os
import signal
import threading
import time
import types

import pytest
import tensorflow as tf

from data_pipeline import command_line
from xlnet_tf.training.config import TrainingConfig
from xlnet_tf.training.runs import stopping
from xlnet_tf.training.runs.stopping import Stop
from xlnet_tf.training.runs.stopping import StopRequested
from xlnet_tf.training.step import Trainer
from xlnet_tf.training.step_results import StepResults

ONE_DEVICE = tf.distribute.OneDeviceStrategy("CPU:0")


def test_signals_stop_between_loops():
    for number, status in ((signal.SIGTERM, 143), (signal.SIGINT, 130)):
        before = signal.getsignal(number)
        with Stop(ONE_DEVICE) as stop:
            stop.check({})
            os.kill(os.getpid(), number)
            with pytest.raises(StopRequested):
                stop.check({})
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
            with pytest.raises(StopRequested):
                stop.check()
            assert bool(stop.flag)
            return stop.exit_status

    assert command_line.run(main) == 143


class Endless(Trainer):
    """Steps that do nothing but count."""

    def __init__(self):
        self._train_dataset = tf.data.Dataset.from_tensors(0).repeat()
        self._train_iter = self._train_loop_fn = None
        self.results = StepResults("stop")
        self.steps = tf.Variable(0)

    def train_step(self, iterator):
        next(iterator)
        self.steps.assign_add(1)

    def train_loop_begin(self):
        pass

    def train_loop_end(self):
        return int(self.steps)

    def loss_sums(self, features):
        raise NotImplementedError

    outputs_of = scalars = loss_sums


def test_a_loop_ends_after_the_step_that_a_signal_comes_in():
    trainer = Endless()

    def terminate():
        while int(trainer.steps) < 3:
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGTERM)

    sender = threading.Thread(target=terminate)
    with Stop(ONE_DEVICE) as stop:
        trainer.stop = stop.flag
        sender.start()
        assert 3 <= trainer.train(tf.constant(2**31 - 1)) < 2**31 - 1
        sender.join()
        with pytest.raises(StopRequested):
            stop.check()
    # A loop has scalars, and so a step.
    before = int(trainer.steps)
    assert trainer.train(tf.constant(5)) == before + 1


def test_an_evaluation_is_left_at_once():
    with Stop(ONE_DEVICE) as stop:
        with pytest.raises(StopRequested), stop.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("nothing more is evaluated")
        with pytest.raises(StopRequested), stop.interruptible():
            pytest.fail("nor begun")


def test_all_workers_stop_together(monkeypatch):
    """One that got no signal stops with its peers, as by SIGTERM."""
    monkeypatch.setattr(
        stopping, "holds_anywhere", lambda strategy, condition: True
    )
    monkeypatch.setattr(stopping, "has_peers", lambda strategy: True)
    stop = Stop(types.SimpleNamespace())
    assert stop.flag is None  # they would end their loops at other steps
    with pytest.raises(StopRequested):
        stop.check({})
    assert stop.exit_status == 143
    with stop:
        monkeypatch.setattr(
            stopping, "holds_anywhere", lambda strategy, condition: False
        )
        with stop.interruptible():
            os.kill(os.getpid(), signal.SIGTERM)


def test_the_time_limit_stops_as_a_signal_does():
    with Stop(ONE_DEVICE, seconds=-1) as stop:
        with pytest.raises(StopRequested), stop.interruptible():
            threading.Event().wait(60)
        assert stop.exit_status == 143
    ended = []

    def elsewhere():  # where no signals are handled
        with Stop(ONE_DEVICE, seconds=0) as stop:
            stop._timer.join()
            try:
                stop.check()
            except StopRequested:
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
        config = TrainingConfig(time_limit=limit, grace_period=20)
        assert stopping.time_left(config, 990.0) == seconds - 20 - 10
    assert stopping.time_left(TrainingConfig(), 990.0) is None
    for limit, message in (
        ("soon", "`time_limit` must be a number of seconds.*'soon'"),
        ("3 weeks", "`time_limit` must be"),
        ("-5", "`time_limit` must be"),
        ("30", "`time_limit` must be more than `grace_period`.*30"),
    ):
        with pytest.raises(ValueError, match=message):
            TrainingConfig(time_limit=limit)
    config = TrainingConfig(checkpoint_time_interval="1.5m")
    assert config.checkpoint_time_seconds == 90
    assert TrainingConfig().checkpoint_time_seconds is None
    for value, message in (
        ("often", "`checkpoint_time_interval` must be a number.*'often'"),
        ("0m", "`checkpoint_time_interval` must be more than 0.*'0m'"),
    ):
        with pytest.raises(ValueError, match=message):
            TrainingConfig(checkpoint_time_interval=value)
