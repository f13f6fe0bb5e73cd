"""Released directories that are incomplete, damaged or do not fit."""

import pathlib
import shutil

import numpy as np
import pytest

import xlnet_tf
from tests.support.equality import assert_equal
from tests.support.oracle import as_numpy
from xlnet_tf.weights.preset import open_source

GOLDEN = pathlib.Path(__file__).parents[2] / "golden"


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
    model = read(GOLDEN / "base")
    again = xlnet_tf.XLNetPretrainer.from_preset(
        GOLDEN / "base" / "xlnet_model.ckpt"
    )
    assert_equal(model.weights, again.weights)


def test_the_latest_step_is_taken(released):
    for file in released.glob("xlnet_model.ckpt.*"):
        end = file.name.removeprefix("xlnet_model.ckpt")
        shutil.copy(file, released / f"xlnet_model.ckpt-100{end}")
        file.rename(released / f"xlnet_model.ckpt-20{end}")
    source = open_source(released)
    assert source.path.endswith("xlnet_model.ckpt-100")


def test_what_does_not_fit_is_listed_together(released):
    missing = "missing: .*layer_2/rel_attn/q/kernel.*; other shapes: "
    for overrides, message in (
        (
            dict(num_layers=3, vocabulary_size=121),
            missing + ".*lookup_table has .*r_w_bias has",
        ),
        (dict(num_layers=1), "unexpected: .*layer_1/ff/LayerNorm"),
        (dict(untie_biases=False), r"r_w_bias has \(2, 4, 8\), not \(4"),
    ):
        with pytest.raises(ValueError, match=message):
            read(released, **overrides)


def test_a_refused_checkpoint_leaves_the_model_as_it_was(released):
    model = xlnet_tf.XLNetPretrainer.from_preset(
        released, load_weights=False, num_layers=3
    )
    before = model.get_weights()
    with pytest.raises(ValueError, match="does not fit the model"):
        open_source(released).fill(model)
    assert_equal(before, model.get_weights())


def test_what_fits_is_loaded_when_asked_for_and_the_rest_is_named(released):
    with pytest.warns(UserWarning, match="missing: .*layer_2.*initial value"):
        model = xlnet_tf.XLNetPretrainer.from_preset(
            released, num_layers=3, strict=False
        )
    whole = read(GOLDEN / "base")
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
