"""Reader and writer of TensorFlow 1 checkpoints of the released code.

Names and layouts follow https://github.com/zihangdai/xlnet. Each kind of
attention bias is one tensor `[L, N, H]` for L layers with N heads of width H.
One tensor `[L, 2, N, H]` has the segment encodings of all layers. Tied biases
have no layer axis. Kernels have the same shapes as in this library.
"""

import re
import warnings

import tensorflow as tf

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.directories import written_directory
from data_pipeline.base.files import as_path
from data_pipeline.base.files import write_bytes
from xlnet_tf.config import XLNetConfig
from xlnet_tf.weights.own import is_preset
from xlnet_tf.weights.source import RELEASED_CONFIG_FILE
from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import backbone_of
from xlnet_tf.weights.source import first_known
from xlnet_tf.weights.source import head_of
from xlnet_tf.weights.source import lost_settings
from xlnet_tf.weights.table import Place
from xlnet_tf.weights.table import check_writable
from xlnet_tf.weights.table import table_head_weights
from xlnet_tf.weights.table import table_weights
from xlnet_tf.weights.table import tensors
from xlnet_tf.weights.tensorflow import TensorFlowSource
from xlnet_tf.weights.tensorflow import dense
from xlnet_tf.weights.tensorflow import norm

CHECKPOINT_NAME = "xlnet_model.ckpt"
_TABLE = "transformer/word_embedding/lookup_table"
_TABLE_OF_BERT = "bert/embeddings/word_embeddings"
_SLOTS = re.compile(
    r"(.*/)?(adam_[mv]|Adam(_1)?|Momentum|ExponentialMovingAverage"
    r"|beta[12]_power(_\d+)?|global_step|learning_rate)(/.*)?"
)
# Arguments that are command flags in the released code, with our defaults.
_OPTIONS = {"labels": None, "summary": "last", "num_starts": 5, "num_ends": 5}
_READ_AS = {
    "XLNetMultiLabelClassifier": "XLNetTextClassifier",
    "XLNetRanker": "XLNetMultipleChoice",
}
_HEADS = re.compile(
    r"lm_loss/|seq(ue|u)n[ec]+_summary|classification|regression"
    r"|logits/dense/|(start|end)_logits/|answer_class/"
)
# Scope of the summary layer: the released code's misspelt name, and the
# corrected name in other code.
_SUMMARIES = ("sequnece_summary", "sequence_summary")


class ReleasedSource(TensorFlowSource):
    """Source for a pretrained or fine-tuned checkpoint of the released code.

    Args:
        checkpoint: TensorFlowCheckpoint.
        config_file: path of the checkpoint's `xlnet_config.json`.

    Raises:
        ValueError: if the checkpoint does not contain an XLNet.
    """

    kind = "released TensorFlow 1 checkpoint"
    gelu = "the released code computes the tanh form"

    def __init__(self, checkpoint, config_file):
        super().__init__(checkpoint, config_file)
        # "model/" in the released checkpoints; users may add an outer scope.
        self.scope = check_is_xlnet(checkpoint).removesuffix(_TABLE)
        self.outer = self.scope.removesuffix("model/")

    def heads(self):
        shapes = self.shapes()
        heads = []
        if f"{self.scope}lm_loss/bias" in shapes:
            heads.append(Head("XLNetPretrainer", {"has_transform": False}))
        has_summary = self._summary() is not None
        # In the released code, a summary without the dense layer has no
        # activation.
        summary = {
            "projection": has_summary,
            "activation": "tanh" if has_summary else None,
        }
        pattern = (
            rf"{re.escape(self.scope)}(classification|regression)"
            r"(?:_(.+))?/logit/kernel"
        )
        for match in filter(None, map(re.compile(pattern).fullmatch, shapes)):
            task, arguments = "XLNetTextRegressor", summary
            if match[1] == "classification":
                task = "XLNetTextClassifier"
                arguments = {"num_classes": shapes[match[0]][-1], **summary}
            heads.append(Head(task, arguments, match[2] or ""))
        heads.sort(key=lambda head: (head.task, head.name))
        if f"{self.outer}logits/dense/kernel" in shapes:
            heads.append(Head("XLNetMultipleChoice", summary))
        if f"{self.outer}start_logits/dense/kernel" in shapes:
            inner = shapes.get(f"{self.outer}end_logits/dense_1/kernel")
            arguments = {"inner_dim": inner and inner[0]}
            heads.append(Head("XLNetQuestionAnswering", arguments))
        return heads

    def _summary(self):
        for name in _SUMMARIES:
            if f"{self.scope}{name}/summary/kernel" in self.shapes():
                return name
        return None

    def backbone_weights(self, backbone):
        return backbone_weights(backbone, self.scope)

    def head_weights(self, task, head):
        summary = self._summary() or _SUMMARIES[0]
        return head_weights(task, head.name, self.scope, summary, head.task)

    def is_leftover(self, name):
        inner = name.removeprefix(self.scope).removeprefix(self.outer)
        # Ignore optimizer slots, and heads of other tasks.
        return bool(_SLOTS.fullmatch(name) or _HEADS.match(inner))


def check_is_xlnet(checkpoint):
    """Check that a checkpoint contains exactly one XLNet.

    Args:
        checkpoint: TensorFlowCheckpoint.

    Returns:
        str, tensor name of the embedding table.

    Raises:
        ValueError: if the checkpoint does not contain an XLNet.
    """
    tables = [name for name in checkpoint.shapes if name.endswith(_TABLE)]
    if len(tables) == 1:
        return tables[0]
    if any(name.endswith(_TABLE_OF_BERT) for name in checkpoint.shapes):
        raise ValueError(
            f"{checkpoint.prefix} is the TensorFlow 1 checkpoint of a BERT, "
            "which is not read. Convert it to Hugging Face's format with "
            "transformers 4 (pip install 'transformers<5'; "
            "transformers-cli convert --model_type bert), and give that "
            "directory."
        )
    raise ValueError(
        f"{checkpoint.prefix} is not the checkpoint of an XLNet: expected one "
        f"variable .../{_TABLE}, found {len(tables)}. It holds: "
        f"{', '.join(sorted(checkpoint.shapes)[:5])}, ..."
    )


def backbone_table(scope="model/"):
    """Make the table that maps backbone variables to released tensor names.

    Args:
        scope: str, scope that precedes `transformer/` in tensor names.

    Returns:
        dict of str to Place, see `table.table_weights`.

    Source: the variable scopes in `modeling.py` of the released code.
    """
    ours, theirs = "block_{}", f"{scope}transformer/layer_{{}}"
    attention, scope = f"{ours}/attention", f"{scope}transformer"
    return {
        "token_embedding/embeddings": Place(
            f"{scope}/word_embedding/lookup_table"
        ),
        "mask_embedding": Place(f"{scope}/mask_emb/mask_emb", leading_ones=2),
        **{
            f"{attention}/{path}": Place(f"{scope}/{name}", is_stacked=True)
            for path, name in {
                "biases/content_bias": "r_w_bias",
                "biases/position_bias": "r_r_bias",
                "biases/segment_bias": "r_s_bias",
                "segment_encoding": "seg_embed",
            }.items()
        },
        **{
            f"{attention}/{part}_projection/kernel": Place(
                f"{theirs}/rel_attn/{name}/kernel"
            )
            for part, name in {
                "query": "q",
                "key": "k",
                "value": "v",
                "position": "r",
                "output": "o",
            }.items()
        },
        **norm(f"{ours}/attention_norm", f"{theirs}/rel_attn/LayerNorm"),
        **dense(f"{ours}/intermediate", f"{theirs}/ff/layer_1"),
        **dense(f"{ours}/output_dense", f"{theirs}/ff/layer_2"),
        **norm(f"{ours}/output_norm", f"{theirs}/ff/LayerNorm"),
    }


def head_tables(name="", scope="model/", summary=_SUMMARIES[0]):
    """Make tables that map each head's variables to released tensor names.

    Args:
        name: str, name of the head, which follows `classification_` or
            `regression_` in tensor names.
        scope: str, scope that precedes `transformer/` in tensor names.
        summary: str, scope of the summary layer.

    Returns:
        dict from a task's class name to the table of its head.
    """
    outer = scope.removesuffix("model/")
    suffix = f"_{name}" if name else ""

    def sequence(logits):
        return {
            **dense("head/logits_dense", logits),
            **dense("head/summary_dense", f"{scope}{summary}/summary"),
        }

    return {
        "XLNetPretrainer": {"head/bias": Place(f"{scope}lm_loss/bias")},
        "XLNetTextClassifier": sequence(f"{scope}classification{suffix}/logit"),
        "XLNetTextRegressor": sequence(f"{scope}regression{suffix}/logit"),
        "XLNetMultipleChoice": sequence(f"{outer}logits/dense"),
        "XLNetQuestionAnswering": {
            **dense("head/start_dense", f"{outer}start_logits/dense"),
            **dense("head/end_inner", f"{outer}end_logits/dense_0"),
            **norm("head/end_norm", f"{outer}end_logits/LayerNorm"),
            **dense("head/end_dense", f"{outer}end_logits/dense_1"),
            **dense("head/class_inner", f"{outer}answer_class/dense_0"),
            **dense("head/class_dense", f"{outer}answer_class/dense_1", False),
        },
    }


def backbone_weights(backbone, scope="model/"):
    """List the Weights of a backbone; see `backbone_table`."""
    return table_weights(backbone, backbone_table(scope))


def head_weights(
    task, name="", scope="model/", summary=_SUMMARIES[0], of_task=None
):
    """List the Weights of a task's head; see `head_tables`.

    `of_task` is the class name of the task whose head is in the checkpoint. If
    `head_tables` has no table for the class of `task`, the table for `of_task`
    is used.

    Raises:
        ValueError: if the released code has no equivalent head.
    """
    tables = head_tables(name, scope, summary)
    table = tables.get(first_known(type(task), tables) or of_task)
    weights = table_head_weights(task, table)
    if weights is None:
        raise _no_head(task)
    return weights


def _no_head(task):
    return ValueError(
        "the released code has no head like that of "
        f"{type(task).__name__} with these arguments. Save the backbone, or "
        "choose another format."
    )


def save_tf1(model, path, tokenizer=None, name="task"):
    """Write a model in the released format.

    The files are `xlnet_config.json`, `xlnet_model.ckpt.*` and `spiece.model`.
    Config fields that the released code lacks have this library's names. The
    released code ignores these fields and always computes the tanh form of
    GELU. The files cannot store some settings of a task, such as `summary`,
    `num_starts`, `num_ends` and `labels`. A warning lists the lost settings
    that differ from the defaults. `SHA256SUMS` lists the digests of the written
    files.

    Args:
        model: XLNetBackbone, or a task with such a backbone.
        path: str or path of a directory, which is made if missing.
        tokenizer: object with `model_proto` (bytes), or None.
        name: str, name of the head, which follows `classification_` or
            `regression_` in tensor names.

    Raises:
        ValueError: if the released code has no equivalent head, or the
            directory already has a preset or a checkpoint with a step number.
    """
    path = as_path(path)
    check_writable(model)
    if is_preset(path):
        raise ValueError(
            f"{path} holds a preset, which would be read before the new files. "
            "Choose another directory."
        )
    if others := sorted(path.glob(f"{CHECKPOINT_NAME}-*.index")):
        raise ValueError(
            f"{path} holds {others[0].name}, a step that would be read before "
            "the new files. Choose another directory."
        )
    backbone = backbone_of(model)
    if not isinstance(backbone.config, XLNetConfig):
        raise ValueError(
            "the released format holds an XLNet. Received: a "
            f"{type(backbone).__name__}. Choose another format."
        )
    weights = backbone_weights(backbone)
    if backbone is not model:
        weights += head_weights(model, name)
        _check_options(model, path)
    values = dict(tensors(weights))
    with written_directory(path, _is_of_a_model) as new:
        tf.raw_ops.SaveV2(
            prefix=str(new / CHECKPOINT_NAME),
            tensor_names=list(values),
            shape_and_slices=[""] * len(values),
            tensors=list(values.values()),
        )
        if tokenizer is not None:
            write_bytes(new / "spiece.model", tokenizer.model_proto)
        backbone.config.to_json(new / RELEASED_CONFIG_FILE)


def _is_of_a_model(name):
    """Whether a file may belong to an earlier model in the directory."""
    return name in (CHECKSUMS_FILE, RELEASED_CONFIG_FILE) or name.startswith(
        (f"{CHECKPOINT_NAME}.index", f"{CHECKPOINT_NAME}.data-")
    )


def _check_options(task, path):
    """Refuse heads that the released code lacks; warn of lost options."""
    arguments = head_of(task).arguments
    if "projection" in arguments:
        # In the released code, a summary without the dense layer has no
        # activation.
        activation = "tanh" if arguments["projection"] else None
        if arguments["activation"] != activation:
            raise _no_head(task)
    hidden_dim = task.config.hidden_dim
    if arguments.get("inner_dim", hidden_dim) != hidden_dim:
        raise _no_head(task)
    lost = [
        f"{name}={arguments[name]!r}"
        for name, default in _OPTIONS.items()
        if arguments.get(name, default) != default
    ]
    lost += lost_settings(task, "permutation", _READ_AS)
    if lost:
        warnings.warn(
            f"{path} does not keep {', '.join(lost)}; give them again when you "
            "read it.",
            stacklevel=3,
        )
