"""Python's Unicode rules as arrays and patterns, for graphs.

A table has a number for each code point.
"""

import functools
import unicodedata

import numpy as np

from data_pipeline.tokenization.cleaning import strip_accents

NUM_CODES = 0x110000
BLOCK = 128
CAPITAL_SIGMA = 0x3A3
SMALL_SIGMA = 0x3C3
OTHER, CASED, IGNORABLE = range(3)
_CAPITAL_I_WITH_DOT = 0x130


def ragged(rows):
    """Rows of int as (values, splits), int32."""
    values = np.array([value for row in rows for value in row], np.int32)
    splits = np.cumsum([0] + [len(row) for row in rows])
    return values, splits


def two_levels(table):
    """A table of all code points as (index, blocks); see `BLOCK`."""
    # Most blocks of 128 codes are alike, so storing each kind once keeps a
    # table of 1,114,112 codes below 100 KB.
    blocks, index = np.unique(
        table.reshape(-1, BLOCK), axis=0, return_inverse=True
    )
    return index.reshape(-1), blocks.reshape(-1)


@functools.cache
def decompositions():
    """Tables of code -> entry (0: stays), entry -> codes without marks."""
    entries = np.zeros(NUM_CODES, np.int32)
    rows = [[]]
    for code in range(NUM_CODES):
        character = chr(code)
        if unicodedata.is_normalized("NFKD", character) and not (
            unicodedata.combining(character)
        ):
            continue
        entries[code] = len(rows)
        rows.append([ord(part) for part in strip_accents(character)])
    return *two_levels(entries), *ragged(rows)


@functools.cache
def lower_shifts():
    """What to add to a code to make it lower case; sigma is left to others."""
    codes = np.arange(NUM_CODES, dtype=np.int32)
    # The one character that `str.lower` makes two of is decomposed by then.
    codes[_CAPITAL_I_WITH_DOT] = ord("i")
    return _to_codes(_to_text(codes).lower()) - codes


@functools.cache
def case_kinds():
    """How each code counts beside a sigma, as `str.lower` itself tells."""
    codes = np.arange(NUM_CODES, dtype=np.int32)
    codes[_CAPITAL_I_WITH_DOT] = ord("i")  # cased too, and stays one code
    context = np.tile(_to_codes("A\u03a3x "), (NUM_CODES, 1))
    context[:, 2] = codes
    lowered = _to_codes(_to_text(context).lower()).reshape(-1, 4)
    is_cased = lowered[:, 1] == SMALL_SIGMA
    context[:, 3] = ord("A")
    context = np.insert(context, 4, ord(" "), axis=1)
    lowered = _to_codes(_to_text(context).lower()).reshape(-1, 5)
    is_seen_through = lowered[:, 1] == SMALL_SIGMA
    return np.where(
        is_cased, CASED, np.where(is_seen_through, IGNORABLE, OTHER)
    )


def _to_text(codes):
    data = np.ascontiguousarray(codes, "<i4").tobytes()
    return data.decode("utf-32-le", "surrogatepass")


def _to_codes(text):
    data = text.encode("utf-32-le", "surrogatepass")
    return np.frombuffer(data, "<i4").astype(np.int32)


@functools.cache
def blanks():
    """1 for the codes that `str.split` splits at."""
    return np.array([chr(c).isspace() for c in range(NUM_CODES)], np.int32)


@functools.cache
def blanks_pattern():
    """RE2 pattern of blanks that are not a single space."""
    # Single spaces stay as they are: matching one a word would cost most.
    others = "".join(
        f"\\x{{{code:x}}}"
        for code in range(NUM_CODES)
        if chr(code).isspace() and chr(code) != " "
    )
    return f"[ {others}]{{2,}}|[{others}]"


@functools.cache
def blanks_class():
    """RE2 class of the characters that `str.strip` takes off."""
    codes = "".join(
        f"\\x{{{code:x}}}" for code in range(NUM_CODES) if chr(code).isspace()
    )
    return f"[{codes}]"


@functools.cache
def digit_comma_pattern():
    """RE2 pattern of pieces that the digit-comma rule splits."""
    digits = "".join(
        f"\\x{{{code:x}}}" for code in range(NUM_CODES) if chr(code).isdigit()
    )
    return f"(?s).*[{digits}],"
