"""BERT of Hugging Face and UniLM: directories, names and config.

UniLM's code has BERT's names and a table of relative biases. It may store
attention's projections as one tensor, without a bias of the keys.
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
# From Hugging Face's class to ours; sequence classification depends on the
# config.
_ARCHITECTURES = {
    "BertForMaskedLM": "XLNetPretrainer",
    "BertForPreTraining": "XLNetPretrainer",
    "BertForSequenceClassification": "XLNetTextClassifier",
    "BertForTokenClassification": "XLNetTokenClassifier",
    "BertForMultipleChoice": "XLNetMultipleChoice",
    "BertForQuestionAnswering": "XLNetSpanClassifier",
}
# Our class -> Hugging Face's.
_THEIR_CLASSES = {
    "XLNetTextRegressor": "BertForSequenceClassification",
    "XLNetMultiLabelClassifier": "BertForSequenceClassification",
    **{ours: theirs for theirs, ours in _ARCHITECTURES.items()},
    "XLNetPretrainer": "BertForMaskedLM",
}
# Arguments of the pooler and the head on it.
SUMMARY = {"summary": "first", "projection": True, "activation": "tanh"}


class View(NamedTuple):
    """A tensor with BERT's name, computed from a stored tensor.

    Attributes:
        stored: str, the name in the files.
        shape: tuple of int, of the result of `take`.
        take: function of the stored array, or None for the array itself.
    """

    stored: str
    shape: tuple
    take: Callable | None = None


class BertSource(HuggingFaceSource):
    """A directory with a BERT or a UniLM; see `HuggingFaceSource`."""

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
        """dict of str, BERT's names, to View."""
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
        """dict of str to View, the parts of a stored tensor."""
        # Names in the first files, converted from TensorFlow's.
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
        # Token classification has no pooler, but files of the first versions of
        # transformers contain one.
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
        # As in Hugging Face's classes, a new classifier begins with the pooler.
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
        # Tied to the embedding, or part of another task.
        return bool(_HEADS.match(name))


def _views_of_fused(scope, part, name, shape):
    """Views of UniLM's fused projections and their biases."""
    if part != "qkv_linear.weight":
        kind = {"q_bias": "query", "v_bias": "value"}[part]
        length = int(np.prod(shape))
        flat = View(name, (length,), np.ravel)
        views = {f"{scope}{kind}.bias": flat}
        if kind == "query":
            # Keys have no bias: it would add the same number to all scores of a
            # row.
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
    """Hugging Face's name of every variable of a backbone.

    Args:
        scope: str, "bert." in a task, "" in a backbone alone.
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
    """A table without the variables that a BertConfig lacks."""
    absent = set()
    if not config.num_segments:
        absent.add("segment_embedding/embeddings")
    if not config.relative_position_buckets:
        absent.add("relative_position_bias/table")
    return {path: place for path, place in table.items() if path not in absent}


def head_tables(scope):
    """Hugging Face's name of every variable of every head.

    Args:
        scope: str, see `backbone_table`; it includes the pooler.

    Returns:
        dict of str, the name of a task, to its table.
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
    """list of Weight of a backbone; see `backbone_table`."""
    return table_weights(backbone, backbone_table(scope, backbone.config))


def head_weights(task):
    """list of Weight of a task's head; see `head_tables`."""
    return task_head_weights(task, head_tables(SCOPE))


def config_values(model):
    """The values of Hugging Face's `config.json` for a model.

    Args:
        model: BertBackbone, or a task around one.

    Returns:
        dict.

    Raises:
        ValueError: if Hugging Face has no such model or head.
    """
    config = model.config
    check_width(config, "BERT")
    if config.relative_position_buckets or not config.num_segments:
        raise ValueError(
            "Hugging Face's BERT has segments and no relative bias. Received: "
            f"num_segments={config.num_segments}, relative_position_buckets="
            f"{config.relative_position_buckets}. Choose another format."
        )
    # Classes derived from ours are written as ours.
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
        values["gelu"] = config.gelu  # unused but kept
    if task is None:
        return values
    return {**values, **_head_values(model, task)}


def _head_values(model, task):
    """The values of the config that describe a head."""
    arguments = head_of(model).arguments
    if task == "XLNetPretrainer":
        # Their transform uses the feed-forward's activation.
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
