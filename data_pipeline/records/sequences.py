"""Documents -> one stream of tokens -> [reused half | A sep B sep cls].

Consecutive sequences overlap: each starts `reuse_length` tokens after the
previous one, for any lengths of A and B. So a memory of the first
`reuse_length` tokens of a sequence holds the tokens right before the next
sequence.

Shapes: N tokens of the stream, S sequences, T tokens of a sequence.
"""

import bisect
import itertools
import typing

import numpy as np

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import END_OF_DOCUMENT_ID
from data_pipeline.tokenization.symbols import SEP_ID


class Stream(typing.NamedTuple):
    """Stream of tokens, with the starts of its sentences.

    `token_ids` is int32 [N]. `sentence_starts` is int64 [n], ascending: the
    positions other than 0 where a sentence begins.
    """

    token_ids: np.ndarray
    sentence_starts: np.ndarray


class Sequences(typing.NamedTuple):
    """Sequences in the order of the stream.

    `token_ids` is int32 [S, T]; `segment_ids` uint8 [S, T], 0 reused and A and
    its <sep>, 1 B and its <sep>, 2 <cls>; `is_next` uint8 [S], 1 = B follows
    on A in the text.
    """

    token_ids: np.ndarray
    segment_ids: np.ndarray
    is_next: np.ndarray


def join_documents(token_ids, lengths, sentences, end_of_document=True):
    """Join tokenized documents to a stream.

    The <eod> behind a document belongs to its last sentence. Sentences and
    documents without tokens are dropped.

    Args:
        token_ids: int32 array, the tokens of all documents.
        lengths: int64 array, the number of tokens of each sentence.
        sentences: int64 array, the number of sentences of each document.
        end_of_document: bool, whether <eod> follows each document.

    Returns:
        Stream.

    Source: `_create_data`; `use_eod`.
    """
    document = np.repeat(np.arange(len(sentences)), sentences)
    ends = np.cumsum(lengths)
    starts = (ends - lengths)[lengths > 0]
    if end_of_document:
        # Each earlier document that has tokens shifts the starts by its <eod>.
        tokens = np.bincount(document, lengths, len(sentences))
        tokens = tokens.astype(np.int64)
        before = np.cumsum(tokens > 0) - (tokens > 0)
        starts += before[document[lengths > 0]]
        stops = np.cumsum(tokens)[tokens > 0]
        token_ids = np.insert(token_ids, stops, END_OF_DOCUMENT_ID)
    return Stream(token_ids.astype(np.int32), starts[1:])


def reverse_stream(stream):
    """Reverse a stream, for backward records.

    Args:
        stream: Stream.

    Returns:
        Stream.

    Source: `bwd_data` in `create_tfrecords`.
    """
    return Stream(
        stream.token_ids[::-1].copy(),
        (len(stream.token_ids) - stream.sentence_starts)[::-1].copy(),
    )


def build_sequences(stream, sequence_length, reuse_length, rng):
    """Cut a stream into sequences [reused half | A sep B sep cls].

    A begins after the reused tokens and ends with a sentence. With
    probability 1/2 B follows on A (`is_next` 1), else B is a random piece of
    the stream that begins and ends with sentences (`is_next` 0). The longer
    of the two is truncated on its right until both fit. If a sentence is
    longer than the room, a random B begins within it.

    With `reuse_length` 0 the next sequence begins behind A, or behind B if B
    follows on A.

    Args:
        stream: Stream.
        sequence_length: int, T.
        reuse_length: int, less than T - 4.
        rng: numpy.random.Generator, the only source of randomness.

    Returns:
        Sequences, S = 0 if the stream is too short.

    Source: `create_tfrecords`, `_split_a_and_b`.
    """
    data = stream.token_ids
    starts = stream.sentence_starts.tolist()
    room = sequence_length - reuse_length - 3
    draws = _Draws(rng)
    pairs, begin = [], 0
    # The last token of the stream is never used: the released code needs a next
    # token for each token, for its next-token targets.
    while begin + sequence_length <= len(data):
        pair = split_a_and_b(
            len(data), starts, begin + reuse_length, room, draws
        )
        if pair is None:
            break
        pairs.append(pair)
        if reuse_length:
            begin += reuse_length
        else:
            begin = pair.b_end if pair.is_next else pair.a_end
    return _sequences(data, pairs, sequence_length, reuse_length)


def _sequences(data, pairs, sequence_length, reuse_length):
    """Sequences of Pairs, which follow on the reused tokens."""
    token_ids = np.empty((len(pairs), sequence_length), np.int32)
    for row, (begin, a_end, b_begin, b_end, _) in zip(
        token_ids, pairs, strict=True
    ):
        begin -= reuse_length
        row[: a_end - begin] = data[begin:a_end]
        row[a_end - begin + 1 : -2] = data[b_begin:b_end]
    token_ids[:, -2:] = SEP_ID, CLS_ID
    begins, a_ends, _, _, labels = np.array(pairs, np.int64).reshape(-1, 5).T
    a_stops = a_ends - begins + reuse_length
    token_ids[np.arange(len(pairs)), a_stops] = SEP_ID
    segment_ids = (np.arange(sequence_length) > a_stops[:, None]).view(np.uint8)
    segment_ids[:, -1] = 2
    return Sequences(token_ids, segment_ids, labels.astype(np.uint8))


class _Draws:
    """Single draws from blocks of a generator, ten times as fast."""

    def __init__(self, rng):
        blocks = (rng.random(4096).tolist() for _ in itertools.count())
        self.random = itertools.chain.from_iterable(blocks).__next__

    def integers(self, high):
        return int(self.random() * high)


class Pair(typing.NamedTuple):
    """Offsets of A and B in a stream; `is_next` 1 = B follows on A."""

    a_begin: int
    a_end: int
    b_begin: int
    b_end: int
    is_next: int


def split_a_and_b(num_tokens, sentence_starts, begin, room, rng):
    """Draw A and B.

    Args:
        num_tokens: int, N.
        sentence_starts: list of int, as in Stream.
        begin: int, the offset of A.
        room: int, number of tokens of A and B together.
        rng: `random` and `integers` of a numpy.random.Generator.

    Returns:
        Pair, or None at the end of the stream.

    Source: `_split_a_and_b`.
    """
    if begin + room >= num_tokens:
        return None
    first = bisect.bisect_right(sentence_starts, begin)
    last = bisect.bisect_left(sentence_starts, begin + room)
    cuts = last - first
    end = sentence_starts[last] if last < len(sentence_starts) else num_tokens

    is_next = int(cuts > 0 and rng.random() >= 0.5)
    a_end = end
    if cuts:
        a_end = sentence_starts[first + int(rng.integers(cuts))]
    if is_next:
        b_begin, b_end = a_end, end
    else:
        wanted = max(1, room - (a_end - begin))
        b_begin = int(rng.integers(num_tokens - wanted))
        b_end = b_begin + wanted
        before = bisect.bisect_right(sentence_starts, b_begin)
        start = sentence_starts[before - 1] if before else 0
        # This differs from the release: in a text with few sentences, B
        # would always begin at the same few places.
        if b_begin - start < room:
            b_begin = start
        after = bisect.bisect_left(sentence_starts, b_end)
        if after < len(sentence_starts):
            b_end = sentence_starts[after]
        else:
            b_end = num_tokens - 1

    a_length, b_length = _trim(a_end - begin, b_end - b_begin, room)
    a_end, b_end = begin + a_length, b_begin + b_length
    if a_end >= num_tokens or b_end >= num_tokens:
        return None
    return Pair(begin, a_end, b_begin, b_end, is_next)


def _trim(a_length, b_length, room):
    """Truncate the longer length by one token at a time; ties: B."""
    excess = a_length + b_length - room
    if excess <= 0:
        return a_length, b_length
    longer = max(a_length, b_length)
    level = min(excess, abs(a_length - b_length))
    if a_length == longer:
        a_length -= level
    else:
        b_length -= level
    excess -= level
    return a_length - excess // 2, b_length - (excess + 1) // 2
