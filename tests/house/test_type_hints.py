"""The hints of the public functions and constructors."""

import inspect
import pathlib

from tests.conftest import ROOT
from tests.house.test_public_names import public


def of_this_project(value):
    file = pathlib.Path(inspect.getsourcefile(value) or "")
    return file.is_relative_to(ROOT) and ".venv" not in file.parts


def callables():
    """(name, function) of all; for a class its constructor, if it is ours."""
    for name, value in public().items():
        if inspect.isfunction(value):
            yield name, value
        if not inspect.isclass(value):
            continue
        owner = next(x for x in value.__mro__ if "__init__" in vars(x))
        if owner is not object and of_this_project(owner):
            yield name, owner.__init__


def test_parameters_have_hints():
    wrong, count = [], 0
    for name, function in callables():
        parameters = inspect.signature(function).parameters.values()
        for parameter in parameters:
            if parameter.name in ("self", "cls") or parameter.kind in (
                parameter.VAR_POSITIONAL,
                parameter.VAR_KEYWORD,
            ):
                continue
            count += 1
            if parameter.annotation is parameter.empty:
                wrong.append(f"{name}: {parameter.name}")
    assert count > 100
    assert not wrong, "\n".join(wrong)
