"""Directories of models: written, read, and refused."""

import json
import os
import pathlib
import shutil
import types

import keras
import numpy as np
import pytest

import xlnet_tf
from tests.support.oracle import M
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.files import write_bytes
from xlnet_tf.weights.preset import read_config

GOLDEN = pathlib.Path(__file__).parents[1] / "golden" / "base"


@pytest.fixture
def pretrainer():
    model = XLNetPretrainer(small_backbone(memory_length=M))
    bias = np.random.default_rng(1).normal(size=97)
    model.head.bias.assign(bias.astype("float32"))
    return model


@pytest.fixture
def preset(pretrainer, tmp_path):
    """A directory that `pretrainer` was written to."""
    pretrainer.save_to_preset(tmp_path / "preset")
    return tmp_path / "preset"


def features():
    return with_targets(small_features())


def test_a_preset_gives_the_same_bits(pretrainer, preset):
    again = XLNetPretrainer.from_preset(preset)
    assert again.config == pretrainer.config
    assert largest_difference(again(features()), pretrainer(features())) == 0


def test_a_backbone_alone_round_trips(tmp_path):
    backbone = small_backbone(untie_biases=False, clamp_length=7)
    backbone.save_to_preset(str(tmp_path / "a" / "b"))
    again = XLNetBackbone.from_preset(str(tmp_path / "a" / "b"))
    assert again.config == backbone.config
    difference = largest_difference(again(features()), backbone(features()))
    assert difference == 0
    assert not (tmp_path / "a" / "b" / "task.json").exists()


def test_the_directory_is_laid_out_as_documented(preset, pretrainer):
    assert sorted(f.name for f in preset.iterdir()) == [
        "config.json",
        "metadata.json",
        "model.weights.h5",
        "task.json",
        "task.weights.h5",
    ]
    metadata = json.loads((preset / "metadata.json").read_text())
    count = sum(np.prod(w.shape) for w in pretrainer.backbone.weights)
    assert metadata["parameter_count"] == count
    assert metadata["keras_version"] == keras.__version__


def test_a_tokenizer_is_kept_beside_the_model(tmp_path):
    tokenizer = types.SimpleNamespace(model_proto=b"\0spiece", lowercase=True)
    small_backbone().save_to_preset(tmp_path, tokenizer=tokenizer)
    vocabulary = tmp_path / "assets" / "tokenizer" / "vocabulary.spm"
    assert vocabulary.read_bytes() == b"\0spiece"
    settings = json.loads((tmp_path / "tokenizer.json").read_text())
    assert settings == {"lowercase": True}


def test_a_backbone_is_read_from_the_preset_of_a_task(preset, pretrainer):
    backbone = XLNetBackbone.from_preset(preset)
    expected = pretrainer.backbone(features())
    assert largest_difference(backbone(features()), expected) == 0


def test_a_task_on_the_preset_of_a_backbone_gets_a_fresh_head(tmp_path):
    backbone = small_backbone()
    backbone.save_to_preset(tmp_path)
    model = XLNetPretrainer.from_preset(tmp_path)
    assert largest_difference(model.backbone.weights, backbone.weights) == 0
    assert not as_numpy(model.head.bias).any()


def test_a_task_on_the_preset_of_another_task_gets_a_fresh_head(preset):
    @keras.saving.register_keras_serializable(package="test_presets")
    class OtherTask(XLNetPretrainer):
        pass

    model = OtherTask.from_preset(preset)
    assert as_numpy(XLNetPretrainer.from_preset(preset).head.bias).any()
    assert not as_numpy(model.head.bias).any()


def test_overrides_replace_config_fields_and_keep_the_weights(
    preset, pretrainer
):
    changed = XLNetPretrainer.from_preset(preset, clamp_length=3, dropout=0.5)
    expected = pretrainer.config.replace(clamp_length=3, dropout=0.5)
    assert changed.config == expected
    assert largest_difference(changed.weights, pretrainer.weights) == 0
    assert largest_difference(changed(features()), pretrainer(features())) > 0


@pytest.mark.parametrize(
    ("cls", "arguments"),
    [
        (xlnet_tf.XLNetTextClassifier, {"num_classes": 3}),
        (xlnet_tf.XLNetTextRegressor, {}),
        (xlnet_tf.XLNetMultipleChoice, {}),
        (xlnet_tf.XLNetRanker, {}),
        (xlnet_tf.XLNetTokenClassifier, {"num_classes": 3}),
        (xlnet_tf.XLNetQuestionAnswering, {}),
        (xlnet_tf.XLNetSpanClassifier, {}),
    ],
)
def test_dropout_is_of_the_model_and_of_its_head(
    preset, tmp_path, cls, arguments
):
    task = cls.from_preset(preset, dropout=0.3, **arguments)
    task.save_to_preset(tmp_path / "task")
    task.save(tmp_path / "task.keras")
    for one in (
        task,
        cls.from_preset(tmp_path / "task"),
        keras.models.load_model(tmp_path / "task.keras"),
    ):
        assert one.config.dropout == one.head.dropout == 0.3
    again = cls.from_preset(tmp_path / "task", dropout=0.0)
    assert again.config.dropout == again.head.dropout == 0.0
    again = cls.from_preset(tmp_path / "task", attention_dropout=0.0)
    assert again.config.dropout == again.head.dropout == 0.3
    usual = cls.from_preset(preset, **arguments)
    assert usual.head.dropout == cls(usual.backbone, **arguments).head.dropout


def test_other_overrides_are_arguments_of_the_class(preset):
    assert XLNetBackbone.from_preset(preset, name="mine", seed=3).seed == 3
    assert XLNetPretrainer.from_preset(preset, name="mine").name == "mine"


def test_a_misspelt_override_is_named(preset):
    with pytest.raises((TypeError, ValueError), match="memory_lenght"):
        XLNetBackbone.from_preset(preset, memory_lenght=3)


def test_a_type_can_be_chosen(preset):
    mixed = XLNetPretrainer.from_preset(preset, dtype="mixed_bfloat16")
    assert mixed.compute_dtype == mixed.backbone.compute_dtype == "bfloat16"
    assert mixed.backbone.blocks[0].attention.compute_dtype == "bfloat16"
    outputs = mixed(features())
    assert keras.backend.standardize_dtype(outputs["query"].dtype) == "bfloat16"


def test_weights_can_be_left_out(preset, pretrainer):
    model = XLNetPretrainer.from_preset(preset, load_weights=False)
    assert model.config == pretrainer.config
    assert largest_difference(model.weights, pretrainer.weights) > 0.1


def test_a_released_directory_becomes_one_of_ours(tmp_path):
    released = XLNetPretrainer.from_preset(GOLDEN, memory_length=8)
    released.save_to_preset(tmp_path)
    ours = XLNetPretrainer.from_preset(tmp_path)
    assert ours.config == released.config
    assert largest_difference(ours.weights, released.weights) == 0


def test_saving_again_replaces_and_leaves_nothing_behind(preset, pretrainer):
    before = sorted(preset.iterdir())
    pretrainer.head.bias.assign(np.full(97, 3.0))
    pretrainer.save_to_preset(preset)
    assert sorted(preset.iterdir()) == before
    again = XLNetPretrainer.from_preset(preset)
    assert (as_numpy(again.head.bias) == 3).all()


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    file = tmp_path / "a.json"
    write_bytes(file, b"old")

    def full(*args):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", full)
    with pytest.raises(OSError, match="No space left"):
        write_bytes(file, b"new")
    assert file.read_bytes() == b"old"
    assert list(tmp_path.iterdir()) == [file]


def test_the_config_of_a_directory_is_read_without_a_model(preset, pretrainer):
    assert read_config(preset) == pretrainer.config
    assert read_config(GOLDEN).hidden_dim == 32


def test_a_preset_written_beside_released_files_is_the_one_that_counts(
    tmp_path, pretrainer
):
    shutil.copytree(GOLDEN, tmp_path / "both")
    pretrainer.save_to_preset(tmp_path / "both")
    again = XLNetPretrainer.from_preset(tmp_path / "both")
    assert largest_difference(again.weights, pretrainer.weights) == 0


def test_a_missing_directory_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no directory .*none; give"):
        XLNetBackbone.from_preset(tmp_path / "none")


def test_a_directory_without_a_model_is_named(tmp_path):
    with pytest.raises(ValueError, match="holds no model that is known: expec"):
        XLNetBackbone.from_preset(tmp_path)


def test_the_preset_of_another_library_is_not_taken_for_ours(preset):
    file = preset / "config.json"
    values = json.loads(file.read_text())
    values["registered_name"] = "keras_hub>BertBackbone"
    file.write_text(json.dumps(values))
    with pytest.raises(ValueError, match="holds no model that is known"):
        XLNetBackbone.from_preset(preset)


def test_a_damaged_config_is_named(preset):
    (preset / "config.json").write_text('{"registered_name": ')
    with pytest.raises(ValueError, match="config.json is not a JSON file"):
        XLNetBackbone.from_preset(preset)


@pytest.mark.parametrize("name", ["model.weights.h5", "task.weights.h5"])
def test_missing_weights_are_named(preset, name):
    (preset / name).unlink()
    with pytest.raises(FileNotFoundError, match=f"{name} is missing: the pre"):
        XLNetPretrainer.from_preset(preset)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.999])
def test_truncated_weights_are_named(preset, share):
    file = preset / "model.weights.h5"
    data = file.read_bytes()
    file.write_bytes(data[: int(len(data) * share)])
    with pytest.raises(ValueError, match="model.weights.h5 is damaged or not"):
        XLNetBackbone.from_preset(preset)


def test_weights_of_another_model_are_named(preset):
    shutil.copy(preset / "task.weights.h5", preset / "model.weights.h5")
    with pytest.raises(ValueError, match="model.weights.h5 (does not|is dam)"):
        XLNetBackbone.from_preset(preset)


@pytest.mark.parametrize(
    "overrides",
    [
        dict(hidden_dim=34),
        dict(vocabulary_size=101),
        dict(num_layers=3),
        dict(untie_biases=False),
    ],
    ids=str,
)
def test_overrides_that_the_weights_do_not_fit_are_refused(preset, overrides):
    with pytest.raises(ValueError, match=r"model.weights.h5 (does not|is dam)"):
        XLNetBackbone.from_preset(preset, **overrides)
