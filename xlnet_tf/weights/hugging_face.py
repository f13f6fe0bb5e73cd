"""Hugging Face's XLNet directories, read.

`config.json` beside `model.safetensors`, its shards with an index, or
`pytorch_model.bin`, which needs torch and is read with weights only. Kernels of
the attention have our shapes, those of dense layers are transposed; biases of
the attention always belong to a layer.
"""

import re

import numpy as np

from xlnet_tf.config import XLNetConfig
from xlnet_tf.files import read_json_object
from xlnet_tf.files import size_of
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import WeightSource
from xlnet_tf.weights.source import first_known
from xlnet_tf.weights.table import Place
from xlnet_tf.weights.table import table_head_weights
from xlnet_tf.weights.table import table_weights
from xlnet_tf.weights.tensor_files import open_tensors

CONFIG_FILE = "config.json"
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


class HuggingFaceSource(WeightSource):
    """A directory written by `save_pretrained`.

    Args:
        path: path of the directory.

    Raises:
        FileNotFoundError: if there are no weights.
        ValueError: if they are not those of an XLNet.
    """

    kind = "Hugging Face directory"

    def __init__(self, path):
        self.path = path
        self.values = read_json_object(path / CONFIG_FILE)
        self._tensors = None

    @property
    def gelu(self):
        """str, the reason for the form of GELU."""
        name = self.values.get("ff_activation", "gelu")
        if name == "gelu":
            return 'Hugging Face\'s code computes the erf form for "gelu"'
        return f'"ff_activation" is "{name}"'

    @property
    def tensors(self):
        """The files of weights, opened when first needed."""
        if self._tensors is None:
            self._tensors = open_tensors(self.path)
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
            # That code trains them apart whatever its config holds.
            config = config.replace(untie_biases=True)
        return config

    def _biases_are_tied(self, config):
        for bias in ("r_w_bias", "r_r_bias", "r_s_bias"):
            names = [
                f"{self.scope}layer.{layer}.rel_attn.{bias}"
                for layer in range(config.num_layers)
            ]
            # `fill` lists the missing ones.
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
            # Without the key that code applies no dropout there.
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

    def stored_bytes(self):
        return sum(map(size_of, self.tensors.files))

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


def backbone_table(scope):
    """Hugging Face's name of every variable of a backbone.

    Args:
        scope: str, "transformer." in a task, "" in a backbone alone.

    Returns:
        dict of str to Place, see `source.table_weights`.
    """
    ours, theirs = "block_{}", f"{scope}layer.{{}}"
    inside = f"{theirs}.rel_attn"
    return {
        "token_embedding/embeddings": Place(f"{scope}{_EMBEDDING}"),
        "mask_embedding": Place(f"{scope}mask_emb", leading_ones=2),
        **{
            f"{ours}/attention/{path}": Place(f"{inside}.{name}")
            for path, name in {
                "query_projection/kernel": "q",
                "key_projection/kernel": "k",
                "value_projection/kernel": "v",
                "position_projection/kernel": "r",
                "output_projection/kernel": "o",
                "biases/content_bias": "r_w_bias",
                "biases/position_bias": "r_r_bias",
                "biases/segment_bias": "r_s_bias",
                "segment_encoding": "seg_embed",
            }.items()
        },
        **_norm(f"{ours}/attention_norm", f"{inside}.layer_norm"),
        **_dense(f"{ours}/intermediate", f"{theirs}.ff.layer_1"),
        **_dense(f"{ours}/output_dense", f"{theirs}.ff.layer_2"),
        **_norm(f"{ours}/output_norm", f"{theirs}.ff.layer_norm"),
    }


def head_tables():
    """Hugging Face's name of every variable of every head.

    Returns:
        dict of str, the name of a task, to its table.
    """
    sequence = {
        **_dense("head/logits_dense", "logits_proj"),
        **_dense("head/summary_dense", "sequence_summary.summary"),
    }
    return {
        "XLNetPretrainer": {"head/bias": Place("lm_loss.bias")},
        "XLNetTextClassifier": sequence,
        "XLNetTextRegressor": sequence,
        "XLNetMultipleChoice": sequence,
        "XLNetTokenClassifier": _dense("head/logits_dense", "classifier"),
        "XLNetSpanClassifier": _dense("head/logits_dense", "qa_outputs"),
        "XLNetQuestionAnswering": {
            **_dense("head/start_dense", "start_logits.dense"),
            **_dense("head/end_inner", "end_logits.dense_0"),
            **_norm("head/end_norm", "end_logits.LayerNorm"),
            **_dense("head/end_dense", "end_logits.dense_1"),
            **_dense("head/class_inner", "answer_class.dense_0"),
            **_dense("head/class_dense", "answer_class.dense_1", False),
        },
    }


def backbone_weights(backbone, scope):
    """list of Weight of a backbone; see `backbone_table`."""
    return table_weights(backbone, backbone_table(scope))


def head_weights(task):
    """list of Weight of a task's head; see `head_tables`.

    Raises:
        ValueError: if Hugging Face has no such head.
    """
    tables = head_tables()
    table = tables.get(first_known(type(task), tables))
    weights = table_head_weights(task, table)
    if weights is None:
        raise no_head(task)
    return weights


def no_head(task):
    """The ValueError for a head that Hugging Face has not."""
    return ValueError(
        f"Hugging Face has no head like that of {type(task).__name__} with "
        "these arguments. Save the backbone, or choose another format."
    )


def _dense(ours, theirs, use_bias=True):
    kernel = {f"{ours}/kernel": Place(f"{theirs}.weight", axes=(1, 0))}
    bias = {f"{ours}/bias": Place(f"{theirs}.bias")}
    return {**kernel, **bias} if use_bias else kernel


def _norm(ours, theirs):
    return {
        f"{ours}/gamma": Place(f"{theirs}.weight"),
        f"{ours}/beta": Place(f"{theirs}.bias"),
    }


def _activation(values):
    name = values.get("summary_activation", "tanh")
    return None if name in (None, "", "linear") else name
