"""Attention of GPUs in Pallas' interpreter, on Keras' JAX backend.

No quick test can have it: Keras has one backend a process, and the others
compute with TensorFlow.
"""

import json

import pytest

from tests.support.commands import python

jax = pytest.importorskip("jax", reason="jax is not installed")

pytestmark = pytest.mark.skipif(
    jax.__version_info__[:2] != (0, 10),
    reason="other versions of JAX lower for a GPU in another way",
)
TOLERANCE = 1e-5


@pytest.fixture(scope="module")
def found():
    done = python(
        *("-m", "tests.support.gpu_kernel"),
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        # Compiling is most of it.
        JAX_DISABLE_MOST_OPTIMIZATIONS="1",
    )
    return json.loads(done.stdout.splitlines()[-1])


def test_it_equals_the_plain_kernel(found):
    """Outputs and all gradients, in cases of all options together."""
    cases = dict(found["cases"])
    assert cases.pop("no rows")
    assert len(cases) == 7
    for case, errors in cases.items():
        assert len(errors) == 9
        assert all(error < TOLERANCE for error in errors), (case, errors)


def test_a_model_learns_alike(found):
    loss, *gradients = found["model"]
    assert loss < TOLERANCE
    assert len(gradients) > 20
    assert all(error < 1e-4 for error in gradients)


def test_keys_behind_the_first_half_are_skipped(found):
    """By the promise alone: the mask of this test shows them."""
    assert found["broken promise"] < TOLERANCE


def test_very_many_scores_by_distance_are_computed_again(found):
    """Behind a barrier, or the compiler would keep the first ones."""
    assert found["barriers"] == [0, 1]


def test_narrow_types_are_nearer_to_float32_than_the_other_kernel(found):
    """bfloat16 within its own rounding, each of nine arrays."""
    narrow = found["narrow types"]
    for dtype, limit in (("bfloat16", 0.02), ("float16", 0.0025)):
        ours, other = narrow[f"{dtype} fused"], narrow[f"{dtype} other"]
        assert len(ours) == 9
        for one, two in zip(ours, other, strict=True):
            assert one < limit and one < 1.2 * two


def test_other_sizes_are_computed_by_the_other_kernel(found):
    error, said = found["other sizes"]
    assert error == 0
    assert any("tokens (96)" in line for line in said)


def test_gpus_before_ampere_are_refused(found):
    assert found["old"] == "a GPU of compute capability 7.5 is too old"


def test_a_gpu_gets_it_by_default(found):
    """Two kernels forward, of content and targets, and four for gradients."""
    assert found["auto"]
    assert found["kernels"] == 6
