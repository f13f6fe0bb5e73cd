"""The released TensorFlow 1 checkpoints, read and written.

Names and layouts follow zihangdai/xlnet. Biases and segment encodings are
stacked over layers there, `[L, N, H]` and `[L, 2, N, H]`; tied biases have no
layer axis. Kernels have our shapes.
"""

import os
import pathlib
import re
import warnings

import tensorflow as tf

from xlnet_tf.weights.source import Head
from xlnet_tf.weights.source import Weight
from xlnet_tf.weights.source import tensors
from xlnet_tf.weights.tensorflow import TensorFlowSource

CONFIG_FILE = "xlnet_config.json"
CHECKPOINT_NAME = "xlnet_model.ckpt"
_TABLE = "transformer/word_embedding/lookup_table"
_SLOTS = re.compile(
    r"(.*/)?(adam_[mv]|Adam(_1)?|Momentum|ExponentialMovingAverage"
    r"|beta[12]_power(_\d+)?|global_step|learning_rate)(/.*)?"
)
# What the released code takes from its flags, and our defaults.
_OPTIONS = {"labels": None, "summary": "last", "num_starts": 5, "num_ends": 5}
_HEADS = re.compile(
    r"lm_loss/|seq(ue|u)n[ec]+_summary|classification|regression"
    r"|logits/dense/|(start|end)_logits/|answer_class/"
)
# As the released code spells it, and as others corrected it.
_SUMMARIES = ("sequnece_summary", "sequence_summary")


class ReleasedSource(TensorFlowSource):
    """A checkpoint of the released code, pretrained or fine-tuned.

    Args:
        checkpoint: TensorFlowCheckpoint.
        config_file: path of its `xlnet_config.json`.

    Raises:
        ValueError: if it is not the checkpoint of an XLNet.
    """

    kind = "released TensorFlow 1 checkpoint"
    gelu = "the released code computes the tanh form"

    def __init__(self, checkpoint, config_file):
        super().__init__(checkpoint, config_file)
        tables = [name for name in checkpoint.shapes if name.endswith(_TABLE)]
        if len(tables) != 1:
            raise ValueError(
                f"{self.path} is not the checkpoint of an XLNet: expected one "
                f"variable .../{_TABLE}, found {len(tables)}. It holds: "
                f"{', '.join(sorted(checkpoint.shapes)[:5])}, ..."
            )
        # "model/" in the release; whatever comes before is the user's.
        self.scope = tables[0].removesuffix(_TABLE)
        self.outer = self.scope.removesuffix("model/")

    def heads(self):
        names = set(self.shapes())
        heads = []
        if f"{self.scope}lm_loss/bias" in names:
            heads.append(Head("XLNetPretrainer", {"has_transform": False}))
        has_summary = self._summary() is not None
        # The released code has no activation without the dense layer.
        summary = {
            "projection": has_summary,
            "activation": "tanh" if has_summary else None,
        }
        for name in sorted(names):
            match = re.fullmatch(
                rf"{re.escape(self.scope)}(classification|regression)"
                r"(?:_(.+))?/logit/kernel",
                name,
            )
            if match and match[1] == "classification":
                classes = self.shapes()[name][-1]
                heads.append(
                    Head(
                        "XLNetTextClassifier",
                        {"num_classes": classes, **summary},
                        match[2] or "",
                    )
                )
            elif match:
                heads.append(
                    Head("XLNetTextRegressor", summary, match[2] or "")
                )
        if f"{self.outer}logits/dense/kernel" in names:
            heads.append(Head("XLNetMultipleChoice", summary))
        if f"{self.outer}start_logits/dense/kernel" in names:
            inner = self.shapes().get(f"{self.outer}end_logits/dense_1/kernel")
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
        return head_weights(
            task, head.name, self.scope, self._summary() or _SUMMARIES[0]
        )

    def is_leftover(self, name):
        inner = name.removeprefix(self.scope).removeprefix(self.outer)
        # Heads of other tasks are part of no other model.
        return bool(_SLOTS.fullmatch(name) or _HEADS.match(inner))


def backbone_weights(backbone, scope="model/"):
    """Which released variable, and which layer of it, fills each of ours.

    Args:
        backbone: XLNetBackbone.
        scope: str, what stands before `transformer/`.

    Returns:
        list of Weight.

    Source: the variable scopes in `modeling.py` of the released code.
    """
    scope = f"{scope}transformer"
    num_layers = len(backbone.blocks)
    weights = [
        Weight(
            f"{scope}/word_embedding/lookup_table",
            backbone.token_embedding.embeddings,
        ),
        Weight(
            f"{scope}/mask_emb/mask_emb",
            backbone.mask_embedding,
            leading_ones=2,
        ),
    ]
    if backbone.shared_biases is not None:
        weights += _biases(scope, backbone.shared_biases)
    for layer, block in enumerate(backbone.blocks):
        stack = dict(layer=layer, num_layers=num_layers)
        if backbone.shared_biases is None:
            weights += _biases(scope, block.attention.biases, **stack)
        weights.append(
            Weight(
                f"{scope}/seg_embed", block.attention.segment_encoding, **stack
            )
        )
        weights += [
            Weight(f"{scope}/layer_{layer}/{name}", variable)
            for name, variable in _block_variables(block)
        ]
    return weights


def _biases(scope, biases, **stack):
    return [
        Weight(f"{scope}/r_w_bias", biases.content_bias, **stack),
        Weight(f"{scope}/r_r_bias", biases.position_bias, **stack),
        Weight(f"{scope}/r_s_bias", biases.segment_bias, **stack),
    ]


def _block_variables(block):
    attention = block.attention
    return [
        ("rel_attn/q/kernel", attention.query_projection.kernel),
        ("rel_attn/k/kernel", attention.key_projection.kernel),
        ("rel_attn/v/kernel", attention.value_projection.kernel),
        ("rel_attn/r/kernel", attention.position_projection.kernel),
        ("rel_attn/o/kernel", attention.output_projection.kernel),
        ("rel_attn/LayerNorm/gamma", block.attention_norm.gamma),
        ("rel_attn/LayerNorm/beta", block.attention_norm.beta),
        ("ff/layer_1/kernel", block.intermediate.kernel),
        ("ff/layer_1/bias", block.intermediate.bias),
        ("ff/layer_2/kernel", block.output_dense.kernel),
        ("ff/layer_2/bias", block.output_dense.bias),
        ("ff/LayerNorm/gamma", block.output_norm.gamma),
        ("ff/LayerNorm/beta", block.output_norm.beta),
    ]


def head_weights(task, name="", scope="model/", summary=_SUMMARIES[0]):
    """Which released variable fills each of a head's.

    Args:
        task: XLNetPretrainer, XLNetTextClassifier, XLNetTextRegressor,
            XLNetMultipleChoice or XLNetQuestionAnswering.
        name: str, what follows `classification_` or `regression_`.
        scope: str, what stands before `transformer/`.
        summary: str, scope of the summary.

    Returns:
        list of Weight.

    Raises:
        ValueError: if the released code has no such head.
    """
    from xlnet_tf.tasks import classification

    kind = type(task)
    head = task.head
    outer = scope.removesuffix("model/")
    suffix = f"_{name}" if name else ""
    if issubclass(kind, classification.XLNetTextClassifier):
        return _sequence_head(
            head, f"{scope}classification{suffix}/logit", scope + summary
        )
    if issubclass(kind, classification.XLNetTextRegressor):
        return _sequence_head(
            head, f"{scope}regression{suffix}/logit", scope + summary
        )
    if issubclass(kind, classification.XLNetMultipleChoice):
        return _sequence_head(head, f"{outer}logits/dense", scope + summary)
    if hasattr(head, "end_inner"):
        return _span_head(head, outer)
    if hasattr(task, "logits") and not head.has_transform:
        return [Weight(f"{scope}lm_loss/bias", head.bias)]
    raise _no_head(task)


def _no_head(task):
    return ValueError(
        "the released code has no head like that of "
        f"{type(task).__name__} with these arguments. Save the backbone, or "
        "choose another format."
    )


def _sequence_head(head, logits, summary):
    weights = _dense(logits, head.logits_dense)
    if head.summary_dense is not None:
        weights += _dense(f"{summary}/summary", head.summary_dense)
    return weights


def _span_head(head, outer):
    return [
        *_dense(f"{outer}start_logits/dense", head.start_dense),
        *_dense(f"{outer}end_logits/dense_0", head.end_inner),
        Weight(f"{outer}end_logits/LayerNorm/gamma", head.end_norm.gamma),
        Weight(f"{outer}end_logits/LayerNorm/beta", head.end_norm.beta),
        *_dense(f"{outer}end_logits/dense_1", head.end_dense),
        *_dense(f"{outer}answer_class/dense_0", head.class_inner),
        Weight(f"{outer}answer_class/dense_1/kernel", head.class_dense.kernel),
    ]


def _dense(name, layer):
    return [
        Weight(f"{name}/kernel", layer.kernel),
        Weight(f"{name}/bias", layer.bias),
    ]


def save_tf1(model, path, tokenizer=None, name="task"):
    """Writes a directory that the released code reads.

    `xlnet_config.json`, `xlnet_model.ckpt.*` and `spiece.model`. What the
    released config has no word for stands in it under our names. The released
    code always computes the tanh form of GELU, and takes from flags which
    summary is read, how many answers are kept, and the names of classes: a
    warning says what is not kept.

    Args:
        model: XLNetBackbone, or a task around one.
        path: str or path of a directory, made if missing.
        tokenizer: object with `model_proto` (bytes), or None.
        name: str, what follows `classification_` or `regression_`.

    Raises:
        ValueError: if the released code has no such head.
    """
    from xlnet_tf.files import write_bytes

    path = pathlib.Path(path)
    backbone = getattr(model, "backbone", model)
    weights = backbone_weights(backbone)
    if backbone is not model:
        weights += head_weights(model, name)
        _check_options(model, path)
    path.mkdir(parents=True, exist_ok=True)
    values = dict(tensors(weights))
    temporary = path / f".{CHECKPOINT_NAME}.{os.getpid()}"
    tf.raw_ops.SaveV2(
        prefix=str(temporary),
        tensor_names=list(values),
        shape_and_slices=[""] * len(values),
        tensors=list(values.values()),
    )
    # The index last: without it there is no checkpoint.
    written = sorted(path.glob(f"{temporary.name}.*"))
    ends = [file.name.removeprefix(temporary.name) for file in written]
    for file, end in zip(written, ends, strict=True):
        os.replace(file, path / f"{CHECKPOINT_NAME}{end}")
    for file in path.glob(f"{CHECKPOINT_NAME}.data-*"):
        if file.name.removeprefix(CHECKPOINT_NAME) not in ends:
            file.unlink()  # of a checkpoint that was here before
    if tokenizer is not None:
        write_bytes(path / "spiece.model", tokenizer.model_proto)
    backbone.config.to_json(path / CONFIG_FILE)


def _check_options(task, path):
    """Refuses a head that the released code computes otherwise."""
    head = task.head
    values = task.get_config()
    if hasattr(head, "summary_dense"):
        # That code has no activation without the dense layer.
        activation = "tanh" if values["projection"] else None
        if values["activation"] != activation:
            raise _no_head(task)
    if hasattr(head, "end_inner") and head.inner_dim != task.config.hidden_dim:
        raise _no_head(task)
    lost = ", ".join(
        f"{name}={values[name]!r}"
        for name, default in _OPTIONS.items()
        if values.get(name, default) != default
    )
    if lost:
        warnings.warn(
            f"{path} does not keep {lost}; give them again when you read it.",
            stacklevel=3,
        )
