"""Hugging Face's directories: read, and refused where they are damaged.

`golden/peers/hugging_face` was written by transformers; `tests/slow/peers`
holds every class of theirs to ours.
"""

import json
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file
from safetensors.numpy import save_file

import xlnet_tf
from tests.conftest import ROOT
from tests.support.oracle import as_numpy
from tests.support.weight_models import assert_same
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.weights.hugging_face.writer import save_hugging_face
from xlnet_tf.weights.preset import open_source

STORED = ROOT / "tests" / "golden" / "peers" / "hugging_face"
# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def test_a_stored_model_gives_the_same_logits():
    expected = dict(np.load(STORED / "expected.npz"))
    logits = expected.pop("logits")
    model = XLNetTextClassifier.from_preset(STORED)
    np.testing.assert_allclose(model(expected), logits, rtol=0, atol=1e-5)
    assert np.std(logits) > 0.1
    assert model.labels == ["no", "maybe", "yes"]
    assert model.config.gelu == "erf"


@pytest.fixture
def saved(tmp_path, models):
    """A language model of ours, as Hugging Face stores it."""
    path = tmp_path / "saved"
    save_hugging_face(models(XLNetPretrainer), path)
    (path / "SHA256SUMS").unlink()  # of what is changed here
    return path


def edit(directory, change):
    """Changes the tensors of a directory."""
    tensors = load_file(directory / "model.safetensors")
    change(tensors)
    save_file(tensors, directory / "model.safetensors")


def edit_config(directory, *removed, **values):
    file = directory / "config.json"
    values = {**json.loads(file.read_text()), **values}
    for name in removed:
        del values[name]
    file.write_text(json.dumps(values))


def test_float16_weights_are_read_as_float32(saved, models):
    def halve(tensors):
        tensors.update({k: v.astype("float16") for k, v in tensors.items()})

    edit(saved, halve)
    model = XLNetPretrainer.from_preset(saved)
    for one, two in zip(
        model.trainable_weights,
        models(XLNetPretrainer).trainable_weights,
        strict=True,
    ):
        assert one.dtype == "float32"
        expected = as_numpy(two).astype("float16").astype("float32")
        np.testing.assert_array_equal(as_numpy(one), expected)


@pytest.mark.parametrize(
    "missing",
    [("model_type", "architectures"), ("model_type", "layer_norm_eps")],
)
def test_a_config_of_2019_names_no_type(saved, models, missing):
    edit_config(saved, *missing, ff_activation="gelu")
    model = XLNetPretrainer.from_preset(saved)
    assert model.config.gelu == "erf"
    np.testing.assert_array_equal(
        as_numpy(model.head.bias), as_numpy(models(XLNetPretrainer).head.bias)
    )


def test_names_of_classes_that_are_none(saved):
    for value in ([{}], "XLNetModel", {"a": 1}, [None], 5):
        edit_config(saved, architectures=value)
        with pytest.raises(ValueError, match="config.json: `architectures` mu"):
            xlnet_tf.load(saved)


def test_the_source_gives_the_reason_for_the_form_of_gelu(saved):
    assert open_source(saved).gelu == '"ff_activation" is "gelu_new"'
    reason = 'Hugging Face\'s code computes the erf form for "gelu"'
    assert open_source(STORED).gelu == reason


def break_three(tensors):
    del tensors["transformer.layer.0.rel_attn.q"]
    tensors["transformer.layer.7.ff.layer_1.bias"] = np.ones(23, "float32")
    tensors["transformer.mask_emb"] = np.ones((1, 38), "float32")


def test_weights_that_do_not_fit_are_listed_together(saved, models):
    edit(saved, break_three)
    message = (
        r"missing: transformer.layer.0.rel_attn.q; unexpected: "
        r"transformer.layer.7.ff.layer_1.bias; other shapes: "
        r"transformer.mask_emb has \(1, 38\), not \(1, 1, 38\)"
    )
    with pytest.raises(ValueError, match=message):
        XLNetPretrainer.from_preset(saved)
    with pytest.warns(UserWarning, match=f"in part: {message}"):
        model = XLNetPretrainer.from_preset(saved, strict=False)
    found, expected = (
        m.backbone.blocks[0].attention for m in (model, models(XLNetPretrainer))
    )
    for part, is_read in (("key", True), ("query", False)):
        one, two = (
            as_numpy(getattr(a, f"{part}_projection").kernel)
            for a in (found, expected)
        )
        assert np.array_equal(one, two) == is_read, part


def test_biases_are_tied_only_where_they_are_equal(saved):
    edit_config(saved, untie_r=False)
    assert XLNetPretrainer.from_preset(saved).config.untie_biases

    def tie(tensors):
        for name in ("r_w_bias", "r_r_bias", "r_s_bias"):
            first = tensors[f"transformer.layer.0.rel_attn.{name}"]
            tensors[f"transformer.layer.1.rel_attn.{name}"] = first

    edit(saved, tie)
    assert not XLNetPretrainer.from_preset(saved).config.untie_biases
    name = "transformer.layer.1.rel_attn.r_w_bias"
    edit(saved, lambda tensors: tensors.pop(name))
    with pytest.raises(ValueError, match=f"missing: {name}"):
        XLNetBackbone.from_preset(saved)


def test_the_config_says_whether_a_summary_has_a_layer(tmp_path, models):
    """As their code reads it, whatever the files hold."""
    model = models(XLNetTextClassifier, num_classes=3)
    save_hugging_face(model, tmp_path)
    (tmp_path / "SHA256SUMS").unlink()
    edit_config(tmp_path, "summary_use_proj")
    assert_same(model, XLNetTextClassifier.from_preset(tmp_path))
    edit_config(tmp_path, summary_use_proj=False)
    bare = XLNetTextClassifier.from_preset(tmp_path)
    assert bare.head.summary_dense is None
    edit(tmp_path, lambda x: x.pop("sequence_summary.summary.weight"))
    XLNetTextClassifier.from_preset(tmp_path)
    edit_config(tmp_path, summary_use_proj=True)
    with pytest.raises(ValueError, match="missing: sequence_summary.summary.w"):
        XLNetTextClassifier.from_preset(tmp_path)


def test_a_language_model_head_with_other_weights_is_refused(saved):
    edit_config(saved, tie_word_embeddings=False)

    def untie(tensors):
        tensors["lm_loss.weight"] = np.ones((97, 38), "float32")

    edit(saved, untie)
    with pytest.raises(ValueError, match="an LM head of its own .`tie_word_em"):
        XLNetPretrainer.from_preset(saved)
    # It is no part of any other model.
    XLNetBackbone.from_preset(saved)
    XLNetTextClassifier.from_preset(saved, num_classes=2)
    with pytest.raises(ValueError, match="no head for XLNetTextClassifier, so"):
        XLNetTextClassifier.from_preset(saved)


def rename(tensors):
    for name in list(tensors):
        tensors[name.replace("word_embedding", "wte")] = tensors.pop(name)


def cut(share):
    def change(path):
        file = path / "model.safetensors"
        data = file.read_bytes()
        file.write_bytes(data[: int(len(data) * share)])

    return change


DAMAGE = [
    *((cut(s), ValueError, "damaged or not") for s in (0.0, 0.001, 0.5, 0.999)),
    (
        lambda path: edit_config(path, model_type="roberta"),
        ValueError,
        "a model of the type 'roberta', not XLN",
    ),
    (
        lambda path: edit_config(path, ff_activation="silu"),
        ValueError,
        "config.json: `activation` must be .*='silu'",
    ),
    (
        lambda path: edit(path, rename),
        ValueError,
        "does not hold an XLNet: expected one tensor",
    ),
    (
        lambda path: (path / "model.safetensors").unlink(),
        FileNotFoundError,
        "and no weights .model.safetensors or pytorch_model.bin",
    ),
]


def test_damage_is_named(saved, tmp_path):
    for i, (change, error, message) in enumerate(DAMAGE):
        path = shutil.copytree(saved, tmp_path / str(i))
        change(path)
        with pytest.raises(error, match=message):
            XLNetPretrainer.from_preset(path)


def test_shards_are_read_or_named(tmp_path, models):
    model = models(XLNetPretrainer)
    save_hugging_face(model, tmp_path, shard_bytes=20_000)
    shards = sorted(tmp_path.glob("model-*.safetensors"))
    assert len(shards) > 3
    assert all(file.stat().st_size < 25_000 for file in shards)
    assert_same(model, XLNetPretrainer.from_preset(tmp_path))
    (tmp_path / "SHA256SUMS").unlink()
    shards[1].unlink()
    with pytest.raises(FileNotFoundError, match=f"not there: {shards[1].name}"):
        XLNetPretrainer.from_preset(tmp_path)
    index = tmp_path / "model.safetensors.index.json"
    index.write_text('{"metadata": {}}')
    with pytest.raises(ValueError, match="index.json lists no .*weight_map"):
        XLNetPretrainer.from_preset(tmp_path)
