"""Weights that somebody's code wrote, and filling a model with them.

A format is a table that says, for every variable of ours, under which name and
in which layout the format has it. Reading, comparing and writing are the same
for all formats and stand here.
"""

import warnings
from typing import Any
from typing import NamedTuple

import numpy as np
from keras import ops

# More names than these make a message nobody reads.
_NAMES_SHOWN = 40


class Weight(NamedTuple):
    """One variable of ours, and where a format keeps it.

    Attributes:
        name: str, the name there.
        variable: Keras variable.
        layer: int, index into the first axis there if layers are stacked, or
            None.
        num_layers: int, length of that axis.
        is_transposed: bool, whether [in, out] here is [out, in] there.
        leading_ones: int, axes of length 1 before ours.
    """

    name: str
    variable: Any
    layer: int | None = None
    num_layers: int | None = None
    is_transposed: bool = False
    leading_ones: int = 0

    @property
    def shape_there(self):
        """tuple of int, the shape that the format should have."""
        shape = tuple(self.variable.shape)
        if self.is_transposed:
            shape = shape[::-1]
        if self.layer is not None:
            shape = (self.num_layers, *shape)
        return (1,) * self.leading_ones + shape

    def from_there(self, array):
        """An array of the format, as our variable has it."""
        if self.layer is not None:
            array = array[self.layer]
        if self.is_transposed:
            array = array.T
        return np.reshape(array, self.variable.shape)

    def for_there(self):
        """Our variable as the format has it, one layer of a stack."""
        value = self.variable.value
        if self.is_transposed:
            value = ops.transpose(value)
        shape = (1,) * self.leading_ones + tuple(value.shape)
        return ops.reshape(value, shape)


class Head(NamedTuple):
    """The head of a task that a checkpoint holds.

    Attributes:
        task: str, name of our class.
        arguments: dict, what its constructor takes to fit these weights.
        name: str, which of several heads of a kind this is, or "".
    """

    task: str
    arguments: dict
    name: str = ""


class Source:
    """A model in somebody's format. Formats derive from this.

    Attributes:
        kind: str, what the format is called in messages.
        path: path that messages name.
        gelu: str or None, why the config's `gelu` is what it is.
    """

    kind = ""
    path = None
    gelu = None

    def config(self):
        """XLNetConfig of the model."""
        raise NotImplementedError

    def heads(self):
        """list of Head: every head whose weights are here."""
        raise NotImplementedError

    def main_head(self, name=None):
        """The Head the model was saved with, or None for the backbone alone.

        Args:
            name: str, which of several heads, or None.

        Raises:
            ValueError: if there are several, and nothing says which one.
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
        """dict of str to tuple of int: all tensors that are here."""
        raise NotImplementedError

    def read(self, name):
        """One tensor as an array."""
        raise NotImplementedError

    def backbone_weights(self, backbone):
        """list of Weight."""
        raise NotImplementedError

    def head_weights(self, task, head):
        """list of Weight of a task's head, as the Head `head` has them."""
        raise NotImplementedError

    def is_leftover(self, name):
        """Whether a tensor is none of the model: optimizer slots, counters."""
        raise NotImplementedError

    def fill(self, model, head=None, strict=True):
        """Gives a model the weights that are here.

        Args:
            model: XLNetBackbone, or a task around one.
            head: Head to take the task's head from, or None to leave it as it
                is.
            strict: bool. If False, what fits is taken, and a warning lists the
                rest.

        Raises:
            ValueError: if tensors are missing, unexpected or of another shape;
                all are listed together.
        """
        weights = self.backbone_weights(getattr(model, "backbone", model))
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
                weight.variable.assign(weight.from_there(array))
        if problems:
            warnings.warn(
                f"{self.path} was read in part: {problems}. What is missing "
                "or of another shape was left at its initial value.",
                stacklevel=4,
            )

    def _compare(self, weights):
        """(list of Weight that fit, str that lists what does not)."""
        shapes = self.shapes()
        fitting, missing, other = [], [], []
        for weight in weights:
            shape = shapes.get(weight.name)
            if shape is None:
                missing.append(weight.name)
            elif tuple(shape) != weight.shape_there:
                other.append(
                    f"{weight.name} has {tuple(shape)}, not "
                    f"{weight.shape_there}"
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


def tensors(weights):
    """The tensors of a table, as its format has them, one after the other.

    Those that need no other layout share their memory with the model.

    Args:
        weights: list of Weight.

    Yields:
        (name, tensor); stacked layers are put together.
    """
    for name, group in _by_name(weights).items():
        if group[0].layer is None:
            yield name, group[0].for_there()
        else:
            group = sorted(group, key=lambda weight: weight.layer)
            yield name, ops.stack([weight.for_there() for weight in group])


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
