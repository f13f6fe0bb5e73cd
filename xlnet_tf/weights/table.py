"""Tables that map a model's variables to a format's tensors.

A format is a table from the paths of our variables to its names and layouts.
Reading, comparing and writing are the same for all formats.
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
    """Location in a format for one of our variables, or one per layer.

    Attributes:
        name: str, the foreign name; "{}" stands for the number of the layer.
        axes: tuple of int or None, our axis for each foreign axis.
        leading_ones: int, foreign axes of length 1 before ours.
        is_stacked: bool, whether one foreign tensor holds all layers.
    """

    name: str
    axes: tuple | None = None
    leading_ones: int = 0
    is_stacked: bool = False


class Weight(NamedTuple):
    """One of our variables, and its location in a format.

    Attributes:
        name: str, the foreign name.
        variable: Keras variable.
        axes, leading_ones: see `Place`.
        layer: int, index into the first foreign axis if layers are stacked, or
            None.
        num_layers: int, length of that axis.
    """

    name: str
    variable: Any
    axes: tuple | None = None
    leading_ones: int = 0
    layer: int | None = None
    num_layers: int | None = None

    @property
    def foreign_shape(self):
        """tuple of int, the expected shape in the format."""
        shape = tuple(self.variable.shape)
        if self.axes is not None:
            shape = tuple(shape[axis] for axis in self.axes)
        if self.layer is not None:
            shape = (self.num_layers, *shape)
        return (1,) * self.leading_ones + shape

    def from_foreign(self, array):
        """An array of the format in the layout of our variable."""
        if self.layer is not None:
            array = array[self.layer]
        if self.axes is not None:
            array = np.transpose(array, np.argsort(self.axes))
        return np.reshape(array, self.variable.shape)

    def to_foreign(self):
        """Our variable in the layout of the format; one layer of a stack.

        These formats store float32, whatever the model's precision.
        """
        value = ops.cast(self.variable.value, "float32")
        if self.axes is not None:
            value = ops.transpose(value, self.axes)
        shape = (1,) * self.leading_ones + tuple(value.shape)
        return ops.reshape(value, shape)


def variables_by_path(model):
    """Variables of a model by path, relative to the model.

    Args:
        model: a backbone, or a task around one.

    Returns:
        dict of str, such as "block_3/attention/query_projection/kernel",
        "mask_embedding" or "head/logits_dense/kernel", to Keras variable.
    """
    variables = {}
    for variable in model.weights:
        if match := _RELATIVE_PATH.fullmatch(variable.path):
            variables[match[1]] = variable
    return variables


def check_writable(model):
    """Refuse variables without a place in other formats.

    Args:
        model: a backbone, or a task around one.

    Raises:
        ValueError: if LoRA is on, or weights are quantized.
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
    """Look a backbone's variables up in the table of a format.

    Args:
        backbone: XLNetBackbone or BertBackbone.
        table: dict of str to Place; "{}" in the path of a variable stands for
            the number of its layer. Biases have the paths of untied ones.

    Returns:
        list of Weight. Tied biases have one Weight per layer, or a single one
        without an axis of layers if the format stacks them.
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
    """Look the variables of a task's head up in the table of a format.

    Args:
        task: a task of ours.
        table: dict of str to Place, or None.

    Returns:
        list of Weight, or None if the head has variables that the table lacks.
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
    """Yield the tensors of a table in the layout of its format.

    Tensors with our layout share their memory with the model.

    Args:
        weights: list of Weight.

    Yields:
        (name, tensor); stacked layers form one tensor.
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
