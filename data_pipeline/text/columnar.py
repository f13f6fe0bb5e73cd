"""Reading of the rows of Parquet, Arrow and Feather files.

pyarrow reads some hundred rows at a time. An .arrow file has Arrow's file
format, or Arrow's stream format, which Hugging Face's `datasets` writes.
"""

import contextlib
import itertools
import json
import os

from data_pipeline.base.limits import in_a_line
from data_pipeline.text.compression import import_pyarrow
from data_pipeline.text.files import TextError

ENDINGS = (".parquet", ".arrow", ".feather")
# Placeholder for a value that is not text, such as an object or bytes.
NO_TEXT = object()
# Placeholder for an unknown class, which is -1 in data sets of Hugging Face.
NO_CLASS = "null"

_ROWS_AT_ONCE = 256
_BUFFER_BYTES = 1 << 20


def is_columnar(path):
    """Whether a file name has a suffix of Parquet, Arrow or Feather, bool."""
    return os.path.splitext(path.lower())[1] in ENDINGS


def read_texts(file, path, field):
    """Yield the texts of a column with their row numbers.

    Args:
        file: seekable binary file.
        path: str, path of the file, for messages.
        field: str, name of a column of strings. `a.b` is the column with this
            name if it exists, else the field b of the column a.

    Yields:
        tuple of the row's number (int, from 1) and the row's text (bytes that
        may be invalid UTF-8, or None for a row without a value).

    Raises:
        TextError: the file is damaged or lacks the column.
        RuntimeError: pyarrow is not installed.
    """
    with _damage_named(path):
        number = 0
        for batch in _batches(file, path, field):
            for value in _checked(_find_column(batch, field, path)):
                number += 1
                yield number, value.as_py()


def read_objects(file, path, named_classes=False):
    """Yield each row as a dict, like the objects in a file of JSON lines.

    Args:
        file: seekable binary file.
        path: str, path of the file, for messages.
        named_classes: bool, whether to replace class numbers by the class names
            that Hugging Face's `datasets` stores in the file.

    Yields:
        dict of column names to values: a str, number, bool or None, or a list
        of these. A date is a str in Python's format. An invalid UTF-8 text
        stays bytes, and a value of any other type is `NO_TEXT`.

    Raises:
        TextError, RuntimeError: see `read_texts`.
    """
    with _damage_named(path):
        for batch in _batches(file, path):
            names = batch.schema.names
            if len(set(names)) < len(names):
                raise TextError(f"{path}: two columns have the same name.")
            classes = _class_names(batch.schema) if named_classes else {}
            checked = list(map(_checked, batch.columns))
            for begin in range(0, batch.num_rows, _ROWS_AT_ONCE):
                columns = [
                    _values(
                        column.slice(begin, _ROWS_AT_ONCE),
                        field.type,
                        classes.get(field.name),
                    )
                    for column, field in zip(checked, batch.schema, strict=True)
                ]
                for values in zip(*columns, strict=True):
                    yield dict(zip(names, values, strict=True))


@contextlib.contextmanager
def _damage_named(path):
    """Context manager that converts errors of pyarrow into TextErrors."""
    pyarrow = import_pyarrow(path)
    try:
        yield
    except TextError:
        raise
    except (
        pyarrow.ArrowException,
        OSError,
        ValueError,
        MemoryError,  # raised for a damaged size
        OverflowError,
    ) as error:
        if getattr(error, "errno", None) is not None:  # an error of the disk
            raise
        # A damaged file may have requested far too much memory.
        pyarrow.default_memory_pool().release_unused()
        raise TextError(
            f"{path}: the file is damaged, cut short or of another kind "
            f"({in_a_line(error)}). Fetch it again."
        ) from None


def _batches(file, path, field=None):
    """Yield batches of rows, with all columns or only the field's column."""
    from pyarrow import ipc
    from pyarrow import parquet

    if path.lower().endswith(".parquet"):
        table = parquet.ParquetFile(
            file, buffer_size=_BUFFER_BYTES, pre_buffer=False
        )
        schema = table.schema_arrow
        columns = None if field is None else [field]
        batches = table.iter_batches(
            _ROWS_AT_ONCE, columns=columns, use_threads=False
        )
    else:
        magic = file.read(6)
        file.seek(0)
        if magic.startswith(b"FEA1"):
            raise TextError(
                f"{path}: a Feather file of version 1, which is not supported. "
                "Write it again by `pyarrow.feather.write_feather`."
            )
        if magic == b"ARROW1":
            table = ipc.open_file(file)
            batches = map(table.get_batch, range(table.num_record_batches))
        else:
            batches = table = ipc.open_stream(file)
        schema = table.schema
    if field is not None:
        _find_column(schema.empty_table(), field, path)
    for batch in batches:
        batch.validate()
        yield batch


def _find_column(batch, field, path):
    """Find the array of a field's texts; raise TextError if there is none."""
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
    if _bytes_type(column.type) is None:
        raise TextError(
            f"{path}: the column {field!r} holds {str(column.type)[:80]}, not "
            f"texts. Columns: {', '.join(names)[:500]}. Name the one of the "
            "texts by `text_field` (--text-field)."
        )
    return column


def _bytes_type(kind):
    """Return the Arrow binary type for a text type, None for other types."""
    import pyarrow

    if pyarrow.types.is_dictionary(kind):
        kind = kind.value_type
    return {
        pyarrow.string(): pyarrow.binary(),
        pyarrow.large_string(): pyarrow.large_binary(),
        pyarrow.string_view(): pyarrow.binary_view(),
        pyarrow.null(): pyarrow.null(),
    }.get(kind)


def _checked(column):
    """Check every value of an array and convert texts to bytes."""
    import pyarrow

    bytes_type = _bytes_type(column.type)
    if bytes_type and pyarrow.types.is_dictionary(column.type):
        column = pyarrow.DictionaryArray.from_arrays(
            column.indices, _checked(column.dictionary)
        )
    elif bytes_type:
        column = column.cast(bytes_type)
    column.validate(full=True)
    return column


def _values(column, kind, classes=None):
    """Convert an array to a list of Python values, see `read_objects`.

    Args:
        column: pyarrow.Array from `_checked`.
        kind: pyarrow.DataType, type of the array before `_checked`.
        classes: list of str, the names that replace the column's integers
            (alone or inside lists), or None.
    """
    from pyarrow import compute
    from pyarrow import types

    if _bytes_type(kind):
        return list(map(_decoded, column.to_pylist()))
    if types.is_dictionary(kind):  # such as categories of pandas
        return _values(column.dictionary_decode(), kind.value_type, classes)
    if types.is_list(kind) or types.is_large_list(kind):
        lengths = compute.list_value_length(column).to_pylist()
        inner = _checked(column.flatten())
        values = iter(_values(inner, kind.value_type, classes))
        return [
            None if length is None else list(itertools.islice(values, length))
            for length in lengths
        ]
    if types.is_decimal(kind) or types.is_temporal(kind):
        values = column.to_pylist()
        return [None if value is None else str(value) for value in values]
    if types.is_integer(kind) and classes is not None:
        named = {**dict(enumerate(classes)), -1: NO_CLASS}
        return [named.get(number, number) for number in column.to_pylist()]
    is_number = types.is_integer(kind) or types.is_floating(kind)
    if is_number or types.is_boolean(kind):
        return column.to_pylist()
    return [NO_TEXT] * len(column)


def _decoded(value):
    """Decode UTF-8 bytes; keep other bytes and None."""
    try:
        return None if value is None else value.decode()
    except UnicodeDecodeError:
        return value


def _class_names(schema):
    """Read the class names that Hugging Face's `datasets` stores in a schema.

    Args:
        schema: pyarrow.Schema. Its metadata may contain {"info": {"features":
            {"label": {"_type": "ClassLabel", "names": [...]}}}}. If the column
            "label" has lists of classes, the value of "label" is
            {"feature": {"_type": "ClassLabel", "names": [...]}, ...}.

    Returns:
        dict of column names to lists of str, the class names.
    """
    try:
        stored = (schema.metadata or {}).get(b"huggingface", b"{}")
        features = json.loads(stored)["info"]["features"]
        classes = {
            column: feature.get("feature", feature)
            for column, feature in features.items()
        }
        return {
            column: list(map(str, feature["names"]))
            for column, feature in classes.items()
            if feature.get("_type") == "ClassLabel"
        }
    # Without valid metadata of `datasets`, the numbers stay.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}
