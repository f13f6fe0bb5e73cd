"""The config of BERT: what it accepts, and the files it reads and writes."""

import dataclasses
import json

import pytest

from xlnet_tf import BertConfig
from xlnet_tf import XLNetConfig
from xlnet_tf.config import config_from_dict
from xlnet_tf.config import config_from_json

SIZES = dict(
    vocabulary_size=97,
    num_layers=2,
    num_heads=3,
    hidden_dim=12,
    intermediate_dim=23,
)
# Of transformers, with keys that do not concern the numbers.
HUGGING_FACE = {
    "architectures": ["BertForMaskedLM"],
    "model_type": "bert",
    "vocab_size": 97,
    "num_hidden_layers": 2,
    "num_attention_heads": 3,
    "hidden_size": 12,
    "intermediate_size": 23,
    "hidden_act": "gelu",
    "max_position_embeddings": 41,
    "type_vocab_size": 5,
    "hidden_dropout_prob": 0.25,
    "attention_probs_dropout_prob": 0.125,
    "initializer_range": 0.5,
    "layer_norm_eps": 1e-7,
    "pad_token_id": 0,
    "is_decoder": False,
    "position_embedding_type": "absolute",
}


def of_hugging_face(**values):
    return BertConfig.from_dict({**HUGGING_FACE, **values})


def test_hugging_face_names_and_values_are_translated():
    config = of_hugging_face()
    assert config == BertConfig(
        **SIZES,
        max_positions=41,
        num_segments=5,
        dropout=0.25,
        attention_dropout=0.125,
        initializer_range=0.5,
        layer_norm_epsilon=1e-7,
    )
    assert (config.head_dim, config.gelu) == (4, "erf")
    assert of_hugging_face(hidden_act="gelu_new").gelu == "tanh"
    assert of_hugging_face(hidden_act="relu").activation == "relu"
    early = {k: v for k, v in HUGGING_FACE.items() if k != "model_type"}
    assert config_from_dict(early) == config


def test_names_of_relatives_are_translated():
    config = of_hugging_face(rel_pos_bins=32, max_rel_pos=64)
    assert config.relative_position_buckets == 32
    assert config.relative_position_max_distance == 64
    # As the first of UniLM have it.
    assert of_hugging_face(rel_pos_bins=0, max_rel_pos=0) == of_hugging_face()
    config = of_hugging_face(model_type="mpnet", max_position_embeddings=514)
    assert config == of_hugging_face(
        max_position_embeddings=512, type_vocab_size=0, rel_pos_bins=32
    )


def test_every_field_survives_a_file_that_names_its_type(tmp_path):
    config = BertConfig(
        **SIZES,
        head_dim=5,
        activation="relu",
        gelu="tanh",
        max_positions=41,
        num_segments=3,
        relative_position_buckets=8,
        relative_position_max_distance=16,
        dropout=0.25,
        attention_dropout=0.125,
        initializer_range=0.5,
        layer_norm_epsilon=1e-7,
    )
    default = BertConfig()
    for field in dataclasses.fields(BertConfig):
        name = field.name
        assert getattr(config, name) != getattr(default, name), name
    config.to_json(tmp_path / "config.json")
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == (
        "bert"
    )
    assert config_from_json(tmp_path / "config.json") == config
    assert config_from_dict(config.to_dict()) == config
    # A file without a type is XLNet's.
    other = XLNetConfig.from_size("tiny")
    other.to_json(tmp_path / "config.json")
    assert config_from_json(tmp_path / "config.json") == other


def test_what_a_bert_has_not_is_fixed():
    config = BertConfig.from_size("tiny")
    assert (config.num_layers, config.head_dim) == (2, 64)
    assert (config.memory_length, config.reuse_length) == (0, 0)
    assert config.attention_type == "bidirectional"


def test_a_wrong_value_is_named():
    for overrides, error, message in [
        (
            {"max_positions": 0},
            ValueError,
            "`max_positions` must be a positive integer",
        ),
        ({"num_segments": -1}, ValueError, "`num_segments` must be an in"),
        ({"activation": "swish"}, ValueError, "must be gelu or relu"),
        ({"num_heads": 5}, ValueError, "multiple of `num_heads`"),
        (
            {"relative_position_buckets": 7},
            ValueError,
            "even number from 4 on. Received: relative_position_buckets=7",
        ),
        (
            dict(
                relative_position_buckets=32, relative_position_max_distance=8
            ),
            ValueError,
            "must be larger.* relative_position_max_distance=8",
        ),
    ]:
        with pytest.raises(error, match=message):
            BertConfig(**{**SIZES, **overrides})
    with pytest.raises(ValueError, match="BertConfig has no field memory_len"):
        BertConfig(**SIZES).replace(memory_length=3)
    for values, message in [
        ({"n_layer": 2, "d_model": 4}, r"lacks num_layers \(or num_hidden_la"),
        ({**SIZES, "hiden": 3}, "unknown keys: hiden"),
        ({**HUGGING_FACE, "model_type": "roberta"}, "model_type='roberta'"),
        ({**HUGGING_FACE, "is_decoder": True}, "`is_decoder` must be false"),
        (
            {**HUGGING_FACE, "position_embedding_type": "relative_key"},
            '`position_embedding_type` must be "absolute"',
        ),
        (
            {
                **HUGGING_FACE,
                "model_type": "mpnet",
                "relative_attention_num_buckets": 16,
            },
            "relative_attention_num_buckets=16",
        ),
    ]:
        with pytest.raises(ValueError, match=message):
            BertConfig.from_dict(values)
    with pytest.raises(ValueError, match="must be xlnet. Received: model_type"):
        XLNetConfig.from_dict(BertConfig(**SIZES).to_dict())
