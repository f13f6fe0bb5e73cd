"""Base class of the readers of model formats, and loading of weights.

This module imports no model class. A head is identified by the class name of
its task, and a variable by its path (see `table.py`).
"""

import contextlib
import warnings
from typing import NamedTuple

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from xlnet_tf.weights.layer_state import STATE_KEYS
from xlnet_tf.weights.table import by_name

# A directory with this file contains a model in the released format.
RELEASED_CONFIG_FILE = "xlnet_config.json"
_LONGEST_NAME = 120
# Maximum number of tensor names in a message.
_NAMES_SHOWN = 40
# Arguments of tasks that other formats cannot store, and their defaults.
_SETTINGS = {
    "threshold": 0.5,
    "null_threshold": None,
    "max_answer_length": 64,
    "n_best_size": 5,
    "next_sentence_weight": 0.0,
    "segment_length": None,
}
# Arguments that all tasks have. A task's other arguments belong to its head.
_NOT_OF_THE_HEAD = (
    "backbone",
    "name",
    "trainable",
    "dtype",
    "memory",
    "preprocessor",
    *STATE_KEYS,
)


class Head(NamedTuple):
    """Description of a task's head in a checkpoint or a model.

    Attributes:
        task: str, class name of the task.
        arguments: dict, constructor arguments that the task needs for the
            head's weights.
        name: str, name of the head if the checkpoint has several heads of one
            kind, else "".
    """

    task: str
    arguments: dict
    name: str = ""


class WeightSource:
    """Base class of readers of a model in a directory or file.

    Attributes:
        kind: str, name of the format in messages.
        path: path of the model, for messages.
        gelu: str or None, for messages: the reason for the config's value of
            `gelu`.
    """

    kind = ""
    path = None
    gelu: str | None = None

    def config(self):
        """Config of the model, XLNetConfig or BertConfig."""
        raise NotImplementedError

    def heads(self):
        """List the Heads whose weights the source contains."""
        raise NotImplementedError

    def main_head(self, name=None):
        """Find the Head of the saved model, or None for a backbone.

        Args:
            name: str, name that selects one of several heads, or None.

        Raises:
            ValueError: if no head has this name, or the source has several
                heads and `name` does not select one.
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
        """Return a dict of all tensors' names to their shapes, as tuples."""
        raise NotImplementedError

    def read(self, name):
        """Read one tensor of the source as an array."""
        raise NotImplementedError

    def backbone_weights(self, backbone):
        """List the Weights of a backbone."""
        raise NotImplementedError

    def head_weights(self, task, head):
        """List the Weights that load a Head of the source into a task."""
        raise NotImplementedError

    def new_head_weights(self, model):
        """List the Weights that initialize a new head from the source.

        A new head is a task's head that is not loaded from the source. For
        example, BERT's pooler initializes the summary layer of a new
        classifier.
        """
        return []

    def is_leftover(self, name):
        """Whether loading ignores a tensor, such as an optimizer's state."""
        raise NotImplementedError

    def directory(self):
        """Directory of the source's files."""
        return as_path(self.path)

    def stored_bytes(self):
        """Size of the backbone's weight files in bytes."""
        raise NotImplementedError

    def check_size(self):
        """Refuse a config whose model is far larger than the weight files.

        The check runs before memory is allocated.

        Raises:
            ValueError: if the model is too large; the message has both sizes.
        """
        config, count = self.config(), 0
        for head in self.heads():
            count += head_parameters(head.arguments, config.hidden_dim)
        check_size(
            self.path, config.num_parameters() + count, self.stored_bytes()
        )

    def verify(self):
        """Compare the files with `SHA256SUMS`, if the directory has this file.

        Raises:
            ValueError: if a file was changed.
        """
        verify_checksums(self.directory())

    @contextlib.contextmanager
    def checked(self, weights=True, verify=True):
        """Context manager that checks the files while a model is read.

        Args:
            weights: bool, whether the weights are read.
            verify: bool, whether to compare the files with `SHA256SUMS`.

        Raises:
            ValueError: if the files are damaged, do not belong together, or are
                replaced while they are read.
        """
        before = self._checksums()
        if verify and weights:
            self.verify()
        if weights:
            self.check_size()
        yield
        if weights and self._checksums() != before:
            raise ValueError(
                f"{self.path} was replaced while it was read. Load it again."
            )

    def _checksums(self):
        listing = self.directory() / CHECKSUMS_FILE
        return listing.read_bytes() if listing.is_file() else None

    def fill(self, model, head=None, strict=True):
        """Assign the weights of the source to a model.

        Args:
            model: a backbone, or a task.
            head: Head to load. None for a new head, which gets only the
                weights of `new_head_weights`.
            strict: bool. If False, weights that fit are assigned, and a warning
                lists the missing, unexpected and misshapen tensors.

        Raises:
            ValueError: if tensors are missing, unexpected or of another shape;
                the message lists all of them.
        """
        mask = getattr(backbone_of(model), "mask_embedding", None)
        shapes = self.shapes()
        weights = self.backbone_weights(backbone_of(model))
        # A model without targets has no mask embedding, for example a model
        # that was fine-tuned by the released code.
        no_mask = [
            w for w in weights if w.variable is mask and w.name not in shapes
        ]
        if no_mask and not reads_query(model):
            weights = [w for w in weights if w.variable is not mask]
        if head is None:
            weights += self.new_head_weights(model)
        else:
            weights += self.head_weights(model, head)
        fitting, problems = self._compare(weights)
        if problems and strict:
            reason = "Check the config"
            if no_mask and reads_query(model):
                reason = (
                    "A fine-tuned model may lack the mask embedding, which "
                    "pretraining needs and a backbone or another task does not"
                )
            raise ValueError(
                f"{self.path} does not fit the model: {problems}. {reason}; "
                "`strict=False` loads what fits."
            )
        for name, group in by_name(fitting).items():
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
        """Compare Weights with the tensors in the source.

        Returns:
            (list of Weights that fit, str that lists all problems).
        """
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
    """Return the backbone of a task, or the model if it is a backbone."""
    return getattr(model, "backbone", model)


def reads_query(model):
    """Whether a model uses the query stream; False for a backbone."""
    return getattr(model, "reads_query", False)


def head_parameters(arguments, hidden_dim):
    """Estimate the number of parameters of a head.

    Args:
        arguments: dict, constructor arguments of the task.
        hidden_dim: int, the backbone's width D.
    """
    widths = [arguments.get(name) for name in ("num_classes", "inner_dim")]
    return (
        2 * hidden_dim * sum(x for x in widths if isinstance(x, int) and x > 0)
    )


def check_size(path, num_parameters, stored_bytes):
    """Refuse a model with too many parameters for the size of its files.

    Args:
        path: path that the message names.
        num_parameters: int, number of parameters that the config describes.
        stored_bytes: int, size of the weight files.

    Raises:
        ValueError: if the model is too large; the message has both sizes.
    """
    # int4 weights need half a byte per parameter. The constant is a margin for
    # small models.
    if num_parameters > 2 * stored_bytes + 2**20:
        raise ValueError(
            f"{path} does not fit its config: that describes a model of "
            f"{num_parameters:,} parameters, and the files of weights hold "
            f"{stored_bytes:,} bytes. Check the config, or fetch the files "
            "again."
        )


def check_fields(path, saved, now, names):
    """Refuse a model whose config differs from a file's config.

    Args:
        path: path that the message names.
        saved, now: the file's config and the model's config, as dicts of field
            names to values.
        names: fields that must be equal.

    Raises:
        ValueError: if fields differ; the message has both values of each field.
    """
    different = [name for name in names if saved.get(name) != now.get(name)]
    if different:
        before, given = (
            ", ".join(f"{name}={values.get(name)}" for name in different)
            for values in (saved, now)
        )
        raise ValueError(
            f"{path} does not fit: it was saved with {before}. "
            f"Received: {given}."
        )


def head_of(model):
    """Describe the head of a task as a Head; None for a backbone."""
    if backbone_of(model) is model:
        return None
    arguments = head_arguments(model.get_config())
    return Head(type(model).__name__, arguments)


def head_arguments(config):
    """Select the arguments in a task's config that belong to the head."""
    return {k: v for k, v in config.items() if k not in _NOT_OF_THE_HEAD}


def lost_settings(task, objective, classes):
    """List the settings of a task that another format cannot store.

    Args:
        task: task to write.
        objective: str, name of the objective that a pretrainer has when it is
            loaded from the format.
        classes: dict of the classes that the format cannot store, from class
            name to the name of the class that is loaded instead.
    """
    config = task.get_config()
    lost = [
        f"{name}={config[name]!r}"
        for name, default in _SETTINGS.items()
        if config.get(name, default) != default
    ]
    objectives = getattr(task, "objectives", None)
    if objectives and objectives[0].name != objective:
        lost.append(f"objective={objectives[0].name!r}")
    name = first_known(type(task), classes)
    if name:
        lost.append(f"the class {name} (it is loaded as {classes[name]})")
    return lost


def first_known(cls, names):
    """Find the name of a class, or of its nearest base class, in `names`.

    Args:
        cls: class of a task.
        names: collection of str.

    Returns:
        str, or None if `names` has no such name.
    """
    return next((c.__name__ for c in cls.__mro__ if c.__name__ in names), None)


def _titles(heads):
    titles = [f"{h.task} {h.name!r}" if h.name else h.task for h in heads]
    return ", ".join(titles) or "none"


def _shortened(name):
    name = name if name.isprintable() else repr(name)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _listed(names):
    # Shorten each name, because a damaged file may contain a name of any
    # length.
    names = list(dict.fromkeys(map(_shortened, names)))
    if len(names) > _NAMES_SHOWN:
        more = len(names) - _NAMES_SHOWN
        names = [*names[:_NAMES_SHOWN], f"and {more} more"]
    return ", ".join(names)
