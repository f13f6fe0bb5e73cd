"""Targets: whole words, the released subwords, goals, reading order."""

import itertools

import numpy as np
import pytest

from data_pipeline.records import targets
from data_pipeline.records.schema import split_goal
from data_pipeline.records.targets import sample_subwords
from data_pipeline.records.targets import sample_targets
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import END_OF_DOCUMENT_ID
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import UNKNOWN_ID

V, T, REUSE, GOAL = 211, 103, 47, 17
STARTS = np.random.default_rng(5).random(V) < 0.6
STARTS[:9] = True


def random_tokens(num_sequences=97, seed=0):
    rng = np.random.default_rng(seed)
    tokens = rng.integers(9, V, (num_sequences, T))
    tokens[rng.random(tokens.shape) < 0.03] = END_OF_DOCUMENT_ID
    tokens[rng.random(tokens.shape) < 0.03] = UNKNOWN_ID
    tokens[:, 70] = SEP_ID
    tokens[:, -2:] = SEP_ID, CLS_ID
    return tokens


def sample(tokens, **options):
    options = {"reuse_length": REUSE, "num_predict": GOAL} | options
    rng = np.random.default_rng(options.pop("seed", 0))
    return sample_targets(tokens, STARTS, rng, **options)


def words_of(tokens, begin, end):
    """Whole words of a half: lists of positions."""
    starts = [i for i in range(begin, end) if STARTS[tokens[i]]]
    return [
        list(range(a, b)) for a, b in zip(starts[:-1], starts[1:], strict=True)
    ]


def test_words_are_whole_and_never_special():
    for is_reversed, reuse in itertools.product((False, True), (0, REUSE, 70)):
        check_whole_words(is_reversed, reuse)


def check_whole_words(is_reversed, reuse):
    tokens = random_tokens()
    chosen = sample(tokens, is_reversed=is_reversed, reuse_length=reuse)
    assert chosen.sum(1).max() <= GOAL
    assert chosen.sum(1).mean() > 0.9 * GOAL
    assert not (chosen & (tokens < 9)).any()
    # In reading order, halves and their edges are flipped.
    if is_reversed:
        tokens, chosen = tokens[:, ::-1], chosen[:, ::-1]
        halves = [(0, T - reuse), (T - reuse, T)]
    else:
        halves = [(0, reuse), (reuse, T)]
    for row, mask in zip(tokens, chosen, strict=True):
        left = set(np.flatnonzero(mask).tolist())
        for begin, end in halves:
            for word in words_of(row, begin, end):
                taken = left.intersection(word)
                assert taken in (set(), set(word))
                left -= taken
        assert not left


def test_each_half_has_its_goal():
    chosen = sample(random_tokens(), num_predict=GOAL)
    first, second = split_goal(GOAL, T, REUSE)
    assert first + second == GOAL
    assert chosen[:, :REUSE].sum(1).max() == first
    assert chosen[:, REUSE:].sum(1).max() == second
    assert split_goal(85, 512, 256) == (43, 42)
    assert split_goal(GOAL, T, 0) == (0, GOAL)


def plain_words(starts, goal, tokens_per_target, rng):
    """The rule of "words" for one half, one word at a time."""
    begins = np.flatnonzero(starts)
    words = list(zip(begins[:-1].tolist(), begins[1:].tolist(), strict=True))
    share = 1 / np.arange(1, 6)
    context_of_word = tokens_per_target * np.mean([b - a for a, b in words])
    mask, cursor = np.zeros(len(starts), bool), 0
    while cursor < len(starts) and mask.sum() < goal:
        wanted = rng.choice(5, p=share / share.sum()) + 1
        context = int(wanted * context_of_word)
        left = int(rng.random() * context)
        ahead = [word for word in words if word[0] >= cursor + left]
        if not ahead:
            break
        cursor = ahead[0][1]
        for begin, end in ahead[:wanted]:
            if end - begin > goal - mask.sum():
                break
            mask[begin:end] = True
            cursor = end
        cursor += context - left
    for index in rng.permutation(len(words)).tolist():
        begin, end = words[index]
        if not mask[begin] and end - begin <= goal - mask.sum():
            mask[begin:end] = True
    return mask


def test_words_are_distributed_as_one_at_a_time():
    """Counts over 6000 sequences of one text, vectorized and plain."""
    text = np.random.default_rng(3).integers(9, V, 61)
    ours = sample(np.tile(text, (6000, 1)), reuse_length=0, num_predict=9)
    rng = np.random.default_rng(1)
    theirs = np.array(
        [plain_words(STARTS[text], 9, 6, rng) for _ in range(6000)]
    )
    # Five standard deviations of a share of 6000.
    near = 5 * np.sqrt(2 * 0.25 / 6000)
    np.testing.assert_allclose(ours.mean(0), theirs.mean(0), atol=near)
    for count in range(5, 10):
        share = [(mask.sum(1) == count).mean() for mask in (ours, theirs)]
        assert abs(share[0] - share[1]) < near
    together = [(mask[:, 1:] & mask[:, :-1]).mean(0) for mask in (ours, theirs)]
    np.testing.assert_allclose(*together, atol=near)


def test_rows_do_not_depend_on_the_block(monkeypatch):
    """Words of one row never extend into the next, wherever blocks end."""
    tokens = np.random.default_rng(2).integers(9, V, (50, T))
    for rows in (1, 7, 64):
        monkeypatch.setattr(targets, "_ROWS", rows)
        chosen = sample(tokens, reuse_length=0)
        assert (chosen.sum(1) > 0.6 * GOAL).all()
        assert chosen.sum(1).mean() > 0.95 * GOAL
        assert not chosen[:, -1].any()


def test_unfilled_when_no_word_fits():
    tokens = np.full((1, T), 10 + np.argmin(STARTS[10:]))
    assert not STARTS[tokens[0, 0]]
    assert not sample(tokens).any()
    tokens[0, ::20] = 9 + np.argmax(STARTS[9:])
    # Words have 20 tokens and the halves' goals are 7 and 10.
    assert not sample(tokens).any()


def plain_subwords(starts, goal, tokens_per_target, draws):
    """The released loop, with the same draws."""
    length = len(starts)
    weights = 1 / np.arange(1, 6)
    cumulative = np.cumsum(weights / weights.sum())
    mask, count, cursor = np.zeros(length, bool), 0, 0
    while cursor < length and count < goal:
        n = int((cumulative <= next(draws)).sum()) + 1
        n = min(n, goal - count)
        context = n * tokens_per_target
        left = int(next(draws) * context)
        begin = cursor + left
        while begin < length and not starts[begin]:
            begin += 1
        if begin >= length:
            break
        end, grams = begin + 1, 1
        while end < length:
            if starts[begin]:  # the released slip
                grams += 1
                if grams > n:
                    break
            end += 1
        if end >= length:
            break
        mask[begin:end] = True
        count += end - begin
        cursor = end + context - left
    while count < goal:
        position = int(next(draws) * length)
        if not mask[position]:
            mask[position] = True
            count += 1
    return mask


def test_subwords_equal_the_released_loop():
    for seed in range(200):
        starts = np.random.default_rng(seed).random(41) < 0.6
        draws = np.random.default_rng(seed + 1).random(999).tolist()
        begins = np.flatnonzero(starts).tolist()
        chosen = sample_subwords(begins, 41, 8, 4, iter(draws))
        mask = np.zeros(41, bool)
        mask[chosen] = True
        expected = plain_subwords(starts, 8, 4, iter(draws))
        np.testing.assert_array_equal(mask, expected)


def test_subwords_always_reach_the_goal():
    for is_reversed in (False, True):
        chosen = sample(
            random_tokens(), spans="subwords", is_reversed=is_reversed
        )
        assert (chosen.sum(1) == GOAL).all()


def test_reversed_equals_flipped():
    tokens = random_tokens()
    for spans in ("words", "subwords"):
        plain = sample(tokens[:, ::-1], spans=spans, reuse_length=0)
        back = sample(tokens, spans=spans, reuse_length=0, is_reversed=True)
        np.testing.assert_array_equal(back[:, ::-1], plain)


def test_single_words_stand_alone():
    """A target word is followed by another no more often than any word is."""
    tokens = random_tokens(400)
    starts = STARTS[tokens]
    followed = {}
    for spans in ("words", "single_words"):
        chosen = sample(tokens, spans=spans, reuse_length=0)
        assert chosen.sum(1).mean() > 0.9 * GOAL
        assert not (chosen & (tokens < 9)).any()
        pairs = chosen[:, :-1] & starts[:, 1:]
        followed[spans] = (pairs & chosen[:, 1:]).sum() / pairs.sum()
    share = GOAL / T
    assert followed["single_words"] < 1.3 * share < 2 * share
    assert followed["words"] > 2 * share


def test_seed_and_unknown_spans():
    tokens = random_tokens()
    np.testing.assert_array_equal(sample(tokens), sample(tokens))
    assert (sample(tokens) != sample(tokens, seed=1)).any()
    with pytest.raises(ValueError, match="`spans` must be one of words"):
        sample(tokens, spans="letters")
