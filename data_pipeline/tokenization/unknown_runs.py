"""Graph ops for runs of characters that the vocabulary lacks.

SentencePiece converts such a run to one unknown piece. The SentencePiece
version in TensorFlow Text has two faults with such runs:

- It joins the characters of a run in quadratic time. So we use a model with
  byte fallback, which converts each unknown character to byte pieces with ids
  after the vocabulary. `join` then joins adjacent byte pieces to one unknown
  piece, in linear time.
- It adds scores in float32. Unknown characters have the lowest score. After
  some thousand of them, the sum is not precise enough to find the best pieces.
  So `cut` divides long words into parts, at places inside such runs, and `join`
  joins the pieces of the parts.

Cuts do not change the result. The characters on both sides of a cut are
unknown, so no piece spans the cut. A cut also never divides a sequence that a
cleaning rule replaces.

A chunk is a group of parts that SentencePiece tokenizes together.

Shapes: N texts, W words, P parts of words, M chunks of parts, K pieces of all
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

# Words up to this size are not cut.
_LONG_WORD = 1024  # bytes
_LONGEST_RUN = 256  # characters between two cuts
# Kinds of characters, by the characters that the cleaning gives: at least one
# possibly in the vocabulary, only unknown characters, or no characters.
_KNOWN, _UNKNOWN, _NOTHING = range(3)
_PAIR = 1 << 21  # larger than all code points


class Parts(typing.NamedTuple):
    """Parts of words. A short word is a single part.

    Attributes:
        texts: string [P].
        continues: bool [P], True if a part continues the word of the part
            before.
    """

    texts: tf.Tensor
    continues: tf.Tensor


class Sources(typing.NamedTuple):
    """Ranges of chunk pieces, one range for each of the n pieces from `join`.

    Attributes:
        firsts, lasts: int64 [n], the first and the last index of each range.
            The indices count the K pieces of all chunks.
    """

    firsts: tf.Tensor
    lasts: tf.Tensor


class UnknownRuns:
    """Ops that cut long runs of unknown characters and join their pieces.

    Args:
        tokenizer: Tokenizer.

    Attributes:
        model_proto: bytes, the SentencePiece model for chunks, which converts
            unknown characters to bytes.
    """

    def __init__(self, tokenizer):
        model = model_file.ModelProto.FromString(tokenizer.cleaning.model_proto)
        has_bytes = model.trainer_spec.byte_fallback
        # If the vocabulary has byte pieces, they must stay separate. Only
        # unigram models add scores.
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
        """Cut long words into parts.

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
        """Mark the characters before which a word may be cut.

        Returns:
            flat bool tensor with one value for each character of all words.
        """
        flat = codes.flat_values
        kinds = tf.gather(
            self._kinds, tf.searchsorted(self._limits, flat, side="right")
        )
        pairs = tf.concat([flat[:1], flat[:-1]], 0)
        pairs = tf.cast(pairs, tf.int64) * _PAIR + tf.cast(flat, tf.int64)
        rows = tf.searchsorted(self._pairs, pairs)
        is_pair = tf.gather(self._pairs, rows) == pairs
        # If the cleaning composes two characters to a known character, both
        # count as known.
        is_known = is_pair & tf.gather(self._is_known_pair, rows)
        is_known |= tf.concat([is_known, [False]], 0)[1:]
        kinds = tf.where(is_known, _KNOWN, kinds)
        places = tf.where(kinds != _NOTHING)[:, 0]
        before = tf.cumsum(tf.cast(kinds != _NOTHING, tf.int64), exclusive=True)
        # Index of the previous character that the cleaning keeps, or -1.
        last = tf.gather(tf.concat([[-1], places], 0), before)
        starts = tf.gather(codes.row_starts(), row_ids(codes))
        follows = tf.gather(kinds, tf.maximum(last, 0)) == _UNKNOWN
        return (kinds == _UNKNOWN) & follows & (last >= starts) & ~is_pair

    def join(self, ids, continues, splits):
        """Make the pieces of each text from the pieces of the text's chunks.

        Adjacent byte pieces become one unknown piece. SentencePiece adds a
        blank before every chunk. If a chunk begins inside a word, this blank is
        removed.

        Args:
            ids: int32 ragged tensor [M, (pieces)], the ids of each chunk.
            continues: bool tensor [M], True for a chunk that begins inside a
                word.
            splits: int64 tensor [N + 1], index of each text's first chunk,
                then M.

        Returns:
            tuple of the ids of texts (int32 ragged tensor [N, (pieces)]) and
            Sources.
        """
        chunks = row_ids(ids)
        places = tf.range(tf.size(chunks, tf.int64))
        is_first = places == tf.gather(ids.row_starts(), chunks)
        # SentencePiece adds a blank before every chunk.
        is_blank = is_first & (ids.flat_values == self._blank_id)
        is_blank &= tf.gather(continues, chunks)
        kept = tf.where(~is_blank)[:, 0]
        # Index of the text plus one, first for each chunk and then for each
        # piece.
        texts = tf.range(tf.size(continues, tf.int64))
        texts = tf.searchsorted(splits, texts, side="right")
        texts = tf.gather(texts, tf.gather(chunks, kept))
        is_byte = tf.gather(ids.flat_values >= self._first_byte, kept)
        # Join adjacent bytes, also in different chunks of a text.
        is_joined = is_byte & tf.concat([[False], is_byte], 0)[:-1]
        is_joined &= texts == tf.concat([[0], texts], 0)[:-1]
        starts = tf.where(~is_joined)[:, 0]
        ends = tf.concat([starts[1:], [tf.size(kept, tf.int64)]], 0)
        # Slice, because there may be no pieces and so no ends.
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
        """Return the cleaned characters of unknown pieces.

        Args:
            ids: int32 ragged tensor [M, (pieces)], the ids of each chunk.
            sources: Sources from `join`, for n pieces.

        Returns:
            string tensor [n], "" for pieces of the vocabulary.
        """
        places = tf.range(tf.size(ids.flat_values, tf.int64))
        numbers = tf.searchsorted(sources.firsts, places, side="right") - 1
        characters = [b"", *(bytes([byte]) for byte in range(256))]
        bytes_ = tf.maximum(ids.flat_values - self._first_byte + 1, 0)
        return tf.strings.unsorted_segment_join(
            tf.gather(characters, bytes_), numbers, tf.size(sources.firsts)
        )


def _add_bytes(model):
    """Append byte pieces for unknown characters to a model's vocabulary."""
    for entry in model.pieces:
        # No text contains these pieces. Rename them, because SentencePiece
        # would use a piece named "<0x41>" as a byte.
        if entry.type in (model_file.UNKNOWN, model_file.CONTROL):
            entry.piece += " (no text)"
    for byte in range(256):
        model.pieces.add(piece=f"<0x{byte:02X}>", type=model_file.BYTE)
    model.trainer_spec.byte_fallback = True


def _known_characters(model):
    # SentencePiece does not search for other kinds of pieces in texts.
    known = {
        character
        for entry in model.pieces
        if entry.type in (model_file.NORMAL, model_file.USER_DEFINED)
        for character in entry.piece
    }
    # The digit-comma rule needs the end of an unknown piece.
    return known | {" ", ",", BLANK}


def _rules(charsmap):
    """Convert a character map to a dict from strings to their replacements."""
    if not charsmap:
        return {}
    spec = model_file.ModelProto().normalizer_spec
    spec.precompiled_charsmap = charsmap
    return dict(
        sentencepiece.SentencePieceNormalizer(normalizer_spec=spec).decompile()
    )


def _kinds(known, rules):
    """Return a dict of character codes to kinds; other codes are `_UNKNOWN`."""

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
    """List the pairs of adjacent characters in the strings that rules replace.

    Returns:
        pairs: int64 array, each pair as one number, in ascending order.
        is_known: bool array, True for each pair in a string whose replacement
            contains a character in `known`.
    """
    pairs = {}
    for source, to in rules.items():
        for first, second in zip(source, source[1:], strict=False):
            pair = ord(first) * _PAIR + ord(second)
            pairs[pair] = pairs.get(pair, False) or not known.isdisjoint(to)
    # The last value is larger than all pairs, so every search finds a value.
    pairs = sorted({**pairs, _PAIR * _PAIR: False}.items())
    return np.array([p for p, _ in pairs], np.int64), np.array(
        [is_known for _, is_known in pairs]
    )
