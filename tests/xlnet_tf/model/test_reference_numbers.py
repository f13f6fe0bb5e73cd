"""Agreement with numbers that the released code and others computed.

`golden/*/golden.npz` were computed by the released TensorFlow 1 code on small
random weights, in float32 on a CPU. Tolerances: 1e-5 absolute on outputs of
size about 1, for two programs that order float32 sums differently; gradients
add up over a whole batch, so they are held to 1e-4 of their largest entry.
"""

import json
import pathlib

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.oracle import as_numpy
from xlnet_tf.weights.released import backbone_weights
from xlnet_tf.weights.released import head_weights

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"
NAMES = sorted(file.parent.name for file in GOLDEN.glob("*/xlnet_config.json"))
OUTPUT_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
FORMS = ["compact", "literal"]


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


def computed(model, features, jit_compile=False):
    """Outputs, and gradients by released variable name and layer."""
    variables = [weight.variable for weight in table(model)]

    def step(features):
        with tf.GradientTape() as tape:
            outputs = model(features)
        gradients = tape.gradient(
            outputs["loss"], [variable.value for variable in variables]
        )
        return outputs, [tf.convert_to_tensor(g) for g in gradients]

    if jit_compile:
        step = tf.function(step, jit_compile=True)
    return as_numpy(step(features))


def check(name, form, jit_compile=False, kernel="auto"):
    """Holds outputs and every gradient to the released code's numbers."""
    model, numbers = load(name)
    model.backbone.attention_kernel = kernel
    features = features_of(numbers, form)
    outputs, gradients = computed(model, features, jit_compile)
    check_outputs(outputs, numbers)
    check_gradients(model, gradients, numbers)


def check_outputs(outputs, numbers):
    assert np.std(numbers["two_stream_output"]) > 0.1
    expected = {
        "query": numbers["two_stream_output"],
        "token_loss": numbers["token_loss"],
        "loss": numbers["loss"],
    }
    assert ("memories" in outputs) == ("new_mems" in numbers)
    if "new_mems" in numbers:
        expected["memories"] = numbers["new_mems"]
    for key, value in expected.items():
        np.testing.assert_allclose(
            np.asarray(outputs[key]),
            value,
            rtol=0,
            atol=OUTPUT_TOLERANCE,
            err_msg=key,
        )


def check_gradients(model, gradients, numbers):
    weights = table(model)
    assert len(weights) == len(model.trainable_variables)
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


def test_all_four_configurations_are_here():
    assert NAMES == [
        "base",
        "bidirectional_data",
        "no_memory",
        "tied_biases_relu_clamp",
    ]


def test_outputs_and_every_gradient_agree_with_the_released_code():
    """The other configurations, and XLA, are in `slow/test_xla.py`."""
    check("bidirectional_data", "compact")
    check("tied_biases_relu_clamp", "literal")


def test_those_of_the_plain_kernel_too():
    check("bidirectional_data", "literal", kernel="plain")


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
