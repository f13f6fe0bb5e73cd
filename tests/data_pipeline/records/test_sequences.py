"""Sequences: the released construction, stride, directions."""

import itertools

import numpy as np

from data_pipeline.records.sequences import Stream
from data_pipeline.records.sequences import build_sequences
from data_pipeline.records.sequences import join_documents
from data_pipeline.records.sequences import reverse_stream
from data_pipeline.records.sequences import split_a_and_b
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import END_OF_DOCUMENT_ID
from data_pipeline.tokenization.symbols import SEP_ID


class Draws:
    """A generator that logs its draws, to be repeated."""

    def __init__(self, seed):
        self._rng = np.random.default_rng(seed)
        self.log = []

    def random(self):
        self.log.append(self._rng.random())
        return self.log[-1]

    def integers(self, high):
        self.log.append(int(self._rng.integers(high)))
        return self.log[-1]


def random_stream(num_tokens, seed=0, longest=9):
    """A stream whose token at position i is 100 + i."""
    rng = np.random.default_rng(seed)
    starts = np.cumsum(rng.integers(1, longest + 1, num_tokens))
    return Stream(
        np.arange(100, 100 + num_tokens, dtype=np.int32),
        starts[starts < num_tokens],
    )


def plain_split(sentence_number, begin, room, log):
    """The released function in plain loops, with the draws of ours.

    Where a sentence began `room` tokens before a random B, B stays there.
    """
    log = iter(log)
    length = len(sentence_number)
    if begin + room >= length:
        return None
    end, cuts = begin + 1, []
    while end < length:
        if sentence_number[end] != sentence_number[end - 1]:
            if end - begin >= room:
                break
            cuts.append(end)
        end += 1
    if not cuts or next(log) < 0.5:
        label = 0
        a_end = cuts[next(log)] if cuts else end
        b_length = max(1, room - (a_end - begin))
        b_begin = next(log)
        b_end = b_begin + b_length
        drawn = b_begin
        while (
            b_begin > 0
            and sentence_number[b_begin - 1] == sentence_number[b_begin]
        ):
            b_begin -= 1
        if drawn - b_begin >= room:
            b_begin = drawn
        while (
            b_end < length - 1
            and sentence_number[b_end - 1] == sentence_number[b_end]
        ):
            b_end += 1
    else:
        label = 1
        a_end = cuts[next(log)]
        b_begin, b_end = a_end, end
    while a_end - begin + b_end - b_begin > room:
        if a_end - begin > b_end - b_begin:
            a_end -= 1
        else:
            b_end -= 1
    if a_end >= length or b_end >= length:
        return None
    return begin, a_end, b_begin, b_end, label


def test_split_equals_plain_loops():
    for longest in (3, 9, 60):
        stream = random_stream(211, longest=longest)
        sentence_number = np.zeros(211, int)
        sentence_number[stream.sentence_starts] = 1
        sentence_number = np.cumsum(sentence_number)
        outcomes = set()
        for begin, seed in itertools.product(range(0, 211, 3), range(7)):
            rng = Draws(seed)
            ours = split_a_and_b(
                211, stream.sentence_starts.tolist(), begin, 29, rng
            )
            theirs = plain_split(sentence_number, begin, 29, rng.log)
            assert (ours and tuple(ours)) == theirs, (longest, begin, seed)
            outcomes.add(ours and ours.is_next)
        assert {0, None} <= outcomes
        assert 1 in outcomes or longest == 60


def join(documents, **options):
    """`join_documents` of lists of sentences of tokens."""
    sentences = list(itertools.chain.from_iterable(documents))
    tokens = list(itertools.chain.from_iterable(sentences))
    stream = join_documents(
        np.array(tokens, np.int32),
        np.array(list(map(len, sentences)), np.int64),
        np.array(list(map(len, documents)), np.int64),
        **options,
    )
    return stream.token_ids.tolist(), stream.sentence_starts.tolist()


def test_eod_belongs_to_the_last_sentence():
    eod = END_OF_DOCUMENT_ID
    documents = [[[11, 12], [], [13]], [[]], [[14]]]
    assert join(documents) == ([11, 12, 13, eod, 14, eod], [2, 4])
    assert join([]) == ([], []) == join([[]])
    documents = [[[11, 12], [13]], [[14]]]
    assert join(documents, end_of_document=False) == ([11, 12, 13, 14], [2, 3])


def test_reverse_keeps_sentences():
    stream = Stream(np.arange(5, dtype=np.int32), np.array([2, 3]))
    back = reverse_stream(stream)
    assert back.token_ids.tolist() == [4, 3, 2, 1, 0]
    assert back.sentence_starts.tolist() == [2, 3]
    again = reverse_stream(back)
    assert again.sentence_starts.tolist() == [2, 3]
    uneven = Stream(np.arange(5, dtype=np.int32), np.array([1]))
    assert reverse_stream(uneven).sentence_starts.tolist() == [4]


def test_layout():
    stream = random_stream(997)
    length = 31
    starts = {0, *stream.sentence_starts.tolist()}
    for reuse in (0, 7, 15, 26):
        made = build_sequences(stream, length, reuse, np.random.default_rng(1))
        assert len(made.token_ids) > 20
        assert made.token_ids.dtype == np.int32
        assert set(made.is_next.tolist()) == {0, 1}
        begin = 0
        for row, segment, is_next in zip(*made, strict=True):
            first, second = np.flatnonzero(row == SEP_ID)
            assert (second, row[-1]) == (length - 2, CLS_ID)
            expected = [0] * (first + 1) + [1] * (second - first) + [2]
            assert segment.tolist() == expected
            a = row[reuse:first] - 100
            b = row[first + 1 : second] - 100
            assert len(a) and len(b)
            # The reused half and A are consecutive in the stream, and so is B.
            expected = range(begin, begin + first)
            assert (row[:first] - 100).tolist() == list(expected)
            assert (np.diff(b) == 1).all()
            # But in a sentence of up to 9 that is longer than A and B.
            assert b[0] in starts or length - reuse - 3 < 9
            if is_next:
                # A may be truncated on its right, but is never moved.
                assert b[0] > a[-1]
            begin += reuse or (b[-1] if is_next else a[-1]) + 1 - begin


def test_seeded_and_no_global_state():
    stream = random_stream(500)
    np.random.seed(0)
    first = build_sequences(stream, 31, 15, np.random.default_rng(5))
    np.random.seed(1)
    second = build_sequences(stream, 31, 15, np.random.default_rng(5))
    other = build_sequences(stream, 31, 15, np.random.default_rng(6))
    np.testing.assert_array_equal(first.token_ids, second.token_ids)
    assert (first.token_ids != other.token_ids).any()


def test_random_b_without_ends_of_sentences():
    """It comes from all of the text, not from one place."""
    stream = random_stream(5000)._replace(sentence_starts=np.array([], int))
    made = build_sequences(stream, 31, 15, np.random.default_rng(0))
    begins = [row[row.tolist().index(SEP_ID) + 1] for row in made.token_ids]
    assert made.is_next.sum() == 0
    assert len(set(begins)) > 0.9 * len(begins)
    assert np.ptp(begins) > 4500


def test_too_short():
    for num_tokens in (0, 1, 30, 31):
        stream = random_stream(num_tokens)
        made = build_sequences(stream, 31, 15, np.random.default_rng(0))
        assert made.token_ids.shape[1] == 31
        assert len(made.token_ids) == len(made.is_next) <= 1
    # No array of this length can exist.
    made = build_sequences(stream, 2**40, 0, np.random.default_rng(0))
    assert made.token_ids.shape == made.segment_ids.shape == (0, 2**40)
