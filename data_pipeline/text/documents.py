"""Reading of text files as documents and sentences, one document at a time.

Text formats:

- "sentences": each line is a sentence or a paragraph, and a blank line ends a
  document, as in the released preprocessing. A document also ends after 200,000
  characters.
- "running": each file is a document. A long file is cut at the first end of a
  paragraph after each 200,000 characters. If a document reaches 800,000
  characters before such an end, it is cut at the next end of a line. A blank
  line ends a paragraph, and paragraphs are split into sentences. This format
  suits books, with or without line breaks inside paragraphs. It also suits
  wikitext-2, where only headings have blank lines around them.
- "jsonl": each line is an object `{"text": ...}` with the running text of a
  document.
- "csv": each row is a document, with running text in the column "text".

In Parquet, Arrow and Feather files, each row is a document. In the format
"sentences", the text of a row has one sentence per line. In all other formats,
each row has running text.

"auto" reads .jsonl and .json files as "jsonl", and .csv and .tsv files as
"csv". Other text files that begin like JSON are "jsonl". For all remaining
files together, one format is guessed from the first 65,536 characters of at
most 256 files. Blank lines separate blocks of lines. The guess is "sentences"
if blocks have at least two lines on average and at least 4 of 5 lines end like
a sentence. Otherwise the guess is "running".

In text files of the formats "sentences" and "running", the first line with text
may be a single tag such as `<doc id="1">`. Then every line that is only a
`<doc ...>` or `</doc>` tag ends a document. These lines are not part of the
text. A line above 800,000 characters is divided into several lines.

A line of jsonl or csv, or the text of a row, may have at most 67,108,864
characters. Each such text is held in memory as a whole.
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
# If a corpus in a single file were one document, no part could be held out and
# no parts could be built in parallel.
DOCUMENT_CHARACTERS = 200_000
TEXT_FIELD = "text"

# Cut longer lines, so that a file with a single line has several documents.
_LONGEST_LINE = 4 * DOCUMENT_CHARACTERS

_NAMED_FORMATS = {
    **dict.fromkeys((".jsonl", ".jsonlines", ".ndjson", ".json"), "jsonl"),
    **dict.fromkeys((".csv", ".tsv"), "csv"),
}
_HEAD_CHARACTERS = 1 << 16
# Number of files whose beginnings are examined. In a larger corpus they are
# evenly spaced.
_HEADS = 256
_LINE_ENDS_SENTENCE = re.compile(r"[.!?…。！？][\"'”’»)\]」』]*$")
# Characters per sentence end. Above this number, a warning reports that few
# ends are found.
_LONG_SENTENCES = 400
# Beginning of a JSON file: an object, or an array of objects or of strings.
_JSON = re.compile(r'(\[\s*)?\{\s*"(?:[^"\\]|\\.)*"\s*:|\[\s*"')
# A line that consists of one tag. An attribute may contain ">".
_TAG_LINE = re.compile(r"</?(?!unk>)([A-Za-z][\w.:-]*)(?:\s(?:(?!</).)*)?>")
# Beginnings of lines that are not text: tags, headers of FASTA files, and the
# lines around the text of a book from Project Gutenberg.
_GUTENBERG = "*** "
_MARKUP = re.compile(
    r"</?(?!unk>)[A-Za-z|][^<>]*>|>\S"
    r"|\*\*\* (?:START|END) OF (?:THE|THIS) PROJECT GUTENBERG"
)
_FEW_MARKS, _MARKUP_SHARE = 2, 0.01  # a number and a share of lines
_FEW_ENDS = (
    "warning: few ends of sentences are found in this text. If a line is a "
    "sentence, or a text of its own, give --text-format sentences"
)


class Document(typing.NamedTuple):
    """Document: its text as in the file, and the format of the text."""

    text: str
    text_format: str

    def sentences(self):
        """Split the document into sentences, list of non-empty str."""
        if self.text_format == "sentences":
            return self.text.split("\n")
        return split_sentences(self.text)

    def pieces(self, size):
        """Cut the document into Documents of at least `size` characters.

        A cut is at the end of a paragraph if possible, else at the end of a
        line, else at the end of a word.
        """
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
    """Reader of text files with a given format and encoding.

    Attributes:
        text_format: one of `TEXT_FORMATS` except "auto".
        knows_names: bool, whether the name and the first lines of a file have
            precedence over `text_format`.
        encoding: str, see `lines.checked_encoding`.
        on_bad_text: one of `lines.BAD_TEXT`, see `Corpus`.
        text_field: str, name of the field with the text in lines of JSON and in
            tables.
        piece_characters: int, minimum size of the pieces that documents are cut
            into, or None to keep documents whole.
    """

    text_format: str
    knows_names: bool
    encoding: str
    on_bad_text: str
    text_field: str = TEXT_FIELD
    piece_characters: int | None = None

    def documents(self, path, log=None):
        """Read the Documents of a file.

        Args:
            path: str.
            log: ReadLog, or None.

        Raises:
            TextError: the file is damaged or lacks the column with the text.
                If `on_bad_text` is "refuse", TextError is also raised for a
                file without text, for bytes that are not text, and for a broken
                line of JSON or a broken row.
            RuntimeError: a package for this kind of file is not installed.
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
    """Text files with the settings for reading them.

    Args:
        patterns: str or path, or a list of these. Each is a file, the directory
            of a saved data set, or a glob, see `files.find_files`.
        text_format: one of `TEXT_FORMATS`, see the docstring of the module.
        encoding: str, name of one of Python's encodings.
        on_bad_text: one of `BAD_TEXT`, for bytes that are not text. "refuse"
            raises an error, "replace" reads such bytes as U+FFFD, "skip" skips
            their line. "replace" and "skip" also skip broken lines of JSON,
            broken rows and empty files.
        text_field: str, name of the field with the text in lines of JSON and in
            tables. `a.b` is the field b inside the field a.

    Attributes:
        files: list of str, paths of the files.
        text_format: str, the argument.
        encoding: str, the argument.
        on_bad_text: str, the argument.
        text_field: str, the argument.
        reader: Reader.
        notes: list of str, lines for the user. They describe the format that
            "auto" chose, files that seem to have other formats, and signs of a
            wrong format, such as markup.

    Raises:
        FileNotFoundError: no file is found.
        ValueError: an argument has an unknown value.
        TextError: see `Reader.documents`.
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
        self.on_bad_text, self.notes = on_bad_text, []
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
        """Read the Documents of all files.

        Args:
            log: ReadLog, or None.
        """
        for path in self.files:
            yield from self.reader.documents(path, log)

    def divided(self, piece_characters):
        """Return a Corpus that cuts its documents into pieces, see `Reader`."""
        corpus = copy.copy(self)
        corpus.reader = self.reader._replace(piece_characters=piece_characters)
        return corpus

    def _examine(self, encoding):
        """Choose the format from the beginnings of files; set `notes`."""
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
        self.notes = notes
        return text_format


def _guess(heads):
    """Guess one format for all files; return the format and notes."""
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
    """Statistics about the first characters of a file.

    Attributes:
        counts: Counter of the `lines`, the `blocks` between blank lines, the
            lines that `ended` like a sentence, and the `characters`. The key
            `sentence_ends` counts the ends of sentences if the lines are read
            as running text.
        told: str, the format if the first lines determine the format, else
            None.
        markup: str, one line as an example if the file has many lines of
            markup, else None.
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
    """Yield the first lines of a file, each without white space at its ends."""
    size = 0
    for line in text_lines.read_lines(*file, longest=_HEAD_CHARACTERS):
        yield line.strip()
        size += len(line) + 1
        if size > _HEAD_CHARACTERS:
            return


def _format_of_beginning(lines):
    """Find the text format from the first lines of a file, str or None."""
    first = list(itertools.islice(filter(None, lines), 3))
    if _JSON.match(" ".join(first)):
        return "jsonl"
    # If tags end the documents, blank lines do not.
    return "running" if first and _tag(first[0]) else None


def _tag(line):
    """Return the name of the tag if a line is a single tag, else None."""
    match = _TAG_LINE.fullmatch(line.strip())
    return match and match[1]


def _format_of_name(path):
    """Find the text format from the name of a file, str or None."""
    _, extension = os.path.splitext(plain_name(path.lower()))
    return _NAMED_FORMATS.get(extension)


def read_documents(
    patterns, text_format="auto", encoding="utf-8", on_bad_text="refuse"
):
    """Read the documents of text files as lists of sentences.

    Args:
        patterns, text_format, encoding, on_bad_text: see `Corpus`.

    Yields:
        list of str.

    Raises:
        FileNotFoundError, ValueError, TextError: see `Corpus`.
    """
    corpus = Corpus(patterns, text_format, encoding, on_bad_text)
    for document in corpus.documents():
        yield document.sentences()


def stream_documents(
    patterns, text_format="auto", encoding="utf-8", progress=None
):
    """Read the documents of text files, without splitting into sentences.

    Args:
        patterns, text_format, encoding: see `Corpus`.
        progress: see `ReadLog`.

    Yields:
        Document.

    Raises:
        FileNotFoundError, ValueError, TextError: see `Corpus`.
    """
    corpus = Corpus(patterns, text_format, encoding)
    yield from corpus.documents(ReadLog(progress))


class PartPlanner:
    """Planner that groups documents into parts, the units of work.

    The caller adds documents one by one. A part has at least `part_characters`
    characters. If the last documents do not fill another part, they are added
    to the last full part. If no part is full, all documents form one part. At
    most two parts are held in memory.

    Args:
        part_characters: int, minimum size of a part in characters.
    """

    def __init__(self, part_characters=PART_CHARACTERS):
        self._part_characters = part_characters
        self._full = []
        self._current = []
        self._size = 0

    def add(self, document):
        """Add a document; return a list of the parts that are now complete."""
        self._current.append(document)
        self._size += len(document.text)
        if self._size < self._part_characters:
            return []
        done = [self._full] if self._full else []
        self._full, self._current, self._size = self._current, [], 0
        return done

    def finish(self):
        """Return a list with the last part, or [] if there are no documents."""
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
    # End the last document as a tag would.
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
    """Iterate over a file's lines; tags that end documents become None."""
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
