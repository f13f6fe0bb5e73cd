"""Config of an XLNet: sizes and switches of the model, and its config files.

The config class reads the released `xlnet_config.json`, Hugging Face's
`config.json`, and files that it has written itself. It writes the released
format with our additional fields.
"""

import dataclasses
import os

from data_pipeline.base.files import write_json
from data_pipeline.base.settings import FRACTION_BELOW_1
from data_pipeline.base.settings import NOT_NEGATIVE
from data_pipeline.base.settings import POSITIVE
from xlnet_tf.config.fields import TANH_GELUS
from xlnet_tf.config.fields import ModelConfig
from xlnet_tf.config.fields import check_model_type
from xlnet_tf.config.fields import check_sizes
from xlnet_tf.config.fields import field
from xlnet_tf.config.fields import list_names
from xlnet_tf.config.fields import take_fields


@dataclasses.dataclass(frozen=True)
class XLNetConfig(ModelConfig):
    """Sizes and switches that define the computation of an XLNet.

    The defaults are the released XLNet-Base, whose activation is the tanh form
    of GELU. The config checks all values; the layers do not check them again.

    Args:
        vocabulary_size: int, V.
        num_layers: int, L, at most 1000.
        num_heads: int, N.
        hidden_dim: int, D. D is even, because half of the relative position
            encoding is sines and half cosines.
        head_dim: int, H; by default `hidden_dim // num_heads`.
        intermediate_dim: int, F, the inner width of the feed-forward.
        activation: "gelu" or "relu", the activation in the feed-forward.
        gelu: form of GELU: "tanh" (default; the approximation in the released
            code) or "erf" (for weights trained in Hugging Face's code).
        untie_biases: bool, whether every layer has its own bias vectors u, v
            and b (`untie_r` in the released code). Default True.
        memory_length: int, M, number of tokens in the memory, to which the next
            segment may attend. 0 (default) means no memory.
        reuse_length: int, number of leading tokens of a segment that enter the
            memory. 0 (default) means all tokens.
        clamp_length: int, limit of distances in the relative position
            encoding, in both directions. 0 (default) means no limit. The
            value -1 of released files is read as 0.
        same_length: bool, whether every token of a causal model may attend only
            to itself and to the M tokens before it. Without memory there is no
            such limit: every token may attend to all earlier tokens. Default
            False.
        attention_type: "bidirectional" (default) or "causal" (`attn_type` "bi"
            or "uni" in the released code).
        reverse_half_batch: bool, whether the model reads the second half of
            every batch backwards (`bi_data` in the released code). Default
            False. Prefer the input feature `is_reversed`.
        dropout: float in [0, 1), dropout rate. Default 0.1.
        attention_dropout: float in [0, 1), dropout rate of the attention
            probabilities. Default 0.1.
        initializer_range: float, standard deviation of the initial weights.
            Default 0.02.
        layer_norm_epsilon: float. Default 1e-12, as in the released code.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range, or values contradict each
            other.

    Source: `XLNetConfig` and `RunConfig` of the released code.

    Example:

    ```python
    config = xlnet_tf.XLNetConfig.from_size("tiny", vocabulary_size=1000)
    config = config.replace(memory_length=64)
    assert xlnet_tf.XLNetConfig.from_dict(config.to_dict()) == config
    ```
    """

    vocabulary_size: int = field(32000, POSITIVE, "n_token", "vocab_size")
    num_layers: int = field(12, POSITIVE, "n_layer")
    num_heads: int = field(12, POSITIVE, "n_head")
    hidden_dim: int = field(768, POSITIVE, "d_model")
    head_dim: int | None = field(None, POSITIVE, "d_head")
    intermediate_dim: int = field(3072, POSITIVE, "d_inner")
    activation: str = field("gelu", ("gelu", "relu"), "ff_activation")
    gelu: str = field("tanh", ("tanh", "erf"))
    untie_biases: bool = field(True, released="untie_r")
    memory_length: int = field(0, NOT_NEGATIVE)
    reuse_length: int = field(0, NOT_NEGATIVE)
    clamp_length: int = field(0, NOT_NEGATIVE, hugging_face="clamp_len")
    same_length: bool = field(False)
    attention_type: str = field("bidirectional", ("bidirectional", "causal"))
    reverse_half_batch: bool = field(False, hugging_face="bi_data")
    dropout: float = field(0.1, FRACTION_BELOW_1)
    attention_dropout: float = field(0.1, FRACTION_BELOW_1)
    initializer_range: float = field(0.02, POSITIVE)
    layer_norm_epsilon: float = field(
        1e-12, POSITIVE, hugging_face="layer_norm_eps"
    )

    def __post_init__(self):
        super().__post_init__()
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

    @property
    def layout(self):
        """Layout of sequences, always "xlnet": [CLS] is the last token."""
        return "xlnet"

    @classmethod
    def from_dict(cls, values: dict) -> "XLNetConfig":
        """Make a config from a dict with our, released or Hugging Face's names.

        Args:
            values: dict. Keys of Hugging Face that do not affect the model's
                outputs are ignored.

        Returns:
            XLNetConfig.

        Raises:
            ValueError: if a required size is missing or a key is unknown.
        """
        is_hugging_face = is_of_hugging_face(values)
        values = dict(values)
        check_model_type(values, ("xlnet",), "an XLNet")
        formats = ("released", "hugging_face")
        fields = take_fields(
            cls, values, formats if is_hugging_face else formats[:1]
        )
        _translate_values(fields, values, is_hugging_face)
        check_sizes(
            fields,
            {
                "num_layers": "n_layer",
                "num_heads": "n_head",
                "hidden_dim": "d_model",
            },
            "an XLNet",
        )
        if values and not is_hugging_face:
            raise ValueError(
                f"the config has unknown keys: {list_names(values)}. "
                "Known are those of the released xlnet_config.json and: "
                f"{', '.join(cls.field_names())}."
            )
        return cls(**fields)

    def to_json(self, path: str | os.PathLike) -> None:
        """Write a config file in the released format, with additional fields.

        A field without a released name is written under our name if its value
        differs from the default. `memory_length` is always written, because
        pretraining chooses a memory length if the file lacks this field. The
        released code ignores unknown fields.

        Args:
            path: str or path of the file to write.
        """
        values = {}
        for item in dataclasses.fields(self):
            value = getattr(self, item.name)
            released = item.metadata["released"]
            is_needed = released or item.name == "memory_length"
            if is_needed or value != item.default:
                values[released or item.name] = value
        write_json(path, values, sort_keys=True)

    def num_parameters(self) -> int:
        """Return the number of weights of a backbone with this config, int."""
        width, heads = self.hidden_dim, self.num_heads * (self.head_dim or 0)
        feed_forward = 2 * width * self.intermediate_dim + self.intermediate_dim
        # 5 * width: two norms and the bias of the feed-forward's output.
        # 2 * heads: the segment encoding.
        layer = 5 * width * heads + feed_forward + 5 * width + 2 * heads
        biases = 3 * heads * (self.num_layers if self.untie_biases else 1)
        return (
            (self.vocabulary_size + 1) * width
            + self.num_layers * layer
            + biases
        )


def is_of_hugging_face(values):
    """Whether a dict is a config of Hugging Face's XLNet.

    Hugging Face's earliest config files (2019) have neither `model_type` nor
    `architectures`, but have `layer_norm_eps`.
    """
    return not {"model_type", "architectures", "layer_norm_eps"}.isdisjoint(
        values
    )


def _translate_values(fields, values, is_hugging_face):
    """Replace values of other formats by our values, in place in `fields`."""
    attention_types = {"bi": "bidirectional", "uni": "causal"}
    if "attn_type" in values:
        kind = str(values.pop("attn_type"))
        fields["attention_type"] = attention_types.get(kind, kind)
    if fields.get("clamp_length") == -1:
        fields["clamp_length"] = 0
    if is_hugging_face:
        # Hugging Face's code ignores `same_length` unless attention is causal.
        if fields.get("attention_type", "bidirectional") != "causal":
            fields["same_length"] = False
        # Hugging Face's code gets the memory as an argument of each call, so
        # its files may lack these lengths.
        for ours, theirs in (
            ("memory_length", "mem_len"),
            ("reuse_length", "reuse_len"),
        ):
            fields.setdefault(ours, values.get(theirs) or 0)
        fields.setdefault("attention_dropout", fields.get("dropout", 0.1))
        # Hugging Face's "gelu" is the erf form. The tanh form of the released
        # code has other names there.
        if fields.get("activation") in TANH_GELUS:
            fields.update(activation="gelu", gelu="tanh")
        elif fields.get("activation", "gelu") == "gelu":
            fields["gelu"] = "erf"
        else:
            fields.setdefault("gelu", "erf")
