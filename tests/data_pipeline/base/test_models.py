"""Paths of models: the output of a run, the name of a shipped preset."""

import pytest

import saved_models.export
import xlnet_tf
from data_pipeline.base import command_line
from data_pipeline.base import models
from data_pipeline.tokenization.hugging_face import find_tokenizer
from data_pipeline.tokenization.hugging_face import read_tokenizer
from tests.support.equality import assert_equal
from xlnet_tf import convert
from xlnet_tf import finetune
from xlnet_tf.loading import load_tokenizer
from xlnet_tf.weights.preset import read_config

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


@pytest.fixture
def shipped(pretrained, tmp_path, monkeypatch):
    """Name of a preset that comes with the package."""
    (tmp_path / "shipped").mkdir()
    (tmp_path / "shipped" / "tiny_xx").symlink_to(pretrained / "preset")
    monkeypatch.setattr(models, "SHIPPED", tmp_path / "shipped")
    monkeypatch.chdir(tmp_path)
    return "tiny_xx"


def weights_of(model):
    return getattr(model, "backbone", model).get_weights()


def test_the_output_of_a_run_and_a_shipped_name_are_models(
    pretrained, finetuned, shipped, tmp_path
):
    best = finetuned["classification"]
    for path, directory in (
        (pretrained, pretrained / "preset"),
        (str(best), best / "best"),
        (shipped, pretrained / "preset"),
    ):
        found = models.as_model_path(path)
        assert found.resolve() == directory.resolve(), path
        expected = xlnet_tf.XLNetBackbone.from_preset(directory)
        for model in (
            xlnet_tf.XLNetBackbone.from_preset(path),
            xlnet_tf.XLNetTextClassifier.from_preset(path, num_classes=2),
            xlnet_tf.load(path),
            saved_models.export.load_model(path)[0],
        ):
            assert_equal(weights_of(model), weights_of(expected))
        digest = read_tokenizer(directory).digest
        assert read_config(path) == expected.config
        assert find_tokenizer(path).digest == digest
        assert load_tokenizer(path).digest == digest
        assert read_tokenizer(path).digest == digest
        target = tmp_path / str(len(str(path)))
        convert.main(["--from", str(path), "--to", str(target)])
        assert read_tokenizer(target).digest == digest
    (tmp_path / shipped).mkdir()
    found = models.as_model_path(shipped)
    assert found.resolve() == tmp_path / shipped


def test_a_name_that_is_nearly_right_is_suggested(shipped, tmp_path, capsys):
    with pytest.raises(FileNotFoundError, match="Did you mean tiny_xx\\?$"):
        xlnet_tf.XLNetBackbone.from_preset("tinyxx")
    for name in ("xlnet_base_cased", "xlnet-base-cased", "XLNet-Base-Cased"):
        message = "hf://xlnet/xlnet-base-cased, of .* or xlnet_tiny_en, which"
        with pytest.raises(FileNotFoundError, match=message):
            xlnet_tf.XLNetBackbone.from_preset(name)
    rows = "".join(f"text {number}\t{number % 2}\n" for number in range(40))
    (tmp_path / "train.tsv").write_text("text\tlabel\n" + rows)
    argv = ["--task", "classification", "--data", "train.tsv"]
    argv += ["--output", "out", "--preset", "tiny_x"]
    assert command_line.run(finetune.main, argv) == 1
    error = capsys.readouterr().err
    assert "Did you mean tiny_xx?" in error and error.count("\n") == 1, error
