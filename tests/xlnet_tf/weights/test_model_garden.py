"""Model Garden's directories: read, described, or refused.

`golden/peers/model_garden` was written by tf-models-official; its classes are
held to ours in `tests/slow/peers`.
"""

import re
import shutil

import numpy as np
import pytest
import tensorflow as tf
import yaml

from tests.conftest import ROOT
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.weights.preset import detect
from xlnet_tf.weights.preset import open_source
from xlnet_tf.weights.preset import read_config

STORED = ROOT / "tests" / "golden" / "peers" / "model_garden"
# Of a classifier, which was never given targets: for another one it is whole.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
LAYER = "model/_network/_transformer_xl/transformer_xl_layers/0"


def test_a_stored_model_gives_the_same_logits():
    expected = dict(np.load(STORED / "expected.npz"))
    logits = expected.pop("logits")
    assert detect(STORED) == "tensorflow"
    for path in (STORED, STORED / "ckpt-1"):
        model = XLNetTextClassifier.from_preset(path)
        np.testing.assert_allclose(model(expected), logits, rtol=0, atol=1e-5)
    assert np.std(logits) > 0.1
    assert model.config.gelu == "erf"
    reason = "Model Garden's XLNetBase computes the erf form"
    assert open_source(STORED).gelu == reason
    (head,) = open_source(STORED).heads()
    assert head.task == "XLNetTextClassifier"
    assert head.arguments == {"num_classes": 3, "summary": "last"}


def test_a_head_of_another_kind_is_left_out():
    with pytest.warns(
        UserWarning, match="has no .*mask_emb.Smask_emb, because"
    ):
        model = XLNetPretrainer.from_preset(STORED)
    assert model.head.has_transform is False
    other = XLNetTextClassifier.from_preset(STORED, num_classes=4)
    assert other.head.logits_dense.kernel.shape == (6, 4)


@pytest.fixture
def stored(tmp_path):
    """A copy of the directory."""
    return shutil.copytree(STORED, tmp_path / "stored")


def parameters(directory, **encoder):
    """Changes parameters of the encoder in `params.yaml`."""
    file = directory / "params.yaml"
    values = yaml.safe_load(file.read_text())
    values["task"]["model"]["encoder"]["xlnet"].update(encoder)
    file.write_text(yaml.dump(values))


def test_every_parameter_of_the_encoder_is_read(stored):
    config = read_config(stored)
    assert config.untie_biases and config.clamp_length == 0
    assert config.attention_type == "bidirectional"
    parameters(
        stored,
        inner_activation="relu",
        dropout_rate=0.25,
        attention_dropout_rate=0.125,
        attention_type="uni",
        bi_data=True,
        tie_attention_biases=True,
        memory_length=11,
        clamp_length=7,
        reuse_length=5,
        initializer_range=0.5,
    )
    assert read_config(stored).to_dict() == dict(
        vocabulary_size=29,
        num_layers=1,
        num_heads=2,
        hidden_dim=6,
        head_dim=3,
        intermediate_dim=5,
        activation="relu",
        gelu="erf",
        untie_biases=False,
        memory_length=11,
        reuse_length=5,
        clamp_length=7,
        same_length=False,
        attention_type="causal",
        reverse_half_batch=True,
        dropout=0.25,
        attention_dropout=0.125,
        initializer_range=0.5,
        layer_norm_epsilon=1e-12,
    )
    parameters(stored, inner_activation="swish")
    with pytest.raises(ValueError, match="params.yaml: .*activation.*'swish'"):
        read_config(stored)


def test_parameters_of_something_else_are_named(stored):
    for text, message in [
        ("task: {model: {encoder: {type: bert}}}", "type is 'bert', not 'xln"),
        ("task: 3", "its task.model.encoder.type is None, not 'xlnet'"),
        ("task: {model: [", "params.yaml is not a YAML file: .*line 1"),
        ("a: !!python/object:os.system {}", "params.yaml is not a YAML file"),
        (
            "task: {model: {encoder: {type: xlnet, xlnet: {num_layers: 2}}}}",
            "encoder.xlnet lacks vocab_size, num_attention_heads, hidden_size",
        ),
    ]:
        (stored / "params.yaml").write_text(text)
        with pytest.raises(ValueError, match=message):
            XLNetBackbone.from_preset(stored)
    (stored / "params.yaml").unlink()
    with pytest.raises(FileNotFoundError, match="without its .*params.yaml"):
        XLNetBackbone.from_preset(stored)


def test_a_missing_tensor_is_named(stored):
    prefix = str(stored / "ckpt-1")
    reader = tf.train.load_checkpoint(prefix)
    lost = "layers/0/_inner_dense/bias"
    names = [n for n in reader.get_variable_to_shape_map() if lost not in n]
    tensors = [reader.get_tensor(n) for n in names]
    tf.raw_ops.SaveV2(
        prefix=prefix,
        tensor_names=names,
        shape_and_slices=[""] * len(names),
        tensors=tensors,
    )
    message = re.escape("_inner_dense/bias. Check")
    with pytest.raises(ValueError, match=f"missing: .*{message}"):
        XLNetBackbone.from_preset(stored)
    with pytest.warns(UserWarning, match="was read in part: missing"):
        XLNetBackbone.from_preset(stored, strict=False)


def test_tensors_of_other_shapes_and_others_are_named():
    with pytest.raises(ValueError) as error:
        XLNetBackbone.from_preset(STORED, intermediate_dim=19, head_dim=7)
    message = str(error.value)
    assert "_inner_dense/kernel has (6, 5), not (6, 19)" in message
    assert "_output_dense/kernel has (2, 3, 6), not (2, 7, 6)" in message
    assert "seg_embed has (1, 2, 2, 3), not (1, 2, 2, 7)" in message
    with pytest.raises(ValueError, match="missing: .*layers/1") as error:
        XLNetBackbone.from_preset(STORED, num_layers=2)
    for leftover in ("save_counter", "OBJECT_GRAPH", "optimizer"):
        assert leftover not in str(error.value)


def test_another_model_is_not_taken_for_an_xlnet(stored):
    for file in stored.glob("ckpt*"):
        file.unlink()
    tf.train.Checkpoint(kernel=tf.Variable(1.0)).save(str(stored / "ckpt"))
    with pytest.raises(ValueError, match="not the checkpoint of one XLNet.*0"):
        XLNetBackbone.from_preset(stored)
