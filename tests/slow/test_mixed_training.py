"""Runs on two sets of records: resumed to the bit, and on replicas."""

import xlnet_tf
from tests.support import artefacts
from tests.support import run_fixtures
from tests.support.equality import assert_equal
from tests.support.replicas import two_replicas
from tests.support.run_fixtures import run_train
from tests.support.run_fixtures import write_configs
from tests.support.training_fixtures import one_device


def test_a_mixed_run(tmp_path, monkeypatch, capfd):
    devices = {"one_device": one_device, "mirrored": two_replicas}
    monkeypatch.setattr(
        "xlnet_tf.training.devices.make_strategy",
        lambda name, *_: devices[name](),
    )
    sets = [
        run_fixtures.write_records(tmp_path / name, num_sentences=count)
        for name, count in (("a", 200), ("b", 100))
    ]
    values = {"dropout": 0.0, "attention_dropout": 0.0, "memory_length": 24}
    model = write_configs(tmp_path / "configs", values)

    def run(name, *more, shares=(0.7, 0.3)):
        records = [f"{x}={y}" for x, y in zip(sets, shares, strict=True)]
        options = run_fixtures.arguments("", tmp_path / name, *model, *more)
        return run_train(*options[:1], *records, *options[2:])

    def weights(name):
        return xlnet_tf.load(tmp_path / name / "preset").get_weights()

    assert run("whole") == 0
    text = capfd.readouterr().out
    assert "3 rows of a batch, 75.0%" in text
    artefacts.kill(tmp_path / "whole", tmp_path / "killed", 2)
    assert run("killed", shares=(7, 3)) == 0  # the same shares
    assert_equal(weights("whole"), weights("killed"))
    assert run("whole", shares=(0.5, 0.5)) == 1
    assert "rows_of_sets of the data: [3, 1] there, [2, 2] now" in (
        capfd.readouterr().err
    )
    assert run("replicas", "--strategy", "mirrored") == 0
    assert_equal(weights("whole"), weights("replicas"), atol=2e-5)
