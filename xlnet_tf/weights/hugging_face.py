"""Hugging Face's XLNet directories, read.

`config.json` beside `model.safetensors`, its shards with an index, or
`pytorch_model.bin`, which needs torch and is read with weights only. Kernels of
the attention have our shapes, those of dense layers are transposed; biases of
the attention always belong to a layer.
"""

import pickle
import re
import zipfile

import numpy as np
from safetensors import SafetensorError
from safetensors import safe_open

from xlnet_tf.config import XLNetConfig
from xlnet_tf.files import read_json
from xlnet_tf.weights.hugging_face_names import backbone_weights
from xlnet_tf.weights.hugging_face_names import head_weights
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import Source

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
TORCH_FILE = "pytorch_model.bin"
_EMBEDDING = "word_embedding.weight"
_HEADS = re.compile(
    r"lm_loss\.|sequence_summary\.|logits_proj\.|classifier\.|qa_outputs\."
    r"|(start|end)_logits\.|answer_class\."
)
# Their class -> ours; sequence classification depends on the config.
_ARCHITECTURES = {
    "XLNetLMHeadModel": "XLNetPretrainer",
    "XLNetForSequenceClassification": "XLNetTextClassifier",
    "XLNetForTokenClassification": "XLNetTokenClassifier",
    "XLNetForMultipleChoice": "XLNetMultipleChoice",
    "XLNetForQuestionAnswering": "XLNetQuestionAnswering",
    "XLNetForQuestionAnsweringSimple": "XLNetSpanClassifier",
}


class HuggingFaceSource(Source):
    """A directory that `save_pretrained` wrote.

    Args:
        path: path of the directory.

    Raises:
        FileNotFoundError: if there are no weights.
        ValueError: if they are not those of an XLNet.
    """

    kind = "Hugging Face directory"

    def __init__(self, path):
        self.path = path
        self.values = read_json(path / CONFIG_FILE)
        self._tensors = None

    @property
    def gelu(self):
        """str, what decided the form of GELU."""
        name = self.values.get("ff_activation", "gelu")
        if name == "gelu":
            return 'Hugging Face\'s code computes the erf form for "gelu"'
        return f'"ff_activation" is "{name}"'

    @property
    def tensors(self):
        """The files of weights, opened when first needed."""
        if self._tensors is None:
            self._tensors = _open_tensors(self.path)
            names = [
                name
                for name in self._tensors.shapes
                if name.endswith(_EMBEDDING)
            ]
            if len(names) != 1:
                raise ValueError(
                    f"{self.path} does not hold an XLNet: expected one tensor "
                    f"...{_EMBEDDING}, found {len(names)}."
                )
            self._scope = names[0].removesuffix(_EMBEDDING)
        return self._tensors

    @property
    def scope(self):
        """str, "transformer." in a task, nothing in a backbone."""
        return self.tensors and self._scope

    def config(self):
        config = XLNetConfig.from_json(self.path / CONFIG_FILE)
        if not config.untie_biases and not self._biases_are_tied(config):
            # That code trains them apart whatever its config says.
            config = config.replace(untie_biases=True)
        return config

    def _biases_are_tied(self, config):
        for bias in ("r_w_bias", "r_r_bias", "r_s_bias"):
            names = [
                f"{self.scope}layer.{layer}.rel_attn.{bias}"
                for layer in range(config.num_layers)
            ]
            # What is missing, `fill` will say.
            biases = [self.read(n) for n in names if n in self.shapes()]
            if not all(np.array_equal(biases[0], other) for other in biases):
                return False
        return True

    def heads(self):
        shapes = self.tensors.shapes
        values = self.values
        heads = []
        if "lm_loss.bias" in shapes:
            heads.append(Head("XLNetPretrainer", {"has_transform": False}))
        if "logits_proj.weight" in shapes:
            summary = self._summary_arguments()
            classes = shapes["logits_proj.weight"][0]
            if classes == 1:
                heads.append(Head("XLNetTextRegressor", summary))
                heads.append(Head("XLNetMultipleChoice", summary))
            arguments = {**self._class_arguments(classes), **summary}
            heads.append(Head("XLNetTextClassifier", arguments))
        if "classifier.weight" in shapes:
            arguments = self._class_arguments(shapes["classifier.weight"][0])
            # That code has no dropout of its own there.
            dropout = values.get("classifier_dropout") or 0.0
            heads.append(
                Head("XLNetTokenClassifier", {**arguments, "dropout": dropout})
            )
        if "qa_outputs.weight" in shapes:
            dropout = values.get("classifier_dropout") or 0.0
            heads.append(Head("XLNetSpanClassifier", {"dropout": dropout}))
        if "start_logits.dense.weight" in shapes:
            inner = shapes.get("end_logits.dense_1.weight")
            arguments = {
                "num_starts": values.get("start_n_top", 5),
                "num_ends": values.get("end_n_top", 5),
                "inner_dim": inner and inner[1],
                "dropout": values.get("span_dropout", 0.0),
            }
            heads.append(Head("XLNetQuestionAnswering", arguments))
        return heads

    def main_head(self, name=None):
        heads = self.heads()
        for architecture in self.values.get("architectures") or []:
            wanted = _ARCHITECTURES.get(architecture)
            for head in heads:
                if head.task == wanted or (
                    wanted == "XLNetTextClassifier"
                    and head.task == "XLNetTextRegressor"
                ):
                    return head
        return super().main_head(name)

    def _class_arguments(self, classes):
        labels = self.values.get("id2label") or {}
        names = [labels.get(str(i), f"LABEL_{i}") for i in range(classes)]
        is_default = names == [f"LABEL_{i}" for i in range(classes)]
        return {
            "num_classes": classes,
            "labels": None if is_default else names,
        }

    def _summary_arguments(self):
        values = self.values
        summary = values.get("summary_type", "last")
        return {
            # Without an index, which its classes never give, that is the last.
            "summary": "last" if summary == "cls_index" else summary,
            "projection": "sequence_summary.summary.weight"
            in self.tensors.shapes,
            "activation": _activation(values),
            "dropout": values.get("summary_last_dropout", 0.1),
        }

    def shapes(self):
        return self.tensors.shapes

    def read(self, name):
        return self.tensors.read(name)

    def backbone_weights(self, backbone):
        return backbone_weights(backbone, self.scope)

    def head_weights(self, task, head):
        return head_weights(task)

    def fill(self, model, head=None, strict=True):
        tied = self.values.get("tie_word_embeddings", True)
        is_needed = head is not None and head.task == "XLNetPretrainer"
        if is_needed and not tied and "lm_loss.weight" in self.shapes():
            raise ValueError(
                f"{self.path} has an LM head of its own "
                "(`tie_word_embeddings` is false); XLNet's is the embedding "
                "table."
            )
        super().fill(model, head, strict)

    def is_leftover(self, name):
        # Tied to the embedding, or of another task.
        return bool(_HEADS.match(name))


class _Safetensors:
    """Tensors of one or several safetensors files, read one at a time."""

    def __init__(self, files):
        self._files = {}
        self.shapes = {}
        for file in files:
            try:
                handle = safe_open(file, framework="numpy", backend="pread")
                for name in handle.keys():
                    self._files[name] = file, handle
                    shape = handle.get_slice(name).get_shape()
                    self.shapes[name] = tuple(shape)
            except (SafetensorError, OSError) as error:
                raise _damaged(file, error) from error

    def read(self, name):
        file, handle = self._files[name]
        try:
            return handle.get_tensor(name)
        except SafetensorError as error:
            raise _damaged(file, error) from error


class _TorchTensors:
    """Tensors of torch's own files, mapped into memory, never unpickled."""

    def __init__(self, files):
        try:
            import torch
        except ImportError as error:
            raise ValueError(
                f"{files[0]} is a file of torch's, which is not installed: "
                "pip install torch, or save the model as model.safetensors."
            ) from error
        self._tensors = {}
        for file in files:
            try:
                values = torch.load(
                    file,
                    map_location="cpu",
                    weights_only=True,
                    # What torch wrote before 2020 cannot be mapped.
                    mmap=zipfile.is_zipfile(file),
                )
            except (
                pickle.UnpicklingError,
                RuntimeError,
                OSError,
                EOFError,
                ValueError,
            ) as error:
                raise _damaged(file, error) from error
            if not isinstance(values, dict) or not all(
                isinstance(value, torch.Tensor) for value in values.values()
            ):
                raise _damaged(file, "it holds not only tensors")
            self._tensors.update(values)
        self.shapes = {k: tuple(v.shape) for k, v in self._tensors.items()}

    def read(self, name):
        return self._tensors[name].float().numpy()


def _damaged(file, error):
    reason = str(error).strip().splitlines()[0] if str(error).strip() else error
    return ValueError(f"{file} is damaged or not a file of weights: {reason}.")


def _open_tensors(path):
    """The weights of a directory, in the order that Hugging Face prefers."""
    for single, kind in (
        (WEIGHTS_FILE, _Safetensors),
        (TORCH_FILE, _TorchTensors),
    ):
        if (path / single).is_file():
            return kind([path / single])
        index = path / f"{single}.index.json"
        if index.is_file():
            files = _files_of(index)
            lost = [name for name in files if not (path / name).is_file()]
            if lost:
                raise FileNotFoundError(
                    f"{index} names files that are not there: "
                    f"{', '.join(lost)}."
                )
            return kind([path / name for name in files])
    raise FileNotFoundError(
        f"{path} has a {CONFIG_FILE} of Hugging Face's and no weights "
        f"({WEIGHTS_FILE} or {TORCH_FILE})."
    )


def _files_of(index):
    """Names of the shards that an index lists."""
    values = read_json(index)
    names = values.get("weight_map") if isinstance(values, dict) else None
    if not isinstance(names, dict) or not names:
        raise ValueError(f"{index} does not say which files: no `weight_map`.")
    return sorted(set(names.values()))


def _activation(values):
    name = values.get("summary_activation", "tanh")
    return None if name in (None, "", "linear") else name
