"""Which tokens are predicted: about 1 in `tokens_per_target`, in spans.

Each half of a sequence is sampled by itself, so that the memory's half and the
new half both have their share of targets.

Shapes: S sequences, T tokens of a sequence, H tokens of a half, W words, V
vocabulary.
"""

import bisect
import itertools
import typing

import numpy as np

from data_pipeline.records.schema import SPANS
from data_pipeline.records.schema import split_goal
from data_pipeline.tokenization.symbols import SPECIAL_IDS

LONGEST_SPAN = 5

# Rows sampled at once, so that the working set stays in the cache.
_ROWS = 1024

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
    sequence_length = token_ids.shape[1]
    first, second = split_goal(num_predict, sequence_length, reuse_length)
    halves = (
        (slice(0, reuse_length), first),
        (slice(reuse_length, sequence_length), second),
    )
    is_target = np.zeros(token_ids.shape, bool)
    sample = _sample_words if spans == "words" else _sample_subwords
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


def _sample_words(starts, special, goal, tokens_per_target, rng):
    words = whole_words(starts, special)
    taken, room = sample_spans(words, goal, tokens_per_target, rng)
    fill_with_words(words, taken, room, rng)
    # +1 where a word that is taken begins, -1 where it ends.
    num_rows, length = starts.shape
    edges = np.zeros(num_rows * (length + 1), np.int8)
    edges[words.begins[:-1][taken[:-1]]] += 1
    edges[words.ends[:-1][taken[:-1]]] -= 1
    edges = edges.reshape(num_rows, length + 1)
    return np.cumsum(edges, axis=1, dtype=np.int8)[:, :-1].astype(bool)


def _sample_subwords(starts, special, goal, tokens_per_target, rng):
    draws = _uniforms(rng)
    chosen = np.zeros(starts.shape, bool)
    for row, is_start in zip(chosen, starts, strict=True):
        begins = np.flatnonzero(is_start).tolist()
        found = sample_subwords(
            begins, len(row), goal, tokens_per_target, draws
        )
        row[found] = True
    return chosen


class Words(typing.NamedTuple):
    """The words of all rows, one after the other.

    Places count through the rows, each of which has one place more than it
    has tokens: token t of row s lies at s (H + 1) + t, so that no word of a
    row touches one of the next. A last word that lies behind everything and
    is never chosen ends the lists.

    `begins` and `ends` are int64 [W + 1]. `first` is int64 [S + 1]: the words
    of row s are `first[s]` to `first[s + 1]`. `next_word` is int64 [S, H + 1]:
    the first word of the row that begins at a token or behind it, or
    `first[s + 1]`.
    """

    begins: np.ndarray
    ends: np.ndarray
    first: np.ndarray
    next_word: np.ndarray


def whole_words(starts, special):
    """Where the words without special tokens lie in each row.

    The tokens before the first start and from the last one on are left out:
    the edge of the half may have cut their words.

    Args:
        starts: bool array [S, H], whether a token begins a word.
        special: bool array [S, H], tokens that are never predicted.

    Returns:
        Words.
    """
    num_rows, length = starts.shape
    stride = length + 1
    row, start = np.nonzero(starts)
    before = np.cumsum(special, dtype=np.int32)[row * length + start]
    # A start may be special itself, and begins another count then.
    before -= special[row, start]
    whole = (row[:-1] == row[1:]) & (before[:-1] == before[1:])
    row, begins, ends = row[:-1][whole], start[:-1][whole], start[1:][whole]
    first = np.searchsorted(row, np.arange(num_rows + 1))
    is_begin = np.zeros((num_rows, stride), bool)
    is_begin[row, begins] = True
    # How many words begin before each token.
    count = np.cumsum(is_begin, axis=1, dtype=np.int32) - is_begin
    behind = num_rows * stride + 1
    return Words(
        np.append(row * stride + begins, behind),
        np.append(row * stride + ends, behind),
        first,
        first[:-1, None] + count,
    )


def sample_spans(words, goal, tokens_per_target, rng):
    """Chooses spans of whole words, in reading order, in all rows at once.

    The context of a span of n words is as long as `tokens_per_target` spans of
    n words are on average, so that halves are covered to their end, however
    many pieces the vocabulary makes of a word.

    Args:
        words: Words.
        goal: int, the most tokens to choose in a row.
        tokens_per_target: int, K.
        rng: numpy.random.Generator.

    Returns:
        bool array [W + 1], the words taken, and int64 array [S], what is
        missing to the goal in each row.
    """
    num_rows, stride = words.next_word.shape
    sizes = np.append(0, np.cumsum(words.ends - words.begins))
    count = np.diff(words.first)
    total = sizes[words.first[1:]] - sizes[words.first[:-1]]
    context_of_word = tokens_per_target * total / np.maximum(1, count)
    taken = np.zeros(len(words.begins), bool)
    room = np.full(num_rows, goal)
    cursor = np.zeros(num_rows, np.int64)
    rows = np.flatnonzero((count > 0) & (goal > 0))
    while len(rows):
        draws = rng.random((2, len(rows)))
        wanted = np.searchsorted(_CUMULATIVE, draws[0], "right") + 1
        context = (wanted * context_of_word[rows]).astype(np.int64)
        left = (draws[1] * context).astype(np.int64)
        place = np.minimum(cursor[rows] + left, stride - 1)
        word = words.next_word[rows, place]
        on = word < words.first[rows + 1]
        rows, word, wanted = rows[on], word[on], wanted[on]
        right = (context - left)[on]
        used = _take_words(words, taken, word, wanted, room[rows])
        # Where not even one word fits, the span is left out.
        end = np.where(used > 0, words.begins[word] + used, words.ends[word])
        room[rows] -= used
        cursor[rows] = end - rows * stride + right
        rows = rows[(room[rows] > 0) & (cursor[rows] < stride - 1)]
    return taken, room


def _take_words(words, taken, word, wanted, room):
    """Takes up to `wanted` words beside each other, as long as they fit.

    Returns:
        int array, the number of tokens taken.
    """
    begin = words.begins[word]
    end = begin.copy()
    on = np.ones(len(word), bool)
    for number in range(LONGEST_SPAN):
        # The word behind the last one begins nowhere, so nothing runs over.
        index = np.minimum(word + number, len(words.begins) - 1)
        on &= (number < wanted) & (words.begins[index] == end)
        on &= words.ends[index] - begin <= room
        taken[index[on]] = True
        end[on] = words.ends[index[on]]
    return end - begin


def fill_with_words(words, taken, room, rng):
    """Adds words that are not taken, in random order, while they fit.

    Args:
        words: Words.
        taken: bool array [W + 1], changed in place.
        room: int array [S], the most tokens to add to each row; changed in
            place to what is left of it.
        rng: numpy.random.Generator.
    """
    first, count = words.first[:-1], np.diff(words.first)
    rows = np.flatnonzero((room > 0) & (count > 0))
    # Most draws hit; the exact way is for what they have not found.
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
        # What does not fit now never will, as the room only shrinks.
        place = slice(words.first[row], words.first[row + 1])
        size = words.ends[place] - words.begins[place]
        fits = ~taken[place] & (size <= room[row])
        rest = words.first[row] + rng.permutation(np.flatnonzero(fits))
        for word in rest.tolist():
            size = words.ends[word] - words.begins[word]
            if size <= room[row]:
                taken[word] = True
                room[row] -= size


def sample_subwords(begins, length, goal, tokens_per_target, draws):
    """Chooses spans of tokens of one half as the released code does.

    Args:
        begins: list of int, where words begin.
        length: int, tokens of the half.
        goal: int, the number of tokens to choose.
        tokens_per_target: int, K.
        draws: iterator of float in [0, 1).

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


def _uniforms(rng):
    """Floats in [0, 1); drawing them in blocks is 20 times as fast."""
    return itertools.chain.from_iterable(
        rng.random(4096).tolist() for _ in itertools.count()
    )
