"""Columns of a table and their roles in a task."""

import math
import operator
import warnings

LABEL_ROLES = ("label", "relevance", "target")
LONGEST_NAME = 40  # characters of a column's name, or of a class


def parse_columns(task, columns):
    """Parse the `columns` of a user.

    Args:
        task: TaskSpec.
        columns: "text=review,label=stars", or a dict of role to the name of a
            column, or None. A number is the index of a column from 0;
            `title+body` joins the texts of two columns.

    Returns:
        dict of role to str.

    Raises:
        ValueError: a role is unknown to the task, or not `role=column`.
    """
    if not columns:
        return {}
    given = columns
    if isinstance(columns, str):
        pairs = [pair.partition("=") for pair in columns.split(",")]
        columns = {role.strip(): name.strip() for role, _, name in pairs}
    for role, name in columns.items():
        if role not in task.columns or name == "":
            roles = ", ".join(task.columns) or "none, its files have no columns"
            if not isinstance(given, str):
                given = f"{role}={name}"
            raise ValueError(
                f"`columns` must be ROLE=COLUMN,... Received: {given}; "
                f"roles of the task {task.name}: {roles}."
            )
    return {role: str(name) for role, name in columns.items()}


class Columns:
    """Columns of a file, found by its first row.

    A file has a header if its first row holds a name expected by the task or
    given by the user, or numbers all columns from 0. A number given by the user
    is not such a name, since it may equal a label in the first row. Where all
    columns are given by number, a header needs a usual name in each of them,
    since a text or a label may be such a name. Without a header, columns are
    found by their indices.

    Args:
        first: the first row, list of str; for JSON lines a dict of all keys.
        task: TaskSpec.
        split: str.
        columns: as `parse_columns` takes it.
        place: str, path for messages.
    """

    def __init__(self, first, task, split, columns, place):
        self._given = parse_columns(task, columns)
        self._task = task
        self._split = split
        self._place = place
        self.is_json = isinstance(first, dict)
        self.names = [name.strip() for name in first]
        self._keys = list(first)  # of JSON, with blanks around them if any
        self._folded = [name.casefold() for name in self.names]
        expected = [name for names in task.columns.values() for name in names]
        for given in self._given.values():
            expected += [given, *given.split("+")]
        has_name = any(
            self._named(name) is not None
            for name in expected
            if isinstance(name, str) and not name.isdecimal()
        )
        if has_name and not self.is_json and self._are_numbered():
            has_name = self._names_numbered()
        self.has_header = (
            self.is_json
            or has_name
            or self.names == [str(n) for n in range(max(2, len(self.names)))]
        )
        self.keys = {role: self._key(role) for role in task.columns}

    def getters(self):
        """Functions from row to value, a dict of role to function or None."""
        return {role: _getter(key) for role, key in self.keys.items()}

    def _are_numbered(self):
        """Whether the user gave all columns that are needed, by number."""
        numbers = [x for name in self._given.values() for x in name.split("+")]
        return all(map(str.isdecimal, numbers)) and all(
            role in self._given
            for role in self._task.columns
            if self._needs(role)
        )

    def _names_numbered(self):
        """Whether the first row has a usual name in each numbered column."""
        return all(
            int(number) < len(self._folded)
            and self._folded[int(number)]
            in [str(name).casefold() for name in self._task.columns[role]]
            for role, given in self._given.items()
            for number in given.split("+")
        )

    def warn_of_names(self, rows):
        """Warns where columns are given by number and the first row has names.

        It is read as an example all the same: a text may be such a name.

        Args:
            rows: list of list of str, the first rows.
        """
        numbers = {
            (role, number)
            for role, given in self._given.items()
            for number in given.split("+")
            if number.isdecimal() and int(number) < len(self._folded)
        }
        is_usual = any(
            self._folded[int(number)]
            in [str(name).casefold() for name in self._task.columns[role]]
            for role, number in numbers
        )
        has_labels = not self._split.startswith("test") and any(
            role in LABEL_ROLES for role, _ in numbers
        )
        if is_usual or (has_labels and is_header(rows)):
            warnings.warn(
                f"{self._place}: the first row, {', '.join(self.names)[:100]}, "
                "is read as an example, as columns are given by number; remove "
                "it if it holds their names",
                stacklevel=2,
            )

    def _needs(self, role):
        return role not in self._task.optional and not (
            role in LABEL_ROLES and self._split.startswith("test")
        )

    def _key(self, role):
        """Columns of a role, a tuple of indices (JSON: names), or None."""
        candidates = self._task.columns[role]
        if role in self._given:
            names = self._folded if self.has_header else ()
            candidates = [_parsed(self._given[role], names)]
        for candidate in candidates:
            parts = candidate if isinstance(candidate, tuple) else (candidate,)
            key = [self._position(part, role) for part in parts]
            if None not in key:
                return tuple(key)
        if self._needs(role) or (
            role in self._given and role not in LABEL_ROLES
        ):
            self._refuse(role, candidates)
        return None

    def _position(self, part, role):
        if isinstance(part, int):
            is_usable = not self.has_header or role in self._given
            if not self._needs(role) and part >= len(self.names):
                return None  # a table of texts to predict has no labels
            return part if is_usable and not self.is_json else None
        if self.names.count(part) == 1 and not self.is_json:
            return self.names.index(part)
        is_wanted = self._needs(role) or role in self._given
        is_twice = self._folded.count(part.casefold()) > 1
        if is_twice and is_wanted and not self.is_json:
            raise ValueError(
                f"{self._place}: several columns are named {part!r}. Give each "
                f"a name of its own, or a number: --columns {role}=NUMBER."
            )
        return self._named(part)

    def _named(self, name):
        if not isinstance(name, str) or name.casefold() not in self._folded:
            return None
        position = self._folded.index(name.casefold())
        return self._keys[position] if self.is_json else position

    def _refuse(self, role, candidates):
        looked_for = ", ".join(
            "+".join(map(str, one)) if isinstance(one, tuple) else str(one)
            for one in candidates
        )
        roles = [x for x in self._task.columns if self._needs(x) or x == role]
        given = {**self._given, role: "COLUMN"}
        form = ",".join(f"{x}={given.get(x, 'COLUMN')}" for x in roles)
        raise ValueError(
            f"{self._place}: no column for `{role}` (looked for {looked_for}). "
            f"Columns: {', '.join(self.names)[:500]}. Name yours: "
            f"--columns {form}"
        )


def _parsed(name, names):
    """Columns given by a user: names or indices, joined by `+`."""
    parts = [name] if name.casefold() in names else name.split("+")
    return tuple(
        int(part) if part.isdecimal() and part not in names else part
        for part in parts
    )


def _getter(key):
    if key is None:
        return None
    if len(key) == 1:
        return operator.itemgetter(key[0])
    get = operator.itemgetter(*key)
    return lambda row: " ".join(filter(None, get(row)))


def is_header(rows):
    """Whether a first row of unusual names still looks like a header, bool.

    Args:
        rows: list of list of str, the first rows.
    """
    first = [cell.strip() for cell in rows[0]]
    below = {cell.strip() for row in rows[1:] for cell in row}
    return len(rows) > 2 and all(
        cell
        and len(cell) <= LONGEST_NAME
        and not is_number(cell)
        and cell not in below
        for cell in first
    )


def is_number(cell):
    """Whether a cell, str, holds a finite number, bool."""
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False
