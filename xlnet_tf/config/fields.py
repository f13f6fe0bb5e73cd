"""Base class of the configs, named sizes, and functions that read config files.

A config is one frozen object that defines a model's whole computation. The
fields of a config are made and checked by `data_pipeline.base.settings`.
"""

import dataclasses
import os
import reprlib

from data_pipeline.base.files import as_path
from data_pipeline.base.files import read_json_object
from data_pipeline.base.settings import FRACTION_BELOW_1
from data_pipeline.base.settings import Range
from data_pipeline.base.settings import Settings
from data_pipeline.base.settings import check_value
from data_pipeline.base.settings import python_number
from data_pipeline.base.settings import setting

# (L, N, D, F) of each named size. H, the head dim, is always 64.
SIZES = {
    "tiny": (2, 2, 128, 512),
    "small": (6, 4, 256, 1024),
    "base": (12, 12, 768, 3072),
    "large": (24, 16, 1024, 4096),
}
# Hugging Face's names for the tanh form of GELU.
TANH_GELUS = ("gelu_new", "gelu_pytorch_tanh")
# A config with more layers is damaged, and building its model takes hours.
_MOST_LAYERS = 1000


def field(default, values=None, released=None, hugging_face=None):
    """Make a field of a config, with the field's names in other formats.

    Args:
        default: default value of the field.
        values: Range of a number, or tuple of the allowed strings.
        released, hugging_face: str, name of the field in released files and in
            Hugging Face's files. None (default): these files have our name for
            the field, or lack the field.

    Returns:
        dataclasses.field.
    """
    is_range = isinstance(values, Range)
    return setting(
        default,
        "",
        range=values if is_range else None,
        choices=None if is_range else values,
        released=released,
        hugging_face=hugging_face,
    )


def checked_rate(name, value):
    """Check a dropout rate and convert it to a Python number.

    Args:
        name: str, name of the argument, for the error message.
        value: number of Python or NumPy.

    Raises:
        TypeError, ValueError: if `value` is not a number in [0, 1).
    """
    value = python_number(value)
    check_value(name, value, float, FRACTION_BELOW_1)
    return value


class ModelConfig(Settings):
    """Base class of the configs, with named sizes and methods to read files.

    A subclass is a frozen dataclass with the method `from_dict`. The function
    `field` makes the fields of a subclass, which include `num_layers`,
    `num_heads`, `hidden_dim`, `head_dim` and `intermediate_dim`.

    Attributes:
        transform_activation: "gelu" or "relu", activation of the dense layer
            that some heads have before the tied softmax.
    """

    transform_activation = "gelu"

    def __post_init__(self):
        super().__post_init__()
        if self.num_layers > _MOST_LAYERS:
            raise ValueError(
                f"`num_layers` must be at most {_MOST_LAYERS}. "
                f"Received: num_layers={self.num_layers}."
            )
        if self.head_dim is None:
            if self.hidden_dim % self.num_heads:
                raise ValueError(
                    "`hidden_dim` must be a multiple of `num_heads` when "
                    "`head_dim` is not given. Received: hidden_dim="
                    f"{self.hidden_dim}, num_heads={self.num_heads}."
                )
            head_dim = self.hidden_dim // self.num_heads
            object.__setattr__(self, "head_dim", head_dim)

    @classmethod
    def from_dict(cls, values: dict):
        """Make a config from a dict; see the subclasses."""
        raise NotImplementedError

    @classmethod
    def from_size(cls, size: str, **overrides):
        """Make a config of a named size: tiny, small, base or large.

        Args:
            size: str. "base" and "large" are the sizes of the released models.
                "tiny" and "small" are for laptops, tests and demonstrations.
            **overrides: fields to replace, such as `vocabulary_size`.

        Returns:
            A config of this class.

        Raises:
            ValueError: if there is no such size.
        """
        if size not in SIZES:
            raise ValueError(
                f"`size` must be one of {', '.join(SIZES)}, or use "
                f"`from_json` for a file. Received: size={size!r}."
            )
        names = "num_layers", "num_heads", "hidden_dim", "intermediate_dim"
        sizes = dict(zip(names, SIZES[size], strict=True), head_dim=64)
        return cls(**{**sizes, **overrides})

    @classmethod
    def from_json(cls, path: str | os.PathLike):
        """Read a config file of the release, of Hugging Face or of xlnet_tf.

        Args:
            path: str or path of a JSON file.

        Returns:
            A config of this class.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if the file is not JSON, or is not a config of this
                class.
        """
        return read_config_file(path, cls.from_dict)

    @classmethod
    def field_names(cls) -> list[str]:
        """Return the names of all fields, list of str."""
        return [item.name for item in dataclasses.fields(cls)]

    def replace(self, **overrides):
        """Return a copy of the config with some fields replaced.

        Raises:
            ValueError: if a name is not a field.
        """
        unknown = set(overrides) - set(self.field_names())
        if unknown:
            raise ValueError(
                f"{type(self).__name__} has no field "
                f"{', '.join(sorted(unknown))}. "
                f"Its fields are: {', '.join(self.field_names())}."
            )
        return dataclasses.replace(self, **overrides)


def read_config_file(path, from_dict):
    """Read a config file.

    Args:
        path: str or path of a JSON file.
        from_dict: function from the file's dict to a config.

    Returns:
        The result of `from_dict`.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if the file is not JSON, if it is the `config.json` of a
            preset, or if `from_dict` refuses its contents.
    """
    path = as_path(path)
    if not path.is_file():
        raise FileNotFoundError(
            f"there is no config file at {path}; give a file such as "
            f"xlnet_config.json, or one of the sizes {', '.join(SIZES)}."
        )
    values = read_json_object(path)
    if {"class_name", "config"} <= set(values):
        raise ValueError(
            f"{path} is the config.json of a preset, not the config of a model "
            f"alone: to start from its weights give --preset {path.parent} (in "
            "Python `from_preset`)."
        )
    try:
        return from_dict(values)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{path}: {error}") from error


def take_fields(cls, values, formats):
    """Move the fields of a config out of a dict, and rename them to our names.

    Args:
        cls: class of the config.
        values: dict. The entries of fields are removed from this dict.
        formats: tuple of "released", "hugging_face" or both: formats whose
            names are accepted besides our names.

    Returns:
        dict of the fields that `values` had, by our names.
    """
    fields = {}
    for item in dataclasses.fields(cls):
        for name in (item.name, *(item.metadata[x] for x in formats)):
            if name in values:
                fields[item.name] = values.pop(name)
    return fields


def list_names(values):
    """Sort the keys of a config file; return the first 40 on one line, str."""
    return ", ".join(reprlib.repr(name)[1:-1] for name in sorted(values)[:40])


def check_sizes(fields, names, kind):
    """Refuse a dict that lacks a required size.

    Args:
        fields: dict of the fields, by our names.
        names: dict of the required sizes. The keys are our names, the values
            are the names in other libraries' files.
        kind: str, kind of the model, such as "an XLNet".

    Raises:
        ValueError: if a size is missing; the message lists the missing sizes.
    """
    missing = [f"{x} (or {y})" for x, y in names.items() if x not in fields]
    if missing:
        raise ValueError(
            f"the config lacks {', '.join(missing)}. Is this the config of "
            f"{kind}?"
        )


def check_model_type(values, known, kind):
    """Refuse a dict whose `model_type` names a model of another kind.

    A dict without `model_type` is accepted.

    Args:
        values: dict, the contents of a config file.
        known: tuple of str, the accepted values of `model_type`.
        kind: str, kind of the model, such as "an XLNet".

    Raises:
        ValueError: if `model_type` is not in `known`.
    """
    found = values.get("model_type")
    if found is not None and found not in known:
        raise ValueError(
            f"`model_type` of the config of {kind} must be "
            f"{' or '.join(known)}. Received: model_type={reprlib.repr(found)}."
        )
