"""A model as it is served: its own copy, in a precision, outside strategies."""

import contextlib

import keras
import numpy as np
import tensorflow as tf

# More than any segment: the backbone then hands back every state, and what is
# kept of them is decided by `documents.last_real`.
_ALL_STATES = 2**30
_LARGEST = 127  # of int8, leaving -128 out so that the range is symmetric


class ServedModel:
    """The same weights outside any strategy, without memory between calls.

    It is no `tf.Module`, so that a SavedModel holds `variables` and not the
    weights that they replace.

    Args:
        model: XLNetBackbone or a task.
        precision: see `ExportSettings`.

    Attributes:
        model: the copy; use it inside `weights()`.
        backbone: its backbone.
        config: XLNetConfig of the original.
        num_parameters: int, of the original.
        variables: list of tf.Variable, all that the graph reads.
    """

    def __init__(self, model, precision="float32"):
        self.config = getattr(model, "backbone", model).config
        self.model = _copy(model, precision)
        self.backbone = getattr(self.model, "backbone", self.model)
        of_model = _weights(self.model)
        self.num_parameters = sum(int(np.prod(w.shape)) for w in of_model)
        self._quantized = []
        if precision == "int8":
            self._quantized = [
                (weight, *_quantized(weight))
                for weight in of_model
                if _summed_axes(weight)
            ]
        replaced = {id(weight) for weight, *_ in self._quantized}
        self.variables = [
            weight.value for weight in of_model if id(weight) not in replaced
        ]
        for _, values, scale in self._quantized:
            self.variables += [values, scale]

    def weights(self):
        """A context in which the copy computes with what `variables` hold."""
        if not self._quantized:
            return contextlib.nullcontext()
        return keras.StatelessScope(
            [
                (
                    weight,
                    tf.cast(values, weight.dtype)
                    * tf.cast(scale, weight.dtype),
                )
                for weight, values, scale in self._quantized
            ]
        )


def _copy(model, precision):
    config = model.get_config()
    nested = config.get("backbone")
    of_backbone = config if nested is None else nested["config"]
    # A row's answer may not depend on its place in the batch.
    of_backbone.update(reuse_length=0, reverse_half_batch=False)
    # A task that reads segments keeps to the memory it was trained with.
    if not config.get("segment_length"):
        of_backbone["memory_length"] = _ALL_STATES
    if "memory" in config:
        config["memory"] = None
    if precision == "bfloat16":
        config["dtype"] = of_backbone["dtype"] = "bfloat16"
    copy = type(model).from_config(config)
    for variable, value in zip(_weights(copy), _weights(model), strict=True):
        variable.assign(value.numpy())
    return copy


def _weights(model):
    """Of its parts, for a memory is a weight of the model too."""
    if not hasattr(model, "backbone"):
        return _without_seeds(model)
    return _without_seeds(model.backbone) + _without_seeds(model.head)


def _without_seeds(layer):
    return [w for w in layer.weights if "seed_generator" not in w.path]


def _summed_axes(weight):
    """Axes of one output channel, or () for a weight that stays as it is."""
    name = weight.path.split("/")[-1]
    if name == "embeddings":
        return (1,)  # a row a token, which is also an output of the softmax
    if name != "kernel":
        return ()
    if "output_projection" in weight.path:
        return (1, 2)  # [D, N, H], back from the heads
    return (0,)


def _quantized(weight):
    """int8 values and float32 scales of one weight, as variables."""
    value = np.asarray(keras.ops.cast(weight.value, "float32"))
    axes = _summed_axes(weight)
    scale = np.abs(value).max(axis=axes, keepdims=True) / _LARGEST
    scale = np.maximum(scale, np.finfo("float32").tiny).astype("float32")
    values = np.rint(value / scale).astype("int8")
    return (
        tf.Variable(values, trainable=False, name=f"{weight.name}_int8"),
        tf.Variable(scale, trainable=False, name=f"{weight.name}_scale"),
    )
