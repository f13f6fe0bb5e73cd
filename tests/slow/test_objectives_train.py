"""Runs of every objective: resumed, on replicas, exported.

The default tier trains each in `fit`; here the command does, on records, and
what an objective draws has to be the same for every reader and every start.
"""

import numpy as np
import pytest

import saved_models
import xlnet_tf
from tests.support import artefacts
from tests.support.equality import assert_equal
from tests.support.replicas import two_replicas
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import run_train
from tests.support.run_fixtures import write_configs
from tests.support.training_fixtures import one_device

STEPS, KILLED_AT = 4, 2
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
BERT = {
    "model_type": "bert",
    "max_positions": artefacts.LENGTH,
    "relative_position_buckets": 8,
}
# Resuming with dropout is tested with `permutation`.
KINDS = {
    "masked": NO_DROPOUT,
    "causal": NO_DROPOUT,
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
    files = write_configs(tmp_path, KINDS[objective], **training)

    def trained(name, *options):
        argv = arguments(records, tmp_path / name, *files, *options)
        assert run_train(*argv) == 0
        return tmp_path / name

    def weights(output):
        return xlnet_tf.load(output / "preset").get_weights()

    two = ("--strategy", "mirrored")
    whole = trained("whole")
    expected = weights(whole)

    artefacts.kill(whole, tmp_path / "killed", KILLED_AT)
    export = tmp_path / "export"
    exports = objective == "causal"
    more = ["--export", export] if exports else []
    if objective == "pseudo_masked":
        killed = trained("killed")
        assert_equal(weights(killed), expected)
        spread = trained("two", *two)
    else:  # both at once
        spread = trained("killed", *two, *more)
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
    more = ("--preset", pretrained / "preset", "--objective", "masked")
    more += ("--learning-rate", 1e-12, "--warmup-steps", 1)
    argv = arguments(records, tmp_path / "run", *more, steps=2)
    assert run_train(*argv) == 0
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
    more = ("--preset", tmp_path / "causal", "--objective", "permutation")
    assert run_train(*arguments(records, tmp_path / "run", *more, steps=1)) == 0
    config = xlnet_tf.load(tmp_path / "run" / "preset").config
    assert config.attention_type == "bidirectional"
