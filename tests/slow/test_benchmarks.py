"""A whole run of the benchmarks at tiny sizes writes its tables."""

import json
import pathlib

import pytest

from benchmarks.contest.process import ROOT
from benchmarks.contest.rounds import quartiles
from tests.support.commands import python

FIELDS = {
    "name",
    "library",
    "framework",
    "items",
    "status",
    "reason",
    "seconds",
    "ratios",
    "seconds_quartiles",
    "ratio_quartiles",
    "items_per_second",
    "flops_per_second",
    "share_of_matmul_rate",
    "facts",
    "first_seconds",
    "warm_seconds",
    "set_up_seconds",
    "matmul_rate",
    "baseline_bytes",
    "peak_bytes",
    "running_bytes",
}


def benchmark(program, output, *options):
    """Runs a program at tiny sizes; returns what it printed."""
    path = pathlib.Path(ROOT, "benchmarks", program)
    arguments = ["--tiny", "--rounds", "2", "--output", str(output), *options]
    result = python(path, *arguments, cwd=output)
    return result.stdout


def check_results(output, measured):
    """Every field is there; returns the results."""
    results = json.loads((output / "results.json").read_text())
    page = (output / "results.md").read_text()
    assert results["machine"]["cores"] > 0
    assert results["machine"]["versions"]["tensorflow"]
    assert [m["name"] for m in results["measurements"]] == measured
    for measurement in results["measurements"]:
        assert measurement["title"] in page
        rows = measurement["contenders"]
        assert rows[0]["ratios"] == [1.0] * len(rows[0]["seconds"])
        for row in rows:
            assert f"{row['name']}" in page
            if row["status"] == "skipped":
                assert row["reason"] in page
                continue
            assert set(row) == FIELDS
            assert len(row["seconds"]) >= 2 and min(row["seconds"]) > 0
            assert row["seconds_quartiles"] == quartiles(row["seconds"])
            assert row["peak_bytes"] >= row["baseline_bytes"] > 1e7
    return results


def test_what_a_run_writes(tmp_path):
    printed = benchmark(
        "run.py",
        tmp_path,
        *("--only", "inference_2x8", "--only", "record_building"),
        *("--only", "question_features"),
        *("--contender", "xlnet_tf*", "--contender", "SentencePiece*"),
    )
    names = ["inference_2x8", "record_building", "question_features"]
    results = check_results(tmp_path, names)
    inference, building, questions = results["measurements"]
    assert [row["name"] for row in inference["contenders"]] == [
        "xlnet_tf, XLA",
        "xlnet_tf, no XLA",
    ]
    for row in inference["contenders"]:
        median = row["seconds_quartiles"][1]
        assert row["items_per_second"] == pytest.approx(2 / median)
        rates = [r["matmul_rate"] for r in inference["contenders"]]
        assert row["share_of_matmul_rate"] == pytest.approx(
            inference["flops"] / median / max(rates)
        )
    assert building["contenders"][1]["library"] == "SentencePiece"
    assert building["flops"] is None
    assert questions["items"] == 20
    assert len(questions["contenders"]) == 1
    assert results["settings"]["text"].startswith("made-up words")
    assert "| xlnet_tf, no XLA |" in printed


def test_contenders_on_a_gpu_take_turns(tmp_path):
    """Their step on a CPU: that of PyTorch may be missing."""
    pytest.importorskip("jax", reason="jax is not installed")
    printed = benchmark(
        "gpu.py",
        tmp_path,
        *("--together", "--size", "base", "--job", "training"),
        *("--contender", "xlnet_tf", "--contender", "xlnet_tf, plain"),
    )
    rows = json.loads((tmp_path / "gpu.json").read_text())
    assert [row["name"] for row in rows] == ["xlnet_tf", "xlnet_tf, plain"]
    for row in rows:
        assert len(row["seconds"]) == 1 and row["seconds"][0] > 0
        # Of the same model, batch and dropout, after the same steps.
        assert row["result"] == pytest.approx(rows[0]["result"], rel=1e-2)
        assert f"| tiny training, 2 rows of 16 | {row['name']} | " in printed
