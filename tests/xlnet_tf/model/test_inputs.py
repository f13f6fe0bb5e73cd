"""Features that the backbone takes and refuses."""

import functools
import re

import keras
import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert_models import bert_config
from tests.support.oracle import as_numpy
from tests.support.oracle import small_config
from xlnet_tf import BertBackbone
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifier
from xlnet_tf.model.inputs import check_features
from xlnet_tf.model.inputs import given_features


def test_half_of_an_odd_number_of_rows_is_refused():
    config = small_config(reverse_half_batch=True)

    def is_reversed(token_ids):
        return check_features({"token_ids": token_ids}, config)["is_reversed"]

    ids = np.zeros((5, 7), "int32")
    np.testing.assert_array_equal(is_reversed(ids[:4]), [0, 0, 1, 1])
    assert is_reversed(ids[:0]).shape == (0,)
    for rows in (1, 5):
        with pytest.raises(ValueError, match=f"Received: {rows} rows"):
            is_reversed(ids[:rows])
    spec = tf.TensorSpec((None, 7), "int32")
    in_graph = tf.function(is_reversed, input_signature=[spec])
    np.testing.assert_array_equal(in_graph(ids[:2]), [0, 1])
    with pytest.raises(tf.errors.InvalidArgumentError, match="an even number"):
        in_graph(ids[:1])
    # Rows that say it themselves may be of any number.
    named = {"token_ids": ids, "is_reversed": np.ones(5)}
    assert as_numpy(check_features(named, config)["is_reversed"]).all()


def test_targets_outside_of_the_tokens_are_refused():
    backbone = XLNetBackbone(small_config(num_layers=1))
    bert = XLNetPretrainer(BertBackbone(bert_config(num_layers=1)))
    ids = np.ones((2, 5), "int32")
    for place in (-1, 5):
        at = np.array([[0, 4], [3, place]])
        features = {"token_ids": ids, "target_positions": at}
        for call in (
            lambda x: backbone(x),
            lambda x: XLNetPretrainer(backbone)(x),
            lambda x: bert({**x, "target_ids": ids[:, :2]}),
        ):
            with pytest.raises(
                ValueError, match=f"from 0 to 4. Received: {place}. If"
            ):
                call(features)
    in_graph = tf.function(lambda x: backbone(x)["query"])
    assert in_graph({**features, "target_positions": at * 0}).shape[1] == 2


IDS = np.ones((2, 5), "int32")
NAN = np.where(IDS, np.nan, 0)
# What is read as an integer, and a value that is none of its.
INTEGERS = {
    "token_ids": (-1, 97, 2**32 + 3),
    "segment_ids": (2**32, 2**31),
    "factorization_rank": (-2, 2**32),
    "target_positions": (-1, 5, 2**32),
}
MASKS = {
    "padding_mask": IDS,
    "perm_mask": np.zeros((2, 5, 5)),
    "target_mapping": np.eye(5)[None, :3].repeat(2, 0),
    "is_reversed": IDS[:, 0],
    "memory_mask": IDS[:, :3],
}


def _with(value, array):
    """The same array, as float where it must be, but for its last element."""
    array = np.array(array, getattr(value, "dtype", type(value)))
    array.flat[-1] = value
    return array


def _given(name, value):
    """Features with one of them, as arrays, tensors, and one array alone."""
    features = {"token_ids": IDS, name: value}
    if name == "memory_mask":
        features["memories"] = (np.ones((2, 3, 38), "float32"),)
    yield features
    yield {k: tf.nest.map_structure(tf.constant, features[k]) for k in features}
    if name == "token_ids":
        yield value


def test_values_that_no_feature_has_are_refused():
    config = small_config(num_layers=1)
    backbone = XLNetBackbone(config)
    task = XLNetTextClassifier(backbone, 2)
    wrong = [
        (name, _with(np.int64(value), IDS), str(value))
        for name, values in INTEGERS.items()
        for value in values
    ]
    wrong += [
        (name, _with(value, mask), str(value))
        for name, mask in MASKS.items()
        for value in (2, -1, 0.5, np.nan, -1e9)
    ]
    soft = MASKS["target_mapping"] + 0.0
    soft[0, 0, 1] = 1
    wrong += [("target_mapping", x, "the sum 2") for x in (soft, soft > 0)]
    for name, value, received in wrong:
        message = f"`{name}` must .*Received: .*{received}"
        for features in _given(name, value):
            for model in (backbone, task):
                with pytest.raises(ValueError, match=message) as error:
                    model(features)
                assert len(str(error.value).splitlines()) == 1
    bert = BertBackbone(bert_config(num_layers=1))
    for name, value in (
        ("token_ids", -1),
        ("token_ids", 97),
        ("segment_ids", -1),
        ("position_ids", -1),
        ("position_ids", 2**32),
        ("padding_mask", np.nan),
    ):
        with pytest.raises(ValueError, match=f"`{name}` must .* {value}[.]"):
            bert({"token_ids": IDS, name: _with(value, IDS)})
    pretrainer = XLNetPretrainer(backbone)
    for value in (-100, 97, 2**32):
        target_ids = _with(np.int64(value), IDS[:, :2])
        features = {"token_ids": IDS, "target_positions": IDS[:, :2]}
        with pytest.raises(ValueError, match=f"`target_ids` .* {value}. If"):
            pretrainer({**features, "target_ids": target_ids})


def test_what_features_have_is_taken():
    """Masks of any type; rows of padding have no target."""
    backbone = XLNetBackbone(small_config(num_layers=1))
    for name, mask in MASKS.items():
        for dtype in ("bool", "int8", "uint8", "float16", "float64"):
            for features in _given(name, mask.astype(dtype)):
                backbone(features)
    backbone({"token_ids": IDS, "target_mapping": np.zeros((2, 3, 5))})
    for name in INTEGERS:
        for dtype in ("bool", "uint8", "int64", "uint64"):
            backbone({"token_ids": IDS, name: IDS.astype(dtype)})
    ranks = np.array([[-1, 0, 1, 2, 5]] * 2)
    backbone({"token_ids": IDS, "factorization_rank": ranks})
    backbone({"token_ids": IDS, "segment_ids": -IDS})  # compared alone
    # What a backbone does not read may be anything.
    backbone({"token_ids": IDS, "start_positions": NAN, "target_ids": -IDS})


def test_numbers_with_a_point_are_no_ids():
    """Also in graphs, where values are not known."""
    backbone = XLNetBackbone(small_config(num_layers=1))
    for name in INTEGERS:
        features = {"token_ids": IDS, name: IDS + 0.0}
        for call in (backbone, tf.function(backbone)):
            message = f"`{name}` must have a type such as int32.*float"
            with pytest.raises(ValueError, match=message):
                call(features)
    with pytest.raises(ValueError, match="type such as int32.*float32"):
        backbone(keras.Input((5,)))
    with pytest.raises(ValueError, match="rows of one length"):
        backbone({"token_ids": tf.ragged.constant([[1], [2, 3]])})
    spec = tf.TensorSpec((None, None), "int64")
    in_graph = tf.function(
        lambda x: backbone(x)["content"]
    ).get_concrete_function(spec)
    assert in_graph(tf.ones((2, 3), "int64")).shape == (2, 3, 38)


def test_features_have_the_shapes_of_the_tokens():
    backbone = XLNetBackbone(small_config(num_layers=1))
    rows = np.zeros((2, 3, 38), "float32")
    for name, shape, expected in (
        ("perm_mask", (2, 5, 4), "[B, T, T] = (2, 5, 5)"),
        ("perm_mask", (1, 5, 5), "[B, T, T] = (2, 5, 5)"),
        ("factorization_rank", (1, 5), "[B, T] = (2, 5)"),
        ("target_mapping", (2, 3, 4), "[B, P, T] = (2, P, 5)"),
        ("target_mapping", (2, 3, 6), "[B, P, T] = (2, P, 5)"),
        ("target_positions", (1, 3), "[B, P] = (2, P)"),
        ("target_positions", (2,), "[B, P] = (2, P)"),
        ("is_reversed", (2, 1), "[B] = (2)"),
        ("memory_mask", (2, 4), "[B, M] = (2, 3)"),
        ("memories", (2, 3, 37), "[B, M, D] = (2, M, 38)"),
        ("memories", (1, 3, 38), "[B, M, D] = (2, M, 38)"),
        ("memories", (2, 38), "[B, M, D] = (2, M, 38)"),
    ):
        features = {"token_ids": IDS, "memories": (rows,)}
        features[name] = np.zeros(shape, "int32")
        if name == "memories":
            features[name] = (features[name],)
        message = re.escape(f"`{name}` must have the shape {expected}. Rec")
        for call in (backbone, tf.function(backbone)):
            with pytest.raises(ValueError, match=message):
                call(features)
    with pytest.raises(ValueError, match="T at least 1. Received: shape=.2, 0"):
        backbone(IDS[:, :0])


def test_features_are_arrays():
    backbone = XLNetBackbone(small_config(num_layers=1))
    for call in (backbone, functools.partial(backbone.predict, verbose=0)):
        for features in ([[1, 2], [3]], {"token_ids": [[1, 2], [3, 4]]}):
            with pytest.raises(ValueError, match="`token_ids` must be an arra"):
                call(features)
        for name, value in (("padding_mask", [[1]]), ("target_positions", 3)):
            with pytest.raises(ValueError, match=f"`{name}` must be an array"):
                call({"token_ids": IDS, name: value})
        # Keras itself fails where it counts the rows.
        with pytest.raises(ValueError, match="`perm_mask` must have the shape"):
            call({"token_ids": IDS, "perm_mask": np.ones((5, 5), bool)})
        for memories, found in (
            (np.zeros((1, 2, 3, 38), "float32"), "all. Received: "),
            ((np.zeros((2, 3, 38), "float32"),) * 2, "1 in all. Received: 2"),
            ((None,), "list of tensors. Received: None in it"),
        ):
            with pytest.raises(ValueError, match=f"`memories` must .*{found}"):
                call({"token_ids": IDS, "memories": memories})


def test_masks_have_the_shape_of_the_tokens():
    """A mask of one row would otherwise be that of every row."""
    tokens = np.ones((2, 5), "int32")
    for name in ("padding_mask", "segment_ids"):
        for shape in ((2, 4), (1, 5), (5,), (2, 5, 5)):
            features = {"token_ids": tokens, name: np.ones(shape, "int32")}
            with pytest.raises(
                ValueError, match=rf"`{name}` must have .* \(2, 5\). Received"
            ):
                given_features(features)
        given_features({"token_ids": tokens, name: tokens, "perm_mask": None})
