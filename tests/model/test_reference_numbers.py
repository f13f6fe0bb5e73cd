"""Agreement with numbers that the released code and others computed.

`golden/*/golden.npz` were computed by the released TensorFlow 1 code on small
random weights, in float32 on a CPU. Tolerances: 1e-5 absolute on outputs of
size about 1, for two programs that order float32 sums differently; gradients
add up over a whole batch, so they are held to 1e-4 of their largest entry.
"""

import functools
import json
import pathlib
import shutil

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.oracle import as_numpy
from xlnet_tf.weights.preset import open_source
from xlnet_tf.weights.released import backbone_weights
from xlnet_tf.weights.released import head_weights

GOLDEN = pathlib.Path(__file__).parents[1] / "golden"
NAMES = sorted(file.parent.name for file in GOLDEN.glob("*/xlnet_config.json"))
OUTPUT_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
FORMS = ["compact", "literal"]


@functools.cache
def load(name):
    """The model of a configuration, and its numbers."""
    run = json.loads((GOLDEN / name / "run.json").read_text())["run"]
    model = xlnet_tf.XLNetPretrainer.from_preset(
        GOLDEN / name,
        memory_length=run["mem_len"] or 0,
        reuse_length=run["reuse_len"] or 0,
        clamp_length=max(run["clamp_len"], 0),
        reverse_half_batch=run["bi_data"],
    )
    with np.load(GOLDEN / name / "golden.npz") as numbers:
        return model, dict(numbers)


def features_of(numbers, form):
    features = {
        "token_ids": numbers["input_ids"],
        "segment_ids": numbers["segment_ids"],
        "target_ids": numbers["target_ids"],
        "target_weights": numbers["target_weights"],
    }
    if "mems" in numbers:
        features["memories"] = tuple(numbers["mems"])
    if form == "literal":
        features["perm_mask"] = numbers["perm_mask"]
        features["target_mapping"] = numbers["target_mapping"]
    else:
        features["factorization_rank"] = numbers["perm_rank"]
        features["target_positions"] = numbers["target_positions"]
    return keras.tree.map_structure(tf.constant, features)


def table(model):
    return backbone_weights(model.backbone) + head_weights(model)


@functools.cache
def computed(name, form, is_compiled):
    """Outputs, and gradients by released variable name and layer."""
    model, numbers = load(name)
    variables = [weight.variable for weight in table(model)]

    def step(features):
        with tf.GradientTape() as tape:
            outputs = model(features)
        gradients = tape.gradient(
            outputs["loss"], [variable.value for variable in variables]
        )
        return outputs, [tf.convert_to_tensor(g) for g in gradients]

    if is_compiled:
        step = tf.function(step, jit_compile=True)
    return as_numpy(step(features_of(numbers, form)))


def test_all_four_configurations_are_here():
    assert NAMES == [
        "base",
        "bidirectional_data",
        "no_memory",
        "tied_biases_relu_clamp",
    ]


@pytest.mark.parametrize(
    "is_compiled",
    [False, pytest.param(True, marks=pytest.mark.slow)],
    ids=["eager", "xla"],
)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_outputs_agree_with_the_released_code(name, form, is_compiled):
    _, numbers = load(name)
    outputs, _ = computed(name, form, is_compiled)
    expected = {
        "query": numbers["two_stream_output"],
        "token_loss": numbers["token_loss"],
        "loss": numbers["loss"],
    }
    for key, value in expected.items():
        assert np.std(numbers["two_stream_output"]) > 0.1
        np.testing.assert_allclose(
            outputs[key], value, rtol=0, atol=OUTPUT_TOLERANCE, err_msg=key
        )
    assert ("memories" in outputs) == ("new_mems" in numbers)
    if "new_mems" in numbers:
        np.testing.assert_allclose(
            np.stack(outputs["memories"]),
            numbers["new_mems"],
            rtol=0,
            atol=OUTPUT_TOLERANCE,
        )


@pytest.mark.parametrize("is_compiled", [False, True], ids=["eager", "xla"])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_every_gradient_agrees_with_the_released_code(name, form, is_compiled):
    model, numbers = load(name)
    weights = table(model)
    assert len(weights) == len(model.trainable_variables)
    _, gradients = computed(name, form, is_compiled)
    for weight, gradient in zip(weights, gradients, strict=True):
        variable, layer = weight.name, weight.layer
        expected = numbers[f"grad/{variable}"]
        if layer is not None:
            expected = expected[layer]
        largest = np.abs(expected).max()
        assert largest > 1e-6, variable
        np.testing.assert_allclose(
            gradient,
            expected.reshape(gradient.shape),
            rtol=0,
            atol=GRADIENT_TOLERANCE * largest,
            err_msg=f"{variable} {layer}",
        )


@pytest.mark.parametrize("name", NAMES)
def test_the_padded_content_stream_agrees_with_the_released_code(name):
    model, numbers = load(name)
    # The released code fine-tunes with one direction whatever pretraining did.
    config = model.config.replace(reverse_half_batch=False)
    backbone = xlnet_tf.XLNetBackbone(config)
    backbone.set_weights(model.backbone.get_weights())
    outputs = backbone(
        {
            "token_ids": numbers["pad_input_ids"],
            "segment_ids": numbers["pad_segment_ids"],
            "padding_mask": 1 - numbers["pad_mask"],
        }
    )
    # Rows of padding are compared too: they see themselves, as released.
    np.testing.assert_allclose(
        as_numpy(outputs["content"]),
        numbers["sequence_output"],
        rtol=0,
        atol=OUTPUT_TOLERANCE,
    )


def test_an_independent_tiny_checkpoint_gives_its_recorded_numbers(shared):
    directory = shared / "data" / "xlnet_tf1_tiny_ckpt" / "pretrained"
    if not directory.is_dir():
        pytest.skip(f"there is no {directory.name} checkpoint")
    given = {f.stem: np.load(f) for f in directory.glob("*.npy")}
    model = xlnet_tf.XLNetPretrainer.from_preset(directory, memory_length=5)
    outputs = model(
        {
            "token_ids": given["input_ids"],
            "segment_ids": given["seg_ids"],
            # i may not attend to j >= i
            "perm_mask": np.triu(np.ones((2, 5, 5), "float32")),
            "target_positions": np.tile(np.arange(5), (2, 1)),
            "memories": (given["mems_0"], given["mems_1"]),
        }
    )
    for layer in (0, 1):
        np.testing.assert_allclose(
            as_numpy(outputs["memories"][layer]),
            given[f"pre_new_mems_{layer}"],
            rtol=0,
            atol=OUTPUT_TOLERANCE,
        )
    # Where its query mask is 0, the query stream there starts from the token
    # itself instead of w; a released pretraining run never asks for that.
    is_target = given["input_query"] == 1
    assert 0 < is_target.sum() < is_target.size
    probabilities = as_numpy(keras.ops.softmax(model.logits(outputs["query"])))
    # Probabilities are about 1/31, so 1e-5 would be too lax here.
    np.testing.assert_allclose(
        probabilities[is_target],
        given["pre_output"][is_target],
        rtol=0,
        atol=2e-7,
    )


@pytest.fixture
def released(tmp_path):
    """A copy of a released directory, to be damaged."""
    return pathlib.Path(shutil.copytree(GOLDEN / "base", tmp_path / "released"))


def read(directory, **overrides):
    return xlnet_tf.XLNetPretrainer.from_preset(directory, **overrides)


def test_a_directory_without_checkpoint_is_named(released):
    (released / "xlnet_model.ckpt.index").unlink()
    with pytest.raises(FileNotFoundError, match="released holds no TensorFlow"):
        read(released)


def test_of_several_checkpoints_none_is_guessed(released):
    file = released / "xlnet_model.ckpt.index"
    shutil.copy(file, released / "other.ckpt-7.index")
    with pytest.raises(
        ValueError, match="several checkpoints: other.ckpt-7, x"
    ):
        read(released)


def test_a_checkpoint_is_found_by_its_prefix():
    model, _ = load("base")
    again = xlnet_tf.XLNetPretrainer.from_preset(
        GOLDEN / "base" / "xlnet_model.ckpt"
    )
    for one, other in zip(model.weights, again.weights, strict=True):
        np.testing.assert_array_equal(as_numpy(one), as_numpy(other))


def test_the_latest_step_is_taken(released):
    for file in released.glob("xlnet_model.ckpt.*"):
        end = file.name.removeprefix("xlnet_model.ckpt")
        shutil.copy(file, released / f"xlnet_model.ckpt-100{end}")
        file.rename(released / f"xlnet_model.ckpt-20{end}")
    source = open_source(released)
    assert source.path.endswith("xlnet_model.ckpt-100")


def test_everything_that_does_not_fit_is_listed_together(released):
    message = (
        "missing: .*layer_2/rel_attn/q/kernel.*; other shapes: "
        ".*lookup_table has .*r_w_bias has"
    )
    with pytest.raises(ValueError, match=message):
        read(released, num_layers=3, vocabulary_size=121)


def test_a_checkpoint_of_more_layers_is_named(released):
    with pytest.raises(ValueError, match="unexpected: .*layer_1/ff/LayerNorm"):
        read(released, num_layers=1)


def test_tied_and_untied_biases_are_told_apart(released):
    with pytest.raises(ValueError, match=r"r_w_bias has \(2, 4, 8\), not \(4"):
        read(released, untie_biases=False)


def test_a_refused_checkpoint_leaves_the_model_as_it_was(released):
    model = xlnet_tf.XLNetPretrainer.from_preset(
        released, load_weights=False, num_layers=3
    )
    before = model.get_weights()
    with pytest.raises(ValueError, match="does not fit the model"):
        open_source(released).fill(model)
    for one, other in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(one, other)


def test_what_fits_is_loaded_when_asked_for_and_the_rest_is_named(released):
    with pytest.warns(UserWarning, match="missing: .*layer_2.*initial value"):
        model = xlnet_tf.XLNetPretrainer.from_preset(
            released, num_layers=3, strict=False
        )
    whole, _ = load("base")
    one = model.backbone.blocks[1].intermediate.kernel
    other = whole.backbone.blocks[1].intermediate.kernel
    np.testing.assert_array_equal(as_numpy(one), as_numpy(other))


@pytest.mark.parametrize("damage", ["no data", "cut", "flipped", "no index"])
def test_a_damaged_checkpoint_is_named(released, damage):
    data = released / "xlnet_model.ckpt.data-00000-of-00001"
    content = bytearray(data.read_bytes())
    if damage == "no data":
        data.unlink()
    elif damage == "cut":
        data.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        content[len(content) // 2] ^= 1
        data.write_bytes(content)
    else:
        (released / "xlnet_model.ckpt.index").write_bytes(b"")
    with pytest.raises(ValueError, match="cannot be read as a TensorFlow che"):
        read(released)
