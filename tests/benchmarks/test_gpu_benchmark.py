"""The GPU benchmark runs without a GPU at a tiny size, and counts right."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

from benchmarks import gpu

ROOT = pathlib.Path(__file__).resolve().parents[2]

needs_both = pytest.mark.skipif(
    not all(map(importlib.util.find_spec, ("jax", "torch", "transformers"))),
    reason="needs jax, torch and transformers",
)


def test_peaks():
    assert gpu.peak_of("NVIDIA H100 80GB HBM3") == 989e12
    assert gpu.peak_of("NVIDIA H100 PCIe") == 756e12
    assert gpu.peak_of("NVIDIA A100-SXM4-40GB") == 312e12
    assert gpu.peak_of("NVIDIA L4") == 121e12
    assert gpu.peak_of("cpu") is None
    assert gpu.peak_of("cpu", 2.5) == 2.5e12


def test_table():
    row = {
        "name": "A",
        "size": "base",
        "job": "training",
        "batch_size": 8,
        "device": "NVIDIA H200",
        "flops": 989e9,
        "first_seconds": 9.0,
        "seconds": [0.002, 0.004, 0.001],
        "peak_bytes": 3 * 2**30,
    }
    failed = {k: row[k] for k in ("name", "size", "job", "batch_size")}
    lines = gpu.table([row, {**failed, "reason": "no room"}])
    assert "| 2.00 ms (1.50 to 3.00) | 50.0% | 3.0 GiB | 9.0 s |" in lines[2]
    assert "| no room |" in lines[3]
    assert "| unknown |" in gpu.table([{**row, "device": "cpu"}])[2]


def run_tiny(tmp_path, *options):
    done = subprocess.run(
        [sys.executable, str(ROOT / "benchmarks" / "gpu.py"), "--tiny"]
        + ["--size", "base", "--output", str(tmp_path), *options],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    return json.loads((tmp_path / "gpu.json").read_text())


@needs_both
@pytest.mark.slow
def test_it_runs_on_a_cpu(tmp_path):
    names = ["xlnet_tf", "xlnet_tf, rematerialised", "Hugging Face"]
    contenders = [part for name in names for part in ("--contender", name)]
    rows = run_tiny(tmp_path, *contenders)
    assert [(row["name"], row["job"]) for row in rows] == [
        *((name, "training") for name in names),
        ("xlnet_tf", "inference"),
        ("Hugging Face", "inference"),
    ]
    plain, again, peer = (row["result"] for row in rows[:3])
    # About log(512) for random guesses; the same numbers with and without
    # recomputation, up to bfloat16.
    assert plain == pytest.approx(again, rel=1e-2)
    assert plain == pytest.approx(6.2, rel=0.2)
    assert peer == pytest.approx(6.2, rel=0.2)


def test_a_failure_is_a_row():
    printed = "Traceback\n  x\njax.errors.XlaRuntimeError: out of memory\n\n"
    assert gpu._reason(printed).endswith("out of memory")
    assert gpu._reason("") == "it ended without a word"
