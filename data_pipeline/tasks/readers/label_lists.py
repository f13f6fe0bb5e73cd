"""Labels of several classes: lists, texts that are lists, and flags."""

_FLAGS = {
    **dict.fromkeys(("0", "0.0", "false", ""), False),
    **dict.fromkeys(("1", "1.0", "true"), True),
}


def with_label_lists(examples, place, known=None, is_train=False):
    """Examples whose labels are several classes.

    Args:
        examples: list of TextExample, with labels as they were read; those of a
            file are separated by "|" if any is or others are lists, else by
            commas.
        place: str, path for messages.
        known: tuple of str, classes of the examples that were trained on, or
            None. A label that is one of them is not separated.
        is_train: bool, whether the examples tell which classes there are.
            Default False.

    Raises:
        ValueError: if they are lists of 0 and 1, one number a class.
    """
    labels = [x.label for x in examples if x.label is not None]
    if is_train and _are_flags(labels):
        raise ValueError(
            f"{place}: the labels are lists of {len(labels[0])} numbers, 0 or "
            "1, which name no classes. Write the names of each text's classes, "
            'as ["arts", "sports"], or a column of 0 and 1 for each class: '
            "--columns label=arts+sports."
        )
    is_bar = any(isinstance(x, list) or "|" in x for x in labels)
    separator = "|" if is_bar else ","
    return [
        x
        if x.label is None
        else x._replace(label=_label_list(x.label, separator, known or ()))
        for x in examples
    ]


def _label_list(label, separator, known):
    """Several classes, tuple of str without copies, in alphabetical order.

    Args:
        label: list, or str.
        separator: str between the classes in a str.
        known: tuple of str, see `with_label_lists`.
    """
    if not isinstance(label, list):
        label = label or ""
        is_one = label.strip() in known
        label = [label] if is_one else label.split(separator)
    return tuple(sorted({str(x).strip() for x in label} - {""}))


def _are_flags(labels):
    """Whether labels are lists of 0 and 1 of one length, bool."""
    return (
        bool(labels)
        and all(isinstance(x, list) for x in labels)
        and len({len(x) for x in labels}) == 1
        and len(labels[0]) > 1
        and all(y and y.casefold() in _FLAGS for x in labels for y in x)
    )


def flag_reader(columns):
    """Function from a row to the names of the columns that have a 1.

    It returns None for a row whose columns are all empty.

    Args:
        columns: Columns, of which several are the label.
    """
    keys = columns.keys["label"]
    names = keys if columns.is_json else [columns.names[key] for key in keys]

    def read(row):
        found = []
        if all(row[key] in (None, "") for key in keys):
            return None
        for key, name in zip(keys, names, strict=True):
            flag = row[key] or ""
            flag = flag.strip().casefold() if isinstance(flag, str) else None
            if flag not in _FLAGS:
                raise ValueError(
                    f"the column {name!r} of a label must hold 0 or 1, not "
                    f"{row[key]!r}."
                )
            if _FLAGS[flag]:
                found.append(name)
        return found

    return read
