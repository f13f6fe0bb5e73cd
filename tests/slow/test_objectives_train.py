"""Runs of every objective: resumed, on replicas, exported.

The default tier trains each in `fit`; here the command does, on records, and
what an objective draws has to be the same for every reader and every start.
"""

import json

import numpy as np
import pytest

import saved_models
import xlnet_tf
from data_pipeline.base import command_line
from tests.support import artefacts
from tests.support.equality import assert_equal
from tests.support.replicas import two_replicas
from tests.support.training_fixtures import one_device
from xlnet_tf import train

STEPS, KILLED_AT = 4, 2
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
BERT = {
    **artefacts.MODEL,
    "model_type": "bert",
    "max_positions": artefacts.LENGTH,
    "relative_position_buckets": 8,
}
# Resuming with dropout is tested with `permutation`.
KINDS = {
    "masked": {**artefacts.MODEL, **NO_DROPOUT},
    "causal": {**artefacts.MODEL, **NO_DROPOUT},
    "pseudo_masked": {**BERT, **NO_DROPOUT},
}


@pytest.mark.parametrize("objective", KINDS)
def test_a_run_of_an_objective(objective, records, tmp_path, monkeypatch):
    # One strategy of replicas after the other needs keys of its own.
    devices = {"one_device": one_device, "mirrored": two_replicas}
    monkeypatch.setattr(
        "xlnet_tf.training.devices.make_strategy",
        lambda name, *_: devices[name](),
    )
    training = {**artefacts.TRAINING, "objective": objective}
    (tmp_path / "training.json").write_text(json.dumps(training))

    def trained(name, model, *options):
        (tmp_path / f"{name}.json").write_text(json.dumps(model))
        output = tmp_path / name
        argv = ["--config", tmp_path / f"{name}.json", "--records", records]
        argv += ["--training", tmp_path / "training.json", "--output", output]
        argv += ["--steps", STEPS, "--batch-size", 4, *options]
        assert command_line.run(train.main, [str(x) for x in argv]) == 0
        return output

    def weights(output):
        return xlnet_tf.load(output / "preset").get_weights()

    one, two = ("--strategy", "one_device"), ("--strategy", "mirrored")
    whole = trained("whole", KINDS[objective], *one)
    expected = weights(whole)

    artefacts.kill(whole, tmp_path / "killed", KILLED_AT)
    export = tmp_path / "export"
    exports = objective == "causal"
    more = ["--export", export] if exports else []
    if objective == "pseudo_masked":
        killed = trained("killed", KINDS[objective], *one)
        assert_equal(weights(killed), expected)
        spread = trained("two", KINDS[objective], *two)
    else:  # both at once
        spread = trained("killed", KINDS[objective], *two, *more)
    # float32 sums in another order, over four steps of Adam
    assert_equal(weights(spread), expected, atol=1e-5)
    if exports:
        check_export(export)


def check_export(export):
    """Signatures of other objectives are in the default tier."""
    answers = saved_models.load(export / str(STEPS)).predict(
        {"text": ["Ba co <mask> fi, 9 <mask>", "Ba"]}
    )
    assert answers["count"].tolist() == [2, 0]
    assert np.isfinite(answers["log_probabilities"][0]).all()


def test_a_run_goes_on_from_a_preset_of_another_objective(
    records, pretrained, tmp_path, capsys
):
    argv = ["--preset", pretrained / "preset", "--records", records]
    argv += ["--objective", "masked", "--output", tmp_path / "run"]
    argv += ["--steps", 2, "--batch-size", 4, "--learning-rate", 1e-12]
    argv += ["--warmup-steps", 1, "--strategy", "one_device"]
    assert command_line.run(train.main, [str(x) for x in argv]) == 0
    assert "preset    trained by permutation, now by masked" in (
        capsys.readouterr().out
    )
    before, after = (
        xlnet_tf.load(path / "preset").backbone.get_weights()
        for path in (pretrained, tmp_path / "run")
    )
    assert_equal(before, after, atol=1e-6)


def test_a_causal_preset_does_not_stay_causal(records, tmp_path):
    config = {**artefacts.MODEL, "attention_type": "causal"}
    model = xlnet_tf.XLNetPretrainer(
        xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig.from_dict(config)),
        objective="causal",
    )
    model.save_to_preset(tmp_path / "causal")
    argv = ["--preset", tmp_path / "causal", "--records", records]
    argv += ["--objective", "permutation", "--output", tmp_path / "run"]
    argv += ["--steps", 1, "--batch-size", 4, "--strategy", "one_device"]
    assert command_line.run(train.main, [str(x) for x in argv]) == 0
    config = xlnet_tf.load(tmp_path / "run" / "preset").config
    assert config.attention_type == "bidirectional"


def test_runs_that_cannot_be_end_in_one_line(records, tmp_path, capsys):
    for options, message in (
        (["--objective", "pseudo_masked"], "needs a backbone that takes"),
        (["--backbone", "bert"], "needs a backbone with a query stream"),
        (
            ["--backbone", "bert", "--objective", "causal"],
            "needs a backbone with attention_type='causal'",
        ),
        (
            ["--backbone", "bert", "--objective", "masked"]
            + ["--memory-length", "4"],
            "has no memory",
        ),
        (["--order", "block", "--objective", "causal"], "`order` needs the"),
        (["--masked-unit", "pieces"], "`masked_unit` needs the objective"),
    ):
        argv = ["--config", "tiny", "--records", str(records), "--steps", "2"]
        argv += ["--output", str(tmp_path / "run"), "--batch-size", "4"]
        assert command_line.run(train.main, [*argv, *options]) == 1, options
        error = capsys.readouterr().err.splitlines()
        assert len(error) == 1 and message in error[0], error
