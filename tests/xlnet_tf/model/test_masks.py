"""Who may attend to whom, as matrices. 1 = may attend."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import ops

from tests.support import oracle
from tests.support.oracle import M
from tests.support.oracle import as_numpy
from tests.support.oracle import literal
from tests.support.oracle import small_config
from tests.support.oracle import small_features
from xlnet_tf.model.masks import attention_mask
from xlnet_tf.model.masks import causal_mask
from xlnet_tf.model.masks import literal_masks
from xlnet_tf.model.masks import other_segment
from xlnet_tf.model.masks import permutation_masks
from xlnet_tf.model.masks import pseudo_masks


def matrix(text):
    """'110 101' -> bool [2, 3]."""
    return np.array([[c == "1" for c in row] for row in text.split()])


def same(mask, text):
    np.testing.assert_array_equal(ops.convert_to_numpy(mask), matrix(text))


def mask_of(features, memory_length=0, **overrides):
    positions = features.get("target_positions")
    config = small_config(**overrides)
    mask = attention_mask(features, positions, config, memory_length)
    return None if mask is None else as_numpy(mask)


def ids(num_tokens):
    return np.arange(num_tokens, dtype="int32")[None] + 11


def test_the_figure_of_the_paper_for_the_order_3_2_4_1():
    # Figure 1: token 3 is first, then 2, 4, 1.
    rank = np.array([[3, 1, 0, 2]], "int32")
    content, query = permutation_masks(rank)
    same(content[0], "1111 0110 0010 0111")
    same(query[0], "0111 0010 0000 0110")


def test_context_is_seen_by_all_and_tied_targets_do_not_see_each_other():
    # Two halves permuted apart: each has its own step 0 and step 1. Tokens 0
    # and 3 are context.
    rank = np.array([[-1, 1, 0, -1, 0, 1]], "int32")
    content, query = permutation_masks(rank)
    same(content[0], "100100 111111 101110 100100 101110 111111")
    same(query[0], "000000 101110 100100 000000 100100 101110")


def test_literal_masks_invert_the_polarity_and_show_each_token_itself():
    hidden = np.array([[[1, 0, 1], [1, 1, 0], [0, 0, 1]]], "float32")
    content, query = literal_masks(hidden)
    same(content[0], "110 011 111")
    same(query[0], "010 001 110")
    _, query = literal_masks(hidden, np.array([[2, 0]], "int32"))
    same(query[0], "110 010")


@pytest.mark.parametrize("memory_length", [0, M])
def test_compact_and_literal_features_give_the_same_mask(memory_length):
    features = small_features(memory_length=memory_length)
    as_released = literal(features)
    as_released["target_positions"] = features["target_positions"]
    del as_released["target_mapping"]
    np.testing.assert_array_equal(
        mask_of(features, memory_length), mask_of(as_released, memory_length)
    )


@pytest.mark.parametrize("memory_length", [0, M])
def test_all_reasons_together_equal_plain_loops(memory_length):
    features = small_features(memory_length=memory_length)
    expected = oracle.attention_mask(features, memory_length)
    np.testing.assert_array_equal(mask_of(features, memory_length), expected)


def test_causal_mask_sees_memory_the_past_and_itself():
    same(causal_mask(4, 0), "1000 1100 1110 1111")
    same(causal_mask(3, 2), "11100 11110 11111")


def test_same_length_sees_as_many_keys_from_every_token():
    same(causal_mask(4, 0, same_length=True), "1000 1100 1110 1111")
    same(causal_mask(3, 2, same_length=True), "11100 01110 00111")


def test_a_causal_model_joins_the_order_the_targets_and_the_memory():
    features = {
        "token_ids": ids(3),
        "factorization_rank": np.array([[1, -1, 0]], "int32"),
        "target_positions": np.array([[2, 0]], "int32"),
    }
    mask = mask_of(features, 2, attention_type="causal")
    same(mask[0], "11100 11010 11011 11010 11000")
    mask = mask_of(features, 2, attention_type="causal", same_length=True)
    same(mask[0], "11100 01010 00011 00010 11000")


def test_a_causal_model_without_an_order_sees_the_past():
    mask = mask_of({"token_ids": ids(3)}, 2, attention_type="causal")
    same(mask[0], "11100 11110 11111")


def test_nothing_to_hide_needs_no_mask():
    assert mask_of({"token_ids": ids(3)}) is None
    assert mask_of({"token_ids": ids(3)}, M) is None


def test_without_an_order_a_target_sees_all_but_itself():
    features = {
        "token_ids": ids(3),
        "target_positions": np.array([[2, 0]], "int32"),
    }
    same(mask_of(features)[0], "111 111 111 110 011")
    same(mask_of(features, 1)[0], "1111 1111 1111 1110 1011")


def test_padding_is_seen_by_its_own_content_row_only():
    features = {
        "token_ids": ids(4),
        "padding_mask": np.array([[0, 1, 1, 0]], "int32"),
    }
    same(mask_of(features)[0], "1110 0110 0110 0111")
    features["target_positions"] = np.array([[0, 2]], "int32")
    same(mask_of(features)[0], "1110 0110 0110 0111 0110 0100")


def test_padding_is_hidden_under_a_causal_mask_too():
    features = {
        "token_ids": ids(3),
        "padding_mask": np.array([[0, 1, 1]], "int32"),
        "target_positions": np.array([[2]], "int32"),
    }
    mask = mask_of(features, 1, attention_type="causal")
    same(mask[0], "1100 1010 1011 1010")


def test_without_memory_its_mask_counts_for_nothing():
    features = {"token_ids": ids(3), "memory_mask": np.zeros((1, 2), bool)}
    assert mask_of(features) is None


def test_the_example_of_unilmv2():
    """Masked 2, 4 and 5, predicted in the order {4, 5}, then {2}.

    1 M2 3 M4 M5 6, then P4 P5 4 5 of step 0, then P2 2 of step 1.
    """
    rank = np.array([[-1, -1, -1, -1, -1, -1, 0, 0, 0, 0, 1, 1]], "int32")
    is_pseudo = np.array([[0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 1, 0]], bool)
    same(
        pseudo_masks(rank, is_pseudo)[0],
        """
        111111000000
        111111000000
        111111000000
        111111000000
        111111000000
        111111000000
        111111110000
        111111110000
        111111001100
        111111001100
        111111001110
        111111001101
        """,
    )


def sees(rank, is_pseudo, i, j):
    """Whether i sees j: the steps before its own, and peers of its kind."""
    if is_pseudo[j]:
        return is_pseudo[i] and rank[i] == rank[j]
    if is_pseudo[i]:
        return rank[j] < rank[i]
    return rank[j] <= rank[i]


def test_pseudo_masks_are_those_of_plain_loops():
    random = np.random.default_rng(0)
    for num_tokens in (1, 2, 7, 13):
        rank = random.integers(-1, 5, (5, num_tokens)).astype("int32")
        is_pseudo = (random.uniform(size=rank.shape) < 0.4) & (rank >= 0)
        found = as_numpy(pseudo_masks(rank, is_pseudo))
        for b, i, j in np.ndindex(found.shape):
            assert found[b, i, j] == sees(rank[b], is_pseudo[b], i, j)
        none = np.zeros_like(is_pseudo)
        content, _ = permutation_masks(rank)
        np.testing.assert_array_equal(pseudo_masks(rank, none), content)


@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="graphs of TensorFlow"
)
def test_masks_are_of_operations_that_other_runtimes_have():
    """LiteRT inserts no axes by an index; OpenVINO has no MatrixDiag."""
    features = small_features(memory_length=M)
    pseudo = {
        name: features[name]
        for name in ("token_ids", "padding_mask", "factorization_rank")
    }
    pseudo["is_pseudo"] = features["factorization_rank"] > 0
    plain = {k: features[k] for k in ("token_ids", "padding_mask")}
    positions = features["target_positions"]
    for given, overrides in (
        (features, {}),
        (features, {"attention_type": "causal", "same_length": True}),
        ({**literal(features), "target_positions": positions}, {}),
        (pseudo, {}),
        ({**plain, "target_positions": positions}, {}),
        (plain, {"attention_type": "causal"}),
    ):
        config = small_config(**overrides)
        given.pop("memories", None)

        def masks(features, config=config):
            positions = features.get("target_positions")
            return (
                attention_mask(features, positions, config, M),
                other_segment(features, positions, M),
            )

        graph = tf.function(masks).get_concrete_function(given).graph
        for operation in graph.get_operations():
            assert not operation.type.startswith("MatrixDiag"), overrides
            if operation.type == "StridedSlice":
                assert not operation.get_attr("new_axis_mask"), operation
