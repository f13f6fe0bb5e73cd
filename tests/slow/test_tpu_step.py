"""The training step goes through the TPU compiler, with no TPU present."""

import importlib.util
import json
import os
import pathlib
import subprocess
import sys

import pytest

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/tpu_step.py"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("jax", "libtpu"))),
        reason="needs the TPU compiler: pip install '.[tpu]'",
    ),
]


def run(*options):
    return subprocess.run(
        [sys.executable, str(PROGRAM), *options],
        capture_output=True,
        encoding="utf-8",
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
    )


def compiled(*options):
    result = run(*options)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_the_base_step_fits_a_v5e():
    """Sequences of 512, memory of 384, 85 targets, bfloat16, 8 rows.

    Of twelve layers, counted as six times two: the embeddings, which are
    counted six times, are a margin.
    """
    two = compiled("--config", "base", "--batch-size", "8", "--num-layers", "2")
    report = {
        name: 6 * value
        for name, value in two.items()
        if isinstance(value, float | int)
    }
    # A v5e has 16 GB; the compiler refuses more, this keeps a margin.
    held = report["argument_bytes"] + report["temporary_bytes"]
    assert held + report["code_bytes"] < 16e9
    assert report["memory_share"] < 0.5
    # What moves bytes is what the chip would wait for: 102 GB at 819 GB/s.
    assert 0.01 < report["operations_seconds"] < report["bytes_seconds"] < 0.14
    # Of two layers, 0.472e12: 3 times the forward pass of 8 x 597 rows, and
    # the logits of 8 x 85.
    assert two["flops"] > 0.469e12


@pytest.mark.parametrize(
    ("objective", "backbone"), [("causal", "xlnet"), ("pseudo_masked", "bert")]
)
def test_a_step_of_other_objectives_compiles(objective, backbone):
    """A step of `masked` is a part of these on either backbone."""
    report = compiled(
        *("--config", "tiny", "--objective", objective, "--backbone", backbone),
        *("--sequence-length", "128", "--memory-length", "64"),
        *("--reuse-length", "0", "--num-predict", "19", "--num-layers", "1"),
    )
    assert report["objective"] == objective
    assert report["flops"] > 1e8 and report["code_bytes"] > 0


def test_wrong_options():
    for name, value, message in (
        ("config", "huge", "`size`"),
        ("batch-size", "0", "`batch_size`"),
    ):
        result = run(f"--{name}", value)
        assert result.returncode == 2
        assert result.stderr.splitlines()[-1].startswith(
            f"tpu_step.py: error: {message}"
        )
