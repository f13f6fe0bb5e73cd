"""BERT in the formats of Hugging Face and UniLM: tensor names and config.

UniLM uses the tensor names of BERT and adds a table of relative position
biases. A UniLM file may store the query, key and value projections as one
tensor. Such a file has no key bias.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from xlnet_tf.config import BertConfig
from xlnet_tf.weights.hugging_face.source import CONFIG_FILE
from xlnet_tf.weights.hugging_face.source import HuggingFaceSource
from xlnet_tf.weights.hugging_face.source import activation_value
from xlnet_tf.weights.hugging_face.source import check_width
from xlnet_tf.weights.hugging_face.source import dense
from xlnet_tf.weights.hugging_face.source import label_values
from xlnet_tf.weights.hugging_face.source import no_head
from xlnet_tf.weights.hugging_face.source import norm
from xlnet_tf.weights.hugging_face.source import task_head_weights
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import first_known
from xlnet_tf.weights.source import head_of
from xlnet_tf.weights.table import Place
from xlnet_tf.weights.table import Weight
from xlnet_tf.weights.table import table_weights
from xlnet_tf.weights.table import variables_by_path

SCOPE = "bert."
_EMBEDDING = "embeddings.word_embeddings.weight"
_LM_BIAS = "cls.predictions.bias"
_HEADS = re.compile(
    r"cls\.|classifier\.|qa_outputs\.|(bert\.)?pooler\."
    r"|(bert\.)?embeddings\.position_ids$"
)
# From Hugging Face's class name to ours. The class for sequence classification
# depends on the config and is not listed.
_ARCHITECTURES = {
    "BertForMaskedLM": "XLNetPretrainer",
    "BertForPreTraining": "XLNetPretrainer",
    "BertForSequenceClassification": "XLNetTextClassifier",
    "BertForTokenClassification": "XLNetTokenClassifier",
    "BertForMultipleChoice": "XLNetMultipleChoice",
    "BertForQuestionAnswering": "XLNetSpanClassifier",
}
# From our class name to Hugging Face's.
_THEIR_CLASSES = {
    "XLNetTextRegressor": "BertForSequenceClassification",
    "XLNetMultiLabelClassifier": "BertForSequenceClassification",
    **{ours: theirs for theirs, ours in _ARCHITECTURES.items()},
    "XLNetPretrainer": "BertForMaskedLM",
}
# Arguments of a head that reads BERT's pooler.
SUMMARY = {"summary": "first", "projection": True, "activation": "tanh"}


class View(NamedTuple):
    """Tensor with a BERT tensor name, made from a tensor in the files.

    Attributes:
        stored: str, name of the tensor in the files.
        shape: tuple of int, shape of the result of `take`.
        take: function that computes the result from the stored array. None: the
            result is the stored array.
    """

    stored: str
    shape: tuple
    take: Callable | None = None


class BertSource(HuggingFaceSource):
    """Source for a directory with a BERT or UniLM; see `HuggingFaceSource`."""

    embedding = _EMBEDDING
    noun = "a BERT"
    architectures = _ARCHITECTURES
    activation_name = "hidden_act"
    scopes = ("", SCOPE)

    def __init__(self, path):
        super().__init__(path)
        self._views = None

    def config(self):
        return BertConfig.from_json(self.path / CONFIG_FILE)

    @property
    def views(self):
        """Map BERT's tensor names to the Views of all stored tensors."""
        if self._views is None:
            self._views = {}
            for name, shape in self.tensors.shapes.items():
                self._views |= self.views_of(name, shape)
            if self.scope not in self.scopes:
                raise ValueError(
                    f"{self.path} does not hold {self.noun}: its names begin "
                    f"with {self.scope!r}, not {self.scopes[-1]!r}."
                )
        return self._views

    def views_of(self, name, shape):
        """Map BERT's tensor names to the Views of one stored tensor."""
        # The oldest files have names that were converted from TensorFlow.
        plain = name.replace("LayerNorm.gamma", "LayerNorm.weight")
        plain = plain.replace("LayerNorm.beta", "LayerNorm.bias")
        before, found, after = plain.partition("attention.self.")
        if found and after in ("qkv_linear.weight", "q_bias", "v_bias"):
            return _views_of_fused(before + found, after, name, shape)
        return {plain: View(name, shape)}

    def shapes(self):
        return {name: view.shape for name, view in self.views.items()}

    def read(self, name):
        view = self.views[name]
        array = self.tensors.read(view.stored)
        return array if view.take is None else view.take(array)

    def heads(self):
        shapes, heads = self.shapes(), []
        if _LM_BIAS in shapes:
            heads.append(Head("XLNetPretrainer", {"has_transform": True}))
        dropout = self.values.get("classifier_dropout")
        if dropout is None:
            dropout = self.values.get("hidden_dropout_prob", 0.1)
        if "classifier.weight" in shapes:
            heads += self._class_heads(shapes["classifier.weight"][0], dropout)
        if "qa_outputs.weight" in shapes:
            heads.append(Head("XLNetSpanClassifier", {"dropout": 0.0}))
        return heads

    def _class_heads(self, classes, dropout):
        arguments = {**self.class_arguments(classes), "dropout": dropout}
        # Hugging Face's token classification uses no pooler, but files of the
        # first versions of transformers contain a pooler.
        has_pooler = f"{self.scope}pooler.dense.weight" in self.shapes()
        if not has_pooler or self.is_a("BertForTokenClassification"):
            return [Head("XLNetTokenClassifier", arguments)]
        heads = [Head("XLNetTextClassifier", {**arguments, **SUMMARY})]
        if classes == 1:
            summary = {**SUMMARY, "dropout": dropout}
            heads.insert(0, Head("XLNetMultipleChoice", summary))
            heads.insert(0, Head("XLNetTextRegressor", summary))
        return heads

    def backbone_weights(self, backbone):
        return backbone_weights(backbone, self.scope)

    def head_weights(self, task, head):
        return task_head_weights(task, head_tables(self.scope), head)

    def new_head_weights(self, model):
        # As in Hugging Face's classes, the summary layer of a new classifier
        # starts from the pooler.
        table = dense("head/summary_dense", f"{self.scope}pooler.dense")
        variables, shapes = variables_by_path(model), self.shapes()
        return [
            Weight(place.name, variables[path], place.axes)
            for path, place in table.items()
            if path in variables and place.name in shapes
        ]

    def fill(self, model, head=None, strict=True):
        self.refuse_own_embedding(head, "cls.predictions.decoder.weight")
        super().fill(model, head, strict)

    def is_leftover(self, name):
        # The tensor is a copy of the embedding, or part of another task's head.
        return bool(_HEADS.match(name))


def _views_of_fused(scope, part, name, shape):
    """Make the Views of one UniLM tensor: fused projections or a bias."""
    if part != "qkv_linear.weight":
        kind = {"q_bias": "query", "v_bias": "value"}[part]
        length = int(np.prod(shape))
        flat = View(name, (length,), np.ravel)
        views = {f"{scope}{kind}.bias": flat}
        if kind == "query":
            # UniLM has no key bias, because a key bias would add the same
            # number to all scores of a row.
            key = View(name, (length,), lambda x: np.zeros_like(np.ravel(x)))
            views[f"{scope}key.bias"] = key
        return views
    width = shape[0] // 3

    def take(index):
        return lambda x: x[index * width : (index + 1) * width]

    return {
        f"{scope}{kind}.weight": View(name, (width, *shape[1:]), take(index))
        for index, kind in enumerate(("query", "key", "value"))
    }


def backbone_table(scope, config):
    """Make the table that maps backbone variables to Hugging Face's names.

    Args:
        scope: str, beginning of the tensor names: "bert." in the files of a
            task, "" in the files of a backbone.
        config: BertConfig.

    Returns:
        dict of str to Place, see `table.table_weights`.
    """
    ours, theirs = "block_{}", f"{scope}encoder.layer.{{}}"
    inside, embeddings = f"{theirs}.attention", f"{scope}embeddings"
    table = {
        "token_embedding/embeddings": Place(f"{scope}{_EMBEDDING}"),
        "position_embedding/embeddings": Place(
            f"{embeddings}.position_embeddings.weight"
        ),
        "segment_embedding/embeddings": Place(
            f"{embeddings}.token_type_embeddings.weight"
        ),
        **norm("embedding_norm", f"{embeddings}.LayerNorm"),
        "relative_position_bias/table": Place(
            f"{scope}rel_pos_bias.weight", axes=(1, 0)
        ),
        **dense(f"{ours}/attention/query_projection", f"{inside}.self.query"),
        **dense(f"{ours}/attention/key_projection", f"{inside}.self.key"),
        **dense(f"{ours}/attention/value_projection", f"{inside}.self.value"),
        **dense(
            f"{ours}/attention/output_projection", f"{inside}.output.dense"
        ),
        **norm(f"{ours}/attention_norm", f"{inside}.output.LayerNorm"),
        **dense(f"{ours}/intermediate", f"{theirs}.intermediate.dense"),
        **dense(f"{ours}/output_dense", f"{theirs}.output.dense"),
        **norm(f"{ours}/output_norm", f"{theirs}.output.LayerNorm"),
    }
    return of_config(table, config)


def of_config(table, config):
    """Remove table rows for variables that a model with `config` lacks."""
    absent = set()
    if not config.num_segments:
        absent.add("segment_embedding/embeddings")
    if not config.relative_position_buckets:
        absent.add("relative_position_bias/table")
    return {path: place for path, place in table.items() if path not in absent}


def head_tables(scope):
    """Make tables that map each head's variables to Hugging Face's names.

    Args:
        scope: str, see `backbone_table`. In these tables, only the names of the
            pooler's tensors begin with the scope.

    Returns:
        dict from a task's class name to the table of its head.
    """
    predictions = "cls.predictions.transform"
    sequence = {
        **dense("head/logits_dense", "classifier"),
        **dense("head/summary_dense", f"{scope}pooler.dense"),
    }
    return {
        "XLNetPretrainer": {
            "head/bias": Place(_LM_BIAS),
            **dense("head/transform", f"{predictions}.dense"),
            **norm("head/transform_norm", f"{predictions}.LayerNorm"),
        },
        "XLNetTextClassifier": sequence,
        "XLNetTextRegressor": sequence,
        "XLNetMultipleChoice": sequence,
        "XLNetTokenClassifier": dense("head/logits_dense", "classifier"),
        "XLNetSpanClassifier": dense("head/logits_dense", "qa_outputs"),
    }


def backbone_weights(backbone, scope):
    """List the Weights of a backbone; see `backbone_table`."""
    return table_weights(backbone, backbone_table(scope, backbone.config))


def head_weights(task):
    """List the Weights of a task's head; see `head_tables`."""
    return task_head_weights(task, head_tables(SCOPE))


def config_values(model):
    """Make the contents of Hugging Face's `config.json` for a model.

    Args:
        model: BertBackbone, or a task with such a backbone.

    Returns:
        dict.

    Raises:
        ValueError: if Hugging Face has no equivalent model or head.
    """
    config = model.config
    check_width(config, "BERT")
    if config.relative_position_buckets or not config.num_segments:
        raise ValueError(
            "Hugging Face's BERT has segments and no relative bias. Received: "
            f"num_segments={config.num_segments}, relative_position_buckets="
            f"{config.relative_position_buckets}. Choose another format."
        )
    # A subclass of one of our tasks is written as that task.
    task = first_known(type(model), _THEIR_CLASSES)
    values = {
        "architectures": [_THEIR_CLASSES.get(task, "BertModel")],
        "model_type": "bert",
        "vocab_size": config.vocabulary_size,
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "hidden_size": config.hidden_dim,
        "intermediate_size": config.intermediate_dim,
        "hidden_act": activation_value(config),
        "max_position_embeddings": config.max_positions,
        "type_vocab_size": config.num_segments,
        "hidden_dropout_prob": config.dropout,
        "attention_probs_dropout_prob": config.attention_dropout,
        "initializer_range": config.initializer_range,
        "layer_norm_eps": config.layer_norm_epsilon,
        "pad_token_id": 0,
        "tie_word_embeddings": True,
        "dtype": "float32",
    }
    if config.activation == "relu":
        values["gelu"] = config.gelu  # written so that our reader restores it
    if task is None:
        return values
    return {**values, **_head_values(model, task)}


def _head_values(model, task):
    """Make the entries of `config.json` that describe a task's head."""
    arguments = head_of(model).arguments
    if task == "XLNetPretrainer":
        # In Hugging Face's code the transform has the activation of the
        # feed-forward.
        is_theirs = arguments["transform_gelu"] == model.config.gelu
        if not arguments["has_transform"] or not is_theirs:
            raise no_head(model)
        return {}
    if any(arguments.get(k, v) != v for k, v in SUMMARY.items()):
        raise no_head(model)
    values = label_values(task, arguments)
    if task != "XLNetSpanClassifier":
        values["classifier_dropout"] = arguments["dropout"]
    return values
