"""The settings of a run: their checks, their file, their batch sizes."""

import dataclasses
import json

import pytest

from xlnet_tf.training.config import TrainingConfig

FIELDS = {field.name for field in dataclasses.fields(TrainingConfig)}
POSITIVE_INTEGERS = (
    "steps",
    "batch_size",
    "gradient_accumulation_steps",
    "steps_per_loop",
    "evaluation_interval",
    "evaluation_steps",
    "checkpoint_interval",
    "checkpoints_to_keep",
)
NUMBERS = (
    "learning_rate",
    "adam_epsilon",
    "weight_decay",
    "max_gradient_norm",
    "adam_beta_1",
    "adam_beta_2",
    "final_learning_rate_fraction",
)


def write(path, values):
    text = values if isinstance(values, str) else json.dumps(values)
    path.write_text(text, encoding="utf-8")
    return path


def test_defaults_are_those_of_the_paper():
    config = TrainingConfig()
    assert config.learning_rate == 1e-4
    assert config.weight_decay == 0.01
    assert config.adam_epsilon == 1e-6
    assert config.max_gradient_norm == 0.25
    assert not config.hide_empty_memory
    assert TrainingConfig(steps=500_000).warmup_steps == 40_000
    assert TrainingConfig(steps=5).warmup_steps == 0


def test_every_field_has_a_check():
    """A value of no field's kind is refused for each of them."""
    for name in FIELDS:
        with pytest.raises(TypeError, match=f"`{name}` must be.*Received"):
            TrainingConfig(**{name: [3]})


@pytest.mark.parametrize("name", POSITIVE_INTEGERS)
def test_positive_integers(name):
    # a multiple of 2 and of 3 where others divide it
    assert getattr(TrainingConfig(**{name: 6}), name) == 6
    with pytest.raises(ValueError, match=f"`{name}` must be a positive int"):
        TrainingConfig(**{name: 0})
    for wrong in (2.0, True, "2"):
        with pytest.raises(TypeError, match=f"{name}={wrong!r}"):
            TrainingConfig(**{name: wrong})


@pytest.mark.parametrize("name", ["warmup_steps", "seed"])
def test_integers_from_zero_up(name):
    assert getattr(TrainingConfig(**{name: 0}), name) == 0
    with pytest.raises(ValueError, match=f"`{name}` must be an integer from 0"):
        TrainingConfig(**{name: -1})


@pytest.mark.parametrize(
    ("name", "value"),
    [("adam_beta_1", 1.0), ("learning_rate", float("inf"))],
)
def test_numbers_have_an_upper_end(name, value):
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        TrainingConfig(**{name: value})


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_may_be_written_without_a_point(name):
    whole = 0 if "beta" in name else 1
    assert getattr(TrainingConfig(**{name: whole}), name) == whole
    with pytest.raises(ValueError, match=f"`{name}` must be"):
        TrainingConfig(**{name: -1e-9})
    for wrong in (True, "1"):
        with pytest.raises(TypeError, match=f"`{name}` must be"):
            TrainingConfig(**{name: wrong})


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("learning_rate", 0, "a positive number"),
        ("learning_rate", float("nan"), "a positive number"),
        ("adam_epsilon", 0.0, "a positive number"),
        ("next_sentence_weight", -0.5, "a number from 0 up"),
        ("next_sentence_weight", float("inf"), "a number from 0 up"),
        ("adam_beta_1", 1.5, r"in \[0, 1\)"),
        ("final_learning_rate_fraction", 1.1, r"in \[0, 1\]"),
        ("decay", "poly", "one of .*'cosine'"),
        ("precision", "float16", "one of .*'bfloat16'"),
    ],
)
def test_ranges(name, value, message):
    with pytest.raises(ValueError, match=f"`{name}` must be {message}"):
        TrainingConfig(**{name: value})


@pytest.mark.parametrize("name", ["weight_decay", "max_gradient_norm"])
def test_zero_switches_off(name):
    assert getattr(TrainingConfig(**{name: 0.0}), name) == 0


@pytest.mark.parametrize("name", ["jit_compile", "hide_empty_memory"])
def test_switches(name):
    assert getattr(TrainingConfig(**{name: True}), name) is True
    with pytest.raises(TypeError, match=f"`{name}` must be true or false"):
        TrainingConfig(**{name: 1})


def test_it_is_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        TrainingConfig().steps = 3


def test_precision_is_a_policy_of_keras():
    assert TrainingConfig().policy == "float32"
    assert TrainingConfig(precision="bfloat16").policy == "mixed_bfloat16"


def test_replica_batch_size():
    config = TrainingConfig(batch_size=30, gradient_accumulation_steps=5)
    assert config.replica_batch_size(1) == 30
    assert config.replica_batch_size(3) == 10
    with pytest.raises(
        ValueError,
        match="a multiple of 20 = 4 replicas x 5 acc.*batch_size=30",
    ):
        config.replica_batch_size(4)


def test_a_dict_of_it_makes_the_same():
    config = TrainingConfig(steps=70, decay="cosine", seed=9)
    assert set(config.to_dict()) == FIELDS
    assert TrainingConfig(**config.to_dict()) == config


def test_a_file_of_it_makes_the_same(tmp_path):
    config = TrainingConfig(steps=70, jit_compile=True, learning_rate=3e-3)
    file = write(tmp_path / "training.json", config.to_dict())
    assert TrainingConfig.from_json(file) == config
    assert TrainingConfig.from_json(str(file)) == config


def test_overrides_win_over_the_file(tmp_path):
    file = write(tmp_path / "training.json", {"steps": 70, "batch_size": 4})
    config = TrainingConfig.from_json(file, steps=200, seed=3)
    assert config == TrainingConfig(steps=200, batch_size=4, seed=3)
    # 8 % of the overriding number of steps
    assert config.warmup_steps == 16


def test_a_missing_file(tmp_path):
    with pytest.raises(FileNotFoundError, match="no training config at .*none"):
        TrainingConfig.from_json(tmp_path / "none.json")
    with pytest.raises(FileNotFoundError, match="no training config at"):
        TrainingConfig.from_json(tmp_path)


@pytest.mark.parametrize(
    ("content", "error", "message"),
    [
        ('{"steps": 3', ValueError, "training.json is not a JSON file"),
        ("", ValueError, "training.json is not a JSON file"),
        ("[]", ValueError, "training.json .*JSON object"),
        ("3", ValueError, "training.json .*JSON object"),
        ('["steps"]', ValueError, "training.json .*JSON object"),
        (
            {"learning_rat": 1, "step": 3},
            ValueError,
            "training.json has unknown fields: learning_rat, step. "
            "Known are: steps, ",
        ),
        ({"steps": 0}, ValueError, "`steps` must be a positive integer"),
        ({"steps": "9"}, TypeError, "`steps` must be a positive integer"),
    ],
)
def test_a_file_that_is_wrong(tmp_path, content, error, message):
    file = write(tmp_path / "training.json", content)
    with pytest.raises(error, match=message):
        TrainingConfig.from_json(file)
