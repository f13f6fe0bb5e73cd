"""XLNet in Hugging Face's format: tensor names and config.

Attention kernels have the same shapes as in this library. Each layer has its
own attention biases.
"""

import re

import numpy as np

from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights.hugging_face.source import CONFIG_FILE
from xlnet_tf.weights.hugging_face.source import HuggingFaceSource
from xlnet_tf.weights.hugging_face.source import activation_value
from xlnet_tf.weights.hugging_face.source import check_width
from xlnet_tf.weights.hugging_face.source import dense
from xlnet_tf.weights.hugging_face.source import label_values
from xlnet_tf.weights.hugging_face.source import norm
from xlnet_tf.weights.hugging_face.source import task_head_weights
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import first_known
from xlnet_tf.weights.source import head_of
from xlnet_tf.weights.table import Place
from xlnet_tf.weights.table import table_weights

SCOPE = "transformer."
_EMBEDDING = "word_embedding.weight"
_HEADS = re.compile(
    r"lm_loss\.|sequence_summary\.|logits_proj\.|classifier\.|qa_outputs\."
    r"|(start|end)_logits\.|answer_class\."
)
# From Hugging Face's class name to ours. The class for sequence classification
# depends on the config and is not listed.
_ARCHITECTURES = {
    "XLNetLMHeadModel": "XLNetPretrainer",
    "XLNetForSequenceClassification": "XLNetTextClassifier",
    "XLNetForTokenClassification": "XLNetTokenClassifier",
    "XLNetForMultipleChoice": "XLNetMultipleChoice",
    "XLNetForQuestionAnswering": "XLNetQuestionAnswering",
    "XLNetForQuestionAnsweringSimple": "XLNetSpanClassifier",
}

# From our class name to Hugging Face's.
_THEIR_CLASSES = {
    "XLNetTextRegressor": "XLNetForSequenceClassification",
    "XLNetMultiLabelClassifier": "XLNetForSequenceClassification",
    **{ours: theirs for theirs, ours in _ARCHITECTURES.items()},
}


class XLNetSource(HuggingFaceSource):
    """Source for a directory with an XLNet; see `HuggingFaceSource`."""

    embedding = _EMBEDDING
    noun = "an XLNet"
    architectures = _ARCHITECTURES
    activation_name = "ff_activation"

    def config(self):
        config = XLNetConfig.from_json(self.path / CONFIG_FILE)
        if not config.untie_biases and not self._biases_are_tied(config):
            # Hugging Face's code has biases per layer even if the config says
            # tied.
            config = config.replace(untie_biases=True)
        return config

    def _biases_are_tied(self, config):
        for bias in ("r_w_bias", "r_r_bias", "r_s_bias"):
            names = [
                f"{self.scope}layer.{layer}.rel_attn.{bias}"
                for layer in range(config.num_layers)
            ]
            # Skip missing biases here, because `fill` lists missing tensors.
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
            arguments = {**self.class_arguments(classes), **summary}
            heads.append(Head("XLNetTextClassifier", arguments))
        if "classifier.weight" in shapes:
            arguments = self.class_arguments(shapes["classifier.weight"][0])
            # Without this key, Hugging Face's code uses no dropout in the head.
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

    def _summary_arguments(self):
        values = self.values
        summary = values.get("summary_type", "last")
        return {
            # "cls_index" means the last token if no index is passed; Hugging
            # Face's classes never pass an index.
            "summary": "last" if summary == "cls_index" else summary,
            "projection": bool(values.get("summary_use_proj", True)),
            "activation": _activation(values),
            "dropout": values.get("summary_last_dropout", 0.1),
        }

    def backbone_weights(self, backbone):
        return backbone_weights(backbone, self.scope)

    def head_weights(self, task, head):
        return task_head_weights(task, head_tables(), head)

    def fill(self, model, head=None, strict=True):
        self.refuse_own_embedding(head, "lm_loss.weight")
        super().fill(model, head, strict)

    def is_leftover(self, name):
        # The tensor is a copy of the embedding, or part of another task's head.
        return bool(_HEADS.match(name))


def backbone_table(scope):
    """Make the table that maps backbone variables to Hugging Face's names.

    Args:
        scope: str, beginning of the tensor names: "transformer." in the files
            of a task, "" in the files of a backbone.

    Returns:
        dict of str to Place, see `table.table_weights`.
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
        **norm(f"{ours}/attention_norm", f"{inside}.layer_norm"),
        **dense(f"{ours}/intermediate", f"{theirs}.ff.layer_1"),
        **dense(f"{ours}/output_dense", f"{theirs}.ff.layer_2"),
        **norm(f"{ours}/output_norm", f"{theirs}.ff.layer_norm"),
    }


def head_tables():
    """Make tables that map each head's variables to Hugging Face's names.

    Returns:
        dict from a task's class name to the table of its head.
    """
    sequence = {
        **dense("head/logits_dense", "logits_proj"),
        **dense("head/summary_dense", "sequence_summary.summary"),
    }
    return {
        "XLNetPretrainer": {"head/bias": Place("lm_loss.bias")},
        "XLNetTextClassifier": sequence,
        "XLNetTextRegressor": sequence,
        "XLNetMultipleChoice": sequence,
        "XLNetTokenClassifier": dense("head/logits_dense", "classifier"),
        "XLNetSpanClassifier": dense("head/logits_dense", "qa_outputs"),
        "XLNetQuestionAnswering": {
            **dense("head/start_dense", "start_logits.dense"),
            **dense("head/end_inner", "end_logits.dense_0"),
            **norm("head/end_norm", "end_logits.LayerNorm"),
            **dense("head/end_dense", "end_logits.dense_1"),
            **dense("head/class_inner", "answer_class.dense_0"),
            **dense("head/class_dense", "answer_class.dense_1", False),
        },
    }


def backbone_weights(backbone, scope):
    """List the Weights of a backbone; see `backbone_table`."""
    return table_weights(backbone, backbone_table(scope))


def head_weights(task):
    """List the Weights of a task's head; see `head_tables`."""
    return task_head_weights(task, head_tables())


def _activation(values):
    name = values.get("summary_activation", "tanh")
    return None if name in (None, "", "linear") else name


def config_values(model):
    """Make the contents of Hugging Face's `config.json` for a model.

    Args:
        model: XLNetBackbone, or a task with such a backbone.

    Returns:
        dict.

    Raises:
        ValueError: if the number of heads times their width is not the model's
            width. Hugging Face's XLNet requires equal numbers.
    """
    config = model.config
    check_width(config, "XLNet")
    activation = activation_value(config)
    is_causal = config.attention_type == "causal"
    # A subclass of one of our tasks is written as that task.
    task = first_known(type(model), _THEIR_CLASSES)
    values = {
        "architectures": [_THEIR_CLASSES.get(task, "XLNetModel")],
        "model_type": "xlnet",
        "vocab_size": config.vocabulary_size,
        "n_layer": config.num_layers,
        "n_head": config.num_heads,
        "d_model": config.hidden_dim,
        "d_head": config.head_dim,
        "d_inner": config.intermediate_dim,
        "ff_activation": activation,
        "untie_r": config.untie_biases,
        "attn_type": "uni" if is_causal else "bi",
        "mem_len": config.memory_length or None,
        "reuse_len": config.reuse_length or None,
        "clamp_len": config.clamp_length or -1,
        "same_length": config.same_length,
        "bi_data": config.reverse_half_batch,
        "dropout": config.dropout,
        "initializer_range": config.initializer_range,
        "layer_norm_eps": config.layer_norm_epsilon,
        "bos_token_id": 1,
        "eos_token_id": 2,
        "pad_token_id": 5,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if config.attention_dropout != config.dropout:
        values["attention_dropout"] = config.attention_dropout
    if activation == "relu":
        values["gelu"] = config.gelu  # written so that our reader restores it
    return {**values, **_head_values(model, task)}


def _head_values(model, task):
    """Make the entries of `config.json` that describe a task's head.

    Args:
        model: XLNetBackbone, or a task with such a backbone.
        task: str, key of _THEIR_CLASSES, or None.
    """
    if task is None:
        return {}
    arguments = head_of(model).arguments
    values = {}
    if "summary" in arguments:
        values = {
            "summary_type": arguments["summary"],
            "summary_use_proj": arguments["projection"],
            "summary_activation": arguments["activation"] or "linear",
            "summary_last_dropout": arguments["dropout"],
        }
    values |= label_values(task, arguments)
    if task in ("XLNetTokenClassifier", "XLNetSpanClassifier"):
        values["classifier_dropout"] = arguments["dropout"]
    if task == "XLNetQuestionAnswering":
        values["start_n_top"] = arguments["num_starts"]
        values["end_n_top"] = arguments["num_ends"]
        values["span_dropout"] = arguments["dropout"]
    return values
