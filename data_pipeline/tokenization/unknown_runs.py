"""Runs of characters that the vocabulary lacks, in graph ops.

SentencePiece makes one unknown piece of such a run. The SentencePiece version
inside TensorFlow Text has two faults there:

- It joins the characters in time quadratic in the length of the run. So it gets
  a model with byte fallback, in which it joins nothing: each unknown character
  becomes its bytes, pieces behind the vocabulary. `join` makes one unknown
  piece of adjacent bytes, in linear time.
- It adds up scores in float32. Unknown characters have the lowest score of all;
  behind some thousand of them, the sum is too coarse to find the best pieces.
  So `cut` cuts such runs in long words, and `join` joins their parts.

A cut is safe: the characters on both sides are unknown, so no piece spans it;
and no cleaning rule contains these two characters in a row.

Shapes: N texts, W words, P parts of them, M chunks of parts, K pieces of all
chunks.
"""

import typing

import numpy as np
import sentencepiece
import tensorflow as tf

from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.cleaning import kind_ranges
from data_pipeline.tokenization.ragged import row_ids
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import UNKNOWN_ID

# Shorter words stay whole and cost nothing here.
_LONG_WORD = 1024  # bytes
_LONGEST_RUN = 256  # characters where a cut is possible
# Kinds of characters by the result of the cleaning: a character that the
# vocabulary may have, only unknown ones, or nothing.
_KNOWN, _UNKNOWN, _NOTHING = range(3)
_PAIR = 1 << 21  # above all code points


class Parts(typing.NamedTuple):
    """Words, with long ones in parts.

    Attributes:
        texts: string [P].
        continues: bool [P], True = the part continues the word before it.
    """

    texts: tf.Tensor
    continues: tf.Tensor


class Sources(typing.NamedTuple):
    """Pieces of chunks that form each of n pieces of texts.

    Attributes:
        firsts, lasts: int64 [n], indices among the K of the first and the last
            piece.
    """

    firsts: tf.Tensor
    lasts: tf.Tensor


class UnknownRuns:
    """Rules to cut long runs of unknown characters and join their pieces.

    Args:
        tokenizer: Tokenizer.

    Attributes:
        model_proto: bytes, the SentencePiece model that writes unknown
            characters as bytes, for chunks.
    """

    def __init__(self, tokenizer):
        model = model_file.ModelProto.FromString(tokenizer.cleaning.model_proto)
        has_bytes = model.trainer_spec.byte_fallback
        # The vocabulary's own byte pieces must stay separate, and only unigram
        # models add up scores.
        self._can_cut = (
            tokenizer.cuts_at_blanks
            and not has_bytes
            and model.trainer_spec.model_type == model_file.UNIGRAM
        )
        if self._can_cut:
            known = _known_characters(model)
            rules = _rules(model.normalizer_spec.precompiled_charsmap)
            self._limits, self._kinds = kind_ranges(
                _kinds(known, rules), _UNKNOWN
            )
            self._pairs, self._is_known_pair = _pairs(known, rules)
        blank = tokenizer.piece_to_id(BLANK)
        self._blank_id = -1 if blank == UNKNOWN_ID else blank
        self._first_byte = len(model.pieces)
        if not has_bytes:
            _add_bytes(model)
        self.model_proto = model.SerializeToString()

    def cut(self, words):
        """Cut words into parts.

        Args:
            words: string tensor [W], UTF-8.

        Returns:
            Parts.
        """
        if not self._can_cut:
            return Parts(words, tf.zeros(tf.shape(words), tf.bool))
        lengths = tf.concat([[0], tf.strings.length(words)], 0)
        return tf.cond(
            tf.reduce_max(lengths) > _LONG_WORD,
            lambda: self._cut(words),
            lambda: Parts(words, tf.zeros(tf.shape(words), tf.bool)),
        )

    def _cut(self, words):
        codes = tf.strings.unicode_decode(words, "UTF-8")
        codes = codes.with_row_splits_dtype(tf.int64)
        is_cut = self._may_be_cut(codes)
        counts = tf.cumsum(tf.cast(is_cut, tf.int64))
        is_cut &= counts % _LONGEST_RUN == 0
        begins = tf.concat([codes.row_starts(), tf.where(is_cut)[:, 0]], 0)
        order = tf.argsort(begins, stable=True)
        splits = tf.concat(
            [tf.gather(begins, order), [tf.size(is_cut, tf.int64)]], 0
        )
        parts = tf.RaggedTensor.from_row_splits(
            codes.flat_values, splits, validate=False
        )
        return Parts(
            tf.strings.unicode_encode(parts, "UTF-8"), order >= tf.size(words)
        )

    def _may_be_cut(self, codes):
        """Whether a word may be cut before each of its characters, bool."""
        flat = codes.flat_values
        kinds = tf.gather(
            self._kinds, tf.searchsorted(self._limits, flat, side="right")
        )
        pairs = tf.concat([flat[:1], flat[:-1]], 0)
        pairs = tf.cast(pairs, tf.int64) * _PAIR + tf.cast(flat, tf.int64)
        rows = tf.searchsorted(self._pairs, pairs)
        is_pair = tf.gather(self._pairs, rows) == pairs
        # If the cleaning composes two characters to a known one, both are
        # known.
        is_known = is_pair & tf.gather(self._is_known_pair, rows)
        is_known |= tf.concat([is_known, [False]], 0)[1:]
        kinds = tf.where(is_known, _KNOWN, kinds)
        places = tf.where(kinds != _NOTHING)[:, 0]
        before = tf.cumsum(tf.cast(kinds != _NOTHING, tf.int64), exclusive=True)
        # The previous character that the cleaning keeps; -1 = none.
        last = tf.gather(tf.concat([[-1], places], 0), before)
        starts = tf.gather(codes.row_starts(), row_ids(codes))
        follows = tf.gather(kinds, tf.maximum(last, 0)) == _UNKNOWN
        return (kinds == _UNKNOWN) & follows & (last >= starts) & ~is_pair

    def join(self, ids, continues, splits):
        """Join the pieces of chunks to the pieces of texts.

        Args:
            ids: int32 ragged tensor [M, (pieces)].
            continues: bool tensor [M], whether a chunk begins inside a word.
            splits: int64 tensor [N + 1], the first chunk of each text.

        Returns:
            (int32 ragged tensor [N, (pieces)], Sources).
        """
        chunks = row_ids(ids)
        places = tf.range(tf.size(chunks, tf.int64))
        is_first = places == tf.gather(ids.row_starts(), chunks)
        # SentencePiece puts a blank before every chunk.
        is_blank = is_first & (ids.flat_values == self._blank_id)
        is_blank &= tf.gather(continues, chunks)
        kept = tf.where(~is_blank)[:, 0]
        # Index of the text plus one, for each chunk and then for each piece.
        texts = tf.range(tf.size(continues, tf.int64))
        texts = tf.searchsorted(splits, texts, side="right")
        texts = tf.gather(texts, tf.gather(chunks, kept))
        is_byte = tf.gather(ids.flat_values >= self._first_byte, kept)
        # Adjacent bytes are one piece, also across chunks of a text.
        is_joined = is_byte & tf.concat([[False], is_byte], 0)[:-1]
        is_joined &= texts == tf.concat([[0], texts], 0)[:-1]
        starts = tf.where(~is_joined)[:, 0]
        ends = tf.concat([starts[1:], [tf.size(kept, tf.int64)]], 0)
        # Without pieces there is no end.
        lasts = tf.gather(kept, (ends - 1)[: tf.size(starts)])
        firsts = tf.gather(kept, starts)
        joined = tf.gather(ids.flat_values, firsts)
        joined = tf.where(joined < self._first_byte, joined, UNKNOWN_ID)
        row_splits = tf.searchsorted(
            tf.gather(chunks, firsts), splits, out_type=tf.int64
        )
        joined = tf.RaggedTensor.from_row_splits(
            joined, row_splits, validate=False
        )
        return joined, Sources(firsts, lasts)

    def texts(self, ids, sources):
        """Cleaned characters of unknown pieces.

        Args:
            ids: int32 ragged tensor [M, (pieces)].
            sources: Sources of n pieces that `join` made of them.

        Returns:
            string [n], empty for pieces of the vocabulary.
        """
        places = tf.range(tf.size(ids.flat_values, tf.int64))
        numbers = tf.searchsorted(sources.firsts, places, side="right") - 1
        characters = [b"", *(bytes([byte]) for byte in range(256))]
        bytes_ = tf.maximum(ids.flat_values - self._first_byte + 1, 0)
        return tf.strings.unsorted_segment_join(
            tf.gather(characters, bytes_), numbers, tf.size(sources.firsts)
        )


def _add_bytes(model):
    """Make a model write unknown characters as bytes behind its vocabulary."""
    for entry in model.pieces:
        # No text contains these pieces. SentencePiece would treat one named
        # "<0x41>" as the byte.
        if entry.type in (model_file.UNKNOWN, model_file.CONTROL):
            entry.piece += " (no text)"
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=model_file.BYTE)
    model.trainer_spec.byte_fallback = True


def _known_characters(model):
    # SentencePiece does not look for other pieces in texts.
    known = {
        character
        for entry in model.pieces
        if entry.type in (model_file.NORMAL, model_file.USER_DEFINED)
        for character in entry.piece
    }
    # The digit-comma rule needs the end of an unknown piece.
    return known | {" ", ",", BLANK}


def _rules(charsmap):
    """dict of characters and sequences to their cleaned text."""
    if not charsmap:
        return {}
    spec = model_file.ModelProto().normalizer_spec
    spec.precompiled_charsmap = charsmap
    return dict(
        sentencepiece.SentencePieceNormalizer(normalizer_spec=spec).decompile()
    )


def _kinds(known, rules):
    """dict of a character's code to its kind; others are unknown."""

    def kind(text):
        if not text:
            return _NOTHING
        return _UNKNOWN if known.isdisjoint(text) else _KNOWN

    kinds = {ord(character): _KNOWN for character in known}
    kinds.update(
        (ord(source), kind(to))
        for source, to in rules.items()
        if len(source) == 1
    )
    return kinds


def _pairs(known, rules):
    """Neighbours in the sequences that have rules.

    Returns:
        pairs: int64, rising.
        is_known: bool, whether a rule gives known characters.
    """
    pairs = {}
    for source, to in rules.items():
        for first, second in zip(source, source[1:], strict=False):
            pair = ord(first) * _PAIR + ord(second)
            pairs[pair] = pairs.get(pair, False) or not known.isdisjoint(to)
    # The last value is above all others, so every search ends there.
    pairs = sorted({**pairs, _PAIR * _PAIR: False}.items())
    return np.array([p for p, _ in pairs], np.int64), np.array(
        [is_known for _, is_known in pairs]
    )
