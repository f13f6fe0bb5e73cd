"""Cuts in long runs of characters that the vocabulary lacks, in graph ops.

SentencePiece makes one unknown piece of such a run. The SentencePiece version
inside TensorFlow Text takes time quadratic in the length of the run, so that a
text of some hundred kilobytes in another script would keep a server busy for
minutes. Here runs are cut before SentencePiece, and the pieces joined after it.

A cut is safe: the characters on both sides are unknown, so no piece spans it;
and no cleaning rule contains these two characters in a row.

Shapes: W words, P parts of them, M chunks of parts, K pieces of all chunks.
"""

import typing

import numpy as np
import sentencepiece
import tensorflow as tf

from data_pipeline.tokenization import model_file
from data_pipeline.tokenization.ragged import row_ids
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import UNKNOWN_ID

# Shorter words are left whole, and cost nothing here.
_LONG_WORD = 1024  # bytes
_LONGEST_RUN = 256  # characters where a cut is possible
# Kinds of characters by what the cleaning leaves of them: one that the
# vocabulary may have, unknown ones alone, or nothing.
_KNOWN, _UNKNOWN, _NOTHING = range(3)
_PAIR = 1 << 21  # above all code points


class Parts(typing.NamedTuple):
    """Words, the long ones in parts.

    Attributes:
        texts: string [P].
        continues: bool [P], True = the part goes on with the word before it.
    """

    texts: tf.Tensor
    continues: tf.Tensor


class UnknownRuns:
    """Cuts long runs of unknown characters, and joins their pieces again.

    Args:
        tokenizer: Tokenizer.
    """

    def __init__(self, tokenizer):
        model = model_file.ModelProto.FromString(tokenizer.cleaning.model_proto)
        # The byte pieces of an unknown character are not joined to one piece.
        self._can_cut = (
            tokenizer.cuts_at_blanks and not model.trainer_spec.byte_fallback
        )
        if self._can_cut:
            rules = _rules(model.normalizer_spec.precompiled_charsmap)
            self._limits, self._kinds = _kind_ranges(model, rules)
            self._pairs = _pairs(rules)
        blank = tokenizer.piece_to_id(BLANK)
        self._blank_id = -1 if blank == UNKNOWN_ID else blank

    def cut(self, words):
        """The parts of words.

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
        places = tf.where(kinds != _NOTHING)[:, 0]
        before = tf.cumsum(tf.cast(kinds != _NOTHING, tf.int64), exclusive=True)
        # The previous character that the cleaning keeps; -1 = none.
        last = tf.gather(tf.concat([[-1], places], 0), before)
        starts = tf.gather(codes.row_starts(), row_ids(codes))
        follows = tf.gather(kinds, tf.maximum(last, 0)) == _UNKNOWN
        pairs = tf.concat([flat[:1], flat[:-1]], 0)
        pairs = tf.cast(pairs, tf.int64) * _PAIR + tf.cast(flat, tf.int64)
        found = tf.gather(self._pairs, tf.searchsorted(self._pairs, pairs))
        return (
            (kinds == _UNKNOWN) & follows & (last >= starts) & (found != pairs)
        )

    def join(self, ids, continues):
        """Join the pieces of parts to pieces of whole words.

        Args:
            ids: int32 ragged tensor [M, (pieces)].
            continues: bool tensor [M], whether a chunk begins with a part
                that goes on with a word.

        Returns:
            (firsts, lasts): int64 tensors, index of the first and of the last
            of the K pieces that make each piece of the whole words.
        """
        rows = row_ids(ids)
        places = tf.range(tf.size(rows, rows.dtype))
        is_head = places == tf.gather(ids.row_starts(), rows)
        is_head &= tf.gather(continues, rows)
        # SentencePiece puts a blank before every chunk.
        is_blank = is_head & (ids.flat_values == self._blank_id)
        follows_blank = tf.concat([[False], is_blank], 0)[:-1]
        is_joined = (is_head & ~is_blank) | follows_blank
        kept = tf.where(~is_blank)[:, 0]
        starts = tf.where(~tf.gather(is_joined, kept))[:, 0]
        ends = tf.concat([starts[1:], [tf.size(kept, tf.int64)]], 0)
        # No piece, no end.
        lasts = tf.gather(kept, (ends - 1)[: tf.size(starts)])
        return tf.gather(kept, starts), lasts


def _rules(charsmap):
    """dict of characters and sequences to the text they are cleaned to."""
    if not charsmap:
        return {}
    spec = model_file.ModelProto().normalizer_spec
    spec.precompiled_charsmap = charsmap
    return dict(
        sentencepiece.SentencePieceNormalizer(normalizer_spec=spec).decompile()
    )


def _kind_ranges(model, rules):
    """First codes of ranges, and the kind of character before and in each."""
    known = {c for entry in model.pieces for c in entry.piece}
    # The digit-comma rule looks at the end of an unknown piece.
    known |= {"\0", " ", ",", BLANK}

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
    limits, found = [], [_UNKNOWN]
    for code in sorted(kinds.keys() | {code + 1 for code in kinds}):
        if kinds.get(code, _UNKNOWN) != found[-1]:
            limits.append(code)
            found.append(kinds.get(code, _UNKNOWN))
    return np.array(limits, np.int32), np.array(found, np.int32)


def _pairs(rules):
    """Neighbours in the sequences that have rules, int64, rising."""
    pairs = {
        ord(first) * _PAIR + ord(second)
        for source in rules
        for first, second in zip(source, source[1:], strict=False)
    }
    # The last value is above all others and ends every search.
    return np.array([*sorted(pairs), _PAIR * _PAIR], np.int64)
