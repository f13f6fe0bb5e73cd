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
- "csv": a row is a document of running text, in the column "text".

In Parquet, Arrow and Feather files a row is a document, whatever the format:
running text, or for "sentences" one sentence per line.

"auto" reads .jsonl and .json as "jsonl", .csv and .tsv as "csv". Other text
files that begin as JSON are "jsonl". One format is guessed for the rest: in
their first 65,536 characters, blank lines separate blocks. If blocks have two
lines or more on average and at least 4 of 5 lines end like a sentence, the
format is "sentences", else "running".

If the first line of a file is a tag, such as `<doc id="1">`, lines with this
tag or its end (`</doc>`) are no text, and end a document.
A line of text above 800,000 characters counts as several. A line of jsonl or a
row has at most 64 million characters: it is a document, held in memory.
"""

import collections
import copy
import itertools
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
# A corpus in a single file must not become one document: no part could be held
# out, and none built in parallel.
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
# Characters per end of a sentence; above it, few ends are found.
_LONG_SENTENCES = 400
# The first lines of JSON: an object, or an array of objects or of strings.
_JSON = re.compile(r'(\[\s*)?\{\s*"(?:[^"\\]|\\.)*"\s*:|\[\s*"')
# A line that is one tag; an attribute may hold ">".
_TAG_LINE = re.compile(r"</?(?!unk>)([A-Za-z][\w.:-]*)(?:\s(?:(?!</).)*)?>")
# Beginnings of lines that are not text: tags, the headers of FASTA, and the
# lines around the text of a book of Project Gutenberg.
_GUTENBERG = "*** "
_MARKUP = re.compile(
    r"</?(?!unk>)[A-Za-z|][^<>]*>|>\S"
    r"|\*\*\* (?:START|END) OF (?:THE|THIS) PROJECT GUTENBERG"
)
_FEW_MARKS, _MARKUP_SHARE = 2, 0.01  # lines, and of all lines
_FEW_ENDS = (
    "warning: few ends of sentences are found in this text. If a line is a "
    "sentence, or a text of its own, give --text-format sentences"
)


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
    """Reader of text files in one format and encoding.

    `text_format` is one of `TEXT_FORMATS` other than "auto". With
    `knows_names`, names such as a.jsonl and a.csv still decide the format.
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
            TextError: the file is damaged or lacks the column of texts; or
                `on_bad_text` is "refuse" and the file has no text, bytes that
                are not text, a broken line of JSON or a broken row.
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
        text_format = self.text_format
        file = path, self.encoding, self.on_bad_text
        if self.knows_names:
            text_format = (
                _format_of_name(path)
                or _format_of_beginning(_head_lines(*file))
                or text_format
            )
        if text_format in _ROW_READERS:
            texts = _ROW_READERS[text_format](*file, self.text_field, log)
            return (Document(text, "running") for text in texts)
        return _READERS[text_format](*file, log)


class Corpus:
    """Text files, and the settings for reading them.

    Args:
        patterns: str or path, or several: a file or a glob.
        text_format: one of `TEXT_FORMATS`; see the docstring of the module.
        encoding: str, an encoding of Python.
        on_bad_text: one of `BAD_TEXT`: bytes that are not text are an error,
            become U+FFFD, or their line is left out. The last two also leave
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
        guess: str, lines about the format that "auto" chose, files that differ
            from it and files that look wrong; None without such lines.

    Raises:
        FileNotFoundError: no file matches.
        ValueError: an argument is not one of its choices.
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
        if text_format not in _ROW_READERS:
            text_format = self._examine(checked)
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
        """Corpus with its documents in pieces, see `Reader`."""
        corpus = copy.copy(self)
        corpus.reader = self.reader._replace(piece_characters=piece_characters)
        return corpus

    def _examine(self, encoding):
        """Choose the format from the beginnings of files, and report it."""
        is_auto = self.text_format == "auto"
        texts = [path for path in self.files if not is_columnar(path)]
        files = [
            path for path in texts if not is_auto or not _format_of_name(path)
        ]
        if not files:
            named = _format_of_name(texts[0]) if texts else "running"
            return named if is_auto else self.text_format
        step = -(-len(files) // _HEADS)
        heads = {
            path: _Head.of(path, encoding, self.on_bad_text)
            for path in files[::step]
        }
        text_format, notes = self.text_format, []
        if is_auto:
            text_format, notes = _guess(heads)
        marked = [path for path, head in heads.items() if head.markup]
        if marked:
            path = marked[0]
            notes.append(
                f"warning: lines of markup, such as {heads[path].markup!r} in "
                f"{path} ({len(marked)} of {len(heads)} files), are read as "
                'text. Take them out first: "Text" in docs/records.md'
            )
        self.guess = "\n".join(notes) or None
        return text_format


def _guess(heads):
    """Format of most files, and lines about it and the other files."""
    guessed = [head for head in heads.values() if not head.told]
    if guessed:
        whole = _Head(sum((x.counts for x in guessed), collections.Counter()))
    else:
        whole = next(iter(heads.values()))
    text_format = whole.text_format
    other_files = [
        path
        for path, head in heads.items()
        if head.counts["lines"] and head.text_format != text_format
    ]
    told_files = [path for path in other_files if heads[path].told]
    other_files = [path for path in other_files if path not in told_files]
    note = f"the text format was guessed: {text_format}"
    if other_files:
        note += (
            f", though {len(other_files)} of {len(heads)} files look "
            f"otherwise, such as {other_files[0]}; name it by --text-format"
        )
    if told_files:
        note += (
            f"; {heads[told_files[0]].told} for files that begin so, "
            f"{len(told_files)} of {len(heads)}, such as {told_files[0]}"
        )
    running = [x.counts for x in heads.values() if x.text_format == "running"]
    counts = sum(running, collections.Counter())
    if counts["characters"] > _LONG_SENTENCES * max(1, counts["sentence_ends"]):
        return text_format, [note, _FEW_ENDS]
    return text_format, [note]


class _Head(typing.NamedTuple):
    """Statistics of the first characters of a file.

    `counts` is a Counter of the `lines`, the `blocks` between blank lines, the
    lines that `ended` like a sentence, the `characters` and the
    `sentence_ends` in running text.
    `told` is the format if the beginning decides it, else None. `markup` is a
    line of markup if there are many, else None.
    """

    counts: collections.Counter
    told: str | None = None
    markup: str | None = None

    @property
    def text_format(self):
        if self.told:
            return self.told
        lines = self.counts["lines"]
        is_sentences = (
            lines >= 2 * self.counts["blocks"]
            and 5 * self.counts["ended"] >= 4 * lines
        )
        return "sentences" if is_sentences else "running"

    @classmethod
    def of(cls, *file):
        lines = list(_head_lines(*file))
        told = _format_of_beginning(lines)
        tag = told and _tag(next(filter(None, lines)))
        counts, in_block, marks = collections.Counter(), False, []
        for line in lines:
            if line and not (tag and _tag(line) == tag):
                counts["lines"] += 1
                counts["blocks"] += not in_block
                counts["ended"] += bool(_LINE_ENDS_SENTENCE.search(line))
                counts["characters"] += len(line)
                marks += [line] * bool(_MARKUP.match(line))
            in_block = bool(line)
        counts["sentence_ends"] = sum(
            bool(_LINE_ENDS_SENTENCE.search(sentence))
            for sentence in split_sentences("\n".join(lines))
        )
        is_marked = told != "jsonl" and (
            len(marks) > min(_FEW_MARKS, _MARKUP_SHARE * counts["lines"])
            or any(line.startswith(_GUTENBERG) for line in marks)
        )
        return cls(counts, told, marks[0][:60] if is_marked else None)


def _head_lines(*file):
    """Yield the lines in the first characters of a file, stripped."""
    size = 0
    for line in text_lines.read_lines(*file, longest=_HEAD_CHARACTERS):
        yield line.strip()
        size += len(line) + 1
        if size > _HEAD_CHARACTERS:
            return


def _format_of_beginning(lines):
    """Text format that follows from the first lines of a file, or None."""
    first = list(itertools.islice(filter(None, lines), 3))
    if _JSON.match(" ".join(first)):
        return "jsonl"
    # The tags end documents, so blank lines do not.
    return "running" if first and _tag(first[0]) else None


def _tag(line):
    """Name of the tag if a line is one tag, else None."""
    match = _TAG_LINE.fullmatch(line.strip())
    return match and match[1]


def _format_of_name(path):
    """Text format that follows from a file's name, or None."""
    _, extension = os.path.splitext(plain_name(path.lower()))
    return _NAMED_FORMATS.get(extension)


def read_documents(
    patterns, text_format="auto", encoding="utf-8", on_bad_text="refuse"
):
    """Yield the documents of all matching files as lists of sentences.

    Args:
        patterns, text_format, encoding, on_bad_text: see `Corpus`.

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
        patterns, text_format, encoding: see `Corpus`.
        progress: see `ReadLog`.

    Yields:
        Document.

    Raises:
        FileNotFoundError, ValueError, TextError: as from `Corpus`.
    """
    corpus = Corpus(patterns, text_format, encoding)
    yield from corpus.documents(ReadLog(progress))


class PartPlanner:
    """Planner that groups documents into parts: the units of work.

    Documents are added one by one. A part holds at least `part_characters`
    characters, unless all documents together have fewer. Documents after the
    last full part are joined to it. At most two parts are held in memory.

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
    for line in _lines(*file):
        line = (line or "").strip()
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
    # The last document ends as if a tag followed.
    for line in itertools.chain(_lines(*file), [None]):
        if line is not None:
            lines.append(line)
            characters += len(line) + 1
            # Cut at the end of a paragraph, or of a line if the paragraph is
            # long.
            if characters < DOCUMENT_CHARACTERS or (
                characters < 4 * DOCUMENT_CHARACTERS and line.strip()
            ):
                continue
        text = "\n".join(lines)
        if text.strip():
            yield Document(text, "running")
        lines, characters = [], 0


def _lines(*file):
    """Iterator over the lines of a file, None for its tags."""
    lines = text_lines.read_lines(*file, _LONGEST_LINE)
    head = []
    for line in lines:
        head.append(line)
        if line.strip():
            break
    tag = head and _tag(head[-1])
    lines = itertools.chain(head, lines)
    if not tag:
        return lines
    return (None if _tag(line) == tag else line for line in lines)


def _without_blank_lines(text):
    lines = map(str.strip, text.split("\n"))
    return "\n".join(filter(None, lines))


_READERS = {"sentences": _read_sentences, "running": _read_running}
_ROW_READERS = {"jsonl": rows.read_json_lines, "csv": rows.read_csv}
