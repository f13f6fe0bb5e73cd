"""The sizes and switches of an XLNet, and the files that hold them.

One frozen object holds everything that decides the numbers a model computes.
It reads the released `xlnet_config.json`, Hugging Face's `config.json` and its
own output, and writes the released format with our additions under their own
names.
"""

import dataclasses
import reprlib
from collections.abc import Callable
from typing import NamedTuple

from xlnet_tf.files import as_path
from xlnet_tf.files import read_json_object
from xlnet_tf.files import write_json

# L, N, D and F; heads of all of them have 64 dimensions.
_SIZES = {
    "tiny": (2, 2, 128, 512),
    "small": (6, 4, 256, 1024),
    "base": (12, 12, 768, 3072),
    "large": (24, 16, 1024, 4096),
}


class _Range(NamedTuple):
    """Values of a field: their types, their range, and the words for both."""

    types: type | tuple
    kind: str
    words: str
    holds: Callable


# More would be a damaged file, and take hours to build.
_MOST_LAYERS = 1000
_SIZE = _Range(int, "an integer", "at least 1", lambda x: x >= 1)
_LENGTH = _Range(int, "an integer", "at least 0", lambda x: x >= 0)
_SWITCH = _Range(bool, "true or false", "", lambda x: True)
_RATE = _Range((int, float), "a number", "in [0, 1)", lambda x: 0 <= x < 1)
_POSITIVE = _Range((int, float), "a number", "positive", lambda x: x > 0)


def _one_of(*choices):
    words = f"one of {', '.join(map(repr, choices))}"
    return _Range(object, "", words, choices.__contains__)


def _field(default, values, released=None, hugging_face=None):
    """A field with its range and its names in files of others."""
    names = {"released": released, "hugging_face": hugging_face}
    return dataclasses.field(
        default=default, metadata={"range": values, **names}
    )


def _check(name, value, allowed):
    # bool is an int to Python.
    is_number = allowed.types in (int, (int, float))
    is_kind = isinstance(value, allowed.types)
    is_kind = is_kind and not (is_number and isinstance(value, bool))
    if not is_kind or not allowed.holds(value):
        error = ValueError if is_kind else TypeError
        raise error(
            f"`{name}` must be {allowed.words if is_kind else allowed.kind}. "
            # A value of a file may be as long as the file.
            f"Received: {name}={reprlib.repr(value)}."
        )


def python_number(value):
    """A number of NumPy's as Python's; other values as they are.

    Keras and JSON take no others.
    """
    is_scalar = getattr(value, "shape", None) == () and hasattr(value, "item")
    return value.item() if is_scalar else value


@dataclasses.dataclass(frozen=True)
class XLNetConfig:
    """Sizes and switches that decide the numbers of an XLNet.

    The defaults are XLNet-Base as released (`ff_activation` "gelu" in its tanh
    form). Values are checked here once; the layers trust them.

    Args:
        vocabulary_size: int, V.
        num_layers: int, L, at most 1000.
        num_heads: int, N.
        hidden_dim: int, D; even, because half of R is sines, half cosines.
        head_dim: int, H; by default `hidden_dim // num_heads`.
        intermediate_dim: int, F, the inner width of the feed-forward.
        activation: "gelu" or "relu", in the feed-forward.
        gelu: "tanh" (the approximation of the released code, default) or "erf"
            (weights trained in Hugging Face's code).
        untie_biases: bool, whether every layer has its own u, v and segment
            bias (released `untie_r`). Default True.
        memory_length: int, M, how many states of a layer the next segment may
            attend; 0 (default) means no memory.
        reuse_length: int, how many leading tokens of a segment enter the
            memory; 0 (default) means all of them.
        clamp_length: int, largest distance that R tells apart, both ways; 0
            (default) means no limit. The released -1 is read as 0.
        same_length: bool, let every token of a causal model see equally many
            keys. Default False.
        attention_type: "bidirectional" (default) or "causal" (released
            `attn_type` "bi", "uni").
        reverse_half_batch: bool, the second half of every batch reads
            backwards (released `bi_data`); prefer the feature `is_reversed`.
        dropout: float in [0, 1), default 0.1.
        attention_dropout: float in [0, 1), default 0.1, on attention
            probabilities.
        initializer_range: float, standard deviation of the initial weights,
            default 0.02.
        layer_norm_epsilon: float, default 1e-12 as released.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range, or values contradict.

    Source: `XLNetConfig` and `RunConfig` of the released code in one.

    Example:

    ```python
    config = xlnet_tf.XLNetConfig.from_size("tiny", vocabulary_size=1000)
    config = config.replace(memory_length=64)
    assert xlnet_tf.XLNetConfig.from_dict(config.to_dict()) == config
    ```
    """

    vocabulary_size: int = _field(32000, _SIZE, "n_token", "vocab_size")
    num_layers: int = _field(12, _SIZE, "n_layer")
    num_heads: int = _field(12, _SIZE, "n_head")
    hidden_dim: int = _field(768, _SIZE, "d_model")
    head_dim: int | None = _field(None, _SIZE, "d_head")
    intermediate_dim: int = _field(3072, _SIZE, "d_inner")
    activation: str = _field("gelu", _one_of("gelu", "relu"), "ff_activation")
    gelu: str = _field("tanh", _one_of("tanh", "erf"))
    untie_biases: bool = _field(True, _SWITCH, "untie_r")
    memory_length: int = _field(0, _LENGTH)
    reuse_length: int = _field(0, _LENGTH)
    clamp_length: int = _field(0, _LENGTH, hugging_face="clamp_len")
    same_length: bool = _field(False, _SWITCH)
    attention_type: str = _field(
        "bidirectional", _one_of("bidirectional", "causal")
    )
    reverse_half_batch: bool = _field(False, _SWITCH, hugging_face="bi_data")
    dropout: float = _field(0.1, _RATE)
    attention_dropout: float = _field(0.1, _RATE)
    initializer_range: float = _field(0.02, _POSITIVE)
    layer_norm_epsilon: float = _field(
        1e-12, _POSITIVE, hugging_face="layer_norm_eps"
    )

    def __post_init__(self):
        for field in dataclasses.fields(self):
            value = python_number(getattr(self, field.name))
            object.__setattr__(self, field.name, value)
            if not (value is None and field.default is None):
                _check(field.name, value, field.metadata["range"])
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
        if self.hidden_dim % 2:
            raise ValueError(
                "`hidden_dim` must be even, because half of the position "
                "encoding is sines and half cosines. "
                f"Received: hidden_dim={self.hidden_dim}."
            )
        if self.same_length and self.attention_type != "causal":
            raise ValueError(
                "`same_length` limits how far back a causal model looks; set "
                '`attention_type` to "causal" or `same_length` to false. '
                f"Received: attention_type={self.attention_type!r}."
            )

    @classmethod
    def from_size(cls, size, **overrides):
        """The config of a named size: tiny, small, base or large.

        Args:
            size: str. "base" and "large" are the released models; "tiny" and
                "small" are for laptops, tests and demonstrations.
            **overrides: fields to replace, such as `vocabulary_size`.

        Returns:
            XLNetConfig.

        Raises:
            ValueError: if there is no such size.
        """
        if size not in _SIZES:
            raise ValueError(
                f"`size` must be one of {', '.join(_SIZES)}, or use "
                f"`from_json` for a file. Received: size={size!r}."
            )
        names = "num_layers", "num_heads", "hidden_dim", "intermediate_dim"
        sizes = dict(zip(names, _SIZES[size], strict=True), head_dim=64)
        return cls(**{**sizes, **overrides})

    @classmethod
    def from_dict(cls, values):
        """The config of a dict with our, the released or Hugging Face's names.

        Args:
            values: dict. Keys of Hugging Face's that do not concern the
                model's numbers are ignored.

        Returns:
            XLNetConfig.

        Raises:
            ValueError: if a needed size is missing or a key is unknown.
        """
        # The first of Hugging Face's, of 2019, name neither type nor class.
        is_hugging_face = bool(
            {"model_type", "architectures", "layer_norm_eps"} & set(values)
        )
        values = dict(values)
        fields = {}
        for field in dataclasses.fields(cls):
            names = [field.name, field.metadata["released"]]
            if is_hugging_face:
                names.append(field.metadata["hugging_face"])
            for name in names:
                if name in values:
                    fields[field.name] = values.pop(name)
        _translate_values(fields, values, is_hugging_face)
        missing = [
            f"{ours} (or {released})"
            for ours, released in (
                ("num_layers", "n_layer"),
                ("num_heads", "n_head"),
                ("hidden_dim", "d_model"),
            )
            if ours not in fields
        ]
        if missing:
            raise ValueError(
                f"the config lacks {', '.join(missing)}. Is this the "
                "config of an XLNet?"
            )
        if values and not is_hugging_face:
            raise ValueError(
                f"the config has unknown keys: {', '.join(sorted(values))}. "
                "Known are those of the released xlnet_config.json and: "
                f"{', '.join(f.name for f in dataclasses.fields(cls))}."
            )
        return cls(**fields)

    @classmethod
    def from_json(cls, path):
        """Reads a released `xlnet_config.json`, or Hugging Face's, or ours.

        Args:
            path: str or path of a JSON file.

        Returns:
            XLNetConfig.

        Raises:
            FileNotFoundError: if there is no such file.
            ValueError: if it is not JSON, or not the config of an XLNet.
        """
        path = as_path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"there is no config file at {path}; give a file such as "
                f"xlnet_config.json, or one of the sizes {', '.join(_SIZES)}."
            )
        values = read_json_object(path)
        try:
            return cls.from_dict(values)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{path}: {error}") from error

    def to_dict(self):
        """All fields under our names, ready for `from_dict`."""
        return dataclasses.asdict(self)

    def to_json(self, path):
        """Writes the released format, with other fields under our names.

        Fields without a released name are written where they differ from the
        default, and `memory_length` always: pretraining takes a file without
        it for one that leaves the choice open. The released code passes over
        what it does not know.

        Args:
            path: str or path of the file to write.
        """
        values = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            released = field.metadata["released"]
            is_needed = released or field.name == "memory_length"
            if is_needed or value != field.default:
                values[released or field.name] = value
        write_json(path, values, sort_keys=True)

    def num_parameters(self):
        """The number of weights of a backbone of these sizes, int."""
        width, heads = self.hidden_dim, self.num_heads * self.head_dim
        feed_forward = 2 * width * self.intermediate_dim + self.intermediate_dim
        # Two norms, the output's bias, and the encoding of segments.
        layer = 5 * width * heads + feed_forward + 5 * width + 2 * heads
        biases = 3 * heads * (self.num_layers if self.untie_biases else 1)
        return (
            (self.vocabulary_size + 1) * width
            + self.num_layers * layer
            + biases
        )

    def replace(self, **overrides):
        """A copy with some fields replaced.

        Raises:
            ValueError: if a name is not a field.
        """
        unknown = set(overrides) - set(self.to_dict())
        if unknown:
            raise ValueError(
                f"XLNetConfig has no field {', '.join(sorted(unknown))}. "
                f"Its fields are: {', '.join(self.to_dict())}."
            )
        return dataclasses.replace(self, **overrides)


def _translate_values(fields, values, is_hugging_face):
    """Translates the values of other formats, not their names, in place."""
    attention_types = {"bi": "bidirectional", "uni": "causal"}
    if "attn_type" in values:
        kind = str(values.pop("attn_type"))
        fields["attention_type"] = attention_types.get(kind, kind)
    if (fields.get("clamp_length") or 0) == -1:
        fields["clamp_length"] = 0
    if is_hugging_face:
        # Where it is not causal, that code does not look at this.
        if fields.get("attention_type", "bidirectional") != "causal":
            fields["same_length"] = False
        # Its memory is an argument of each call there.
        for ours, theirs in (
            ("memory_length", "mem_len"),
            ("reuse_length", "reuse_len"),
        ):
            fields.setdefault(ours, values.get(theirs) or 0)
        fields.setdefault("attention_dropout", fields.get("dropout", 0.1))
        # Its "gelu" is the erf form; the released form has other names.
        if fields.get("activation") in ("gelu_new", "gelu_pytorch_tanh"):
            fields.update(activation="gelu", gelu="tanh")
        elif fields.get("activation", "gelu") == "gelu":
            fields["gelu"] = "erf"
        else:
            fields.setdefault("gelu", "erf")
