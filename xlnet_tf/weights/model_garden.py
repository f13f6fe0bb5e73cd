"""Model Garden's TensorFlow 2 checkpoints, read.

A checkpoint names a variable by the shortest path to it from the object that
was saved: `encoder/...`, `model/_network/...`, `transformer_xl/...` and others
for the same variable. But it also holds the graph of all objects, in which
every path can be followed; so we look for the network there.
"""

import warnings

import yaml
from tensorflow.core.protobuf import trackable_object_graph_pb2

from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights import model_garden_names as names
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.tensorflow import OBJECT_GRAPH
from xlnet_tf.weights.tensorflow import TensorFlowSource

PARAMETERS_FILE = "params.yaml"
_VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_LAST = "last"
# Field of ours -> key of `XLNetEncoderConfig`.
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


class ModelGardenSource(TensorFlowSource):
    """A checkpoint of Model Garden's, pretrained or fine-tuned.

    Of the classes of `official.nlp.modeling` or of `official.legacy.xlnet`,
    written by their trainers, `tf.train.Checkpoint` or `save_weights`.

    Args:
        checkpoint: TensorFlowCheckpoint.
        config_file: path of its `xlnet_config.json` or `params.yaml`.

    Raises:
        ValueError: if it is not the checkpoint of an XLNet.
    """

    kind = "Model Garden checkpoint"

    def __init__(self, checkpoint, config_file):
        super().__init__(checkpoint, config_file)
        self._graph = ObjectGraph(checkpoint)
        found = [
            (node, network)
            for node in range(len(self._graph))
            for network in _networks_at(self._graph, node)
        ]
        if len(found) != 1:
            raise ValueError(
                f"{self.path} is not the checkpoint of one XLNet: expected one "
                f"object with {names.NETWORKS[0].embedding} or "
                f"{names.NETWORKS[1].embedding}, found {len(found)}. It holds: "
                f"{', '.join(sorted(checkpoint.shapes)[:5])}, ..."
            )
        ((self._node, self.network),) = found
        embedding = self._graph.tensor(self._node, self.network.embedding)
        # In a SavedModel variables have numbers for names.
        prefix, end, _ = embedding.rpartition(self.network.embedding)
        self._prefix = prefix if end else ""
        self._own = self._graph.tensors_below(
            self._node, names.unused_layers(self.network)
        )

    @property
    def gelu(self):
        """str, what decided the form of GELU."""
        return (
            f"Model Garden's {self.network.name} computes the "
            f"{self.network.gelu} form"
        )

    def config(self):
        if self.config_file.suffix == ".yaml":
            config = _read_parameters(self.config_file)
        else:
            config = super().config()
        if self._inverts_segments():
            warnings.warn(
                f"{self.path} was trained with `use_cls_mask`, by which equal "
                "segments take the encoding that different ones take here, and "
                "the class token is in every segment. The encodings are read "
                "as they stand, as Model Garden's fine-tuning reads them.",
                stacklevel=4,
            )
        return config.replace(gelu=self.network.gelu)

    def _inverts_segments(self):
        if self.config_file.suffix == ".yaml":
            return bool(_encoder(self.config_file).get("use_cls_mask"))
        # Its pretraining has no flag to switch that off.
        return any(
            head.variable.startswith("lmloss_layer")
            for head, _ in self._heads()
        )

    def heads(self):
        heads = []
        for found, model in self._heads():
            if found.bias is not None:
                has_transform = bool(
                    self._graph.tensor(
                        model, f"{found.layers['transform']}/kernel"
                    )
                )
                arguments = {"has_transform": has_transform}
                if has_transform:
                    arguments["transform_gelu"] = found.transform_gelu
                heads.append(Head(found.tasks[0], arguments))
                continue
            width = self.shapes()[self._graph.tensor(model, found.variable)][-1]
            if "summary_dense" not in found.layers:
                heads.append(Head(found.tasks[0], self._span_arguments(found)))
            elif width > 1:
                # Which token it reads, no file says; its trainers say "last".
                arguments = {"num_classes": width, "summary": _LAST}
                heads.append(Head(found.tasks[0], arguments))
            else:
                heads.append(Head(found.tasks[1], {"summary": _LAST}))
        return heads

    def _span_arguments(self, found):
        ((_, model),) = [f for f in self._heads() if f[0] is found]
        kernel = self._graph.tensor(model, f"{found.layers['end_inner']}/bias")
        return {"inner_dim": self.shapes()[kernel][0]}

    def _heads(self):
        """list of (HeadNames, node of the model around the network)."""
        return [
            (head, model)
            for model in self._graph.parents(self._node)
            for head in names.HEADS
            if self._graph.tensor(model, head.variable)
        ]

    def shapes(self):
        return {
            name.removesuffix(_VALUE): shape
            for name, shape in self.checkpoint.shapes.items()
        }

    def read(self, name):
        return self.checkpoint.read(name + _VALUE)

    def backbone_weights(self, backbone):
        optional = self._absent()
        return [
            weight
            for weight in names.backbone_weights(
                backbone, self.network, self._name_of
            )
            if weight.name not in optional
        ]

    def _name_of(self, path):
        return self._graph.tensor(self._node, path) or self._prefix + path

    def _absent(self):
        """Names of what a model need not have, and this one has not."""
        return [
            self._prefix + path
            for path in self.network.optional
            if not self._graph.tensor(self._node, path)
        ]

    def head_weights(self, task, head):
        for found, model in self._heads():
            if head.task in found.tasks:
                return names.head_weights(
                    task.head,
                    found,
                    lambda path, node=model: (
                        self._graph.tensor(node, path) or path
                    ),
                )
        raise ValueError(f"{self.path} has no head for {head.task}.")

    def fill(self, model, head=None, strict=True):
        super().fill(model, head, strict)
        absent = self._absent()
        if absent:
            warnings.warn(
                f"{self.path} has no {' and no '.join(absent)}, because the "
                "model that wrote it was never given targets or segments; "
                "ours was left at its initial value.",
                stacklevel=4,
            )

    def is_leftover(self, name):
        # Optimizers, counters and heads are not part of the network.
        return name not in self._own


class ObjectGraph:
    """The objects that a TensorFlow 2 checkpoint was made of.

    Args:
        checkpoint: TensorFlowCheckpoint.

    Raises:
        ValueError: if it is damaged.
    """

    def __init__(self, checkpoint):
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        graph.ParseFromString(checkpoint.read(OBJECT_GRAPH))
        self._children = [
            {child.local_name: child.node_id for child in node.children}
            for node in graph.nodes
        ]
        self._names = [
            [
                attribute.checkpoint_key.removesuffix(_VALUE)
                for attribute in node.attributes
                if attribute.checkpoint_key in checkpoint.shapes
                and attribute.checkpoint_key.endswith(_VALUE)
            ]
            for node in graph.nodes
        ]

    def __len__(self):
        return len(self._children)

    def tensor(self, node, path):
        """Name of the tensor at the end of a path, or None.

        Args:
            node: int, where the path begins.
            path: str, as in the keys of a checkpoint.
        """
        for part in path.split("/"):
            # As TensorFlow writes names into keys: "/" is ".S", "." is "..".
            part = part.replace(".S", "/").replace("..", ".")
            node = self._children[node].get(part)
            if node is None:
                return None
        return self._names[node][0] if self._names[node] else None

    def parents(self, node):
        """list of int: the objects that hold an object."""
        return [
            parent
            for parent, children in enumerate(self._children)
            if node in children.values()
        ]

    def tensors_below(self, node, without=()):
        """set of str: names of all tensors that an object holds.

        Args:
            node: int.
            without: names of parts that do not count.
        """
        seen, waiting, found = {node}, [node], set()
        while waiting:
            node = waiting.pop()
            found.update(self._names[node])
            children = self._children[node]
            new = {n for name, n in children.items() if name not in without}
            waiting += new - seen
            seen |= new
        return found


def _networks_at(graph, node):
    """The Networks whose embedding and first layer an object has."""
    return [
        network
        for network in names.NETWORKS
        if graph.tensor(node, network.embedding)
        and graph.tensor(node, network.kernels[0].format(0))
    ][:1]


def _encoder(file):
    """The parameters of the encoder that a `params.yaml` describes."""
    try:
        values = yaml.load(file.read_bytes(), _Loader)
    except yaml.YAMLError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{file} is not a YAML file: {reason}.") from error
    for key in ("task", "model", "encoder"):
        values = values.get(key) if isinstance(values, dict) else None
    kind = values.get("type") if isinstance(values, dict) else None
    if kind != "xlnet" or not isinstance(values.get("xlnet"), dict):
        raise ValueError(
            f"{file} does not describe an XLNet: its task.model.encoder.type "
            f"is {kind!r}, not 'xlnet'."
        )
    return values["xlnet"]


def _read_parameters(file):
    """The XLNetConfig of a `params.yaml`."""
    encoder = _encoder(file)
    missing = [key for key in _FIELDS.values() if key not in encoder]
    if missing:
        raise ValueError(
            f"{file}: task.model.encoder.xlnet lacks {', '.join(missing)}."
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


class _Loader(yaml.SafeLoader):
    """Reads tuples too, which Model Garden writes under Python's own tag."""


_Loader.add_constructor(
    "tag:yaml.org,2002:python/tuple",
    lambda loader, node: loader.construct_sequence(node),
)
