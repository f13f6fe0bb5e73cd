"""Directories of models: written, read, refused, and loaded by any class."""

import json
import shutil
import types

import keras
import numpy as np
import pytest

import xlnet_tf
from data_pipeline.base.checksums import add_checksums
from tests.conftest import ROOT
from tests.support.oracle import M
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from tests.support.weight_models import assert_same
from tests.support.weight_models import ours
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.preset import read_config

GOLDEN = ROOT / "tests" / "golden" / "base"
# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
# Every task and what it needs.
TASKS = [
    (xlnet_tf.XLNetTextClassifier, {"num_classes": 2, "labels": ["a", "b"]}),
    (xlnet_tf.XLNetTextRegressor, {"summary": "mean"}),
    (xlnet_tf.XLNetMultipleChoice, {"summary": "first", "projection": False}),
    (xlnet_tf.XLNetRanker, {}),
    (xlnet_tf.XLNetTokenClassifier, {"num_classes": 3}),
    (xlnet_tf.XLNetQuestionAnswering, {"num_ends": 2, "inner_dim": 26}),
    (xlnet_tf.XLNetSeq2Seq, {}),
    (xlnet_tf.XLNetSpanClassifier, {}),
]


@pytest.fixture(scope="module")
def pretrainer():
    """A pretrainer; only read."""
    return ours(XLNetPretrainer, dict(memory_length=M))


@pytest.fixture(scope="module")
def kept(pretrainer, tmp_path_factory):
    """The directory that `pretrainer` was written to; only read."""
    path = tmp_path_factory.mktemp("preset")
    pretrainer.save_to_preset(path)
    return path


@pytest.fixture
def preset(kept, tmp_path):
    """A copy of the directory."""
    return shutil.copytree(kept, tmp_path / "preset")


def features():
    return with_targets(small_features())


def test_a_preset_gives_the_same_bits(pretrainer, kept):
    again = XLNetPretrainer.from_preset(kept)
    assert_same(pretrainer, again)
    assert largest_difference(again(features()), pretrainer(features())) == 0
    backbone = XLNetBackbone.from_preset(str(kept))
    assert_same(pretrainer.backbone, backbone)
    assert read_config(kept) == pretrainer.config
    assert read_config(GOLDEN).hidden_dim == 32


def test_a_backbone_alone_round_trips(tmp_path):
    backbone = ours(XLNetBackbone, dict(untie_biases=False, clamp_length=7))
    backbone.save_to_preset(str(tmp_path / "a" / "b"))
    again = XLNetBackbone.from_preset(str(tmp_path / "a" / "b"))
    assert_same(backbone, again)
    assert not (tmp_path / "a" / "b" / "task.json").exists()
    # A task gets a new head.
    model = XLNetPretrainer.from_preset(tmp_path / "a" / "b")
    assert largest_difference(model.backbone.weights, backbone.weights) == 0
    assert not as_numpy(model.head.bias).any()


def test_the_directory_is_laid_out_as_documented(kept, pretrainer, tmp_path):
    assert sorted(f.name for f in kept.iterdir()) == [
        "SHA256SUMS",
        "config.json",
        "metadata.json",
        "model.weights.h5",
        "task.json",
        "task.weights.h5",
    ]
    metadata = json.loads((kept / "metadata.json").read_text())
    count = sum(np.prod(w.shape) for w in pretrainer.backbone.weights)
    assert metadata == {
        "parameter_count": count,
        "keras_version": keras.__version__,
        "xlnet_tf_version": xlnet_tf.__version__,
    }
    tokenizer = types.SimpleNamespace(model_proto=b"\0spiece", lowercase=True)
    pretrainer.save_to_preset(tmp_path, tokenizer=tokenizer)
    vocabulary = tmp_path / "assets" / "tokenizer" / "vocabulary.spm"
    assert vocabulary.read_bytes() == b"\0spiece"
    settings = json.loads((tmp_path / "tokenizer.json").read_text())
    assert settings == {"lowercase": True}


def test_the_preset_of_another_task_gives_a_new_head(kept):
    @keras.saving.register_keras_serializable(package="test_presets")
    class OtherTask(XLNetPretrainer):
        pass

    assert not as_numpy(OtherTask.from_preset(kept).head.bias).any()


def test_overrides_replace_config_fields_and_keep_the_weights(kept, pretrainer):
    changed = XLNetPretrainer.from_preset(kept, clamp_length=3, dropout=0.5)
    expected = pretrainer.config.replace(clamp_length=3, dropout=0.5)
    assert changed.config == expected
    assert largest_difference(changed.weights, pretrainer.weights) == 0
    assert largest_difference(changed(features()), pretrainer(features())) > 0
    # Other overrides are arguments of the class.
    assert XLNetBackbone.from_preset(kept, name="mine", seed=3).seed == 3
    assert XLNetPretrainer.from_preset(kept, name="mine").name == "mine"
    for cls in (XLNetBackbone, XLNetPretrainer):
        with pytest.raises((TypeError, ValueError), match="memory_lenght"):
            cls.from_preset(kept, memory_lenght=3)


def test_dropout_is_of_the_model_and_of_its_head(kept, tmp_path):
    for cls, arguments in TASKS:
        if not cls.head_has_dropout:
            continue
        task = cls.from_preset(kept, dropout=0.3, **arguments)
        assert task.config.dropout == task.head.dropout == 0.3, cls
    task.save_to_preset(tmp_path)
    task.save(tmp_path / "model.keras")
    for again, rate in (
        (keras.models.load_model(tmp_path / "model.keras"), 0.3),
        (cls.from_preset(tmp_path), 0.3),
        (cls.from_preset(tmp_path, attention_dropout=0.0), 0.3),
        (cls.from_preset(tmp_path, dropout=0.0), 0.0),
    ):
        assert again.config.dropout == again.head.dropout == rate
    usual = cls.from_preset(kept, **arguments)
    assert usual.head.dropout == cls(usual.backbone).head.dropout


def test_a_type_can_be_chosen_and_weights_left_out(kept, pretrainer):
    mixed = XLNetPretrainer.from_preset(kept, dtype="mixed_bfloat16")
    assert mixed.compute_dtype == mixed.backbone.compute_dtype == "bfloat16"
    assert mixed.backbone.blocks[0].attention.compute_dtype == "bfloat16"
    outputs = mixed(features())
    assert keras.backend.standardize_dtype(outputs["query"].dtype) == "bfloat16"
    model = XLNetPretrainer.from_preset(kept, load_weights=False)
    assert model.config == pretrainer.config
    assert largest_difference(model.weights, pretrainer.weights) > 0.1


@pytest.mark.parametrize("version", [None, 2])
def test_another_format_is_refused(preset, version):
    file = preset / "config.json"
    saved = json.loads(file.read_text())
    assert saved.pop("format_version") == 1
    if version is not None:
        saved["format_version"] = version
    file.write_text(json.dumps(saved))
    add_checksums(preset, ["config.json"])
    shown = f"the format version {version}" if version else "no format version"
    message = (
        f"preset/config.json has {shown}, and this release reads version 1"
    )
    for read in (xlnet_tf.load, XLNetPretrainer.from_preset, read_config):
        with pytest.raises(ValueError, match=message):
            read(preset)


def test_a_released_directory_becomes_a_preset(tmp_path, pretrainer):
    released = XLNetPretrainer.from_preset(GOLDEN, memory_length=8)
    released.save_to_preset(tmp_path / "new")
    assert_same(released, XLNetPretrainer.from_preset(tmp_path / "new"))
    # Written beside released files, the preset is the one that counts.
    shutil.copytree(GOLDEN, tmp_path / "both")
    pretrainer.save_to_preset(tmp_path / "both")
    assert_same(pretrainer, XLNetPretrainer.from_preset(tmp_path / "both"))


def test_a_memory_of_another_batch_size_is_named(tmp_path):
    file = tmp_path / "model.weights.h5"

    def remembering(batch_size):
        model = ours(XLNetPretrainer, dict(memory_length=M))
        model.attach_memory(batch_size)
        return model

    remembering(4).save_weights(file)
    with pytest.raises(ValueError, match="no memory of 2 rows. Load them be"):
        remembering(2).load_weights(file)
    remembering(4).load_weights(file)


def damage(preset, name, change):
    file = preset / name
    content = file.read_bytes()
    file.write_bytes(change(content))
    return lambda: file.write_bytes(content)


def test_what_is_wrong_with_a_directory_is_named(preset, tmp_path):
    # tests/xlnet_tf/weights/test_damaged_presets.py has those with checksums.
    (preset / "SHA256SUMS").unlink()
    (tmp_path / "empty").mkdir()
    for path, error, message in [
        ("none", FileNotFoundError, "no directory .*none; give"),
        ("empty", ValueError, "holds no model that is known: expec"),
    ]:
        with pytest.raises(error, match=message):
            XLNetBackbone.from_preset(tmp_path / path)
    weights = "model.weights.h5"
    swapped = (preset / "task.weights.h5").read_bytes()
    cases = [
        (
            "config.json",
            lambda x: x.replace(b"xlnet_tf>XLNetB", b"keras_hub>BertB"),
            "holds no model that is known",
        ),
        (
            "config.json",
            lambda x: b'{"registered_name": ',
            "config.json is not a JSON file",
        ),
        (weights, lambda x: swapped, f"{weights} (does not|is dam)"),
    ]
    for share in (0.0, 0.1, 0.5, 0.999):
        cases.append(
            (
                weights,
                lambda x, share=share: x[: int(len(x) * share)],
                f"{weights} is damaged or not",
            )
        )
    for name, change, message in cases:
        restore = damage(preset, name, change)
        with pytest.raises(ValueError, match=message):
            XLNetBackbone.from_preset(preset)
        restore()
    for overrides in (
        dict(hidden_dim=34),
        dict(vocabulary_size=101),
        dict(num_layers=3),
        dict(num_layers=1),
        dict(untie_biases=False),
    ):
        ((name, value),) = overrides.items()
        message = rf"{weights} does not fit: .*Received: {name}={value}[^\n]*$"
        with pytest.raises(ValueError, match=message):
            XLNetBackbone.from_preset(preset, **overrides)
    with pytest.warns(UserWarning, match="in part: it holds 2 layers and the"):
        XLNetBackbone.from_preset(preset, num_layers=1, strict=False)
    for name in ("task.weights.h5", weights):
        (preset / name).unlink()
        with pytest.raises(FileNotFoundError, match=f"{name} is missing: the"):
            XLNetPretrainer.from_preset(preset)


def test_a_model_is_loaded_as_the_class_it_was_saved_as(tmp_path, models):
    for cls, arguments in [(XLNetPretrainer, {}), *TASKS]:
        model = models(cls, **arguments)
        model.save_to_preset(tmp_path / cls.__name__)
        again = xlnet_tf.load(tmp_path / cls.__name__)
        assert type(again) is cls
        assert_same(model, again)
    run = tmp_path / "run"
    run.mkdir()
    model = models(XLNetBackbone)
    model.save(run / "model.keras")
    for path in (run, str(run / "model.keras")):
        again = xlnet_tf.load(path)
        assert type(again) is XLNetBackbone
        assert_same(model, again)
    tagger = models(xlnet_tf.XLNetTokenClassifier, num_classes=3)
    save_hugging_face(tagger, tmp_path / "hf")
    assert_same(tagger, xlnet_tf.load(tmp_path / "hf"))


def test_a_directory_with_a_backbone_is_loaded_as_a_pretrainer(
    tmp_path, models
):
    models(XLNetBackbone).save_to_preset(tmp_path)
    model = xlnet_tf.load(tmp_path)
    assert type(model) is XLNetPretrainer
    assert_same(models(XLNetBackbone), model.backbone)


def test_what_cannot_be_loaded_is_named(tmp_path, preset):
    (tmp_path / "a.keras").write_bytes(b"PK")
    with pytest.raises(FileNotFoundError, match="there is no model at .*none"):
        xlnet_tf.load(tmp_path / "none")
    with pytest.raises(ValueError, match="not a .keras file, or it is cut"):
        xlnet_tf.load(tmp_path / "a.keras")
    message = "several heads, of XLNetPretrainer, .*from_preset"
    with pytest.raises(ValueError, match=message):
        xlnet_tf.load(GOLDEN)
    damage(preset, "task.json", lambda x: x.replace(b"xlnet_tf>", b"my>"))
    with pytest.raises(ValueError, match="task.json is damaged"):
        xlnet_tf.load(preset)
    with pytest.raises(ValueError, match="holds a my>XLNetPretrainer, which"):
        xlnet_tf.load(preset, verify=False)
    (preset / "task.json").unlink()
    (preset / "task.json").symlink_to("gone.json")
    with pytest.raises(FileNotFoundError, match="task.json is a link that le"):
        xlnet_tf.load(preset, verify=False)
