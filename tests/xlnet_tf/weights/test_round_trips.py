"""Models written in other formats and read again are the same bits."""

import json
import shutil
import warnings

import numpy as np
import pytest
import tensorflow as tf
from safetensors.numpy import load_file

from tests.support.equality import assert_equal
from tests.support.oracle import as_numpy
from tests.support.weight_models import assert_same
from tests.support.weight_models import ours
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetMultiLabelClassifier
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetRanker
from xlnet_tf import XLNetSpanClassifier
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor
from xlnet_tf import XLNetTokenClassifier
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.released import save_tf1

FORMATS = {"hf": save_hugging_face, "tf1": save_tf1}
both = pytest.mark.parametrize("form", FORMATS)
# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
LABELS = dict(num_classes=3, labels=["no", "maybe", "yes"])


@both
def test_backbones_come_back(tmp_path, models, form):
    everything = dict(
        activation="relu",
        gelu="erf",
        untie_biases=False,
        clamp_length=3,
        memory_length=5,
        reuse_length=4,
        attention_type="causal",
        same_length=True,
        reverse_half_batch=True,
        initializer_range=0.07,
        dropout=0.3,
        attention_dropout=0.2,
        layer_norm_epsilon=1e-5,
    )
    for i, config in enumerate(
        [dict(gelu="tanh"), dict(gelu="erf"), everything]
    ):
        model = models(XLNetBackbone, config=config)
        FORMATS[form](model, tmp_path / "new" / str(i))
        again = XLNetBackbone.from_preset(tmp_path / "new" / str(i))
        assert_same(model, again, config)


EVERYWHERE = [
    (XLNetPretrainer, {}),
    (XLNetTextClassifier, dict(num_classes=1)),
    (
        XLNetTextClassifier,
        dict(num_classes=2, projection=False, activation=None),
    ),
    (XLNetTextRegressor, {}),
    (XLNetMultipleChoice, {}),
    (XLNetQuestionAnswering, {}),
]
HUGGING_FACE = [
    (XLNetTextClassifier, dict(summary="mean", dropout=0.3, **LABELS)),
    (XLNetTextClassifier, dict(num_classes=2, projection=False)),
    (XLNetTextClassifier, dict(num_classes=2, activation=None)),
    (XLNetTextRegressor, dict(summary="first", dropout=0.3)),
    (XLNetTokenClassifier, dict(dropout=0.3, **LABELS)),
    (XLNetSpanClassifier, dict(dropout=0.3)),
    (XLNetQuestionAnswering, dict(num_starts=4, num_ends=3, dropout=0.3)),
]


@both
def test_tasks_come_back(tmp_path, models, form):
    cases = EVERYWHERE + (HUGGING_FACE if form == "hf" else [])
    for i, (cls, arguments) in enumerate(cases):
        model, path = models(cls, **arguments), tmp_path / str(i)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            FORMATS[form](model, path)
        assert_same(model, cls.from_preset(path), (cls, arguments))
    # Of a task, the backbone alone; and a head that fits its arguments.
    assert_same(model.backbone, XLNetBackbone.from_preset(path))
    again = XLNetQuestionAnswering.from_preset(path, inner_dim=38)
    assert_same(model, again)


@pytest.mark.parametrize(
    "cls, arguments, lost",
    [
        (XLNetTextClassifier, LABELS, "labels=.'no', 'maybe', 'yes'.;"),
        (XLNetTextRegressor, dict(summary="mean"), "summary='mean';"),
        (XLNetQuestionAnswering, dict(num_ends=3), "num_ends=3;"),
        (
            XLNetQuestionAnswering,
            dict(null_threshold=-5.0, max_answer_length=3),
            "null_threshold=-5.0, max_answer_length=3;",
        ),
    ],
)
def test_options_that_the_released_format_lacks_are_named(
    tmp_path, models, cls, arguments, lost
):
    model = models(cls, **arguments)
    with pytest.warns(UserWarning, match=f"does not keep {lost} give"):
        save_tf1(model, tmp_path)
    assert_same(model, cls.from_preset(tmp_path, **arguments))


def test_what_decides_answers_and_is_lost_is_named(tmp_path, models):
    """Classes, thresholds and objectives that formats of others lack."""
    several = models(XLNetMultiLabelClassifier, num_classes=3, threshold=0.2)
    config = models(XLNetRanker).config.replace(memory_length=4)
    in_segments = XLNetTextClassifier(
        XLNetBackbone(config), 2, segment_length=4
    )
    for form, model, lost in (
        ("hf", several, "threshold=0.2;"),
        ("tf1", several, "threshold=0.2, the class XLNetMultiLabelClassifier"),
        ("hf", in_segments, "segment_length=4;"),
        (
            "hf",
            models(XLNetRanker),
            "the class XLNetRanker .it is loaded as XL",
        ),
        (
            "tf1",
            models(XLNetRanker),
            "the class XLNetRanker .it is loaded as X",
        ),
        (
            "hf",
            models(XLNetQuestionAnswering, max_answer_length=9, n_best_size=2),
            "max_answer_length=9, n_best_size=2;",
        ),
        (
            "hf",
            models(XLNetPretrainer, objective="masked"),
            "objective='masked'",
        ),
        (
            "tf1",
            models(XLNetPretrainer, objective="masked"),
            "objective='maske",
        ),
    ):
        path = tmp_path / f"{form} {type(model).__name__}"
        with pytest.warns(UserWarning, match=f"does not keep {lost}"):
            FORMATS[form](model, path)


def test_a_head_that_a_format_does_not_have_is_refused(tmp_path, models):
    for form, cls, arguments in [
        ("hf", XLNetPretrainer, dict(has_transform=True)),
        ("hf", XLNetQuestionAnswering, dict(inner_dim=26)),
        ("tf1", XLNetPretrainer, dict(has_transform=True)),
        ("tf1", XLNetQuestionAnswering, dict(inner_dim=26)),
        ("tf1", XLNetTokenClassifier, dict(num_classes=3)),
        ("tf1", XLNetSpanClassifier, {}),
        ("tf1", XLNetTextClassifier, dict(num_classes=2, activation=None)),
        ("tf1", XLNetTextClassifier, dict(num_classes=2, projection=False)),
    ]:
        message = f"no head like that of {cls.__name__}"
        with pytest.raises(ValueError, match=message):
            FORMATS[form](models(cls, **arguments), tmp_path / "new")
        assert not (tmp_path / "new").exists()


@both
@pytest.mark.usefixtures("frozen_heap")
def test_what_is_no_weight_of_a_format_is_refused(tmp_path, form):
    """LoRA is merged in a copy, or in a preset of ours."""
    model = ours(XLNetTextRegressor)
    attention = model.backbone.blocks[0].attention
    attention.query_projection.enable_lora(2)
    for variable in model.trainable_weights:
        if "lora" in variable.name:
            variable.assign(variable + 0.1)
    with pytest.raises(ValueError, match="with LoRA.*model.without_lora()"):
        FORMATS[form](model, tmp_path / "lora")
    model.save_to_preset(tmp_path / "merged")
    merged = XLNetTextRegressor.from_preset(tmp_path / "merged")
    FORMATS[form](merged, tmp_path / "plain")
    again = XLNetTextRegressor.from_preset(tmp_path / "plain")
    np.testing.assert_array_equal(
        as_numpy(attention.query_projection.kernel),
        as_numpy(again.backbone.blocks[0].attention.query_projection.kernel),
    )
    merged.quantize("int8")
    with pytest.raises(ValueError, match="cannot hold a quantized model"):
        FORMATS[form](merged, tmp_path / "quantized")


def test_heads_of_another_width_are_for_some_formats_only(tmp_path, models):
    model = models(XLNetTextRegressor, config=dict(num_heads=11, head_dim=17))
    with pytest.raises(
        ValueError, match="11 heads of 17 are not 38. Choose an"
    ):
        save_hugging_face(model, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    save_tf1(model, tmp_path / "tf1")
    assert_same(model, XLNetTextRegressor.from_preset(tmp_path / "tf1"))


def test_writing_over_an_older_model_leaves_nothing_behind(tmp_path, models):
    old = models(XLNetPretrainer, config=dict(num_layers=3))
    model = ours(XLNetTextRegressor, seed=1)
    for sizes in [(20_000, 10**9), (10**9, 20_000), (9_000,) * 2]:
        again, once = (tmp_path / f"{name} {sizes}" for name in "ab")
        save_hugging_face(old, again, shard_bytes=sizes[0])
        for path in (again, once):
            save_hugging_face(model, path, shard_bytes=sizes[1])
        files, expected = (
            sorted(file.name for file in path.iterdir())
            for path in (again, once)
        )
        assert files == expected
        assert_same(model, XLNetTextRegressor.from_preset(again), sizes)
        if sizes[1] < 10**9:
            index = json.loads(
                (again / "model.safetensors.index.json").read_text()
            )
            assert set(index["weight_map"].values()) == {
                name for name in files if name.startswith("model-")
            }
            assert len(files) > 4


def test_a_released_directory_can_be_written_over(tmp_path, models):
    save_tf1(models(XLNetPretrainer, config=dict(num_layers=3)), tmp_path)
    old = tmp_path / "xlnet_model.ckpt.data-00001-of-00002"
    old.write_bytes(b"of a checkpoint in two files")
    model = ours(XLNetTextRegressor, seed=1)
    save_tf1(model, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "SHA256SUMS",
        "xlnet_config.json",
        "xlnet_model.ckpt.data-00000-of-00001",
        "xlnet_model.ckpt.index",
    ]
    assert_same(model, XLNetTextRegressor.from_preset(tmp_path))
    # A step would be read before what has none.
    shutil.copy(
        tmp_path / "xlnet_model.ckpt.index",
        tmp_path / "xlnet_model.ckpt-9.index",
    )
    with pytest.raises(
        ValueError, match="holds xlnet_model.ckpt-9.index, a st"
    ):
        save_tf1(model, tmp_path)
    # A directory of another format is not written into.
    with pytest.raises(
        ValueError, match="xlnet_config.json, which would be re"
    ):
        save_hugging_face(model, tmp_path)


@both
def test_weights_of_low_precision_are_written_in_full(tmp_path, form):
    model = ours(XLNetTextRegressor, dtype="bfloat16")
    FORMATS[form](model, tmp_path)
    if form == "tf1":
        stored = tf.train.load_checkpoint(str(tmp_path / "xlnet_model.ckpt"))
        kinds = set(stored.get_variable_to_dtype_map().values())
        assert kinds == {tf.float32}
    else:
        arrays = load_file(tmp_path / "model.safetensors")
        assert {x.dtype.name for x in arrays.values()} == {"float32"}
    again = XLNetTextRegressor.from_preset(tmp_path)
    assert {w.dtype for w in again.trainable_weights} == {"float32"}
    expected = [as_numpy(x).astype("float32") for x in model.trainable_weights]
    assert_equal(again.trainable_weights, expected)


@both
def test_a_class_of_the_users_is_written_as_ours(tmp_path, form):
    class MyClassifier(XLNetTextClassifier):
        pass

    model = ours(MyClassifier, num_classes=3, name="head")
    FORMATS[form](model, tmp_path)
    again = XLNetTextClassifier.from_preset(tmp_path)
    assert_equal(model.weights, again.weights)
    if form == "hf":
        values = json.loads((tmp_path / "config.json").read_text())
        assert values["architectures"] == ["XLNetForSequenceClassification"]
