"""Reader of Model Garden's TensorFlow 2 checkpoints.

The checkpoints contain an `XLNetBase`, `XLNetPretrainer`, `XLNetClassifier` or
`XLNetSpanLabeler` of `official.nlp`. A checkpoint names a variable by the
variable's shortest path from the saved object. So different checkpoints may
name the same variable `encoder/...`, `model/_network/...` or otherwise. Each
checkpoint also contains the graph of all saved objects, with every path. This
reader searches the graph for the network, that is, the XLNet encoder.

Paths are written like a checkpoint's keys, with ".S" for a slash in a name.
Each kind of attention bias is one tensor `[L, N, H]` for L layers with N heads
of width H. One tensor `[L, 2, N, H]` has the segment encodings of all layers.
Tied biases have no layer axis. The kernel of the output projection is
`[N, H, D]` for the model's width D. All other kernels have the same shapes as
in this library.
"""

import warnings

from data_pipeline.base.files import size_of
from data_pipeline.base.limits import MOST_SETTINGS_BYTES
from data_pipeline.base.limits import check_length
from data_pipeline.base.limits import parse_yaml
from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import reads_query
from xlnet_tf.weights.table import Place
from xlnet_tf.weights.table import table_head_weights
from xlnet_tf.weights.table import table_weights
from xlnet_tf.weights.tensorflow import VALUE
from xlnet_tf.weights.tensorflow import ObjectGraph
from xlnet_tf.weights.tensorflow import TensorFlowSource
from xlnet_tf.weights.tensorflow import dense
from xlnet_tf.weights.tensorflow import norm

# From our config field to the key of `XLNetEncoderConfig`.
_FIELDS = {
    "vocabulary_size": "vocab_size",
    "num_layers": "num_layers",
    "num_heads": "num_attention_heads",
    "hidden_dim": "hidden_size",
    "head_dim": "head_size",
    "intermediate_dim": "inner_size",
    "activation": "inner_activation",
    "memory_length": "memory_length",
    "reuse_length": "reuse_length",
    "reverse_half_batch": "bi_data",
    "dropout": "dropout_rate",
    "attention_dropout": "attention_dropout_rate",
    "initializer_range": "initializer_range",
}
_OTHER_KEYS = ("attention_type", "clamp_length", "tie_attention_biases")
_EMBEDDING = "_embedding_layer/embeddings"
_MASK, _SEGMENTS = "mask_emb.Smask_emb", "seg_embed"
_LAYER = "_transformer_xl/transformer_xl_layers/{}"
_ATTENTION = f"{_LAYER}/_attention_layer"
# From our variable to its path relative to the network.
BACKBONE_TABLE = {
    "token_embedding/embeddings": Place(_EMBEDDING),
    "mask_embedding": Place(_MASK, leading_ones=2),
    **{
        f"block_{{}}/attention/biases/{ours}_bias": Place(
            f"_transformer_xl/{theirs}_attention_bias", is_stacked=True
        )
        for ours, theirs in {
            "content": "content",
            "position": "positional",
            "segment": "segment",
        }.items()
    },
    "block_{}/attention/segment_encoding": Place(_SEGMENTS, is_stacked=True),
    **{
        f"block_{{}}/attention/{ours}_projection/kernel": Place(
            f"{_ATTENTION}/_{theirs}_dense/kernel",
            axes=(1, 2, 0) if ours == "output" else None,
        )
        for ours, theirs in {
            "query": "query",
            "key": "key",
            "value": "value",
            "position": "encoding",
            "output": "output",
        }.items()
    },
    **norm("block_{}/attention_norm", f"{_LAYER}/_attention_layer_norm"),
    **norm("block_{}/output_norm", f"{_LAYER}/_output_layer_norm"),
    **dense("block_{}/intermediate", f"{_LAYER}/_inner_dense"),
    **dense("block_{}/output_dense", f"{_LAYER}/_output_dense"),
}
_SEQUENCE = {
    **dense("head/summary_dense", "classifier/dense"),
    **dense("head/logits_dense", "classifier/out_proj"),
}
# The same for heads, by our task names; these paths are relative to the model
# around the network.
HEAD_TABLES = {
    "XLNetPretrainer": {
        "head/bias": Place("_masked_lm/output_bias.Sbias"),
        **dense("head/transform", "_masked_lm/dense"),
        **norm("head/transform_norm", "_masked_lm/layer_norm"),
    },
    "XLNetTextClassifier": _SEQUENCE,
    "XLNetTextRegressor": _SEQUENCE,
    "XLNetQuestionAnswering": {
        f"head/{ours}": place._replace(name=f"span_labeling/{place.name}")
        for ours, place in {
            **dense("start_dense", "start_logits_dense"),
            **dense("end_inner", "end_logits_inner_dense"),
            **norm("end_norm", "end_logits_layer_norm"),
            **dense("end_dense", "end_logits_output_dense"),
            **dense("class_inner", "answer_logits_inner"),
            **dense("class_dense", "answer_logits_output", use_bias=False),
        }.items()
    },
}


class ModelGardenSource(TensorFlowSource):
    """Source for a pretrained or fine-tuned checkpoint of Model Garden.

    The checkpoint contains a model of `official.nlp.modeling`, written by Model
    Garden's trainers, `tf.train.Checkpoint` or `save_weights`.

    Args:
        checkpoint: TensorFlowCheckpoint.
        config_file: path of the checkpoint's `xlnet_config.json` or
            `params.yaml`.

    Raises:
        ValueError: if the checkpoint does not contain an XLNet.
    """

    kind = "Model Garden checkpoint"
    gelu = "Model Garden's XLNetBase computes the erf form"

    def __init__(self, checkpoint, config_file):
        super().__init__(checkpoint, config_file)
        self._graph = ObjectGraph(checkpoint)
        first = f"{_ATTENTION}/_query_dense/kernel".format(0)
        found = [
            node
            for node in range(len(self._graph))
            if self._graph.tensor(node, _EMBEDDING)
            and self._graph.tensor(node, first)
        ]
        if len(found) != 1:
            raise ValueError(
                f"{self.path} is not the checkpoint of one XLNet: expected one "
                f"object with {_EMBEDDING}, found {len(found)}. It holds: "
                f"{', '.join(sorted(checkpoint.shapes)[:5])}, ..."
            )
        (self._network,) = found
        embedding = self._graph.tensor(self._network, _EMBEDDING)
        # For the names of missing tensors in messages.
        self._prefix = embedding.removesuffix(_EMBEDDING)
        self._network_tensors = self._graph.tensors_below(self._network)

    def config(self):
        if self.config_file.suffix == ".yaml":
            config = _read_parameters(self.config_file)
        else:
            config = super().config()
        return config.replace(gelu="erf")

    def heads(self):
        heads = []
        for task, table in HEAD_TABLES.items():
            shapes = {
                path: self.shapes()[name]
                for path, place in table.items()
                if (name := self._head_tensor(place.name))
            }
            if "head/bias" in shapes:
                arguments = {"has_transform": "head/transform/kernel" in shapes}
                if arguments["has_transform"]:
                    arguments["transform_gelu"] = "erf"
                heads.append(Head(task, arguments))
            elif "head/start_dense/kernel" in shapes:
                inner_dim = shapes["head/end_inner/bias"][0]
                heads.append(Head(task, {"inner_dim": inner_dim}))
            elif "head/logits_dense/kernel" in shapes:
                width = shapes["head/logits_dense/kernel"][-1]
                # No file stores which token is the summary; Model Garden's
                # trainers use the last token.
                arguments = {"summary": "last"}
                if task == "XLNetTextClassifier":
                    arguments["num_classes"] = width
                if (task == "XLNetTextClassifier") == (width > 1):
                    heads.append(Head(task, arguments))
        return heads

    def _head_tensor(self, path):
        """Find the name of a head's tensor from its path, or None."""
        for model in self._graph.parents(self._network):
            if name := self._graph.tensor(model, path):
                return name
        return None

    def shapes(self):
        return {
            name.removesuffix(VALUE): shape
            for name, shape in self.checkpoint.shapes.items()
        }

    def read(self, name):
        return self.checkpoint.read(name + VALUE)

    def backbone_weights(self, backbone):
        absent = self._absent()
        return [
            weight._replace(name=self._backbone_tensor(weight.name))
            for weight in table_weights(backbone, BACKBONE_TABLE)
            if weight.name not in absent
        ]

    def _backbone_tensor(self, path):
        return self._graph.tensor(self._network, path) or self._prefix + path

    def _absent(self):
        """Paths of optional weights that the checkpoint does not contain."""
        return [
            path
            for path in (_MASK, _SEGMENTS)
            if not self._graph.tensor(self._network, path)
        ]

    def head_weights(self, task, head):
        weights = table_head_weights(task, HEAD_TABLES.get(head.task))
        if weights is None:
            raise ValueError(f"{self.path} has no head for {head.task}.")
        return [
            weight._replace(name=self._head_tensor(weight.name) or weight.name)
            for weight in weights
        ]

    def fill(self, model, head=None, strict=True):
        super().fill(model, head, strict)
        absent = [
            self._prefix + path
            for path in self._absent()
            if path != _MASK or reads_query(model)
        ]
        if absent:
            warnings.warn(
                f"{self.path} has no {' and no '.join(absent)}, because the "
                "model that wrote it was never given targets or segments; "
                "the loaded model keeps its initial values.",
                stacklevel=4,
            )

    def is_leftover(self, name):
        # All other tensors belong to optimizers, counters and heads.
        return name not in self._network_tensors


def _read_parameters(file):
    """Make an XLNetConfig from a `params.yaml`."""
    encoder = _encoder(file)
    missing = [key for key in _FIELDS.values() if key not in encoder]
    if missing:
        raise ValueError(
            f"{file}: task.model.encoder.xlnet lacks {', '.join(missing)}."
        )
    for key in (*_FIELDS.values(), *_OTHER_KEYS):
        if isinstance(encoder.get(key), (dict, list)):
            # The message omits the value, because expanded nested aliases could
            # fill the memory.
            raise ValueError(
                f"{file}: task.model.encoder.xlnet.{key} must be one value."
            )
    fields = {ours: encoder[theirs] for ours, theirs in _FIELDS.items()}
    causal = encoder.get("attention_type", "bi") == "uni"
    try:
        return XLNetConfig(
            **{k: v for k, v in fields.items() if v is not None},
            clamp_length=max(0, encoder.get("clamp_length") or 0),
            untie_biases=not encoder.get("tie_attention_biases"),
            attention_type="causal" if causal else "bidirectional",
        )
    except (TypeError, ValueError) as error:
        raise type(error)(f"{file}: {error}") from error


def _encoder(file):
    """Read the encoder's parameters from a `params.yaml`."""
    check_length(file, size_of(file), MOST_SETTINGS_BYTES)
    try:
        values = parse_yaml(file.read_bytes())
    except ValueError as error:
        raise ValueError(f"{file} is not a YAML file: {error}.") from error
    for key in ("task", "model", "encoder"):
        values = values.get(key) if isinstance(values, dict) else None
    kind = values.get("type") if isinstance(values, dict) else None
    if kind == "xlnet" and not isinstance(values.get("xlnet"), dict):
        raise ValueError(f"{file} lacks task.model.encoder.xlnet, a mapping.")
    if kind != "xlnet":
        if isinstance(kind, (dict, list)):
            kind = type(kind)  # see `_read_parameters`: values may be huge
        raise ValueError(
            f"{file} does not describe an XLNet: its task.model.encoder.type "
            f"is {kind!r}, not 'xlnet'."
        )
    return values["xlnet"]
