"""The log of a run and its last lines, with no model."""

import json
import sys

import pytest
import tensorflow as tf

from data_pipeline.base.checksums import write_listed
from data_pipeline.base.files import read_json_lines
from xlnet_tf.training import trackers
from xlnet_tf.training.log import MetricsLog
from xlnet_tf.training.log import draw_losses
from xlnet_tf.training.results import outcome
from xlnet_tf.training.settings import PretrainingSettings


def step_at(value):
    return tf.Variable(value, dtype=tf.int64)


def log_at(directory, step, total=10, quiet=False, **settings):
    settings = PretrainingSettings(steps=total, **settings)
    return MetricsLog(
        directory,
        settings,
        step,
        lambda kind, scalars: f"loss {scalars['loss']}",
        quiet,
    )


def lines(directory):
    return read_json_lines(directory / "metrics.jsonl")


def test_the_log(tmp_path, capsys):
    step = step_at(4)
    log = log_at(tmp_path, step)
    log.train({"loss": 0.5})
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


def test_quiet_prints_nothing_and_writes_all(tmp_path, capsys):
    with log_at(tmp_path, step_at(4), quiet=True) as log:
        log.train({"loss": 0.5})
    assert capsys.readouterr().err == "" and len(lines(tmp_path)) == 1


def test_a_terminal_has_a_bar(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    step = step_at(4)
    with log_at(tmp_path, step) as log:
        for number in (6, 8):
            step.assign(number)
            log.train({"loss": number / 8})
        log.evaluate({"loss": 0.25})
        step.assign(10)
        log.train({"loss": 0.1})
    told = capsys.readouterr().err
    assert "traced and compiled" in told.splitlines()[0]
    assert "\nstep 8/10  loss 0.25\n" in told.replace("\r", "\n")
    assert "10/10" in told and "loss 0.1" in told
    assert "step 6/10" not in told


@pytest.mark.parametrize("is_terminal", [True, False])
def test_the_time_left_is_that_of_the_steps_so_far(
    is_terminal, tmp_path, monkeypatch, capsys
):
    """Ten seconds for two steps, in a run that resumes from step 4."""
    clock = [0.0]
    for name in ("tqdm.std.time", "time.monotonic"):
        monkeypatch.setattr(name, lambda: clock[0])
    monkeypatch.setattr("sys.stderr.isatty", lambda: is_terminal)
    step = step_at(4)
    with log_at(tmp_path, step, total=30) as log:
        for number in (6, 8):
            clock[0] += 10
            step.assign(number)
            log.train({"loss": 1.0})
    told = capsys.readouterr().err
    if is_terminal:
        assert "| 4/30 [00:00<?" in told
        assert "| 6/30 [00:10<02:00" in told and "| 8/30 [00:20<01:50" in told
    else:
        *_, first, second = told.splitlines()
        assert first.startswith("step 6/30 ") and first.endswith("2 min left")
        assert second.startswith("step 8/30 ") and second.endswith("2 min left")


class FakeClient:
    """Stands for the clients of Weights & Biases and MLflow."""

    def __init__(self):
        self.calls = []
        self.id = self.run_id = "17"
        self.info = self

    def __getattr__(self, name):
        def call(*arguments, **options):
            self.calls.append((name, *arguments, options))
            return self

        return call


def test_trackers_are_told_and_go_on_with_their_run(tmp_path, monkeypatch):
    for name, begin, log_it, end in (
        ("wandb", "init", "log", "finish"),
        ("mlflow", "start_run", "log_metrics", "end_run"),
    ):
        client = FakeClient()
        monkeypatch.setitem(sys.modules, name, client)
        directory = tmp_path / name
        directory.mkdir()
        for _ in range(2):
            with log_at(directory, step_at(4), log_to=name) as log:
                log.train({"loss": 0.5})
        calls = [
            call for call in client.calls if call[0] in (begin, log_it, end)
        ]
        first, logged, ended, again, *_ = calls
        assert (first[0], ended[0], again[0]) == (begin, end, begin)
        by_axis = name == "wandb"
        values = {"train/loss": 0.5, **({"step": 4} if by_axis else {})}
        assert logged == (log_it, values, {} if by_axis else {"step": 4})
        number = "id" if name == "wandb" else "run_id"
        assert (first[-1][number], again[-1][number]) == (None, "17")
        file = directory / trackers.TRACKER_FILE
        assert json.loads(file.read_text()) == {name: "17"}
        # A run that is done begins nothing.
        with log_at(directory, step_at(10), log_to=name):
            pass
        assert len([x for x in client.calls if x[0] == begin]) == 2


def test_a_tracker_that_fails_does_not_end_the_training(
    tmp_path, monkeypatch, capsys
):
    class Failing(FakeClient):
        Error = ConnectionError

        def log(self, values):
            raise ConnectionError("no server\nof 3 lines")

    monkeypatch.setitem(sys.modules, "wandb", Failing())
    for _ in range(2):
        with log_at(tmp_path, step_at(4), log_to="wandb") as log:
            log.train({"loss": 0.5})
            log.train({"loss": 0.25})
    said = capsys.readouterr().err
    assert said.count("--log-to wandb: no server. Training does not") == 2
    assert [line["loss"] for line in lines(tmp_path)][-2:] == [0.5, 0.25]
    Failing.init = lambda self, **_: self.log({})
    with pytest.raises(ValueError, match="no server. It is the run of .*json"):
        trackers.make_tracker(
            PretrainingSettings(log_to="wandb", steps=10), tmp_path, print
        )


def test_a_tracker_without_its_client(monkeypatch):
    monkeypatch.delitem(sys.modules, "wandb", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ValueError, match="--log-to wandb .*pip install wandb"):
        trackers.check_tracker("wandb")
    trackers.check_tracker("tensorboard")


def test_a_profile_of_the_second_loop(tmp_path, capsys):
    def profile_of(name, *loops, total=10, profile=True):
        directory, step = tmp_path / name, step_at(0)
        directory.mkdir()
        with log_at(directory, step, total, profile=profile) as log:
            for compute in loops:
                compute(tf.ones([9, 9]))
                step.assign_add(2)
                log.train({"loss": 0.5})
        files = directory.glob("train/plugins/profile/*/*.xplane.pb")
        said = capsys.readouterr().err
        return [x.read_bytes() for x in files], said

    (recorded,), said = profile_of("whole", tf.sin, tf.sinh, tf.cosh, tf.cosh)
    assert b"Sinh" in recorded and b"Cosh" not in recorded
    assert said.count("profile of steps 3 to 4: tensorboard --logdir ") == 1
    # A run that is stopped writes what it has.
    (_,), said = profile_of("stopped", tf.sin)
    assert "profile" not in said
    recorded, said = profile_of("short", tf.sin, total=2)
    assert not recorded and "make --steps-per-loop smaller" in said
    assert profile_of("without", tf.sin, tf.sin, profile=False)[0] == []


def test_the_picture_of_a_run(tmp_path):
    assert draw_losses(tmp_path) is None
    log = log_at(tmp_path, step_at(4))
    log.train({"loss": 0.5})
    log.evaluate({"loss": float("nan")})
    picture = draw_losses(tmp_path)
    assert picture.name == "loss.png"
    assert picture.read_bytes()[1:4] == b"PNG"


def test_how_a_run_ends(tmp_path):
    """Worse than guessing among 300 tokens, or than its best evaluation."""
    exports = [tmp_path / "export/2", tmp_path / "export/4"]
    nan = float("nan")
    overfitted = "the model has overfitted: its last held-out"
    diverged = "the run has diverged: its last held-out"
    for (best, last, trained), failure, reason, used in (
        ((3.0, 3.05, 1.0), "", None, 4),
        ((3.0, 4.0, 1.0), "", ": the model has overfitted, use", 2),
        ((3.0, 40.0, 1.0), overfitted, "; the last is worse (40.000), use", 2),
        ((3.0, 40.0, 9.0), diverged, "; the last is worse (40.000), use", 2),
        ((3.0, nan, 1.0), diverged, "; the last is worse (nan), use", 2),
        ((7.0, 7.0, 1.0), overfitted, None, 4),
        ((7.0, 7.0, nan), diverged, None, 4),
        ((nan, nan, 9.0), diverged, None, 4),
    ):
        log = log_at(tmp_path, step_at(4), quiet=True)
        log.train({"loss": trained})
        log.evaluate({"loss": last})
        value = {"metric": "loss", "value": best, "step": 2}
        write_listed(tmp_path, {"best.json": value})
        warning = outcome.warning_of_failure(tmp_path, 300)
        assert bool(warning) == bool(failure), last
        if failure:
            found = f"{failure} loss is {last:.3f}, and a guess among 300 "
            assert f"warning: {found}tokens has 5.704" in warning
        lines = outcome.pretraining_ending(tmp_path, bool(failure))
        if failure and not reason:
            assert lines == []
            continue
        text = "\n".join(lines)
        preset = tmp_path / "best" if reason else tmp_path
        assert (f"best: step 2, loss {best:.3f}; the last" in text) == (
            reason is not None
        )
        assert reason is None or f"{reason} {preset}" in text
        assert f"      --preset {preset}" in lines
        assert f"xlnet export --model {preset} --output" in text
        lines = outcome.pretraining_ending(tmp_path, bool(failure), exports)
        text = "\n".join(lines)
        assert f"xlnet predict --model {tmp_path}/export/{used} --t" in text
        assert "xlnet export" not in text
        # Of the last step alone.
        lines = outcome.pretraining_ending(tmp_path, bool(failure), exports[1:])
        text = "\n".join(lines)
        assert ("xlnet export --model" in text) == (reason is not None)
    (tmp_path / "metrics.jsonl").unlink()
    log_at(tmp_path, step_at(4), quiet=True).train({"loss": 9.0})
    assert "its last loss is 9.000" in outcome.warning_of_failure(tmp_path, 300)
    assert not outcome.warning_of_failure(tmp_path, 300, predictions=2)
