"""Values of the arrays of Arrow, which are checked before they are read."""

import json

from data_pipeline.base.limits import MOST_JSON_BYTES

# Stands for a value that is not text: an object, bytes.
NO_TEXT = object()


def is_text(kind):
    """Whether a type of Arrow holds texts, bool."""
    from pyarrow import types

    if types.is_dictionary(kind):
        kind = kind.value_type
    return (
        types.is_string(kind)
        or types.is_large_string(kind)
        or types.is_string_view(kind)
        or types.is_null(kind)
    )


def as_bytes(column):
    """An array of texts as one of bytes, of which every value can be read."""
    import pyarrow

    kind = column.type
    if pyarrow.types.is_dictionary(kind):
        column = pyarrow.DictionaryArray.from_arrays(
            column.indices, as_bytes(column.dictionary)
        )
    elif pyarrow.types.is_string(kind):
        column = column.cast(pyarrow.binary())
    elif pyarrow.types.is_large_string(kind):
        column = column.cast(pyarrow.large_binary())
    elif pyarrow.types.is_string_view(kind):
        column = column.cast(pyarrow.binary_view())
    column.validate(full=True)
    return column


def value_reader(column, classes=None):
    """Function from a row of a batch to its value.

    Args:
        column: pyarrow.Array.
        classes: list of str, names of the integers of the column or of its
            lists, or None.

    Returns:
        function of an int, which returns a str, a number, a bool, None, a
        list of these, or `NO_TEXT`.
    """
    from pyarrow import types

    if is_text(column.type):
        column = as_bytes(column)

        def read(index):
            value = column[index].as_py()
            return None if value is None else value.decode()

        return read
    kind = column.type
    if types.is_dictionary(kind):  # categories of pandas
        column.validate(full=True)
        return value_reader(column.dictionary_decode(), classes)
    if types.is_list(kind) or types.is_large_list(kind):
        return _list_reader(column, classes)
    is_number = types.is_integer(kind) or types.is_floating(kind)
    if classes is not None and types.is_integer(kind):
        return lambda index: _class_name(column[index].as_py(), classes)
    if is_number or types.is_boolean(kind):
        return lambda index: column[index].as_py()
    if types.is_decimal(kind) or types.is_temporal(kind):
        column.validate(full=True)
        return lambda index: _written(column[index].as_py())
    return lambda index: NO_TEXT


def _list_reader(column, classes):
    """Function from a row to a list of values; see `value_reader`."""
    column.validate(full=True)
    # Both are of the whole array that the column is a part of.
    offsets, read = column.offsets, value_reader(column.values, classes)

    def read_list(index):
        if not column[index].is_valid:
            return None
        begin, end = offsets[index].as_py(), offsets[index + 1].as_py()
        return [read(place) for place in range(begin, end)]

    return read_list


def class_names(schema):
    """Names of classes that `datasets` keeps beside their numbers.

    Args:
        schema: pyarrow.Schema, with {"info": {"features": {"label": {"_type":
            "ClassLabel", "names": [...]}}}} in its metadata, or this inside
            of a {"_type": "Sequence", "feature": ...}.

    Returns:
        dict of the name of a column to a list of str.
    """
    try:
        stored = (schema.metadata or {}).get(b"huggingface", b"{}")
        if len(stored) > MOST_JSON_BYTES:
            return {}
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
    # Only valid metadata of `datasets` names the classes; else numbers remain.
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return {}


def _class_name(value, classes):
    if value == -1:
        return None  # no class is known
    is_class = value is not None and 0 <= value < len(classes)
    return classes[value] if is_class else value


def _written(value):
    return None if value is None else str(value)
