"""The log, the evaluations and the best weights of a run, with no model."""

import json

import pytest
import tensorflow as tf

from xlnet_tf.training.runs import progress

ONE_DEVICE = tf.distribute.OneDeviceStrategy("CPU:0")


def step_at(value):
    return tf.Variable(value, dtype=tf.int64)


def log_at(directory, step, total=10):
    return progress.MetricsLog(
        directory, total, step, lambda kind, scalars: f"loss {scalars['loss']}"
    )


def lines(directory):
    text = (directory / "metrics.jsonl").read_text()
    return [json.loads(x) for x in text.splitlines()]


def test_the_log(tmp_path, capsys):
    step = step_at(4)
    log = log_at(tmp_path, step)
    log.train({"loss": tf.constant(0.5)})
    log.evaluate({"loss": 0.25})
    assert lines(tmp_path) == [
        {"kind": "train", "step": 4, "loss": 0.5},
        {"kind": "eval", "step": 4, "loss": 0.25},
    ]
    error = capsys.readouterr().err.splitlines()
    assert error[0].startswith("step 4/10  loss 0.5  ")
    assert error[0].endswith(" left")
    assert error[1] == "step 4/10  loss 0.25"
    assert log.has_evaluation(4)
    assert not log.has_evaluation(2)
    # A worker that writes nothing takes the chief's word.
    assert log_at(None, step).has_evaluation(2)


def test_peaks_and_skipped_steps_are_shown(tmp_path, capsys):
    """Peaks against what was usual before a restart too."""
    step = step_at(4)
    log = log_at(tmp_path, step)
    for _ in range(10):
        log.train({"loss": 2.0, "largest_loss": 2.1, "largest_loss_step": 3})
    log = log_at(tmp_path, step)
    log.train({"loss": 2.5, "largest_loss": 9.0, "largest_loss_step": 4})
    log.train({"loss": float("nan"), "skipped_steps": 2})
    *calm, peak, skipped = capsys.readouterr().err.splitlines()
    assert all("loss 2.0  largest 2.100  " in line for line in calm)
    assert "loss 2.5  largest 9.000 PEAK at step 4  " in peak
    assert "loss nan  skipped 2 not finite  " in skipped
    # Steps are no fractions.
    assert '"largest_loss_step": 4}' in (tmp_path / "metrics.jsonl").read_text()


def test_lines_after_the_checkpoint_are_dropped(tmp_path):
    file = tmp_path / "metrics.jsonl"
    kept = {"kind": "train", "step": 4, "loss": 1.0}
    later = {**kept, "step": 6}
    text = json.dumps(kept) + "\n" + json.dumps(later) + '\n{"kind": "tra'
    file.write_text(text)
    log_at(tmp_path, step_at(4))
    assert lines(tmp_path) == [kept]


def test_durations():
    for seconds, text in ((89, "89 s"), (600, "10 min"), (9000, "2.5 h")):
        assert progress.duration(seconds) == text


class Controller:
    """Stands for Orbit's: notes what is asked of it."""

    def __init__(self, step):
        self.global_step = step_at(step)
        self.calls = []

    def train(self, steps, checkpoint_at_completion=True):
        self.calls.append(("train", steps, checkpoint_at_completion))
        self.global_step.assign(steps)

    def evaluate(self, steps):
        self.calls.append(("evaluate", steps))


def test_evaluations_do_not_depend_on_where_a_run_resumes(tmp_path):
    for begin in (0, 2, 3):
        controller = Controller(begin)
        log = log_at(None, controller.global_step)
        evaluations = progress.Evaluations(log, ONE_DEVICE, 7, 3, batches=2)
        evaluations.evaluate_if_missing(controller)
        evaluations.train_between(controller)
        intervals = [3, 6, 7] if begin < 3 else [6, 7]
        expected = []
        for step in intervals:
            expected += [("train", step, False), ("evaluate", 2)]
        assert controller.calls == [*expected, ("train", 7, True)], begin


def test_a_missing_evaluation_is_made_on_resume(tmp_path):
    controller = Controller(3)
    log = log_at(tmp_path, controller.global_step)
    evaluations = progress.Evaluations(log, ONE_DEVICE, 7, 3)
    found = [step for step in range(8) if evaluations.is_missing(step)]
    assert found == [3, 6, 7]
    evaluations.evaluate_if_missing(controller)
    log.evaluate({"loss": 1.0})
    evaluations.evaluate_if_missing(controller)
    assert controller.calls == [("evaluate", -1)]


def best_at(directory, step, saved, patience=None):
    return progress.BestWeights(
        directory / "best.json",
        step,
        lambda metric, value, best: value < best,
        lambda: saved.append(int(step)),
        True,
        patience,
    )


def test_best_weights(tmp_path):
    step, saved = step_at(0), []
    best = best_at(tmp_path, step, saved, patience=4)
    for number, value in ((2, 0.5), (4, 0.25), (6, 0.3)):
        step.assign(number)
        best({"loss": value, "accuracy": 0.0})
        best.check_patience()
    assert saved == [2, 4]
    kept = json.loads((tmp_path / "best.json").read_text())
    assert len(kept.pop("sha256")) == 64
    assert kept == {"metric": "loss", "value": 0.25, "step": 4}
    step.assign(8)
    with pytest.raises(progress.PatienceExhausted):
        best.check_patience()
    # After a restart from step 4 it counts, from step 2 it was lost.
    for number, expected in ((4, []), (2, [2])):
        step, saved = step_at(number), []
        best_at(tmp_path, step, saved)({"loss": 0.3})
        assert saved == expected


def test_best_of_an_older_pretraining_run(tmp_path):
    (tmp_path / "best.json").write_text("0.25")
    step, saved = step_at(2), []
    best = best_at(tmp_path, step, saved)
    best({"loss": 0.3})
    assert saved == []
    best({"loss": 0.2})
    assert saved == [2]


def test_a_damaged_best_is_refused(tmp_path):
    best_at(tmp_path, step_at(2), [])({"loss": 0.25})
    file = tmp_path / "best.json"
    text = file.read_text()
    for damaged in (
        text.replace("0.25", "0.75"),
        text.replace("step", "stfp"),
        text.replace("sha256", "sha257"),
        text.replace("loss", "lors"),
        "[]",
        '{"metric": "loss"}',
    ):
        assert damaged != text
        file.write_text(damaged)
        with pytest.raises(ValueError, match="best.json is damaged.*Remove it"):
            best_at(tmp_path, step_at(4), [])
    # That of a run of an earlier version has no digest.
    file.write_text('{"metric": "loss", "value": 0.25, "step": 4}')
    best_at(tmp_path, step_at(4), [])({"loss": 0.2})
    assert json.loads(file.read_text())["value"] == 0.2


def test_a_failed_save_is_not_the_best(tmp_path):
    def fail():
        raise OSError("disk full")

    best = progress.BestWeights(
        tmp_path / "best.json", step_at(2), None, fail, True
    )
    with pytest.raises(OSError, match="disk full"):
        best({"loss": 0.3})
    assert not (tmp_path / "best.json").exists()
