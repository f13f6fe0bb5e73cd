"""Reading of texts from lines of JSON and from rows of CSV and other tables."""

import collections
import contextlib
import csv
import json
import re

from data_pipeline.base.files import local_copy
from data_pipeline.base.files import sha256_of
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import WrappedFile
from data_pipeline.base.limits import in_a_line
from data_pipeline.text import columnar
from data_pipeline.text.compression import plain_name
from data_pipeline.text.files import TextError
from data_pipeline.text.files import count_bad_text
from data_pipeline.text.lines import read_lines

# Maximum number of characters of a row. A row is one document in memory and
# cannot be cut.
MOST_CHARACTERS = 1 << 26
# A quoted field. Quotes inside the field are doubled.
QUOTED = re.compile(r'"([^"]|"")+"')
_ABSENT = object()
_SEPARATOR_LINE = re.compile(
    r'("?)sep=(\\t|[^\w\s"]|\t)\1[,;\t]*', re.IGNORECASE
)
# Error messages of `csv` for a quote that is never closed: the field then
# extends to the end of the file, or to the maximum length of a field.
_NOT_CLOSED = ("unexpected end of data", "field larger than")
# Maximum number of lines to read again, which takes some seconds.
_MOST_READ_AGAIN = 10_000_000


def read_json_lines(path, encoding, on_bad_text, field, log=None):
    """Read the texts of a file with one JSON object per line.

    Lines with null or blank text are skipped and counted in `empty_rows` of the
    log.

    Args:
        path: str.
        encoding: str from `lines.checked_encoding`.
        on_bad_text: one of `lines.BAD_TEXT`.
        field: str, name of the field with the text in each object. `a.b` is the
            field with this name if it exists, else the field b of the object a.
        log: ReadLog, or None.

    Yields:
        str.

    Raises:
        TextError: a line is not valid, and `on_bad_text` is "refuse".
    """
    lines = read_lines(
        path, encoding, on_bad_text, log, MOST_CHARACTERS, is_cut=False
    )
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            text = _text_of(line, field)
        except ValueError as error:
            _leave_out(
                f"{path}:{number}: {error} Every line must be one object "
                f'like {{"{field}": "..."}}; `on_bad_text` (--on-bad-text '
                f"skip) leaves out others.{_way_to_lines(line)}",
                on_bad_text,
                log,
            )
            continue
        if _has_text(text, log):
            yield text


def _way_to_lines(line):
    """Advice for JSON that does not have one object per line, str."""
    if line.lstrip().startswith("["):
        return " Make lines of an array's objects by: jq -c '.[]' FILE"
    if line.strip() == "{":
        return " Make a line of each object by: jq -c . FILE"
    return ""


def _text_of(line, field):
    """Read the text of a line of JSON.

    If the field is null, the text is "". If the field is missing or is not a
    string, ValueError is raised.
    """
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"the line is not valid JSON ({error.msg} at column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:
        # Raised for a number with too many digits or for deeply nested lists.
        raise ValueError(
            f"the line is not JSON that can be read ({error})."
        ) from None
    if isinstance(value, list):
        raise ValueError("the JSON is an array.")
    names = [field]
    if isinstance(value, dict) and field not in value:
        names = field.split(".")
    for name in names:
        is_there = isinstance(value, dict) and name in value
        value = value[name] if is_there else _ABSENT
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ValueError(
            f'the JSON has no string field "{field}". Name yours by '
            "`text_field` (--text-field)."
        )
    return value


def separator_line(line):
    """Read the separator from a line such as `sep=;` at the top of a CSV.

    Spreadsheets write this line, sometimes in quotes or with separators after
    it.

    Args:
        line: str.

    Returns:
        str of one character, or None if the line has another form.
    """
    match = _SEPARATOR_LINE.fullmatch(line.strip(" \r\n"))
    if match is None:
        return None
    return "\t" if match[2] == "\\t" else match[2]


def read_csv(path, encoding, on_bad_text, field, log=None):
    """Read the texts of the rows of a CSV file.

    The first row is the header with the names of the columns. The header also
    determines the separator: a comma, a semicolon or a tab. A line such as
    `sep=;` before the header has precedence. A .tsv file has tabs, and its
    quotes are part of the text. Rows without a text are skipped.

    The log counts rows without a text in `empty_rows`, repeated headers of
    joined files in `repeated_headers`, and quoted texts of a .tsv file in
    `quoted_texts`.

    Args:
        path: str.
        encoding: str from `lines.checked_encoding`.
        on_bad_text: one of `lines.BAD_TEXT`.
        field: str, name of the column with the texts.
        log: ReadLog, or None.

    Yields:
        str.

    Raises:
        TextError: the column is missing. If `on_bad_text` is "refuse",
            TextError is also raised for a broken row, such as a row that ends
            before the column.
    """
    lines = read_lines(
        path, encoding, on_bad_text, log, MOST_CHARACTERS, is_cut=False
    )
    named = (x for x in enumerate(lines, start=1) if x[1].strip())
    begin, header = next(named, (1, None))
    separator = None if header is None else separator_line(header)
    if separator is not None:
        begin, header = next(named, (begin, None))
    if header is None:
        return
    lines = _LinesOfRows(lines, begin, path)
    with long_fields(MOST_CHARACTERS):
        rows, names, is_tsv = _csv_rows(path, header, lines, field, separator)
        place, width = names.index(field), len(names)
        while True:
            lines.begin_row()
            is_open = False
            try:
                row = next(rows, None)
                fault = _fault(row, place, width) if row else None
            except csv.Error as error:
                row, fault = None, str(error)
                is_open = fault.startswith(_NOT_CLOSED) or lines.ran_on()
            if fault:
                _leave_out(
                    f"{path}: the row {lines.of_row()} is broken ({fault}). A "
                    'quote inside a quoted text is written ""; `on_bad_text` '
                    "(--on-bad-text skip) leaves out such rows.",
                    on_bad_text,
                    log,
                )
                if is_open:  # the quote may include later rows
                    lines.read_again()
            elif row is None:
                return
            elif row == names:
                count_bad_text(log, "repeated_headers")
            elif row and _has_text(row[place], log):  # else a blank line
                if is_tsv and QUOTED.fullmatch(row[place]):
                    count_bad_text(log, "quoted_texts")
                yield row[place]


def _fault(row, place, width):
    """Describe a wrong number of fields in a row; None if there is no fault."""
    if len(row) > place and not any(row[width:]):
        return None
    return (
        f"its fields are {len(row)} and the columns {width}; in a .csv, a text "
        "with the separator in it must be quoted"
    )


class _LinesOfRows:
    """Lines for a CSV reader; the lines of a broken row can be read again.

    If a quote is never closed, the CSV reader reads all later rows as part of
    the quoted field. So the lines of these rows are read again.

    Args:
        lines: iterator of str, lines without line ends.
        number: int, number of the line before the first of `lines`.
        path: str, path of the file, for messages.
    """

    def __init__(self, lines, number, path):
        self._lines = lines
        self._path = path
        self._left = _MOST_READ_AGAIN
        self._number = number  # number of the last line read
        self._row = []  # lines of the current row
        self._again = collections.deque()

    def __iter__(self):
        return self

    def __next__(self):
        line = self._again.popleft() if self._again else next(self._lines)
        self._number += 1
        self._row.append(line)
        return line + "\n"

    def begin_row(self):
        """Begin a new row: forget the lines of the row before."""
        self._row.clear()

    def of_row(self):
        """Describe the place of the current row: its lines in the file, str."""
        begin = self._number - len(self._row) + 1
        if begin >= self._number:
            return f"in line {self._number}"
        return f"in lines {begin} to {self._number}"

    def ran_on(self):
        """Whether the row seems to end at an opening quote of a later row.

        After a quote that is never closed, the CSV reader takes the next quote
        as the closing quote. An opening quote is at the beginning of a line or
        follows a separator.
        """
        before = self._row[-1].partition('"')[0]
        return len(self._row) > 1 and before[-1:] in ("", ",", ";", "\t")

    def read_again(self):
        """Go back to the second line of the current row."""
        count = len(self._row) - 1
        self._left -= count
        if self._left < 0:  # many open quotes
            raise TextError(
                f"{self._path}: too many quotes are opened and never closed, "
                f"the last {self.of_row()}. Repair the file, or read it as "
                "text by `text_format` (--text-format running)."
            )
        self._again.extendleft(reversed(self._row[1:]))
        self._number -= count


def _csv_rows(path, header, lines, field, separator):
    """Parse the header of a CSV file and make the reader of its rows.

    Args:
        path: str.
        header: str, the line with the names of the columns.
        lines: iterator of str, the lines after the header.
        field: str, name of the column with the texts.
        separator: str, or None to find the separator in the header.

    Returns:
        rows: the reader of rows.
        names: list of str, the names of the columns.
        is_tsv: bool, whether quotes are part of the text.
    """
    is_tsv = separator is None and plain_name(path.lower()).endswith(".tsv")
    quoting = csv.QUOTE_NONE if is_tsv else csv.QUOTE_MINIMAL
    style = {"quoting": quoting, "skipinitialspace": not is_tsv, "strict": True}
    names = []
    for one in separator or ("\t" if is_tsv else ",;\t"):
        try:
            found = next(csv.reader([header], delimiter=one, **style))
        except csv.Error:
            continue
        names = max(names, found, key=len)
        if found.count(field) == 1:
            rows = csv.reader(lines, delimiter=one, **style)
            return rows, found, is_tsv
    if names.count(field) > 1:
        raise TextError(
            f"{path}: {names.count(field)} columns are named {field!r}. Give "
            "each a name of its own."
        )
    raise TextError(
        f"{path}: there is no column {field!r} of texts. Columns: "
        f"{in_a_line(', '.join(names)[:500])}. Name yours by `text_field` "
        "(--text-field), or read the file as text by `text_format` "
        "(--text-format running)."
    )


@contextlib.contextmanager
def long_fields(characters):
    """Context manager that changes `csv`'s limit of characters per field."""
    limit = csv.field_size_limit(characters)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def read_table(path, on_bad_text, field, log=None):
    """Read the texts of the rows of a Parquet, Arrow or Feather file.

    Rows without a text are skipped and counted in `empty_rows` of the log.

    Args:
        path: str, path of a file that `columnar` can read.
        on_bad_text: one of `lines.BAD_TEXT`.
        field: str, see `columnar.read_texts`.
        log: ReadLog, or None.

    Yields:
        str.

    Raises:
        TextError: the file is damaged or lacks the column. If `on_bad_text` is
            "refuse", TextError is also raised for a row that is not text.
        RuntimeError: pyarrow is not installed.
    """
    with local_copy(path) as local, local.open("rb") as raw:
        file = _ReportedFile(raw, log, size_of(local))
        for number, value in columnar.read_texts(file, path, field):
            try:
                text = _decoded(value, on_bad_text, log)
            except ValueError as error:
                _leave_out(
                    f"{path}, row {number}: {error} `on_bad_text` "
                    "(--on-bad-text skip) leaves out such rows.",
                    on_bad_text,
                    log,
                )
                continue
            if _has_text(text, log):
                yield text
        if log is not None:
            file.report_rest()
            log.digests[path] = sha256_of(local)


def _leave_out(message, on_bad_text, log):
    """Skip and count a broken line or row, or raise TextError."""
    if on_bad_text == "refuse":
        raise TextError(message) from None
    count_bad_text(log, "skipped_lines")


def _has_text(text, log):
    """Whether a row has a text, bool. A row without a text is counted."""
    if text.strip():
        return True
    count_bad_text(log, "empty_rows")
    return False


class _ReportedFile(WrappedFile):
    """File that reports the number of bytes read, at most `size` in total."""

    def __init__(self, file, log, size):
        super().__init__(file)
        self._progress = (lambda size: None) if log is None else log.progress
        self._left = size

    def readinto(self, buffer):
        size = self._file.readinto(buffer)
        self._report(size)
        return size

    def report_rest(self):
        self._report(self._left)

    def _report(self, size):
        size = min(size, self._left)
        self._left -= size
        self._progress(size)


def _decoded(value, on_bad_text, log):
    """Decode the text of a row.

    If the value is None, the text is "". If the value is not text, ValueError
    is raised.
    """
    if value is None:
        return ""
    try:
        text = value.decode()
    except UnicodeDecodeError as error:
        if on_bad_text != "replace":
            raise ValueError(
                f"invalid utf-8 at byte {error.start} of the text "
                f"(0x{value[error.start]:02x})."
            ) from None
        text = value.decode(errors="replace")
        count_bad_text(log, "replaced_characters", _replaced(value))
    if len(text) > MOST_CHARACTERS:
        raise ValueError(
            f"the text has more than {MOST_CHARACTERS:,} characters, and is "
            "one document. Make several rows of it;"
        )
    # "\r" also ends a line, as in all other text.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _replaced(value):
    """Count the U+FFFD that decoding puts in place of invalid bytes."""
    original = value.decode(errors="ignore").count("\ufffd")
    return value.decode(errors="replace").count("\ufffd") - original
