"""Settings as options and files."""

import argparse
import dataclasses
import json

import pytest

from data_pipeline.base.settings import FRACTION_BELOW_1
from data_pipeline.base.settings import NOT_NEGATIVE
from data_pipeline.base.settings import POSITIVE
from data_pipeline.base.settings import Settings
from data_pipeline.base.settings import add_options
from data_pipeline.base.settings import setting


@dataclasses.dataclass(frozen=True)
class Recipe(Settings):
    steps: int = setting(10, "optimizer steps", POSITIVE)
    rate: float = setting(0.1, "of 100 %", POSITIVE)
    beta: float = setting(0.9, "of Adam", FRACTION_BELOW_1)
    warmup: int | None = setting(None, "steps", NOT_NEGATIVE)
    decay: str = setting("linear", "shape", choices=("linear", "cosine"))
    compiled: bool = setting(False, "whether XLA compiles")
    precision: str = setting(
        "float32",
        "of numbers",
        choices=("float32", "bfloat16", "float16"),
        meant={"fp16": "float16"},
    )


def parse(*argv):
    parser = argparse.ArgumentParser()
    add_options(parser, Recipe)
    assert "%" in parser.format_help()
    return parser.parse_args(argv)


def test_options_win_over_the_file_and_the_file_over_defaults(tmp_path):
    for name, text in (
        ("recipe.json", json.dumps({"steps": 3, "rate": 1, "compiled": True})),
        ("recipe.yaml", "steps: 3\nrate: 1\ncompiled: true\n"),
    ):
        file = tmp_path / name
        file.write_text(text)
        options = parse("--steps", "5", "--no-compiled", "--warmup", "2")
        found = Recipe.read(file, options, beta=0.5, rate=7.0)
        assert found == Recipe(5, 1, 0.5, 2, "linear", False)
        again = tmp_path / "again.json"
        again.write_text(json.dumps(found.to_dict()))
        assert Recipe.read(again) == found
    assert Recipe.read() == Recipe() == Recipe.read(None, parse())
    for number in ("1e-3", "1.e-3", "+1E-3"):  # text in YAML 1.1
        file.write_text(f"rate: {number}\n")
        assert Recipe.read(file).rate == 1e-3


def test_wrong_values_are_refused_in_one_line(tmp_path):
    for error, values, message in (
        (ValueError, {"steps": 0}, "`steps` must be a positive integer. R"),
        (TypeError, {"steps": 1.5}, "Received: steps=1.5"),
        (TypeError, {"steps": True}, "`steps` must be a positive integer"),
        (TypeError, {"steps": None}, "`steps` must be"),
        (ValueError, {"rate": float("nan")}, "`rate` must be a positive num"),
        (ValueError, {"rate": float("inf")}, "`rate`"),
        (ValueError, {"steps": 2**63}, "must be a positive integer of 64 bits"),
        (ValueError, {"rate": 10**400}, "must be a positive number of 64 bits"),
        (ValueError, {"beta": 1.0}, "`beta` must be in"),
        (ValueError, {"warmup": -1}, "an integer from 0 up"),
        (ValueError, {"decay": "steep"}, "must be linear or cosine. Received"),
        (ValueError, {"precision": "x"}, "one of float32, bfloat16 or float16"),
        (ValueError, {"precision": "FP16"}, "='FP16'; did you mean float16.$"),
        (ValueError, {"precision": "float6"}, "; did you mean float16.$"),
        (TypeError, {"compiled": 1}, "true or false"),
    ):
        with pytest.raises(error, match=message):
            Recipe(**values)
    for name, text, message in (
        ("a.json", "{", "is not a JSON file"),
        ("a.yaml", "a: [", "is not a YAML file"),
        ("b.json", "[]", "does not hold a JSON object"),
        ("b.yaml", "- 1", "b.yaml does not hold a YAML object"),
        ("e.yaml", "steps: 1\nsteps: 2", "YAML file: steps is there 2 times"),
        (
            "c.json",
            '{"step": 1}',
            "unknown fields: step; did you mean steps\\? Known are: steps",
        ),
        (
            "c.json",
            '{"a": 1, "b": 1, "c": 1, "d": 1, "e": 1, "f": 1, "g": 1}',
            "fields: a, b, c, d, e, and 2 more. Known are: steps",
        ),
        (
            "run.json",
            '{"backend": 1, "model": 1}',
            "fields: backend, model. .* are in .*training.json: give that fil",
        ),
        ("d.json", "[" * 100_000, "d.json is not a JSON file"),
        ("d.yaml", "[" * 2_000, "d.yaml is not a YAML file"),
    ):
        (tmp_path / name).write_text(text)
        with pytest.raises(ValueError, match=message):
            Recipe.read(tmp_path / name)
    (tmp_path / "d.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(ValueError, match="d.yaml is not a YAML file"):
        Recipe.read(tmp_path / "d.yaml")
    with pytest.raises(FileNotFoundError, match="no file of settings at"):
        Recipe.read(tmp_path / "none.json")


def test_a_file_of_aliases_is_not_written_out(tmp_path):
    """Some hundred bytes that stand for 9 ** 10 numbers."""
    lists = ["&a0 [" + "1, " * 9 + "]"]
    for number in range(9):
        lists.append(f"&a{number + 1} [" + f"*a{number}, " * 9 + "]")
    (tmp_path / "a.yaml").write_text(f"steps: [{', '.join(lists)}]")
    with pytest.raises(TypeError, match="`steps` must be a pos") as caught:
        Recipe.read(tmp_path / "a.yaml")
    assert len(str(caught.value)) < 300
