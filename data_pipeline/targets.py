"""Which tokens are predicted: about 1 in `tokens_per_target`, in spans.

Each half of a sequence is sampled by itself, so that the memory's half and the
new half both have their share of targets.

Shapes: S sequences, T tokens of a sequence, V vocabulary.
"""

import bisect
import itertools

import numpy as np

from data_pipeline.features import SPANS
from data_pipeline.features import split_goal
from data_pipeline.symbols import SPECIAL_IDS

LONGEST_SPAN = 5

_WEIGHTS = [1 / n for n in range(1, LONGEST_SPAN + 1)]
_CUMULATIVE = [
    sum(_WEIGHTS[:n]) / sum(_WEIGHTS) for n in range(1, LONGEST_SPAN)
]


def sample_targets(
    token_ids,
    starts_word,
    rng,
    reuse_length,
    num_predict,
    tokens_per_target=6,
    spans="words",
    is_reversed=False,
):
    """Samples the targets of sequences.

    Spans of n in 1..5 with probability ~ 1/n, each at a random place inside a
    context `tokens_per_target` times as long, and each at the start of a word.

    "words" takes n whole words, as the release intended: never a part of a
    word, never a special token or <unk>, nor a word that the edge of the half
    may have cut. What is missing to the goal is filled with further whole
    words where they fit, or else left out.

    "subwords" takes n tokens, as the released code does: its loop tests the
    first token of the span where it means the last. What is missing is filled
    with random single tokens. <sep> and <cls> can be drawn, and are dropped by
    the reader.

    Args:
        token_ids: int array [S, T].
        starts_word: bool array [V], whether a piece begins a word.
        rng: numpy.random.Generator, the only source of chance.
        reuse_length: int, length of the first half; 0 = there is one half.
        num_predict: int, the most targets of a sequence.
        tokens_per_target: int, K.
        spans: "words" or "subwords".
        is_reversed: bool, whether the tokens are in reversed order; words are
            found in reading order.

    Returns:
        bool array [S, T], True = to be predicted.

    Raises:
        ValueError: `spans` is neither.

    Source: `_sample_mask`, `create_tfrecords`.
    """
    if spans not in SPANS:
        raise ValueError(
            f"`spans` must be 'words' or 'subwords'. Received: spans={spans!r}."
        )
    draws = _uniforms(rng)
    sequence_length = token_ids.shape[1]
    first, second = split_goal(num_predict, sequence_length, reuse_length)
    is_target = np.zeros(token_ids.shape, bool)
    for half, goal in (
        (slice(0, reuse_length), first),
        (slice(reuse_length, sequence_length), second),
    ):
        tokens, chosen = token_ids[:, half], is_target[:, half]
        if is_reversed:
            tokens, chosen = tokens[:, ::-1], chosen[:, ::-1]
        starts = starts_word[tokens]
        places = _places_of_words if spans == "words" else _places_of_subwords
        for row, found in enumerate(
            places(tokens, starts, goal, tokens_per_target, draws)
        ):
            chosen[row, found] = True
    return is_target


def _places_of_words(tokens, starts, goal, tokens_per_target, draws):
    for begins, ends in whole_words(starts, tokens < len(SPECIAL_IDS)):
        yield sample_words(
            begins, ends, tokens.shape[1], goal, tokens_per_target, draws
        )


def _places_of_subwords(tokens, starts, goal, tokens_per_target, draws):
    for row in starts:
        yield sample_subwords(
            np.flatnonzero(row).tolist(),
            tokens.shape[1],
            goal,
            tokens_per_target,
            draws,
        )


def whole_words(starts, special):
    """Where the words without special tokens lie in each row.

    The tokens before the first start and from the last one on are left out:
    the edge of the half may have cut their words.

    Args:
        starts: bool array [S, H], whether a token begins a word.
        special: bool array [S, H], tokens that are never predicted.

    Yields:
        tuple of list of int, for each row: begins and ends of its words.
    """
    row, start = np.nonzero(starts)
    before = np.pad(np.cumsum(special, axis=1), ((0, 0), (1, 0)))
    whole = row[:-1] == row[1:]
    whole &= before[row[:-1], start[:-1]] == before[row[:-1], start[1:]]
    begins = start[:-1][whole].tolist()
    ends = start[1:][whole].tolist()
    stops = np.searchsorted(row[:-1][whole], np.arange(len(starts)), "right")
    first = 0
    for stop in stops.tolist():
        yield begins[first:stop], ends[first:stop]
        first = stop


def sample_words(begins, ends, length, goal, tokens_per_target, draws):
    """Chooses whole words of one half, in reading order.

    The context of a span of n words is as long as `tokens_per_target` spans of
    n words are on average, so that halves are covered to their end, however
    many pieces the vocabulary makes of a word.

    Args:
        begins: list of int, where the words begin.
        ends: list of int, where they end.
        length: int, tokens of the half.
        goal: int, the most tokens to choose.
        tokens_per_target: int, K.
        draws: iterator of float in [0, 1).

    Returns:
        list of int, the positions chosen.
    """
    num_words = len(begins)
    if not num_words:
        return []
    context_of_word = tokens_per_target * (sum(ends) - sum(begins)) / num_words
    taken = [False] * num_words
    chosen, room, cursor = [], goal, 0
    while cursor < length and room:
        num_wanted = bisect.bisect_right(_CUMULATIVE, next(draws)) + 1
        context = int(num_wanted * context_of_word)
        left = int(next(draws) * context)
        word = bisect.bisect_left(begins, cursor + left)
        if word == num_words:
            break
        begin, cursor = begins[word], ends[word] + context - left
        end = begin
        # Words beside each other, as long as they fit.
        for stop in range(word, min(word + num_wanted, num_words)):
            if begins[stop] != end or ends[stop] - begin > room:
                break
            end = ends[stop]
            taken[stop] = True
        if end > begin:
            chosen.extend(range(begin, end))
            room -= end - begin
            cursor = end + context - left
    if room:
        _fill_with_words(chosen, room, begins, ends, taken, draws)
    return chosen


def sample_subwords(begins, length, goal, tokens_per_target, draws):
    """Chooses spans of tokens of one half as the released code does.

    Args:
        begins: list of int, where words begin.
        length: as in `sample_words`.
        goal: int, the number of tokens to choose.
        tokens_per_target: int, K.
        draws: as in `sample_words`.

    Returns:
        list of int, `goal` positions.
    """
    chosen, cursor = [], 0
    while cursor < length and len(chosen) < goal:
        size = bisect.bisect_right(_CUMULATIVE, next(draws)) + 1
        size = min(size, goal - len(chosen))
        context = size * tokens_per_target
        left = int(next(draws) * context)
        word = bisect.bisect_left(begins, cursor + left)
        if word == len(begins) or begins[word] + size >= length:
            break
        begin = begins[word]
        chosen.extend(range(begin, begin + size))
        cursor = begin + size + context - left
    taken = set(chosen)
    while len(chosen) < goal:
        position = int(next(draws) * length)
        if position not in taken:
            taken.add(position)
            chosen.append(position)
    return chosen


def _fill_with_words(chosen, room, begins, ends, taken, draws):
    """Adds words that are not taken, in random order, while they fit."""
    num_words = len(begins)
    # Most draws hit; the exact way is for what they have not found.
    picks = (int(next(draws) * num_words) for _ in range(2 * room))
    for word in itertools.chain(picks, _rest_in_order(taken, draws)):
        size = ends[word] - begins[word]
        if size <= room and not taken[word]:
            chosen.extend(range(begins[word], ends[word]))
            taken[word] = True
            room -= size
            if not room:
                return


def _rest_in_order(taken, draws):
    rest = [word for word, is_taken in enumerate(taken) if not is_taken]
    while rest:
        pick = int(next(draws) * len(rest))
        rest[pick], rest[-1] = rest[-1], rest[pick]
        yield rest.pop()


def _uniforms(rng):
    """Floats in [0, 1); drawing them in blocks is 20 times as fast."""
    return itertools.chain.from_iterable(
        rng.random(4096).tolist() for _ in itertools.count()
    )
