"""TensorFlow checkpoints: the released ones and Model Garden's.

The released code names variables by scopes; TensorFlow 2, and so Model Garden,
by the objects that hold them. Both are read with `tf.train.load_checkpoint`.
"""

import re

import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights.source import Place
from xlnet_tf.weights.source import WeightSource

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# A cut data file is an IndexError.
_DAMAGE = (tf.errors.OpError, IndexError, ValueError)


class TensorFlowCheckpoint:
    """The tensors of a checkpoint, read one at a time.

    Args:
        path: path of a directory, or the prefix of a checkpoint.

    Attributes:
        prefix: str.
        shapes: dict of str to tuple of int.

    Raises:
        FileNotFoundError: if there is no checkpoint.
        ValueError: if there are several checkpoints, or it is damaged.
    """

    def __init__(self, path):
        self.prefix = _prefix(path)
        try:
            self._reader = tf.train.load_checkpoint(self.prefix)
            self.shapes = {
                name: tuple(shape)
                for name, shape in (
                    self._reader.get_variable_to_shape_map().items()
                )
            }
        except _DAMAGE as error:
            raise self._damaged(error) from error

    @property
    def has_objects(self):
        """bool, whether it holds the graph of objects of TensorFlow 2."""
        return OBJECT_GRAPH in self.shapes

    def read(self, name):
        """One tensor as an array.

        Raises:
            ValueError: if the file is damaged.
        """
        try:
            return self._reader.get_tensor(name)
        except _DAMAGE as error:
            raise self._damaged(error) from error

    def _damaged(self, error):
        return ValueError(
            f"{self.prefix} cannot be read as a TensorFlow checkpoint: {error}."
        )


class TensorFlowSource(WeightSource):
    """A source whose tensors are in a TensorFlow checkpoint.

    Args:
        checkpoint: TensorFlowCheckpoint.
        config_file: path.
    """

    def __init__(self, checkpoint, config_file):
        self.checkpoint = checkpoint
        self.config_file = config_file
        self.path = checkpoint.prefix

    def config(self):
        return XLNetConfig.from_json(self.config_file)

    def shapes(self):
        return self.checkpoint.shapes

    def read(self, name):
        return self.checkpoint.read(name)


def dense(ours, theirs, use_bias=True):
    """Rows of a table for a dense layer: its path here and there."""
    names = ("kernel", "bias") if use_bias else ("kernel",)
    return {f"{ours}/{name}": Place(f"{theirs}/{name}") for name in names}


def norm(ours, theirs):
    """Rows of a table for a layer norm: its path here and there."""
    return {f"{ours}/{x}": Place(f"{theirs}/{x}") for x in ("gamma", "beta")}


def _prefix(path):
    """The prefix of a checkpoint; of a directory, that of the latest step."""
    if not path.is_dir():
        return str(path)
    found = [f.name.removesuffix(".index") for f in path.glob("*.index")]
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
