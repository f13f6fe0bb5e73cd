"""The core under Keras' JAX backend, on a machine without TensorFlow."""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

import xlnet_tf

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "bidirectional_data"

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("jax") is None, reason="jax is not installed"
)

# Python imports a module of this name at its start.
NO_TENSORFLOW = """
import sys

class NoTensorFlow:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("tensorflow", "tf_keras", "orbit"):
            raise ImportError(f"{name} is hidden from this test")

sys.meta_path.insert(0, NoTensorFlow())
"""

SETUP = """
import sys
import keras
import numpy as np
import xlnet_tf

try:
    import tensorflow
except ImportError as error:
    assert "hidden from this test" in str(error)
else:
    sys.exit("TensorFlow can be imported")
assert keras.backend.backend() == "jax"
model = xlnet_tf.XLNetPretrainer.from_preset(sys.argv[1])
numbers = np.load(sys.argv[2])
features = {
    "token_ids": numbers["input_ids"].astype("int32"),
    "segment_ids": numbers["segment_ids"].astype("int32"),
    "factorization_rank": numbers["perm_rank"].astype("int32"),
    "target_positions": numbers["target_positions"].astype("int32"),
    "target_ids": numbers["target_ids"].astype("int32"),
    "target_weights": numbers["target_weights"],
}
"""

AGREE = """
outputs = model({**features, "memories": tuple(numbers["mems"])})
for name, expected in (
    ("query", numbers["two_stream_output"]),
    ("token_loss", numbers["token_loss"]),
    ("loss", numbers["loss"]),
    ("memories", numbers["new_mems"]),
):
    value = keras.tree.map_structure(
        keras.ops.convert_to_numpy, outputs[name]
    )
    value = np.asarray(value)
    # the tolerance that the TensorFlow backend is held to as well
    np.testing.assert_allclose(value, expected, rtol=0, atol=1e-5)
    print("agrees:", name)
"""

LEARN = """
def batches():
    while True:
        yield (features,)

memory = model.remember(4)
model.compile(optimizer=keras.optimizers.AdamW(3e-3))
history = model.fit(batches(), steps_per_epoch=20, epochs=2, verbose=0)
losses = history.history["loss"]
assert losses[1] < losses[0] - 0.5, losses
assert all(np.any(keras.ops.convert_to_numpy(m)) for m in memory.memories)
model.save_to_preset(sys.argv[3])
again = xlnet_tf.XLNetPretrainer.from_preset(sys.argv[3])
np.testing.assert_array_equal(again(features)["loss"], model(features)["loss"])
assert "tensorflow" not in sys.modules
print("learns")
"""


def run(code, tmp_path):
    """Runs code under JAX with weights that TensorFlow saved."""
    model = xlnet_tf.XLNetPretrainer.from_preset(
        GOLDEN, memory_length=8, reuse_length=8, reverse_half_batch=True
    )
    model.save_to_preset(tmp_path / "preset")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "sitecustomize.py").write_text(NO_TENSORFLOW)
    arguments = [tmp_path / "preset", GOLDEN / "golden.npz", tmp_path / "new"]
    return subprocess.run(
        [sys.executable, "-c", SETUP + code, *map(str, arguments)],
        cwd=ROOT,
        env={
            **os.environ,
            "KERAS_BACKEND": "jax",
            "JAX_PLATFORMS": "cpu",
            "PYTHONPATH": f"{tmp_path / 'path'}{os.pathsep}{ROOT}",
        },
        capture_output=True,
        text=True,
    )


def test_jax_agrees_with_the_released_code(tmp_path):
    done = run(AGREE, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("agrees: ") == 4


@pytest.mark.slow
def test_fit_learns_and_remembers_under_jax(tmp_path):
    done = run(LEARN, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "learns"


@pytest.mark.slow
def test_the_core_passes_its_own_tests_under_jax():
    names = ("masks", "relative_position", "attention", "config")
    files = [str(ROOT / f"tests/test_{name}.py") for name in names]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *files],
        cwd=ROOT,
        env={**os.environ, "KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-3000:]
    assert " passed" in done.stdout
