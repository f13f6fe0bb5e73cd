"""Tokenizer as a TensorFlow graph, for exports that read raw text.

It uses TensorFlow's own ops and only two ops of TensorFlow Text,
`SentencepieceOp` and `SentencepieceTokenizeOp`, so that TensorFlow Serving can
load it. The cleaning is part of the SentencePiece model, see `cleaning`.

Shapes: N texts, M chunks of texts, P pieces of all texts, C characters.
"""

import hashlib
import typing
import weakref

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from data_pipeline.tokenization.cleaning import COMMA
from data_pipeline.tokenization.cleaning import FINAL_SIGMA
from data_pipeline.tokenization.cleaning import CommaTable
from data_pipeline.tokenization.cleaning import digit_comma_pattern
from data_pipeline.tokenization.cleaning import final_sigma_patterns
from data_pipeline.tokenization.cleaning import kind_ranges
from data_pipeline.tokenization.ragged import row_ids
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.unknown_runs import UnknownRuns

_CHUNK_WORDS = 128
# Kinds of characters, by the result of the cleaning; the model's own map drops
# the kind _DROPPED.
_TEXT, _BLANK, _MARK, _DROPPED = range(4)
# Tokenizer -> its traced GraphTokenizer, as long as the Tokenizer exists.
_GRAPHS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class _Chunks(typing.NamedTuple):
    """Chunks of texts; SentencePiece reads them one by one.

    Attributes:
        texts: string [M].
        splits: int64 [N + 1], the first chunk of each text.
        begins: int64 [M], first byte of each chunk, if a blank ended each text.
        continues: bool [M], whether a chunk begins inside a word.
    """

    texts: tf.Tensor
    splits: tf.Tensor
    begins: tf.Tensor
    continues: tf.Tensor


def graph_of(tokenizer):
    """Return the one traced GraphTokenizer of a Tokenizer.

    All preprocessors share it, so its functions are traced once.
    """
    if tokenizer not in _GRAPHS:
        # The tables must outlive a graph that is being traced.
        with tf.init_scope():
            _GRAPHS[tokenizer] = GraphTokenizer(tokenizer, is_traced=True)
    return _GRAPHS[tokenizer]


class GraphTokenizer(tf.Module):
    """Graph ops from raw text to SentencePiece ids, as `Tokenizer.encode`.

    Bytes that are not UTF-8 count as U+FFFD. One case can differ from
    `Tokenizer`: if two ways to split a word have equal scores up to rounding,
    TensorFlow Text's SentencePiece may choose the other one (about 1 line of
    150,000). It rounds to float32, which is coarse in words of some thousand
    pieces: runs of digits, or documents in a script without blanks.

    Args:
        tokenizer: Tokenizer, whose model and case are built in.
        is_traced: bool, whether calls share functions that are traced once.
            This is faster for many graphs, but a SavedModel would keep all
            traced functions. Default False: ops in the caller's graph.

    Call arguments:
        texts: string tensor [N], UTF-8.

    Returns:
        int32 ragged tensor [N, (T)].

    Raises:
        ValueError: `texts` is not of rank 1.

    Source: `prepro_utils.preprocess_text`, `prepro_utils.encode_pieces`.
    """

    def __init__(self, tokenizer, is_traced=False):
        super().__init__()
        self.lowercase = tokenizer.lowercase
        self._cleaning = tokenizer.cleaning
        self._unknown_runs = UnknownRuns(tokenizer)
        self._sentencepiece = _sentencepiece(self._unknown_runs.model_proto)
        # TensorFlow Text adds up scores in float32, which is too coarse to find
        # the best pieces of a long text.
        self._chunk_words = (
            _CHUNK_WORDS if tokenizer.cuts_at_blanks else np.iinfo(np.int64).max
        )
        with tf.device("CPU:0"):
            self._commas = CommaTable(*map(tf.constant, tokenizer.commas.table))
        self._splits_unknown = tokenizer.commas.splits_unknown
        self._offsets = _PieceOffsets(tokenizer)
        if is_traced:
            self._encode = _traced(self._encode)
            self._encode_with_offsets = _traced(self._encode_with_offsets)

    # AutoGraph has nothing to rewrite here, and its search takes seconds.
    @tf.autograph.experimental.do_not_convert
    def __call__(self, texts):
        return self._encode(_of_rank_1(texts))

    @tf.autograph.experimental.do_not_convert
    def tokenize_with_offsets(self, texts):
        """Split texts and locate each piece in its text.

        Pieces have the same characters as in `Tokenizer.encode_with_offsets`.
        Offsets count code points; a U+FFFD in place of bytes that are not UTF-8
        counts as one. An export that uses this holds the op
        `SentencepieceTokenizeWithOffsetsOp`, from the same kernels.

        Args:
            texts: string tensor [N], UTF-8.

        Returns:
            ids: int32 ragged tensor [N, (T)], as from a call.
            begins: int32 ragged tensor [N, (T)], in characters of the text.
            ends: int32 ragged tensor [N, (T)], likewise, exclusive.

        Raises:
            ValueError: `texts` is not of rank 1.
        """
        return self._encode_with_offsets(_of_rank_1(texts))

    def _encode(self, texts):
        with tf.device("CPU:0"):  # where strings live
            chunks = self._chunks(self._valid(texts))
            ids = self._sentencepiece.tokenize(chunks.texts)
            pieces, sources = self._unknown_runs.join(
                ids, chunks.continues, chunks.splits
            )
            return self._split_commas(pieces, ids, sources)[0]

    def _encode_with_offsets(self, texts):
        with tf.device("CPU:0"):
            texts = self._valid(texts)
            chunks = self._chunks(texts)
            ids, *limits = self._sentencepiece.tokenize_with_offsets(
                chunks.texts
            )
            pieces, sources = self._unknown_runs.join(
                ids, chunks.continues, chunks.splits
            )
            begins = tf.gather(chunks.begins, row_ids(ids))
            starts, limits = (
                begins + tf.cast(x.flat_values, tf.int64) for x in limits
            )
            spans = self._offsets(
                # A blank ends the last chunk of a text, too.
                tf.strings.unicode_decode(texts + " ", "UTF-8"),
                pieces,
                tf.gather(starts, sources.firsts),
                tf.gather(limits, sources.lasts),
                tf.gather(_is_first(ids), sources.firsts),
            )
            ids, places, whole = self._split_commas(pieces, ids, sources)
            begins, ends = self._offsets_of_parts(places, whole, spans)
            return ids, ids.with_flat_values(begins), ids.with_flat_values(ends)

    def _valid(self, texts):
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        if self._cleaning.has_sigma:
            _, pattern = final_sigma_patterns(self._cleaning.keep_accents)
            texts = tf.strings.regex_replace(
                texts, pattern, rf"\1{FINAL_SIGMA}\2"
            )
        return texts

    def _chunks(self, texts):
        """Cut texts [N] into chunks, at blanks and in long unknown words.

        Returns:
            _Chunks.
        """
        words = tf.strings.split(texts, " ")
        parts = self._unknown_runs.cut(words.flat_values)
        is_word = ~parts.continues
        # The first part of each word, and how many parts there are.
        first_parts = tf.concat(
            [tf.where(is_word)[:, 0], [tf.size(is_word, tf.int64)]], 0
        )
        part_splits = tf.gather(first_parts, words.row_splits)
        places = tf.range(tf.size(words.flat_values, tf.int64))
        places -= tf.gather(words.row_splits, row_ids(words))
        places = tf.gather(places, tf.cumsum(tf.cast(is_word, tf.int64)) - 1)
        is_begin = parts.continues | (places % self._chunk_words == 0)
        ends = tf.concat([[0], tf.cumsum(tf.cast(is_begin, tf.int64))], 0)
        numbers, count = ends[1:] - 1, ends[-1]
        chunks = tf.strings.unsorted_segment_join(
            parts.texts, numbers, count, separator=" "
        )
        # A blank follows each word.
        blanks = 1 - tf.cast(
            tf.concat([parts.continues, [False]], 0)[1:], tf.int64
        )
        sizes = tf.cast(tf.strings.length(parts.texts), tf.int64) + blanks
        sizes = tf.math.unsorted_segment_sum(sizes, numbers, count)
        continues = tf.boolean_mask(parts.continues, is_begin)
        begins = tf.cumsum(sizes)
        # A chunk lacks the blanks that it would begin with.
        begins -= tf.cast(tf.strings.length(chunks), tf.int64)
        begins -= 1 - tf.cast(tf.concat([continues, [False]], 0)[1:], tf.int64)
        return _Chunks(chunks, tf.gather(ends, part_splits), begins, continues)

    def _split_commas(self, pieces, chunk_ids, sources):
        """Apply the digit-comma rule to the pieces of `chunk_ids`.

        Returns the ids of the parts, the place of each in the table or behind
        it, and the index of its piece [P].
        """
        table, ids = self._commas, pieces.flat_values
        rows = tf.searchsorted(table.pieces, ids)
        is_split = tf.gather(table.pieces, rows) == ids
        if self._splits_unknown:
            is_unknown = tf.strings.regex_full_match(
                self._unknown_runs.texts(chunk_ids, sources),
                digit_comma_pattern(),
            )
            rows = tf.where(is_unknown, tf.size(table.pieces) - 1, rows)
            is_split |= is_unknown
        # Whole pieces follow behind the table, and are read from there.
        itself = tf.size(table.ids) + tf.range(tf.size(ids))
        starts = tf.where(is_split, tf.gather(table.splits, rows), itself)
        limits = tf.gather(table.splits, rows + 1)
        limits = tf.where(is_split, limits, itself + 1)
        places = tf.ragged.range(starts, limits, row_splits_dtype=tf.int64)
        parts = tf.RaggedTensor.from_row_splits(
            tf.gather(tf.concat([table.ids, ids], 0), places.flat_values),
            tf.gather(places.row_splits, pieces.row_splits),
            validate=False,
        )
        return parts, places.flat_values, row_ids(places)

    def _offsets_of_parts(self, places, sources, spans):
        """Offsets of the parts that the digit-comma rule made of pieces.

        Args:
            places: int32 [parts], in the CommaTable; beyond it for a piece that
                stays.
            sources: int64 [parts], index of the piece of each part.
            spans: from `_PieceOffsets`.

        Returns:
            begins and ends, int32 [parts].
        """
        begins, lasts, ends = (
            tf.cast(tf.gather(span, sources), tf.int32) for span in spans
        )
        table = self._commas
        size = tf.size(table.ids)
        is_part = places < size
        places = tf.minimum(places, size - 1)
        totals, before, widths = (
            tf.gather(column, places)
            for column in (table.totals, table.begins, table.widths)
        )
        is_comma = is_part & (totals == COMMA)
        is_digits = is_part & (totals != COMMA)
        fits = is_digits & (totals == lasts - begins)
        part_ends = tf.where(fits, begins + before + widths, lasts)
        begins = tf.where(fits, begins + before, begins)
        begins = tf.where(is_comma, lasts, begins)
        return begins, tf.where(is_digits, part_ends, ends)


def _of_rank_1(texts):
    texts = tf.convert_to_tensor(texts, tf.string)
    if texts.shape.rank != 1:
        raise ValueError(
            "`texts` must be a string tensor of rank 1. Received: "
            f"shape={texts.shape}. Put a single text into a list."
        )
    return texts


class _PieceOffsets:
    """Offsets of pieces, as from `Tokenizer.encode_with_offsets`.

    Args:
        tokenizer: Tokenizer.
    """

    def __init__(self, tokenizer):
        cleaning = tokenizer.cleaning
        kinds = {}
        for characters, kind in (
            (cleaning.blanks, _BLANK),
            (cleaning.marks, _MARK),
            (cleaning.dropped, _DROPPED),
        ):
            kinds.update((ord(character), kind) for character in characters)
        self._limits, self._kinds = kind_ranges(kinds, _TEXT)
        self._blank_ids = np.array(
            [
                index
                for index in range(tokenizer.vocabulary_size)
                if not tokenizer.id_to_piece(index).strip(BLANK)
            ],
            np.int32,
        )

    def __call__(self, codes, pieces, starts, limits, begins_chunk):
        """Begin, last character and end of each piece, without blanks around.

        Args:
            codes: int32 ragged [N, (C)], the characters of the texts, each
                followed by a blank.
            pieces: int32 ragged [N, (pieces)].
            starts, limits: int64 [P], in bytes of all texts, limits exclusive.
            begins_chunk: bool [P], whether SentencePiece put a blank before
                the piece.

        Returns:
            list of int64 [P] in characters of the piece's text: begin, last
            character, end (exclusive).
        """
        rows = row_ids(pieces)
        is_blank = tf.reduce_any(
            pieces.flat_values[:, None] == self._blank_ids, axis=1
        )
        # Else the blank lies inside a character that maps to several words.
        is_blank &= begins_chunk | (starts < limits)
        characters = _characters_of_bytes(codes.flat_values)
        starts, limits = (tf.gather(characters, x) for x in (starts, limits))
        kinds = tf.gather(
            self._kinds,
            tf.searchsorted(self._limits, codes.flat_values, side="right"),
        )
        is_text = kinds == _TEXT
        next_text = _next_place(is_text)
        # A mark belongs to the letter before it.
        letters = tf.maximum(_last_limit(kinds != _MARK)[1:] - 1, 0)
        last_solid = _last_limit(tf.gather(is_text, letters))
        begins = tf.gather(next_text, starts)
        # If no character is left, SentencePiece stopped inside the next one.
        is_inside = begins >= limits
        ends = tf.where(is_inside, begins + 1, tf.gather(last_solid, limits))
        lasts = tf.gather(_last_limit(is_text), limits) - 1
        lasts = tf.where(is_inside, begins, lasts)
        # A blank stands behind the text before it.
        firsts = tf.gather(codes.row_splits, rows)
        behind = tf.gather(last_solid, starts)
        first_seen = tf.gather(
            _next_place(is_text | (kinds == _DROPPED)), firsts
        )
        blanks = tf.where(
            behind > firsts, tf.minimum(behind, starts), first_seen
        )
        return [
            tf.where(is_blank, blanks, x) - firsts
            for x in (begins, lasts, ends)
        ]


def _is_first(rows):
    """True for the first value of each row of a ragged tensor, flat."""
    places = tf.range(tf.size(rows.flat_values, rows.row_splits.dtype))
    return places == tf.gather(rows.row_splits, row_ids(rows))


def _characters_of_bytes(codes):
    """Index of the character of each byte of characters [C] in UTF-8."""
    sizes = 1 + sum(
        tf.cast(codes >= code, tf.int64) for code in (0x80, 0x800, 0x10000)
    )
    return tf.repeat(tf.range(tf.size(codes, tf.int64)), sizes)


def _next_place(mask):
    """First True at or after each of the n + 1 boundaries, or n."""
    places = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], 0)
    return tf.gather(places, _counts(mask))


def _last_limit(mask):
    """One past the last True before each of the n + 1 boundaries."""
    limits = tf.concat([[0], tf.where(mask)[:, 0] + 1], 0)
    return tf.gather(limits, _counts(mask))


def _counts(mask):
    return tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)


def _traced(function):
    return tf.function(
        function,
        input_signature=[tf.TensorSpec([None], tf.string)],
        autograph=False,
    )


def _sentencepiece(model_proto):
    tokenizer = tensorflow_text.SentencepieceTokenizer(
        model=model_proto, out_type=tf.int32
    )
    # TensorFlow Text does not document this; a test sets a seed and tokenizes.
    tokenizer._model_resource = _NamedModel(model_proto, None)
    return tokenizer


class _NamedModel(sentencepiece_tokenizer._SentencepieceModelResource):
    """SentencePiece model under the name of its content, so that it lasts.

    In TensorFlow Text the kernel that made the model owns it, and TensorFlow
    drops all kernels when a random seed is set (`tf.random.set_seed`,
    `keras.utils.set_random_seed`): after that every call failed with "Resource
    ... SentencepieceOp ... does not exist". TensorFlow keeps a model with a
    name, and shares it among equal models.
    """

    def _create_resource(self):
        name = hashlib.sha256(self._model).hexdigest()
        with tf.name_scope("SentenceTokenizerInitializer"):
            operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
            return operations.sentencepiece_op(
                model=self._model, shared_name=f"sentencepiece_{name}"
            )
