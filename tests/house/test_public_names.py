"""The public names: lazily loaded, documented, each class with an example.

`tests/slow/test_public_examples.py` runs the examples.
"""

import inspect
import json
import re
import types

import data_pipeline
import saved_models
import xlnet_tf
from tests.house import options
from tests.support.commands import python
from xlnet_tf.__main__ import COMMANDS

FENCE = re.compile(r"^ *```python\n(.*?)^ *```", re.DOTALL | re.MULTILINE)
MOST_LINES = 6
# What the commands do without until they have read their options.
HEAVY = ("keras", "tensorflow", "tensorflow_text", "orbit", "official", "torch")


def public():
    """dict of the full names in the three `__all__`s to what they name."""
    found = {}
    for package in (xlnet_tf, data_pipeline, saved_models):
        for name in package.__all__:
            value = getattr(package, name)
            if isinstance(value, types.ModuleType):
                found |= {
                    f"{value.__name__}.{x}": getattr(value, x)
                    for x in getattr(value, "__all__", ())
                }
            elif callable(value):
                found[f"{package.__name__}.{name}"] = value
    return found


def test_public_classes_have_an_example_of_six_lines():
    wrong = []
    for name, value in public().items():
        text = inspect.getdoc(value) or ""
        if not text.strip():
            wrong.append(f"{name} has no docstring")
        examples = FENCE.findall(text)
        if inspect.isclass(value) and not examples:
            wrong.append(f"{name} has no example")
        for example in examples:
            lines = [line for line in example.splitlines() if line.strip()]
            if len(lines) > MOST_LINES:
                wrong.append(f"{name}: {len(lines)} lines")
    assert not wrong, "\n".join(wrong)


def test_names_are_imported_when_they_are_used():
    for package in (xlnet_tf, data_pipeline, saved_models):
        assert set(package.__all__) <= set(dir(package))
        try:
            package.no_such_name  # noqa: B018
        except AttributeError as error:
            assert "no_such_name" in str(error)
        else:
            raise AssertionError(f"{package.__name__}.no_such_name")


def test_importing_the_packages_loads_nothing_heavy():
    program = (
        "import sys, xlnet_tf, data_pipeline, saved_models\n"
        f"print([x for x in {HEAVY} if x in sys.modules])\n"
        "print([x for x in sys.modules if x.startswith('data_pipeline.')])"
    )
    result = python("-c", program)
    assert result.stdout == "[]\n[]\n", result.stderr


def test_no_command_loads_anything_heavy_for_its_help():
    """One process makes the parser of each, in turn."""
    program = (
        "import sys\n"
        "from tests.house import options\n"
        "from xlnet_tf.__main__ import COMMANDS\n"
        "for name, _ in COMMANDS.values():\n"
        "    assert options.parser(name).format_help()\n"
        f"    print(name, [x for x in {HEAVY} if x in sys.modules])\n"
    )
    result = python("-c", program, status=None)
    expected = "".join(f"{name} []\n" for name, _ in COMMANDS.values())
    assert result.stdout == expected, result.stderr


def test_options_of_the_commands():
    """`python -m tests.house.options` writes the list anew."""
    kept = json.loads(options.FILE.read_text(encoding="utf-8"))
    found = options.options()
    assert set(found) == set(kept)
    for command in kept:
        assert found[command] == kept[command], command
