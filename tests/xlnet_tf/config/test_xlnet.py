"""The config: what it accepts, and the files it reads and writes."""

import dataclasses
import json

import numpy as np
import pytest

from tests.support.oracle import SIZES
from tests.support.oracle import small_config
from xlnet_tf import XLNetConfig

RELEASED = {
    "d_head": 17,
    "d_inner": 23,
    "d_model": 38,
    "ff_activation": "relu",
    "n_head": 11,
    "n_layer": 2,
    "n_token": 97,
    "untie_r": False,
}


def write(path, values):
    path.write_text(json.dumps(values), encoding="utf-8")
    return path


def test_released_file_round_trips_to_the_same_keys_and_values(tmp_path):
    config = XLNetConfig.from_json(write(tmp_path / "a.json", RELEASED))
    assert config == small_config(activation="relu", untie_biases=False)
    config.to_json(tmp_path / "b.json")
    written = json.loads((tmp_path / "b.json").read_text())
    # Which the released code passes over: 0 is a choice, and none leaves it.
    assert written.pop("memory_length") == 0
    assert written == RELEASED


def test_numbers_of_numpy_are_numbers():
    values = {
        name: np.asarray(value)[()] for name, value in SIZES.items()
    } | dict(dropout=np.float32(0.5), untie_biases=np.bool_(False))
    config = XLNetConfig(**values)
    assert config == small_config(dropout=0.5, untie_biases=False)
    json.dumps(config.to_dict())
    for value in (np.array([3]), np.float64(3), np.bool_(True)):
        with pytest.raises(TypeError, match="`num_layers` must be a positive"):
            small_config(num_layers=value)
    with pytest.raises(ValueError, match="at most 1000. Received: num_layers"):
        small_config(num_layers=1001)
    # A value of a file is not shown at its full length.
    with pytest.raises(TypeError) as error:
        small_config(num_layers="9" * 10**6)
    assert len(str(error.value)) < 200


def test_every_field_survives_a_file(tmp_path):
    config = small_config(
        activation="relu",
        gelu="erf",
        untie_biases=False,
        memory_length=5,
        reuse_length=3,
        clamp_length=29,
        same_length=True,
        attention_type="causal",
        reverse_half_batch=True,
        dropout=0.25,
        attention_dropout=0.125,
        initializer_range=0.5,
        layer_norm_epsilon=1e-7,
    )
    default = XLNetConfig()
    for field in dataclasses.fields(XLNetConfig):
        name = field.name
        assert getattr(config, name) != getattr(default, name), name
    config.to_json(tmp_path / "config.json")
    assert XLNetConfig.from_json(tmp_path / "config.json") == config
    assert XLNetConfig.from_dict(config.to_dict()) == config


def test_hugging_face_file_gives_xlnet_base_with_the_exact_gelu(shared):
    file = shared / "data" / "spiece" / "hf_xlnet-base-cased_config.json"
    if not file.is_file():
        pytest.skip(f"there is no {file.name}")
    expected = XLNetConfig.from_size("base", gelu="erf")
    assert XLNetConfig.from_json(file) == expected


def test_hugging_face_names_and_values_are_translated():
    config = XLNetConfig.from_dict(
        {
            **RELEASED,
            "model_type": "xlnet",
            "n_token": 101,
            "attn_type": "uni",
            "bi_data": True,
            "clamp_len": 19,
            "mem_len": 7,
            "reuse_len": 3,
            "same_length": True,
            "dropout": 0.375,
            "layer_norm_eps": 1e-5,
            "initializer_range": 0.0625,
            "summary_type": "last",
        }
    )
    assert config == small_config(
        vocabulary_size=101,
        activation="relu",
        gelu="erf",
        untie_biases=False,
        attention_type="causal",
        reverse_half_batch=True,
        clamp_length=19,
        memory_length=7,
        reuse_length=3,
        same_length=True,
        dropout=0.375,
        attention_dropout=0.375,
        layer_norm_epsilon=1e-5,
        initializer_range=0.0625,
    )
    # Which that code does not look at where it is not causal.
    values = {**RELEASED, "model_type": "xlnet", "same_length": True}
    for kind in ({}, {"attn_type": "bi"}):
        assert not XLNetConfig.from_dict({**values, **kind}).same_length


def test_minus_one_means_no_clamp_in_files():
    values = {**RELEASED, "clamp_length": -1}
    assert XLNetConfig.from_dict(values).clamp_length == 0


def test_named_sizes_are_the_released_ones():
    base, large = XLNetConfig.from_size("base"), XLNetConfig.from_size("large")
    assert base == XLNetConfig()
    assert large == XLNetConfig(
        num_layers=24,
        num_heads=16,
        hidden_dim=1024,
        head_dim=64,
        intermediate_dim=4096,
    )
    assert XLNetConfig.from_size("tiny", dropout=0.5).dropout == 0.5
    assert XLNetConfig.from_size("small").num_layers == 6


def test_head_dim_follows_from_the_width():
    assert XLNetConfig(hidden_dim=66, num_heads=11).head_dim == 6


def test_replace_changes_only_what_is_named():
    config = small_config().replace(memory_length=5)
    assert config == small_config(memory_length=5)


def test_a_config_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        small_config().dropout = 0.5


def test_a_wrong_size_is_named():
    for name in SIZES:
        for value, error, message in [
            (0, ValueError, "must be a positive integer. Received: {}=0"),
            (2.0, TypeError, "must be a positive integer. Received: {}=2.0"),
            (True, TypeError, "must be a positive integer. Received: {}=T"),
        ]:
            expected = f"`{name}` {message.format(name)}"
            with pytest.raises(error, match=expected):
                small_config(**{name: value})


def test_a_wrong_value_is_named():
    for overrides, error, message in [
        ({"memory_length": -1}, ValueError, "an integer from 0 up"),
        ({"reuse_length": -2}, ValueError, "`reuse_length` must be an in"),
        ({"clamp_length": "3"}, TypeError, "`clamp_length` must be an integer"),
        ({"untie_biases": 1}, TypeError, "untie_biases=1"),
        ({"same_length": "no"}, TypeError, "same_length='no'"),
        ({"reverse_half_batch": None}, TypeError, "must be true or false"),
        ({"dropout": 1.0}, ValueError, r"`dropout` must be in \[0, 1\)"),
        ({"attention_dropout": -0.1}, ValueError, "attention_dropout=-0.1"),
        ({"dropout": "0.1"}, TypeError, "`dropout` must be in"),
        (
            {"initializer_range": 0},
            ValueError,
            "`initializer_range` must be a p",
        ),
        ({"layer_norm_epsilon": -1.0}, ValueError, "must be a positive number"),
        ({"initializer_range": float("inf")}, ValueError, "a positive number"),
        ({"activation": "swish"}, ValueError, "must be gelu or relu"),
        ({"gelu": "exact"}, ValueError, "must be tanh or erf"),
        ({"attention_type": "uni"}, ValueError, "bidirectional or causal"),
        ({"hidden_dim": 37}, ValueError, "must be even.* hidden_dim=37"),
        ({"same_length": True}, ValueError, 'set `attention_type` to "causal"'),
        (
            {"head_dim": None},
            ValueError,
            "multiple of `num_heads`.* hidden_dim=38, num_heads=11",
        ),
        ({"num_layers": None}, TypeError, "`num_layers` must be a positive"),
        ({"dropout": True}, TypeError, "`dropout` must be in .*dropout=True"),
    ]:
        with pytest.raises(error, match=message):
            small_config(**overrides)
    with pytest.raises(ValueError, match="tiny, small, base, large.*'huge'"):
        XLNetConfig.from_size("huge")
    with pytest.raises(ValueError, match="no field memory_lenght. Its fields"):
        small_config().replace(memory_lenght=3)
    with pytest.raises(ValueError, match=r"lacks num_heads \(or n_head\), hid"):
        XLNetConfig.from_dict({"n_layer": 2})
    with pytest.raises(ValueError, match="unknown keys: n_toke"):
        XLNetConfig.from_dict({**RELEASED, "n_toke": 3})
    with pytest.raises(ValueError, match="unknown keys: vocab_size"):
        XLNetConfig.from_dict({**RELEASED, "vocab_size": 3})


def test_what_is_wrong_with_a_file_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no config file at .*none.js"):
        XLNetConfig.from_json(tmp_path / "none.json")
    for text, error, message in [
        ("{'n_layer': 2", ValueError, "a.json is not a JSON file: "),
        ("[1, 2]", ValueError, "a.json does not hold a JSON object"),
        (
            json.dumps({**RELEASED, "n_layer": "2"}),
            TypeError,
            "a.json: `num_layers` must be a positive",
        ),
    ]:
        (tmp_path / "a.json").write_text(text)
        with pytest.raises(error, match=message):
            XLNetConfig.from_json(tmp_path / "a.json")
