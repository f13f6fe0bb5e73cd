"""The comparison of objectives: its commands, its table, its bad inputs."""

import json
import pathlib

import pytest
import yaml

from examples.compare_objectives import SETTINGS
from examples.compare_objectives import main
from examples.comparison import report
from examples.comparison.parts import Comparison
from examples.comparison.parts import check_plan
from examples.comparison.parts import keep_plan
from examples.comparison.parts import seconds_of_part
from tests.support.commands import refused

SYSTEMS = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))["systems"]


def comparison(output):
    settings = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    tasks = {"rte": [pathlib.Path("RTE")]}
    return Comparison(settings, ["a.txt"], "auto", tasks, output, 2, 40)


def options_of(command):
    words = [str(x) for x in command]
    return {
        a: b for a, b in zip(words, words[1:], strict=False) if a[:2] == "--"
    }


def test_systems_differ_in_what_they_say_and_nothing_else(tmp_path):
    models, training, records = {}, {}, {}
    for name, system in SYSTEMS.items():
        _, *command = comparison(tmp_path).pretrain(name, system)
        options = options_of(command)
        models[name] = json.loads(pathlib.Path(options["--config"]).read_text())
        training[name] = json.loads(
            pathlib.Path(options["--training"]).read_text()
        )
        records[name] = options["--records"]
    assert len(SYSTEMS) == 12
    assert {x["steps"] for x in training.values()} == {40}
    assert {x["warmup_steps"] for x in training.values()} == {10}
    plain = {**training["xlnet-k6"]}
    for name, values in training.items():
        changed = {x for x in values if values[x] != plain.get(x)}
        assert changed == set(SYSTEMS[name].get("pretraining", {}))
    assert models["no-memory"] == {**models["xlnet-k6"], "memory_length": 0}
    assert models["xlnet-k6"]["memory_length"] == 96
    assert models["unilm"]["relative_position_buckets"] == 32
    # From the same records, but where the records are what differs.
    assert records["xlnet-k6"] == records["denoising"] == records["no-memory"]
    assert records["bert"] == records["causal"] == records["unilm"]
    assert len(set(records.values())) == 4


def test_the_commands_before(tmp_path):
    tokenizer, records = comparison(tmp_path).prepare(SYSTEMS["no-spans"])
    words = [str(x) for x in records]
    assert "--both-directions" in words
    assert words[words.index("--spans") + 1] == "single_words"
    assert words[words.index("--reuse-length") + 1] == "0"
    assert str(tokenizer[0]) == str(tmp_path / "tokenizer")


def result(title, values, against=None, **more):
    summary = {
        "metric": "accuracy",
        "median": sorted(values)[len(values) // 2],
        "min": min(values),
        "max": max(values),
        "all": values,
    }
    return {
        "title": title,
        "against": against,
        "paper": None,
        "parameters": 1_234_567,
        "tokens": 1000,
        "curve": [(500, 9.0), (1000, 8.25)],
        "tasks": {"rte": summary},
        **more,
    }


def test_a_difference_counts_where_no_seeds_overlap():
    results = {
        "a": result("A", [0.5, 0.6, 0.7], paper=[1.5, 2, 3, 4]),
        "b": result("B", [0.71, 0.8, 0.9], "a"),
        "c": result("C", [0.7, 0.8, 0.9], "a"),
        "d": result("D", [0.2, 0.3, 0.49], "a"),
    }
    text = report.table(results, ["rte", "sst-2"])
    head, _, *rows = text.splitlines()
    assert head.startswith("| System | parameters | bits per target | rte, acc")
    assert rows[0] == (
        "| A | 1.23 M | 8.25 | 0.600 (0.500 to 0.700) | 1.5 | 2 | 3 | 4 |"
    )
    assert "0.800 (0.710 to 0.900) + |" in rows[1]
    assert "0.800 (0.700 to 0.900) |" in rows[2]
    assert "0.300 (0.200 to 0.490) - |" in rows[3]
    assert "3 seeds" in text and "B by A; C by A; D by A" in text
    figure = report.draw(results, ["rte", "sst-2"])
    assert [x.get_title("left") for x in figure.axes] == ["", "rte"]


def test_results_of_other_settings_are_not_mixed(tmp_path):
    first = comparison(tmp_path)
    first.tasks["rte"] = [pathlib.Path("a mistake")]
    check_plan(first, ["bert"])  # nothing is done yet
    keep_plan(first)
    first = comparison(tmp_path)
    keep_plan(first, ["bert"])
    keep_plan(first, ["unilm"], ["rte"])
    check_plan(comparison(tmp_path), ["bert", "unilm"])
    first.pretraining["steps"] = 41
    with pytest.raises(ValueError, match="results of other settings: pretrain"):
        check_plan(first, ["xlnet-k6"])
    other = comparison(tmp_path)
    other.settings["systems"]["unilm"]["title"] = "changed"
    check_plan(other, ["bert"])
    with pytest.raises(ValueError, match="results of other systems: unilm was"):
        check_plan(other, ["unilm"])
    other.tasks["rte"] = [pathlib.Path("elsewhere")]
    with pytest.raises(ValueError, match="results of other tasks: rte was"):
        check_plan(other, ["bert"])


def test_time_follows_from_steps_and_seeds(tmp_path):
    one, measured = comparison(tmp_path), {"start": 10.0, "step": 0.5}
    assert seconds_of_part(one, "pretrain", measured) == 10 + 40 * 0.5
    # 400 steps of 32 x 128 tokens, where a step of pretraining has 16 x 128.
    expected = 2 * (10 + 400 * 0.5 * 2)
    assert seconds_of_part(one, "rte", measured) == expected


def test_bad_files_of_settings_end_in_one_line(tmp_path, capsys):
    whole = yaml.safe_load(SETTINGS.read_text(encoding="utf-8"))
    file = tmp_path / "settings.yaml"
    for text, message in (
        (None, "there is no file of settings at"),
        ("", "does not hold a YAML object"),
        ("a: [", "is not a YAML file"),
        ("a: 1", "has unknown fields: a"),
        ("tasks: {}", "needs the entry vocabulary_size"),
        (
            yaml.safe_dump({**whole, "finetuning": {"steps": 3}}),
            "needs the entry finetuning with batch_size, sequence_length",
        ),
        (
            yaml.safe_dump({**whole, "systems": {"x": {"title": "X"}}}),
            "the system x needs a title, and a backbone, which is xlnet or",
        ),
    ):
        if text is not None:
            file.write_text(text)
        argv = ["--text", "a.txt", "--output", str(tmp_path / "out")]
        assert message in refused(capsys, main, *argv, "--settings", file)
        assert not (tmp_path / "out").exists()


def test_bad_options_end_in_one_line(tmp_path, capsys):
    text = ["--text", "a.txt", "--output", str(tmp_path / "out")]
    for options, message in (
        (["--only", "gpt"], "`--only` takes bert, denoising"),
        (["--seeds", "0"], "`--seeds` must be at least 1"),
        (["--steps", "0"], "`--steps` must be at least 1"),
        (["--tasks", "rte"], "a task must be NAME=DATA"),
        (["--tasks", "rte=a,b,c"], "a task must be NAME=DATA"),
        (["--tasks", "rtx=a"], "rtx"),
        (["--tasks", f"rte={tmp_path}/no"], "rte: there is no"),
    ):
        assert message in refused(capsys, main, *text, *options)
        assert not (tmp_path / "out").exists()
