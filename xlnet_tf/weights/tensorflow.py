"""Reader of TensorFlow 1 and TensorFlow 2 checkpoints.

TensorFlow 1 checkpoints name variables by scopes; `released.py` lists these
names. TensorFlow 2 checkpoints name variables by object paths;
`model_garden.py` lists these paths.
"""

import re

import tensorflow as tf
from google.protobuf import message
from tensorflow.core.protobuf import trackable_object_graph_pb2

from data_pipeline.base.files import as_path
from data_pipeline.base.files import check_tensorflow_reads
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import check_length
from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights.source import WeightSource
from xlnet_tf.weights.table import Place

VALUE = "/.ATTRIBUTES/VARIABLE_VALUE"
_OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# Maximum size of an index. A large model's index has 100 KB, including the
# graph of objects.
_MOST_INDEX_BYTES = 2**26
# Errors of damaged files. A truncated data file raises IndexError, and an
# absurd length MemoryError.
_DAMAGE = (tf.errors.OpError, IndexError, ValueError, MemoryError)


class TensorFlowCheckpoint:
    """Reader of a TensorFlow checkpoint that reads one tensor at a time.

    Args:
        path: path of a directory, or the prefix of a checkpoint.

    Attributes:
        prefix: str, prefix of the checkpoint's files.
        shapes: dict from tensor name to shape, tuple of int.

    Raises:
        FileNotFoundError: if the checkpoint does not exist.
        ValueError: if the directory has several checkpoints, or the checkpoint
            is damaged.
    """

    def __init__(self, path):
        self.prefix = _prefix(path)
        check_tensorflow_reads(
            as_path(self.prefix), "Copy the checkpoint to one of them."
        )
        if found := set(self.prefix) & set("[]\\"):
            raise ValueError(
                f"{self.prefix}: TensorFlow takes {' '.join(sorted(found))} in "
                "the path of a checkpoint for a pattern. Rename the directory."
            )
        index = f"{self.prefix}.index"
        if as_path(index).is_file():
            check_length(index, size_of(index), _MOST_INDEX_BYTES)
        try:
            self._reader = tf.compat.v1.train.NewCheckpointReader(self.prefix)
            self.shapes = {
                name: tuple(shape)
                for name, shape in (
                    self._reader.get_variable_to_shape_map().items()
                )
            }
        except _DAMAGE as error:
            raise self.damaged(error) from error

    @property
    def has_objects(self):
        """Whether the checkpoint contains TensorFlow 2's graph of objects."""
        return _OBJECT_GRAPH in self.shapes

    def read(self, name):
        """Read one tensor as an array.

        Raises:
            ValueError: if the file is damaged.
        """
        try:
            return self._reader.get_tensor(name)
        except _DAMAGE as error:
            raise self.damaged(error) from error

    def damaged(self, error):
        """Make the ValueError for an unreadable checkpoint."""
        return ValueError(
            f"{self.prefix} cannot be read as a TensorFlow checkpoint: {error}."
        )


class ObjectGraph:
    """Graph of the saved objects in a TensorFlow 2 checkpoint.

    Args:
        checkpoint: TensorFlowCheckpoint.

    Raises:
        ValueError: if the graph is damaged.
    """

    def __init__(self, checkpoint):
        graph = trackable_object_graph_pb2.TrackableObjectGraph()
        try:
            if checkpoint.shapes[_OBJECT_GRAPH]:
                raise ValueError("it has several graphs of objects")
            graph.ParseFromString(checkpoint.read(_OBJECT_GRAPH))
        except (message.DecodeError, TypeError, ValueError) as error:
            raise checkpoint.damaged(error) from error
        self._children = [
            {child.local_name: child.node_id for child in node.children}
            for node in graph.nodes
        ]
        self._names = [
            [
                attribute.checkpoint_key.removesuffix(VALUE)
                for attribute in node.attributes
                if attribute.checkpoint_key in checkpoint.shapes
                and attribute.checkpoint_key.endswith(VALUE)
            ]
            for node in graph.nodes
        ]

    def __len__(self):
        return len(self._children)

    def tensor(self, node, path):
        """Find the name of the tensor at the end of an object path, or None.

        Args:
            node: int, index of the object where the path begins.
            path: str, attribute names joined by "/", as in a checkpoint's keys.
        """
        for part in path.split("/"):
            # TensorFlow's keys write "/" as ".S" and "." as "..".
            part = part.replace(".S", "/").replace("..", ".")
            node = self._children[node].get(part)
            if node is None:
                return None
        return self._names[node][0] if self._names[node] else None

    def parents(self, node):
        """List the node indices of an object's parents."""
        return [
            parent
            for parent, children in enumerate(self._children)
            if node in children.values()
        ]

    def tensors_below(self, node):
        """Make a set of all tensor names of an object and objects below it."""
        seen, waiting, found = {node}, [node], set()
        while waiting:
            node = waiting.pop()
            found.update(self._names[node])
            new = set(self._children[node].values()) - seen
            waiting += new
            seen |= new
        return found


class TensorFlowSource(WeightSource):
    """Base class of sources whose tensors are in a TensorFlow checkpoint.

    Args:
        checkpoint: TensorFlowCheckpoint.
        config_file: path of the model's config.
    """

    def __init__(self, checkpoint, config_file):
        self.checkpoint = checkpoint
        self.config_file = config_file
        self.path = checkpoint.prefix

    def config(self):
        return XLNetConfig.from_json(self.config_file)

    def directory(self):
        return as_path(self.path).parent

    def shapes(self):
        return self.checkpoint.shapes

    def stored_bytes(self):
        prefix = as_path(self.path)
        return sum(
            size_of(file)
            for file in prefix.parent.iterdir()
            if file.name.startswith(f"{prefix.name}.data-")
        )

    def read(self, name):
        return self.checkpoint.read(name)


def dense(ours, theirs, use_bias=True):
    """Map a dense layer's paths in our model to Places in a checkpoint."""
    names = ("kernel", "bias") if use_bias else ("kernel",)
    return {f"{ours}/{name}": Place(f"{theirs}/{name}") for name in names}


def norm(ours, theirs):
    """Map a layer norm's paths in our model to Places in a checkpoint."""
    return {f"{ours}/{x}": Place(f"{theirs}/{x}") for x in ("gamma", "beta")}


def _prefix(path):
    """Find a checkpoint's prefix, or the latest prefix in a directory."""
    if not path.is_dir():
        return str(path)
    # Skip hidden files, which are temporary files of a killed process.
    found = [
        f.name.removesuffix(".index")
        for f in path.iterdir()
        if f.name.endswith(".index") and not f.name.startswith(".")
    ]
    if not found:
        raise FileNotFoundError(
            f"{path} holds no TensorFlow checkpoint (*.ckpt*.index beside "
            "*.ckpt*.data-*)."
        )
    steps = {}
    for name in found:
        stem, step = re.fullmatch(r"(.*?)(?:-(\d+))?", name).groups()
        steps.setdefault(stem, []).append((int(step or -1), name))
    if len(steps) > 1:
        raise ValueError(
            f"{path} holds several checkpoints: {', '.join(sorted(found))}. "
            "Give the prefix of one, or leave only one in the directory."
        )
    ((numbered),) = steps.values()
    return str(path / max(numbered)[1])
