"""Sampling of target spans: about one target in `tokens_per_target` tokens.

Each half of a sequence is sampled separately. So the reused half and the new
half both get their share of targets.

Shapes: S sequences, T tokens of a sequence, H tokens of a half, W words, V
vocabulary.
"""

import bisect
import functools
import itertools
import typing

import numpy as np

from data_pipeline.records.schema import SPANS
from data_pipeline.records.schema import split_goal
from data_pipeline.tokenization.symbols import SPECIAL_IDS

LONGEST_SPAN = 5

# Number of rows sampled at once, small enough for the processor's cache.
_ROWS = 1024

_WEIGHTS = [1 / n for n in range(1, LONGEST_SPAN + 1)]
_CUMULATIVE = np.array(
    [sum(_WEIGHTS[:n]) / sum(_WEIGHTS) for n in range(1, LONGEST_SPAN)]
)


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
    """Sample the targets of sequences.

    A span has a length n from 1 to 5, drawn with a probability proportional to
    1/n. The context before and after a span is together `tokens_per_target`
    times as long as the span. A random share of the context comes before the
    span. The span begins with the next whole word.

    With `spans` "words", a span has n whole words, as the release intended.
    Special tokens, <unk> and words that the edge of the half may have cut are
    not selected. One exception: a word that was cut when A or B was truncated
    counts as whole. The goal of a half is its share of `num_predict`. If the
    spans do not reach the goal, further whole words are added until no word
    fits. "single_words" is like "words" with n = 1.

    With "subwords", a span has n tokens, as in the release. By mistake, the
    release counts every token as a word. If the spans do not reach the goal,
    random single tokens are added. <sep> and <cls> can be selected; the reader
    drops these targets.

    Args:
        token_ids: int array [S, T].
        starts_word: bool array [V], True for a piece that begins a word.
        rng: numpy.random.Generator, the only source of randomness.
        reuse_length: int, length of the first half. 0: the sequence is not
            divided.
        num_predict: int, maximum number of targets per sequence.
        tokens_per_target: int, K of the paper.
        spans: "words", "subwords" or "single_words".
        is_reversed: bool, whether the tokens are in reversed order. Words are
            always found in reading order.

    Returns:
        bool array [S, T], True = target.

    Raises:
        ValueError: `spans` has another value.

    Source: `_sample_mask`, `create_tfrecords`.
    """
    if spans not in SPANS:
        raise ValueError(
            f"`spans` must be one of {', '.join(SPANS)}. Received: "
            f"spans={spans!r}."
        )
    sequence_length = token_ids.shape[1]
    first, second = split_goal(num_predict, sequence_length, reuse_length)
    halves = (
        (slice(0, reuse_length), first),
        (slice(reuse_length, sequence_length), second),
    )
    is_target = np.zeros(token_ids.shape, bool)
    sample = _SAMPLERS[spans]
    for begin, (half, goal) in itertools.product(
        range(0, len(token_ids), _ROWS), halves
    ):
        rows = slice(begin, begin + _ROWS)
        tokens, chosen = token_ids[rows, half], is_target[rows, half]
        if not tokens.size:
            continue
        if is_reversed:
            tokens, chosen = tokens[:, ::-1], chosen[:, ::-1]
        starts = starts_word[tokens]
        special = tokens < len(SPECIAL_IDS)
        chosen[:] = sample(starts, special, goal, tokens_per_target, rng)
    return is_target


def _sample_words(
    starts, special, goal, tokens_per_target, rng, longest_span=LONGEST_SPAN
):
    words = whole_words(starts, special)
    taken, room = sample_spans(
        words, goal, tokens_per_target, rng, longest_span
    )
    fill_with_words(words, taken, room, rng)
    # `edges` is +1 where a taken word begins and -1 after its end, so the
    # running sum is 1 inside taken words.
    num_rows, length = starts.shape
    edges = np.zeros(num_rows * (length + 1), np.int8)
    chosen = np.flatnonzero(taken)
    edges[words.begins[chosen]] = 1
    edges[words.ends[chosen]] -= 1
    edges = np.cumsum(edges, dtype=np.int32)  # quicker than with int8
    return edges.reshape(num_rows, length + 1)[:, :-1] > 0


def _sample_subwords(starts, special, goal, tokens_per_target, rng):
    draws = _uniforms(rng)
    chosen = np.zeros(starts.shape, bool)
    for row, is_start in zip(chosen, starts, strict=True):
        begins = np.flatnonzero(is_start).tolist()
        positions = sample_subwords(
            begins, len(row), goal, tokens_per_target, draws
        )
        row[positions] = True
    return chosen


_SAMPLERS = {
    "words": _sample_words,
    "subwords": _sample_subwords,
    "single_words": functools.partial(_sample_words, longest_span=1),
}


class Words(typing.NamedTuple):
    """Whole words of all rows.

    Token t of row s has the offset s (H + 1) + t. The extra 1 separates the
    words of different rows.

    Attributes:
        begins: int64 [W], offset of each word's first token.
        ends: int64 [W], offset of the token after each word's last token.
        first: int32 [S + 1]. Row s has the words `first[s]` to `first[s + 1]`
            (exclusive).
        next_word: int32 [S (H + 1)], number of the first word that begins at or
            after each offset, or W if there is no such word.
    """

    begins: np.ndarray
    ends: np.ndarray
    first: np.ndarray
    next_word: np.ndarray


def whole_words(starts, special):
    """Find the whole words without special tokens in each row.

    In each row, the last word and all tokens before the first start of a word
    are skipped. The edge of the half may have cut these words.

    Args:
        starts: bool array [S, H], whether a token begins a word.
        special: bool array [S, H], True for tokens that are never targets.

    Returns:
        Words.
    """
    num_rows, length = starts.shape
    stride = length + 1
    # A start behind each row ends its last word.
    is_begin = np.ones((num_rows, stride), bool)
    is_begin[:, :-1] = starts
    begins = np.flatnonzero(is_begin)
    behind = np.searchsorted(begins, stride * np.arange(1, num_rows + 1) - 1)
    place = np.flatnonzero(special)
    place += place // length
    is_whole = np.ones(len(begins), bool)
    # -1, for a special token before all words, is the start behind all rows.
    is_whole[np.searchsorted(begins, place, "right") - 1] = False
    is_whole[behind] = is_whole[behind - 1] = False
    is_begin.reshape(-1)[begins[~is_whole]] = False
    next_word = np.zeros(num_rows * stride + 1, np.int32)
    np.cumsum(is_begin, dtype=np.int32, out=next_word[1:])
    return Words(
        begins[is_whole],
        begins[1:][is_whole[:-1]],
        next_word[::stride],
        next_word[:-1],
    )


def sample_spans(
    words, goal, tokens_per_target, rng, longest_span=LONGEST_SPAN
):
    """Sample spans of whole words, in reading order, in all rows at once.

    The context of a span is the tokens that the sampling skips before and after
    the span. A span of n words has n * m * `tokens_per_target` such tokens.
    Here m is the mean number of tokens of the row's words. The factor m spreads
    the spans over the whole half. Without m, contexts of long words would be
    too short, and the row would reach its goal before the end of the half.

    Args:
        words: Words.
        goal: int, maximum number of tokens to take in a row.
        tokens_per_target: int, K of the paper.
        rng: numpy.random.Generator.
        longest_span: int, maximum number of words of a span.

    Returns:
        tuple of a bool array [W] (True for taken words) and an int64 array [S]
        (the goal minus the number of tokens taken in each row).
    """
    num_rows, num_words = len(words.first) - 1, len(words.begins)
    stride = len(words.next_word) // num_rows
    # Number of tokens of all earlier words, and of words.
    sizes = np.append(0, np.cumsum(words.ends - words.begins))
    total, count = np.diff(sizes[words.first]), np.diff(words.first)
    context_of_word = tokens_per_target * total / np.maximum(1, count)
    # The word behind the adjacent words of each word, and ends by the number of
    # words up to them.
    is_last = np.append(words.begins[1:] != words.ends[:-1], True)
    breaks = np.flatnonzero(is_last[:num_words]) + 1
    behind = np.repeat(breaks, np.diff(breaks, prepend=0))
    ends = np.append(0, words.ends)
    cursor = np.arange(num_rows) * stride
    limit = cursor + stride - 1
    room = np.full(num_rows, goal)
    rows = np.flatnonzero((count > 0) & (goal > 0))
    spans = [np.zeros((2, 0), np.int64)]
    while len(rows):
        draws = rng.random((2, len(rows)))
        wanted = np.searchsorted(_CUMULATIVE, draws[0], "right") + 1
        wanted = np.minimum(wanted, longest_span)
        context = (wanted * context_of_word[rows]).astype(np.int64)
        left = (draws[1] * context).astype(np.int64)
        word = words.next_word[np.minimum(cursor[rows] + left, limit[rows])]
        on = word < words.first[rows + 1]
        rows, word, wanted = rows[on], word[on], wanted[on]
        right = (context - left)[on]
        begin = words.begins[word]
        stop = np.minimum(word + wanted, behind[word])
        # Spans end with the last word that fits.
        while (too_long := ends[stop] > begin + room[rows]).any():
            stop -= too_long
        spans.append(np.stack([word, stop]))
        room[rows] -= np.maximum(ends[stop] - begin, 0)
        # If not even one word fits, the span is dropped.
        cursor[rows] = ends[np.maximum(stop, word + 1)] + right
        rows = rows[(room[rows] > 0) & (cursor[rows] < limit[rows])]
    first, stop = np.concatenate(spans, axis=1)
    # +1 at a span's first word, -1 behind its last.
    edges = np.bincount(first, minlength=num_words + 1)
    edges -= np.bincount(stop, minlength=num_words + 1)
    return np.cumsum(edges[:-1]).astype(bool), room


def fill_with_words(words, taken, room, rng):
    """Take further words in random order until no word fits into the room.

    Args:
        words: Words.
        taken: bool array [W], True for taken words. The array is changed in
            place.
        room: int array [S], maximum number of tokens to add to each row. The
            array is changed in place.
        rng: numpy.random.Generator.
    """
    first, count = words.first[:-1], np.diff(words.first)
    rows = np.flatnonzero((room > 0) & (count > 0))
    # Most drawn words fit. The exact search below completes the other rows.
    for _ in range(2 * int(room.max(initial=0))):
        draws = rng.random(len(rows))
        word = first[rows] + (draws * count[rows]).astype(np.int64)
        size = words.ends[word] - words.begins[word]
        fits = ~taken[word] & (size <= room[rows])
        taken[word[fits]] = True
        room[rows[fits]] -= size[fits]
        rows = rows[room[rows] > 0]
        if not len(rows):
            return
    for row in rows.tolist():
        # The room only shrinks, so a word that is too long now never fits
        # later.
        in_row = slice(words.first[row], words.first[row + 1])
        size = words.ends[in_row] - words.begins[in_row]
        fits = ~taken[in_row] & (size <= room[row])
        candidates = words.first[row] + rng.permutation(np.flatnonzero(fits))
        for word in candidates.tolist():
            size = words.ends[word] - words.begins[word]
            if size <= room[row]:
                taken[word] = True
                room[row] -= size


def sample_subwords(begins, length, goal, tokens_per_target, draws):
    """Sample spans of tokens in one half, as the released code does.

    Args:
        begins: list of int, offsets of the words in the half.
        length: int, H.
        goal: int, number of tokens to choose.
        tokens_per_target: int, K of the paper.
        draws: iterator of random floats in [0, 1).

    Returns:
        list of int, `goal` offsets of chosen tokens.
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


def _uniforms(rng):
    """Draw floats in [0, 1) in blocks, 20 times as fast as single draws."""
    return itertools.chain.from_iterable(
        rng.random(4096).tolist() for _ in itertools.count()
    )
