"""Reading of lines: encodings, line ends, bytes that are not text, long lines.

A byte order mark is removed, and every kind of line end is read. For lines of
any length, the time is linear in the number of bytes, and the memory does not
grow with the file.
"""

import codecs
import io
import typing

from data_pipeline.text.compression import read_chunks
from data_pipeline.text.files import TextError
from data_pipeline.text.files import count_bad_text

# Choices for bytes that are not text, broken lines of JSON and empty files.
BAD_TEXT = ("refuse", "replace", "skip")
# A byte order mark may be at the beginning of a file, or inside a file that was
# joined from several files.
BYTE_ORDER_MARK = "\ufeff"

# Placeholder for bytes that are not text. It is a lone surrogate, which decoded
# text never contains.
_MARK = "\udfff"
_NUL = "\0"
# Characters to search for in lines, once a chunk of the file contains the
# character.
_ODD = (_NUL, BYTE_ORDER_MARK)
# Text that is otherwise correct may contain single NULs.
_BINARY_SHARE = 0.25
_MARKED = "data_pipeline.marked"
codecs.register_error(
    _MARKED, lambda error: (_MARK, typing.cast(UnicodeDecodeError, error).end)
)


def checked_encoding(encoding):
    """Check the name of an encoding and return Python's name for it.

    Args:
        encoding: str.

    Returns:
        str.

    Raises:
        ValueError: Python has no text encoding of this name.
    """
    try:
        name = codecs.lookup(encoding).name
        codecs.getincrementaldecoder(encoding)
        b"a".decode(encoding)  # refuses zlib, hex and similar codecs
    except UnicodeError:  # a single byte is not valid in UTF-16
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
    """Read the decoded lines of a file, without line ends.

    If a file was joined from several files, some of its lines may begin with a
    byte order mark. These marks are removed and counted in `dropped_marks` of
    the log.

    Args:
        path: str.
        encoding: str from `checked_encoding`.
        on_bad_text: one of `BAD_TEXT`, for bytes that are not text. "refuse"
            raises an error, "replace" reads such bytes as U+FFFD, "skip" skips
            their line. If at least a quarter of a line's characters are NULs,
            these NULs are not text. Such lines are in binary files, and in
            UTF-16 files that are read with another encoding.
        log: ReadLog, or None.
        longest: int, maximum number of characters of a line, or None for no
            limit. A longer line is cut, if possible at a blank.
        is_cut: bool, whether to cut lines above `longest`. Default True. If
            False, such a line raises a TextError if `on_bad_text` is "refuse".
            Otherwise the line is skipped.

    Yields:
        str.

    Raises:
        TextError: bytes are not text, the compressed data is damaged, or a line
            is too long.
    """
    rules = _Rules(path, on_bad_text, log, longest, is_cut)
    # Join the pieces only at the end of a line: adding to a str would copy the
    # str each time.
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
    """Rules for lines that are too long or not text.

    The attributes are arguments of `read_lines`.
    """

    path: str
    on_bad_text: str
    log: typing.Any
    longest: int | None
    is_cut: bool

    def apply(self, lines, number, odd):
        """Check, cut or repair lines; put `_MARK` into the lines to skip.

        Args:
            lines: list of str.
            number: int, number of the first of these lines in the file.
            odd: str, the characters of `_ODD` found so far in the file.

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
        """Remove and count lines with `_MARK`; return the other lines."""
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
    """Yield decoded chunks of a file, with `_MARK` for bytes to skip."""
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
    """Describe where a decoder failed in a file's first `num_read` bytes."""
    if not isinstance(error, UnicodeDecodeError):
        return f"({error})"  # such as UTF-16 without a mark
    # The decoder's input ends at the end of the chunk.
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
