"""Rows of Parquet, Arrow and Feather files, by pyarrow.

Rows are read some hundred at a time. Texts stay in their dictionaries until
their turn comes, so a file that repeats a long one takes no memory for it; and
the expanded size of a file is limited as it is for compressed text.

An .arrow file is of the format for files or for streams, as Hugging Face's
`datasets` writes it. Both are read from front to back.
"""

import contextlib
import os
import struct

from data_pipeline.base.limits import check_expansion
from data_pipeline.base.limits import in_a_line
from data_pipeline.text.arrow_io import BoundedFile
from data_pipeline.text.arrow_io import import_pyarrow
from data_pipeline.text.arrow_values import as_bytes
from data_pipeline.text.arrow_values import class_names
from data_pipeline.text.arrow_values import is_text
from data_pipeline.text.arrow_values import value_reader
from data_pipeline.text.files import TextError

ENDINGS = (".parquet", ".arrow", ".feather")

_ROWS_AT_ONCE = 256
_BUFFER_BYTES = 1 << 20
_MOST_BYTES = 1 << 28  # that the texts of nested columns take at once
# Bytes that each row adds to the expanded size of a file, besides its texts.
_ROW_BYTES = 16
_FILE_MAGIC, _FEATHER_1 = b"ARROW1\0\0", b"FEA1"
# Places in the tables of Arrow's Message.fbs.
_HEADER_TYPE, _HEADER = 6, 8
_RECORD_BATCH, _DICTIONARY_BATCH = 3, 2
_BATCH_OF_DICTIONARY, _BUFFERS, _COMPRESSION = 6, 8, 10


def is_columnar(path):
    """Whether a file is of these formats by its name, bool."""
    return os.path.splitext(path.lower())[1] in ENDINGS


def read_texts(file, path, field, progress=None):
    """Yield the texts of a column.

    Args:
        file: seekable binary file.
        path: str, for messages.
        field: str, the name of a column of strings; `a.b` is the field b of
            the column a, unless a column has that name.
        progress: function of the number of bytes that were read, or None.

    Yields:
        (row, value): int from 1, and bytes of UTF-8 that are not yet checked,
        or None of a row without a value.

    Raises:
        TextError: the file is damaged or expands to far more than text does,
            or has no such column.
        RuntimeError: pyarrow is not installed.
    """
    number = expanded = 0
    with _damage_named(path):
        source = BoundedFile(file, progress)
        for batch in _batches(source, path, field):
            column = _find_column(batch, field, path)
            for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
                for value in as_bytes(column.slice(begin, _ROWS_AT_ONCE)):
                    value = value.as_py()
                    number += 1
                    expanded += _ROW_BYTES + len(value or b"")
                    _check_expansion(path, source.size, expanded)
                    yield number, value


def read_objects(file, path, named_classes=False):
    """Yield all rows as the lines of JSON that have the same values.

    Args:
        file: seekable binary file.
        path: str, for messages.
        named_classes: bool, whether the classes of a column have the names
            that Hugging Face's `datasets` has written beside their numbers.

    Yields:
        (row, values): int from 1, and a dict of the name of a column to a
        str, number, bool or None, or a list of these; or
        `arrow_values.NO_TEXT`. Dates are as Python writes them.

    Raises:
        TextError, RuntimeError: as from `read_texts`.
    """
    number = expanded = 0
    with _damage_named(path):
        source = BoundedFile(file)
        for batch in _batches(source, path):
            names = batch.schema.names
            if len(set(names)) < len(names):
                raise TextError(f"{path}: two columns have the same name.")
            classes = class_names(batch.schema) if named_classes else {}
            readers = [
                value_reader(column, classes.get(name))
                for name, column in zip(names, batch.columns, strict=True)
            ]
            for index in range(batch.num_rows):
                number += 1
                try:
                    values = [read(index) for read in readers]
                except UnicodeDecodeError as error:
                    raise TextError(
                        f"{path}, row {number}: a text is not UTF-8 ({error})."
                    ) from None
                expanded += _ROW_BYTES + sum(map(_expanded, values))
                _check_expansion(path, source.size, expanded)
                yield number, dict(zip(names, values, strict=True))


def _expanded(value):
    """Bytes of a value beyond those of its row, int."""
    if isinstance(value, list):
        return sum(_ROW_BYTES + _expanded(x) for x in value)
    return len(value) if isinstance(value, str) else 0


@contextlib.contextmanager
def _damage_named(path):
    """Context in which errors of pyarrow become TextErrors of a line."""
    pyarrow = import_pyarrow(path)
    try:
        yield
    except TextError:
        raise
    except (pyarrow.ArrowException, OSError, ValueError) as error:
        if getattr(error, "errno", None) is not None:  # of the disk
            raise
        raise TextError(
            f"{path}: the file is damaged, cut short or of another kind "
            f"({in_a_line(error)}). Fetch it again."
        ) from None


def _check_expansion(path, stored_bytes, expanded_bytes):
    try:
        check_expansion(path, stored_bytes, expanded_bytes)
    except ValueError as error:
        raise TextError(str(error)) from None


def _batches(source, path, field=None):
    """Record batches of whole arrays, of all columns or of a field's alone."""
    is_parquet = path.lower().endswith(".parquet")
    read = _parquet_batches if is_parquet else _arrow_batches
    for batch in read(source, path, field):
        batch.validate()
        yield batch


def _parquet_batches(source, path, field):
    import pyarrow
    from pyarrow import parquet
    from pyarrow import types

    file = pyarrow.PythonFile(source, mode="r")
    metadata = parquet.read_metadata(file)
    schema = metadata.schema.to_arrow_schema()
    if field is not None:
        _find_column(schema.empty_table(), field, path)
    flat = [x.name for x in schema if not types.is_nested(x.type)]
    columns = flat if field is None else [field]
    is_text, stored, expanded = set(), 0, [0]
    for group in map(metadata.row_group, range(metadata.num_row_groups)):
        for column in map(group.column, range(group.num_columns)):
            if column.path_in_schema in columns:
                stored += column.total_compressed_size
                expanded.append(column.total_uncompressed_size)
                if column.physical_type == "BYTE_ARRAY":
                    is_text.add(column.path_in_schema)
    _check_expansion(path, min(stored, source.size), sum(expanded))
    rows = _ROWS_AT_ONCE
    if field is not None and field not in flat:
        # Each row has its own copy of a text, which may be as long as all.
        rows = max(1, min(rows, _MOST_BYTES // max(1, *expanded)))
    table = parquet.ParquetFile(
        file,
        metadata=metadata,
        # Without nested columns, for which pyarrow cannot do this.
        read_dictionary=sorted(is_text & set(flat)),
        buffer_size=_BUFFER_BYTES,
        pre_buffer=False,
    )
    for batch in table.iter_batches(
        batch_size=rows, columns=columns, use_threads=False
    ):
        if field is None:  # the nested columns, by their names alone
            for other in schema:
                if types.is_nested(other.type):
                    empty = pyarrow.nulls(batch.num_rows, pyarrow.struct([]))
                    batch = batch.append_column(other.name, empty)
        yield batch


def _arrow_batches(source, path, field):
    from pyarrow import PythonFile
    from pyarrow import ipc

    magic = source.read(len(_FILE_MAGIC))
    if magic.startswith(_FEATHER_1):
        raise TextError(
            f"{path}: a Feather file of version 1, which is not supported. "
            "Write it again by `pyarrow.feather.write_feather`."
        )
    if magic == _FILE_MAGIC:
        source.seek(-6, os.SEEK_END)
        if source.read(6) != _FILE_MAGIC[:6]:
            raise TextError(
                f"{path}: the file is cut short, its end is not that of an "
                "Arrow file. Fetch it again."
            )
    source.seek(len(_FILE_MAGIC) if magic == _FILE_MAGIC else 0)
    messages = _CheckedMessages(
        ipc.MessageReader.open_stream(PythonFile(source, mode="r")), path
    )
    with ipc.open_stream(PythonFile(messages, mode="r")) as reader:
        if field is not None:
            _find_column(reader.schema.empty_table(), field, path)
        yield from reader


class _CheckedMessages:
    """The messages of a stream as a file, each looked at before it is given."""

    closed = False

    def __init__(self, messages, path):
        self._messages = messages
        self._path = path
        self._left = memoryview(b"")

    def read(self, size):
        parts = []
        while size > 0:
            if not self._left:
                message = next(self._messages, None)
                if message is None:
                    break
                try:
                    expanded = _expanded_bytes(message)
                except (LookupError, TypeError, struct.error) as error:
                    raise ValueError(f"not a message: {error}") from None
                stored = message.body.size if message.body else 0
                _check_expansion(self._path, stored, expanded)
                self._left = memoryview(message.serialize())
            parts.append(self._left[:size])
            self._left = self._left[size:]
            size -= len(parts[-1])
        return b"".join(parts)

    def close(self):
        self.closed = True


def _expanded_bytes(message):
    """Bytes of the body of a message of Arrow once it is decompressed."""
    from flatbuffers.table import Table

    content = message.metadata.to_pybytes()
    root = Table(content, struct.unpack_from("<I", content)[0])

    def below(table, slot):
        offset = table.Offset(slot)
        return Table(content, table.Indirect(table.Pos + offset))

    kind = content[root.Pos + root.Offset(_HEADER_TYPE)]
    if kind not in (_RECORD_BATCH, _DICTIONARY_BATCH):
        return 0
    batch = below(root, _HEADER)
    if kind == _DICTIONARY_BATCH:
        batch = below(batch, _BATCH_OF_DICTIONARY)
    if not batch.Offset(_COMPRESSION) or not batch.Offset(_BUFFERS):
        return 0
    begin = batch.Vector(batch.Offset(_BUFFERS))
    total, body = 0, memoryview(message.body)
    for number in range(batch.VectorLen(batch.Offset(_BUFFERS))):
        offset, length = struct.unpack_from("<qq", content, begin + 16 * number)
        if length:
            # In front of each: its length, or -1 where it was left as it is.
            total += max(0, *struct.unpack_from("<q", body, offset))
    return total


def _find_column(batch, field, path):
    """The array of a field; TextError where there is none of texts."""
    from pyarrow import compute

    names = batch.schema.names
    name, _, rest = field.partition(".")
    if field in names:
        name, rest = field, ""
    column = None
    if names.count(name) == 1:
        column = batch.column(names.index(name))
    if rest and column is not None:
        try:
            column = compute.struct_field(column, rest.split("."))
        except (ValueError, NotImplementedError, LookupError, TypeError):
            column = None
    if column is None:
        raise TextError(
            f"{path}: there is no column {field!r} of texts. Columns: "
            f"{', '.join(names)[:500]}. Name yours by `text_field` "
            "(--text-field)."
        )
    if not is_text(column.type):
        raise TextError(
            f"{path}: the column {field!r} holds {str(column.type)[:80]}, not "
            f"texts. Columns: {', '.join(names)[:500]}. Name the one of the "
            "texts by `text_field` (--text-field)."
        )
    return column
