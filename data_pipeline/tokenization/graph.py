"""The tokenizer as a TensorFlow graph, for exports that take raw text.

Beside TensorFlow's own ops it uses two of TensorFlow Text, `SentencepieceOp`
and `SentencepieceTokenizeOp`, so that TensorFlow Serving can load it. The
cleaning is part of the SentencePiece model, see `cleaning`.

Shapes: N texts, M chunks of texts, P pieces of all texts, C characters.
"""

import argparse
import hashlib
import sys

import numpy as np
import tensorflow as tf
import tensorflow_text
from tensorflow_text.python.ops import sentencepiece_tokenizer

from data_pipeline.command_line import run
from data_pipeline.tokenization.cleaning import FINAL_SIGMA
from data_pipeline.tokenization.cleaning import final_sigma_patterns
from data_pipeline.tokenization.commas import CommaTable
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.tokenizer import Tokenizer

_CHUNK_WORDS = 128
# What is left of a character after the cleaning.
_TEXT, _NOTHING, _MARK = range(3)


class GraphTokenizer(tf.Module):
    """Raw text to SentencePiece ids in graph ops, as `Tokenizer.encode`.

    Bytes that are not UTF-8 count as U+FFFD. One case can differ from
    `Tokenizer`: where two ways to split a word have the same score but for
    rounding, TensorFlow Text's SentencePiece may choose the other one (about 1
    line of 150,000).

    Args:
        tokenizer: Tokenizer, whose model and case are built in.
        name: str, default None.

    Call arguments:
        texts: string tensor [N], UTF-8.

    Returns:
        int32 ragged tensor [N, (T)].

    Raises:
        ValueError: `texts` is not of rank 1.

    Source: `prepro_utils.preprocess_text`, `prepro_utils.encode_pieces`.
    """

    def __init__(self, tokenizer, name=None):
        super().__init__(name=name)
        self.lowercase = tokenizer.lowercase
        self._cleaning = tokenizer.cleaning
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(
            model=self._cleaning.model_proto, out_type=tf.int32
        )
        # Not documented by TensorFlow Text; a test sets a seed and tokenizes.
        self._sentencepiece._model_resource = _NamedModel(
            self._cleaning.model_proto, None
        )
        # TensorFlow Text adds up scores in float32, which in a long text is too
        # coarse to tell the best pieces.
        self._chunk_words = (
            _CHUNK_WORDS if tokenizer.cuts_at_blanks else np.iinfo(np.int64).max
        )
        blanks = [
            index
            for index in range(tokenizer.vocabulary_size)
            if not tokenizer.id_to_piece(index).strip(BLANK)
        ]
        with tf.device("CPU:0"):
            self._blanks = tf.constant(blanks, tf.int32)
            self._commas = CommaTable(*map(tf.constant, tokenizer.commas.table))

    # There is nothing that AutoGraph would rewrite; looking takes seconds.
    @tf.autograph.experimental.do_not_convert
    def __call__(self, texts):
        with tf.device("CPU:0"):  # where strings live
            chunks, splits, _ = _chunks(self._valid(texts), self._chunk_words)
            ids = self._sentencepiece.tokenize(chunks)
            return self._split_commas(_by_text(ids, splits))[0]

    @tf.autograph.experimental.do_not_convert
    def tokenize_with_offsets(self, texts):
        """Splits texts and gives the characters that each piece came from.

        What belongs to a piece is as `Tokenizer.encode_with_offsets` has it.
        Offsets count code points; each U+FFFD that stands for bytes which are
        not UTF-8 counts as one. An export that uses this holds the op
        `SentencepieceTokenizeWithOffsetsOp`, of the same kernels.

        Args:
            texts: string tensor [N], UTF-8.

        Returns:
            ids: int32 ragged tensor [N, (T)], as the tokenizer itself gives.
            begins: int32 ragged tensor [N, (T)], in characters of the text.
            ends: int32 ragged tensor [N, (T)], likewise, exclusive.

        Raises:
            ValueError: `texts` is not of rank 1.
        """
        with tf.device("CPU:0"):
            texts = self._valid(texts)
            chunks, splits, chunk_begins = _chunks(texts, self._chunk_words)
            ids, starts, limits = self._sentencepiece.tokenize_with_offsets(
                chunks
            )
            # The blank ends the last chunk of a text as it does the others.
            codes = tf.strings.unicode_decode(texts + " ", "UTF-8")
            characters = _characters_of_bytes(codes.flat_values)
            chunk_begins = tf.gather(chunk_begins, starts.value_rowids())

            def in_characters(bytes_of_chunk):
                offsets = tf.cast(bytes_of_chunk.flat_values, tf.int64)
                return tf.gather(characters, chunk_begins + offsets)

            is_first = _is_first(starts)
            starts, limits = in_characters(starts), in_characters(limits)
            is_blank = tf.reduce_any(
                ids.flat_values[:, None] == self._blanks, axis=1
            )
            is_blank &= is_first | (starts < limits)
            pieces = _by_text(ids, splits)
            firsts = tf.gather(codes.row_splits, pieces.value_rowids())
            spans = self._spans(codes, firsts, starts, limits, is_blank)
            ids, places, sources = self._split_commas(pieces)
            begins, ends = self._spans_of_parts(places, sources, spans)
            firsts = tf.gather(firsts, sources)
            return (
                ids,
                ids.with_flat_values(tf.cast(begins - firsts, tf.int32)),
                ids.with_flat_values(tf.cast(ends - firsts, tf.int32)),
            )

    def _valid(self, texts):
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank != 1:
            raise ValueError(
                "`texts` must be a string tensor of rank 1. Received: "
                f"shape={texts.shape}. Put a single text into a list."
            )
        texts = tf.strings.unicode_transcode(texts, "UTF-8", "UTF-8")
        if self._cleaning.has_sigma:
            _, pattern = final_sigma_patterns()
            texts = tf.strings.regex_replace(
                texts, pattern, rf"\1{FINAL_SIGMA}\2"
            )
        return texts

    def _split_commas(self, pieces):
        """Applies the digit-comma rule.

        Returns the ids of the parts, the place of each in the table or behind
        it, and the piece [P] that each came from.
        """
        table, ids = self._commas, pieces.flat_values
        rows = tf.searchsorted(table.pieces, ids)
        is_split = tf.gather(table.pieces, rows) == ids
        # Pieces that stay are read from behind the table, where they follow.
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
        return parts, places.flat_values, places.value_rowids()

    def _spans(self, codes, firsts, starts, limits, is_blank):
        """Begin, last character and end of each piece, without blanks around.

        Args:
            codes: int32 ragged [N, (C)], the characters of the texts.
            firsts: int64 [P], the first character of each piece's text.
            starts, limits: int64 [P], in characters of all texts.
            is_blank: bool [P], pieces that are nothing but a blank.
        """
        kinds = self._kinds(codes.flat_values)
        is_text = kinds == _TEXT
        last_text = _last_limit(is_text)
        next_text = _next_place(is_text)
        # Marks belong to the letter that they follow.
        last_solid = _last_limit(
            tf.gather(
                kinds == _TEXT,
                tf.maximum(_last_limit(kinds != _MARK)[1:] - 1, 0),
            )
        )
        begins = tf.gather(next_text, starts)
        # Where no character is left, SentencePiece stopped inside of the next.
        is_inside = begins >= limits
        ends = tf.where(is_inside, begins + 1, tf.gather(last_solid, limits))
        lasts = tf.where(is_inside, begins, tf.gather(last_text, limits) - 1)
        # A blank stands behind the text before it.
        blanks = tf.gather(last_solid, starts)
        blanks = tf.where(
            blanks > firsts,
            tf.minimum(blanks, starts),
            tf.gather(next_text, firsts),
        )
        return [tf.where(is_blank, blanks, x) for x in (begins, lasts, ends)]

    def _kinds(self, codes):
        """_TEXT, _NOTHING or _MARK for each code."""
        limits, kinds = _kind_ranges(self._cleaning)
        return tf.gather(kinds, tf.searchsorted(limits, codes, side="right"))

    def _spans_of_parts(self, places, sources, spans):
        """Begins and ends of what the digit-comma rule made of the pieces."""
        begins, lasts, ends = (tf.gather(span, sources) for span in spans)
        table = self._commas
        whole = tf.size(table.ids)
        is_part = places < whole
        places = tf.where(is_part, places, whole)

        def column(values, of_whole):
            values = tf.concat([values, [of_whole]], 0)
            return tf.cast(tf.gather(values, places), tf.int64)

        totals = column(table.totals, CommaTable.COMMA)
        fits = totals == lasts - begins
        is_digits = totals != CommaTable.COMMA
        is_comma = is_part & ~is_digits
        begins = tf.where(is_comma, lasts, begins)
        begins += tf.where(fits, column(table.begins, 0), 0)
        limits = tf.where(fits, begins + column(table.widths, 0), lasts)
        return begins, tf.where(is_digits, limits, ends)


class _NamedModel(sentencepiece_tokenizer._SentencepieceModelResource):
    """The model under the name of its content, so that it lasts.

    TensorFlow Text lets the kernel that made the model own it, and TensorFlow
    drops all kernels when a random seed is set (`tf.random.set_seed`,
    `keras.utils.set_random_seed`): after that every call failed with "Resource
    ... SentencepieceOp ... does not exist". A model with a name is kept, and
    equal ones are one.
    """

    def _create_resource(self):
        name = hashlib.sha256(self._model).hexdigest()
        with tf.name_scope("SentenceTokenizerInitializer"):
            operations = sentencepiece_tokenizer.gen_sentencepiece_tokenizer
            return operations.sentencepiece_op(
                model=self._model, shared_name=f"sentencepiece_{name}"
            )


def agreement(tokenizer, texts, batch_size=256):
    """Compares the graph with the tokenizer that it was built from.

    Args:
        tokenizer: Tokenizer.
        texts: list of str.
        batch_size: int, default 256.

    Returns:
        list of int, the positions in `texts` where the ids differ.
    """
    graph = tf.function(
        GraphTokenizer(tokenizer),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    differences = []
    for begin in range(0, len(texts), batch_size):
        batch = texts[begin : begin + batch_size]
        rows = [text.encode(errors="surrogatepass") for text in batch]
        found = graph(tf.constant(rows, tf.string)).to_list()
        expected = tokenizer.encode_batch(batch)
        differences.extend(
            begin + row
            for row in range(len(batch))
            if found[row] != expected[row]
        )
    return differences


def main(argv=None):
    """Reports on which lines of a text the graph and the tokenizer agree.

    Args:
        argv: list of str, default None for those of the process.

    Returns:
        int, 0 where they agree on every line, else 1.

    Raises:
        OSError: an input cannot be read.
        ValueError: the tokenizer cannot be used, or there is no input.
    """
    parser = argparse.ArgumentParser(
        prog="python -m data_pipeline.tokenization.graph",
        description="Checks that the exported tokenizer gives the same ids "
        "as the one in Python.",
    )
    parser.add_argument("--tokenizer", required=True, metavar="FILE")
    parser.add_argument("--input", required=True, metavar="GLOB")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--show", type=int, default=5, metavar="N")
    options = parser.parse_args(argv)
    from data_pipeline.text.documents import read_documents

    tokenizer = Tokenizer(options.tokenizer, options.lowercase)
    lines = [
        line for document in read_documents(options.input) for line in document
    ]
    differences = agreement(tokenizer, lines)
    share = 1 - len(differences) / max(1, len(lines))
    sys.stdout.write(
        f"{len(lines)} lines, {len(differences)} differ, {share:.4%} agree\n"
    )
    for position in differences[: options.show]:
        sys.stdout.write(f"differs: {lines[position]!r}\n")
    return 1 if differences else 0


def _chunks(texts, chunk_words):
    """Cuts texts [N] at blanks into chunks [M].

    Returns them, the first chunk of each text [N + 1], and the byte where each
    begins [M] if a blank ended each text.
    """
    words = tf.strings.split(texts, " ")
    rows = words.value_rowids()
    places = tf.range(tf.size(rows, tf.int64))
    places -= tf.gather(words.row_splits, rows)
    firsts = tf.cast(places % chunk_words == 0, tf.int64)
    ends = tf.concat([[0], tf.cumsum(firsts)], 0)
    chunks = tf.strings.unsorted_segment_join(
        words.flat_values, ends[1:] - 1, ends[-1], separator=" "
    )
    sizes = tf.cast(tf.strings.length(words.flat_values) + 1, tf.int64)
    sizes = tf.math.unsorted_segment_sum(sizes, ends[1:] - 1, ends[-1])
    # A chunk lacks the blanks that it would begin with.
    begins = tf.cumsum(sizes) - 1
    begins -= tf.cast(tf.strings.length(chunks), tf.int64)
    return chunks, tf.gather(ends, words.row_splits), begins


def _by_text(ids, splits):
    """Pieces of chunks as pieces of the texts that the chunks are of."""
    ids = ids.with_row_splits_dtype(tf.int64)
    return tf.RaggedTensor.from_row_splits(
        ids.flat_values, tf.gather(ids.row_splits, splits), validate=False
    )


def _is_first(rows):
    """True for the first value of each row of a ragged tensor, flat."""
    places = tf.range(tf.size(rows.flat_values, rows.row_splits.dtype))
    return places == tf.gather(rows.row_splits, rows.value_rowids())


def _characters_of_bytes(codes):
    """The character of each byte of characters [C] in UTF-8."""
    sizes = 1 + sum(
        tf.cast(codes >= code, tf.int64) for code in (0x80, 0x800, 0x10000)
    )
    return tf.repeat(tf.range(tf.size(codes, tf.int64)), sizes)


def _kind_ranges(cleaning):
    """First codes of ranges, and the kind of character before and in each."""
    kinds = {}
    for characters, kind in (
        (cleaning.blanks, _NOTHING),
        (cleaning.marks, _MARK),
    ):
        kinds.update((ord(character), kind) for character in characters)
    limits, found = [], [_TEXT]
    for code in sorted(kinds.keys() | {code + 1 for code in kinds}):
        if kinds.get(code, _TEXT) != found[-1]:
            limits.append(code)
            found.append(kinds.get(code, _TEXT))
    return np.array(limits, np.int32), np.array(found, np.int32)


def _next_place(mask):
    """For each of the n + 1 boundaries, the first True from there on, or n."""
    places = tf.concat([tf.where(mask)[:, 0], [tf.size(mask, tf.int64)]], 0)
    return tf.gather(places, _counts(mask))


def _last_limit(mask):
    """For each of the n + 1 boundaries, one past the last True before it."""
    limits = tf.concat([[0], tf.where(mask)[:, 0] + 1], 0)
    return tf.gather(limits, _counts(mask))


def _counts(mask):
    return tf.concat([[0], tf.cumsum(tf.cast(mask, tf.int64))], 0)


if __name__ == "__main__":
    sys.exit(run(main))
