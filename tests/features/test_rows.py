"""Encoded examples: ragged arrays and the layouts made of them."""

import numpy as np
import pytest

from data_pipeline.features import layout
from data_pipeline.features.rows import Ragged
from data_pipeline.features.rows import Rows
from data_pipeline.features.rows import join


@pytest.fixture
def random():
    return np.random.default_rng(3)


def draw(random, count, longest=9):
    return [
        random.integers(9, 97, random.integers(0, longest)).tolist()
        for _ in range(count)
    ]


def lists(ragged):
    return [ragged[i].tolist() for i in range(len(ragged))]


def test_ragged_is_a_list_of_lists(random):
    rows = draw(random, 23)
    ragged = Ragged.from_lists(rows)
    assert lists(ragged) == rows
    assert lists(ragged.gather([7, 2, 2, 19])) == [
        rows[i] for i in (7, 2, 2, 19)
    ]
    counts = random.integers(0, 12, 23)
    assert lists(ragged.head(counts)) == [
        row[:count] for row, count in zip(rows, counts, strict=True)
    ]
    assert lists(ragged.tail(counts)) == [
        row[max(len(row) - count, 0) :]
        for row, count in zip(rows, counts, strict=True)
    ]
    other = draw(random, 23)
    assert lists(join([ragged, Ragged.from_lists(other), ragged])) == [
        a + b + a for a, b in zip(rows, other, strict=True)
    ]
    assert lists(Ragged.full([2, 0, 1], 5)) == [[5, 5], [], [5]]


def test_an_index_out_of_range_is_an_error():
    with pytest.raises(IndexError):
        Ragged.from_lists([[1]])[1]


def test_the_longer_of_two_loses_tokens_in_turn(random):
    shape = 2000
    first = random.integers(0, 14, shape)
    second = random.integers(0, 14, shape)
    room = random.integers(1, 20, shape)
    found = layout.longest_first(first, second, room)
    for a, b, limit, *kept in zip(first, second, room, *found, strict=True):
        while a + b > limit:  # as `_truncate_seq_pair`
            if a > b:
                a -= 1
            else:
                b -= 1
        assert kept == [a, b]


def test_layout_of_texts_and_pairs():
    first = Ragged.from_lists([[10, 11, 12], [13]])
    second = Ragged.from_lists([[20, 21], []])
    packed = layout.pack(first, second, 7, np.array([True, False]))
    assert lists(packed["token_ids"]) == [
        [10, 11, 4, 20, 21, 4, 3],
        [13, 4, 3],
    ]
    assert lists(packed["segment_ids"]) == [
        [0, 0, 0, 1, 1, 1, 2],
        [0, 0, 2],
    ]
    single = layout.pack(first, None, 4)
    assert lists(single["token_ids"]) == [[10, 11, 4, 3], [13, 4, 3]]
    assert lists(single["segment_ids"]) == [[0, 0, 0, 2], [0, 0, 2]]


def test_columns_must_have_equally_many_rows():
    with pytest.raises(ValueError, match="equally many rows"):
        Rows(
            {"token_ids": Ragged.from_lists([[1], [2]])},
            {"label": [1]},
            {"token_ids": 0},
            "left",
        )
