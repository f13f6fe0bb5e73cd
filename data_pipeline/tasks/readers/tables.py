"""Readers of tables: texts, pairs of texts, queries with documents."""

import math
import re

from data_pipeline.base.class_names import ClassNames
from data_pipeline.tasks.columns import FLAGS
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.labels import NO_LABELS
from data_pipeline.tasks.labels import may_be_no_class
from data_pipeline.tasks.labels import unlabelled_marks

# A list, as Python and pandas write it.
_LIST_AS_TEXT = re.compile(
    r"""\[\s*((['"]).*\2|[\d.]+(\s*,\s*[\d.]+)*)?\s*\]""", re.DOTALL
)


def read_examples(split):
    """Read the texts or pairs of texts of a table, with their labels.

    Args:
        split: reading.Split of a task whose reader is "table". In a test split,
            labels may be missing.

    Returns:
        list of TextExample.

    Raises:
        ValueError: a row or a label is not valid.
    """
    task, table = split.task, split.table
    label_of = _label_reader(task, split.is_test)
    examples, rows = [], []
    for index, (number, values) in enumerate(split.rows()):
        try:
            label = label_of(values["label"])
        except ValueError as error:
            hint = ""
            if number == 1 and not table.is_named:
                hint = " If this row names the columns, remove it."
            raise ValueError(
                f"{table.place}, row {number}: {error}{hint}"
            ) from None
        text = values["text"]
        for written, meant in task.escapes:
            text = text.replace(written, meant)
        examples.append(
            TextExample(
                values.get("id") or str(index),
                text,
                values.get("text_pair"),
                label,
                split.where(number),
            )
        )
        rows.append(number)
    if task.kind == "multi_label":
        examples = _with_label_lists(examples, split)
    elif task.kind != "classification":
        return examples
    return _with_class_names(examples, rows, split)


def _with_class_names(examples, rows, split):
    """Replace labels by class names, see `ClassNames`; skip unlabelled rows.

    Args:
        examples: list of TextExample, with the labels as in the file.
        rows: list of int, the row number of each example.
        split: reading.Split.
    """
    classes, counted = ClassNames(split.known), split.counted
    named = []
    for example, row in zip(examples, rows, strict=True):
        names = _names(example)
        meant = [classes.name(x) for x in names]
        for name, label in zip(meant, names, strict=True):
            if name != label:
                counted.add(
                    "labels are read as the class of the equal number, as 1.0 "
                    "and 1 are one",
                    row,
                )
        if meant != names:
            is_one = isinstance(example.label, str)
            label = meant[0] if is_one else tuple(sorted({*meant}))
            example = example._replace(label=label)
        named.append(example)
    labels = {name for example in named for name in _names(example)}
    marks = unlabelled_marks(labels, split.known)
    doubtful = None
    if split.known is None and not split.is_test:
        doubtful = may_be_no_class(labels)
    kept = []
    for example, row in zip(named, rows, strict=True):
        names = _names(example)
        classes_alone = tuple(x for x in names if x not in marks)
        if names and not classes_alone:
            if not split.is_test:
                counted.add(
                    "rows without a gold label left out, marked by "
                    + ", ".join(sorted(marks)),
                    row,
                )
                continue
            example = example._replace(label=None)
        elif len(classes_alone) < len(names):
            counted.add("lists of labels have one that names no class", row)
            example = example._replace(label=classes_alone)
        elif doubtful in names:
            counted.add(
                f"rows have the label {doubtful!r}, read as a class; remove "
                "them if it means that they have none",
                row,
            )
        kept.append(example)
    return kept


def _names(example):
    """Return a list of the classes of an example; empty without a label."""
    label = example.label
    if isinstance(label, str):
        return [label]
    return list(label or ())


def read_ranking(split):
    """Read the pairs of a query and a document from a table.

    Queries without ids are numbered in the order of first appearance. Documents
    without ids are numbered by their rows, from 0.

    Args:
        split: reading.Split of a task whose reader is "ranking". In a test
            split, the relevance may be missing.

    Returns:
        list of RankingExample.

    Raises:
        ValueError: a row or a relevance is not valid, or two queries have the
            same id.
    """
    place = split.table.place
    examples, queries, numbers = [], {}, {}
    for index, (number, values) in enumerate(split.rows()):
        query, relevance = values["query"], values["relevance"]
        query_id = values["query_id"]
        if not query_id:
            query_id = str(numbers.setdefault(query, len(numbers)))
        if queries.setdefault(query_id, query) != query:
            raise ValueError(
                f"{place}, row {number}: the query {query_id} has another "
                f"text here than before ({queries[query_id]!r})."
            )
        if relevance or not split.is_test:
            try:
                relevance = _number(relevance)
            except ValueError as error:
                raise ValueError(f"{place}, row {number}: {error}") from None
            if relevance < 0:  # such as -2 for spam
                split.counted.add(
                    "rows with a relevance below 0 read as 0", number
                )
            relevance = max(0.0, relevance)
        examples.append(
            RankingExample(
                query_id,
                query,
                values["document_id"] or str(index),
                values["document"],
                None if relevance in (None, "") else relevance,
                split.where(number),
            )
        )
    return examples


def _label_reader(task, is_test):
    """Return the function that checks and parses a label of a task."""
    known, names = frozenset(task.labels or ()), ClassNames(task.labels)

    def read_number(label):
        return None if is_test and not label else _number(label)

    def read_class(label):
        if label in known:
            return label
        # Replace a lone surrogate by "?": files and pictures cannot contain it.
        label = label.encode(errors="replace").decode() if label else label
        label = label.strip() if label else label
        if not label:
            if is_test:
                return None
            raise ValueError("the label is empty.")
        if known and not {label, names.name(label)} & (known | NO_LABELS):
            raise ValueError(
                f"the label {label!r} is not one of the task {task.name}: "
                f"{', '.join(task.labels)}."
            )
        return label

    def read_classes(label):
        if is_test and label in (None, ""):  # [] means no class
            return None
        if isinstance(label, str) and _LIST_AS_TEXT.fullmatch(label.strip()):
            raise ValueError(
                f"the label {label[:80]!r} is a list written as text. Write "
                "classes as one|two, or the file as JSON lines."
            )
        return label or ""

    readers = {"regression": read_number, "multi_label": read_classes}
    return readers.get(task.kind, read_class)


def _number(label):
    """Parse a finite number, float."""
    try:
        number = float(label or "")
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"the label {label!r} is not a finite number.")
    return number


def _with_label_lists(examples, split):
    """Convert the labels of examples to tuples of classes.

    If any label contains "|" or is a list, "|" separates the classes of a str.
    Otherwise a comma separates the classes.
    """
    labels = [x.label for x in examples if x.label is not None]
    # In an evaluation split, labels may be ids of known classes.
    if split.name == "train" and _are_flags(labels):
        raise ValueError(
            f"{split.place}: the labels are lists of {len(labels[0])} numbers, "
            "0 or 1, which name no classes. Write the names of each text's "
            'classes, as ["arts", "sports"], or a column of 0 and 1 for each '
            "class: --columns label=arts+sports."
        )
    is_bar = any(isinstance(x, list) or "|" in x for x in labels)
    separator, known = "|" if is_bar else ",", split.known or ()
    return [
        x._replace(label=_classes(x.label, separator, known)) for x in examples
    ]


def _classes(label, separator, known):
    """Divide a label into a sorted tuple of its classes.

    Args:
        label: list of str, str or None. A str is one class if `known` contains
            the str. Otherwise `separator` divides the str into classes.
        separator: str.
        known: tuple of str, classes of the training examples.

    Returns:
        tuple of str, or None if `label` is None.
    """
    if label is None:
        return None
    if isinstance(label, str):
        is_one = label.strip() in known
        label = [label] if is_one else label.split(separator)
    return tuple(sorted({x.strip() for x in label} - {""}))


def _are_flags(labels):
    """Whether all labels are lists of 0 and 1 with the same length, bool."""
    return (
        bool(labels)
        and all(isinstance(x, list) for x in labels)
        and len({len(x) for x in labels}) == 1
        and len(labels[0]) > 1
        and all(y.casefold() in FLAGS for x in labels for y in x)
    )
