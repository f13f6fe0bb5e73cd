"""Steps whose numbers are not finite: skipped, noted, computed again; peaks.

Replicas, XLA and the commands are in `tests/slow/test_not_finite_runs.py`.
"""

import json
import re
import shutil

import numpy as np
import orbit
import pytest
import tensorflow as tf

from data_pipeline import command_line
from tests.support import artefacts
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import settings
from tests.support.training_fixtures import tiny_config
from xlnet_tf import finetune
from xlnet_tf import train
from xlnet_tf.training import pretraining_step
from xlnet_tf.training.config import FinetuningConfig
from xlnet_tf.training.config import TrainingConfig
from xlnet_tf.training.pretraining import PretrainingRun
from xlnet_tf.training.runs.not_finite import NotFiniteSteps
from xlnet_tf.training.runs.progress.log import is_peak
from xlnet_tf.training.step_results import StepResult
from xlnet_tf.training.step_results import StepResults
from xlnet_tf.training.strategy import make_strategy
from xlnet_tf.training.update import make_update

NAN, INFINITE = float("nan"), float("inf")

pytestmark = pytest.mark.filterwarnings("ignore:Even though the")  # of tf.data


def make_trainer(bad_step, **overrides):
    """A trainer whose data have a NaN at a step."""
    training = settings(hide_empty_memory=True, **overrides)
    model, optimizer, memory = pretraining_step.build(
        tiny_config(), training, one_device()
    )
    data = ArrayData()
    data.features["target_weights"][bad_step - 1, -1, 0] = NAN
    trainer = pretraining_step.PretrainingTrainer(
        model,
        optimizer,
        memory,
        pretraining_step.distribute_records(data, training, one_device()),
        training,
        one_device(),
        orbit.utils.create_global_step(),
    )
    state = [*model.weights, *memory.weights, *optimizer.variables]
    return trainer, [x for x in state if x is not optimizer.iterations]


def values(state):
    return [x.numpy() for x in state]


@pytest.mark.usefixtures("eager_functions")
def test_a_skipped_step_leaves_all_as_it_was():
    one = tf.constant(1)
    for overrides in (
        {},
        {"gradient_accumulation_steps": 2, "precision": "bfloat16"},
    ):
        trainer, state = make_trainer(2, on_not_finite="skip", **overrides)
        first = trainer.train(one)
        assert "skipped_steps" not in first
        before = values(state)
        skipped = trainer.train(one)
        for variable, value in zip(state, before, strict=True):
            np.testing.assert_array_equal(
                variable.numpy(), value, err_msg=variable.path
            )
        assert skipped["skipped_steps"] == 1
        assert np.isnan(skipped["loss"]) and np.isnan(skipped["gradient_norm"])
        assert "largest_loss" not in skipped
        # Steps, and the learning rate that follows from them, go on.
        assert skipped["learning_rate"] > first["learning_rate"]
        third = trainer.train(one)
        assert third["largest_loss_step"] == 3
        assert third["largest_loss"] == pytest.approx(third["loss"])
        assert any(
            (variable.numpy() != value).any()
            for variable, value in zip(state, before, strict=True)
        )


@pytest.mark.usefixtures("eager_functions")
def test_means_of_a_loop_are_of_its_finite_steps():
    trainer, _ = make_trainer(2, on_not_finite="skip")
    found = trainer.train(tf.constant(3))
    results = trainer.results.of_loop()
    assert [x.is_finite for x in results] == [True, False, True]
    losses = [results[0].loss, results[2].loss]
    assert min(losses) < found["loss"] < max(losses)
    assert found["largest_loss"] == max(losses)
    norms = [results[0].gradient_norm, results[2].gradient_norm]
    assert found["gradient_norm"] == pytest.approx(np.mean(norms))


@pytest.mark.usefixtures("eager_functions")
def test_a_run_stops_at_the_step():
    trainer, state = make_trainer(2)
    noted = []
    trainer.results.note = lambda steps: noted.extend(steps) or "See FILE."
    trainer.train(tf.constant(1))
    before = values(state)
    message = (
        r"loss became nan \(gradient norm nan\) at step 2\. See FILE\. Nothing "
        "since the last checkpoint was saved: resume from the last checkpoint "
        "with .*--on-not-finite skip"
    )
    with pytest.raises(RuntimeError, match=message):
        trainer.train(tf.constant(3))
    assert [x.step for x in noted] == [2]  # the loop ended there
    for variable, value in zip(state, before, strict=True):
        np.testing.assert_array_equal(variable.numpy(), value)


def test_not_all_steps_may_be_skipped():
    """Those in a row are counted from loop to loop."""
    results, step = StepResults("skip"), 0
    assert results.most_skipped == 20
    for losses in ([NAN] * 20 + [1.0], [3.0, *[INFINITE] * 10], [NAN] * 10):
        results.begin(step)
        for loss in losses:
            results.add(tf.constant(loss), tf.constant(0.5))
            assert not results.must_end()
        skipped = sum(not np.isfinite(x) for x in losses)
        assert results.scalars("wait")["skipped_steps"] == skipped
        step += len(losses)
    results.begin(step)
    results.add(tf.constant(1.0), tf.constant(INFINITE))
    assert results.must_end()
    message = r"became 1\.0 .*norm inf.* step 43, after 20 that were skipped in"
    with pytest.raises(RuntimeError, match=message):
        results.scalars("wait")


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
    assert told == (
        f"{file} names the rows of its batch, and --replay 4 computes it again."
    )
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


def prepare(argv):
    """A run of the train command that is ready to train."""
    options = train.parse_arguments(argv)
    config = TrainingConfig.read(options.training, options)
    run = PretrainingRun(options, config, make_strategy(options.strategy))
    run.read_data()
    run.open_directory()
    run.create_model()
    run.restore()
    return run


def contents(directory):
    return {
        path: (path.stat().st_mtime_ns, path.is_file() and path.read_bytes())
        for path in directory.rglob("*")
    }


def replayed(main, argv, step, capsys):
    """(loss, gradient norm, list of (loss, dict) of rows) that are printed."""
    capsys.readouterr()
    assert command_line.run(main, [*argv, "--replay", str(step)]) == 0
    said = capsys.readouterr().out
    assert re.search(r"weights +finite in all \d+ variables", said)
    rows = re.findall(r"row \d+ +loss (\S+), (.*)", said)
    return (
        float(re.search(r"loss +(\S+)\n", said)[1]),
        float(re.search(r"norm (\S+), finite in all", said)[1]),
        [(float(loss), json.loads(row)) for loss, row in rows],
    )


@pytest.mark.usefixtures("eager_functions")
def test_a_step_is_computed_again_to_the_bit(records, tmp_path, capsys):
    """With its memory, permutations and dropout, and nothing is written."""
    output = tmp_path / "run"
    for name in ("MODEL", "TRAINING"):
        content = json.dumps(getattr(artefacts, name))
        (tmp_path / f"{name}.json").write_text(content)
    argv = ["--config", tmp_path / "MODEL.json", "--records", records]
    argv += ["--training", tmp_path / "TRAINING.json", "--output", output]
    argv += ["--steps", "6", "--batch-size", "4", "--strategy", "one_device"]
    argv = [str(x) for x in argv]
    with prepare(argv) as run:
        trainer = run.trainer()
        trainer.train(tf.constant(2))
        run.checkpoints.save(check_interval=False)
        trainer.train(tf.constant(2))
        _, result = trainer.results.of_loop()
        run.checkpoints.save(check_interval=False)
        sources = run.rows_of_step(4)
    (output / "metrics.jsonl").write_text('{"kind": "train", "step": 4}\n')
    before = contents(output)
    loss, norm, rows = replayed(train.main, argv, 4, capsys)
    assert (4, loss, norm) == result
    assert [row for _, row in rows] == sources
    losses = [x for x, _ in rows]
    assert min(losses) < loss < max(losses)
    for change, message in (
        (["--replay", "0"], "from 1 to 4. Received: --replay 0"),
        (["--replay", "5"], "from 1 to 4. Received: --replay 5"),
        (
            ["--learning-rate", "1", "--replay", "4"],
            "learning_rate: 0.01 there",
        ),
        (["--output", str(tmp_path), "--replay", "4"], "holds no run"),
        (
            ["--replay", "2", "--checkpoint-interval", "1"],
            "no checkpoint before step 2 in .*: the oldest is of step 2",
        ),
        (["--seed", "1", "--replay", "4"], "holds another run"),
    ):
        assert command_line.run(train.main, [*argv, *change]) == 1
        error = capsys.readouterr().err.strip()
        assert error.startswith("error: ") and "\n" not in error
        assert re.search(message, error), error
    assert contents(output) == before


@pytest.mark.usefixtures("eager_functions")
def test_a_step_of_fine_tuning_is_computed_again(
    finetuned, pretrained, tmp_path, capsys
):
    """From the beginning: a run that is done keeps no checkpoint."""
    output = shutil.copytree(finetuned["classification"], tmp_path / "run")
    data = artefacts.EARLIER / "finetuning/data/classification"
    argv = ["--task", "classification", "--data", data, "--output", output]
    argv += ["--preset", pretrained / "preset", "--strategy", "one_device"]
    argv += ["--training", output / "training.json"]
    argv = [str(x) for x in argv]
    line = json.loads((output / "metrics.jsonl").read_text().split("\n")[0])
    before = contents(output)
    step = line["largest_loss_step"]
    loss, _, rows = replayed(finetune.main, argv, step, capsys)
    assert contents(output) == before
    # The run was not eager.
    assert loss == pytest.approx(line["largest_loss"], rel=1e-5)
    assert loss == pytest.approx(np.mean([x for x, _ in rows]), rel=1e-5)
    config = FinetuningConfig.read(output / "training.json")
    assert len(rows) == config.batch_size
    for _, row in rows:
        (index,) = row["examples"]
        assert row["where"] == [f"train.tsv, row {index + 2}"]
    assert command_line.run(
        finetune.main, [*argv, *"--replay 1 --seeds 2".split()]
    )
    assert "leave --seeds out" in capsys.readouterr().err
