"""Models in other formats, and the transfer of their weights.

No class of model is imported: a head is identified by the name of its task, and
a variable by its path (`table.py`).
"""

import contextlib
import warnings
from typing import NamedTuple

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import as_path
from xlnet_tf.weights.layer_state import STATE_KEYS
from xlnet_tf.weights.table import by_name

# A directory with this file has a model in the released format.
RELEASED_CONFIG_FILE = "xlnet_config.json"
_LONGEST_NAME = 120
# More names would make a message too long.
_NAMES_SHOWN = 40
# Arguments of tasks, and their defaults; other formats lack them.
_SETTINGS = {
    "threshold": 0.5,
    "null_threshold": None,
    "max_answer_length": 64,
    "n_best_size": 5,
    "next_sentence_weight": 0.0,
    "segment_length": None,
}
# Arguments of every task; all others belong to its head.
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
    """The head of a task, in a checkpoint or of a model.

    Attributes:
        task: str, name of our class.
        arguments: dict, arguments of its constructor that fit the weights.
        name: str, name among several heads of a kind, or "".
    """

    task: str
    arguments: dict
    name: str = ""


class WeightSource:
    """A model in some format; base class of the formats.

    Attributes:
        kind: str, name of the format in messages.
        path: path for messages.
        gelu: str or None, the reason for the config's `gelu`.
    """

    kind = ""
    path = None
    gelu: str | None = None

    def config(self):
        """The config of the model, XLNetConfig or BertConfig."""
        raise NotImplementedError

    def heads(self):
        """list of Head: all heads with weights in the source."""
        raise NotImplementedError

    def main_head(self, name=None):
        """The saved model's Head, or None for only a backbone.

        Args:
            name: str, name among several heads, or None.

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
        """list of Weight of a backbone."""
        raise NotImplementedError

    def head_weights(self, task, head):
        """list of Weight of a task's head, for the source's Head `head`."""
        raise NotImplementedError

    def new_head_weights(self, model):
        """list of Weight for a new head that the source provides anyway."""
        return []

    def is_leftover(self, name):
        """Whether a tensor is no weight: optimizer slots, counters."""
        raise NotImplementedError

    def directory(self):
        """Path of the files' directory."""
        return as_path(self.path)

    def stored_bytes(self):
        """int, bytes of the backbone's weight files."""
        raise NotImplementedError

    def check_size(self):
        """Refuse a config of a far larger model than the files contain.

        This comes before memory is allocated.

        Raises:
            ValueError: with both numbers.
        """
        config, count = self.config(), 0
        for head in self.heads():
            count += head_parameters(head.arguments, config.hidden_dim)
        check_size(
            self.path, config.num_parameters() + count, self.stored_bytes()
        )

    def verify(self):
        """Compare the files with the directory's `SHA256SUMS`, if any.

        Raises:
            ValueError: if a file was changed.
        """
        verify_checksums(self.directory())

    @contextlib.contextmanager
    def checked(self, weights=True, verify=True):
        """Context for making a model from the source.

        Args:
            weights: bool, whether the weights are read.
            verify: bool, see `verify`.

        Raises:
            ValueError: if the files are damaged, do not belong together, or are
                replaced meanwhile.
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
            model: a backbone, or a task around one.
            head: Head to load, or None to change only `new_head_weights` of the
                task's head.
            strict: bool. If False, fitting weights are assigned and a warning
                lists the rest.

        Raises:
            ValueError: if tensors are missing, unexpected or of another shape;
                all are listed together.
        """
        mask = getattr(backbone_of(model), "mask_embedding", None)
        shapes = self.shapes()
        weights = self.backbone_weights(backbone_of(model))
        # A model without targets, such as a fine-tuned one of the released
        # code, has no mask embedding.
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
        """(list of fitting Weight, str with the others)."""
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


def reads_query(model):
    """Whether a model has its own targets, bool; a backbone has none."""
    return getattr(model, "reads_query", False)


def head_parameters(arguments, hidden_dim):
    """Approximate number of a head's weights, int.

    Args:
        arguments: dict, of the constructor of its task.
        hidden_dim: int, D.
    """
    widths = [arguments.get(name) for name in ("num_classes", "inner_dim")]
    return (
        2 * hidden_dim * sum(x for x in widths if isinstance(x, int) and x > 0)
    )


def check_size(path, num_parameters, stored_bytes):
    """Refuse a model that is too large for its files.

    Args:
        path: path that the message names.
        num_parameters: int, parameters by its config.
        stored_bytes: int.

    Raises:
        ValueError: with both numbers.
    """
    # Half a byte per parameter, as for int4, and a margin for small models.
    if num_parameters > 2 * stored_bytes + 2**20:
        raise ValueError(
            f"{path} does not fit its config: that describes a model of "
            f"{num_parameters:,} parameters, and the files of weights hold "
            f"{stored_bytes:,} bytes. Check the config, or fetch the files "
            "again."
        )


def check_fields(path, saved, now, names):
    """Refuse a model with another config than a file's.

    Args:
        path: path that the message names.
        saved, now: dicts of the fields of both configs.
        names: fields that must be equal.

    Raises:
        ValueError: with both values of each different field.
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
    """The Head of a task, by its class name; None for a backbone."""
    if backbone_of(model) is model:
        return None
    arguments = head_arguments(model.get_config())
    return Head(type(model).__name__, arguments)


def head_arguments(config):
    """Arguments of a task's head, from its `get_config`."""
    return {k: v for k, v in config.items() if k not in _NOT_OF_THE_HEAD}


def lost_settings(task, objective, classes):
    """Settings without a place in another format, list of str.

    Args:
        task: model of a task to write.
        objective: str, objective of a loaded pretrainer.
        classes: dict from the name of a class to its name when loaded.
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
    """First of some names among the names of a class and its bases.

    Args:
        cls: class of a task.
        names: collection of str.

    Returns:
        str or None.
    """
    return next((c.__name__ for c in cls.__mro__ if c.__name__ in names), None)


def _titles(heads):
    titles = [f"{h.task} {h.name!r}" if h.name else h.task for h in heads]
    return ", ".join(titles) or "none"


def _shortened(name):
    name = name if name.isprintable() else repr(name)
    return name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."


def _listed(names):
    # Shortened: a damaged file may contain a name of any length.
    names = list(dict.fromkeys(map(_shortened, names)))
    if len(names) > _NAMES_SHOWN:
        more = len(names) - _NAMES_SHOWN
        names = [*names[:_NAMES_SHOWN], f"and {more} more"]
    return ", ".join(names)
