"""Assignment of the columns of a table to the roles of a task.

A role, such as "text" or "label", is the use of a column in the task. The user
may give the column of a role. Otherwise, the column with a usual name of the
role is used, such as "sentence" for the role "text". If no column has a usual
name and only one column fits the role, this column is guessed.
"""

import itertools
import json
import math
import operator
import re
import warnings

from data_pipeline.text.lines import BYTE_ORDER_MARK

_LABEL_ROLES = ("label", "relevance", "target")
_TEXT_ROLES = ("text", "text_pair")
_LONGEST_NAME = 40  # characters of a column name or class
_NAME_ROWS = 20  # rows that decide about a header
_GUESS_ROWS = 5000  # rows to base a guess on
_MOST_CLASSES = 200
_DIVIDED = re.compile("[,;\t]").split
_LABELS = frozenset(
    "annotation category categories class classes emotion genre genres "
    "grade gold intent is_spam label labels language outcome polarity "
    "rating score section sentiment spam stance star stars tag tags target "
    "topic topics toxicity type value y".split()
)
_IDS = frozenset("id idx index key no number row uid uuid date time".split())
FLAGS = {
    **dict.fromkeys(("0", "0.0", "false"), False),
    **dict.fromkeys(("1", "1.0", "true"), True),
}


def parse_columns(task, columns):
    """Parse the argument `columns`, in which a user gives columns of roles.

    Args:
        task: TaskSpec.
        columns: str such as "text=review,label=stars", a dict of role to column
            name, or None. A number is the index of a column, from 0.
            `title+body` joins the texts of two columns. A comma ends a column
            only if a role and "=" follow the comma. So column names may contain
            "," and "=".

    Returns:
        dict of role to column, str.

    Raises:
        ValueError: the task lacks a role, a role is given twice, or the form is
            not `role=column`.
    """
    if not columns:
        return {}
    given = columns
    if isinstance(columns, str):
        roles = "|".join(map(re.escape, task.columns)) or "(?!)"
        parts = re.split(rf",\s*(?=(?:{roles})\s*=)", columns)
        pairs = [part.partition("=") for part in parts]
        pairs = [(role.strip(), name.strip()) for role, _, name in pairs]
        columns = dict(pairs)
        if len(columns) < len(pairs):
            roles = [role for role, _ in pairs]
            role = next(x for x in roles if roles.count(x) > 1)
            names = "+".join(name for other, name in pairs if other == role)
            raise ValueError(
                f"`columns` gives the role {role!r} twice. Received: {given}; "
                f"{role}={names} joins the texts of these columns."
            )
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
    """Reader that finds the values of a task's roles in each row of a table.

    The first row is a header if it contains a column name that is usual for the
    task or given by the user, or if its cells are the numbers 0, 1, 2 and so
    on. A number given by the user does not count as a column name, because a
    label in the first row may be the same number.

    The user may give all columns by number. Then usual names count only if each
    of these columns has a usual name of its role. The reason: one text or label
    in the first row may happen to be equal to a usual name.

    The indices in the task's `columns` are used only for a table without a
    header.

    Args:
        table: Table.
        task: TaskSpec.
        columns: dict from `parse_columns`.
        is_test: bool, whether the table may lack labels. Default False.

    Raises:
        ValueError: a column is missing, or two columns have the same name.
    """

    def __init__(self, table, task, columns, is_test=False):
        self._table = table
        self._task = task
        self._given = columns
        self._is_test = is_test
        self._folded = [name.casefold() for name in table.names]
        self._parts = [
            (role, part)
            for role, name in columns.items()
            for part in name.split("+")
        ]
        self._has_header = table.is_named or self._is_header()
        self._keys = {role: self._key(role) for role in task.columns}

    def rows(self):
        """Yield the values of each row for the roles of the task.

        Yields:
            tuple of the row number (int) and a dict of role to value. A value
            is a str, or None if the table lacks the column. If the label has
            several columns, the value of the label is a list: the names of the
            columns that have a 1 in this row.

        Raises:
            ValueError: a row is broken or too short, or a row of the user's own
                table is too long.
        """
        table, rows = self._table, iter(self._table)
        if not self._has_header:
            self._warn_of_names()
        elif not table.is_named:
            next(rows)
        read = self._values_reader()
        counted = table.counted
        for number, cells in rows:
            if self._is_header_again(cells, number):
                counted.add("rows repeat the header and are left out", number)
                continue
            try:
                values = read(cells)
            except (LookupError, ValueError) as error:
                if self._task.skips_incomplete:
                    what = "rows with too few fields left out"
                    counted.add(what, number)
                    continue
                raise ValueError(
                    f"{table.place}, row {number}: {self._fault(error, cells)}"
                ) from None
            is_own = self._task.folder is None and not table.is_named
            if is_own and len(cells) < len(table.names):
                counted.add(
                    "rows lack fields at their end, which are taken as empty",
                    number,
                )
            yield number, values

    def _is_header_again(self, cells, number):
        """Whether a row of a user's own table repeats the header, bool.

        Tables that were joined from several files have such rows.

        Raises:
            ValueError: the row is a header with other names or another order.
        """
        longest = max(_LONGEST_NAME, *map(len, self._folded))
        if (
            self._task.folder is not None
            or self._table.is_named
            or not self._has_header
            or len(cells) != len(self._folded)
            or max(map(len, cells)) > longest + 2  # allow blanks
        ):
            return False
        folded = [cell.strip().casefold() for cell in cells]
        if folded == self._folded:
            return True
        if sorted(folded) == sorted(self._folded) or self._are_usual(folded):
            raise ValueError(
                f"{self._table.place}, row {number}: the names of columns, "
                f"{', '.join(cells)[:100]}, differ from those of the first "
                "row. Were files joined? Give files of the same columns, "
                "joined without further headers."
            )
        return False

    def _are_usual(self, folded):
        """Whether the texts of a row are usual column names, bool."""
        usual = {
            role: {str(name).casefold() for name in names}
            for role, names in self._task.columns.items()
            if self._needs(role)
        }
        return len(usual) > 1 and all(
            names.intersection(folded) for names in usual.values()
        )

    def _fault(self, error, cells):
        """Describe the fault of a broken row, str."""
        if not isinstance(error, LookupError):
            fault = str(error)
        elif self._table.is_named:
            fault = f"a field is missing (it has {', '.join(cells)})."
        else:
            fault = f"a field is missing ({len(cells)} fields)."
        if self._table.is_named:
            return fault
        if any(BYTE_ORDER_MARK in cell for cell in cells):
            fault += (
                " There is a byte order mark in it: were files joined, the "
                "first without a line end?"
            )
        elif cells[-1].lstrip().startswith('"'):
            fault += (
                " A text in quotes may go on in the next line of a .csv, and "
                "not of a .tsv."
            )
        return fault

    def _is_header(self):
        """Whether the first row is a header, bool."""
        names = self._table.names
        expected = [x for names in self._task.columns.values() for x in names]
        expected += [*self._given.values(), *(part for _, part in self._parts)]
        has_name = any(
            isinstance(name, str)
            and not name.isdecimal()
            and name.casefold() in self._folded
            for name in expected
        )
        if has_name and self._are_numbered():
            has_name = all(self._is_usual(*part) for part in self._parts)
        return has_name or names == [str(n) for n in range(max(2, len(names)))]

    def _are_numbered(self):
        """Whether the user gave all needed columns by number, bool."""
        return all(part.isdecimal() for _, part in self._parts) and all(
            role in self._given
            for role in self._task.columns
            if self._needs(role)
        )

    def _is_usual(self, role, part):
        """Whether a cell of the first row is a usual name of `role`, bool.

        `part` is the index of the cell, as a str. For a name the result is
        False.
        """
        usual = [str(name).casefold() for name in self._task.columns[role]]
        return self._is_number(part) and self._folded[int(part)] in usual

    def _is_number(self, part):
        return part.isdecimal() and int(part) < len(self._folded)

    def _warn_of_names(self):
        """Warn if columns are given by number but the first row has names.

        The first row is still read as an example, because a text may happen to
        be equal to a column name.
        """
        is_usual = any(self._is_usual(*part) for part in self._parts)
        has_labels = not self._is_test and any(
            role in _LABEL_ROLES and self._is_number(part)
            for role, part in self._parts
        )
        table = self._table
        if is_usual or (has_labels and is_header(table.head(_NAME_ROWS))):
            warnings.warn(
                f"{table.place}: the first row, "
                f"{', '.join(table.names)[:100]}, is read as an example, as "
                "columns are given by number; remove it if it holds their "
                "names",
                stacklevel=2,
            )

    def _needs(self, role):
        return role not in self._task.optional and not (
            role in _LABEL_ROLES and self._is_test
        )

    def _key(self, role):
        """Find the keys of a role's columns in table rows: a tuple, or None."""
        candidates = self._task.columns[role]
        if role in self._given:
            names = self._folded if self._has_header else ()
            candidates = [_parsed(self._given[role], names)]
        for candidate in candidates:
            parts = candidate if isinstance(candidate, tuple) else (candidate,)
            key = [self._position(part, role) for part in parts]
            if None not in key:
                return tuple(key)
        if self._needs(role) or (
            role in self._given and role not in _LABEL_ROLES
        ):
            self._refuse(role, candidates)
        return None

    def _position(self, part, role):
        table = self._table
        if isinstance(part, int):
            is_usable = not self._has_header or role in self._given
            if not self._needs(role) and part >= len(table.names):
                return None  # texts to predict have no labels
            return part if is_usable and not table.is_named else None
        if table.names.count(part) == 1:
            return table.keys[table.names.index(part)]
        folded = part.casefold()
        if folded not in self._folded:
            return None
        is_wanted = self._needs(role) or role in self._given
        is_twice = self._folded.count(folded) > 1
        if is_twice and is_wanted and not table.is_named:
            raise ValueError(
                f"{table.place}: several columns are named {part!r}. Give each "
                f"a name of its own, or a number: --columns {role}=NUMBER."
            )
        return table.keys[self._folded.index(folded)]

    def _refuse(self, role, candidates):
        looked_for = ", ".join(
            "+".join(map(str, one)) if isinstance(one, tuple) else str(one)
            for one in candidates
        )
        notes = "".join(f" {x}." for x in self._table.counted.lines())
        if title := self._title():
            notes += f" Is {title!r} in the first row a title? Remove it."
        roles = [x for x in self._task.columns if self._needs(x) or x == role]
        given = {**self._given, role: "COLUMN"}
        form = ",".join(f"{x}={given.get(x, 'COLUMN')}" for x in roles)
        raise ValueError(
            f"{self._table.place}: no column for `{role}` (looked for "
            f"{looked_for}). Columns: {', '.join(self._table.names)[:500]}. "
            f"Name yours: --columns {form}{notes and '.'}{notes}"
        )

    def _title(self):
        """Return the text of the first row if the row is a title, else ""."""
        if self._table.is_named:
            return ""
        first, *below = (
            list(filter(None, cells)) for cells in self._table.head(_NAME_ROWS)
        )
        names = [
            [x.strip().casefold() for cell in cells for x in _DIVIDED(cell)]
            for cells in filter(None, below)
        ]
        is_alone = len(first) == 1 and names and len(names[0]) > 1
        is_divided = len(_DIVIDED(first[0])) > 1
        if is_alone and not is_divided or any(map(self._are_usual, names)):
            return ", ".join(first)
        return ""

    def _values_reader(self):
        """Make the function that converts a row to a dict of role to value."""
        table, task = self._table, self._task
        keys = {role: key for role, key in self._keys.items() if key}
        absent = dict.fromkeys(self._keys.keys() - keys)
        getters = {role: _getter(key) for role, key in keys.items()}
        lists = keys.get("label", ()) if task.kind == "multi_label" else ()
        if len(lists) > 1:
            getters["label"] = self._flag_reader(lists)
        # In published tables, rows may be longer. Further fields are ignored.
        width = len(table.names) if task.folder is None else math.inf
        optional = {
            key
            for role in (*task.optional, *_LABEL_ROLES)
            for key in keys.get(role, ())
        }
        used = dict.fromkeys(itertools.chain(*keys.values()))
        # If columns are joined, some of them may be empty, but not all.
        needed = [key for key in keys.values() if not optional.issuperset(key)]

        def read(row):
            if table.is_named:
                row = {
                    key: _cell_text(
                        row.get(key) if key in optional else row[key],
                        key,
                        key in lists,
                    )
                    for key in used
                }
                for key in needed:
                    if all(row[part] is None for part in key):
                        raise ValueError(f"{key[0]!r} is null.")
            elif len(row) > width and any(row[width:]):
                raise ValueError(
                    f"{len(row)} fields where the first row has {width}. A "
                    "text with the separator in it must be quoted (.csv)."
                )
            return absent | {role: get(row) for role, get in getters.items()}

        return read

    def _flag_reader(self, keys):
        """Make the function that lists which label columns of a row hold 1.

        The function returns None for a row in which all label columns are
        empty.
        """
        table = self._table

        def read(row):
            if all(row[key] in (None, "") for key in keys):
                return None
            names = []
            for key in keys:
                name = key if table.is_named else table.names[key]
                flag = row[key] or "0"
                if isinstance(flag, str):
                    flag = FLAGS.get(flag.strip().casefold() or "0")
                if not isinstance(flag, bool):
                    raise ValueError(
                        f"the column {name!r} of a label must hold 0 or 1, not "
                        f"{row[key]!r}."
                    )
                if flag:
                    names.append(name)
            return names

        return read


def _parsed(name, names):
    """Parse a column given by a user: names or indices joined by `+`."""
    parts = [name] if name.casefold() in names else name.split("+")
    return tuple(
        int(part) if part.isdecimal() and part not in names else part
        for part in parts
    )


def _getter(key):
    """Make the function that joins the texts in the columns `key` of a row."""
    get = operator.itemgetter(*key)
    if len(key) == 1:
        return get
    return lambda row: " ".join(filter(None, get(row)))


def _cell_text(value, key, may_be_list=False):
    """Convert a JSON value to a text or texts; a missing value becomes None."""
    if may_be_list and isinstance(value, list):
        texts = (_cell_text(x, key) for x in value)
        return [text for text in texts if text is not None]
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, float) and math.isnan(value):
        return None  # a missing value of pandas
    if isinstance(value, (bool, int, float)):
        return json.dumps(value)
    if isinstance(value, bytes):
        raise ValueError(f"{key!r} is not UTF-8.")
    raise ValueError(f"{key!r} is neither a string nor a number.")


def guess_columns(table, task, given):
    """Guess the columns of a task that have no usual name and are not given.

    Args:
        table: Table.
        task: TaskSpec.
        given: dict from `parse_columns`.

    Returns:
        dict of role to the name of the guessed column. Empty if all columns
        have usual names or if no guess is certain.
    """
    known = _known(table, task, given)
    needed = _needed(task, known)
    if task.reader != "table" or task.folder is not None or not needed:
        return {}
    texts = _texts_by_name(table)
    if not texts or not (
        known or table.is_named or is_header(table.head(_GUESS_ROWS))
    ):
        return {}
    used = {part for name in known.values() for part in name.split("+")}
    free = {
        name: values
        for name, values in texts.items()
        if name not in used | set(known.values())
        and name.casefold() not in _IDS
    }
    guessed = _guess(free, needed, task.kind) or {}
    return {role: guessed[role] for role in task.columns if role in guessed}


def named_column(table, names):
    """Find a column of a table that has one of several names, str or None.

    Args:
        table: Table.
        names: tuple of str or int, the preferred name first.
    """
    folded = {name.casefold(): name for name in reversed(table.names)}
    usual = (str(name).casefold() for name in names)
    return next((folded[name] for name in usual if name in folded), None)


def has_columns(table, task, columns):
    """Whether a table has the columns of an earlier table, bool.

    A number that is no column name is an index. If a column is given by its
    index, the result is True only if the table probably has no header. A table
    probably has no header if its rows are lists, and at least one required role
    has no column with a usual name.

    Args:
        table: Table.
        task: TaskSpec.
        columns: dict from `parse_columns`, the columns of the earlier table.

    Returns:
        bool.
    """
    names = [name.casefold() for name in table.names]
    parts = []
    for column in map(str.casefold, columns.values()):
        parts += [column] if column in names else column.split("+")
    missing = [part for part in parts if part not in names]
    if not missing or not all(map(str.isdecimal, missing)):
        return not missing
    return not table.is_named and bool(_needed(task, _known(table, task, {})))


def is_header(rows):
    """Whether a first row without usual names looks like a header, bool.

    Args:
        rows: list of list of str, the first rows.
    """
    first = [cell.strip() for cell in rows[0]]
    below = {cell.strip() for row in rows[1:] for cell in row}
    return len(rows) > 2 and all(
        cell
        and len(cell) <= _LONGEST_NAME
        and not _is_number(cell)
        and cell not in below
        for cell in first
    )


def _needed(task, known):
    """List the required roles whose columns are not known."""
    return [x for x in task.columns if x not in {*known, *task.optional}]


def _known(table, task, given):
    """Make a dict of role to column name for the known roles.

    A role is known if its column is given or has a usual name.
    """
    known = {}
    for role, names in task.columns.items():
        column = named_column(table, names)
        if role in given:
            column = named_column(table, (given[role],)) or given[role]
        if column is not None:
            known[role] = column
    return known


def _texts_by_name(table):
    """Make a dict of column name to the list of texts in the first rows.

    The dict is empty if names repeat or rows have different lengths.
    """
    rows, size = table.head(_GUESS_ROWS), len(table.names)
    if not table.is_named:
        rows = rows[1:]
    is_clear = table.is_named or all(len(row) == size for row in rows)
    if len(set(table.names)) < size or not is_clear:
        return {}
    if table.is_named:
        rows = [[_shown(row.get(key)) for key in table.keys] for row in rows]
    columns = map(list, zip(*rows, strict=True)) if rows else [[]] * size
    return dict(zip(table.names, columns, strict=True))


def _shown(value):
    if isinstance(value, list):
        return "|".join(map(str, value))
    return "" if value is None else str(value)


def _guess(free, needed, kind):
    """Guess a dict of role to column for the needed roles; None if unclear."""
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
        return None  # "+" would join columns
    return guessed if set(needed) == set(guessed) else None


def _label(free, kind):
    """Guess a list of the names of the label's columns; None if unclear."""
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


def _is_number(cell):
    try:
        return math.isfinite(float(cell))
    except ValueError:
        return False


def _is_numbers(values):
    """Whether all are numbers, neither all equal nor row numbers, bool."""
    if not values or not all(map(_is_number, values)):
        return False
    numbers = list(map(float, values))
    counted = [numbers[0] + i for i in range(len(numbers))]
    return len(set(numbers)) > 1 and (numbers != counted or len(numbers) < 3)


def _is_classes(values):
    kinds = set(values)
    return (
        "" not in kinds
        and 1 < len(kinds) <= min(max(2, len(values) // 3), _MOST_CLASSES)
        and max(map(len, kinds)) <= _LONGEST_NAME
    )


def _is_flags(values):
    return bool(values) and {x.strip().casefold() for x in values} <= set(FLAGS)


def _is_text(values):
    """Whether values are probably texts: several words each, few repeated."""
    words = sum(len(x.split()) for x in values)
    return words >= 2 * len(values) and len(set(values)) > len(values) / 2
