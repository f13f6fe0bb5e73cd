"""Cleans text as the release does before SentencePiece sees it."""

import functools
import re
import unicodedata

from data_pipeline.tokenization.symbols import BLANK

_UNITS = re.compile(r"\s+|``|''|.", re.DOTALL)
_SURROGATES = re.compile("[\ud800-\udfff]")
_BEYOND_BITMAP = re.compile("[\ud800-\udfff\U00010000-\U0010ffff]")


def preprocess(text, lowercase=False):
    """Cleans a text the way the release does before SentencePiece.

    Args:
        text: str.
        lowercase: bool, default False.

    Returns:
        str: single blanks, plain quotes, compatibility decomposition without
        combining marks. A lone surrogate becomes U+FFFD.

    Raises:
        TypeError: `text` is not a str.

    Source: `prepro_utils.preprocess_text`.
    """
    if not isinstance(text, str):
        raise TypeError(
            "`text` must be a str. Received: "
            f"text={shorten(text)} of type {type(text).__name__}. Decode "
            "bytes first: `text.decode('utf-8')`."
        )
    text = " ".join(text.split())
    text = text.replace("``", '"').replace("''", '"')
    if not text.isascii():
        text = strip_accents(text)
    return text.lower() if lowercase else text


def align(text, lowercase=False):
    """Cleans a text and says which characters each result came from.

    Args:
        text: str.
        lowercase: bool, default False.

    Returns:
        normalized: str, equal to `preprocess(text, lowercase)`.
        begins: sequence of int, one a character of `normalized`.
        ends: likewise, exclusive.

    Raises:
        TypeError: `text` is not a str.
    """
    expected = preprocess(text, lowercase)
    if text.isascii() and len(expected) == len(text):
        # Only a single blank of another kind can have changed.
        return expected, range(len(text)), range(1, len(text) + 1)
    characters = []
    is_inside = False
    begins = []
    ends = []
    for unit in _UNITS.finditer(text):
        first = unit.group()[0]
        if first.isspace():
            # Not told by `characters`: the first may be a mark, and dropped.
            result = " " if is_inside else ""
        elif len(unit.group()) == 2:
            result = '"'
        else:
            result = first if first.isascii() else strip_accents(first)
            if not result and characters and characters[-1] != " ":
                ends[-1] = unit.end()
        is_inside = is_inside or not first.isspace()
        characters.extend(result)
        begins.extend([unit.start()] * len(result))
        ends.extend([unit.end()] * len(result))
    length = len(expected)
    return expected, begins[:length], ends[:length]


def split_comma(piece, encode_pieces):
    """Splits the comma off a piece that ends with a digit and a comma.

    Args:
        piece: str.
        encode_pieces: callable, str -> list of str: the bare model.

    Returns:
        list of str, or None where the rule does not apply.

    Source: `prepro_utils.encode_pieces`.
    """
    if len(piece) < 2 or piece[-1] != "," or not piece[-2].isdigit():
        return None
    parts = encode_pieces(piece[:-1].replace(BLANK, ""))
    if parts and piece[0] != BLANK and parts[0][0] == BLANK:
        parts = ([parts[0][1:]] if len(parts[0]) > 1 else []) + parts[1:]
    return parts + [","]


def strip_accents(text):
    """Decomposes a text and drops its combining marks.

    Args:
        text: str.

    Returns:
        str. A lone surrogate becomes U+FFFD.
    """
    text = unicodedata.normalize("NFKD", text)
    basic, supplementary = _combining_marks()
    text = basic.sub("", text)
    if _BEYOND_BITMAP.search(text):
        text = supplementary.sub("", text)
        text = _SURROGATES.sub("\ufffd", text)
    return text


def shorten(value):
    """Writes a value for an error message in at most 60 characters.

    Args:
        value: anything.

    Returns:
        str.
    """
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def original_span(begin, end, begins, ends):
    """The characters of a text that a span of the cleaned text came from.

    Args:
        begin: int, in characters of the cleaned text.
        end: int, exclusive; an empty span stays one.
        begins: sequence of int, from `align`.
        ends: likewise.

    Returns:
        tuple of int: begin and end, in characters of the text.
    """
    if begin < end:
        return begins[begin], ends[end - 1]
    if begin == len(begins):
        position = ends[-1] if len(ends) else 0
        return position, position
    if begin and ends[begin - 1] > begins[begin]:
        # A blank inside of one character that expands to a phrase.
        return begins[begin], ends[begin - 1]
    return begins[begin], begins[begin]


def part_spans(parts, begin, end):
    """The spans of the parts that the digit-comma rule makes of a piece.

    Args:
        parts: list of str, the last one a comma.
        begin: int, in characters of the cleaned text.
        end: int, exclusive.

    Returns:
        list of (begin, end), one a part.
    """
    lengths = [len(part.removeprefix(BLANK)) for part in parts[:-1]]
    comma = max(begin, end - 1)
    if sum(lengths) != comma - begin:
        return [(begin, comma)] * len(lengths) + [(comma, end)]
    spans = []
    for length in lengths:
        spans.append((begin, begin + length))
        begin += length
    return spans + [(comma, end)]


@functools.cache
def _combining_marks():
    # `re` looks up characters below U+10000 in a bitmap but walks through the
    # others, which would make every character of a text pay for them.
    marks = [
        chr(code)
        for code in range(0x110000)
        if unicodedata.combining(chr(code))
    ]
    basic = "".join(mark for mark in marks if mark <= "\uffff")
    supplementary = "".join(mark for mark in marks if mark > "\uffff")
    return re.compile(f"[{basic}]+"), re.compile(f"[{supplementary}]+")
