"""Cutting of documents into sequences [reused half | A sep B sep cls].

All documents form one stream of tokens. A sequence has `reuse_length` reused
tokens and two segments of text, A and B. If `reuse_length` is above 0, each
sequence starts `reuse_length` tokens after the previous sequence, for any
lengths of A and B. A memory of the first `reuse_length` tokens of a sequence
therefore contains the tokens directly before the next sequence.

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
    """Stream of tokens with the starts of sentences.

    Attributes:
        token_ids: int32 [N].
        sentence_starts: int64 [n], positions of the first tokens of n sentences
            in ascending order. The sentence at position 0 is left out.
    """

    token_ids: np.ndarray
    sentence_starts: np.ndarray


class Sequences(typing.NamedTuple):
    """Sequences of a stream, in the order of the stream.

    Attributes:
        token_ids: int32 [S, T].
        segment_ids: uint8 [S, T]. 0 for the reused tokens, A and its <sep>; 1
            for B and its <sep>; 2 for <cls>.
        is_next: uint8 [S], 1 if B follows A in the text.
    """

    token_ids: np.ndarray
    segment_ids: np.ndarray
    is_next: np.ndarray


def join_documents(token_ids, lengths, sentences, end_of_document=True):
    """Join tokenized documents into a stream.

    The <eod> after a document belongs to the last sentence of the document.
    Sentences and documents without tokens are skipped.

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
        # The <eod> of each earlier document with tokens shifts the starts.
        tokens = np.bincount(document, lengths, len(sentences))
        tokens = tokens.astype(np.int64)
        before = np.cumsum(tokens > 0) - (tokens > 0)
        starts += before[document[lengths > 0]]
        stops = np.cumsum(tokens)[tokens > 0]
        token_ids = np.insert(token_ids, stops, END_OF_DOCUMENT_ID)
    return Stream(token_ids.astype(np.int32), starts[1:])


def reverse_stream(stream):
    """Reverse the tokens of a stream, for backward records.

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

    A begins after the reused tokens and ends at the end of a sentence. With
    probability 1/2, B follows A (`is_next` 1). Otherwise B is a random piece of
    the stream that begins and ends with whole sentences (`is_next` 0). The
    longer of A and B is truncated at its right end until both fit.

    Long sentences cause two exceptions. If no new sentence begins in the room
    for A and B (T - `reuse_length` - 3 tokens), B is always random. A random B
    may begin inside a sentence that is longer than this room.

    With `reuse_length` 0 the next sequence begins after A, or after B if B
    follows A.

    Args:
        stream: Stream.
        sequence_length: int, T.
        reuse_length: int, less than T - 4.
        rng: numpy.random.Generator, the only source of randomness.

    Returns:
        Sequences. S is 0 if the stream is too short.

    Source: `create_tfrecords`, `_split_a_and_b`.
    """
    data = stream.token_ids
    starts = stream.sentence_starts.tolist()
    room = sequence_length - reuse_length - 3
    draws = _Draws(rng)
    pairs, begin = [], 0
    # The last token of the stream is never used, as in the released code, which
    # needs a next token as the target of each token.
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
    """Make Sequences from Pairs and from the reused tokens before each A."""
    token_ids = np.empty((len(pairs), sequence_length), np.int32)
    # Nothing has the length of a sequence if the text is too short for one.
    segment_ids = np.zeros((len(pairs), sequence_length), np.uint8)
    for ids, segments, (begin, a_end, b_begin, b_end, _) in zip(
        token_ids, segment_ids, pairs, strict=True
    ):
        begin -= reuse_length
        a_stop = a_end - begin
        ids[:a_stop] = data[begin:a_end]
        ids[a_stop] = SEP_ID
        ids[a_stop + 1 : -2] = data[b_begin:b_end]
        segments[a_stop + 1 :] = 1
    token_ids[:, -2:] = SEP_ID, CLS_ID
    segment_ids[:, -1] = 2
    labels = np.array([pair.is_next for pair in pairs], np.uint8)
    return Sequences(token_ids, segment_ids, labels)


class _Draws:
    """Random draws in blocks, ten times as fast as single draws."""

    def __init__(self, rng):
        blocks = (rng.random(4096).tolist() for _ in itertools.count())
        self.random = itertools.chain.from_iterable(blocks).__next__

    def integers(self, high):
        return int(self.random() * high)


class Pair(typing.NamedTuple):
    """Offsets of A and B in a stream. `is_next` is 1 if B follows A."""

    a_begin: int
    a_end: int
    b_begin: int
    b_end: int
    is_next: int


def split_a_and_b(num_tokens, sentence_starts, begin, room, rng):
    """Draw the segments A and B of a sequence.

    Args:
        num_tokens: int, N.
        sentence_starts: list of int, as in Stream.
        begin: int, offset of A in the stream.
        room: int, maximum number of tokens of A and B together.
        rng: object with the methods `random` and `integers` of a
            numpy.random.Generator.

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
        # The release always moves B to the start of a sentence. In a text with
        # few sentences, B would then always begin at the same few places.
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
    """Shorten the longer segment, or B if both are equal, until both fit."""
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
