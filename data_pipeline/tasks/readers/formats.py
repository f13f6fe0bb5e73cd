"""Rows of tables: TSV, CSV, JSON lines, Parquet and Arrow.

A .tsv (or .txt) is split at tabs and never quoted, as in GLUE. A .csv is
separated by commas, or by semicolons or tabs where all its first rows are, and
texts with the separator, a quote or a line break are quoted; blanks behind a
comma do not count. A .jsonl, .json, .jsonlines or .ndjson has an object per
line, or is a list of objects. A .parquet, .arrow or .feather, or the state.json
of a data set that Hugging Face's `datasets` has saved, has what such lines
would.

A "row" is the line of the file, from 1, where an example begins; of columns it
is the row.
"""

import csv
import itertools
import os
import posixpath
import re
import warnings

from data_pipeline.base.limits import MOST_JSON_BYTES
from data_pipeline.tasks import archives
from data_pipeline.text import columnar
from data_pipeline.text import saved_datasets
from data_pipeline.text.files import COMPRESSED
from data_pipeline.text.rows import long_fields

JSON_ENDINGS = (".jsonl", ".json", ".jsonlines", ".ndjson")
# Endings of your own tables, first choice first; the last is a saved data set.
TABLE_ENDINGS = (
    *(".tsv", ".csv", *JSON_ENDINGS),
    *columnar.ENDINGS,
    f"/{saved_datasets.STATE}",
)

_FIELD_CHARACTERS = 1 << 30
_SEPARATORS = {";": "semicolons", "\t": "tabs"}
# Older versions of `datasets` put a digest behind the number.
_SHARD = re.compile(r"(.*)-(\d{5})-of-(\d{5})(-[0-9a-f]+)?(\.\w+)")
FIRST_ROWS = 20  # which tell the separator


def find_table(tree, name, is_compressed=False):
    """The file of a table, or the first of several that it is divided into.

    As the Hugging Face Hub divides train.parquet:
    train-00000-of-00002.parquet, train-00001-of-00002.parquet.

    Args:
        tree: archives.Tree.
        name: str, of the table.
        is_compressed: bool, whether to look for a compressed file, such as
            train.csv.gz, in its place. Default False.

    Returns:
        str or None.
    """
    for ending in COMPRESSED if is_compressed else ("",):
        if tree.has(name + ending):
            return name + ending
    if not columnar.is_columnar(name):
        return None
    stem, ending = os.path.splitext(name)
    found = tree.matching(f"{stem}-00000-of-*{ending}")
    return next(filter(_SHARD.fullmatch, found), None)


def rows_of(tree, name, task):
    """Yield the rows of a table.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec.

    Yields:
        (row, cells): int, and a list of str, or a dict of the values of named
        columns.

    Raises:
        ValueError: the file or a row is broken.
    """
    kind = table_format(name, task)
    if kind == "csv":
        # Published files use the comma.
        separator = "," if task.folder else _separator(tree, name)
        yield from _csv_rows(tree, name, separator)
    elif kind in ("columns", "saved"):
        # The classes of published tasks are numbers.
        yield from _ROWS[kind](tree, name, named_classes=not task.folder)
    else:
        yield from _ROWS[kind](tree, name)


def is_table(name):
    """Whether a file is a table by its name, perhaps a compressed one.

    Args:
        name: str.
    """
    stem, ending = os.path.splitext(name.lower())
    name = stem if ending in COMPRESSED else name.lower()
    return name.endswith(TABLE_ENDINGS)


def is_json_lines(name):
    """Whether a file has JSON lines by its name, and is not compressed.

    Args:
        name: str.
    """
    return name.lower().endswith(JSON_ENDINGS)


def table_format(name, task):
    """Format of a table: "tsv", "csv", "json", "columns" or "saved".

    Args:
        name: str, the file.
        task: TaskSpec.

    Raises:
        ValueError: the ending of the file name is unknown.
    """
    stem, ending = os.path.splitext(name.lower())
    if ending in columnar.ENDINGS:
        return "columns"
    if posixpath.basename(name) == saved_datasets.STATE:
        return "saved"
    if task.table_format:
        return task.table_format
    if ending in COMPRESSED:
        ending = os.path.splitext(stem)[1]
    if ending not in _FORMATS:
        raise ValueError(
            f"{name}: what kind of table is this? Expected a file that ends in "
            f"{', '.join([*_FORMATS, *columnar.ENDINGS])}."
        )
    return _FORMATS[ending]


def _tsv_rows(tree, name):
    with archives.open_text(tree, name, newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n").split("\t")


def _csv_rows(tree, name, separator):
    if separator != ",":
        warnings.warn(
            f"{tree.place(name)}: the separator is not a comma; read as "
            f"separated by {_SEPARATORS[separator]}",
            stacklevel=2,
        )
    with (
        archives.open_text(tree, name) as file,
        long_fields(_FIELD_CHARACTERS),
    ):
        # Without `strict`, a stray quote swallows the rest of the file.
        reader = csv.reader(
            file, strict=True, skipinitialspace=True, delimiter=separator
        )
        while True:
            number = reader.line_num + 1
            try:
                row = next(reader, None)
            except csv.Error as error:
                raise ValueError(
                    f"{tree.place(name)}, row {number}: not valid CSV "
                    f'({error}). A quote inside a quoted text is written "".'
                ) from None
            if row is None:
                return
            yield number, row or [""]


def _separator(tree, name):
    """The separator of a CSV: a comma, unless the first row has none."""
    for separator in (",", *_SEPARATORS):
        widths = _widths(tree, name, separator)
        if not widths or (separator == "," and widths[0] > 1):
            return ","
        if widths[0] > 1 and len(set(widths)) == 1:
            return separator
    return ","


def _widths(tree, name, separator):
    """list of int, the numbers of fields of the first non-empty rows."""
    with (
        archives.open_text(tree, name) as file,
        long_fields(_FIELD_CHARACTERS),
    ):
        reader = csv.reader(file, skipinitialspace=True, delimiter=separator)
        try:
            rows = list(itertools.islice(filter(None, reader), FIRST_ROWS))
        except csv.Error:
            return []
        return list(map(len, rows))


def _json_rows(tree, name):
    place = tree.place(name)
    with archives.open_text(tree, name) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if line.lstrip().startswith("["):
                rows = archives.parse_json(line + file.read(), place, number)
                yield from (
                    (index, _checked_object(row, place, index))
                    for index, row in enumerate(rows, start=1)
                )
                return
            row = archives.parse_json(line, place, number)
            yield number, _checked_object(row, place, number)


def _columns_rows(tree, name, named_classes):
    shards = _SHARD.fullmatch(name)
    # A file that was given by its name is read alone.
    if tree.is_file or not shards:
        yield from _file_rows(tree, name, named_classes)
        return
    stem, _, count, digest, ending = shards.groups()
    found = {number: [] for number in range(int(count))}
    for other in tree.matching(f"{stem}-*-of-{count}*{ending}"):
        match = _SHARD.fullmatch(other)
        is_one = match is not None and bool(match[4]) == bool(digest)
        if is_one and int(match[2]) in found:
            found[int(match[2])].append(other)
    for number, others in found.items():
        if len(others) != 1:
            shard = f"{stem}-{number:05d}-of-{count}{'-*' * bool(digest)}"
            problem = ": there are several" if others else " is not there, one"
            raise ValueError(
                f"{tree.place(shard + ending)}{problem} of the {int(count)} "
                "files of a table. Fetch the whole again."
            )
    names = [name for others in found.values() for name in others]
    yield from _rows_of_files(tree, names, named_classes)


def _file_rows(tree, name, named_classes):
    with tree.open(name) as file:
        yield from columnar.read_objects(file, tree.place(name), named_classes)


def _saved_rows(tree, name, named_classes):
    folder, place = posixpath.dirname(name), tree.place(name)
    if not tree.has(posixpath.join(folder, saved_datasets.INFO)):
        yield from _json_rows(tree, name)  # a table of this name
        return
    with archives.open_text(tree, name) as file:
        state = archives.parse_json(file.read(MOST_JSON_BYTES), place)
    files = saved_datasets.names_of_state(state, place)
    names = [posixpath.join(folder, file) for file in files]
    yield from _rows_of_files(tree, names, named_classes)


def _rows_of_files(tree, names, named_classes):
    """Rows of the files of one table, numbered from its first."""
    number = 0
    for name in names:
        for _, row in _file_rows(tree, name, named_classes):
            number += 1
            yield number, row


def _checked_object(row, place, number):
    if not isinstance(row, dict):
        raise ValueError(
            f"{place}, row {number}: not an object. Every line must be one "
            'like {"text": "...", "label": "..."}.'
        )
    return row


_FORMATS = {
    ".tsv": "tsv",
    ".txt": "tsv",
    ".csv": "csv",
    **dict.fromkeys(JSON_ENDINGS, "json"),
}
_ROWS = {
    "tsv": _tsv_rows,
    "json": _json_rows,
    "columns": _columns_rows,
    "saved": _saved_rows,
}
