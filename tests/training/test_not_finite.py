"""Steps whose numbers are not finite: skipped and noted; peaks.

Replicas, XLA and the commands are in `tests/slow/test_not_finite_runs.py`.
"""

import json

import numpy as np
import orbit
import pytest
import tensorflow as tf

from data_pipeline.tasks import reading
from tests.support import artefacts
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import settings
from tests.support.training_fixtures import tiny_config
from xlnet_tf import finetune
from xlnet_tf.training import pretraining_step
from xlnet_tf.training.finetuning import FinetuningRun
from xlnet_tf.training.runs.not_finite import NotFiniteSteps
from xlnet_tf.training.runs.progress.log import is_peak
from xlnet_tf.training.step_results import StepResult
from xlnet_tf.training.step_results import StepResults
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


def test_rows_of_a_step_of_fine_tuning(pretrained, tmp_path):
    """The examples of its batch, with their place in the file."""
    directory = artefacts.EARLIER / "finetuning/data/classification"
    argv = ["--task", "classification", "--data", directory]
    argv += ["--preset", pretrained / "preset", "--output", tmp_path / "run"]
    argv += ["--steps", 9, "--batch-size", 4, "--sequence-length", 16]
    options = finetune.parse_arguments([str(x) for x in argv])
    data = reading.read_task("classification", directory)
    config = finetune.read_config(options)
    with FinetuningRun(options, config, one_device(), data) as run:
        run.read_data()
        run.create_model()
        first, second = run.rows_of_step(1), run.rows_of_step(2)
    assert len(first) == len(second) == 4
    indices = []
    for row in first + second:
        (index,) = row["examples"]
        indices.append(index)
        assert row["ids"] == [data.train[index].id]
        assert row["where"] == [f"train.tsv, row {index + 2}"]
    assert len(set(indices)) == 8
