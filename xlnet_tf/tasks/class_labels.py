"""Labels of tasks: checks, and conversion of class names to numbers.

Shapes: B batch, C classes.
"""

import math
import numbers

import numpy as np

from data_pipeline.base.class_names import ClassNames


def are_rows(y):
    """Whether `y` of `fit` is a list or array of labels."""
    is_other = y is None or isinstance(y, dict) or hasattr(y, "element_spec")
    return not is_other


def class_numbers(y, labels, num_classes, words="classes"):
    """Check integer classes, or convert class names to integers.

    If a class name is a whole number, `y` may contain the number in another
    form, such as "1.0" for "1".

    Args:
        y: labels [B] or [B, 1], in a list, array, Series or tensor. Labels of
            another shape or type, for example for a custom loss, are returned
            unchanged.
        labels: list of C str, the names of the classes, or None.
        num_classes: int, C. None: integers are not checked.
        words: str, noun for the labels in error messages. Default "classes".

    Returns:
        int array [B] if `y` holds names. Numbers are returned unchanged, but in
        the shape [B] instead of [B, 1].

    Raises:
        ValueError: if a label is not a class of the model.
    """
    if not are_rows(y):
        return y
    values = np.asarray(y)
    if values.ndim not in (1, 2) or values.shape[1:] not in ((), (1,)):
        return y
    flat = values.ravel().tolist()
    flat = [x.decode() if isinstance(x, bytes) else x for x in flat]
    if any(isinstance(x, str) for x in flat):
        if not labels and words != "classes":
            raise ValueError(
                f"`y` must be {words}, integers from 0. Received: {flat[0]!r}."
            )
        if not labels:
            raise ValueError(
                "`y` holds names of classes, and the model has none. Give it "
                f"`labels`, or integers. Received: {flat[0]!r}."
            )
        known = {label: place for place, label in enumerate(labels)}
        names = ClassNames(labels)
        meant = [names.name(str(label)) for label in flat]
        for row, label in enumerate(flat):
            if meant[row] not in known:
                raise ValueError(
                    f"`y` must hold labels of the model, {', '.join(labels)}. "
                    f"Received: {label!r}, example {row} from 0."
                )
        return np.array([known[name] for name in meant], np.int32)
    if num_classes is None:
        return y
    if values.dtype.kind == "O":  # data frames may have such numbers
        values = np.array([_as_number(x) for x in flat])
        y = values
    if values.dtype.kind in "iuf":
        _check_classes(values.ravel(), flat, num_classes, words)
    return values.ravel() if values.ndim == 2 else y


def _as_number(label):
    """Convert a label to a number, or to NaN if the label is not numeric."""
    return label if isinstance(label, numbers.Real) else math.nan


def _check_classes(values, flat, num_classes, words):
    is_class = (values >= 0) & (values < num_classes)
    is_class &= values == np.floor(values)
    if not is_class.all():
        row = int(np.argmin(is_class))
        is_integer = math.isfinite(values[row]) and values[row] % 1 == 0
        kind = "" if is_integer else ", integers"
        raise ValueError(
            f"`y` must be {words} from 0 to {num_classes - 1}{kind}. "
            f"Received: {flat[row]}, example {row} from 0."
        )


def finite_numbers(y, least=-math.inf, noun="example"):
    """Check the targets of a regression and return them unchanged.

    Args:
        y: numbers in a list, array, Series or tensor, or None.
        least: float, smallest allowed value. Default: no limit.
        noun: str, the word for a row of `y` in the error. Default "example".

    Raises:
        ValueError: if a target is not finite, or below `least`.
    """
    if not are_rows(y):
        return y
    values = np.asarray(y)
    if not values.size or values.dtype.kind not in "iufOUST":
        return y
    rows = values.reshape(len(values), -1) if values.ndim else values[None]
    for place, row in enumerate(rows.tolist()):
        for value in row if isinstance(row, list) else [row]:
            is_number = isinstance(value, numbers.Real)
            if not is_number or not math.isfinite(value) or value < least:
                words = "" if least == -math.inf else f" of at least {least}"
                raise ValueError(
                    f"`y` must be finite numbers{words}. Received: {value!r}, "
                    f"{noun} {place} from 0."
                )
    return y


def checked_labels(labels, num_classes):
    """Check names of classes and return them as a list; None stays None."""
    if labels is None:
        return None
    if len(labels) != num_classes:
        raise ValueError(
            f"`labels` must name all {num_classes} classes. Received: "
            f"{len(labels)} labels, {', '.join(map(str, labels))}."
        )
    names = [str(label) for label in labels]
    is_name = [isinstance(label, str) for label in labels]
    if not all(is_name) or len({*names}) < len(names):
        raise ValueError(
            "`labels` must be different names, each a str: a number in `y` is "
            f"the place of a name. Received: {list(labels)!r}."
        )
    return names


def tag_numbers(y, labels, num_classes):
    """Convert tag names to integers.

    Args:
        y: for each text a list with one tag name per word. None or "" marks a
            word without a tag and becomes -1. Numbers are checked and returned
            unchanged.
        labels: list of C str, the names of the classes, or None.
        num_classes: int, C.

    Raises:
        ValueError: if a tag is unknown to the model.
    """
    if not are_rows(y):
        return y
    rows = y
    if hasattr(y, "to_list"):  # ragged tensor
        rows = y.to_list()
    elif hasattr(y, "dtype"):
        rows = np.asarray(y).tolist()
    rows = [x.tolist() if isinstance(x, np.ndarray) else x for x in rows]
    if not all(isinstance(row, (list, tuple)) for row in rows):
        return y
    if not any(isinstance(x, (str, bytes)) for row in rows for x in row):
        _check_tags(rows, num_classes)
        return y
    known = {name: place for place, name in enumerate(labels or ())}
    numbers = [[_tag_number(tag, known) for tag in row] for row in rows]
    for place, row in enumerate(numbers):
        if None in row:
            raise ValueError(
                f"`y` must hold tags of the model, {', '.join(known)}. "
                f"Received: {rows[place][row.index(None)]!r}, example {place} "
                "from 0."
            )
    return numbers


def check_tag_counts(tags, words):
    """Refuse a text whose number of tags differs from its number of words.

    Args:
        tags, words: `y` and `x` of `fit`; only lists are checked.

    Raises:
        ValueError: if a text has more or fewer tags than words.
    """
    words = words.get("words") if isinstance(words, dict) else words
    if not (isinstance(tags, list) and isinstance(words, (list, tuple))):
        return
    for place, (row, names) in enumerate(zip(words, tags, strict=False)):
        are_lists = isinstance(row, (list, tuple)) and hasattr(names, "__len__")
        if are_lists and len(row) != len(names):
            raise ValueError(
                "`y` must have one label for each word of `x`. Received: "
                f"{len(names)} labels of {len(row)} words, example {place} "
                "from 0."
            )


def numbered_weights(weights, labels, num_classes):
    """Convert `class_weight` of `fit` to a dict from class number to weight.

    A class without a weight gets the weight 1.

    Args:
        weights: dict from the number or name of a class to its weight, or None.
        labels: list of str, or None.
        num_classes: int, C.

    Raises:
        ValueError: if a name is not among the labels, or a number is not from 0
            to C - 1.
    """
    if not isinstance(weights, dict):
        return weights
    known = {label: place for place, label in enumerate(labels or ())}
    names = [x for x in weights if isinstance(x, str)]
    if wrong := [x for x in names if x not in known]:
        raise ValueError(
            "`class_weight` must be of numbers of classes, or of labels of the "
            f"model ({', '.join(known) or 'it has none'}). Received: "
            f"{wrong[0]!r}."
        )
    for number in weights:
        if isinstance(number, numbers.Real) and number not in range(
            num_classes
        ):
            raise ValueError(
                "`class_weight` must be of numbers of classes from 0 to "
                f"{num_classes - 1}. Received: {number!r}."
            )
    # For data sets, Keras makes a look-up table that ends at the highest class
    # in the dict, so the dict must contain every class.
    others = dict.fromkeys(range(num_classes), 1.0)
    given = {known.get(x, x): weight for x, weight in weights.items()}
    return {**others, **given}


def _check_tags(rows, num_classes):
    for place, row in enumerate(rows):
        for tag in row:
            if not isinstance(tag, numbers.Real):
                continue
            is_integer = math.isfinite(tag) and tag % 1 == 0
            if not is_integer or tag >= num_classes:
                kind = "" if is_integer else ", integers"
                raise ValueError(
                    f"`y` must be tags of at most {num_classes - 1}{kind}. "
                    f"Received: {tag}, example {place} from 0."
                )


def _tag_number(tag, known):
    """Index of a tag; -1 for a word without a tag, None for an unknown tag."""
    tag = tag.decode() if isinstance(tag, bytes) else tag
    return -1 if tag is None or tag == "" else known.get(str(tag))
