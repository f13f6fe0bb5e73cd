"""Packing of ids as TensorFlow ops, against the released loops in Python."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.features import packing
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID

TRUNCATIONS = ("longest_first", "only_first", "only_second")
NAMES = ("token_ids", "segment_ids", "padding_mask")


def released_truncation(first, second, room):
    """`_truncate_seq_pair` of the released classifier_utils.py."""
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        if len(first) > len(second):
            first.pop()
        else:
            second.pop()
    return first, second


def one_side(first, second, room, loser):
    first, second = list(first), list(second)
    while len(first) + len(second) > room:
        order = [first, second] if loser == "only_first" else [second, first]
        (order[0] or order[1]).pop()
    return first, second


def oracle(first, second, length, side="left", truncate="longest_first"):
    """One sequence: ids, segments and mask, as lists."""
    if second is None:
        first = first[: length - 2]
        ids, segments = [*first, SEP_ID], [0] * (len(first) + 1)
    else:
        room = length - 3
        if truncate == "longest_first":
            first, second = released_truncation(first, second, room)
        else:
            first, second = one_side(first, second, room, truncate)
        ids = [*first, SEP_ID, *second, SEP_ID]
        segments = [0] * (len(first) + 1) + [1] * (len(second) + 1)
    ids, segments = [*ids, CLS_ID], [*segments, 2]
    missing = length - len(ids)
    parts = {
        "token_ids": (ids, [0] * missing),
        "segment_ids": (segments, [4 if side == "left" else 3] * missing),
        "padding_mask": ([1] * len(ids), [0] * missing),
    }
    return {
        name: padding + real if side == "left" else real + padding
        for name, (real, padding) in parts.items()
    }


def random_rows(random, count, longest):
    """Lists of ids, a third of them short, some empty."""
    return [
        random.integers(9, 99, random.integers(0, random.choice([3, longest])))
        .astype("int32")
        .tolist()
        for _ in range(count)
    ]


def ragged(rows):
    return tf.ragged.constant(rows, tf.int32, ragged_rank=1)


def expected(firsts, seconds, *arguments):
    seconds = [None] * len(firsts) if seconds is None else seconds
    rows = [
        oracle(first, second, *arguments)
        for first, second in zip(firsts, seconds, strict=True)
    ]
    return {name: np.array([row[name] for row in rows]) for name in NAMES}


def test_sequences_are_the_released_ones():
    random = np.random.default_rng(1)
    firsts, seconds = (random_rows(random, 200, 29) for _ in range(2))
    for others, side, truncate, length in itertools.product(
        (None, seconds), ("left", "right"), TRUNCATIONS, (4, 5, 16, 17, 61)
    ):
        packed = packing.pack(
            ragged(firsts), others and ragged(others), length, truncate, side
        )
        rows = expected(firsts, others, length, side, truncate)
        for name in NAMES:
            assert packed[name].dtype == tf.int32
            np.testing.assert_array_equal(packed[name], rows[name], name)


def test_truncation_is_the_released_loop():
    lengths = np.array([(a, b) for a in range(14) for b in range(14)])
    for room in range(28):
        kept = packing.kept_lengths(*tf.constant(lengths.T, tf.int32), room)
        loops = [
            released_truncation([0] * a, [0] * b, room) for a, b in lengths
        ]
        for side in range(2):
            of_loops = [len(pair[side]) for pair in loops]
            np.testing.assert_array_equal(kept[side], of_loops)


def test_padding_to_the_longest_keeps_every_token():
    firsts, seconds = [[11, 12, 13], []], [[21], [22, 23]]
    packed = packing.pack(ragged(firsts), ragged(seconds), pad_to_longest=True)
    rows = expected(firsts, seconds, 7)
    for name in NAMES:
        np.testing.assert_array_equal(packed[name], rows[name], name)


def test_a_batch_of_nothing_has_two_columns():
    nothing = ragged([]).with_values(tf.zeros([0], tf.int32))
    for side, second in (("left", None), ("right", nothing)):
        packed = packing.pack(
            nothing, second, pad_side=side, pad_to_longest=True
        )
        assert {tuple(value.shape) for value in packed.values()} == {(0, 2)}


def test_a_static_length_and_only_ops_of_tensorflow_itself():
    spec = tf.RaggedTensorSpec([None, None], tf.int32)
    function = tf.function(lambda a, b: packing.pack(a, b, 17))
    function = function.get_concrete_function(spec, spec)
    # Known before any batch is seen, as XLA wants it.
    assert function.structured_outputs["token_ids"].shape[1] == 17
    graph = function.graph.as_graph_def()
    names = {node.op for node in graph.node}
    names |= {n.op for f in graph.library.function for n in f.node_def}
    assert not [name for name in names if ">" in name]


def test_labels_stand_below_their_tokens():
    labels = ragged([[3, 1, 2], [], [5]])
    aligned = packing.align(labels, 4, default=-1)
    rows = [[3, 1, 2, -1], [-1] * 4, [5, -1, -1, -1]]
    np.testing.assert_array_equal(aligned, rows)
    np.testing.assert_array_equal(
        packing.align(labels, 2), [[3, 1], [0] * 2, [5, 0]]
    )


def test_unpacked_sequences_have_no_padding():
    rows = [[7, 8, 9], [], [5]]
    for side in ("left", "right"):
        packed = packing.pack(ragged(rows), None, 9, pad_side=side)
        packed["other"] = tf.zeros([3])
        found = packing.unpack(packed)
        assert set(found) == {"token_ids", "segment_ids"}
        assert found["token_ids"].to_list() == [
            [*row, SEP_ID, CLS_ID] for row in rows
        ]
    options = {k: tf.stack([v, v]) for k, v in packed.items() if k in NAMES}
    assert packing.unpack(options)["token_ids"].nrows() == 6


def test_a_word_without_pieces_is_unknown():
    def tokenize(words):
        return ragged([[9] * word.count(b"a") for word in words.numpy()])

    found = packing.word_pieces(tokenize, tf.constant(["aa", "b", "", "a"]))
    assert found.to_list() == [[9, 9], [0], [], [9]]


def test_settings_out_of_range_are_refused():
    rows = ragged([[1]])
    for settings, message in (
        ({"truncate": "half"}, "longest_first, only_first, only_second. Rec"),
        ({"pad_side": "top"}, '"left" or "right". Received: pad_side=\'top\''),
        ({"sequence_length": 3}, "above 3: .* Received: sequence_length=3"),
    ):
        with pytest.raises(ValueError, match=message):
            packing.pack(rows, rows, **settings)
