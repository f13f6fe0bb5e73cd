"""Reader of Hugging Face's MPNet, a BERT with relative bias and no segments."""

import re

from xlnet_tf.config.bert import MPNET_FIRST_POSITION
from xlnet_tf.weights.hugging_face.bert import SUMMARY
from xlnet_tf.weights.hugging_face.bert import BertSource
from xlnet_tf.weights.hugging_face.bert import View
from xlnet_tf.weights.hugging_face.bert import of_config
from xlnet_tf.weights.hugging_face.source import dense
from xlnet_tf.weights.hugging_face.source import norm
from xlnet_tf.weights.hugging_face.source import task_head_weights
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.table import Place
from xlnet_tf.weights.table import table_weights

_SEQUENCE = "classifier.out_proj.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_HEADS = re.compile(
    r"lm_head\.|classifier\.|qa_outputs\.|(mpnet\.)?pooler\."
    r"|(mpnet\.)?embeddings\.position_ids$"
)


class MPNetSource(BertSource):
    """Source for a directory with an MPNet; see `HuggingFaceSource`.

    Hugging Face's code counts the positions of real tokens from 2, and this
    library counts from 0. So this reader skips the first two rows of the stored
    position table.
    """

    noun = "an MPNet"
    architectures = {
        "MPNetForMaskedLM": "XLNetPretrainer",
        "MPNetForSequenceClassification": "XLNetTextClassifier",
        "MPNetForTokenClassification": "XLNetTokenClassifier",
        "MPNetForMultipleChoice": "XLNetMultipleChoice",
        "MPNetForQuestionAnswering": "XLNetSpanClassifier",
    }
    scopes = ("", "mpnet.")

    def views_of(self, name, shape):
        if not name.endswith(_POSITIONS):
            return {name: View(name, shape)}
        first = MPNET_FIRST_POSITION
        rest = View(name, (shape[0] - first, *shape[1:]), lambda x: x[first:])
        return {name: rest}

    def heads(self):
        shapes, heads = self.shapes(), []
        if "lm_head.bias" in shapes:
            # Hugging Face's LM head uses GELU even if the config has another
            # activation.
            transform = {"has_transform": True, "transform_gelu": "erf"}
            heads.append(Head("XLNetPretrainer", transform))
        dropout = {"dropout": self.values.get("hidden_dropout_prob", 0.1)}
        summary = {**SUMMARY, **dropout}
        if _SEQUENCE in shapes:
            classes = shapes[_SEQUENCE][0]
            arguments = {**self.class_arguments(classes), **summary}
            if classes == 1:
                heads.append(Head("XLNetTextRegressor", summary))
            heads.append(Head("XLNetTextClassifier", arguments))
        elif "classifier.weight" in shapes:
            classes = shapes["classifier.weight"][0]
            # Token classification uses no pooler; see `BertSource`.
            has_pooler = f"{self.scope}pooler.dense.weight" in shapes
            is_of_tokens = self.is_a("MPNetForTokenClassification")
            if classes == 1 and has_pooler and not is_of_tokens:
                heads.append(Head("XLNetMultipleChoice", summary))
            else:
                arguments = {**self.class_arguments(classes), **dropout}
                heads.append(Head("XLNetTokenClassifier", arguments))
        if "qa_outputs.weight" in shapes:
            heads.append(Head("XLNetSpanClassifier", {"dropout": 0.0}))
        return heads

    def backbone_weights(self, backbone):
        table = of_config(backbone_table(self.scope), backbone.config)
        return table_weights(backbone, table)

    def head_weights(self, task, head):
        return task_head_weights(task, head_tables(self.scope), head)

    def new_head_weights(self, model):
        return []  # Hugging Face's classifier of MPNet uses no pooler.

    def fill(self, model, head=None, strict=True):
        self.refuse_own_embedding(head, "lm_head.decoder.weight")
        is_language_model = head is not None and head.task == "XLNetPretrainer"
        if is_language_model and model.config.activation != "gelu":
            raise ValueError(
                f"{self.path} has an LM head that computes GELU beside layers "
                f"that compute {model.config.activation}; here both compute "
                "the same. Give `has_transform=False` for a new head, or load "
                "the BertBackbone alone."
            )
        super().fill(model, head, strict)

    def is_leftover(self, name):
        return bool(_HEADS.match(name))


def head_tables(scope):
    """Make the tables of `bert.head_tables`, with MPNet's tensor names."""
    sequence = {
        **dense("head/summary_dense", "classifier.dense"),
        **dense("head/logits_dense", "classifier.out_proj"),
    }
    return {
        "XLNetPretrainer": {
            "head/bias": Place("lm_head.bias"),
            **dense("head/transform", "lm_head.dense"),
            **norm("head/transform_norm", "lm_head.layer_norm"),
        },
        "XLNetTextClassifier": sequence,
        "XLNetTextRegressor": sequence,
        "XLNetMultipleChoice": {
            **dense("head/summary_dense", f"{scope}pooler.dense"),
            **dense("head/logits_dense", "classifier"),
        },
        "XLNetTokenClassifier": dense("head/logits_dense", "classifier"),
        "XLNetSpanClassifier": dense("head/logits_dense", "qa_outputs"),
    }


def backbone_table(scope):
    """Make the table of `bert.backbone_table`, with MPNet's tensor names."""
    ours, theirs = "block_{}", f"{scope}encoder.layer.{{}}"
    inside, embeddings = f"{theirs}.attention", f"{scope}embeddings"
    return {
        "token_embedding/embeddings": Place(
            f"{embeddings}.word_embeddings.weight"
        ),
        "position_embedding/embeddings": Place(f"{scope}{_POSITIONS}"),
        **norm("embedding_norm", f"{embeddings}.LayerNorm"),
        "relative_position_bias/table": Place(
            f"{scope}encoder.relative_attention_bias.weight"
        ),
        **dense(f"{ours}/attention/query_projection", f"{inside}.attn.q"),
        **dense(f"{ours}/attention/key_projection", f"{inside}.attn.k"),
        **dense(f"{ours}/attention/value_projection", f"{inside}.attn.v"),
        **dense(f"{ours}/attention/output_projection", f"{inside}.attn.o"),
        **norm(f"{ours}/attention_norm", f"{inside}.LayerNorm"),
        **dense(f"{ours}/intermediate", f"{theirs}.intermediate.dense"),
        **dense(f"{ours}/output_dense", f"{theirs}.output.dense"),
        **norm(f"{ours}/output_norm", f"{theirs}.output.LayerNorm"),
    }
