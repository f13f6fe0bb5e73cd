"""Config of a BERT: sizes and switches of the model, and its config files.

The config class reads Hugging Face's `config.json` of BERT and of MPNet,
UniLM's config files, and files that it has written itself.
"""

import dataclasses
import os
import reprlib

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

MODEL_TYPE = "bert"
# Values of `model_type` in files of this model.
MODEL_TYPES = (MODEL_TYPE, "mpnet", "unilm")
# MPNet numbers positions from 2: number 1 is for padding, 0 is never used.
MPNET_FIRST_POSITION = 2
_MPNET_BUCKETS, _MPNET_MAX_DISTANCE = 32, 128


@dataclasses.dataclass(frozen=True)
class BertConfig(ModelConfig):
    """Sizes and switches that define the computation of a BERT.

    The defaults are the released BERT-Base, uncased. With
    `relative_position_buckets=32` the model is UniLMv2. A BERT has no memory:
    `memory_length` and `reuse_length` are always 0. `attention_type` is always
    "bidirectional".

    Args:
        vocabulary_size: int, V.
        num_layers: int, L, at most 1000.
        num_heads: int, N.
        hidden_dim: int, D.
        head_dim: int, H; by default `hidden_dim // num_heads`.
        intermediate_dim: int, F, the inner width of the feed-forward.
        activation: "gelu" or "relu", the activation in the feed-forward.
        gelu: form of GELU, "erf" (default, as in the released code) or "tanh".
        max_positions: int, number of absolute positions with an embedding.
            Default 512.
        num_segments: int, number of segments with an embedding. 0 means that
            segments have no embeddings. Default 2.
        relative_position_buckets: int, number of buckets of distances. Each
            bucket has a row in the table of relative position biases, which all
            layers share. Half of the buckets are for keys after the query. The
            number is even and at least 4, or 0 (default) for no bias.
        relative_position_max_distance: int. In each half of the buckets, this
            distance and all larger distances share the last bucket. Default
            128.
        dropout: float in [0, 1), dropout rate. Default 0.1.
        attention_dropout: float in [0, 1), dropout rate of the attention
            probabilities. Default 0.1.
        initializer_range: float, standard deviation of the initial weights.
            Default 0.02.
        layer_norm_epsilon: float. Default 1e-12, as in the released code.

    Raises:
        TypeError: if a value is of the wrong kind.
        ValueError: if a value is out of its range.

    Source: `BertConfig` of https://github.com/google-research/bert.

    Example:

    ```python
    config = xlnet_tf.BertConfig.from_size("tiny", vocabulary_size=1000)
    config = config.replace(relative_position_buckets=32)
    assert xlnet_tf.BertConfig.from_dict(config.to_dict()) == config
    ```
    """

    vocabulary_size: int = field(30522, POSITIVE, hugging_face="vocab_size")
    num_layers: int = field(12, POSITIVE, hugging_face="num_hidden_layers")
    num_heads: int = field(12, POSITIVE, hugging_face="num_attention_heads")
    hidden_dim: int = field(768, POSITIVE, hugging_face="hidden_size")
    head_dim: int | None = field(None, POSITIVE)
    intermediate_dim: int = field(
        3072, POSITIVE, hugging_face="intermediate_size"
    )
    activation: str = field("gelu", ("gelu", "relu"), hugging_face="hidden_act")
    gelu: str = field("erf", ("tanh", "erf"))
    max_positions: int = field(
        512, POSITIVE, hugging_face="max_position_embeddings"
    )
    num_segments: int = field(2, NOT_NEGATIVE, hugging_face="type_vocab_size")
    relative_position_buckets: int = field(
        0, NOT_NEGATIVE, hugging_face="rel_pos_bins"
    )
    relative_position_max_distance: int = field(
        128, POSITIVE, hugging_face="max_rel_pos"
    )
    dropout: float = field(
        0.1, FRACTION_BELOW_1, hugging_face="hidden_dropout_prob"
    )
    attention_dropout: float = field(
        0.1, FRACTION_BELOW_1, hugging_face="attention_probs_dropout_prob"
    )
    initializer_range: float = field(0.02, POSITIVE)
    layer_norm_epsilon: float = field(
        1e-12, POSITIVE, hugging_face="layer_norm_eps"
    )

    def __post_init__(self):
        super().__post_init__()
        buckets = self.relative_position_buckets
        if buckets and (buckets < 4 or buckets % 2):
            raise ValueError(
                "`relative_position_buckets` must be 0 or an even number from "
                f"4 on. Received: relative_position_buckets={buckets}."
            )
        if buckets and self.relative_position_max_distance <= buckets // 4:
            raise ValueError(
                "`relative_position_max_distance` must be larger than a "
                "quarter of `relative_position_buckets`, the number of "
                "distances with a bucket each. Received: "
                "relative_position_max_distance="
                f"{self.relative_position_max_distance}, "
                f"relative_position_buckets={buckets}."
            )

    # These properties are fields in XLNetConfig.

    @property
    def memory_length(self):
        """Number of tokens in the memory, always 0: a BERT has no memory."""
        return 0

    @property
    def reuse_length(self):
        """Number of tokens that enter the memory, always 0."""
        return 0

    @property
    def attention_type(self):
        """Attention type, always "bidirectional"."""
        return "bidirectional"

    @property
    def layout(self):
        """Layout of sequences, always "bert": [CLS] is the first token."""
        return "bert"

    @property
    def transform_activation(self):
        """Activation of the dense layer before the tied softmax, str."""
        return self.activation

    @classmethod
    def from_dict(cls, values: dict) -> "BertConfig":
        """Make a config from a dict with our, Hugging Face's or UniLM's names.

        Args:
            values: dict. Keys of Hugging Face that do not affect the model's
                outputs are ignored.

        Returns:
            BertConfig.

        Raises:
            ValueError: if a required size is missing, if a key is unknown, if
                the model is a decoder, or if it has no absolute positions.
        """
        check_model_type(values, MODEL_TYPES, "a BERT")
        is_hugging_face = _is_of_hugging_face(values)
        values = dict(values)
        model_type = values.pop("model_type", MODEL_TYPE)
        fields = take_fields(cls, values, ("hugging_face",))
        check_sizes(
            fields,
            {
                "num_layers": "num_hidden_layers",
                "num_heads": "num_attention_heads",
                "hidden_dim": "hidden_size",
            },
            "a BERT",
        )
        if values and not is_hugging_face:
            raise ValueError(
                f"the config has unknown keys: {list_names(values)}. "
                "Known are those of Hugging Face's BERT and: "
                f"{', '.join(cls.field_names())}."
            )
        if is_hugging_face:
            _check_kind(values)
            _translate_values(fields, values, model_type)
        return cls(**fields)

    def to_dict(self) -> dict:
        """Return a dict of all fields and `model_type`, for `from_dict`."""
        return {"model_type": MODEL_TYPE, **super().to_dict()}

    def to_json(self, path: str | os.PathLike) -> None:
        """Write all fields and `model_type` to a JSON file, by our names.

        Args:
            path: str or path of the file to write.
        """
        write_json(path, self.to_dict(), sort_keys=True)

    def num_parameters(self) -> int:
        """Return the number of weights of a backbone with this config, int."""
        width, heads = self.hidden_dim, self.num_heads * (self.head_dim or 0)
        tables = self.vocabulary_size + self.max_positions + self.num_segments
        # Every dense layer has a bias. A norm follows each half of the layer.
        attention = 4 * width * heads + 3 * heads + width
        feed_forward = 2 * width * self.intermediate_dim + self.intermediate_dim
        layer = attention + feed_forward + 5 * width
        bias = self.relative_position_buckets * self.num_heads
        return (tables + 2) * width + self.num_layers * layer + bias


def is_bert(values):
    """Whether the dict of a config file describes a BERT.

    Args:
        values: dict. `model_type` decides. For a dict without `model_type`, as
            in BERT's earliest files, the names of the sizes decide.
    """
    model_type = values.get("model_type")
    if model_type is None:
        return _is_of_hugging_face(values)
    return model_type in MODEL_TYPES


def _is_of_hugging_face(values):
    """Whether a dict has Hugging Face's names for the sizes of a BERT."""
    return {"num_hidden_layers", "num_attention_heads", "hidden_size"} <= set(
        values
    )


def _check_kind(values):
    """Refuse a decoder, and a model whose positions are not absolute."""
    for name in ("is_decoder", "add_cross_attention"):
        if values.get(name):
            raise ValueError(
                f"`{name}` must be false: a BertBackbone is an encoder. "
                f"Received: {name}={reprlib.repr(values[name])}."
            )
    kind = values.get("position_embedding_type") or "absolute"
    if kind != "absolute":
        raise ValueError(
            '`position_embedding_type` must be "absolute". '
            f"Received: position_embedding_type={reprlib.repr(kind)}."
        )


def _translate_values(fields, values, model_type):
    """Convert values of other formats to our values, in place in `fields`."""
    # Hugging Face's "gelu" is the erf form.
    if fields.get("activation") in TANH_GELUS:
        fields.update(activation="gelu", gelu="tanh")
    if not fields.get("relative_position_buckets"):
        fields.pop("relative_position_max_distance", None)
    if model_type == "mpnet":
        # These values are constants in MPNet's code.
        buckets = values.get("relative_attention_num_buckets", _MPNET_BUCKETS)
        if buckets != _MPNET_BUCKETS:
            raise ValueError(
                f"`relative_attention_num_buckets` must be {_MPNET_BUCKETS}, "
                "which MPNet's code computes whatever its config holds. "
                "Received: relative_attention_num_buckets="
                f"{reprlib.repr(buckets)}."
            )
        positions = fields.get("max_positions", 512)
        fields.update(
            num_segments=0,
            relative_position_buckets=_MPNET_BUCKETS,
            relative_position_max_distance=_MPNET_MAX_DISTANCE,
            max_positions=positions - MPNET_FIRST_POSITION,
        )
