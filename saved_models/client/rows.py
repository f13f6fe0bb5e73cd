"""Readers of rows from files, checks of rows, and requests for many rows.

A row is a dict from the input names of a signature to values. A value is a
text, a list of texts, or numbers.
"""

import codecs
import itertools
import re

import numpy as np

from data_pipeline.base.files import as_path
from data_pipeline.base.files import parse_json
from data_pipeline.base.limits import shown
from data_pipeline.tasks import reading
from data_pipeline.tasks.archives import is_archive
from data_pipeline.tasks.table import is_table
from saved_models.client.client import input_array
from saved_models.client.client import inputs_of
from saved_models.client.errors import InvalidRequest


def read_lines_or_table(file, columns=None):
    """Read the texts in a file: its lines, or a column of a table.

    Args:
        file: str, path of a text file or of a table. A text file is in UTF-8
            and has one text per line. A table is in .csv, .tsv, .jsonl or
            another format of `finetune`, and may be in an archive.
        columns: str, names of columns such as "text=review", or None. If the
            column of the texts is not given, and no column has a usual name, a
            column is guessed.

    Returns:
        (texts, guessed): list of str, and a dict from role, such as "text", to
        the name of the guessed column.

    Raises:
        ValueError: if the file is broken, or `columns` do not fit the file.
        OSError: if the file cannot be read.
    """
    if is_table(str(file)) or is_archive(as_path(file)):
        return reading.read_texts(file, columns)
    if columns:
        raise ValueError(
            "`--columns` needs a table, such as .csv, .tsv or .jsonl. "
            f"Received: --file {file}."
        )
    return read_texts(file), {}


def read_texts(file):
    """Read the lines of a file, including blank lines.

    Args:
        file: str or path of texts in UTF-8, one per line.

    Returns:
        list of str.

    Raises:
        ValueError: if the file is not UTF-8.
        OSError: if the file cannot be read.
    """
    # `splitlines` would also split at characters such as U+2028, which texts
    # may contain.
    try:
        lines = re.split("\r\n|\n|\r", _content(file).decode())
    except UnicodeDecodeError as error:
        raise ValueError(
            f"{file} is not UTF-8 at byte {error.start}; convert it first."
        ) from error
    return lines if lines[-1] else lines[:-1]


def read_json_lines(file):
    """Read the JSON objects in a file, one per line.

    Args:
        file: str or path of JSON lines in UTF-8.

    Returns:
        (rows, places): list of dict, and list of str, the file and line of each
        row. The row of a blank line is None. Blank lines at the end of the file
        have no row.

    Raises:
        ValueError: if a line is not a JSON object; the message names the line.
        OSError: if the file cannot be read.
    """
    rows, places = [], []
    content = _content(file).rstrip()
    if not content:
        return rows, places
    # `splitlines` would also split at characters such as U+2028, which JSON may
    # contain.
    for number, line in enumerate(content.split(b"\n"), start=1):
        places.append(f"{file}, line {number}")
        if not line.strip():
            rows.append(None)
            continue
        try:
            rows.append(parse_json(line.decode()))
        except (ValueError, RecursionError) as error:
            raise ValueError(
                f"{places[-1]}: this is not JSON: {error}"
            ) from error
        if not isinstance(rows[-1], dict):
            raise ValueError(
                f"{places[-1]}: a line must be an object, "
                f'{{"name": value, ...}}. Received: {shown(rows[-1])}.'
            )
    return rows, places


def _content(file):
    """Read the bytes of a file, without a byte order mark."""
    return as_path(file).read_bytes().removeprefix(codecs.BOM_UTF8)


def check_rows(rows, places, signatures, signature):
    """Refuse rows that do not fit a signature.

    Args:
        rows: list of dict, with None for a blank line.
        places: list of str, the file and line of each row.
        signatures: dict, the result of `Client.signatures`.
        signature: str.

    Raises:
        ValueError: if the signature does not exist, or a row does not have
            exactly the signature's inputs, or a value has the wrong type or
            shape. The message about a row begins with the row's place.
    """
    takes = inputs_of(signatures, signature)
    for row, place in zip(rows, places, strict=True):
        if row is None:
            continue
        try:
            _check_names(row, takes, signatures, signature)
            for name, (dtype, sizes) in takes.items():
                array = input_array(name, row[name], dtype, len(sizes) - 1)
                _check_sizes(name, array.shape, sizes[1:])
        except ValueError as error:
            raise ValueError(f"{place}: {error}") from error


def _check_names(row, takes, signatures, signature):
    wrong = [f"lacks `{name}`" for name in takes if name not in row]
    wrong += [f"has an unknown `{name}`" for name in row if name not in takes]
    if not wrong:
        return
    fitting = [
        name for name in signatures if set(signatures[name][0]) == {*row}
    ]
    hint = f" The signature {fitting[0]!r} takes these." if fitting else ""
    raise ValueError(
        f"it {' and '.join(wrong)}; the signature {signature!r} takes "
        f"{', '.join(takes)}.{hint}"
    )


def _check_sizes(name, shape, sizes):
    if any(
        fixed not in (-1, size)
        for size, fixed in zip(shape, sizes, strict=True)
    ):
        raise ValueError(
            f"`{name}` must have the sizes {list(sizes)}, -1 where any. "
            f"Received: {list(shape)}."
        )


def ask_rows(export, rows, signature, batch_size=32, places=None):
    """Compute answers to all rows, in batches of adjacent rows of equal shapes.

    Args:
        export: Predictor or Client.
        rows: list of dict of the signature's inputs, with None for a blank
            line.
        signature: str.
        batch_size: int, maximum number of rows per request. Default 32.
        places: list of str, the file and line of each row.

    Yields:
        one answer per row, in the order of the rows. An answer is a dict from
        output name to NumPy array or scalar; texts are str. For a blank line or
        a refused row, the answer is a ValueError that names the row's place.

    Raises:
        ValueError: if `batch_size` is below 1, or the export refuses all
            requests, for example because the authorization is missing.
    """
    if batch_size < 1:
        raise ValueError(
            f"`batch_size` must be at least 1. Received: {batch_size}."
        )
    places = places or [f"row {number}" for number in range(1, len(rows) + 1)]
    for batch in _batches(rows, batch_size):
        yield from _ask(
            *(export, [rows[number] for number in batch], signature),
            [places[number] for number in batch],
        )


def _ask(export, rows, signature, places):
    """Compute one dict or ValueError per row; all rows have equal shapes."""
    if rows[0] is None:
        return [ValueError(f"{place}: the line is blank.") for place in places]
    inputs = {name: [row[name] for row in rows] for name in rows[0]}
    try:
        answers = export.predict(inputs, signature)
    except InvalidRequest as error:
        if len(rows) == 1:
            return [ValueError(f"{places[0]}: {error}")]
        # At least one row caused the error, so try each row by itself.
        return [
            answer
            for row, place in zip(rows, places, strict=True)
            for answer in _ask(export, [row], signature, [place])
        ]
    return [
        {name: value[number] for name, value in answers.items()}
        for number in range(len(rows))
    ]


def _batches(rows, batch_size):
    """Yield a list of row numbers per batch; shapes in a batch are equal."""

    def shapes(number):
        row = rows[number]
        return row and {name: np.shape(value) for name, value in row.items()}

    for _, run in itertools.groupby(range(len(rows)), shapes):
        run = list(run)
        for begin in range(0, len(run), batch_size):
            yield run[begin : begin + batch_size]
