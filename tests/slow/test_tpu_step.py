"""The training step goes through the TPU compiler, with no TPU present."""

import importlib.util
import json
import pathlib

import pytest

from tests.support.commands import python

PROGRAM = pathlib.Path(__file__).resolve().parents[2] / "benchmarks/tpu_step.py"

pytestmark = [
    # Beside them no other test that takes gigabytes in a process of its own.
    pytest.mark.xdist_group("gigabytes"),
    pytest.mark.skipif(
        not all(map(importlib.util.find_spec, ("jax", "libtpu"))),
        reason="needs the TPU compiler: pip install '.[tpu]'",
    ),
]


def run(*options):
    return python(PROGRAM, *options, status=None)


def compiled(*options):
    result = run(*options)
    assert result.returncode == 0, result.stderr[-3000:]
    return json.loads(result.stdout.splitlines()[-1])


def test_the_base_step_in_one_kernel_fits_a_v5e():
    """Sequences of 512, memory of 384, 85 targets, bfloat16, 8 rows.

    Two layers: the last, of which little is computed for the content, and one
    of the eleven others.
    """
    two = compiled(
        *("--config", "base", "--batch-size", "8", "--num-layers", "2"),
        *("--attention-kernel", "fused"),
    )
    assert two["memory_share"] < 0.06
    # 0.30 GB; with tensors of scores it is 0.57 GB.
    assert two["temporary_bytes"] < 0.33e9
    # 6.9 GB, 2.5 of them to HBM, where scores would make it 15 and 4.9.
    assert two["bytes_moved"] < 7.2e9
    assert two["hbm_bytes"] < 2.7e9
    # 10.9 million beside the kernels'; 29 with scores.
    assert two["operation_cycles"] < 11.5e6
    # Of the projections and dense layers; those of kernels are not counted.
    assert 0.38e12 < two["flops"] < 0.42e12


@pytest.mark.parametrize("task", ["classification", "question_answering"])
def test_a_fine_tuning_step_of_jax_fits_a_v5e(task):
    """The step of `on_jax.make_step`: 8 rows of 512, bfloat16, two layers."""
    report = compiled(
        *("--task", task, "--config", "base", "--num-layers", "2"),
        *("--batch-size", "8", "--attention-kernel", "fused"),
    )
    assert (report["task"], report["topology"]) == (task, "v5e")
    assert report["memory_share"] < 0.05
    # 0.15 and 0.19 GB; 4.1 and 4.8 GB, of them 1.6 and 1.8 to HBM.
    assert report["temporary_bytes"] < 0.2e9
    assert report["bytes_moved"] < 5.4e9
    assert report["hbm_bytes"] < 2e9
    assert report["operation_cycles"] < 9.8e6
    assert 0.34e12 < report["flops"] < 0.4e12


def test_a_causal_step_compiles_for_a_v6e():
    report = compiled(
        *("--config", "tiny", "--objective", "causal", "--num-layers", "1"),
        *("--sequence-length", "128", "--memory-length", "128"),
        *("--reuse-length", "0", "--topology", "v6e"),
        *("--attention-kernel", "fused"),
    )
    assert (report["objective"], report["topology"]) == ("causal", "v6e")
    assert report["flops"] > 1e8 and report["code_bytes"] > 0


def test_wrong_options():
    result = run("--batch-size", "0")
    assert result.returncode == 2
    assert result.stderr.splitlines()[-1].startswith(
        "tpu_step.py: error: `batch_size`"
    )
