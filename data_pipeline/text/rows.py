"""Texts that are rows: lines of JSON, and rows of tables of columns."""

import json

from data_pipeline.text import columnar
from data_pipeline.text.files import TextError
from data_pipeline.text.files import count_bad_text
from data_pipeline.text.lines import read_lines
from xlnet_tf.files import local_copy
from xlnet_tf.files import sha256_of
from xlnet_tf.files import size_of

# A row is a document, which is held in memory and cannot be cut.
MOST_CHARACTERS = 1 << 26


def read_json_lines(path, encoding, on_bad_text, field, log=None):
    """Yield the text of each line of JSON that is not blank.

    Args:
        path: str.
        encoding: str of `lines.checked_encoding`.
        on_bad_text: one of `lines.BAD_TEXT`.
        field: str, the name of the text in the object of a line; `a.b` is the
            field b of the object a, unless a field has that name.
        log: ReadLog, or None.

    Yields:
        str.

    Raises:
        TextError: a line is broken, and `on_bad_text` is "refuse".
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
            if on_bad_text == "refuse":
                raise TextError(
                    f"{path}:{number}: {error} Every line must be one object "
                    f'like {{"{field}": "..."}}; `on_bad_text` (--on-bad-text '
                    "skip) leaves out others."
                ) from None
            count_bad_text(log, "skipped_lines")
            continue
        if text.strip():
            yield text


def _text_of(line, field):
    """The text of a line of JSON; ValueError without one."""
    try:
        value = json.loads(line)
    except json.JSONDecodeError as error:
        raise ValueError(
            f"the line is not valid JSON ({error.msg} at column {error.colno})."
        ) from None
    except (ValueError, RecursionError) as error:
        # A number of too many digits, or lists in lists without end.
        raise ValueError(
            f"the line is not JSON that can be read ({error})."
        ) from None
    names = [field]
    if isinstance(value, dict) and field not in value:
        names = field.split(".")
    for name in names:
        value = value.get(name) if isinstance(value, dict) else None
    if not isinstance(value, str):
        raise ValueError(f'the JSON has no string field "{field}".')
    return value


def read_table(path, on_bad_text, field, log=None):
    """Yield the text of each row of a table of columns that has one.

    Rows without a text are counted in `empty_rows` of the log.

    Args:
        path: str, of a file that `columnar` reads.
        on_bad_text: one of `lines.BAD_TEXT`.
        field: str, as in `columnar.read_texts`.
        log: ReadLog, or None.

    Yields:
        str.

    Raises:
        TextError: the file is damaged or has no such column; or a row is no
            text, and `on_bad_text` is "refuse".
        RuntimeError: pyarrow is not installed.
    """
    with local_copy(path) as local, local.open("rb") as file:
        progress = _Progress(log, size_of(local))
        rows = columnar.read_texts(file, path, field, progress.read)
        for number, value in rows:
            try:
                text = _decoded(value, on_bad_text, log)
            except ValueError as error:
                if on_bad_text == "refuse":
                    raise TextError(
                        f"{path}, row {number}: {error} `on_bad_text` "
                        "(--on-bad-text skip) leaves out such rows."
                    ) from None
                count_bad_text(log, "skipped_lines")
                continue
            if text.strip():
                yield text
            else:
                count_bad_text(log, "empty_rows")
        if log is not None:
            progress.end()
            log.digests[path] = sha256_of(local)


class _Progress:
    """Progress in bytes of a file, of which parts may be read again, or not."""

    def __init__(self, log, size):
        self._report = (lambda size: None) if log is None else log.progress
        self._left = size

    def read(self, size):
        size = min(size, self._left)
        self._left -= size
        self._report(size)

    def end(self):
        self.read(self._left)


def _decoded(value, on_bad_text, log):
    """The text of a row, "" without one; ValueError of what is no text."""
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
    # As all other text: "\r" ends a line, too.
    return text.replace("\r\n", "\n").replace("\r", "\n")


def _replaced(value):
    """Number of characters that replace bytes which are not text."""
    original = value.decode(errors="ignore").count("\ufffd")
    return value.decode(errors="replace").count("\ufffd") - original
