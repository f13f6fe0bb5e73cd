"""Directories that Hugging Face's `from_pretrained` reads."""

import os
import pathlib

import numpy as np
from safetensors.numpy import save_file

from xlnet_tf.files import write_json
from xlnet_tf.tasks.classification import XLNetTextRegressor
from xlnet_tf.tasks.heads import TokenHead
from xlnet_tf.weights.hugging_face import CONFIG_FILE
from xlnet_tf.weights.hugging_face import WEIGHTS_FILE
from xlnet_tf.weights.hugging_face_names import backbone_weights
from xlnet_tf.weights.hugging_face_names import head_weights
from xlnet_tf.weights.preset import RELEASED_CONFIG_FILE
from xlnet_tf.weights.source import tensors

# Transposing copies: shards of this size keep the copies small.
SHARD_BYTES = 512 * 2**20
_ARCHITECTURES = {
    "XLNetPretrainer": "XLNetLMHeadModel",
    "XLNetTextClassifier": "XLNetForSequenceClassification",
    "XLNetTextRegressor": "XLNetForSequenceClassification",
    "XLNetTokenClassifier": "XLNetForTokenClassification",
    "XLNetMultipleChoice": "XLNetForMultipleChoice",
    "XLNetQuestionAnswering": "XLNetForQuestionAnswering",
    "XLNetSpanClassifier": "XLNetForQuestionAnsweringSimple",
}


def save_hugging_face(model, path, shard_bytes=SHARD_BYTES):
    """Writes `config.json` and `model.safetensors`, or its shards.

    The tanh form of GELU is written as "gelu_new", so that the numbers are
    equal there. That code has one dropout rate; ours for the attention stands
    in the config, and it does not read it.

    Args:
        model: XLNetBackbone, or a task around one.
        path: str or path of a directory, made if missing.
        shard_bytes: int, largest size of one file of weights.

    Raises:
        ValueError: if Hugging Face has no such head, its sizes do not fit, or
            the directory is one of the released code.
    """
    path = pathlib.Path(path)
    if (path / RELEASED_CONFIG_FILE).exists():
        raise ValueError(
            f"{path} holds a {RELEASED_CONFIG_FILE}, which would be read "
            "before what is written now. Choose another directory."
        )
    backbone = getattr(model, "backbone", model)
    values = config_values(model)
    weights = backbone_weights(
        backbone, "" if model is backbone else "transformer."
    )
    if model is not backbone:
        weights += head_weights(model)
    path.mkdir(parents=True, exist_ok=True)
    shards = _shards(weights, shard_bytes)
    names = [WEIGHTS_FILE]
    if len(shards) > 1:
        count = len(shards)
        names = [
            f"model-{i + 1:05d}-of-{count:05d}.safetensors"
            for i in range(count)
        ]
    written = []
    try:
        for name, shard in zip(names, shards, strict=True):
            temporary = path / f".{name}.{os.getpid()}"
            written.append((temporary, path / name))
            arrays = {
                # Not `.numpy()`, which copies.
                key: np.asarray(tensor)
                for key, tensor in tensors(shard)
            }
            save_file(arrays, temporary, metadata={"format": "pt"})
        for temporary, file in written:
            os.replace(temporary, file)
    finally:
        for temporary, _ in written:
            temporary.unlink(missing_ok=True)
    for pattern in (f"{WEIGHTS_FILE}*", "model-*-of-*.safetensors"):
        for file in path.glob(pattern):
            if file.name not in names:
                file.unlink()  # of a model that was here before
    if len(shards) > 1:
        write_json(
            path / f"{WEIGHTS_FILE}.index.json",
            {
                "metadata": {"total_size": sum(map(_bytes, weights))},
                "weight_map": {
                    weight.name: name
                    for name, shard in zip(names, shards, strict=True)
                    for weight in shard
                },
            },
        )
    write_json(path / CONFIG_FILE, values)


def _bytes(weight):
    size = 4
    for length in weight.variable.shape:
        size *= length
    return size


def _shards(weights, shard_bytes):
    shards, size = [[]], 0
    for weight in weights:
        if shards[-1] and size + _bytes(weight) > shard_bytes:
            shards.append([])
            size = 0
        shards[-1].append(weight)
        size += _bytes(weight)
    return shards


def config_values(model):
    """What Hugging Face's `config.json` says about a model.

    Args:
        model: XLNetBackbone, or a task around one.

    Returns:
        dict.

    Raises:
        ValueError: if heads of that width are not possible there.
    """
    config = model.config
    if config.head_dim * config.num_heads != config.hidden_dim:
        raise ValueError(
            "Hugging Face's XLNet needs heads that share the model's width: "
            f"{config.num_heads} heads of {config.head_dim} are not "
            f"{config.hidden_dim}. Choose another format."
        )
    activation = config.activation
    if activation == "gelu" and config.gelu == "tanh":
        activation = "gelu_new"
    is_causal = config.attention_type == "causal"
    values = {
        "architectures": [_architecture(model)],
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
        values["gelu"] = config.gelu  # idle, and kept
    return {**values, **_head_values(model)}


def _architecture(model):
    """Their class; classes derived from ours are written as ours."""
    for cls in type(model).__mro__:
        if cls.__name__ in _ARCHITECTURES:
            return _ARCHITECTURES[cls.__name__]
    return "XLNetModel"


def _head_values(model):
    head = getattr(model, "head", None)
    values = {}
    if hasattr(head, "summary_dense"):
        summary = model.summary_arguments
        values = {
            "summary_type": summary["summary"],
            "summary_use_proj": summary["projection"],
            "summary_activation": summary["activation"],
            "summary_last_dropout": summary["dropout"],
        }
        if values["summary_activation"] is None:
            values["summary_activation"] = "linear"
    if isinstance(model, XLNetTextRegressor):
        values["problem_type"] = "regression"
        values["id2label"] = {"0": "LABEL_0"}
        values["label2id"] = {"LABEL_0": 0}
    if hasattr(model, "num_classes") and hasattr(model, "labels"):
        labels = model.labels or [
            f"LABEL_{i}" for i in range(model.num_classes)
        ]
        values["id2label"] = {str(i): name for i, name in enumerate(labels)}
        values["label2id"] = {name: i for i, name in enumerate(labels)}
    if isinstance(head, TokenHead):
        values["classifier_dropout"] = model.dropout
    if hasattr(head, "end_inner"):
        values["start_n_top"] = model.num_starts
        values["end_n_top"] = model.num_ends
        values["span_dropout"] = model.dropout
    return values
