"""Find which columns of a table of your own hold the texts and the labels.

A guess is made where the names of the columns are not the usual ones and
only one column can be meant.
"""

import dataclasses
import itertools
import warnings

from data_pipeline.tasks.readers.columns import LONGEST_NAME
from data_pipeline.tasks.readers.columns import is_header
from data_pipeline.tasks.readers.columns import is_number
from data_pipeline.tasks.readers.columns import parse_columns
from data_pipeline.tasks.readers.formats import rows_of

_ROWS = 5000  # that are looked at
_MOST_CLASSES = 200
_LABELS = frozenset(
    "annotation category categories class classes emotion genre genres "
    "grade gold intent is_spam label labels language outcome polarity "
    "rating score section sentiment spam stance star stars tag tags target "
    "topic topics toxicity type value y".split()
)
_IDS = frozenset("id idx index key no number row uid uuid date time".split())
_TEXT_ROLES = ("text", "text_pair")
_FLAGS = frozenset(("0", "1", "0.0", "1.0", "true", "false"))


def guess_columns(tree, name, task, columns=None):
    """The columns of a table, with those that its names do not tell.

    Args:
        tree: archives.Tree.
        name: str, the file of the training split.
        task: TaskSpec.
        columns: as `parse_columns` takes it; what is given is not guessed.

    Returns:
        (columns, guessed): what to read as `columns`, and a dict of role to
        the column's name, str, of those that were guessed; empty where the
        names tell all columns, or no guess is certain.
    """
    given = parse_columns(task, columns)
    if task.reader != "table" or task.folder is not None:
        return columns, {}
    rows = _first_rows(tree, name, task)
    table = _table(rows)
    known = _known(table, task, given)
    needed = _needed(task, known)
    is_certain = isinstance(rows[0], dict) if rows else False
    if not needed or not table or not (known or is_certain or is_header(rows)):
        return columns, {}
    used = {part for name in known.values() for part in name.split("+")}
    free = {
        name: values
        for name, values in table.items()
        if name not in used | set(known.values())
        and name.casefold() not in _IDS
    }
    guessed = _guess(free, needed, task.kind)
    if guessed is None:
        return columns, {}
    guessed = {role: guessed[role] for role in task.columns if role in guessed}
    return {**given, **guessed}, guessed


def named_columns(tree, name, task):
    """The columns of a table whose names tell their roles.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec.

    Returns:
        dict of role to column, str.
    """
    return _known(_table(_first_rows(tree, name, task)), task, {})


def refuse_pairs(tree, name, task, second):
    """Refuse a table with second texts, which would be left out.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec.
        second: tuple of str, usual names of the column of second texts.

    Raises:
        ValueError: if it has one.
    """
    task = dataclasses.replace(task, columns={"text_pair": second})
    found = named_columns(tree, name, task)
    if found:
        raise ValueError(
            f"{tree.place(name)} has pairs of texts, the second ones in the "
            f"column {found['text_pair']!r}. `saved_models.predict` answers "
            "pairs in JSON lines: --inputs FILE --signature pairs. To read one "
            "text of each, name it: --columns text=COLUMN."
        )


def has_columns(tree, name, task, columns):
    """Whether a file has the columns that another one had.

    Args:
        tree: archives.Tree.
        name: str, the file.
        task: TaskSpec.
        columns: as `parse_columns` takes it. Numbers count where the table's
            own names do not tell the columns.

    Returns:
        bool, True for what is no table, or a broken one.
    """
    given = parse_columns(task, columns)
    if task.reader not in ("table", "ranking", "pairs"):
        return True
    try:
        rows = _first_rows(tree, name, task)
    except ValueError:  # parallel files; or an error of what reads it
        return True
    if not rows:
        return True
    names = itertools.chain(*rows) if isinstance(rows[0], dict) else rows[0]
    names = {name.strip().casefold() for name in names}
    parts = []
    for column in map(str.casefold, given.values()):
        parts += [column] if column in names else column.split("+")
    missing = [x for x in parts if x not in names]
    if not missing or not all(map(str.isdecimal, missing)):
        return not missing
    known = _known(_table(rows), task, {})
    return isinstance(rows[0], list) and bool(_needed(task, known))


def _first_rows(tree, name, task):
    """list of the rows that are looked at."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # repeated when examples are read
        rows = rows_of(tree, name, task)
        return [row for _, row in itertools.islice(rows, _ROWS)]


def _needed(task, known):
    """Roles that a table must have, but for those known, a list."""
    return [x for x in task.columns if x not in {*known, *task.optional}]


def _table(rows):
    """dict of a column's name to the texts of its cells; empty if unclear."""
    rows = [row for row in rows if row != [""]]
    if not rows:
        return {}
    if isinstance(rows[0], dict):
        names = list(dict.fromkeys(itertools.chain(*rows)))
        return {name: [_text(row.get(name)) for row in rows] for name in names}
    names = [name.strip() for name in rows[0]]
    if len(set(names)) < len(names) or any(len(x) != len(names) for x in rows):
        return {}
    columns = list(zip(*rows[1:], strict=True)) or [()] * len(names)
    return dict(zip(names, map(list, columns), strict=True))


def _text(value):
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(value)


def _known(table, task, given):
    """dict of role to column, of those given or of a usual name."""
    folded = {name.casefold(): name for name in reversed(table)}
    known = {}
    for role, candidates in task.columns.items():
        names = [str(name).casefold() for name in candidates]
        found = [folded[name] for name in names if name in folded]
        if role in given:
            known[role] = folded.get(given[role].casefold(), given[role])
        elif found:
            known[role] = found[0]
    return known


def _guess(free, needed, kind):
    """dict of role to column of all roles that are needed, or None."""
    guessed = {}
    if "label" in needed:
        label = _label(free, kind)
        if label is None:
            return None
        guessed["label"] = "+".join(label)
        free = {k: v for k, v in free.items() if k not in label}
    roles = [role for role in _TEXT_ROLES if role in needed]
    if roles:
        texts = list(free)
        if len(texts) != len(roles):
            texts = [name for name in texts if _is_text(free[name])]
        if len(texts) != len(roles):
            return None
        guessed |= dict(zip(roles, texts, strict=True))
    if any("+" in guessed[role] for role in roles):
        return None  # which would join two columns
    return guessed if set(needed) == set(guessed) else None


def _label(free, kind):
    """Names of the columns of the label, a list, or None."""
    fits = {
        "regression": _is_numbers,
        "classification": _is_classes,
        "multi_label": lambda values: any(values),
    }[kind]
    if kind == "multi_label":
        flags = [k for k, values in free.items() if _is_flags(values)]
        if len(flags) > 1 and not any("+" in name for name in flags):
            return flags
    fitting = [
        name
        for name, values in free.items()
        if "+" not in name and fits([x.strip() for x in values])
    ]
    named = [name for name in fitting if name.casefold() in _LABELS]
    if len(named) == 1:
        return named
    return fitting if len(fitting) == 1 and kind != "multi_label" else None


def _is_numbers(values):
    """Whether these are numbers, but not the numbers of the rows."""
    if not values or not all(map(is_number, values)):
        return False
    numbers = list(map(float, values))
    counted = [numbers[0] + i for i in range(len(numbers))]
    return len(set(numbers)) > 1 and (numbers != counted or len(numbers) < 3)


def _is_classes(values):
    kinds = set(values)
    return (
        "" not in kinds
        and 1 < len(kinds) <= min(max(2, len(values) // 3), _MOST_CLASSES)
        and max(map(len, kinds)) <= LONGEST_NAME
    )


def _is_flags(values):
    return bool(values) and {x.strip().casefold() for x in values} <= _FLAGS


def _is_text(values):
    """Whether these look like texts: several words each, mostly distinct."""
    words = sum(len(x.split()) for x in values)
    return words >= 2 * len(values) and len(set(values)) > len(values) / 2
