"""Bytes of text files -> lines: encodings, line ends, bad bytes, long lines.

A byte order mark is dropped and any kind of line end is read. Time is linear in
the bytes, and memory does not grow with a file, whatever its lines are.
"""

import codecs
import io

from data_pipeline.text.files import TextError
from data_pipeline.text.files import read_chunks

# What to do about bytes that are not text, broken lines of JSON, empty files.
BAD_TEXT = ("refuse", "replace", "skip")

# Stands for bytes that are not text; decoded text has no lone surrogate.
_MARK = "\udfff"
_MARKED = "data_pipeline.marked"
codecs.register_error(_MARKED, lambda error: (_MARK, error.end))


def checked_encoding(encoding):
    """The name of an encoding; UTF-8 may have a byte order mark.

    Args:
        encoding: str.

    Returns:
        str.

    Raises:
        ValueError: Python knows no such encoding of text.
    """
    try:
        name = codecs.lookup(encoding).name
        codecs.getincrementaldecoder(encoding)
        b"a".decode(encoding)  # refuses zlib, hex and their like
    except UnicodeError:  # one letter is no text in UTF-16
        pass
    except LookupError:
        raise ValueError(
            "`encoding` is not one that Python knows for text. Received: "
            f"encoding={encoding!r}; try utf-8 or cp1252."
        ) from None
    return "utf-8-sig" if name == "utf-8" else name


def read_lines(path, encoding, on_bad_text="refuse", log=None, longest=None):
    """Decoded lines of a file, without their ends.

    Args:
        path: str.
        encoding: str of `checked_encoding`.
        on_bad_text: one of `BAD_TEXT`: bytes that are not text are an error,
            become U+FFFD, or their line is left out.
        log: ReadLog, or None.
        longest: int, characters of a line above which it is cut, at a blank
            where it has one; None cuts no line.

    Yields:
        str.

    Raises:
        TextError: there are bytes that are not text, or the compressed data
            are damaged.
    """
    errors = "strict" if on_bad_text == "refuse" else _MARKED
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(encoding)(errors), translate=True
    )
    # Joined when the line ends: adding to a str would copy it each time.
    unfinished, size, num_read, is_marked = [], 0, 0, False
    for chunk in read_chunks(path, log):
        num_read += len(chunk)
        try:
            text = decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            raise TextError(
                f"{path}: invalid {encoding.removesuffix('-sig')} "
                f"{_place(error, num_read)}. Name the right "
                "`encoding`, for example cp1252, or repair the file; "
                "`on_bad_text` (--on-bad-text) replaces or skips such bytes."
            ) from None
        if errors == _MARKED and _MARK in text:
            if on_bad_text == "replace":
                _count(log, "replaced_characters", text.count(_MARK))
                text = text.replace(_MARK, "\ufffd")
            else:
                is_marked = True
        *lines, rest = text.split("\n")
        if lines:
            lines[0] = "".join([*unfinished, lines[0]])
            unfinished, size = [], 0
            if longest and max(map(len, lines)) > longest:
                lines = [part for x in lines for part in _cut(x, longest)]
            yield from _unmarked(lines, log) if is_marked else lines
        unfinished.append(rest)
        size += len(rest)
        if longest and size > longest:
            *lines, rest = _cut("".join(unfinished), longest)
            unfinished, size = [rest], len(rest)
            yield from _unmarked(lines, log) if is_marked else lines
    if size:
        lines = ["".join(unfinished)]
        yield from _unmarked(lines, log) if is_marked else lines


def _place(error, num_read):
    """Where a decoder that has read so many bytes has failed, in words."""
    if not isinstance(error, UnicodeDecodeError):
        return f"({error})"  # as of UTF-16 without its mark
    # The decoder's input ends with the chunk.
    offset = num_read - len(error.object) + error.start
    return f"at byte {offset} (0x{error.object[error.start]:02x})"


def _cut(line, longest):
    """Pieces of a line of at most `longest` characters, a list of str."""
    pieces, begin = [], 0
    while len(line) - begin > longest:
        end = line.rfind(" ", begin + 1, begin + longest + 1)
        if end < 0:
            end = begin + longest
        pieces.append(line[begin:end])
        begin = end + (line[end] == " ")
    return [*pieces, line[begin:]]


def _unmarked(lines, log):
    """Lines without bytes that are not text."""
    for line in lines:
        if _MARK in line:
            _count(log, "skipped_lines")
        else:
            yield line


def _count(log, what, number=1):
    if log is not None:
        log.bad_text[what] += number
