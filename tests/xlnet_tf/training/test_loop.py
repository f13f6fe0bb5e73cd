"""The loop of a run: what happens when, the best weights, how it ends."""

import functools
import json
import types

import pytest

from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import Trained
from tests.support.training_fixtures import one_device
from xlnet_tf.training import loop
from xlnet_tf.training import pretrain
from xlnet_tf.training.on_tensorflow import MeanLoss
from xlnet_tf.training.settings import PretrainingSettings
from xlnet_tf.training.step import LoopReport
from xlnet_tf.training.step import StepResult


class Recorded:
    """A run whose steps only count, and what is asked of it, in order."""

    def __init__(self, directory, begin=0, losses=None, **settings):
        settings = {"steps": 7, "steps_per_loop": 2, **settings}
        self.calls = []
        self.stop_after = None  # number of calls
        self.losses = losses
        backend = types.SimpleNamespace(strategy=one_device(), is_chief=True)
        settings = PretrainingSettings(
            output=str(directory), quiet=True, **settings
        )
        self.run = loop.Run(settings, backend, begun=0.0)
        self.run.step.assign(begin)

    def train(self, **training):
        """int, the exit status of the loop."""
        evaluates = self.run.settings.evaluation_interval < 500
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loop, "Stop", lambda *_: Stop(self))
            return loop.train(
                self.run,
                loop.Training(
                    make_steps=lambda: self,
                    figures=LoopReport.scalars,
                    progress_text=lambda kind, scalars: "",
                    rows_of_step=lambda step: [],
                    advice="start again",
                    save_best=lambda: self.note("best"),
                    evaluate=self.evaluate if evaluates else None,
                    **training,
                ),
                self,
            )

    def note(self, *call):
        self.calls.append((*call, self.run.steps_made()))

    def make(self, count, stop):
        self.run.step.assign_add(count)
        step = self.run.steps_made()
        return LoopReport(
            *({"loss": 1.0}, 0.0, [StepResult(step, 1.0, 0.0)], 0, 1.0)
        )

    def evaluate(self, must_stop):
        self.note("evaluate")
        if must_stop():
            return None
        step = self.run.steps_made()
        return {"loss": self.losses[step] if self.losses else 1 / step}

    def save_if_due(self):
        self.note("loop")

    def save(self):
        self.note("save")


class Stop:
    """Stands for one that is asked to stop after so many calls."""

    flag, exit_status = None, 143

    def __init__(self, recorded):
        self.recorded = recorded

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def is_requested(self):
        most = self.recorded.stop_after
        return most is not None and len(self.recorded.calls) >= most


def test_loops_end_at_their_multiples_wherever_a_run_resumes(tmp_path):
    recorded = Recorded(tmp_path, begin=3)
    assert recorded.train() == 0
    assert recorded.calls == [
        ("loop", 4),
        ("loop", 6),
        ("loop", 7),
        ("save", 7),
    ]


def test_evaluations_do_not_depend_on_where_a_run_resumes(tmp_path):
    """After the checkpoint of the step, at the multiples and at the end."""
    for begin, loops in ((0, (2, 3, 5, 6, 7)), (4, (5, 6, 7))):
        recorded = Recorded(tmp_path / str(begin), begin, evaluation_interval=3)
        recorded.run.output.mkdir()
        assert recorded.train() == 0
        expected = []
        for step in loops:
            expected.append(("loop", step))
            if step in (3, 6, 7):
                expected += [("evaluate", step), ("best", step)]
        assert recorded.calls == [*expected, ("save", 7)], begin


def test_a_missing_evaluation_is_made_on_resume(tmp_path):
    for step, is_missing in ((3, True), (4, False), (7, True)):
        for is_logged in (False, True):
            directory = tmp_path / f"{step}-{is_logged}"
            directory.mkdir()
            if is_logged:
                line = {"kind": "eval", "step": step, "loss": 1.0}
                (directory / "metrics.jsonl").write_text(json.dumps(line))
            recorded = Recorded(directory, step, evaluation_interval=3)
            assert recorded.train() == 0
            is_first = recorded.calls[0] == ("evaluate", step)
            assert is_first == (is_missing and not is_logged)


def test_how_a_loop_ends(tmp_path, capsys):
    """With a checkpoint, but before the first step."""
    for stop_after, expected in (
        (0, []),
        (1, [("loop", 2), ("save", 3)]),
        # In an evaluation, which is not logged.
        (3, [("loop", 2), ("loop", 3), ("evaluate", 3), ("save", 3)]),
    ):
        directory = tmp_path / str(stop_after)
        directory.mkdir()
        recorded = Recorded(directory, evaluation_interval=3)
        recorded.stop_after = stop_after
        assert recorded.train() == 143
        assert recorded.calls == expected
        step = 3 if expected else 0
        said = f"stopped at step {step}; the same command goes on from there\n"
        assert capsys.readouterr().err == said


def test_a_stop_after_the_last_step(tmp_path):
    """The command that is given again writes the results."""
    recorded = Recorded(tmp_path)
    recorded.stop_after = 4  # it comes with the last loop
    assert recorded.train() == 143
    assert recorded.calls[-2:] == [("loop", 7), ("save", 7)]


def test_an_error_saves_nothing(tmp_path):
    recorded = Recorded(tmp_path)
    recorded.make = lambda *_: (_ for _ in ()).throw(RuntimeError("broken"))
    with pytest.raises(RuntimeError, match="broken"):
        recorded.train()
    assert recorded.calls == []


def test_patience(tmp_path):
    """It counts from the best evaluation on, also over a restart."""
    losses = {2: 0.5, 4: 0.25, 6: 0.3, 8: 0.3, 10: 0.1}
    settings = {"evaluation_interval": 2, "steps": 10, "losses": losses}
    recorded = Recorded(tmp_path, **settings)
    assert recorded.train(patience=4) == 0
    assert [x for x in recorded.calls if x[0] == "best"] == [
        ("best", 2),
        ("best", 4),
    ]
    assert recorded.calls[-1] == ("save", 8)
    kept = json.loads((tmp_path / "best.json").read_text())
    assert kept == {"metric": "loss", "value": 0.25, "step": 4}
    again = Recorded(tmp_path, begin=8, **settings)
    assert again.train(patience=4) == 0
    assert again.calls == [("save", 8)]


def best_at(directory, step, saved):
    return loop.Best(directory, step, lambda: saved.append(True), True)


def test_the_best_of_steps_that_were_lost_does_not_count(tmp_path):
    best_at(tmp_path, 4, []).update(4, {"loss": 0.25})
    for step, expected in ((4, []), (2, [True])):
        saved = []
        best_at(tmp_path, step, saved).update(step, {"loss": 0.3})
        assert saved == expected


def test_a_damaged_best_is_refused(tmp_path):
    best_at(tmp_path, 2, []).update(2, {"loss": 0.25})
    file = tmp_path / "best.json"
    text = file.read_text()
    for damaged in (
        text.replace("0.25", "0.75"),
        text.replace("step", "stfp"),
        text.replace("loss", "lors"),
        "[]",
        "0.25",
        '{"metric": "loss"}',
    ):
        assert damaged != text
        file.write_text(damaged)
        with pytest.raises(ValueError, match="best.json is damaged.*Remove it"):
            best_at(tmp_path, 4, [])


def test_a_failed_save_is_not_the_best(tmp_path):
    def fail():
        raise OSError("disk full")

    best = loop.Best(tmp_path, 2, fail, True)
    with pytest.raises(OSError, match="disk full"):
        best.update(2, {"loss": 0.3})
    assert not (tmp_path / "best.json").exists()


@pytest.mark.parametrize("shown", [True, False])
def test_evaluations_of_pretraining_tell_how_far_they_are(
    shown, prompt_progress, capsys
):
    made = Trained(steps=0)
    evaluation = MeanLoss(
        made.model,
        pretrain.evaluation_loss(made.model),
        functools.partial(pretrain.read_batches, ArrayData(), 0),
        made.settings,
        made.strategy,
    )
    evaluation.evaluate(3, lambda: False, progress=shown)
    told = capsys.readouterr().err
    assert ("held out: 3 of 3 batches, 100%" in told) == shown
    assert bool(told) == shown
    assert evaluation.evaluate(3, lambda: True) is None
