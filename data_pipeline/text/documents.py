"""Text files -> documents -> sentences, streaming.

Text formats:

- "sentences": one sentence (or paragraph) per line, a blank line ends a
  document, as the released preprocessing reads it. A document also ends after
  200,000 characters.
- "running": a file is a document; a long file is cut at the end of a paragraph
  after each 200,000 characters. Consecutive lines are one paragraph, a blank
  line ends it, and paragraphs are split into sentences. For books, hard
  wrapped or not, and for wikitext-2, whose blank lines only set off headings.
- "jsonl": a line is `{"text": ...}`, a document of running text.

"auto" detects the format of each file: .jsonl and .json are "jsonl". In the
first 65,536 characters of any other file, blank lines separate blocks. If
blocks have two lines or more on average and at least 4 of 5 lines end like a
sentence, the format is "sentences", else "running".

Files may be compressed: .gz, .bz2 or .xz. A byte order mark is dropped and any
kind of line end is read.
"""

import bz2
import codecs
import glob
import gzip
import io
import json
import lzma
import os
import re
import typing
import zlib

from data_pipeline.text.sentences import split_sentences

TEXT_FORMATS = ("auto", "sentences", "running", "jsonl")
PART_CHARACTERS = 4_000_000
# A corpus in one file must not be one document: no part of it could be held
# out, or built in parallel.
DOCUMENT_CHARACTERS = 200_000

_OPENERS = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_HEAD_CHARACTERS = 1 << 16
_CHUNK_BYTES = 1 << 20
_LINE_ENDS_SENTENCE = re.compile(r"[.!?…。！？][\"'”’»)\]」』]*$")


class Document(typing.NamedTuple):
    """A document: its text in the file, and the text's format."""

    text: str
    text_format: str

    def sentences(self):
        """Sentences of the document, a list of non-empty str."""
        if self.text_format == "sentences":
            return self.text.split("\n")
        return split_sentences(self.text)


def find_files(pattern):
    """Files that match a pattern, sorted by name.

    Args:
        pattern: str, a path or a glob; `**` matches any number of folders.

    Returns:
        list of str.

    Raises:
        FileNotFoundError: no file matches.
    """
    pattern = os.path.expanduser(pattern)
    files = [pattern] if os.path.isfile(pattern) else []
    if not files:
        paths = glob.glob(pattern, recursive=True)
        files = sorted(path for path in paths if os.path.isfile(path))
    if not files:
        raise FileNotFoundError(
            f"no file matches `input`. Received: input={pattern!r}, seen from "
            f"{os.getcwd()}. Quote a pattern so that the shell leaves it alone."
        )
    return files


def read_documents(pattern, text_format="auto", encoding="utf-8"):
    """Yield the documents of all matching files as lists of sentences.

    Args:
        pattern: str, a path or a glob.
        text_format: "auto", "sentences", "running" or "jsonl"; see the
            docstring of the module.
        encoding: str, an encoding of Python.

    Yields:
        list of str.

    Raises:
        FileNotFoundError: no file matches.
        ValueError: a file has no text, invalid bytes or a broken JSON line.
    """
    for document in stream_documents(pattern, text_format, encoding):
        yield document.sentences()


def stream_documents(
    pattern, text_format="auto", encoding="utf-8", progress=None
):
    """Yield the documents of all matching files, not yet split.

    Args:
        pattern: str, a path or a glob.
        text_format: as in `read_documents`.
        encoding: str.
        progress: function of the number of bytes of the (perhaps compressed)
            files read since its last call, or None.

    Yields:
        Document.

    Raises:
        FileNotFoundError: no file matches.
        ValueError: as in `read_documents`.
    """
    if text_format not in TEXT_FORMATS:
        raise ValueError(
            f"`text_format` must be one of {', '.join(TEXT_FORMATS)}. "
            f"Received: text_format={text_format!r}."
        )
    encoding = _checked_encoding(encoding)
    for path in find_files(pattern):
        file_format = text_format
        if text_format == "auto":
            file_format = detect_format(path, encoding)
        documents = _READERS[file_format](path, encoding, progress)
        is_empty = True
        for document in documents:
            is_empty = False
            yield document
        if is_empty:
            raise ValueError(
                f"{path}: the file holds no text. Remove it, or narrow `input`."
            )


def detect_format(path, encoding="utf-8"):
    """Detect the format of a file; the docstring of the module has the rule.

    Args:
        path: str.
        encoding: str.

    Returns:
        str, "jsonl", "sentences" or "running".
    """
    stem, extension = os.path.splitext(path.lower())
    if extension in _OPENERS:
        extension = os.path.splitext(stem)[1]
    if extension in (".jsonl", ".json"):
        return "jsonl"
    lines = blocks = ended = size = 0
    in_block = False
    for line in _lines(path, _checked_encoding(encoding), None):
        size += len(line) + 1
        line = line.strip()
        if line:
            lines += 1
            blocks += not in_block
            ended += bool(_LINE_ENDS_SENTENCE.search(line))
        in_block = bool(line)
        if size > _HEAD_CHARACTERS:
            break
    if lines >= 2 * blocks and 5 * ended >= 4 * lines:
        return "sentences"
    return "running"


class PartPlanner:
    """Groups documents, given one by one, into parts: the units of work.

    A part holds at least `part_characters` characters, unless all documents
    have fewer. Documents behind the last full part are joined to it. At most
    two parts are held in memory.

    Args:
        part_characters: int.
    """

    def __init__(self, part_characters=PART_CHARACTERS):
        self._part_characters = part_characters
        self._full = []
        self._current = []
        self._size = 0

    def add(self, document):
        """Add a document; returns a list of complete parts."""
        self._current.append(document)
        self._size += len(document.text)
        if self._size < self._part_characters:
            return []
        done = [self._full] if self._full else []
        self._full, self._current, self._size = self._current, [], 0
        return done

    def finish(self):
        """Return a list of the last part, empty without documents."""
        last = self._full + self._current
        return [last] if last else []


def _read_sentences(path, encoding, progress):
    lines, characters = [], 0
    for line in _lines(path, encoding, progress):
        line = line.strip()
        if line:
            lines.append(line)
            characters += len(line) + 1
        if lines and (not line or characters >= DOCUMENT_CHARACTERS):
            yield Document("\n".join(lines), "sentences")
            lines, characters = [], 0
    if lines:
        yield Document("\n".join(lines), "sentences")


def _read_running(path, encoding, progress):
    lines, characters = [], 0
    for line in _lines(path, encoding, progress):
        lines.append(line)
        characters += len(line) + 1
        # At the end of a paragraph, or of a line if the paragraph is too long.
        limit = DOCUMENT_CHARACTERS * (1 if not line.strip() else 4)
        if characters >= limit:
            yield Document("\n".join(lines), "running")
            lines, characters = [], 0
    text = "\n".join(lines)
    if text.strip():
        yield Document(text, "running")


def _read_jsonl(path, encoding, progress):
    for number, line in enumerate(_lines(path, encoding, progress), start=1):
        if not line.strip():
            continue
        try:
            text = json.loads(line)["text"]
        except json.JSONDecodeError as error:
            raise ValueError(
                f"{path}:{number}: the line is not valid JSON ({error.msg} at "
                f"column {error.colno}). Every line must be one object like "
                '{"text": "..."}.'
            ) from None
        except (KeyError, TypeError):
            text = None
        if not isinstance(text, str):
            raise ValueError(
                f'{path}:{number}: the JSON has no string field "text". Every '
                'line must be one object like {"text": "..."}.'
            )
        if text.strip():
            yield Document(text, "running")


_READERS = {
    "sentences": _read_sentences,
    "running": _read_running,
    "jsonl": _read_jsonl,
}


def _lines(path, encoding, progress):
    """Yield the decoded lines of a file, without their ends."""
    decoder = io.IncrementalNewlineDecoder(
        codecs.getincrementaldecoder(encoding)(), translate=True
    )
    carry, num_read = "", 0
    for chunk in _chunks(path, progress):
        num_read += len(chunk)
        try:
            text = carry + decoder.decode(chunk, final=not chunk)
        except UnicodeDecodeError as error:
            # The decoder's input ends with the chunk.
            offset = num_read - len(error.object) + error.start
            raise ValueError(
                f"{path}: invalid {encoding.removesuffix('-sig')} at byte "
                f"{offset} (0x{error.object[error.start]:02x}). Name the right "
                "`encoding`, for example cp1252, or repair the file."
            ) from None
        lines = text.split("\n")
        carry = lines.pop()
        yield from lines
    if carry:
        yield carry


def _chunks(path, progress):
    """Yield blocks of uncompressed bytes; the last one is empty."""
    opener = _OPENERS.get(os.path.splitext(path.lower())[1])
    with open(path, "rb") as raw:
        file = opener(raw) if opener else raw
        done = 0
        while True:
            try:
                chunk = file.read(_CHUNK_BYTES)
            except (EOFError, zlib.error, lzma.LZMAError, OSError) as error:
                if opener is None:
                    raise
                raise ValueError(
                    f"{path}: the compressed file is damaged or cut short "
                    f"({error}). Fetch it again."
                ) from None
            if progress is not None:
                progress(raw.tell() - done)
                done = raw.tell()
            yield chunk
            if not chunk:
                return


def _checked_encoding(encoding):
    try:
        name = codecs.lookup(encoding).name
    except LookupError:
        raise ValueError(
            f"`encoding` is not one that Python knows. Received: "
            f"encoding={encoding!r}; try utf-8 or cp1252."
        ) from None
    return "utf-8-sig" if name == "utf-8" else name
