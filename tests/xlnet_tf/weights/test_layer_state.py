"""Frozen and quantized layers stay so in files, copies and presets."""

import keras
import numpy as np
import pytest

from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from tests.support.oracle import small_config
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetTextClassifier


def classifier(**kwargs):
    return randomize(XLNetTextClassifier(small_backbone(), 2, **kwargs))


def loaded(model, path):
    """The model from each kind of file."""
    model.save(path / "model.keras")
    model.save_to_preset(path / "preset")
    return {
        "file": keras.models.load_model(path / "model.keras"),
        "preset": type(model).from_preset(path / "preset"),
    }


def trained(model):
    """Paths of the variables that `fit` would change."""
    strip = f"{model.backbone.name}/" if hasattr(model, "backbone") else ""
    return sorted(v.path.removeprefix(strip) for v in model.trainable_variables)


def freeze_all_but_the_last_block(model):
    model.backbone.trainable = False
    model.backbone.blocks[-1].trainable = True


def freeze_a_layer_of_a_block(model):
    model.backbone.block_0.attention.key_projection.trainable = False
    model.head.logits_dense.trainable = False


def freeze_the_task_but_its_head(model):
    model.trainable = False
    model.trainable = True
    model.backbone.trainable = False


def test_what_is_frozen_stays_frozen(tmp_path):
    plain = len(classifier().trainable_variables)
    for freeze, variables in (
        (lambda model: setattr(model, "trainable", False), 0),
        (freeze_the_task_but_its_head, 4),
        (freeze_a_layer_of_a_block, plain - 3),
        (freeze_all_but_the_last_block, 4 + 17),
    ):
        model = classifier()
        freeze(model)
        assert len(model.trainable_variables) == variables
        again = type(model).from_config(model.get_config())
        assert trained(again) == trained(model), variables
        again.trainable = False
        again.trainable = True
        assert len(again.trainable_variables) == plain, variables
    clone = keras.models.clone_model(model)
    for way, again in {**loaded(model, tmp_path), "clone": clone}.items():
        assert trained(again) == trained(model), way


def test_a_backbone_that_is_made_frozen_is_frozen_in_a_task(tmp_path):
    backbone = XLNetBackbone(small_config(), trainable=False)
    model = XLNetTextClassifier(backbone, 2)
    assert len(model.trainable_variables) == 4
    model = classifier(trainable=False)
    model.trainable = True
    assert len(model.trainable_variables) > 4
    # As a preset, in another task, and alone.
    model.backbone.block_1.trainable = False
    model.save_to_preset(tmp_path)
    for cls in (XLNetBackbone, XLNetQuestionAnswering):
        again = cls.from_preset(tmp_path)
        again = getattr(again, "backbone", again)
        flags = [block.trainable for block in again.blocks]
        assert flags == [True, False], cls
        assert not again.block_1.output_dense.kernel.trainable, cls
    assert "trainable_layers" not in classifier().get_config()


def test_a_frozen_model_keeps_its_optimizer(tmp_path):
    model = classifier()
    model.backbone.trainable = False
    model.compile(
        keras.optimizers.SGD(0.1, momentum=0.9),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,
    )
    features = {"token_ids": small_features()["token_ids"]}
    model.fit(features, np.array([0, 1, 1]), verbose=0)
    model.save(tmp_path / "model.keras")
    again = keras.models.load_model(tmp_path / "model.keras")
    found, expected = again.optimizer.variables, model.optimizer.variables
    assert len(found) == len(expected) == 4 + 2
    assert largest_difference(found, expected) == 0


@pytest.mark.usefixtures("frozen_heap")
def test_a_quantized_model_is_saved_and_loaded(tmp_path):
    features = with_targets(small_features())
    for mode, cls in (
        ("int8", XLNetPretrainer),
        ("int4", XLNetQuestionAnswering),
    ):
        model = randomize(cls(small_backbone(num_layers=1)))
        model.quantize(mode)
        expected = as_numpy(model(features))
        (tmp_path / mode).mkdir()
        for way, again in loaded(model, tmp_path / mode).items():
            dense = again.backbone.block_0.intermediate
            assert dense.quantization_mode == mode, (cls, way)
            assert largest_difference(again(features), expected) == 0, way
    # In another task, whose head is new.
    other = XLNetTextClassifier.from_preset(
        tmp_path / mode / "preset", num_classes=2
    )
    assert other.backbone.block_0.intermediate.quantization_mode == mode
    assert other.head.logits_dense.quantization_mode is None
    outputs = [x.backbone(features)["content"] for x in (other, model)]
    assert largest_difference(*outputs) == 0


@pytest.mark.usefixtures("frozen_heap")
def test_a_part_of_the_layers_may_be_quantized(tmp_path):
    model, features = classifier(), small_features()
    config = keras.quantizers.Int4QuantizationConfig(block_size=2)
    model.backbone.block_0.intermediate.quantize(config=config)
    model.backbone.block_1.output_dense.quantize("int8")
    model.head.logits_dense.quantize("float8")
    (groups,) = {
        k: v for k, v in model.get_config().items() if k == "quantized_layers"
    }.values()
    assert [(x["mode"], x["layers"]) for x in groups] == [
        ("int4", ["backbone/block_0/intermediate"]),
        ("int8", ["backbone/block_1/output_dense"]),
        ("float8", ["head/logits_dense"]),
    ]
    expected = model(features)
    for way, again in loaded(model, tmp_path).items():
        assert largest_difference(again(features), expected) == 0, way
    assert "quantized_layers" not in classifier().get_config()


def test_precision_by_layer_is_kept():
    policy = keras.dtype_policies.DTypePolicyMap(
        default_policy="float32",
        policy_map={"block_0/intermediate": keras.DTypePolicy("bfloat16")},
    )
    model = XLNetTextClassifier(XLNetBackbone(small_config(), dtype=policy), 2)
    assert model.backbone.block_0.intermediate.compute_dtype == "bfloat16"
    again = XLNetTextClassifier.from_config(model.get_config())
    assert again.backbone.block_0.intermediate.compute_dtype == "bfloat16"
    assert again.backbone.block_1.intermediate.compute_dtype == "float32"
