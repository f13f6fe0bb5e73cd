"""Settings of commands: dataclasses that define options and settings files.

The metadata of a field are its range and help text. Each field has a check of
its value, an option on the command line and a key in a JSON or YAML file:

    @dataclasses.dataclass(frozen=True)
    class Recipe(Settings):
        steps: int = setting(1000, "optimizer steps in all", POSITIVE)
        decay: str = setting("linear", "of the rate", choices=DECAYS)

    add_options(parser, Recipe)               # --steps, --decay
    Recipe.read("recipe.yaml", options)       # options win over the file
"""

import argparse
import dataclasses
import math
import reprlib
import sys
import types
import typing

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.command_line import PRINT_CONFIG
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import parse_json
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import MOST_SETTINGS_BYTES
from data_pipeline.base.limits import check_length
from data_pipeline.base.limits import parse_yaml
from data_pipeline.base.models import RUN_FILE
from data_pipeline.base.models import TRAINING_FILE
from data_pipeline.base.suggestions import did_you_mean


class Range(typing.NamedTuple):
    """Range of a number.

    Attributes:
        integer: str, description of the range for ints.
        number: str, description of the range for floats.
        holds: function that returns True for a number in the range.
    """

    integer: str
    number: str
    holds: typing.Callable


POSITIVE = Range(
    "a positive integer", "a positive number", lambda x: 0 < x < math.inf
)
NOT_NEGATIVE = Range(
    "an integer from 0 up", "a number from 0 up", lambda x: 0 <= x < math.inf
)
_SEED = "an integer from 0 to 4294967295"
SEED = Range(_SEED, _SEED, lambda x: 0 <= x < 2**32)
FRACTION = Range("in [0, 1]", "in [0, 1]", lambda x: 0 <= x <= 1)
FRACTION_BELOW_1 = Range("in [0, 1)", "in [0, 1)", lambda x: 0 <= x < 1)
FRACTION_ABOVE_0 = Range("in (0, 1]", "in (0, 1]", lambda x: 0 < x <= 1)
FRACTION_BETWEEN = Range("in (0, 1)", "in (0, 1)", lambda x: 0 < x < 1)

# Largest values of an int64 tensor and of a float.
_LARGEST = {int: 2**63 - 1, float: sys.float_info.max}
_METAVARS = {int: "N", float: "X", str: "NAME", tuple: "NAME"}
_MOST_NAMES = 5  # in a message
_ITEMS = {str: "strings", int: "whole numbers"}  # in a tuple
_ANY = Range("an integer", "a number", lambda x: True)
# Aliases in a YAML file can make lists that contain themselves. Without limits,
# their text would be endless.
_SHOWN = reprlib.Repr()
_SHOWN.maxlevel, _SHOWN.maxstring, _SHOWN.maxother = 1, 120, 120


def setting(
    default,
    help,
    range=None,
    choices=None,
    metavar=None,
    meant=None,
    **facts,
):
    """Define a field of a settings dataclass.

    Args:
        default: default value, or `dataclasses.MISSING` for a required field.
        help: str, a phrase that describes the field, without the default.
        range: Range of a number, or None for any number.
        choices: tuple of str, the allowed strings, or None for any string.
        metavar: str, placeholder for the value in the option's help.
        meant: dict of wrong values (in lower case) to choices, or None. After
            such a wrong value, the error message suggests the choice.
        **facts: further metadata of the field, for the settings class.

    Returns:
        dataclasses.field.
    """
    metadata = {
        "help": help,
        "range": range,
        "choices": choices,
        "metavar": metavar,
        "meant": meant,
        **facts,
    }
    return dataclasses.field(default=default, metadata=metadata)


@dataclasses.dataclass(frozen=True)
class Settings:
    """Base class of settings; it checks the type and range of every field.

    Raises:
        TypeError: a value has the wrong type.
        ValueError: a value is out of its range.
    """

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = python_number(getattr(self, field.name))
            if kind_of(field)[0] is tuple:
                # For a tuple, a file may contain a list or a single string.
                value = (value,) if isinstance(value, str) else value
                value = tuple(value) if isinstance(value, list) else value
            object.__setattr__(self, field.name, value)
            check(field, value)

    @classmethod
    def of(cls, values):
        """Make settings from a dict of field names to values.

        Raises:
            ValueError, TypeError: see `read`.
        """
        refuse_unknown(cls, values, cls.__name__)
        return cls(**values)

    @classmethod
    def read(cls, path=None, options=None, **defaults):
        """Make settings from a file and options; options have precedence.

        Args:
            path: str or path of a JSON or YAML file, or None.
            options: argparse.Namespace or dict with the options of
                `add_options`, or None. An option with the value None counts as
                absent.
            **defaults: values that replace the fields' defaults.

        Raises:
            FileNotFoundError: the file does not exist.
            ValueError, TypeError: the file has unknown fields or wrong values.
        """
        given = read_file(cls, path) if path else {}
        return cls(**{**defaults, **given, **given_options(cls, options)})

    def to_dict(self):
        """Return a dict of all fields, for the constructor or a file."""
        return dataclasses.asdict(self)

    def to_yaml(self, skip=()):
        """Return YAML text of all fields, each with its description, str.

        Args:
            skip: names of fields to skip.
        """
        import yaml

        return "".join(
            f"# {field.metadata['help']}\n"
            + yaml.safe_dump({field.name: getattr(self, field.name)})
            for field in dataclasses.fields(self)
            if field.name not in skip
        )

    def require(self, *names):
        """Raise ValueError if a field that the command needs has no value.

        Args:
            *names: names of the needed fields.

        Raises:
            ValueError: a field is None or empty.
        """
        missing = [name for name in names if not getattr(self, name)]
        if missing:
            options = ", ".join("--" + x.replace("_", "-") for x in missing)
            raise ValueError(
                f"{options} must be given, as an option or as a key of a file "
                "of settings."
            )


def python_number(value):
    """Convert a NumPy number to a Python number; keep other values.

    Keras and JSON accept only Python numbers.
    """
    is_scalar = getattr(value, "shape", None) == () and hasattr(value, "item")
    return value.item() if is_scalar else value


def check(field, value):
    """Raise TypeError or ValueError if a field does not accept a value."""
    kind, may_be_none = kind_of(field)
    if kind is tuple:
        item = typing.get_args(field.type)[0]
        if type(value) is not tuple or any(type(x) is not item for x in value):
            raise TypeError(
                f"`{field.name}` must be a list of {_ITEMS[item]}. Received: "
                f"{field.name}={_SHOWN.repr(value)}."
            )
    elif value is not None or not may_be_none:
        metadata = field.metadata
        check_value(
            *(field.name, value, kind),
            *(metadata.get("range"), metadata.get("choices")),
            metadata.get("meant"),
        )


def check_value(name, value, kind, range=None, choices=None, meant=None):
    """Refuse a value of a wrong type, out of range or not among the choices.

    Args:
        name: str, name of the field or argument, for the message.
        value: any object.
        kind: the expected type: int, float, bool or str.
        range, choices, meant: see `setting`.

    Raises:
        TypeError: the value has another type.
        ValueError: the value is out of its range or not among the choices.
    """
    accepted = (int, float) if kind is float else kind
    is_kind = isinstance(value, accepted) and (
        kind is bool or not isinstance(value, bool)
    )
    range_ = range or _ANY
    if kind is bool:
        expected, holds = "true or false", _ANY.holds
    elif kind is str:
        expected = _listed(choices) if choices else "a string"
        holds = choices.__contains__ if choices else _ANY.holds
    else:
        expected = range_.integer if kind is int else range_.number
        holds = range_.holds
    is_held = is_kind and holds(value)
    if is_held and kind in _LARGEST and abs(value) > _LARGEST[kind]:
        expected, is_held = f"{expected} of 64 bits", False
    if not is_held:
        error = ValueError if is_kind else TypeError
        hint = _near_choice(value, choices, meant) if is_kind else ""
        raise error(
            f"`{name}` must be {expected}. "
            # `_SHOWN` shortens the value, which may be as long as a file.
            f"Received: {name}={_SHOWN.repr(value)}{hint or '.'}"
        )


def _listed(choices):
    """Format choices as text, such as "one of a, b or c"."""
    *others, last = choices
    one_of = "one of " if len(choices) > 2 else ""
    return f"{one_of}{', '.join(others)} or {last}" if others else last


def _near_choice(value, choices, meant):
    """Suggest a choice for an unknown value, see `did_you_mean`."""
    if not choices:
        return ""
    suggested = (meant or {}).get(value.lower())
    if suggested:
        return f"; did you mean {suggested}?"
    return did_you_mean(value, choices)


def kind_of(field):
    """Return a field's type and a bool: whether the value may be None."""
    if not isinstance(field.type, types.UnionType):
        return typing.get_origin(field.type) or field.type, False
    kinds = [kind for kind in field.type.__args__ if kind is not type(None)]
    return kinds[0], True


def read_file(cls, path):
    """Read a settings file as a dict of field names to values.

    Args:
        cls: class of settings.
        path: str or path, local or in a bucket. A file with the suffix `.yaml`
            or `.yml` is YAML, any other file is JSON.

    Raises:
        FileNotFoundError: the file does not exist.
        ValueError: the file does not contain an object, has unknown fields, is
            too long, or does not match its digest in the `SHA256SUMS` of its
            run or export.
    """
    path = as_path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file of settings at {path}.")
    check_length(path, size_of(path), MOST_SETTINGS_BYTES)
    _verify(path)
    is_yaml = path.suffix in (".yaml", ".yml")
    kind = "YAML" if is_yaml else "JSON"
    try:
        # `ValueError` includes `UnicodeDecodeError`.
        text = path.read_text(encoding="utf-8")
        values = parse_yaml(text) if is_yaml else parse_json(text)
    except (ValueError, RecursionError) as error:
        reason = str(error).rstrip(".")
        raise ValueError(f"{path} is not a {kind} file: {reason}.") from error
    if not isinstance(values, dict):
        raise ValueError(f"{path} does not hold a {kind} object.")
    advice = None
    if path.name == RUN_FILE:  # it contains no settings
        file = path.parent / TRAINING_FILE
        advice = f"The settings of a run are in {file}: give that file."
    refuse_unknown(cls, values, path, advice)
    return values


def refuse_unknown(cls, values, place, advice=None):
    """Refuse names that are not fields of a settings class.

    Args:
        cls: class of settings.
        values: dict of names to values.
        place: str, the origin of the values, for the message.
        advice: str, end of the message. Default None: the message ends with
            the known names.

    Raises:
        ValueError: a name is unknown.
    """
    known = [field.name for field in dataclasses.fields(cls)]
    unknown = sorted(str(name)[:80] for name in set(values) - set(known))
    if not unknown:
        return
    hint = did_you_mean(unknown[0], known) if len(unknown) == 1 else ""
    shown = unknown[:_MOST_NAMES]
    if len(unknown) > len(shown):
        shown.append(f"and {len(unknown) - len(shown)} more")
    raise ValueError(
        f"{place} has unknown fields: {', '.join(shown)}{hint or '.'} "
        + (advice or f"Known are: {', '.join(known)}.")
    )


def _verify(path):
    """Verify a file by the `SHA256SUMS` of its directory and of the parent.

    In a run, `SHA256SUMS` is beside the file. In an export, the file is in the
    folder `assets.extra`, and `SHA256SUMS` is beside this folder.
    """
    directory, name = path.parent, path.name
    verify_checksums(directory, [name])
    # The working directory, a bucket and the root have no parent directory
    # here.
    _, _, place = str(directory).rpartition("://")
    is_bucket = is_remote(directory) and "/" not in place.strip("/")
    if directory.name and not is_bucket:
        verify_checksums(directory.parent, [f"{directory.name}/{name}"])


def add_options(parser, cls, names=None, skip=(), defaults=None):
    """Add an option with the default None for each field of a settings class.

    Args:
        parser: argparse.ArgumentParser, or an argument group.
        cls: class of settings.
        names: names of the fields, in the order of the options. Default None:
            all fields, in the order of the class.
        skip: names of fields without an option.
        defaults: dict of field names to text that replaces the default value in
            the option's help, or None.
    """
    defaults = defaults or {}
    fields = {field.name: field for field in dataclasses.fields(cls)}
    for name in names or fields:
        if name in skip:
            continue
        field = fields[name]
        kind, _ = kind_of(field)
        # argparse formats the help text with the operator %.
        text = field.metadata["help"].replace("%", "%%")
        shows_default = field.default not in (None, (), dataclasses.MISSING)
        if name in defaults:
            text += f" ({defaults[name]})"
        elif shows_default:
            default = field.default
            shown = str(default).lower() if kind is bool else f"{default}"
            text += f" (default {shown})"
        option = "--" + name.replace("_", "-")
        if kind is bool:
            parser.add_argument(
                option,
                action=argparse.BooleanOptionalAction,
                default=None,
                help=text,
            )
            continue
        several = {"nargs": "+", "action": "extend"} if kind is tuple else {}
        parser.add_argument(
            option,
            type=str if kind is tuple else kind,
            metavar=field.metadata["metavar"]
            or _placeholder(field, _METAVARS[kind]),
            help=text,
            **several,
        )


def add_print_config(parser):
    """Add `--print-config`, which prints the command's settings and exits.

    Args:
        parser: data_pipeline.base.command_line.Parser.
    """
    parser.add_argument(
        PRINT_CONFIG,
        action="store_true",
        help="print all settings as a YAML file and exit",
    )


def _placeholder(field, default):
    choices = field.metadata["choices"]
    return "{" + ",".join(choices) + "}" if choices else default


def given_options(cls, options):
    """Return a dict of field names to the values given as options."""
    if options is None:
        return {}
    values = options if isinstance(options, dict) else vars(options)
    names = {field.name for field in dataclasses.fields(cls)}
    return {k: v for k, v in values.items() if k in names and v is not None}
