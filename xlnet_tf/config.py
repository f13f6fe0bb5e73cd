"""The sizes and switches of an XLNet, and the files that hold them.

One frozen object says everything that decides the numbers a model computes.
It reads the released `xlnet_config.json`, Hugging Face's `config.json` and its
own output, and writes the released format with our additions under their own
names.
"""

import dataclasses
import json
import pathlib

# name here -> name in the released xlnet_config.json
_RELEASED_NAMES = {
    "vocabulary_size": "n_token",
    "num_layers": "n_layer",
    "num_heads": "n_head",
    "hidden_dim": "d_model",
    "head_dim": "d_head",
    "intermediate_dim": "d_inner",
    "activation": "ff_activation",
    "untie_biases": "untie_r",
}

# name here -> other names found in Hugging Face's config.json
_HUGGING_FACE_NAMES = {
    "vocabulary_size": "vocab_size",
    "initializer_range": "initializer_range",
    "layer_norm_epsilon": "layer_norm_eps",
    "dropout": "dropout",
    "clamp_length": "clamp_len",
    "same_length": "same_length",
    "reverse_half_batch": "bi_data",
}

_SIZES = {
    "tiny": dict(
        num_layers=2,
        num_heads=2,
        hidden_dim=128,
        head_dim=64,
        intermediate_dim=512,
    ),
    "small": dict(
        num_layers=6,
        num_heads=4,
        hidden_dim=256,
        head_dim=64,
        intermediate_dim=1024,
    ),
    "base": dict(
        num_layers=12,
        num_heads=12,
        hidden_dim=768,
        head_dim=64,
        intermediate_dim=3072,
    ),
    "large": dict(
        num_layers=24,
        num_heads=16,
        hidden_dim=1024,
        head_dim=64,
        intermediate_dim=4096,
    ),
}


@dataclasses.dataclass(frozen=True)
class XLNetConfig:
    """Everything that decides what an XLNet computes.

    The defaults are XLNet-Base as released (`ff_activation` "gelu" in its tanh
    form). Values are checked here once; the layers trust them.

    Args:
        vocabulary_size: int, V.
        num_layers: int, L.
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
    """

    vocabulary_size: int = 32000
    num_layers: int = 12
    num_heads: int = 12
    hidden_dim: int = 768
    head_dim: int | None = None
    intermediate_dim: int = 3072
    activation: str = "gelu"
    gelu: str = "tanh"
    untie_biases: bool = True
    memory_length: int = 0
    reuse_length: int = 0
    clamp_length: int = 0
    same_length: bool = False
    attention_type: str = "bidirectional"
    reverse_half_batch: bool = False
    dropout: float = 0.1
    attention_dropout: float = 0.1
    initializer_range: float = 0.02
    layer_norm_epsilon: float = 1e-12

    def __post_init__(self):
        if self.head_dim is None:
            object.__setattr__(self, "head_dim", self._derived_head_dim())
        for name in (
            "vocabulary_size",
            "num_layers",
            "num_heads",
            "hidden_dim",
            "head_dim",
            "intermediate_dim",
        ):
            self._check_int(name, minimum=1)
        for name in ("memory_length", "reuse_length", "clamp_length"):
            self._check_int(name, minimum=0)
        for name in ("untie_biases", "same_length", "reverse_half_batch"):
            if not isinstance(getattr(self, name), bool):
                raise TypeError(
                    f"`{name}` must be true or false. "
                    f"Received: {name}={getattr(self, name)!r}."
                )
        for name in ("dropout", "attention_dropout"):
            self._check_float(name, "in [0, 1)", lambda x: 0 <= x < 1)
        for name in ("initializer_range", "layer_norm_epsilon"):
            self._check_float(name, "positive", lambda x: x > 0)
        self._check_choice("activation", ("gelu", "relu"))
        self._check_choice("gelu", ("tanh", "erf"))
        self._check_choice("attention_type", ("bidirectional", "causal"))
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

    def _derived_head_dim(self):
        self._check_int("num_heads", minimum=1)
        self._check_int("hidden_dim", minimum=1)
        if self.hidden_dim % self.num_heads:
            raise ValueError(
                "`hidden_dim` must be a multiple of `num_heads` when "
                "`head_dim` is not given. Received: hidden_dim="
                f"{self.hidden_dim}, num_heads={self.num_heads}."
            )
        return self.hidden_dim // self.num_heads

    def _check_int(self, name, minimum):
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(
                f"`{name}` must be an integer. Received: {name}={value!r}."
            )
        if value < minimum:
            raise ValueError(
                f"`{name}` must be at least {minimum}. "
                f"Received: {name}={value}."
            )

    def _check_float(self, name, range_text, is_valid):
        value = getattr(self, name)
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise TypeError(
                f"`{name}` must be a number. Received: {name}={value!r}."
            )
        if not is_valid(value):
            raise ValueError(
                f"`{name}` must be {range_text}. Received: {name}={value}."
            )

    def _check_choice(self, name, choices):
        value = getattr(self, name)
        if value not in choices:
            raise ValueError(
                f"`{name}` must be one of {', '.join(map(repr, choices))}. "
                f"Received: {name}={value!r}."
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
        return cls(**{**_SIZES[size], **overrides})

    @classmethod
    def from_dict(cls, values):
        """Reads names of ours, of the released code or of Hugging Face.

        Args:
            values: dict. Keys of Hugging Face's that do not concern the
                model's numbers are passed over.

        Returns:
            XLNetConfig.

        Raises:
            ValueError: if a needed size is missing or a key is unknown.
        """
        # The first of Hugging Face's, of 2019, name neither.
        is_hugging_face = bool(
            {"model_type", "architectures", "layer_norm_eps"} & set(values)
        )
        values = dict(values)
        fields = {}
        for field in dataclasses.fields(cls):
            names = [field.name, _RELEASED_NAMES.get(field.name)]
            if is_hugging_face:
                names.append(_HUGGING_FACE_NAMES.get(field.name))
            for name in names:
                if name in values:
                    fields[field.name] = values.pop(name)
        _translate_values(fields, values, is_hugging_face)
        missing = [
            f"{name} (or {_RELEASED_NAMES[name]})"
            for name in ("num_layers", "num_heads", "hidden_dim")
            if name not in fields
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
        path = pathlib.Path(path)
        if not path.is_file():
            raise FileNotFoundError(
                f"there is no config file at {path}; give a file such as "
                f"xlnet_config.json, or one of the sizes {', '.join(_SIZES)}."
            )
        try:
            values = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise ValueError(f"{path} is not a JSON file: {error}.") from error
        if not isinstance(values, dict):
            raise ValueError(f"{path} does not hold a JSON object.")
        try:
            return cls.from_dict(values)
        except (TypeError, ValueError) as error:
            raise type(error)(f"{path}: {error}") from error

    def to_dict(self):
        """All fields under our names, ready for `from_dict`."""
        return dataclasses.asdict(self)

    def to_json(self, path):
        """Writes the released format; what it has no name for, under ours.

        A model without additions gives a file that the released code reads.

        Args:
            path: str or path of the file to write.
        """
        defaults = {f.name: f.default for f in dataclasses.fields(self)}
        values = {}
        for name, value in self.to_dict().items():
            if name in _RELEASED_NAMES:
                values[_RELEASED_NAMES[name]] = value
            elif value != defaults[name]:
                values[name] = value
        text = json.dumps(values, indent=2, sort_keys=True)
        pathlib.Path(path).write_text(text + "\n", encoding="utf-8")

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
    """Turns values, not only names, of other formats into ours, in place."""
    attention_types = {"bi": "bidirectional", "uni": "causal"}
    if "attn_type" in values:
        kind = str(values.pop("attn_type"))
        fields["attention_type"] = attention_types.get(kind, kind)
    if (fields.get("clamp_length") or 0) == -1:
        fields["clamp_length"] = 0
    if is_hugging_face:
        # Its memory is a choice of each call there, not of the model.
        for ours, theirs in (
            ("memory_length", "mem_len"),
            ("reuse_length", "reuse_len"),
        ):
            fields.setdefault(ours, values.get(theirs) or 0)
        fields.setdefault("attention_dropout", fields.get("dropout", 0.1))
        # Its "gelu" is the exact one, the released form has names of its own.
        if fields.get("activation") in ("gelu_new", "gelu_pytorch_tanh"):
            fields.update(activation="gelu", gelu="tanh")
        elif fields.get("activation", "gelu") == "gelu":
            fields["gelu"] = "erf"
        else:
            fields.setdefault("gelu", "erf")
