"""Models written in other people's formats and read again are the same bits."""

import json
import warnings

import numpy as np
import pytest

from tests.support.checkpoint_fixtures import config
from tests.support.checkpoint_fixtures import features
from tests.support.checkpoint_fixtures import ours
from tests.support.oracle import as_numpy
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetSpanClassifier
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor
from xlnet_tf import XLNetTokenClassifier
from xlnet_tf.weights.hugging_face_writer import save_hugging_face
from xlnet_tf.weights.released import save_tf1

FORMATS = {"hf": save_hugging_face, "tf1": save_tf1}
both = pytest.mark.parametrize("form", FORMATS)
# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def assert_same(model, other):
    """Every weight bit by bit, and every argument but names."""
    assert other.config == model.config
    for one, two in zip(model.weights, other.weights, strict=True):
        if "seed" not in one.path:
            np.testing.assert_array_equal(
                as_numpy(one), as_numpy(two), one.path
            )
    values = [
        dict(m.get_config(), name="", backbone="") for m in (model, other)
    ]
    assert values[0] == values[1]


@both
@pytest.mark.parametrize(
    "overrides",
    [
        dict(gelu="tanh"),
        dict(gelu="erf"),
        dict(activation="relu", gelu="tanh"),
        dict(activation="relu", gelu="erf"),
        dict(untie_biases=False),
        dict(clamp_length=3, memory_length=5, reuse_length=4),
        dict(attention_type="causal", same_length=True),
        dict(reverse_half_batch=True, initializer_range=0.07),
        dict(dropout=0.3, attention_dropout=0.2, layer_norm_epsilon=1e-5),
        dict(dropout=0.0, attention_dropout=0.0),
    ],
    ids=str,
)
def test_backbones_come_back(tmp_path, form, overrides):
    model = ours(XLNetBackbone, config(**overrides))
    FORMATS[form](model, tmp_path / "new" / "model")
    assert_same(model, XLNetBackbone.from_preset(tmp_path / "new" / "model"))


LABELS = dict(num_classes=3, labels=["no", "maybe", "yes"])
EVERYWHERE = [
    (XLNetPretrainer, {}),
    (XLNetTextClassifier, dict(num_classes=3)),
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
    (XLNetMultipleChoice, dict(summary="mean", dropout=0.0)),
    (XLNetTokenClassifier, dict(dropout=0.3, **LABELS)),
    (XLNetSpanClassifier, dict(dropout=0.3)),
    (XLNetQuestionAnswering, dict(num_starts=4, num_ends=3, dropout=0.3)),
]
TASKS = [
    pytest.param(form, cls, arguments, id=f"{form} {cls.__name__} {arguments}")
    for form, tasks in {
        "hf": EVERYWHERE + HUGGING_FACE,
        "tf1": EVERYWHERE,
    }.items()
    for cls, arguments in tasks
]


@pytest.mark.parametrize("form, cls, arguments", TASKS)
def test_tasks_come_back(tmp_path, form, cls, arguments):
    model = ours(cls, config(), **arguments)
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        FORMATS[form](model, tmp_path)
    assert_same(model, cls.from_preset(tmp_path))
    backbone = XLNetBackbone.from_preset(tmp_path)
    assert_same(model.backbone, backbone)


@pytest.mark.parametrize(
    "cls, arguments, lost",
    [
        (XLNetTextClassifier, LABELS, "labels=.'no', 'maybe', 'yes'.;"),
        (XLNetTextRegressor, dict(summary="mean"), "summary='mean';"),
        (XLNetQuestionAnswering, dict(num_ends=3), "num_ends=3;"),
    ],
)
def test_what_the_released_format_does_not_keep_is_said(
    tmp_path, cls, arguments, lost
):
    model = ours(cls, config(), **arguments)
    with pytest.warns(UserWarning, match=f"does not keep {lost} give"):
        save_tf1(model, tmp_path)
    again = cls.from_preset(tmp_path, **arguments)
    assert_same(model, again)


@pytest.mark.parametrize(
    "form, cls, arguments",
    [
        ("hf", XLNetPretrainer, dict(has_transform=True)),
        ("hf", XLNetQuestionAnswering, dict(inner_dim=26)),
        ("tf1", XLNetPretrainer, dict(has_transform=True)),
        ("tf1", XLNetQuestionAnswering, dict(inner_dim=26)),
        ("tf1", XLNetTokenClassifier, dict(num_classes=2)),
        ("tf1", XLNetSpanClassifier, {}),
        ("tf1", XLNetTextClassifier, dict(num_classes=2, activation=None)),
        ("tf1", XLNetTextClassifier, dict(num_classes=2, projection=False)),
    ],
)
def test_a_head_that_a_format_does_not_have_is_refused(
    tmp_path, form, cls, arguments
):
    model = ours(cls, config(), **arguments)
    with pytest.raises(
        ValueError, match=f"no head like that of {cls.__name__}"
    ):
        FORMATS[form](model, tmp_path / "new")
    assert not (tmp_path / "new").exists()


@both
@pytest.mark.parametrize(
    "cls, arguments",
    [
        (XLNetPretrainer, dict(has_transform=False)),
        (XLNetQuestionAnswering, dict(inner_dim=38)),
        (XLNetTextClassifier, dict(num_classes=3, projection=True)),
    ],
)
def test_arguments_that_fit_keep_the_head(tmp_path, form, cls, arguments):
    model = ours(cls, config(), **arguments)
    FORMATS[form](model, tmp_path)
    assert_same(model, cls.from_preset(tmp_path, **arguments))


def test_heads_of_another_width_are_for_some_formats_only(tmp_path):
    model = ours(XLNetTextRegressor, config(num_heads=11, head_dim=17))
    with pytest.raises(
        ValueError, match="11 heads of 17 are not 38. Choose an"
    ):
        save_hugging_face(model, tmp_path / "hf")
    assert not (tmp_path / "hf").exists()
    save_tf1(model, tmp_path / "tf1")
    assert_same(model, XLNetTextRegressor.from_preset(tmp_path / "tf1"))


@pytest.mark.parametrize(
    "sizes", [(20_000, 10**9), (10**9, 20_000), (9_000,) * 2]
)
def test_writing_over_an_older_model_leaves_nothing_behind(tmp_path, sizes):
    old = ours(XLNetPretrainer, config(num_layers=3))
    save_hugging_face(old, tmp_path / "again", shard_bytes=sizes[0])
    model = ours(XLNetTextRegressor, config(), seed=1)
    for name in ("again", "once"):
        save_hugging_face(model, tmp_path / name, shard_bytes=sizes[1])
    files, expected = (
        sorted(file.name for file in (tmp_path / name).iterdir())
        for name in ("again", "once")
    )
    assert files == expected
    assert_same(model, XLNetTextRegressor.from_preset(tmp_path / "again"))
    index = tmp_path / "again" / "model.safetensors.index.json"
    if sizes[1] < 10**9:
        named = set(json.loads(index.read_text())["weight_map"].values())
        assert named == {name for name in files if name.startswith("model-")}


def test_a_released_directory_can_be_written_over(tmp_path):
    save_tf1(ours(XLNetPretrainer, config(num_layers=3)), tmp_path)
    old = tmp_path / "xlnet_model.ckpt.data-00001-of-00002"
    old.write_bytes(b"of a checkpoint in two files")
    model = ours(XLNetTextRegressor, config(), seed=1)
    save_tf1(model, tmp_path)
    assert sorted(file.name for file in tmp_path.iterdir()) == [
        "xlnet_config.json",
        "xlnet_model.ckpt.data-00000-of-00001",
        "xlnet_model.ckpt.index",
    ]
    assert_same(model, XLNetTextRegressor.from_preset(tmp_path))


def test_a_directory_of_another_format_is_not_written_into(tmp_path):
    save_tf1(ours(XLNetBackbone, config()), tmp_path)
    with pytest.raises(
        ValueError, match="xlnet_config.json, which would be re"
    ):
        save_hugging_face(ours(XLNetBackbone, config()), tmp_path)


@both
def test_weights_of_low_precision_are_written_in_full(tmp_path, form):
    model = XLNetTextRegressor(XLNetBackbone(config(), dtype="bfloat16"))
    FORMATS[form](model, tmp_path)
    again = XLNetTextRegressor.from_preset(tmp_path)
    assert {w.dtype for w in again.trainable_weights} == {"float32"}
    for one, two in zip(
        model.trainable_weights, again.trainable_weights, strict=True
    ):
        expected = as_numpy(one).astype("float32")
        np.testing.assert_array_equal(as_numpy(two), expected)


@both
def test_a_class_of_the_users_is_written_as_ours(tmp_path, form):
    class MyClassifier(XLNetTextClassifier):
        pass

    model = ours(MyClassifier, config(), **LABELS)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        FORMATS[form](model, tmp_path)
    again = XLNetTextClassifier.from_preset(tmp_path)
    inputs = features()
    np.testing.assert_array_equal(model(inputs), again(inputs))
    if form == "hf":
        values = json.loads((tmp_path / "config.json").read_text())
        assert values["architectures"] == ["XLNetForSequenceClassification"]
