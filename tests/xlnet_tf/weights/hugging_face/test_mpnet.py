"""MPNet's heads: their code reads less of the config than ours.

The files are written by the tables that read them; `tests/slow/peers` compares
with the code of transformers.
"""

import json
import math

import numpy as np
import pytest
from safetensors.numpy import save_file

import xlnet_tf
from tests.support.bert_models import bert_backbone
from tests.support.bert_models import bert_features
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.weight_models import assert_same
from xlnet_tf import BertBackbone
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.weights.hugging_face import mpnet
from xlnet_tf.weights.hugging_face.source import task_head_weights
from xlnet_tf.weights.table import table_weights
from xlnet_tf.weights.table import tensors

SCOPE = "mpnet."


def task_of(cls, **arguments):
    backbone = bert_backbone(
        num_segments=0,
        relative_position_buckets=32,
        relative_position_max_distance=128,
    )
    return randomize(cls(backbone, **arguments))


def write(path, task, **values):
    """A directory as `save_pretrained` writes it."""
    weights = table_weights(task.backbone, mpnet.backbone_table(SCOPE))
    weights += task_head_weights(task, mpnet.head_tables(SCOPE))
    arrays = {name: np.array(value) for name, value in tensors(weights)}
    positions = f"{SCOPE}embeddings.position_embeddings.weight"
    arrays[positions] = np.pad(arrays[positions], [[2, 0], [0, 0]])
    path.mkdir(exist_ok=True)
    save_file(arrays, path / "model.safetensors")
    config = task.config
    values = {
        "model_type": "mpnet",
        "vocab_size": config.vocabulary_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.intermediate_dim,
        "max_position_embeddings": config.max_positions + 2,
        "layer_norm_eps": config.layer_norm_epsilon,
        **values,
    }
    (path / "config.json").write_text(json.dumps(values))


def their_logits(task, content):
    """`MPNetLMHead`: GELU in its erf form, whatever the config says."""
    head = task.head
    kernel, bias = map(as_numpy, head.transform.weights)
    inner = content @ kernel + bias
    inner = inner * (1 + np.vectorize(math.erf)(inner / math.sqrt(2))) / 2
    inner -= inner.mean(-1, keepdims=True)
    inner /= np.sqrt(np.square(inner).mean(-1, keepdims=True) + 1e-12)
    gamma, beta = map(as_numpy, head.transform_norm.weights)
    table = as_numpy(task.backbone.token_table())
    return (inner * gamma + beta) @ table.T + as_numpy(head.bias)


def test_the_lm_head_has_its_own_gelu(tmp_path):
    task = task_of(XLNetPretrainer, has_transform=True)
    features = bert_features()
    del features["segment_ids"]
    for act in ("gelu", "gelu_new", "gelu_pytorch_tanh"):
        write(tmp_path, task, hidden_act=act)
        mine = xlnet_tf.load(tmp_path)
        assert mine.config.gelu == ("erf" if act == "gelu" else "tanh")
        content = mine(features)["content"]
        found = as_numpy(mine.logits(content))
        expected = their_logits(task, as_numpy(content))
        np.testing.assert_allclose(found, expected, atol=1e-5, err_msg=act)


def test_an_lm_head_of_two_activations_is_refused(tmp_path):
    task = task_of(XLNetPretrainer, has_transform=True)
    write(tmp_path, task, hidden_act="relu")
    for read in (XLNetPretrainer.from_preset, xlnet_tf.load):
        with pytest.raises(ValueError, match="GELU beside layers .* relu; he"):
            read(tmp_path)
    again = BertBackbone.from_preset(tmp_path)
    assert again.config.activation == "relu"
    again = XLNetPretrainer.from_preset(tmp_path, has_transform=False)
    assert not again.head.has_transform
    XLNetTextClassifier.from_preset(tmp_path, num_classes=2)


def test_a_head_for_choices_is_one_without_the_name_of_its_class(tmp_path):
    task = task_of(XLNetMultipleChoice, summary="first")
    write(tmp_path, task)
    assert_same(task, XLNetMultipleChoice.from_preset(tmp_path))
