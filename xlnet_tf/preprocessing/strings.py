"""Conversion of raw input to tensors of strings.

TensorFlow is imported when the first input is converted.
"""

import collections.abc
import itertools
import numbers

import numpy as np

from data_pipeline.base.limits import shown


def named_strings(x, required, optional=()):
    """Convert each value in a dict of raw input to a string tensor.

    Raises:
        TypeError: if `x` is not a dict, or a value does not consist of strings.
        ValueError: if keys are missing or unknown.
    """
    names = ", ".join([*required, *(f"{name} (optional)" for name in optional)])
    if not isinstance(x, dict):
        raise TypeError(
            f"`x` must be a dict of {names}. Received: {type(x).__name__}."
        )
    parts = {name: part for name, part in x.items() if part is not None}
    if not set(required) <= set(parts) <= {*required, *optional}:
        raise ValueError(
            f"`x` must have the parts {names}. Received: {', '.join(x)}."
        )
    return {
        name: strings(parts[name], name)
        for name in (*required, *optional)
        if name in parts
    }


def strings(value, name):
    """Make a string tensor, ragged or not, from lists, arrays or tensors."""
    import tensorflow as tf

    if isinstance(value, (tf.Tensor, tf.RaggedTensor)):
        tensor = value
    else:
        try:
            tensor = to_tensor(value)
        except (TypeError, ValueError) as error:
            raise TypeError(
                f"`{name}` must be strings. Received: {_wrong_of(value)}."
            ) from error
    if tensor.dtype != tf.string:
        # An empty list has no type, and counts as strings.
        kind = getattr(getattr(value, "dtype", None), "kind", "O")
        if tensor.shape == [0] and kind in "OTU":
            return tf.zeros([0], tf.string)
        raise TypeError(
            f"`{name}` must be strings. Received: {_wrong_of(value)}."
        )
    return tensor


def _wrong_of(value):
    """Describe the first value that is not text, for an error message."""
    values = _as_list(value)
    if isinstance(values, list):
        texts = (str, bytes, list, tuple, np.ndarray)
        for index, one in enumerate(values):
            if not isinstance(one, texts):
                return f"{shown(one, 40)}, example {index} from 0"
    return shown(value, 80)


def to_tensor(value):
    """Make a tensor from lists or arrays; ragged for lists of unequal length.

    Args:
        value: tensor, array, Series, or a sequence such as a list or a column
            of a Hugging Face data set. The elements of a sequence may also have
            any of these types.
    """
    import tensorflow as tf

    if isinstance(value, (tf.Tensor, tf.RaggedTensor)):
        return value
    value = _as_list(value)
    if isinstance(value, list):
        # The check for texts comes first, because `is_tensor` takes seconds for
        # a million texts.
        rows = [
            x if isinstance(x, (str, bytes)) or tf.is_tensor(x) else _as_list(x)
            for x in value
        ]
        value = [x.tolist() if isinstance(x, np.ndarray) else x for x in rows]
    try:
        return _of_lists(value)
    except ValueError:
        if not isinstance(value, list):
            raise
        return _of_lists(_without_surrogates(value))


def _of_lists(value):
    """Make a tensor from an array, or from lists of equal depth."""
    import tensorflow as tf

    if isinstance(value, list):
        rows = [row for row in value if isinstance(row, list)]
        if len({len(row) for row in rows}) > 1:
            return tf.ragged.constant(value)
    return tf.convert_to_tensor(value)


def _as_list(value):
    """Convert sequences, and arrays of objects or texts, to lists."""
    if hasattr(value, "__array__"):
        array = value.__array__()
        # "T" is the kind of NumPy's strings of variable length.
        return array.tolist() if array.dtype.kind in "OTU" else array
    is_text = isinstance(value, (str, bytes))
    if isinstance(value, collections.abc.Sequence) and not is_text:
        return list(value)
    return value


def _without_surrogates(value):
    """Replace lone surrogates, which UTF-8 cannot encode, by U+FFFD."""
    from data_pipeline.tokenization.cleaning import replace_surrogates

    if isinstance(value, list):
        return [_without_surrogates(x) for x in value]
    return replace_surrogates(value) if isinstance(value, str) else value


def of_frame(x):
    """Return the only column of a data frame; return other input unchanged.

    Raises:
        ValueError: if the data frame has several columns.
    """
    if not (hasattr(x, "columns") and hasattr(x, "__getitem__")):
        return x
    names = list(x.columns)
    if len(names) != 1:
        raise ValueError(
            "`x` must be one column of a data frame, such as "
            'df["text"], or a dict of columns for texts of several parts. '
            f"Received: the columns {', '.join(map(str, names))}."
        )
    return x[names[0]]


def refuse_numbers(x):
    """Refuse lists of numbers, which are neither texts nor features.

    Raises:
        TypeError: if the first value of `x` is a number or None.
    """
    first = x
    while isinstance(first, (list, tuple)) and first:
        first = first[0]
    if x is not first and (first is None or isinstance(first, numbers.Number)):
        raise TypeError(
            "`x` must hold texts (str), or be a dict of features, arrays such "
            f"as `token_ids` [B, T]. Received: a {type(x).__name__} of "
            f"{type(first).__name__}."
        )


def check_rank(tensor, name, rank):
    """Refuse strings that are not a batch with `rank` axes."""
    if tensor.shape.rank != rank:
        shape = "[B, ...]" if rank > 1 else "[B]"
        raise ValueError(
            f"`{name}` must be a batch of strings {shape}, {rank} axes. "
            f"Received: {tensor.shape.rank} axes."
        )


def of_examples(texts, shape=None):
    """Make a string tensor from a list of str; lone surrogates become U+FFFD.

    Args:
        texts: list of str.
        shape: list of int, shape of the tensor. Default: one axis.
    """
    import tensorflow as tf

    # Each surrogate becomes one character, so that positions in the text do not
    # change.
    tensor = tf.constant(_without_surrogates(list(texts)), tf.string)
    return tensor if shape is None else tf.reshape(tensor, shape)


def is_raw(x):
    """Whether input, or an element of a data set, contains strings.

    Args:
        x: any `x` of `fit`.
    """
    if hasattr(x, "element_spec"):
        spec = x.element_spec
        return is_raw(spec[0] if isinstance(spec, tuple) else spec)
    if isinstance(x, (str, bytes)):
        return True
    if isinstance(x, dict):
        return "token_ids" not in x and any(map(is_raw, x.values()))
    if isinstance(x, (list, tuple)):
        # If the first text of a pair has no words, the second text decides.
        parts = (y for y in x if not isinstance(y, (list, tuple)) or y)
        return any(map(is_raw, itertools.islice(parts, 2)))
    if isinstance(x, collections.abc.Sequence):  # columns of a data set
        return len(x) > 0 and is_raw(x[0])
    dtype = getattr(x, "dtype", None)
    if dtype is None:
        return False
    kind = getattr(dtype, "kind", None)
    if kind == "O":
        return any(map(is_raw, x.__array__().ravel().tolist()))
    return kind in ("U", "S", "T") or getattr(dtype, "name", "") in (
        "string",
        "str",
    )
