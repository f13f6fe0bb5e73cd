"""TensorFlow checkpoints, whoever wrote them.

The released code names variables by scopes; TensorFlow 2, and so Model Garden,
by the objects that hold them. Both are read with `tf.train.load_checkpoint`.
"""

import re

import tensorflow as tf

from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights.source import Source

OBJECT_GRAPH = "_CHECKPOINTABLE_OBJECT_GRAPH"
# A cut data file is an IndexError.
_DAMAGE = (tf.errors.OpError, IndexError, ValueError)


def open_tensorflow(path, config_file):
    """Finds out whose checkpoint this is.

    Args:
        path: path of a directory with one checkpoint, or a prefix.
        config_file: path of its `xlnet_config.json`.

    Returns:
        ReleasedSource or ModelGardenSource.

    Raises:
        FileNotFoundError: if the config or the checkpoint is missing.
        ValueError: if there are several checkpoints, or it is damaged.
    """
    from xlnet_tf.weights.model_garden import ModelGardenSource
    from xlnet_tf.weights.released import ReleasedSource

    checkpoint = TensorFlowCheckpoint(path)
    if OBJECT_GRAPH in checkpoint.shapes:
        return ModelGardenSource(checkpoint, config_file)
    return ReleasedSource(checkpoint, config_file)


class TensorFlowCheckpoint:
    """The tensors of a checkpoint, read one at a time.

    Args:
        path: path of a directory, or the prefix of a checkpoint.

    Attributes:
        prefix: str.
        shapes: dict of str to tuple of int.

    Raises:
        FileNotFoundError, ValueError: as `open_tensorflow`.
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


class TensorFlowSource(Source):
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


def _prefix(path):
    """The prefix of the checkpoint that a path means; the latest step's."""
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
