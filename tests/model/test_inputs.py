"""Features that the backbone takes and refuses."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert_models import bert_config
from tests.support.oracle import as_numpy
from tests.support.oracle import small_config
from xlnet_tf import BertBackbone
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
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
                ValueError, match=f"below the number .*, 5.* of {place}[.]"
            ):
                call(features)
    in_graph = tf.function(lambda x: backbone(x)["query"])
    assert in_graph({**features, "target_positions": at * 0}).shape[1] == 2


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
