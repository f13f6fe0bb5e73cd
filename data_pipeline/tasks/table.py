"""Reading of tables: TSV, CSV, JSON lines, Parquet and Arrow.

Each row can be read once. The suffix of the file determines the format:

- .tsv or .txt: tabs separate the fields, and quotes are part of the text, as in
  GLUE.
- .csv: commas separate the fields. If commas do not divide the first row,
  semicolons are tried, then tabs. The tried separator is used if it divides
  each of the first 20 rows into the same number of fields, at least two. A text
  with the separator, a quote or a line break must be quoted. Blanks after a
  separator are ignored.
- .jsonl, .json, .jsonlines or .ndjson: one object per line, or a list of
  objects.
- .parquet, .arrow, .feather, or the state.json of a data set that Hugging
  Face's `datasets` saved: the same values as in JSON lines.

A row number is the number of the line where an example begins, from 1. In lists
of objects, Parquet and Arrow files and saved data sets, the rows are counted
instead of the lines.
"""

import collections
import csv
import itertools
import os
import posixpath
import re
import warnings

from data_pipeline.base.limits import MOST_JSON_BYTES
from data_pipeline.tasks.archives import parse_json
from data_pipeline.tasks.counted import Counted
from data_pipeline.tasks.counted import without_marks
from data_pipeline.text import columnar
from data_pipeline.text import saved_datasets
from data_pipeline.text.compression import COMPRESSED
from data_pipeline.text.compression import plain_name
from data_pipeline.text.rows import QUOTED
from data_pipeline.text.rows import long_fields
from data_pipeline.text.rows import separator_line

JSON_ENDINGS = (".jsonl", ".json", ".jsonlines", ".ndjson")
# Suffixes of a user's own tables, the preferred suffix first. The last entry is
# the file of a saved data set.
TABLE_ENDINGS = (
    *(".tsv", ".csv", *JSON_ENDINGS),
    *columnar.ENDINGS,
    f"/{saved_datasets.STATE}",
)

_FIELD_CHARACTERS = 1 << 30
_SEPARATORS = {",": "commas", ";": "semicolons", "\t": "tabs"}
_SEPARATOR_ROWS = 20  # first rows for the separator
# Older versions of `datasets` add a digest after the number of files.
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(-[0-9a-f]+)?(\.\w+)")


class Table:
    """Iterator of the rows of a table.

    Args:
        place: str, path of the table, for messages.
        rows: iterable of tuples (number, cells): the number of the row (int)
            and its cells (a list of str or a dict of column names to values).
        names: list of str, the keys of all dicts, or None (default) if the
            first dict has all keys.
        counted: Counted to which the iterable `rows` adds faults, or None
            (default) for a new Counted.

    Attributes:
        place: str.
        is_named: bool, whether rows are dicts. Otherwise the first row may be a
            header.
        keys: list of the keys of a row: names or indices.
        names: list of str, the keys of dicts or the cells of the first row,
            without surrounding blanks.
        counted: Counted, counts of the rows that readers skip or change.

    Raises:
        ValueError: the table has no rows, or `rows` raises a ValueError.
    """

    def __init__(self, place, rows, names=None, counted=None):
        self.place = place
        self.counted = counted or Counted(place)
        self._rows = itertools.dropwhile(_is_blank, rows)
        self._head = collections.deque(itertools.islice(self._rows, 1))
        if not self._head:
            raise ValueError(f"{place}: the file is empty.")
        cells = self._head[0][1]
        self.is_named = isinstance(cells, dict)
        self.keys = list(range(len(cells)))
        if self.is_named:
            self.keys = list(cells) if names is None else names
        self.names = [name.strip() for name in names or cells]
        if len(self.names) > 1:
            self._rows = itertools.filterfalse(_is_blank, self._rows)

    def head(self, count):
        """Return the cells of the first rows, at most `count` rows.

        The rows stay in the table for a later iteration.
        """
        missing = count - len(self._head)
        self._head += itertools.islice(self._rows, max(0, missing))
        return [cells for _, cells in itertools.islice(self._head, count)]

    def __iter__(self):
        while self._head:
            yield self._head.popleft()
        yield from self._rows


def _is_blank(row):
    """Whether a row is a blank line, bool."""
    _, cells = row
    is_one = isinstance(cells, list) and len(cells) == 1
    return is_one and not cells[0].strip()


def open_table(tree, name, task):
    """Open the table in a file.

    Args:
        tree: archives.Tree.
        name: str, name of the file.
        task: TaskSpec.

    Returns:
        Table.

    Raises:
        ValueError: the suffix of the file is unknown, or the file is broken or
            empty. If a row after the first row is broken, the ValueError may be
            raised later, when this row is read.
    """
    kind = _kind(tree, name, task)
    place, names = tree.place(name), None
    counted = Counted(place)
    if kind == "json":
        rows = list(_json_rows(tree, name, counted))
        names = list(dict.fromkeys(key for _, row in rows for key in row))
    elif kind in ("csv", "tsv"):
        rows = _text_rows(tree, name, kind, task.folder is not None, counted)
    else:
        files = _saved_files if kind == "saved" else _shards
        # Published tasks have numbers as classes.
        rows = _column_rows(tree, files(tree, name), not task.folder)
    return Table(place, iter(rows), names, counted)


def find_table(tree, name, is_compressed=False):
    """Find the file of a table, or the first file of a divided table.

    The Hugging Face Hub divides train.parquet into
    train-00000-of-00002.parquet and train-00001-of-00002.parquet.

    Args:
        tree: archives.Tree.
        name: str, name of the table.
        is_compressed: bool, whether to look for a compressed file such as
            train.csv.gz instead. Default False.

    Returns:
        str, or None if there is no such file.
    """
    for ending in COMPRESSED if is_compressed else ("",):
        if tree.has(name + ending):
            return name + ending
    if not columnar.is_columnar(name):
        return None
    stem, ending = os.path.splitext(name)
    shards = tree.matching(f"{stem}-00000-of-*{ending}")
    return next(filter(_SHARD.fullmatch, shards), None)


def is_table(name):
    """Whether a file name has the suffix of a table, bool.

    A suffix for compression such as .gz may follow.

    Args:
        name: str.
    """
    return plain_name(name.lower()).endswith(TABLE_ENDINGS)


def is_json_lines(name):
    """Whether a file name has the suffix of uncompressed JSON lines, bool.

    Args:
        name: str.
    """
    return name.lower().endswith(JSON_ENDINGS)


def _kind(tree, name, task):
    """Find the kind of a table: "tsv", "csv", "json", "columns" or "saved"."""
    if columnar.is_columnar(name):
        return "columns"
    folder, file = posixpath.split(name)
    if file == saved_datasets.STATE:
        # Other files of this name are tables.
        info = posixpath.join(folder, saved_datasets.INFO)
        return "saved" if tree.has(info) else "json"
    if task.table_format:
        return task.table_format
    ending = os.path.splitext(plain_name(name.lower()))[1]
    if ending not in _KINDS:
        raise ValueError(
            f"{name}: what kind of table is this? Expected a file that ends in "
            f"{', '.join([*_KINDS, *columnar.ENDINGS])}."
        )
    return _KINDS[ending]


def _text_rows(tree, name, kind, is_published, counted):
    """Read the rows of a .tsv or .csv file.

    Args:
        tree, name: see `open_table`.
        kind: "tsv" or "csv".
        is_published: bool, whether the file belongs to a published task. Commas
            separate the fields of a published .csv. In an unpublished file, a
            first line such as `sep=;` determines the separator. Such a file is
            read as a .csv, whatever its `kind`.
        counted: Counted.

    Yields:
        tuple of row number (int) and cells (list of str).
    """
    with tree.open_text(name, newline="\n" if kind == "tsv" else "") as file:
        lines = without_marks(file, counted)
        place = tree.place(name)
        if is_published:
            is_csv = kind == "csv"
            rows = _csv_rows(lines, place, ",") if is_csv else _tsv_rows(lines)
            yield from rows
            return
        head = list(itertools.islice(lines, 1))
        separator = separator_line(head[0]) if head else None
        if separator is None:
            lines = itertools.chain(head, lines)
        # A file with a line `sep=` is quoted, for any suffix.
        if kind == "tsv" and separator is None:
            yield from _tsv_rows(lines, counted)
        else:
            before = 0 if separator is None else 1
            yield from _csv_rows(lines, place, separator, before)


def _tsv_rows(lines, counted=None):
    """Read a .tsv; count rows with quoted fields if `counted` is given."""
    for number, line in enumerate(lines, start=1):
        cells = line.rstrip("\r\n").split("\t")
        if counted is not None and any(map(QUOTED.fullmatch, cells)):
            counted.add(
                "rows have fields in quotes, which a .tsv keeps as text; "
                "where the file is quoted, name it .csv, which tabs may "
                "separate too",
                number,
            )
        yield number, cells


def _csv_rows(lines, place, separator, before=0):
    """Read the rows of a CSV file from its lines.

    `before` is the number of lines of the file before `lines`. Row numbers
    count these lines too. If the separator is None, the first rows determine
    the separator.
    """
    with long_fields(_FIELD_CHARACTERS):
        if separator is None:
            separator, lines = _separator(lines)
            if separator != ",":
                warnings.warn(
                    f"{place}: the separator is not a comma; read as separated "
                    f"by {_SEPARATORS[separator]}",
                    stacklevel=2,
                )
        # Without `strict`, a single wrong quote would include the rest of the
        # file.
        reader = csv.reader(
            lines, strict=True, skipinitialspace=True, delimiter=separator
        )
        while True:
            number = before + reader.line_num + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise ValueError(
                    f"{place}, row {number}: not valid CSV ({error}). A quote "
                    'inside a quoted text is written "".'
                ) from None
            if row is None:
                return
            yield number, row or [""]


def _separator(lines):
    """Find the separator of a CSV, by default a comma.

    Args:
        lines: iterator of str.

    Returns:
        tuple of the separator (str) and an iterator of all lines.
    """
    *copies, lines = itertools.tee(lines, len(_SEPARATORS) + 1)
    for separator, copy in zip(_SEPARATORS, copies, strict=True):
        reader = csv.reader(copy, skipinitialspace=True, delimiter=separator)
        try:
            rows = itertools.islice(filter(None, reader), _SEPARATOR_ROWS)
            widths = list(map(len, rows))
        except csv.Error:
            break
        if not widths or (separator == "," and widths[0] > 1):
            break
        if widths[0] > 1 and len(set(widths)) == 1:
            return separator, lines
    return ",", lines


def _json_rows(tree, name, counted):
    place = tree.place(name)
    with tree.open_text(name) as file:
        for number, line in enumerate(without_marks(file, counted), start=1):
            if not line.strip():
                continue
            if line.lstrip().startswith("["):
                rows = parse_json(line + file.read(), place, number)
                yield from (
                    (index, _checked_object(row, place, index))
                    for index, row in enumerate(rows, start=1)
                )
                return
            row = parse_json(line, place, number)
            yield number, _checked_object(row, place, number)


def _checked_object(row, place, number):
    if not isinstance(row, dict):
        raise ValueError(
            f"{place}, row {number}: not an object. Every line must be one "
            'like {"text": "...", "label": "..."}.'
        )
    return row


def _column_rows(tree, names, named_classes):
    """Read the rows of all files of a table, with consecutive numbers."""
    number = 0
    for name in names:
        with tree.open(name) as file:
            for row in columnar.read_objects(
                file, tree.place(name), named_classes
            ):
                number += 1
                yield number, row


def _shards(tree, name):
    """List the names of the files of a divided table."""
    parts = _SHARD.fullmatch(name)
    # If the user named a single file, read only this file.
    if tree.is_file or not parts:
        return [name]
    stem, _, count, digest, ending = parts.groups()
    shards = {number: [] for number in range(int(count))}
    for other in tree.matching(f"{stem}-*-of-{count}*{ending}"):
        match = _SHARD.fullmatch(other)
        is_one = match is not None and bool(match[4]) == bool(digest)
        if is_one and int(match[2]) in shards:
            shards[int(match[2])].append(other)
    for number, others in shards.items():
        if len(others) != 1:
            shard = f"{stem}-{number:05d}-of-{count}{'-*' * bool(digest)}"
            problem = ": there are several" if others else " is not there, one"
            raise ValueError(
                f"{tree.place(shard + ending)}{problem} of the {int(count)} "
                "files of a table. Fetch the whole again."
            )
    return [name for others in shards.values() for name in others]


def _saved_files(tree, name):
    """List the names of the files of a saved data set."""
    with tree.open_text(name) as file:
        state = parse_json(file.read(MOST_JSON_BYTES), tree.place(name))
    files = saved_datasets.names_of_state(state, tree.place(name))
    return [posixpath.join(posixpath.dirname(name), file) for file in files]


_KINDS = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    **dict.fromkeys(JSON_ENDINGS, "json"),
}
