"""The example that searches settings, with KerasTuner itself."""

import importlib.util
import shlex

import pytest

import xlnet_tf
from examples import search_classifier
from tests.support import artefacts
from tests.support.commands import refused
from tests.support.export_fixtures import tiny_tokenizer
from xlnet_tf import finetune

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("keras_tuner") is None,
    reason="keras-tuner is not installed",
)


# KerasTuner's own names of methods.
@pytest.mark.filterwarnings("ignore:.* is deprecated, :DeprecationWarning")
def test_it_goes_on_and_prints_a_command(tmp_path, capsys):
    config = xlnet_tf.XLNetConfig(**artefacts.MODEL)
    backbone = xlnet_tf.XLNetBackbone(config)
    backbone.save_to_preset(tmp_path / "preset", tokenizer=tiny_tokenizer())
    rows = [f"a {word} film {i},{word}" for i in range(10) for word in "xy"]
    table = tmp_path / "a.csv"
    table.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    argv = ["--data", table, "--preset", tmp_path / "preset"]
    argv += ["--output", tmp_path / "search", "--sequence-length", 16]
    for trials in (1, 2):
        search_classifier.main([*map(str, argv), "--trials", str(trials)])
        printed = capsys.readouterr().out
        assert f"Trial {trials} Complete" in printed
        assert f"Trial {trials - 1} Complete" not in printed
    command = shlex.split(printed.splitlines()[-1])
    assert command[:3] == ["python", "-m", "xlnet_tf.finetune"]
    settings = finetune.parse_arguments(command[3:])
    assert settings.data == str(table) and settings.sequence_length == 16
    assert settings.learning_rate != 2e-5 and settings.epochs in range(1, 5)


def test_errors_are_one_line(tmp_path, capsys):
    empty, table = tmp_path / "empty.csv", tmp_path / "a.csv"
    empty.touch()
    rows = [f"film {i},{'xy'[i % 2]}" for i in range(10)]
    table.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    for data, preset, more, message in (
        (tmp_path / "b.csv", "xlnet_tiny_en", [], "no file or directory"),
        (empty, "xlnet_tiny_en", [], "the file is empty"),
        (table, "nowhere", [], "there is no directory nowhere"),
        (table, "xlnet_tiny_en", ["--trials", "0"], "--trials must be 1"),
        (table, "xlnet_tiny_en", ["--sequence-length", "1"], "above 2"),
    ):
        argv = ["--data", data, "--preset", preset]
        argv += ["--output", tmp_path / "search", *more]
        assert message in refused(capsys, search_classifier.main, *argv)
    assert not (tmp_path / "search").exists()
