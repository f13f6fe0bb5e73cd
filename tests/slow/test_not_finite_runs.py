"""Steps that are not finite, compiled: on replicas, by XLA, and by commands.

The eager tests in `tests/xlnet_tf/training/test_not_finite.py` see neither the
sums of replicas nor a condition inside of a compiled program, and compare no
graphs.
"""

import json

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.base.files import read_json_lines
from data_pipeline.pretraining import PretrainingData
from tests.support import artefacts
from tests.support import run_fixtures
from tests.support.equality import assert_equal
from tests.support.replicas import two_replicas
from tests.support.training_fixtures import ArrayData
from tests.support.training_fixtures import Trained
from tests.support.training_fixtures import one_device
from tests.support.training_fixtures import tiny_config


def on_all_replicas(strategy, variables):
    return [
        value.numpy()
        for variable in variables
        for value in strategy.experimental_local_results(variable.value)
    ]


@pytest.mark.parametrize(
    ("make_strategy", "parts", "precision"),
    [(one_device, 1, "float32"), (two_replicas, 2, "float16")],
)
def test_a_skipped_step_leaves_all_as_it_was(make_strategy, parts, precision):
    """The NaN is in a row of the last replica alone."""
    data = ArrayData()
    data.features["target_weights"][2, -1, 0] = np.nan
    made = Trained(
        make_strategy(),
        steps=0,
        config=tiny_config(num_layers=1),
        data=data,
        jit_compile=True,
        on_not_finite="skip",
        hide_empty_memory=True,
        gradient_accumulation_steps=parts,
        precision=precision,
    )
    optimizer, strategy = made.optimizer, made.strategy
    state = [*made.model.weights, *made.memory.weights, *optimizer.variables]
    state = [x for x in state if x is not optimizer.iterations]
    made.train(2)
    before = on_all_replicas(strategy, state)
    figures = made.train(1)
    assert figures["skipped_steps"] == 1
    after = on_all_replicas(strategy, state)
    assert_equal(before, after)
    figures = made.train(2)
    assert np.isfinite(figures["loss"]) and "skipped_steps" not in figures
    changed = on_all_replicas(strategy, state)
    assert any((x != y).any() for x, y in zip(after, changed, strict=True))
    counted = on_all_replicas(strategy, [optimizer.iterations])
    assert set(map(int, counted)) == {5}


BAD = 5


@pytest.fixture
def poisoned(monkeypatch):
    """A weight of the last row is NaN in the batch of one step."""
    dataset_of = PretrainingData.dataset

    def dataset(self, start_step=0, **rows):
        dataset = dataset_of(self, start_step, **rows)
        if self.split != "train":
            return dataset

        def poison(number, batch):
            last = tf.one_hot(3, 4)[:, None] > 0
            is_bad = last & (number + start_step == BAD - 1)
            weights = batch["target_weights"]
            nan = tf.fill(tf.shape(weights), np.float32("nan"))
            return {**batch, "target_weights": tf.where(is_bad, nan, weights)}

        return dataset.enumerate().map(poison)

    monkeypatch.setattr(PretrainingData, "dataset", dataset)


def test_a_run_stops_says_why_and_goes_on_without_the_step(
    records, tmp_path, poisoned, capfd
):
    output, training = tmp_path / "run", {**artefacts.TRAINING}
    for name in (
        "steps_per_loop",
        "evaluation_interval",
        "checkpoint_interval",
    ):
        training[name] = 4
    files = run_fixtures.write_configs(tmp_path, **training)
    argv = run_fixtures.arguments(records, output, *files, steps=8)

    def command(*more):
        status = run_fixtures.run_train(*argv, *more)
        said = capfd.readouterr()
        return status, said.out, said.err

    status, _, error = command()
    assert status == 1
    (error,) = [x for x in error.splitlines() if x.startswith("error: ")]
    assert f"nan) at step {BAD}. {output}/not_finite.jsonl names" in error
    (line,) = (output / "not_finite.jsonl").read_text().splitlines()
    line = json.loads(line)
    assert (line["step"], line["loss"]) == (BAD, "NaN")
    sources = PretrainingData(records, 4).sources(BAD - 1)
    assert [x["record"] for x in line["rows"]] == [x for _, x in sources]
    checkpoints = output / "checkpoints"
    assert [x.name for x in checkpoints.glob("*.index")] == ["ckpt-4.index"]

    status, _, error = command("--on-not-finite", "skip")
    assert status == 0
    assert "skipped 1 not finite" in error
    metrics = read_json_lines(output / "metrics.jsonl")
    trained = [x for x in metrics if x["kind"] == "train"]
    assert [x.get("skipped_steps") for x in trained] == [None, 1]
    assert (output / "model.keras").is_file()


def test_a_run_keeps_the_scale_in_its_checkpoints(records, tmp_path, capsys):
    """The command: resumed it ends as uninterrupted, its scale included."""
    files = run_fixtures.write_configs(tmp_path, **artefacts.TRAINING)
    more = (*files, "--precision", "float16")

    def run(name):
        argv = run_fixtures.arguments(records, tmp_path / name, *more)
        return run_fixtures.run_train(*argv)

    def left_by(name):
        reader = tf.train.load_checkpoint(
            tmp_path / name / "checkpoints/ckpt-4"
        )
        values = reader.get_variable_to_shape_map()
        return {x: np.asarray(reader.get_tensor(x)) for x in values}

    assert run("whole") == 0
    assert ", float16" in capsys.readouterr().out
    expected = left_by("whole")
    (scale,) = (x for x in expected if "loss_scale/value" in x)
    assert expected[scale] == 2.0**15

    artefacts.kill(tmp_path / "whole", tmp_path / "killed", 2)
    assert run("killed") == 0
    found = left_by("killed")
    numbers = [x for x in expected if expected[x].dtype.kind in "fi"]
    assert scale in numbers and len(numbers) > 20
    assert_equal(*({x: y[x] for x in numbers} for y in (found, expected)))
