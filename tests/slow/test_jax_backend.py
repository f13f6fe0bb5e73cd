"""The core under Keras' JAX backend, on a machine without TensorFlow."""

import importlib.util
import json
import os

import pytest

import xlnet_tf
from tests.conftest import ROOT
from tests.support.commands import python

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
for kernel in ("auto", "plain"):
    model.backbone.attention_kernel = kernel
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
        print("agrees:", kernel, name)
"""

LEARN = """
def batches():
    while True:
        yield (features,)

memory = model.attach_memory(4)
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


DOCUMENTS = """
import keras, numpy as np, xlnet_tf
assert keras.backend.backend() == "jax"
config = xlnet_tf.XLNetConfig.from_size("tiny", memory_length=4)
model = xlnet_tf.XLNetTextClassifier(
    xlnet_tf.XLNetBackbone(config, seed=1), num_classes=2, segment_length=4
)
features = {"token_ids": np.arange(20, 60).reshape(4, 10)}
model.compile(keras.optimizers.SGD(0.1))
before = model.head.get_weights()[0]
model.fit(features, np.array([0, 1, 0, 1]), batch_size=2, verbose=0)
assert np.abs(model.head.get_weights()[0] - before).max() > 0
print("trains")
"""


ADAPTERS = """
import sys, keras, numpy as np, xlnet_tf
assert keras.backend.backend() == "jax"
config = xlnet_tf.XLNetConfig.from_size("tiny", dropout=0.0)
model = xlnet_tf.XLNetTextClassifier(
    xlnet_tf.XLNetBackbone(config, seed=1), num_classes=2, dropout=0.0
)
features = {"token_ids": np.arange(20, 60).reshape(4, 10)}
plain = np.array(model(features))
model.enable_lora(2)
np.testing.assert_array_equal(model(features), plain)
model.compile(keras.optimizers.Adam(1e-2))
losses = model.fit(features, np.array([0, 1, 0, 1]), epochs=20, verbose=0)
assert losses.history["loss"][-1] < 0.5 * losses.history["loss"][0]
place = sys.argv[3] + "-adapters"
model.save(place + ".keras")
model.save_to_preset(place)
for other in (
    keras.models.load_model(place + ".keras"),
    type(model).from_preset(place),
    model.without_lora(),
):
    np.testing.assert_allclose(other(features), model(features), atol=1e-5)
print("adapts")
"""


WAYS = """
import jax, keras, numpy as np, xlnet_tf
from xlnet_tf import XLNetConfig, XLNetBackbone
assert keras.backend.backend() == "jax"
config = XLNetConfig(
    vocabulary_size=31, num_layers=2, num_heads=2, hidden_dim=14, head_dim=6,
    intermediate_dim=19, memory_length=5, dropout=0.3, attention_dropout=0.2,
)
model = XLNetBackbone(config, seed=1)
rng = np.random.default_rng(0)
batch = {
    "token_ids": rng.integers(0, 31, (2, 7)),
    "memories": tuple(rng.normal(size=(2, 2, 5, 14)).astype("float32")),
    "dropout_seed": np.array([1, 2]),
}
"""
GRADIENTS = """
def loss(weights):
    outputs, _ = model.stateless_call(
        weights, [v.value for v in model.non_trainable_variables], batch,
        training=True,
    )
    return (outputs["content"] ** 3).sum()
weights = [v.value for v in model.trainable_variables]
plain = jax.jit(jax.grad(loss))(weights)
model.rematerialize = True
"""
ALIKE = """
again = jax.jit(jax.grad(lambda x: loss(x))).lower(weights)
assert "optimization_barrier" in again.as_text()
again = again.compile()(weights)
for a, b in zip(plain, again, strict=True):
    scale = max(1e-3, np.abs(a).max())
    np.testing.assert_allclose(a, b, atol=1e-5 * scale)
model.rematerialize = False
model.attention_kernel = "plain"
again = jax.jit(jax.grad(lambda x: loss(x)))(weights)
for a, b in zip(plain, again, strict=True):
    scale = max(1e-3, np.abs(a).max())
    np.testing.assert_allclose(a, b, atol=1e-5 * scale)
print("equal")
"""

BERT = """
import jax, keras, numpy as np, sys, xlnet_tf
assert keras.backend.backend() == "jax"
model = xlnet_tf.XLNetPretrainer.from_preset(sys.argv[4])
expected = dict(np.load(sys.argv[4] + "/expected.npz"))
names = "token_ids", "segment_ids", "perm_mask", "position_ids"
logits = model.logits(model({x: expected[x] for x in names})["content"])
np.testing.assert_allclose(logits, expected["literal_logits"], 0, 1e-5)
assert "tensorflow" not in sys.modules
print("agrees")

config = xlnet_tf.BertConfig(
    vocabulary_size=31, num_layers=2, num_heads=2, hidden_dim=14,
    intermediate_dim=19, dropout=0.3, attention_dropout=0.2,
    relative_position_buckets=8, relative_position_max_distance=6,
)
model = xlnet_tf.BertBackbone(config, seed=1)
rng = np.random.default_rng(0)
batch = {
    "token_ids": rng.integers(0, 31, (2, 7)),
    "factorization_rank": rng.integers(-1, 3, (2, 7)),
    "dropout_seed": np.array([1, 2]),
}
"""
RECOMPUTES = """
again = jax.jit(jax.grad(lambda x: loss(x)))(weights)
for one, two in zip(plain, again, strict=True):
    assert np.abs(one).max() > 0
    # But for a bias of the keys, which a softmax does not change with.
    scale = max(np.abs(one).max(), 1)
    np.testing.assert_allclose(one / scale, two / scale, rtol=0, atol=1e-5)
print("recomputes")
"""

COMPILED = """
import sys
import keras, numpy as np
from xlnet_tf import XLNetBackbone, XLNetConfig, XLNetPretrainer
backend = keras.backend.backend()
config = XLNetConfig(
    vocabulary_size=31, num_layers=2, num_heads=2, hidden_dim=14, head_dim=6,
    intermediate_dim=19, memory_length=5,
)
model = XLNetPretrainer(XLNetBackbone(config, seed=1))
model.compile(optimizer=keras.optimizers.SGD(0.1))
ids = np.random.default_rng(0).integers(0, 31, (2, 7))
targets = np.array([[3, 5], [2, 6]])
batch = dict(token_ids=ids, target_positions=targets, target_ids=targets)

def fit():
    model.fit(batch, batch_size=2, shuffle=False, verbose=0)

def written():
    return any(
        np.any(keras.ops.convert_to_numpy(x)) for x in model.memory.memories
    )

fit()
for mask_unwritten in (False, True):
    model.attach_memory(2, mask_unwritten=mask_unwritten)
    fit()
    assert written(), "the memory stayed zero"
calls = []
run = model.backbone.run_blocks
def spied(*args, **kwargs):
    calls.append(model.backbone.rematerialize)
    return run(*args, **kwargs)
model.backbone.run_blocks = spied
fit()
assert not calls  # compiled before
model.backbone.rematerialize = True
fit()
assert calls and all(calls)
found = model.predict(batch, batch_size=1, verbose=0)
assert sorted(found) == ["query", "token_correct", "token_loss"]
assert found["query"].shape == (2, 2, 14)
print("compiled again", backend)
"""

REFUSED = """
import keras, numpy as np, xlnet_tf
assert keras.backend.backend() == "jax"
config = xlnet_tf.XLNetConfig.from_size("tiny", vocabulary_size=97)
backbone = xlnet_tf.XLNetBackbone(config)
task = xlnet_tf.XLNetTextClassifier(backbone, num_classes=2)
ids = np.ones((2, 5), "int64")
def wrong(name, value):
    array = np.full((2, 5), value)
    array[0] = 1
    return {"token_ids": ids, name: array}
for name, value in (
    ("token_ids", 2**32 + 3), ("token_ids", -1), ("token_ids", 97),
    ("token_ids", 1.5), ("segment_ids", 2**32), ("padding_mask", np.nan),
    ("target_positions", 5),
):
    x = wrong(name, value)
    for call in (backbone, task, backbone.predict, task.predict):
        try:
            call(x)
        except ValueError as error:
            assert str(error).startswith(f"`{name}` must "), error
        else:
            raise AssertionError((name, value))
try:  # of JAX, where values are known
    backbone(keras.ops.convert_to_tensor(np.full((2, 5), 97)))
except ValueError as error:
    print(error)
"""

# Runs programs in turn, each in names of its own; what they printed, as JSON.
RUNNER = """
import contextlib, io, json, sys, traceback
printed = {}
for name, program in json.load(sys.stdin).items():
    with contextlib.redirect_stdout(io.StringIO()) as out:
        try:
            exec(compile(program, name, "exec"), {"__name__": name})
        except Exception:
            print(traceback.format_exc())
    printed[name] = out.getvalue().strip()
print(json.dumps(printed))
"""


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each program prints under JAX: dict of name to str.

    The weights were saved by TensorFlow.
    """
    place = tmp_path_factory.mktemp("jax")
    model = xlnet_tf.XLNetPretrainer.from_preset(
        GOLDEN, memory_length=8, reuse_length=8, reverse_half_batch=True
    )
    model.save_to_preset(place / "preset")
    (place / "path").mkdir()
    (place / "path" / "sitecustomize.py").write_text(NO_TENSORFLOW)
    programs = {
        "agree": SETUP + AGREE,
        "learn": SETUP + LEARN,
        "documents": DOCUMENTS,
        "adapters": ADAPTERS,
        "ways": WAYS + GRADIENTS + ALIKE,
        "bert": BERT + GRADIENTS + RECOMPUTES,
        "compiled": COMPILED,
        "refused": REFUSED,
    }
    arguments = [place / "preset", GOLDEN / "golden.npz", place / "new"]
    done = python(
        *("-c", RUNNER, *arguments, GOLDEN.parent / "peers" / "bert"),
        input=json.dumps(programs),
        KERAS_BACKEND="jax",
        JAX_PLATFORMS="cpu",
        PYTHONPATH=f"{place / 'path'}{os.pathsep}{ROOT}",
    )
    return json.loads(done.stdout)


def test_jax_agrees_with_the_released_code(printed):
    assert printed["agree"].count("agrees: ") == 8, printed["agree"]


def test_fit_learns_and_remembers_under_jax(printed):
    assert printed["learn"] == "learns"


def test_a_long_document_trains_under_jax(printed):
    assert printed["documents"] == "trains"


def test_adapters_train_and_are_merged_under_jax(printed):
    assert printed["adapters"] == "adapts"


def test_every_way_to_compute_gives_the_same_gradients_under_jax(printed):
    assert printed["ways"] == "equal"


def test_bert_agrees_and_recomputes_under_jax(printed):
    assert printed["bert"].split() == ["agrees", "recomputes"]


def test_wrong_features_are_refused_under_jax(printed):
    """Before JAX cuts integers to 32 bits."""
    expected = "`token_ids` must be from 0 to 96. Received: 97."
    assert printed["refused"] == expected


def test_what_is_changed_after_a_fit_takes_effect(printed, capsys):
    assert printed["compiled"] == "compiled again jax"
    exec(compile(COMPILED, "compiled", "exec"), {"__name__": "compiled"})
    assert capsys.readouterr().out.strip() == "compiled again tensorflow"


def test_the_core_passes_its_own_tests_under_jax():
    names = (
        *("model/test_masks", "model/test_relative_position"),
        *("model/test_attention", "config/test_xlnet", "config/test_bert"),
    )
    files = [str(ROOT / f"tests/xlnet_tf/{name}.py") for name in names]
    done = python(
        "-m", "pytest", "-q", *files, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu"
    )
    assert " passed" in done.stdout
