"""Where the pieces of cleaned texts stand in the original ones, as a graph.

SentencePiece says which bytes of a chunk a piece came from; here bytes become
characters of the cleaned text, and those become characters of the original.

Letters: N texts, C characters of a cleaned text, M chunks of all texts, P
pieces of all texts, before the digit-comma rule splits them.
"""

import functools
import typing

import numpy as np
import sentencepiece
import tensorflow as tf

from data_pipeline.tokenization.cleaning import split_comma
from data_pipeline.tokenization.graph_normalization import constants
from data_pipeline.tokenization.graph_normalization import last_limit
from data_pipeline.tokenization.graph_normalization import look_up
from data_pipeline.tokenization.graph_normalization import next_place
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.unicode_tables import NUM_CODES
from data_pipeline.tokenization.unicode_tables import two_levels

# What SentencePiece's own normaliser makes of a character: text, nothing, a
# space that joins with others, or a block that looks like a space.
_TEXT, _NOTHING, _SPACE, _BLOCK = range(4)
_SEPARATOR = "\ue000"  # for private use, so no rule of Unicode changes it

# What the digit-comma rule makes of a piece.
_WHOLE, _PART, _COMMA = range(3)


class CleanedTexts(typing.NamedTuple):
    """Cleaned texts, the chunks they were cut into, and their origin."""

    codes: tf.RaggedTensor  # int32 [N, (C)], code points
    begins: tf.Tensor  # int64 [sum of C], as `GraphNormalizer.align`
    ends: tf.Tensor
    chunks: tf.Tensor  # string [M]
    splits: tf.Tensor  # int64 [N + 1], the first chunk of each text
    sizes: tf.Tensor  # int64 [M], bytes of the text that each chunk took


class PieceOffsets:
    """Offsets of pieces, as `Tokenizer.encode_with_offsets` gives them.

    The tables are made at first use: they take about a second.

    Args:
        tokenizer: Tokenizer.
    """

    def __init__(self, tokenizer):
        self._tokenizer = tokenizer

    @functools.cached_property
    def _kinds(self):
        with tf.init_scope(), tf.device("CPU:0"):
            kinds = _character_kinds(self._tokenizer.model_proto)
            return constants(two_levels(kinds))

    @functools.cached_property
    def _parts(self):
        with tf.init_scope(), tf.device("CPU:0"):
            return constants(_comma_parts(self._tokenizer).T)

    def spans(self, cleaned, starts, limits):
        """Spans of the pieces in the cleaned texts, without blanks around.

        Each text is followed by one more character, its end.

        Args:
            cleaned: CleanedTexts.
            starts: int ragged tensor [M, (pieces)], in bytes of the chunk.
            limits: likewise, exclusive.

        Returns:
            begins and ends, int64 [P], in characters of all texts.
        """
        splits = _splits_with_ends(cleaned)
        codes = _with_ends(cleaned, cleaned.codes.flat_values, ord(" "))
        characters, chunk_bytes = _characters_of_bytes(cleaned, codes)
        chunks = starts.value_rowids()
        chunk_bytes = tf.gather(chunk_bytes, chunks)

        def to_characters(in_chunk):
            in_chunk = tf.cast(in_chunk.flat_values, tf.int64)
            return tf.gather(characters, chunk_bytes + in_chunk)

        begins, ends = to_characters(starts), to_characters(limits)
        kinds = look_up(self._kinds, codes)
        ends = tf.maximum(begins, tf.gather(last_limit(kinds == _TEXT), ends))
        is_empty = begins == ends
        begins = tf.where(
            is_empty, begins, tf.gather(next_place(kinds == _TEXT), begins)
        )
        # A chunk that is not the first begins behind the blank which its first
        # piece would have had.
        rows = tf.gather(_chunk_rows(cleaned), chunks)
        is_moved = (
            is_empty
            & tf.concat([[True], chunks[1:] != chunks[:-1]], 0)[
                : tf.size(chunks)
            ]
            & (chunks > tf.gather(cleaned.splits, rows))
        )
        is_solid = (kinds == _TEXT) | (kinds == _BLOCK)
        chunk_starts = tf.gather(characters, chunk_bytes)
        first = tf.gather(splits, rows)
        last_solid = tf.gather(last_limit(is_solid), chunk_starts)
        blank = tf.where(
            last_solid > first,
            tf.gather(next_place(kinds == _SPACE), last_solid),
            tf.gather(next_place(kinds != _SPACE), first),
        )
        return (
            tf.where(is_moved, blank, begins),
            tf.where(is_moved, blank, ends),
        )

    def of_parts(self, cleaned, rows, spans, parts):
        """Offsets in the original texts of what the digit-comma rule made.

        Args:
            cleaned: CleanedTexts.
            rows: int64 [P], the text of each piece.
            spans: begins and ends, int64 [P], from `spans`.
            parts: starts and limits, int32 [P], of each piece's parts in the
                table of `Tokenizer.comma_table`, flat; behind it stand two
                parts of an unknown piece.

        Returns:
            begins and ends, int32 tensors, one value a part.
        """
        starts, limits = parts
        sources = tf.repeat(tf.range(tf.size(starts)), limits - starts)
        places = tf.ragged.range(starts, limits).flat_values
        kinds, before, width, total = (
            tf.cast(tf.gather(column, places), tf.int64)
            for column in self._parts
        )
        begins, ends = (tf.gather(span, sources) for span in spans)
        commas = tf.maximum(begins, ends - 1)
        fits = (kinds == _PART) & (total == commas - begins)
        limits = tf.where(
            fits,
            begins + before + width,
            tf.where(kinds == _PART, commas, ends),
        )
        begins = tf.where(kinds == _COMMA, commas, begins)
        begins = tf.where(fits, begins + before, begins)
        return _in_original(cleaned, tf.gather(rows, sources), begins, limits)


def _in_original(cleaned, rows, begins, ends):
    """As `normalization.original_span`."""
    last = tf.gather(
        tf.concat([[0], cleaned.ends], 0),
        tf.where(
            cleaned.codes.row_lengths() > 0, cleaned.codes.row_splits[1:], 0
        ),
    )
    original_begins = _with_ends(cleaned, cleaned.begins, last)
    original_ends = _with_ends(cleaned, cleaned.ends, last)
    first = tf.gather(_splits_with_ends(cleaned), rows)
    begin = tf.gather(original_begins, begins)
    end_before = tf.gather(original_ends, tf.maximum(begins - 1, 0))
    # A blank inside of one character that expands to a phrase.
    is_inside = (begins > first) & (end_before > begin)
    end = tf.where(
        ends > begins,
        tf.gather(original_ends, tf.maximum(ends - 1, 0)),
        tf.where(is_inside, end_before, begin),
    )
    return tf.cast(begin, tf.int32), tf.cast(end, tf.int32)


def _splits_with_ends(cleaned):
    splits = cleaned.codes.row_splits
    return splits + tf.range(tf.size(splits, tf.int64))


def _with_ends(cleaned, values, of_end):
    """Values of characters, with one more behind each text."""
    rows = cleaned.codes.nrows()
    of_end = tf.broadcast_to(tf.cast(of_end, values.dtype), [rows])
    values = cleaned.codes.with_flat_values(values)
    return tf.concat([values, of_end[:, None]], 1).flat_values


def _chunk_rows(cleaned):
    lengths = cleaned.splits[1:] - cleaned.splits[:-1]
    return tf.repeat(tf.range(tf.size(lengths)), lengths)


def _characters_of_bytes(cleaned, codes):
    """The character of each byte, and the first byte of each chunk [M]."""
    sizes = 1 + sum(
        tf.cast(codes >= code, tf.int64) for code in (0x80, 0x800, 0x10000)
    )
    characters = tf.repeat(tf.range(tf.size(codes, tf.int64)), sizes)
    text_bytes = tf.gather(
        tf.cumsum(sizes, exclusive=True), _splits_with_ends(cleaned)[:-1]
    )
    rows = _chunk_rows(cleaned)
    before = tf.cumsum(cleaned.sizes, exclusive=True)
    before -= tf.gather(before, tf.gather(cleaned.splits, rows))
    # Blanks that a chunk would begin with are not in it.
    lengths = tf.cast(tf.strings.length(cleaned.chunks), tf.int64)
    before += cleaned.sizes - 1 - lengths
    return characters, tf.gather(text_bytes, rows) + before


def _comma_parts(tokenizer):
    """Kind, begin, width and width of the whole, of all parts [parts, 4].

    The parts are those of `Tokenizer.comma_table`, in its order.
    """
    processor = _load(tokenizer.model_proto)
    rows = []
    for index in range(tokenizer.vocabulary_size):
        parts = split_comma(
            tokenizer.id_to_piece(index),
            lambda text: processor.encode(text, return_type=str),
        )
        if not parts:
            rows.append((_WHOLE, 0, 0, 0))
            continue
        widths = [len(part.removeprefix(BLANK)) for part in parts[:-1]]
        for place, width in enumerate(widths):
            rows.append((_PART, sum(widths[:place]), width, sum(widths)))
        rows.append((_COMMA, 0, 0, 0))
    # Of an unknown piece only the comma's place is known.
    rows += [(_PART, 0, 0, -1), (_COMMA, 0, 0, 0)]
    return np.array(rows, np.int32)


@functools.lru_cache(maxsize=4)
def _character_kinds(model_proto):
    processor = _load(model_proto)
    kinds = np.full(NUM_CODES, _TEXT, np.int32)
    codes = [
        code
        for code in range(NUM_CODES)
        if not 0xD800 <= code <= 0xDFFF and code != ord(_SEPARATOR)
    ]
    joined = _SEPARATOR.join(map(chr, codes))
    results = processor.normalize(f"{_SEPARATOR}{joined}{_SEPARATOR}")
    results = results.split(_SEPARATOR)[1:-1]
    for code, result in zip(codes, results, strict=True):
        if result.strip(f"{BLANK} "):
            continue
        # Spaces beside spaces vanish, and blocks do not.
        among_blanks = processor.normalize(f"a {chr(code)} a")
        if among_blanks != processor.normalize("a a"):
            kinds[code] = _BLOCK
        else:
            kinds[code] = _SPACE if result else _NOTHING
    return kinds


def _load(model_proto):
    processor = sentencepiece.SentencePieceProcessor()
    processor.LoadFromSerializedProto(model_proto)
    return processor
