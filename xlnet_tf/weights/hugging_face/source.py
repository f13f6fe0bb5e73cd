"""Reader of directories written by Hugging Face's `save_pretrained`.

Such a directory has a `config.json`. Its weights are in `model.safetensors`, in
shards with an index, or in `pytorch_model.bin`, which torch reads with
`weights_only`. A dense layer's stored kernel is the transpose of Keras' kernel.
"""

import typing

from data_pipeline.base.files import read_json_object
from data_pipeline.base.files import size_of
from data_pipeline.base.limits import shown
from xlnet_tf.weights.source import WeightSource
from xlnet_tf.weights.source import first_known
from xlnet_tf.weights.table import Place
from xlnet_tf.weights.table import table_head_weights
from xlnet_tf.weights.tensor_files import open_tensors

CONFIG_FILE = "config.json"
# Value of `problem_type` for several labels per text.
_MULTI_LABEL = "multi_label_classification"


class HuggingFaceSource(WeightSource):
    """Base class of sources for a directory written by `save_pretrained`.

    Args:
        path: path of the directory.

    Attributes:
        values: dict, the contents of `config.json`.
        embedding: str, end of the token embedding's tensor name.
        noun: str, name of the model in messages, such as "an XLNet".
        architectures: dict from Hugging Face's class names to our class names.
        activation_name: str, the key of the activation in `config.json`.

    Raises:
        FileNotFoundError: if there are no weights.
        ValueError: if the weights belong to a model of another kind.
    """

    kind = "Hugging Face directory"
    embedding: str | None = None
    noun: str | None = None
    architectures: dict[str, typing.Any] = {}
    activation_name: str | None = None

    def __init__(self, path):
        self.path = path
        self.values = read_json_object(path / CONFIG_FILE)
        self._named = self._named_architectures()
        self._tensors = None

    @property
    def gelu(self):
        """Reason for the config's form of GELU, as text for messages, str."""
        name = self.values.get(self.activation_name, "gelu")
        if name == "gelu":
            return 'Hugging Face\'s code computes the erf form for "gelu"'
        return f'"{self.activation_name}" is "{name}"'

    @property
    def tensors(self):
        """Reader of the weight files, which are opened on first use."""
        if self._tensors is None:
            self._tensors = open_tensors(self.path)
            names = [
                name
                for name in self._tensors.shapes
                if name.endswith(self.embedding)
            ]
            if len(names) != 1:
                raise ValueError(
                    f"{self.path} does not hold {self.noun}: expected one "
                    f"tensor ...{self.embedding}, found {len(names)}."
                )
            self._scope = names[0].removesuffix(self.embedding)
        return self._tensors

    @property
    def scope(self):
        """Beginning of the backbone's tensor names, such as "transformer."."""
        return self.tensors and self._scope

    def is_a(self, architecture):
        """Whether `config.json` names Hugging Face's class `architecture`."""
        return architecture in self._named

    def _named_architectures(self):
        """List the names of Hugging Face's classes in the config."""
        names = self.values.get("architectures") or []
        if not isinstance(names, list) or not all(
            isinstance(name, str) for name in names
        ):
            raise ValueError(
                f"{self.path / CONFIG_FILE}: `architectures` must be a list of "
                f"names of classes. Received: {shown(names)}."
            )
        return names

    def main_head(self, name=None):
        if name is not None:  # Hugging Face's heads have no names
            return super().main_head(name)
        heads = self.heads()
        for architecture in self._named:
            wanted = self.architectures.get(architecture)
            for head in heads:
                if wanted != "XLNetTextClassifier":
                    if head.task == wanted:
                        return head
                elif self.values.get("problem_type") == _MULTI_LABEL:
                    if head.task == wanted:
                        return head._replace(task="XLNetMultiLabelClassifier")
                elif head.task in (wanted, "XLNetTextRegressor"):
                    return head
        return super().main_head()

    def class_arguments(self, classes):
        """Make the arguments `num_classes` and `labels` for a head."""
        labels = self.values.get("id2label") or {}
        if not isinstance(labels, dict):
            raise ValueError(
                f"{self.path}: `id2label` of its config must be an object. "
                f"Received: {str(labels)[:80]}."
            )
        names = [str(labels.get(str(i), f"LABEL_{i}")) for i in range(classes)]
        is_default = names == [f"LABEL_{i}" for i in range(classes)]
        return {
            "num_classes": classes,
            "labels": None if is_default else names,
        }

    def shapes(self):
        return self.tensors.shapes

    def read(self, name):
        return self.tensors.read(name)

    def stored_bytes(self):
        return sum(map(size_of, self.tensors.files))

    def refuse_own_embedding(self, head, name):
        """Refuse an LM head whose kernel is not the token embedding.

        Args:
            head: Head to load, or None.
            name: str, tensor name of the kernel.

        Raises:
            ValueError: if the LM head to load has a kernel of its own.
        """
        tied = self.values.get("tie_word_embeddings", True)
        is_needed = head is not None and head.task == "XLNetPretrainer"
        if is_needed and not tied and name in self.shapes():
            raise ValueError(
                f"{self.path} has an LM head of its own "
                "(`tie_word_embeddings` is false); ours is the embedding table."
            )


def task_head_weights(task, tables, head=None):
    """List the Weights of a task's head, with names and layouts from a table.

    Args:
        task: a task.
        tables: dict from a task's class name to the table of its head.
        head: Head to load, or None. If `tables` has no table for the class of
            `task`, the table for the Head's task is used.

    Returns:
        list of Weight.

    Raises:
        ValueError: if Hugging Face has no equivalent head.
    """
    name = first_known(type(task), tables) or (head and head.task)
    table = tables.get(name)
    weights = table_head_weights(task, table)
    if weights is None:
        raise no_head(task)
    return weights


def no_head(task):
    """Make the ValueError for a head that Hugging Face does not have."""
    return ValueError(
        f"Hugging Face has no head like that of {type(task).__name__} with "
        "these arguments. Save the backbone, or choose another format."
    )


def check_width(config, model):
    """Refuse a config whose heads do not add up to the model's width.

    Args:
        config: config of this library.
        model: str, name of the model in messages, such as "XLNet".

    Raises:
        ValueError: if the number of heads times their width is not the model's
            width; the message has the sizes.
    """
    if config.head_dim * config.num_heads != config.hidden_dim:
        raise ValueError(
            f"Hugging Face's {model} needs heads that share the model's width: "
            f"{config.num_heads} heads of {config.head_dim} are not "
            f"{config.hidden_dim}. Choose another format."
        )


def activation_value(config):
    """Find Hugging Face's name of the activation in feed-forward layers."""
    if config.activation == "gelu" and config.gelu == "tanh":
        return "gelu_new"
    return config.activation


def label_values(task, arguments):
    """Make the entries of `config.json` that describe a head's outputs.

    `problem_type` is set for regression and for several labels per text. The
    names of the classes are in `id2label` and `label2id`.

    Args:
        task: str, class name of the task.
        arguments: dict, constructor arguments of the head.
    """
    values, labels = {}, None
    if task == "XLNetTextRegressor":
        values["problem_type"] = "regression"
        labels = ["LABEL_0"]
    if task == "XLNetMultiLabelClassifier":
        values["problem_type"] = _MULTI_LABEL
    if "num_classes" in arguments:
        labels = arguments["labels"] or [
            f"LABEL_{i}" for i in range(arguments["num_classes"])
        ]
    if labels:
        values["id2label"] = {str(i): name for i, name in enumerate(labels)}
        values["label2id"] = {name: i for i, name in enumerate(labels)}
    return values


def dense(ours, theirs, use_bias=True):
    """Map a dense layer's paths in our model to Places in the files."""
    kernel = {f"{ours}/kernel": Place(f"{theirs}.weight", axes=(1, 0))}
    bias = {f"{ours}/bias": Place(f"{theirs}.bias")}
    return {**kernel, **bias} if use_bias else kernel


def norm(ours, theirs):
    """Map a layer norm's paths in our model to Places in the files."""
    return {
        f"{ours}/gamma": Place(f"{theirs}.weight"),
        f"{ours}/beta": Place(f"{theirs}.bias"),
    }
