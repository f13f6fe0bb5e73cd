"""Tables that map the variables of a model to the tensors of a format.

Each format has a table from the paths of our variables to the format's tensor
names and layouts. All formats share the code that reads, compares and writes
tensors.
"""

import re
from typing import Any
from typing import NamedTuple

import numpy as np
from keras import ops

# Path of a variable without the model's name and outer scopes.
_RELATIVE_PATH = re.compile(
    r"(?:.*/)?"
    r"((?:token_embedding|block_\d+|shared_biases|(?:\w+_)?head"
    r"|segment_embedding|position_embedding|embedding_norm"
    r"|relative_position_bias)/.+"
    r"|mask_embedding)"
)


class Place(NamedTuple):
    """Tensor name and layout of one variable, or of one variable per layer.

    Attributes:
        name: str, tensor name in the format. "{}" stands for the layer number.
        axes: tuple of int, the order of the variable's axes in the tensor, as
            for `np.transpose`. None: the order is the same.
        leading_ones: int, number of axes of length 1 that the tensor has before
            the variable's axes.
        is_stacked: bool, whether one tensor contains all layers.
    """

    name: str
    axes: tuple | None = None
    leading_ones: int = 0
    is_stacked: bool = False


class Weight(NamedTuple):
    """Variable of a model, with its tensor name and layout in a format.

    Attributes:
        name: str, tensor name in the format.
        variable: Keras variable.
        axes, leading_ones: see `Place`.
        layer: int, index of the variable's layer in the tensor's first axis.
            None: the tensor does not stack layers.
        num_layers: int, length of the axis of layers, or None.
    """

    name: str
    variable: Any
    axes: tuple | None = None
    leading_ones: int = 0
    layer: int | None = None
    num_layers: int | None = None

    @property
    def foreign_shape(self):
        """Shape, as a tuple, that the tensor must have in the format."""
        shape = tuple(self.variable.shape)
        if self.axes is not None:
            shape = tuple(shape[axis] for axis in self.axes)
        if self.layer is not None:
            shape = (self.num_layers, *shape)
        return (1,) * self.leading_ones + shape

    def from_foreign(self, array):
        """Convert a tensor of the format to the layout of the variable."""
        if self.layer is not None:
            array = array[self.layer]
        if self.axes is not None:
            array = np.transpose(array, np.argsort(self.axes))
        return np.reshape(array, self.variable.shape)

    def to_foreign(self):
        """Convert the variable to the format's layout.

        If the tensor stacks layers, the result is the slice for one layer. The
        result is float32, whatever the model's precision.
        """
        value = ops.cast(self.variable.value, "float32")
        if self.axes is not None:
            value = ops.transpose(value, self.axes)
        shape = (1,) * self.leading_ones + tuple(value.shape)
        return ops.reshape(value, shape)


def variables_by_path(model):
    """Map paths in a model to the model's variables.

    Args:
        model: a backbone, or a task.

    Returns:
        dict from path to Keras variable. Examples of paths are
        "block_3/attention/query_projection/kernel", "mask_embedding" and
        "head/logits_dense/kernel".
    """
    variables = {}
    for variable in model.weights:
        if match := _RELATIVE_PATH.fullmatch(variable.path):
            variables[match[1]] = variable
    return variables


def check_writable(model):
    """Refuse a model that other formats cannot store.

    Args:
        model: a backbone, or a task.

    Raises:
        ValueError: if LoRA is enabled, or weights are quantized.
    """
    names = [variable.path.rpartition("/")[2] for variable in model.weights]
    if any(name.startswith("lora_") for name in names):
        raise ValueError(
            "this format cannot hold a model with LoRA. Merge it first: "
            "`model = model.without_lora()`."
        )
    if any(name.endswith("_scale") for name in names):
        raise ValueError(
            "this format cannot hold a quantized model. Write the model before "
            "`quantize`."
        )


def table_weights(backbone, table):
    """List the Weights of a backbone, with names and layouts from a table.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        table: dict from variable path to Place. "{}" in a path stands for the
            layer number. The path of a bias has "{}" even if all layers share
            the bias (a tied bias).

    Returns:
        list of Weight. If the format stacks the layers' biases in one tensor, a
        tied bias has a single Weight, without an axis of layers. Otherwise a
        tied bias has one Weight per layer.
    """
    variables = variables_by_path(backbone)
    num_layers = backbone.config.num_layers
    weights = [
        _weight(variables[path], place)
        for path, place in table.items()
        if "{}" not in path
    ]
    for layer in range(num_layers):
        for path, place in table.items():
            if "{}" not in path:
                continue
            if path.format(layer) in variables:
                variable = variables[path.format(layer)]
                weights.append(_weight(variable, place, layer, num_layers))
            elif layer == 0 or not place.is_stacked:
                shared = f"shared_biases/{path.rpartition('/')[2]}"
                place = place._replace(is_stacked=False)
                weights.append(_weight(variables[shared], place, layer))
    return weights


def _weight(variable, place, layer=None, num_layers=None):
    stack = {}
    if place.is_stacked:
        stack = {"layer": layer, "num_layers": num_layers}
    name = place.name.format(layer)
    return Weight(name, variable, place.axes, place.leading_ones, **stack)


def table_head_weights(task, table):
    """List the Weights of a task's head, with names and layouts from a table.

    Args:
        task: a task.
        table: dict from variable path to Place. None: the format lacks the
            head.

    Returns:
        list of Weight. None if `table` is None or lacks a variable of the head.
    """
    variables = {
        path: variable
        for path, variable in variables_by_path(task).items()
        if path.startswith("head/")
    }
    if table is None or variables.keys() - table.keys():
        return None
    return [
        _weight(variables[path], place)
        for path, place in table.items()
        if path in variables
    ]


def tensors(weights):
    """Yield names and tensors of Weights, in the layout of the format.

    A tensor with the same layout as its variable shares memory with the model.

    Args:
        weights: list of Weight.

    Yields:
        (name, tensor). If the format stacks layers, one tensor has all layers.
    """
    for name, group in by_name(weights).items():
        if group[0].layer is None:
            yield name, group[0].to_foreign()
        else:
            group = sorted(group, key=lambda weight: weight.layer)
            yield name, ops.stack([weight.to_foreign() for weight in group])


def by_name(weights):
    groups = {}
    for weight in weights:
        groups.setdefault(weight.name, []).append(weight)
    return groups
