"""Attention of GPUs in Pallas' interpreter, on Keras' JAX backend.

No quick test can have it: Keras has one backend a process, and the others
compute with TensorFlow.
"""

import json
import os
import subprocess
import sys

import pytest

jax = pytest.importorskip("jax", reason="jax is not installed")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        jax.__version_info__[:2] != (0, 10),
        reason="a GPU's program is lowered without one as JAX 0.10 does it",
    ),
]
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def found():
    environment = {**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-m", "tests.support.gpu_kernel"],
        capture_output=True,
        encoding="utf-8",
        env=environment,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def test_it_equals_the_plain_kernel(found):
    """Outputs and all gradients."""
    for case in (
        "everything",
        "first half",
        "blocks of one tile",
        "targets alone",
        "content alone, no masks",
    ):
        assert len(found[case]) == 9
        assert max(found[case]) < TOLERANCE, case


def test_a_model_learns_alike(found):
    assert len(found["model"]) > 20
    assert max(found["model"]) < TOLERANCE


def test_scores_by_distance_are_kept_or_computed_again(found):
    assert max(found["recomputed"]) < 1e-6


def test_bfloat16_is_nearer_to_float32_than_the_other_kernel(found):
    ours, other = found["bfloat16"]
    assert ours < other < 0.03


def test_other_sizes_are_computed_by_the_other_kernel(found):
    error, said = found["other sizes"]
    assert error == 0
    assert any("tokens (96)" in line for line in said)


def test_a_gpu_gets_it_by_default(found):
    """Two kernels forward, of content and targets, and four for gradients."""
    assert found["auto"]
    assert found["kernels"] == 6
