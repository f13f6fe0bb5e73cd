"""Steps whose numbers are not finite: skipped, noted; peaks.

Replicas, XLA and the commands are in `tests/slow/test_not_finite_runs.py`.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from tests.support.equality import assert_equal
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import Trained
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import settings
from xlnet_tf.training import step
from xlnet_tf.training.log import NotFiniteSteps
from xlnet_tf.training.log import is_peak
from xlnet_tf.training.loop import check_finite
from xlnet_tf.training.step import StepResult
from xlnet_tf.training.update import make_update

NAN, INFINITE = float("nan"), float("inf")

pytestmark = pytest.mark.filterwarnings("ignore:Even though the")  # of tf.data


def make_steps(bad_step, **overrides):
    """Steps whose data have a NaN at one of them, and what they change."""
    data = ArrayData()
    data.features["target_weights"][bad_step - 1, -1, 0] = NAN
    made = Trained(steps=0, data=data, hide_empty_memory=True, **overrides)
    state = [*made.model.weights, *made.memory.weights]
    state += made.optimizer.variables
    return made, [x for x in state if x is not made.optimizer.iterations]


def values(state):
    return [x.numpy() for x in state]


@pytest.mark.usefixtures("eager_functions")
def test_a_skipped_step_leaves_all_as_it_was():
    for overrides in (
        {},
        {"gradient_accumulation_steps": 2, "precision": "bfloat16"},
    ):
        made, state = make_steps(2, on_not_finite="skip", **overrides)
        first = made.train(1)
        assert "skipped_steps" not in first
        before = values(state)
        skipped = made.train(1)
        assert_equal(state, before)
        assert skipped["skipped_steps"] == 1
        assert np.isnan(skipped["loss"]) and np.isnan(skipped["gradient_norm"])
        assert "largest_loss" not in skipped
        # Steps, and the learning rate that follows from them, go on.
        assert skipped["learning_rate"] > first["learning_rate"]
        third = made.train(1)
        assert third["largest_loss_step"] == 3
        assert third["largest_loss"] == pytest.approx(third["loss"])
        assert any(
            (variable.numpy() != value).any()
            for variable, value in zip(state, before, strict=True)
        )


@pytest.mark.usefixtures("eager_functions")
def test_means_of_a_loop_are_of_its_finite_steps():
    made, _ = make_steps(2, on_not_finite="skip")
    report = made.steps.make(3)
    results, found = report.results, report.scalars()
    assert [x.is_finite for x in results] == [True, False, True]
    losses = [results[0].loss, results[2].loss]
    assert min(losses) < found["loss"] < max(losses)
    assert found["largest_loss"] == max(losses)
    norms = [results[0].gradient_norm, results[2].gradient_norm]
    assert found["gradient_norm"] == pytest.approx(np.mean(norms))


@pytest.mark.usefixtures("eager_functions")
def test_a_run_stops_at_the_step():
    made, state = make_steps(2)
    noted = []
    made.train(1)
    before = values(state)
    report = made.steps.make(3)
    message = (
        r"loss became nan \(gradient norm nan\) at step 2\. See FILE\. Nothing "
        "since the last checkpoint was saved: resume from the last checkpoint "
        "with .*--on-not-finite skip"
    )
    with pytest.raises(RuntimeError, match=message):
        check_finite(
            report,
            made.settings,
            lambda steps: noted.extend(steps) or "See FILE.",
            "resume from the last checkpoint",
        )
    assert [x.step for x in noted] == [2]
    assert len(report.results) == 1  # the loop ended there
    assert_equal(state, before)


@pytest.mark.usefixtures("eager_functions")
def test_not_all_steps_may_be_skipped(monkeypatch):
    """Those in a row are counted from loop to loop."""
    assert step.MOST_SKIPPED == 20
    monkeypatch.setattr(step, "MOST_SKIPPED", 3)
    data = ArrayData(num_steps=12)
    bad = [True] * 3 + [False] + [True] * 8
    data.features["target_weights"][bad, -1, 0] = NAN
    made = Trained(steps=0, data=data, on_not_finite="skip")
    config, told = made.settings, []

    def note(steps):
        told.append(len(steps))
        return "See FILE."

    for count, skipped in ((4, 0), (2, 2), (1, 3)):
        report = made.steps.make(count)
        assert report.skipped_in_a_row == skipped
        assert len(report.results) == count
        check_finite(report, config, note, "wait")
    report = made.steps.make(5)
    assert len(report.results) == 1  # the loop ended there
    message = r"became nan .*norm nan.* step 8, after 3 that were skipped in"
    with pytest.raises(RuntimeError, match=message):
        check_finite(report, config, note, "wait")
    assert told == [3, 2, 1, 1]


class Recorded:
    """Stands for an optimizer."""

    def __init__(self):
        self.iterations = tf.Variable(0)
        self.applied = 0

    def apply(self, gradients, variables):
        self.applied += 1
        self.iterations.assign_add(1)


def test_what_counts_as_not_finite():
    """The loss, or the norm of all gradients, which may overflow too."""
    optimizer = Recorded()
    update = make_update(optimizer, [], settings(), one_device())
    for gradient, loss, expected in (
        (1.0, 1.0, True),
        (1.0, NAN, False),
        (1.0, INFINITE, False),
        (NAN, 1.0, False),
        (INFINITE, 1.0, False),
        (3e38, 1.0, False),
    ):
        gradients = [tf.constant([gradient, 0.5]), tf.constant(1.0)]
        before = optimizer.applied
        _, is_finite = update(gradients, loss, tf.constant(2.0))
        assert bool(is_finite) == expected
        assert optimizer.applied - before == expected
    assert int(optimizer.iterations) == 6


def test_the_file(tmp_path):
    file = tmp_path / "not_finite.jsonl"
    rows = [{"shard": "train-00000.tfrecord", "record": 5}]
    note = NotFiniteSteps(tmp_path, lambda step: rows, is_chief=True)
    told = note([StepResult(3, NAN, 1.5), StepResult(4, 2.0, -INFINITE)])
    assert told == f"{file} names the rows of its batch."
    with file.open("a") as handle:
        handle.write('{"step": ')  # that a kill cut short
    # One that comes again after a resume replaces its line.
    note([StepResult(3, INFINITE, NAN)])
    NotFiniteSteps(tmp_path, None, is_chief=False)([StepResult(5, NAN, NAN)])

    def refuse(name):
        pytest.fail(f"{name} is not JSON to others")

    lines = [
        json.loads(x, parse_constant=refuse)
        for x in file.read_text().splitlines()
    ]
    assert lines == [
        {"step": 4, "loss": 2.0, "gradient_norm": "-Infinity", "rows": rows},
        {"step": 3, "loss": "Infinity", "gradient_norm": "NaN", "rows": rows},
    ]


def test_peaks():
    calm = [2.0, 2.1] * 5
    for loss, before, expected in (
        (9.0, calm[:9], False),  # what is usual is not known yet
        (2.3, calm, False),  # less than a tenth
        (2.4, calm, True),
        (9.0, [8.0, *calm[:9]], False),  # it varies
        (14.1, [8.0, *calm[:9]], True),
        (NAN, calm, False),
    ):
        assert is_peak(loss, before) == expected, (loss, before)
