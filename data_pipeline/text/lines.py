"""Bytes of text files -> lines: encodings, line ends, bad bytes, long lines.

A byte order mark is dropped and any kind of line end is read. Time is linear in
the bytes, and memory does not grow with a file, for any lines.
"""

import codecs
import io
import typing

from data_pipeline.text.compression import read_chunks
from data_pipeline.text.files import TextError
from data_pipeline.text.files import count_bad_text

# Treatments of bytes that are not text, broken lines of JSON and empty files.
BAD_TEXT = ("refuse", "replace", "skip")
# At the beginning of a file, or inside it if files were joined.
BYTE_ORDER_MARK = "\ufeff"

# Stands for bytes that are not text; decoded text has no lone surrogate.
_MARK = "\udfff"
_NUL = "\0"
# Characters to search for in lines, once a chunk contains one.
_ODD = (_NUL, BYTE_ORDER_MARK)
# Single NULs occur in text that is otherwise correct.
_BINARY_SHARE = 0.25
_MARKED = "data_pipeline.marked"
codecs.register_error(
    _MARKED, lambda error: (_MARK, typing.cast(UnicodeDecodeError, error).end)
)


def checked_encoding(encoding):
    """Name of an encoding; UTF-8 may have a byte order mark.

    Args:
        encoding: str.

    Returns:
        str.

    Raises:
        ValueError: Python has no such encoding of text.
    """
    try:
        name = codecs.lookup(encoding).name
        codecs.getincrementaldecoder(encoding)
        b"a".decode(encoding)  # refuses zlib, hex and the like
    except UnicodeError:  # one letter is no text in UTF-16
        pass
    except LookupError:
        raise ValueError(
            "`encoding` is not one that Python knows for text. Received: "
            f"encoding={encoding!r}; try utf-8 or cp1252."
        ) from None
    return "utf-8-sig" if name == "utf-8" else name


def read_lines(
    path, encoding, on_bad_text="refuse", log=None, longest=None, is_cut=True
):
    """Decoded lines of a file, without their ends.

    Byte order marks at the beginning of lines, as in joined files, are dropped
    and counted in `dropped_marks` of the log.

    Args:
        path: str.
        encoding: str of `checked_encoding`.
        on_bad_text: one of `BAD_TEXT`: bytes that are not text are an error,
            become U+FFFD, or their line is left out. The same holds for lines
            with a quarter of NULs, as in binary files, or in UTF-16 that is
            read in another encoding.
        log: ReadLog, or None.
        longest: int, most characters of a line; a longer one is cut, at a blank
            if it has one. None cuts no line.
        is_cut: bool, False if a line above `longest` must not be cut: it is
            left out, or an error if `on_bad_text` is "refuse".

    Yields:
        str.

    Raises:
        TextError: bytes are not text, the compressed data are damaged, or a
            line is too long.
    """
    rules = _Rules(path, on_bad_text, log, longest, is_cut)
    # Join at the end of the line: adding to a str would copy it each time.
    unfinished, size, number, odd = [], 0, 1, ""
    for text in _decoded(path, encoding, on_bad_text, log):
        odd += "".join(x for x in _ODD if x not in odd and x in text)
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = "".join([*unfinished, lines[0]])
            unfinished, size = [], 0
            yield from rules.kept(rules.apply(lines, number, odd))
            number += len(lines)
        unfinished.append(rest)
        size += len(rest)
        if longest and size > longest:
            line = "".join(unfinished)
            *lines, rest = rules.apply([line], number, odd)
            unfinished, size = [rest], len(rest)
            yield from rules.kept(lines)
    if size:
        lines = ["".join(unfinished)]
        yield from rules.kept(rules.apply(lines, number, odd))


class _Rules(typing.NamedTuple):
    """Treatment of lines that are too long, or not text."""

    path: str
    on_bad_text: str
    log: typing.Any
    longest: int | None
    is_cut: bool

    def apply(self, lines, number, odd):
        """Lines, with `_MARK` in the ones to skip.

        Args:
            lines: list of str.
            number: int, number of the first line.
            odd: str, the characters of `_ODD` to search for.

        Returns:
            list of str.
        """
        if BYTE_ORDER_MARK in odd:
            lines = list(map(self._without_mark, lines))
        if _NUL in odd:
            lines = [self._text(x, n) for n, x in enumerate(lines, number)]
        if self.longest is None or max(map(len, lines)) <= self.longest:
            return lines
        if self.is_cut:
            return [part for x in lines for part in _cut(x, self.longest)]
        return [self._short(x, n) for n, x in enumerate(lines, number)]

    def kept(self, lines):
        """The lines without skipped ones, which are counted; list of str."""
        if self.on_bad_text == "refuse":
            return lines
        kept = [line for line in lines if _MARK not in line]
        if len(kept) < len(lines):
            count_bad_text(self.log, "skipped_lines", len(lines) - len(kept))
        return kept

    def _without_mark(self, line):
        if not line.startswith(BYTE_ORDER_MARK):
            return line
        count_bad_text(self.log, "dropped_marks")
        return line.lstrip(BYTE_ORDER_MARK)

    def _text(self, line, number):
        count = line.count(_NUL)
        if not count or count < _BINARY_SHARE * len(line):
            return line
        if self.on_bad_text == "refuse":
            raise TextError(
                f"{self.path}:{number}: the line is no text, {count:,} of its "
                f"{len(line):,} characters are NUL. Is this a binary file, or "
                "UTF-16? Leave it out, or name the right `encoding`; "
                "`on_bad_text` (--on-bad-text) replaces or skips such bytes."
            )
        if self.on_bad_text == "skip":
            return _MARK
        count_bad_text(self.log, "replaced_characters", count)
        return line.replace(_NUL, "\ufffd")

    def _short(self, line, number):
        if len(line) <= self.longest:
            return line
        if self.on_bad_text == "refuse":
            raise TextError(
                f"{self.path}:{number}: the line has more than "
                f"{self.longest:,} characters, and is one document. Make "
                "several lines of it; `on_bad_text` (--on-bad-text skip) "
                "leaves it out."
            )
        return _MARK


def _decoded(path, encoding, on_bad_text, log):
    """Decoded chunks of a file; `_MARK` marks bytes whose line is skipped."""
    errors = "strict" if on_bad_text == "refuse" else _MARKED
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(encoding)(errors), translate=True
    )
    num_read = 0
    for chunk in read_chunks(path, log):
        num_read += len(chunk)
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            is_utf_16 = num_read == len(chunk) and chunk.startswith(
                (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
            )
            raise TextError(
                f"{path}: invalid {encoding.removesuffix('-sig')} "
                f"{_place(error, num_read)}. Name the right `encoding`, for "
                f"example {'utf-16' if is_utf_16 else 'cp1252'}, or repair the "
                "file; "
                "`on_bad_text` (--on-bad-text) replaces or skips such bytes."
            ) from None
        if on_bad_text == "replace" and _MARK in text:
            count_bad_text(log, "replaced_characters", text.count(_MARK))
            text = text.replace(_MARK, "\ufffd")
        yield text


def _place(error, num_read):
    """Place of a decoder's error after `num_read` bytes, for a message."""
    if not isinstance(error, UnicodeDecodeError):
        return f"({error})"  # such as for UTF-16 without its mark
    # The decoder's input ends with the chunk.
    offset = num_read - len(error.object) + error.start
    return f"at byte {offset} (0x{error.object[error.start]:02x})"


def _cut(line, longest):
    """Cut a line into pieces of at most `longest` characters, list of str."""
    pieces, begin = [], 0
    while len(line) - begin > longest:
        end = line.rfind(" ", begin + 1, begin + longest + 1)
        if end < 0:
            end = begin + longest
        pieces.append(line[begin:end])
        begin = end + (line[end] == " ")
    return [*pieces, line[begin:]]
