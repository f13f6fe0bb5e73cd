"""Rows of TSV, CSV and JSON lines, and the texts in them.

A .tsv (or .txt) is split at tabs and nothing in it is quoted, as GLUE's are. A
.csv is separated by commas, and a text with a comma, quote or line break in it
is quoted. A .jsonl or .json has an object a line, or is one list of objects.

A "row" is the line of the file, from 1, where an example begins.
"""

import contextlib
import csv
import json
import math
import os
import posixpath
import warnings

from data_pipeline.tasks import archives
from data_pipeline.tasks import columns as table_columns
from data_pipeline.tasks import examples

_FIELD_CHARACTERS = 1 << 30


def read_examples(tree, name, task, split, columns=None):
    """The texts, or pairs of texts, of a file.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec whose reader is "table".
        split: str; in a test split labels may be missing.
        columns: as `table_columns.parse_columns` takes it.

    Returns:
        list of TextExample.

    Raises:
        ValueError: something is wrong with the file.
    """
    place, file = tree.place(name), posixpath.basename(name)
    label_of = _label_reader(task, split)
    found, left_out = [], 0
    rows = read_rows(tree, name, task, split, columns)
    for index, (number, values) in enumerate(rows):
        label = values["label"]
        if label in task.unlabelled:
            left_out += 1
            continue
        try:
            label = label_of(label)
        except ValueError as error:
            raise ValueError(f"{place}, row {number}: {error}") from None
        texts = [values["text"], values.get("text_pair")]
        for written, meant in task.escapes:
            texts[0] = texts[0].replace(written, meant)
        found.append(
            examples.TextExample(
                values.get("id") or str(index),
                *texts,
                label,
                f"{file}, row {number}",
            )
        )
    if left_out:
        warnings.warn(
            f"{place}: {left_out} rows without a gold label left out",
            stacklevel=2,
        )
    if not found:
        raise ValueError(f"{place}: the file holds no examples.")
    return found


def read_ranking(tree, name, task, split, columns=None):
    """The pairs of a query and a document of a file.

    Queries without an id are numbered as they appear, documents by their row.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec whose reader is "ranking".
        split: str; in a test split the relevance may be missing.
        columns: as `table_columns.parse_columns` takes it.

    Returns:
        list of RankingExample.

    Raises:
        ValueError: something is wrong with the file, or two queries have the
            same id.
    """
    place, file = tree.place(name), posixpath.basename(name)
    is_test = split.startswith("test")
    found, queries, numbers, negative = [], {}, {}, 0
    rows = read_rows(tree, name, task, split, columns)
    for index, (number, values) in enumerate(rows):
        query, relevance = values["query"], values["relevance"]
        query_id = values["query_id"]
        if not query_id:
            query_id = str(numbers.setdefault(query, len(numbers)))
        if queries.setdefault(query_id, query) != query:
            raise ValueError(
                f"{place}, row {number}: the query {query_id} has another "
                f"text here than before ({queries[query_id]!r})."
            )
        if relevance or not is_test:
            try:
                relevance = parse_number(relevance)
            except ValueError as error:
                raise ValueError(f"{place}, row {number}: {error}") from None
            negative += relevance < 0
            relevance = max(0.0, relevance)
        found.append(
            examples.RankingExample(
                query_id,
                query,
                values["document_id"] or str(index),
                values["document"],
                None if relevance in (None, "") else relevance,
                f"{file}, row {number}",
            )
        )
    if negative:
        # TREC marks spam with -2.
        warnings.warn(
            f"{place}: {negative} rows with a relevance below 0 read as 0",
            stacklevel=2,
        )
    if not found:
        raise ValueError(f"{place}: the file holds no examples.")
    return found


def _label_reader(task, split):
    """A function of what a row says (str or None) to the label."""
    is_test = split.startswith("test")
    known = frozenset(task.labels or ())

    def read_number(label):
        return None if is_test and not label else parse_number(label)

    def read_class(label):
        if label in known:
            return label
        label = label.strip() if label else label
        if not label:
            if is_test:
                return None
            raise ValueError("the label is empty.")
        if known and label not in known:
            raise ValueError(
                f"the label {label!r} is not one of the task {task.name}: "
                f"{', '.join(task.labels)}."
            )
        return label

    return read_number if task.kind == "regression" else read_class


def parse_number(label):
    """A finite float from a str.

    Raises:
        ValueError: it is none.
    """
    try:
        number = float(label or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the label {label!r} is not a finite number.")
    return number


def read_rows(tree, name, task, split, columns=None):
    """The values that the rows of a file have for the roles of a task.

    Args:
        tree, name, task, split, columns: as in `read_examples`.

    Yields:
        (row, values): int, and a dict of each role to a str, or None where
        the file has no such column.

    Raises:
        ValueError: a row is broken, too short or, in tables of your own, too
            long; a column is missing; the file is empty.
    """
    place = tree.place(name)
    rows = _ROWS[table_format(name, task)](tree, name)
    first = next(rows, None)
    if first is None:
        raise ValueError(f"{place}: the file is empty.")
    header = first[1]
    if isinstance(header, dict):
        # What one object leaves out, another may have.
        rows = [first, *rows]
        header = dict.fromkeys(key for _, row in rows for key in row)
    found = table_columns.Columns(header, task, split, columns, place)
    values_of = _values_reader(found, task)
    if not found.has_header:
        yield first[0], _named_row(values_of, first, place)
    incomplete = 0
    for row in rows:
        if row[1] == [""] and len(found.names) > 1:
            continue  # a blank line
        try:
            yield row[0], values_of(row[1])
        except (LookupError, ValueError):
            if not task.skips_incomplete:
                _named_row(values_of, row, place)
                raise
            incomplete += 1
    if incomplete:
        warnings.warn(
            f"{place}: {incomplete} rows with too few fields left out",
            stacklevel=2,
        )


def _named_row(values_of, row, place):
    number, cells = row
    try:
        return values_of(cells)
    except ValueError as error:
        raise ValueError(f"{place}, row {number}: {error}") from None
    except LookupError:
        there = (
            f"it has {', '.join(cells)}"
            if isinstance(cells, dict)
            else f"{len(cells)} fields"
        )
        raise ValueError(
            f"{place}, row {number}: a field is missing ({there})."
        ) from None


def _values_reader(found, task):
    """A function of a row to a dict of role to str or None."""
    getters = found.getters()
    absent = dict.fromkeys(role for role, get in getters.items() if not get)
    present = [(role, get) for role, get in getters.items() if get]
    used = [key for role, _ in present for key in found.keys[role]]
    maybe = {
        key
        for role in (*task.optional, *table_columns.LABEL_ROLES)
        for key in found.keys.get(role) or ()
    }
    # Published tables are read as everybody reads them.
    width = len(found.names) if task.folder is None else math.inf

    def read_list(row):
        if len(row) > width:
            raise ValueError(
                f"{len(row)} fields where the first row has {width}. A text "
                "with the separator in it must be quoted (.csv)."
            )
        return {**absent, **{role: get(row) for role, get in present}}

    def read_object(row):
        row = {
            key: _json_text(row.get(key) if key in maybe else row[key], key)
            for key in used
        }
        for key in used:
            if row[key] is None and key not in maybe:
                raise ValueError(f"{key!r} is null.")
        return {**absent, **{role: get(row) for role, get in present}}

    return read_object if found.is_json else read_list


def _json_text(value, key):
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    raise ValueError(f"{key!r} is neither a string nor a number.")


def table_format(name, task):
    """How a table is written: "tsv", "csv" or "json".

    Args:
        name: str, the file.
        task: TaskSpec.

    Raises:
        ValueError: the file's ending does not tell.
    """
    if task.table_format:
        return task.table_format
    stem, ending = os.path.splitext(name.lower())
    if ending in (".gz", ".bz2", ".xz"):
        ending = os.path.splitext(stem)[1]
    if ending not in _FORMATS:
        raise ValueError(
            f"{name}: what kind of table is this? Expected a file that ends in "
            f"{', '.join(_FORMATS)}."
        )
    return _FORMATS[ending]


def _tsv_rows(tree, name):
    with archives.open_text(tree, name, newline="\n") as file:
        for number, line in enumerate(file, start=1):
            yield number, line.rstrip("\r\n").split("\t")


def _csv_rows(tree, name):
    with (
        archives.open_text(tree, name) as file,
        _long_fields(),
    ):
        # Without `strict`, one stray quote swallows the rest of the file.
        reader = csv.reader(file, strict=True)
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


@contextlib.contextmanager
def _long_fields():
    # The limit is the process's own; texts may be longer than its 131,072.
    limit = csv.field_size_limit(_FIELD_CHARACTERS)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _json_rows(tree, name):
    place = tree.place(name)
    with archives.open_text(tree, name) as file:
        for number, line in enumerate(file, start=1):
            if not line.strip():
                continue
            if line.lstrip().startswith("["):
                rows = archives.parse_json(line + file.read(), place)
                yield from (
                    (index, _checked_object(row, place, index))
                    for index, row in enumerate(rows, start=1)
                )
                return
            row = archives.parse_json(line, place, number)
            yield number, _checked_object(row, place, number)


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
    ".jsonl": "json",
    ".json": "json",
}
_ROWS = {"tsv": _tsv_rows, "csv": _csv_rows, "json": _json_rows}
