"""The tokenizer as a TensorFlow graph, for exports that take raw text.

Beside TensorFlow's own ops it uses two of TensorFlow Text, `SentencepieceOp`
and `SentencepieceTokenizeOp`, so that TensorFlow Serving can load it. Python's
Unicode tables travel in the graph as constants.
"""

import argparse
import sys

import numpy as np
import tensorflow as tf

from data_pipeline.command_line import run
from data_pipeline.tokenization.graph_normalization import GraphNormalizer
from data_pipeline.tokenization.graph_normalization import constants
from data_pipeline.tokenization.graph_normalization import replace
from data_pipeline.tokenization.graph_offsets import CleanedTexts
from data_pipeline.tokenization.graph_offsets import PieceOffsets
from data_pipeline.tokenization.graph_sentencepiece import (
    sentencepiece_in_graph,
)
from data_pipeline.tokenization.symbols import UNKNOWN_ID
from data_pipeline.tokenization.tokenizer import Tokenizer
from data_pipeline.tokenization.unicode_tables import digit_comma_pattern
from data_pipeline.tokenization.unicode_tables import ragged

_CHUNK_WORDS = 128


class GraphTokenizer(tf.Module):
    """Raw text to SentencePiece ids in graph ops, as `Tokenizer.encode`.

    Bytes that are not UTF-8 count as U+FFFD. Two cases can differ from
    `Tokenizer`. Where two ways to split a word have the same score but for
    rounding, TensorFlow Text's SentencePiece may choose the other one (about 1
    line of 150,000). With a vocabulary that lacks the comma, an unknown run
    such as "x3," becomes two unknown pieces without asking the model again.

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
        self._normalize = GraphNormalizer(tokenizer.lowercase)
        self._offsets = PieceOffsets(tokenizer)
        self._sentencepiece = sentencepiece_in_graph(
            tokenizer.model_proto, tf.int32
        )
        # TensorFlow Text adds up scores in float32, which in a long text is too
        # coarse to tell the best pieces.
        self._chunk_words = (
            _CHUNK_WORDS if tokenizer.cuts_at_blanks else np.iinfo(np.int64).max
        )
        self._unknown_pieces = None
        if tokenizer.splits_unknown:
            self._unknown_pieces = sentencepiece_in_graph(
                tokenizer.model_proto, tf.string
            )
        with tf.device("CPU:0"):
            self._commas = constants(ragged(tokenizer.comma_table()))

    # There is nothing that AutoGraph would rewrite; looking takes seconds.
    @tf.autograph.experimental.do_not_convert
    def __call__(self, texts):
        texts = _checked(texts)
        with tf.device("CPU:0"):
            texts = self._normalize(texts)
            chunks, splits, _ = _chunks(texts, self._chunk_words)
            ids = self._sentencepiece.tokenize(chunks)
            return self._split_commas(_by_text(ids, splits), chunks)[0]

    @tf.autograph.experimental.do_not_convert
    def tokenize_with_offsets(self, texts):
        """Splits texts and says which characters each piece came from.

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
        texts = _checked(texts)
        with tf.device("CPU:0"):
            codes, begins, ends = self._normalize.align(texts)
            texts = tf.strings.unicode_encode(codes, "UTF-8")
            chunks, splits, sizes = _chunks(texts, self._chunk_words)
            ids, starts, limits = self._sentencepiece.tokenize_with_offsets(
                chunks
            )
            cleaned = CleanedTexts(codes, begins, ends, chunks, splits, sizes)
            spans = self._offsets.spans(cleaned, starts, limits)
            pieces = _by_text(ids, splits)
            ids, *parts = self._split_commas(pieces, chunks)
            begins, ends = self._offsets.of_parts(
                cleaned, pieces.value_rowids(), spans, parts
            )
            return ids, ids.with_flat_values(begins), ids.with_flat_values(ends)

    def _split_commas(self, ids, chunks):
        """Applies the digit-comma rule; also says which parts it took."""
        values, splits = self._commas
        starts = tf.gather(splits, ids.flat_values)
        limits = tf.gather(splits, ids.flat_values + 1)
        if self._unknown_pieces is not None:
            pieces = self._unknown_pieces.tokenize(chunks).flat_values
            is_split = (ids.flat_values == UNKNOWN_ID) & (
                tf.strings.regex_full_match(pieces, digit_comma_pattern())
            )
            starts = tf.where(is_split, tf.size(values), starts)
            limits = tf.where(is_split, tf.size(values) + 2, limits)
            values = tf.concat([values, [UNKNOWN_ID, UNKNOWN_ID]], 0)
        return replace(ids, starts, limits, values), starts, limits


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
        rows = graph(
            tf.constant(
                [text.encode(errors="surrogatepass") for text in batch],
                tf.string,
            )
        )
        flat = rows.flat_values.numpy().tolist()
        splits = rows.row_splits.numpy().tolist()
        expected = tokenizer.encode_batch(batch)
        differences.extend(
            begin + row
            for row, ids in enumerate(expected)
            if flat[splits[row] : splits[row + 1]] != ids
        )
    return differences


def main(argv=None):
    """Says on which lines of a text the graph and the tokenizer agree.

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


def _checked(texts):
    texts = tf.convert_to_tensor(texts, tf.string)
    if texts.shape.rank != 1:
        raise ValueError(
            "`texts` must be a string tensor of rank 1. Received: "
            f"shape={texts.shape}. Put a single text into a list."
        )
    return texts


def _chunks(texts, chunk_words):
    """Cuts texts [N] at blanks into chunks [M].

    Returns them, the first chunk of each text [N + 1], and how many bytes of
    its text each took, with the blank behind it: the chunks themselves lack
    blanks that they would begin with.
    """
    words = tf.strings.split(texts, " ")
    splits = words.row_splits
    rows = words.value_rowids()
    count = tf.size(rows, tf.int64)
    places = tf.range(count) - tf.gather(splits, rows)
    firsts = tf.cast(places % chunk_words == 0, tf.int64)
    ends = tf.concat([[0], tf.cumsum(firsts)], 0)
    chunks = tf.strings.unsorted_segment_join(
        words.flat_values, ends[1:] - 1, ends[-1], separator=" "
    )
    sizes = tf.cast(tf.strings.length(words.flat_values) + 1, tf.int64)
    sizes = tf.math.unsorted_segment_sum(sizes, ends[1:] - 1, ends[-1])
    return chunks, tf.gather(ends, splits), sizes


def _by_text(ids, splits):
    """Pieces of chunks as pieces of the texts that the chunks are of."""
    ids = ids.with_row_splits_dtype(tf.int64)
    return tf.RaggedTensor.from_row_splits(
        ids.flat_values, tf.gather(ids.row_splits, splits), validate=False
    )


if __name__ == "__main__":
    sys.exit(run(main))
