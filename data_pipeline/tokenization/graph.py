"""Tokenizer as TensorFlow ops, for exports that read raw text.

The graph has only TensorFlow's own ops and two ops of TensorFlow Text,
`SentencepieceOp` and `SentencepieceTokenizeOp`. So TensorFlow Serving can load
the graph. The cleaning is compiled into the SentencePiece model, see
`cleaning`.

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
# Kinds of characters, by the result of the cleaning. The model's own map
# removes characters of the kind _DROPPED.
_TEXT, _BLANK, _MARK, _DROPPED = range(4)
# The traced GraphTokenizer of each Tokenizer, as long as the Tokenizer exists.
_GRAPHS: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()


class _Chunks(typing.NamedTuple):
    """Chunks of texts, which SentencePiece tokenizes separately.

    Attributes:
        texts: string [M].
        splits: int64 [N + 1], index of each text's first chunk, then M.
        begins: int64 [M], byte offset of each chunk in the concatenation of all
            texts, with a blank after each text.
        continues: bool [M], True for a chunk that begins inside a word.
    """

    texts: tf.Tensor
    splits: tf.Tensor
    begins: tf.Tensor
    continues: tf.Tensor


def graph_of(tokenizer):
    """Return the shared GraphTokenizer of a Tokenizer.

    All preprocessors of the Tokenizer use this GraphTokenizer, so its functions
    are traced only once.
    """
    if tokenizer not in _GRAPHS:
        # Make the tables outside of a traced graph, because they must outlive
        # it.
        with tf.init_scope():
            _GRAPHS[tokenizer] = GraphTokenizer(tokenizer, is_traced=True)
    return _GRAPHS[tokenizer]


class GraphTokenizer(tf.Module):
    """Tokenizer in graph ops, with the ids of `Tokenizer.encode`.

    Bytes that are not UTF-8 count as U+FFFD. In about 1 line of 150,000, the
    ids may differ from the ids of `Tokenizer`. TensorFlow Text rounds scores to
    float32. If two ways to split a word have almost equal scores, TensorFlow
    Text may therefore choose another way than `Tokenizer`. The rounding is
    coarse in words with some thousand pieces, such as runs of digits or
    documents in a script without blanks.

    Args:
        tokenizer: Tokenizer. The graph contains the tokenizer's model and
            setting for case.
        is_traced: bool, whether calls share functions that are traced once.
            Shared functions save time if many graphs use the tokenizer. But a
            SavedModel would contain all traced functions. Default False: each
            call adds ops to the caller's graph.

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
        # Use chunks, because TensorFlow Text adds scores in float32. This is
        # not precise enough to find the best pieces of a long text.
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

    # AutoGraph has nothing to convert here, but its search takes seconds.
    @tf.autograph.experimental.do_not_convert
    def __call__(self, texts):
        return self._encode(_of_rank_1(texts))

    @tf.autograph.experimental.do_not_convert
    def tokenize_with_offsets(self, texts):
        """Tokenize texts and find the place of each piece.

        Spans are the same as in `Tokenizer.encode_with_offsets`. Offsets count
        code points. A U+FFFD for bytes that are not UTF-8 is one code point.
        An export that uses this method also has the op
        `SentencepieceTokenizeWithOffsetsOp`. This op is in the same library of
        TensorFlow Text as the two ops that every export has.

        Args:
            texts: string tensor [N], UTF-8.

        Returns:
            ids: int32 ragged tensor [N, (T)], as from `__call__`.
            begins: int32 ragged tensor [N, (T)], in characters of the text.
            ends: int32 ragged tensor [N, (T)], in characters, exclusive.

        Raises:
            ValueError: `texts` is not of rank 1.
        """
        return self._encode_with_offsets(_of_rank_1(texts))

    def _encode(self, texts):
        with tf.device("CPU:0"):  # strings are on the CPU
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
                # The last chunk of a text also ends with a blank.
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
        """Cut texts into chunks, at blanks and in long unknown runs.

        Returns:
            _Chunks.
        """
        words = tf.strings.split(texts, " ")
        parts = self._unknown_runs.cut(words.flat_values)
        is_word = ~parts.continues
        # Index of each word's first part, and the number of all parts.
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
        # A blank follows each word, but no part inside a word.
        blanks = 1 - tf.cast(
            tf.concat([parts.continues, [False]], 0)[1:], tf.int64
        )
        sizes = tf.cast(tf.strings.length(parts.texts), tf.int64) + blanks
        sizes = tf.math.unsorted_segment_sum(sizes, numbers, count)
        continues = tf.boolean_mask(parts.continues, is_begin)
        begins = tf.cumsum(sizes)
        # Subtract the length of the chunk and of the blank after it.
        begins -= tf.cast(tf.strings.length(chunks), tf.int64)
        begins -= 1 - tf.cast(tf.concat([continues, [False]], 0)[1:], tf.int64)
        return _Chunks(chunks, tf.gather(ends, part_splits), begins, continues)

    def _split_commas(self, pieces, chunk_ids, sources):
        """Apply the digit-comma rule to the ids in `pieces`.

        `chunk_ids` are the ids of all chunks. `UnknownRuns.join` made `pieces`
        and `sources` from `chunk_ids`.

        Returns:
            tuple of three: the resulting ids (int32 ragged tensor), then the
            first two arguments of `_offsets_of_parts`.
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
        # Unsplit pieces are appended to the table and read from there.
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
        """Compute the offsets of the parts into which pieces are split.

        A piece that the digit-comma rule does not split is a single part.

        Args:
            places: int32 [parts], place of each part in the CommaTable. A piece
                that is not split has a place after the end of the table.
            sources: int64 [parts], index of the piece that contains each part.
            spans: result of `_PieceOffsets`.

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
    """Ops for the offsets of pieces, see `Tokenizer.encode_with_offsets`.

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
        """Find the begin, last character and end of each piece.

        Surrounding blanks are not part of a piece.

        Args:
            codes: int32 ragged [N, (C)], the characters of each text with a
                blank at the end.
            pieces: int32 ragged [N, (pieces)].
            starts, limits: int64 [P], begin and end (exclusive) of each piece,
                as byte offsets in the concatenation of all texts, with a blank
                after each text.
            begins_chunk: bool [P], True for the first piece of a chunk.
                SentencePiece adds a blank before each chunk.

        Returns:
            list of three int64 [P], in characters of the text: begin, last
            character, and end (exclusive).
        """
        rows = row_ids(pieces)
        is_blank = tf.reduce_any(
            pieces.flat_values[:, None] == self._blank_ids, axis=1
        )
        # Otherwise the blank is inside a character that maps to several words.
        is_blank &= begins_chunk | (starts < limits)
        characters = _characters_of_bytes(codes.flat_values)
        starts, limits = (tf.gather(characters, x) for x in (starts, limits))
        kinds = tf.gather(
            self._kinds,
            tf.searchsorted(self._limits, codes.flat_values, side="right"),
        )
        is_text = kinds == _TEXT
        next_text = _next_place(is_text)
        # A mark belongs to the letter before the mark.
        letters = tf.maximum(_last_limit(kinds != _MARK)[1:] - 1, 0)
        last_solid = _last_limit(tf.gather(is_text, letters))
        begins = tf.gather(next_text, starts)
        # If no character is left, SentencePiece ended inside the next
        # character.
        is_inside = begins >= limits
        ends = tf.where(is_inside, begins + 1, tf.gather(last_solid, limits))
        lasts = tf.gather(_last_limit(is_text), limits) - 1
        lasts = tf.where(is_inside, begins, lasts)
        # The place of a blank is after the preceding text.
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
    """Mark the first value of each row of a ragged tensor, flat bool."""
    places = tf.range(tf.size(rows.flat_values, rows.row_splits.dtype))
    return places == tf.gather(rows.row_splits, row_ids(rows))


def _characters_of_bytes(codes):
    """Find the index of the character to which each UTF-8 byte belongs."""
    sizes = 1 + sum(
        tf.cast(codes >= code, tf.int64) for code in (0x80, 0x800, 0x10000)
    )
    return tf.repeat(tf.range(tf.size(codes, tf.int64)), sizes)


def _next_place(mask):
    """Find the index of the first True at or after each place of `mask`.

    A mask of n values has n + 1 places: the last place is the end. If no True
    follows, the index is n.
    """
    places = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], 0)
    return tf.gather(places, _counts(mask))


def _last_limit(mask):
    """Find the index + 1 of the last True before each place of `mask`.

    The places are as in `_next_place`. If no True precedes, the result is 0.
    """
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
    # This attribute of TensorFlow Text is not documented. A test sets a seed
    # and tokenizes, to detect changes.
    tokenizer._model_resource = _NamedModel(model_proto, None)
    return tokenizer


class _NamedModel(sentencepiece_tokenizer._SentencepieceModelResource):
    """SentencePiece model with a name; the model outlives its op kernel.

    In TensorFlow Text, the op kernel that made the model owns the model.
    TensorFlow deletes all kernels when a random seed is set
    (`tf.random.set_seed`, `keras.utils.set_random_seed`). Afterwards every call
    would fail with "Resource ... SentencepieceOp ... does not exist".
    TensorFlow keeps a model that has a name. The name is the digest of the
    content, so equal models are shared.
    """

    def _create_resource(self):
        name = hashlib.sha256(self._model).hexdigest()
        with tf.name_scope("SentenceTokenizerInitializer"):
            operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
            return operations.sentencepiece_op(
                model=self._model, shared_name=f"sentencepiece_{name}"
            )
