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
- "csv": a row is one, in the column "text".

Parquet, Arrow and Feather files have a document a row whatever the format is:
of running text, or for "sentences" of a sentence a line.

"auto" takes .jsonl and .json for "jsonl", .csv and .tsv for "csv", and guesses
one format for all other files of text: in their first 65,536 characters, blank
lines separate blocks. If blocks have two lines or more on average and at least
4 of 5 lines end like a sentence, the format is "sentences", else "running".

A line of text above 800,000 characters counts as several. One of jsonl and a
row must not have more than 64 million: it is a document, held in memory.
"""

import copy
import os
import re
import typing

from data_pipeline.text import lines as text_lines
from data_pipeline.text import rows
from data_pipeline.text.columnar import is_columnar
from data_pipeline.text.compression import plain_name
from data_pipeline.text.files import ReadLog
from data_pipeline.text.files import TextError
from data_pipeline.text.files import count_bad_text
from data_pipeline.text.files import find_files
from data_pipeline.text.lines import BAD_TEXT
from data_pipeline.text.sentences import split_sentences

TEXT_FORMATS = ("auto", "sentences", "running", "jsonl", "csv")
PART_CHARACTERS = 4_000_000
# A corpus in a single file must not become one document, of which no part
# could be held out or built in parallel.
DOCUMENT_CHARACTERS = 200_000
TEXT_FIELD = "text"

# Longer lines are cut, so that a file of a single line is not one document.
_LONGEST_LINE = 4 * DOCUMENT_CHARACTERS

_NAMED_FORMATS = {
    **dict.fromkeys((".jsonl", ".jsonlines", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
}
_HEAD_CHARACTERS = 1 << 16
# Files whose beginnings are examined, spread evenly over a larger corpus.
_HEADS = 256
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

    def pieces(self, size):
        """Yield Documents of at least `size` characters, cut at paragraphs."""
        text, begin = self.text, 0
        while len(text) - begin >= 2 * size:
            for separator in ("\n\n", "\n", " "):
                end = text.find(separator, begin + size, begin + 2 * size)
                if end >= 0:
                    break
            else:
                break
            yield self._replace(text=text[begin:end])
            begin = end + len(separator)
        yield self._replace(text=text[begin:].strip("\n"))


class Reader(typing.NamedTuple):
    """Reader of text files of a format and an encoding.

    `text_format` is one of `TEXT_FORMATS` other than "auto", `knows_names` is
    whether names such as a.jsonl and a.csv tell the format all the same.
    `text_field` is the name of the text in lines of JSON and in tables.
    Documents are cut into pieces of `piece_characters`, or kept whole if it is
    None.
    """

    text_format: str
    knows_names: bool
    encoding: str
    on_bad_text: str
    text_field: str = TEXT_FIELD
    piece_characters: int | None = None

    def documents(self, path, log=None):
        """Yield the Documents of a file.

        Args:
            path: str.
            log: ReadLog, or None.

        Raises:
            TextError: the file has no text, bytes that are not text or a
                broken line of JSON or row, and `on_bad_text` is "refuse"; or
                it is damaged, or has no column of texts of the name.
            RuntimeError: a package that reads it is not installed.
        """
        is_empty = True
        for document in self._documents(path, log):
            is_empty = False
            if self.piece_characters is None:
                yield document
            else:
                yield from document.pieces(self.piece_characters)
        if not is_empty:
            return
        if self.on_bad_text == "refuse":
            raise TextError(
                f"{path}: the file holds no text. Remove it, or narrow `input`."
            )
        count_bad_text(log, "empty_files")

    def _documents(self, path, log):
        if is_columnar(path):
            texts = rows.read_table(
                path, self.on_bad_text, self.text_field, log
            )
            form = "running"
            if self.text_format == "sentences" and not self.knows_names:
                form, texts = "sentences", map(_without_blank_lines, texts)
            return (Document(text, form) for text in texts)
        named = _format_of_name(path) if self.knows_names else None
        text_format = named or self.text_format
        if text_format in _ROW_READERS:
            texts = _ROW_READERS[text_format](
                path, self.encoding, self.on_bad_text, self.text_field, log
            )
            return (Document(text, "running") for text in texts)
        read = _READERS[text_format]
        return read(path, self.encoding, self.on_bad_text, log)


class Corpus:
    """Text files, and how they are read.

    Args:
        patterns: str or path, or several: a file or a glob.
        text_format: one of `TEXT_FORMATS`; see the docstring of the module.
        encoding: str, an encoding of Python.
        on_bad_text: one of `BAD_TEXT`: bytes that are not text are an error,
            become U+FFFD, or their line is left out. Both of the latter leave
            out broken lines of JSON, broken rows and empty files.
        text_field: str, the name of the text in lines of JSON and in tables;
            `a.b` is the field b of the field a.

    Attributes:
        files: list of str.
        text_format: str, as given.
        encoding: str, as given.
        on_bad_text: str.
        text_field: str.
        reader: Reader.
        guess: str, what "auto" took and what differs from it, or None where
            nothing was guessed.

    Raises:
        FileNotFoundError: no file matches.
        ValueError: an argument is none of its choices.
        TextError: as from `Reader.documents`.
    """

    def __init__(
        self,
        patterns,
        text_format="auto",
        encoding="utf-8",
        on_bad_text="refuse",
        text_field=TEXT_FIELD,
    ):
        for name, value, choices in (
            ("text_format", text_format, TEXT_FORMATS),
            ("on_bad_text", on_bad_text, BAD_TEXT),
        ):
            if value not in choices:
                raise ValueError(
                    f"`{name}` must be one of {', '.join(choices)}. "
                    f"Received: {name}={value!r}."
                )
        self.text_format, self.encoding = text_format, encoding
        self.on_bad_text, self.guess = on_bad_text, None
        self.text_field = text_field
        checked = text_lines.checked_encoding(encoding)
        self.files = find_files(patterns)
        is_auto = text_format == "auto"
        if is_auto:
            text_format = self._guessed_format(checked)
        self.reader = Reader(
            text_format, is_auto, checked, on_bad_text, text_field
        )

    def documents(self, log=None):
        """Yield the Documents of all files.

        Args:
            log: ReadLog, or None.
        """
        for path in self.files:
            yield from self.reader.documents(path, log)

    def divided(self, piece_characters):
        """The corpus with its documents in pieces; see `Reader`, a Corpus."""
        corpus = copy.copy(self)
        corpus.reader = self.reader._replace(piece_characters=piece_characters)
        return corpus

    def _guessed_format(self, encoding):
        texts = [path for path in self.files if not is_columnar(path)]
        files = [path for path in texts if _format_of_name(path) is None]
        if not files:
            return _format_of_name(texts[0]) if texts else "running"
        step = -(-len(files) // _HEADS)
        heads = {
            path: _Head.of(path, encoding, self.on_bad_text)
            for path in files[::step]
        }
        whole = _Head(*map(sum, zip(*heads.values(), strict=True)))
        others = [
            path
            for path, head in heads.items()
            if head.lines and head.text_format != whole.text_format
        ]
        self.guess = f"the text format was guessed: {whole.text_format}"
        if others:
            self.guess += (
                f", though {len(others)} of {len(heads)} files look otherwise, "
                f"such as {others[0]}; name it by --text-format"
            )
        return whole.text_format


class _Head(typing.NamedTuple):
    """Counts of the first characters of a file."""

    lines: int
    blocks: int
    ended: int

    @property
    def text_format(self):
        is_sentences = (
            self.lines >= 2 * self.blocks and 5 * self.ended >= 4 * self.lines
        )
        return "sentences" if is_sentences else "running"

    @classmethod
    def of(cls, path, encoding, on_bad_text):
        lines = blocks = ended = size = 0
        in_block = False
        for line in text_lines.read_lines(
            path, encoding, on_bad_text, longest=_HEAD_CHARACTERS
        ):
            size += len(line) + 1
            line = line.strip()
            if line:
                lines += 1
                blocks += not in_block
                ended += bool(_LINE_ENDS_SENTENCE.search(line))
            in_block = bool(line)
            if size > _HEAD_CHARACTERS:
                break
        return cls(lines, blocks, ended)


def _format_of_name(path):
    """The text format that a file's name tells, or None."""
    _, extension = os.path.splitext(plain_name(path.lower()))
    return _NAMED_FORMATS.get(extension)


def read_documents(
    patterns, text_format="auto", encoding="utf-8", on_bad_text="refuse"
):
    """Yield the documents of all matching files as lists of sentences.

    Args:
        patterns, text_format, encoding, on_bad_text: as of `Corpus`.

    Yields:
        list of str.

    Raises:
        FileNotFoundError, ValueError, TextError: as from `Corpus`.
    """
    corpus = Corpus(patterns, text_format, encoding, on_bad_text)
    for document in corpus.documents():
        yield document.sentences()


def stream_documents(
    patterns, text_format="auto", encoding="utf-8", progress=None
):
    """Yield the documents of all matching files, not yet split.

    Args:
        patterns, text_format, encoding: as of `Corpus`.
        progress: as of `ReadLog`.

    Yields:
        Document.

    Raises:
        FileNotFoundError, ValueError, TextError: as from `Corpus`.
    """
    corpus = Corpus(patterns, text_format, encoding)
    yield from corpus.documents(ReadLog(progress))


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


def _read_sentences(*file):
    lines, characters = [], 0
    for line in text_lines.read_lines(*file, _LONGEST_LINE):
        line = line.strip()
        if line:
            lines.append(line)
            characters += len(line) + 1
        if lines and (not line or characters >= DOCUMENT_CHARACTERS):
            yield Document("\n".join(lines), "sentences")
            lines, characters = [], 0
    if lines:
        yield Document("\n".join(lines), "sentences")


def _read_running(*file):
    lines, characters = [], 0
    for line in text_lines.read_lines(*file, _LONGEST_LINE):
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


def _without_blank_lines(text):
    lines = map(str.strip, text.split("\n"))
    return "\n".join(filter(None, lines))


_READERS = {"sentences": _read_sentences, "running": _read_running}
_ROW_READERS = {"jsonl": rows.read_json_lines, "csv": rows.read_csv}
