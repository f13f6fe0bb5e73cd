"""The tokenizer as a TensorFlow graph, for exports that take raw text.

Beside TensorFlow's own ops it uses two of TensorFlow Text, `SentencepieceOp`
and `SentencepieceTokenizeOp`, so that TensorFlow Serving can load it. Python's
Unicode tables travel in the graph as constants.
"""

import argparse
import functools
import sys
import unicodedata

import numpy as np
import tensorflow as tf
import tensorflow_text

from data_pipeline.command_line import run
from data_pipeline.normalization import strip_accents
from data_pipeline.symbols import UNKNOWN_ID
from data_pipeline.tokenizer import Tokenizer

_NUM_CODES = 0x110000
_BLOCK = 128
_CHUNK_WORDS = 128
_CAPITAL_SIGMA = 0x3A3
_SMALL_SIGMA = 0x3C3
_FINAL_SIGMA = 0x3C2
_CAPITAL_I_WITH_DOT = 0x130
_OTHER, _CASED, _IGNORABLE = range(3)


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
        self._sentencepiece = tensorflow_text.SentencepieceTokenizer(
            model=tokenizer.model_proto, out_type=tf.int32
        )
        # TensorFlow Text adds up scores in float32, which in a long text is too
        # coarse to tell the best pieces.
        self._chunk_words = (
            _CHUNK_WORDS if tokenizer.cuts_at_blanks else np.iinfo(np.int64).max
        )
        self._unknown_pieces = None
        if tokenizer.splits_unknown:
            self._unknown_pieces = tensorflow_text.SentencepieceTokenizer(
                model=tokenizer.model_proto, out_type=tf.string
            )
        # Strings live on the host; tables anywhere else would be copied back
        # for each batch.
        with tf.device("CPU:0"):
            self._commas = _constants(_ragged(tokenizer.comma_table()))
            index, blocks, values, splits = _decompositions()
            self._decompositions = _constants((index, blocks))
            self._decomposed = _constants((values, splits))
            if self.lowercase:
                self._lower = _constants(_two_levels(_lower_shifts()))
                self._kinds = _constants(_two_levels(_case_kinds()))

    def __call__(self, texts):
        texts = tf.convert_to_tensor(texts, tf.string)
        if texts.shape.rank != 1:
            raise ValueError(
                "`texts` must be a string tensor of rank 1. Received: "
                f"shape={texts.shape}. Put a single text into a list."
            )
        with tf.device("CPU:0"):
            chunks, splits = _chunks(self._preprocess(texts), self._chunk_words)
            ids = self._sentencepiece.tokenize(chunks)
            ids = ids.with_row_splits_dtype(tf.int64)
            ids = tf.RaggedTensor.from_row_splits(
                ids.flat_values,
                tf.gather(ids.row_splits, splits),
                validate=False,
            )
            return self._split_commas(ids, chunks)

    def _preprocess(self, texts):
        texts = tf.strings.regex_replace(texts, _blanks_pattern(), " ")
        texts = tf.strings.strip(texts)
        texts = tf.strings.regex_replace(texts, "``|''", '"')
        is_ascii = tf.strings.regex_full_match(texts, r"[\x00-\x7f]*")
        rows = tf.where(~is_ascii)
        codes = tf.strings.unicode_decode(
            tf.gather(texts, rows[:, 0]), "UTF-8", errors="replace"
        )
        codes = self._strip_accents(codes)
        if self.lowercase:
            codes = self._lowercase(codes)
        decoded = tf.strings.unicode_encode(codes, "UTF-8")
        texts = tf.tensor_scatter_nd_update(texts, rows, decoded)
        return tf.strings.lower(texts) if self.lowercase else texts

    def _strip_accents(self, codes):
        values, splits = self._decomposed
        entries = _look_up(self._decompositions, codes.flat_values)
        count = tf.size(codes.flat_values, tf.int32)
        # Codes that stay are read from behind the table, where they follow.
        itself = tf.size(values) + tf.range(count)
        stays = entries == 0
        starts = tf.where(stays, itself, tf.gather(splits, entries))
        limits = tf.where(stays, itself + 1, tf.gather(splits, entries + 1))
        values = tf.concat([values, codes.flat_values], 0)
        return _replace(codes, starts, limits, values)

    def _lowercase(self, codes):
        flat = codes.flat_values
        sigmas = tf.where(flat == _CAPITAL_SIGMA)
        lowered = tf.tensor_scatter_nd_update(
            flat + _look_up(self._lower, flat),
            sigmas,
            tf.cond(
                tf.size(sigmas) > 0,
                lambda: self._lower_sigmas(codes, sigmas[:, 0]),
                lambda: tf.zeros([0], tf.int32),
            ),
        )
        return codes.with_flat_values(lowered)

    def _lower_sigmas(self, codes, sigmas):
        """Chooses between the two small sigmas as `str.lower` does."""
        kinds = _look_up(self._kinds, codes.flat_values)
        rows = codes.value_rowids()
        solid = tf.where(kinds != _IGNORABLE)[:, 0]
        # Sigma itself is cased, so `solid` holds it and its neighbours.
        places = tf.cumsum(tf.cast(kinds != _IGNORABLE, tf.int64)) - 1
        places = tf.gather(places, sigmas)

        def is_cased(places):
            last = tf.size(solid, tf.int64) - 1
            at = tf.gather(solid, tf.clip_by_value(places, 0, last))
            return (
                (places >= 0)
                & (places <= last)
                & (tf.gather(rows, at) == tf.gather(rows, sigmas))
                & (tf.gather(kinds, at) == _CASED)
            )

        is_final = is_cased(places - 1) & ~is_cased(places + 1)
        return tf.where(is_final, _FINAL_SIGMA, _SMALL_SIGMA)

    def _split_commas(self, ids, texts):
        values, splits = self._commas
        starts = tf.gather(splits, ids.flat_values)
        limits = tf.gather(splits, ids.flat_values + 1)
        if self._unknown_pieces is not None:
            pieces = self._unknown_pieces.tokenize(texts).flat_values
            is_split = (ids.flat_values == UNKNOWN_ID) & (
                tf.strings.regex_full_match(pieces, _digit_comma_pattern())
            )
            starts = tf.where(is_split, tf.size(values), starts)
            limits = tf.where(is_split, tf.size(values) + 2, limits)
            values = tf.concat([values, [UNKNOWN_ID, UNKNOWN_ID]], 0)
        return _replace(ids, starts, limits, values)


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
        prog="python -m data_pipeline.graph_tokenizer",
        description="Checks that the exported tokenizer gives the same ids "
        "as the one in Python.",
    )
    parser.add_argument("--tokenizer", required=True, metavar="FILE")
    parser.add_argument("--input", required=True, metavar="GLOB")
    parser.add_argument("--lowercase", action="store_true")
    parser.add_argument("--show", type=int, default=5, metavar="N")
    options = parser.parse_args(argv)
    from data_pipeline.text_files import read_documents

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
    """Cuts texts [N] at blanks into chunks, and says which are whose."""
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
    return chunks, tf.gather(ends, splits)


def _replace(rows, starts, limits, values):
    """Puts `values[start:limit]` in place of every flat value of `rows`."""
    lengths = limits - starts
    positions = tf.ragged.range(starts, limits).flat_values
    ends = tf.concat([[0], tf.cumsum(tf.cast(lengths, tf.int64))], 0)
    return tf.RaggedTensor.from_row_splits(
        tf.gather(values, positions),
        tf.gather(ends, rows.row_splits),
        validate=False,
    )


def _look_up(levels, codes):
    index, blocks = levels
    return tf.gather(
        blocks, tf.gather(index, codes // _BLOCK) * _BLOCK + codes % _BLOCK
    )


def _constants(arrays):
    return tuple(tf.constant(array, tf.int32) for array in arrays)


def _ragged(rows):
    values = np.array([value for row in rows for value in row], np.int32)
    splits = np.cumsum([0] + [len(row) for row in rows])
    return values, splits


def _two_levels(table):
    # Most blocks of 128 codes are alike, so storing each kind once keeps a
    # table of 1,114,112 codes below 100 KB.
    blocks, index = np.unique(
        table.reshape(-1, _BLOCK), axis=0, return_inverse=True
    )
    return index.reshape(-1), blocks.reshape(-1)


@functools.cache
def _decompositions():
    """Tables of code -> entry (0: stays), entry -> codes without marks."""
    entries = np.zeros(_NUM_CODES, np.int32)
    rows = [[]]
    for code in range(_NUM_CODES):
        character = chr(code)
        if unicodedata.is_normalized("NFKD", character) and not (
            unicodedata.combining(character)
        ):
            continue
        entries[code] = len(rows)
        rows.append([ord(part) for part in strip_accents(character)])
    return *_two_levels(entries), *_ragged(rows)


@functools.cache
def _lower_shifts():
    """What to add to a code to make it lower case; sigma is left to others."""
    codes = np.arange(_NUM_CODES, dtype=np.int32)
    # The one character that `str.lower` makes two of is decomposed by then.
    codes[_CAPITAL_I_WITH_DOT] = ord("i")
    return _to_codes(_to_text(codes).lower()) - codes


@functools.cache
def _case_kinds():
    """How each code counts beside a sigma, as `str.lower` itself tells."""
    codes = np.arange(_NUM_CODES, dtype=np.int32)
    codes[_CAPITAL_I_WITH_DOT] = ord("i")  # cased too, and stays one code
    context = np.tile(_to_codes("A\u03a3x "), (_NUM_CODES, 1))
    context[:, 2] = codes
    lowered = _to_codes(_to_text(context).lower()).reshape(-1, 4)
    is_cased = lowered[:, 1] == _SMALL_SIGMA
    context[:, 3] = ord("A")
    context = np.insert(context, 4, ord(" "), axis=1)
    lowered = _to_codes(_to_text(context).lower()).reshape(-1, 5)
    is_seen_through = lowered[:, 1] == _SMALL_SIGMA
    return np.where(
        is_cased, _CASED, np.where(is_seen_through, _IGNORABLE, _OTHER)
    )


def _to_text(codes):
    data = np.ascontiguousarray(codes, "<i4").tobytes()
    return data.decode("utf-32-le", "surrogatepass")


def _to_codes(text):
    data = text.encode("utf-32-le", "surrogatepass")
    return np.frombuffer(data, "<i4").astype(np.int32)


@functools.cache
def _blanks_pattern():
    # Single spaces stay as they are: matching one a word would cost most.
    others = "".join(
        f"\\x{{{code:x}}}"
        for code in range(_NUM_CODES)
        if chr(code).isspace() and chr(code) != " "
    )
    return f"[ {others}]{{2,}}|[{others}]"


@functools.cache
def _digit_comma_pattern():
    digits = "".join(
        f"\\x{{{code:x}}}" for code in range(_NUM_CODES) if chr(code).isdigit()
    )
    return f"(?s).*[{digits}],"


if __name__ == "__main__":
    sys.exit(run(main))
