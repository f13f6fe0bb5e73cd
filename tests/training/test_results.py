"""Results of runs are written whole, read back and set beside each other."""

import json

import numpy as np
import pytest

from xlnet_tf.training import results as finetuning_seeds

RUN = {
    "task": "mrpc",
    "metrics": {"f1": np.float32(0.75), "accuracy": 0.5},
    "seed": np.int64(3),
    "steps": 800,
    "examples": 3668,
    "preset": "presets/xlnet_base",
    "started_from": "pretrained",
}


def test_results_round_trip(tmp_path):
    written = finetuning_seeds.write_results(
        tmp_path, **RUN, details={"learning_rate": 2e-5}
    )
    results = finetuning_seeds.read_results(tmp_path)
    assert results == written
    found = results.pop("versions")
    assert {"python", "xlnet_tf", "keras", "numpy", "seqeval"} <= set(found)
    assert found["numpy"] == np.__version__
    assert results == RUN | {
        "metric": "f1",
        "value": 0.75,
        "metrics": {"f1": 0.75, "accuracy": 0.5},
        "seed": 3,
        "details": {"learning_rate": 2e-5},
    }
    assert [path.name for path in tmp_path.iterdir()] == ["results.json"]


def test_results_errors(tmp_path):
    with pytest.raises(FileNotFoundError, match="no results.json.*Received"):
        finetuning_seeds.read_results(tmp_path)
    with pytest.raises(ValueError, match="f1=nan"):
        finetuning_seeds.write_results(
            tmp_path, **RUN | {"metrics": {"f1": float("nan")}}
        )
    with pytest.raises(ValueError, match="a metric is expected"):
        finetuning_seeds.write_results(tmp_path, **RUN | {"metrics": {}})
    assert not list(tmp_path.iterdir())
    file = tmp_path / "results.json"
    file.write_text('{"task": "mrpc", "metric": "f1"}')
    with pytest.raises(ValueError, match="has no value, metrics, seed"):
        finetuning_seeds.read_results(tmp_path)
    file.write_text("[]")
    with pytest.raises(ValueError, match="has no task"):
        finetuning_seeds.read_results(tmp_path)
    file.write_text('{"task": ')
    with pytest.raises(ValueError, match="is not a JSON file"):
        finetuning_seeds.read_results(tmp_path)


def test_summary_of_seeds():
    summary = finetuning_seeds.seeds_summary([0.5, 0.25, 0.75, 0.875])
    assert summary == {
        "median": 0.625,
        "min": 0.25,
        "max": 0.875,
        "all": [0.5, 0.25, 0.75, 0.875],
    }
    with pytest.raises(ValueError, match="values=\\[\\]"):
        finetuning_seeds.seeds_summary([])


def test_summary_has_what_every_seed_has(tmp_path):
    results = [
        {"metrics": {"f1": 0.5, "only_here": 1.0}},
        {"metrics": {"f1": 0.75}},
    ]
    said = []
    finetuning_seeds.write_summary(tmp_path, results, said.append)
    assert said == ["f1: median 0.625 of 2 seeds, 0.5 to 0.75\n"]
    found = json.loads((tmp_path / "seeds.json").read_text())
    assert found == {"f1": finetuning_seeds.seeds_summary([0.5, 0.75])}


def run(task, value, seed, started_from="pretrained", more=None, **other):
    return {
        "task": task,
        "metric": "accuracy",
        "value": value,
        "metrics": {"accuracy": value, **(more or {})},
        "seed": seed,
        "examples": 1000,
        "preset": "presets/xlnet_base",
        "started_from": started_from,
    } | other


def test_table_of_starts_says_what_pretraining_gains():
    runs = [
        run("sst-2", 0.875, 1),
        run("race", 0.25, 1, examples=20),
        run("sst-2", 0.5, 1, "random", preset=None),
        run("sst-2", 0.9375, 2),
        run("sst-2", 0.8125, 3),
        run("race", 0.375, 1, "random", examples=20),
    ]
    table = finetuning_seeds.starts_table(runs)
    rows = [
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in table.splitlines()
    ]
    assert rows[2:] == [
        [
            *("sst-2", "1,000", "accuracy", "0.500"),
            *("0.875 (0.812 to 0.938)", "+0.375"),
        ],
        ["race", "20", "accuracy", "0.375", "0.250", "-0.125"],
    ]
    assert len({len(row) for row in rows}) == 1


def test_table_of_starts_has_rows_of_other_metrics():
    runs = [
        run("squad", 50.0, 0, more={"f1": 3.5, "loss": 9.0}),
        run("squad", 50.0, 0, "random", more={"f1": 3.0, "loss": 8.0}),
        run("race", 0.5, 0, more={"f1": 1.0}),
        run("race", 0.25, 0, "random"),
    ]
    table = finetuning_seeds.starts_table(runs, also=("f1",))
    assert table.splitlines()[2:] == [
        "| squad | 1,000 | accuracy | 50.000 | 50.000 | +0.000 |",
        "| squad | 1,000 | f1 | 3.000 | 3.500 | +0.500 |",
        "| race | 1,000 | accuracy | 0.250 | 0.500 | +0.250 |",
    ]


def test_table_errors():
    with pytest.raises(ValueError, match="seeds \\[\\] of race, random start"):
        finetuning_seeds.starts_table([run("race", 0.5, 4)])
    runs = [
        run("race", 0.5, 4),
        run("race", 0.6, 4),
        run("race", 0, 4, "random"),
    ]
    with pytest.raises(
        ValueError, match="seeds \\[4, 4\\] of race, pretrained"
    ):
        finetuning_seeds.starts_table(runs)
