"""Examples in tables, whose rows `formats` reads."""

import itertools
import json
import math
import posixpath
import re
import warnings

from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.readers.columns import LABEL_ROLES
from data_pipeline.tasks.readers.columns import Columns
from data_pipeline.tasks.readers.formats import FIRST_ROWS
from data_pipeline.tasks.readers.formats import rows_of
from data_pipeline.tasks.readers.formats import table_format
from data_pipeline.tasks.readers.label_lists import flag_reader
from data_pipeline.tasks.readers.label_lists import with_label_lists

# As Python and pandas write one.
_LIST_AS_TEXT = re.compile(
    r"""\[\s*((['"]).*\2|[\d.]+(\s*,\s*[\d.]+)*)?\s*\]""", re.DOTALL
)


def read_examples(tree, name, task, split, columns=None):
    """Read the texts or pairs of texts of a file.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec whose reader is "table".
        split: str; in a test split labels may be missing.
        columns: as in `data_pipeline.tasks.readers.columns.parse_columns`.

    Returns:
        list of TextExample.

    Raises:
        ValueError: a row or a label is wrong, or there are no examples.
    """
    place, file = tree.place(name), posixpath.basename(name)
    label_of = _label_reader(task, split)
    examples, left_out = [], 0
    rows = read_rows(tree, name, task, split, columns)
    for index, (number, values) in enumerate(rows):
        label = values["label"]
        if isinstance(label, str) and label in task.unlabelled:
            left_out += 1
            continue
        try:
            label = label_of(label)
        except ValueError as error:
            hint = ""
            if number == 1 and table_format(name, task) in ("tsv", "csv"):
                hint = " If this row names the columns, remove it."
            raise ValueError(f"{place}, row {number}: {error}{hint}") from None
        texts = [values["text"], values.get("text_pair")]
        for written, meant in task.escapes:
            texts[0] = texts[0].replace(written, meant)
        examples.append(
            TextExample(
                values.get("id") or str(index),
                *texts,
                label,
                f"{file}, row {number}",
            )
        )
    if task.kind == "multi_label":
        examples = with_label_lists(
            examples, place, task.labels, split == "train"
        )
    if left_out:
        warnings.warn(
            f"{place}: {left_out} rows without a gold label left out",
            stacklevel=2,
        )
    if not examples:
        raise ValueError(f"{place}: the file holds no examples.")
    return examples


def read_ranking(tree, name, task, split, columns=None):
    """Read the pairs of a query and a document of a file.

    Without ids, queries are numbered in order of appearance, documents by row.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec whose reader is "ranking".
        split: str; in a test split the relevance may be missing.
        columns: as in `data_pipeline.tasks.readers.columns.parse_columns`.

    Returns:
        list of RankingExample.

    Raises:
        ValueError: a row or a relevance is wrong, there are no examples, or
            two queries have the same id.
    """
    place, file = tree.place(name), posixpath.basename(name)
    is_test = split.startswith("test")
    examples, queries, numbers, negative = [], {}, {}, 0
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
        examples.append(
            RankingExample(
                query_id,
                query,
                values["document_id"] or str(index),
                values["document"],
                None if relevance in (None, "") else relevance,
                f"{file}, row {number}",
            )
        )
    if negative:
        # In TREC, -2 is spam.
        warnings.warn(
            f"{place}: {negative} rows with a relevance below 0 read as 0",
            stacklevel=2,
        )
    if not examples:
        raise ValueError(f"{place}: the file holds no examples.")
    return examples


def _label_reader(task, split):
    """Function from the text of a label (str or None) to the label."""
    is_test = split.startswith("test")
    known = frozenset(task.labels or ())

    def read_number(label):
        return None if is_test and not label else parse_number(label)

    def read_class(label):
        if label in known:
            return label
        # A lone surrogate, which no file and no picture can hold, as "?".
        label = label.encode(errors="replace").decode() if label else label
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

    def read_classes(label):
        if is_test and label in (None, ""):  # an empty list is no class
            return None
        if isinstance(label, str) and _LIST_AS_TEXT.fullmatch(label.strip()):
            raise ValueError(
                f"the label {label[:80]!r} is a list written as text. Write "
                "classes as one|two, or the file as JSON lines."
            )
        return label or ""

    readers = {"regression": read_number, "multi_label": read_classes}
    return readers.get(task.kind, read_class)


def parse_number(label):
    """Parse a finite number.

    Raises:
        ValueError: `label` is not a finite number.
    """
    try:
        number = float(label or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the label {label!r} is not a finite number.")
    return number


def read_rows(tree, name, task, split, columns=None):
    """Yield the values of each row for the roles of a task.

    Args:
        tree, name, task, split, columns: as in `read_examples`.

    Yields:
        (row, values): int, and a dict of each role to a str, or None if the
        file lacks the column.

    Raises:
        ValueError: a row is broken, too short or, in tables of your own, too
            long; a column is missing; or the file is empty.
    """
    place = tree.place(name)
    rows = rows_of(tree, name, task)
    first = next((row for row in rows if not _is_blank(row[1])), None)
    if first is None:
        raise ValueError(f"{place}: the file is empty.")
    header = first[1]
    if isinstance(header, dict):
        # An object may lack keys that others have.
        rows = [first, *rows]
        header = dict.fromkeys(key for _, row in rows for key in row)
    columns = Columns(header, task, split, columns, place)
    values_of = _values_reader(columns, task)
    if not columns.has_header:
        head = list(itertools.islice(rows, FIRST_ROWS))
        rows = itertools.chain(head, rows)
        columns.warn_of_names([x for _, x in (first, *head)])
        yield first[0], _named_row(values_of, first, place)
    incomplete = 0
    for row in rows:
        if len(columns.names) > 1 and _is_blank(row[1]):
            continue
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


def _is_blank(cells):
    """Whether the cells of a row are those of a blank line, bool."""
    is_one = isinstance(cells, list) and len(cells) == 1
    return is_one and not cells[0].strip()


def _named_row(values_of, row, place):
    number, cells = row
    try:
        return values_of(cells)
    except ValueError as error:
        raise ValueError(f"{place}, row {number}: {error}") from None
    except LookupError:
        fields = (
            f"it has {', '.join(cells)}"
            if isinstance(cells, dict)
            else f"{len(cells)} fields"
        )
        raise ValueError(
            f"{place}, row {number}: a field is missing ({fields})."
        ) from None


def _values_reader(columns, task):
    """Function from a row to a dict of role to str or None."""
    getters = columns.getters()
    absent = dict.fromkeys(role for role, get in getters.items() if not get)
    present = [(role, get) for role, get in getters.items() if get]
    is_several = task.kind == "multi_label"
    if is_several and len(columns.keys["label"] or ()) > 1:
        present = [x for x in present if x[0] != "label"]
        present.append(("label", flag_reader(columns)))
    used = [key for role, _ in present for key in columns.keys[role]]
    optional = {
        key
        for role in (*task.optional, *LABEL_ROLES)
        for key in columns.keys.get(role) or ()
    }
    # Rows of published tables may be longer; further fields are ignored.
    width = len(columns.names) if task.folder is None else math.inf

    def read_list(row):
        if len(row) > width:
            raise ValueError(
                f"{len(row)} fields where the first row has {width}. A text "
                "with the separator in it must be quoted (.csv)."
            )
        return {**absent, **{role: get(row) for role, get in present}}

    def read_object(row):
        row = {
            key: _json_text(
                row.get(key) if key in optional else row[key],
                key,
                is_several and key in (columns.keys["label"] or ()),
            )
            for key in used
        }
        for role, _ in present:
            keys = columns.keys[role]
            # Of joined columns some may be empty.
            if not optional.issuperset(keys) and not any(
                row[key] is not None for key in keys
            ):
                raise ValueError(f"{keys[0]!r} is null.")
        return {**absent, **{role: get(row) for role, get in present}}

    return read_object if columns.is_json else read_list


def _json_text(value, key, may_be_list=False):
    if may_be_list and isinstance(value, list):
        texts = (_json_text(x, key) for x in value)
        return [text for text in texts if text is not None]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None  # as pandas writes a missing value
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    advice = ""
    if may_be_list:
        advice = (
            " Lists of classes are read from JSON lines and Arrow files (also "
            "those of `save_to_disk`), not from Parquet."
        )
    raise ValueError(f"{key!r} is neither a string nor a number.{advice}")
