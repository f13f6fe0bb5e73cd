"""Classes of tasks, and checks of the labels of examples."""

import collections
import math
import re
import unicodedata

from data_pipeline.text.columnar import NO_CLASS

_OF_EXAMPLE = {
    "classification": lambda example: [example.label],
    "multi_label": lambda example: example.label,
    "token_classification": lambda example: example.tags,
}
# Labels that mark a missing label, as in SNLI and other published sets, in
# Hugging Face's `datasets`, and from tools for tables.
_UNKNOWN = "-1"
_NOT_AGREED = "-"
_MISSING = ("nan", "NaN", "null", "NULL", NO_CLASS, "\\N")
NO_LABELS = frozenset((_UNKNOWN, _NOT_AGREED, *_MISSING))
_BETWEEN_WORDS = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")
_MOST_SHOWN = 5


def labels_of(task, examples):
    """Return the classes of a task, from the examples if the TaskSpec has none.

    Args:
        task: TaskSpec.
        examples: list of training examples.

    Returns:
        tuple of str, or None for a kind of task that has no classes, such as
        regression.
    """
    of_example = _OF_EXAMPLE.get(task.kind)
    if of_example is None or task.labels is not None:
        return task.labels if of_example else None
    labels = {str(label) for x in examples for label in of_example(x)}
    # The tag "O" comes first. Numbers are in numerical order.
    return tuple(
        sorted(
            labels,
            key=lambda x: (x != "O", not x.isdigit(), len(x) * x.isdigit(), x),
        )
    )


def check_known(kind, examples, labels):
    """Refuse examples with a class that a model lacks.

    Args:
        kind: str, kind of a TaskSpec.
        examples: list of examples. Some may lack a label.
        labels: sequence of str, the classes of the model.

    Raises:
        ValueError: an example has a class outside of `labels`. The message
            names the first such example.
    """
    known = set(map(str, labels))
    of_example = _OF_EXAMPLE.get(kind, lambda example: ())
    for example in examples:
        for label in of_example(example) or ():
            if label is not None and str(label) not in known:
                alike = [x for x in known if _folded(x) == _folded(str(label))]
                hint = f" It looks like {min(alike)!r}." if alike else ""
                raise ValueError(
                    f"{example.where}: the label {label!r} is none of those "
                    f"known: {', '.join(map(str, labels))}.{hint}"
                )


def unlabelled_marks(labels, known):
    """Find the labels that mean "no label", such as "-1", "-" and "nan".

    A known class never means "no label". If no classes are known, "-1" is a
    class if another label is a negative number, or if the only other labels are
    0, 1 or +1. Members of `NO_LABELS` do not count as other labels. "-" is a
    class if "+" is also a label.

    Args:
        labels: set of str, all labels of a file.
        known: tuple of str, the known classes, or None.

    Returns:
        set of str.
    """
    marks = labels & NO_LABELS
    if known is not None:
        return marks - set(known)
    other_labels = labels - NO_LABELS
    if "+" in other_labels:
        marks.discard(_NOT_AGREED)
    is_number = other_labels and other_labels <= {"0", "1", "+1"}
    if is_number or any(re.fullmatch(r"-\d+(\.\d+)?", x) for x in other_labels):
        marks.discard(_UNKNOWN)
    return marks


def may_be_no_class(labels):
    """Find a class that may mean "no label", str or None.

    Args:
        labels: set of str, classes of a file.
    """
    return _UNKNOWN if {"0", _UNKNOWN} <= labels <= {"0", "1", "-1"} else None


def look_alikes(kind, examples):
    """Make warnings about classes that are probably spelling variants.

    Spelling variants differ only in case, in blanks, or in the form of a
    character or number. Examples are "pos" and "Pos", "7" and "007", and "café"
    with its last letter as one or two characters.

    Args:
        kind: str, kind of a TaskSpec.
        examples: list of examples.

    Returns:
        list of str, the warnings.
    """
    of_example = _OF_EXAMPLE.get(kind, lambda example: ())
    counts, places = collections.Counter(), {}
    for example in examples:
        for label in of_example(example) or ():
            counts[label] += 1
            places.setdefault(label, example.where)
    groups = {}
    for label, count in counts.most_common():
        shown = f"{ascii_if_odd(label)} ({count:,}, the first {places[label]})"
        groups.setdefault(_folded(label), []).append(shown)
    found = [" and ".join(group) for group in groups.values() if len(group) > 1]
    more = len(found) - _MOST_SHOWN
    return [
        "classes that look alike are told apart, is each meant? "
        + "; ".join(found[:_MOST_SHOWN])
        + (f"; and {more} more" if more > 0 else "")
    ] * bool(found)


def ascii_if_odd(label):
    """Quote a class; write escapes if the class is not printable NFKC text."""
    is_plain = unicodedata.is_normalized("NFKC", label) and label.isprintable()
    return repr(label) if is_plain else ascii(label)


def _folded(label):
    """Convert a label to a text or number that spelling variants share."""
    text = unicodedata.normalize("NFKC", label).casefold()
    text = "".join(x for x in text if unicodedata.category(x) != "Cf").strip()
    if re.fullmatch(r"[+-]?\d+(\.\d*)?(e[+-]?\d+)?", text):
        number = float(text)
        return number if math.isfinite(number) else text
    return _BETWEEN_WORDS.sub(" ", text)
