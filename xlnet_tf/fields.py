"""Ranges of a configuration's fields: kept as metadata, checked in one loop."""

import dataclasses

_WORDS = {int: "an integer", float: "a number", bool: "true or false"}


def check_fields(values):
    """Checks the fields of a dataclass by the ranges in their metadata.

    `type` is int, float or bool, `minimum` a number, `range` a pair of words
    and a predicate, and `choices` a tuple. None passes where it is the default.

    Args:
        values: instance of a dataclass.

    Raises:
        TypeError: if a value has another type.
        ValueError: if a value is out of its range.
    """
    for field in dataclasses.fields(values):
        value = getattr(values, field.name)
        if not (value is None and field.default is None):
            _check(field.name, value, field.metadata)


def _check(name, value, rule):
    kind = rule.get("type")
    types = (int, float) if kind is float else kind
    # bool is an int to Python.
    if kind and (
        not isinstance(value, types)
        or (isinstance(value, bool) and kind is not bool)
    ):
        raise TypeError(
            f"`{name}` must be {_WORDS[kind]}. Received: {name}={value!r}."
        )
    expected = None
    if "minimum" in rule and value < rule["minimum"]:
        expected = f"at least {rule['minimum']}"
    if "range" in rule and not rule["range"][1](value):
        expected = rule["range"][0]
    if "choices" in rule and value not in rule["choices"]:
        expected = f"one of {', '.join(map(repr, rule['choices']))}"
    if expected:
        raise ValueError(
            f"`{name}` must be {expected}. Received: {name}={value!r}."
        )
