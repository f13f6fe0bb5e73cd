"""Weights in other formats, and filling a model with them.

A format is a table from the paths of our variables to the names that the
format has for them, with their layouts. Reading, comparing and writing are the
same for all formats. Nothing here knows a class of model: a head is known by
the name of its task, and a variable by its path.
"""

import re
import warnings
from typing import Any
from typing import NamedTuple

import numpy as np
from keras import ops

from xlnet_tf.weights.layer_state import STATE_KEYS

# More names than these make a message nobody reads.
_NAMES_SHOWN = 40
# Where the path of a variable begins, whatever the model is called and
# whichever scope it was made in.
_RELATIVE_PATH = re.compile(
    r"(?:.*/)?"
    r"((?:token_embedding|block_\d+|shared_biases|(?:\w+_)?head)/.+"
    r"|mask_embedding)"
)
# Arguments of every task; all others are of its head.
_NOT_OF_THE_HEAD = (
    "backbone",
    "name",
    "trainable",
    "dtype",
    "memory",
    "preprocessor",
    *STATE_KEYS,
)


class Place(NamedTuple):
    """Where a format keeps a variable of ours, or one of every layer.

    Attributes:
        name: str, the foreign name; "{}" stands for the number of the layer.
        axes: tuple of int or None, which of our axes each foreign axis is.
        leading_ones: int, foreign axes of length 1 before ours.
        is_stacked: bool, whether all layers are one foreign tensor.
    """

    name: str
    axes: tuple | None = None
    leading_ones: int = 0
    is_stacked: bool = False


class Weight(NamedTuple):
    """One variable of ours, and where a format keeps it.

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
        """tuple of int, the shape that the format should have."""
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
        """Our variable in the layout of the format; one layer of a stack."""
        value = self.variable.value
        if self.axes is not None:
            value = ops.transpose(value, self.axes)
        shape = (1,) * self.leading_ones + tuple(value.shape)
        return ops.reshape(value, shape)


class Head(NamedTuple):
    """The head of a task, in a checkpoint or of a model.

    Attributes:
        task: str, name of our class.
        arguments: dict, arguments of its constructor that fit the weights.
        name: str, which of several heads of a kind this is, or "".
    """

    task: str
    arguments: dict
    name: str = ""


class WeightSource:
    """A model in some format. Formats derive from this.

    Attributes:
        kind: str, name of the format in messages.
        path: path that messages name.
        gelu: str or None, the reason for the config's `gelu`.
    """

    kind = ""
    path = None
    gelu = None

    def config(self):
        """XLNetConfig of the model."""
        raise NotImplementedError

    def heads(self):
        """list of Head: every head whose weights the source holds."""
        raise NotImplementedError

    def main_head(self, name=None):
        """The Head the model was saved with, or None for the backbone alone.

        Args:
            name: str, which of several heads, or None.

        Raises:
            ValueError: if there are several to choose from.
        """
        heads = [h for h in self.heads() if name in (None, h.name)]
        if name is not None and not heads:
            raise ValueError(
                f"{self.path} has no head {name!r}. It has: "
                f"{_titles(self.heads())}."
            )
        if len(heads) > 1:
            raise ValueError(
                f"{self.path} holds several heads: {_titles(heads)}. Say "
                "which one: --task for one of several kinds, --head for one "
                "of several names."
            )
        return heads[0] if heads else None

    def shapes(self):
        """dict of str to tuple of int: all foreign tensors."""
        raise NotImplementedError

    def read(self, name):
        """One foreign tensor as an array."""
        raise NotImplementedError

    def backbone_weights(self, backbone):
        """list of Weight of an XLNetBackbone."""
        raise NotImplementedError

    def head_weights(self, task, head):
        """list of Weight of a task's head, as the Head `head` has them."""
        raise NotImplementedError

    def is_leftover(self, name):
        """Whether a tensor is not the model's: optimizer slots, counters."""
        raise NotImplementedError

    def fill(self, model, head=None, strict=True):
        """Assigns the weights of the source to a model.

        Args:
            model: XLNetBackbone, or a task around one.
            head: Head to take the task's head from, or None to leave it as it
                is.
            strict: bool. If False, weights that fit are assigned, and a
                warning lists the rest.

        Raises:
            ValueError: if tensors are missing, unexpected or of another shape;
                all are listed together.
        """
        weights = self.backbone_weights(backbone_of(model))
        if head is not None:
            weights += self.head_weights(model, head)
        fitting, problems = self._compare(weights)
        if problems and strict:
            raise ValueError(
                f"{self.path} does not fit the model: {problems}. Check the "
                "config; `strict=False` loads what fits."
            )
        for name, group in _by_name(fitting).items():
            array = self.read(name)
            for weight in group:
                weight.variable.assign(weight.from_foreign(array))
        if problems:
            warnings.warn(
                f"{self.path} was read in part: {problems}. What is missing "
                "or of another shape was left at its initial value.",
                stacklevel=4,
            )

    def _compare(self, weights):
        """(list of Weight that fit, str that lists the others)."""
        shapes = self.shapes()
        fitting, missing, other = [], [], []
        for weight in weights:
            shape = shapes.get(weight.name)
            if shape is None:
                missing.append(weight.name)
            elif tuple(shape) != weight.foreign_shape:
                other.append(
                    f"{weight.name} has {tuple(shape)}, not "
                    f"{weight.foreign_shape}"
                )
            else:
                fitting.append(weight)
        known = {weight.name for weight in weights}
        unexpected = sorted(
            name
            for name in shapes
            if name not in known and not self.is_leftover(name)
        )
        lists = {
            "missing": missing,
            "unexpected": unexpected,
            "other shapes": other,
        }
        return fitting, "; ".join(
            f"{title}: {_listed(names)}"
            for title, names in lists.items()
            if names
        )


def backbone_of(model):
    """The backbone of a task, or the backbone itself."""
    return getattr(model, "backbone", model)


def head_of(model):
    """The Head of a task, by the name of its class; None for a backbone."""
    if backbone_of(model) is model:
        return None
    arguments = head_arguments(model.get_config())
    return Head(type(model).__name__, arguments)


def head_arguments(config):
    """The arguments of a task's head, of the dict of its `get_config`."""
    return {k: v for k, v in config.items() if k not in _NOT_OF_THE_HEAD}


def first_known(cls, names):
    """The first of some names that a class or one it derives from has.

    Args:
        cls: class of a task.
        names: collection of str.

    Returns:
        str or None.
    """
    return next((c.__name__ for c in cls.__mro__ if c.__name__ in names), None)


def variables_by_path(model):
    """The variables of a model by their paths, relative to the model.

    Args:
        model: XLNetBackbone, or a task around one.

    Returns:
        dict of str, such as "block_3/attention/query_projection/kernel",
        "mask_embedding" or "head/logits_dense/kernel", to Keras variable.
    """
    found = {}
    for variable in model.weights:
        if match := _RELATIVE_PATH.fullmatch(variable.path):
            found[match[1]] = variable
    return found


def table_weights(backbone, table):
    """Looks a backbone's variables up in the table of a format.

    Args:
        backbone: XLNetBackbone.
        table: dict of str to Place; "{}" in the path of a variable stands for
            the number of its layer. Biases have the paths of untied ones.

    Returns:
        list of Weight. Tied biases have one Weight a layer, or a single one
        without an axis of layers where the format stacks them.
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
    """Looks the variables of a task's head up in the table of a format.

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
    """The tensors of a table in the layout of its format, one after the other.

    Those that need no other layout share their memory with the model.

    Args:
        weights: list of Weight.

    Yields:
        (name, tensor); stacked layers are put together.
    """
    for name, group in _by_name(weights).items():
        if group[0].layer is None:
            yield name, group[0].to_foreign()
        else:
            group = sorted(group, key=lambda weight: weight.layer)
            yield name, ops.stack([weight.to_foreign() for weight in group])


def _titles(heads):
    titles = [f"{h.task} {h.name!r}" if h.name else h.task for h in heads]
    return ", ".join(titles) or "none"


def _by_name(weights):
    groups = {}
    for weight in weights:
        groups.setdefault(weight.name, []).append(weight)
    return groups


def _listed(names):
    names = list(dict.fromkeys(names))
    if len(names) > _NAMES_SHOWN:
        more = len(names) - _NAMES_SHOWN
        names = [*names[:_NAMES_SHOWN], f"and {more} more"]
    return ", ".join(names)
