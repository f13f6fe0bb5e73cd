"""Directories that Hugging Face's `from_pretrained` reads."""

import fnmatch
import math

import numpy as np
from safetensors.numpy import save_file

from xlnet_tf.files import CHECKSUMS_FILE
from xlnet_tf.files import as_path
from xlnet_tf.files import write_json
from xlnet_tf.weights.hugging_face import CONFIG_FILE
from xlnet_tf.weights.hugging_face import backbone_weights
from xlnet_tf.weights.hugging_face import head_weights
from xlnet_tf.weights.hugging_face import no_head
from xlnet_tf.weights.own import written_directory
from xlnet_tf.weights.preset import RELEASED_CONFIG_FILE
from xlnet_tf.weights.source import backbone_of
from xlnet_tf.weights.source import first_known
from xlnet_tf.weights.source import head_of
from xlnet_tf.weights.table import check_writable
from xlnet_tf.weights.table import tensors
from xlnet_tf.weights.tensor_files import WEIGHTS_FILE

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
    equal there. That code has one dropout rate; `attention_dropout` is written
    to the config too, where that code does not read it.

    Args:
        model: XLNetBackbone, or a task around one.
        path: str or path of a directory, made if missing.
        shard_bytes: int, largest size of one file of weights.

    Raises:
        ValueError: if Hugging Face has no such head, its sizes do not fit, or
            the directory is one of the released code.
    """
    path = as_path(path)
    check_writable(model)
    if (path / RELEASED_CONFIG_FILE).exists():
        raise ValueError(
            f"{path} holds a {RELEASED_CONFIG_FILE}, which would be read "
            "before what is written now. Choose another directory."
        )
    values = config_values(model)
    backbone, head = backbone_of(model), head_of(model)
    weights = backbone_weights(backbone, "transformer." if head else "")
    if head is not None:
        hidden_dim = model.config.hidden_dim
        if head.arguments.get("inner_dim", hidden_dim) != hidden_dim:
            raise no_head(model)
        weights += head_weights(model)
    shards = _shards(weights, shard_bytes)
    names = [WEIGHTS_FILE]
    if len(shards) > 1:
        count = len(shards)
        names = [
            f"model-{i + 1:05d}-of-{count:05d}.safetensors"
            for i in range(count)
        ]
    with written_directory(path, _is_of_a_model) as new:
        for name, shard in zip(names, shards, strict=True):
            arrays = {
                # Not `.numpy()`, which copies.
                key: np.asarray(tensor)
                for key, tensor in tensors(shard)
            }
            save_file(arrays, new / name, metadata={"format": "pt"})
        if len(shards) > 1:
            write_json(
                new / f"{WEIGHTS_FILE}.index.json",
                {
                    "metadata": {"total_size": sum(map(_bytes, weights))},
                    "weight_map": {
                        weight.name: name
                        for name, shard in zip(names, shards, strict=True)
                        for weight in shard
                    },
                },
            )
        write_json(new / CONFIG_FILE, values)


def _is_of_a_model(name):
    """Whether a file is of the model that was in a directory before."""
    return (
        name in (CHECKSUMS_FILE, CONFIG_FILE)
        or name.startswith(WEIGHTS_FILE)
        or fnmatch.fnmatch(name, "model-*-of-*.safetensors")
    )


def _bytes(weight):
    return 4 * math.prod(weight.variable.shape)


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
    """The values of Hugging Face's `config.json` for a model.

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
    # Classes derived from ours are written as ours.
    task = first_known(type(model), _ARCHITECTURES)
    values = {
        "architectures": [_ARCHITECTURES.get(task, "XLNetModel")],
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
    return {**values, **_head_values(model, task)}


def _head_values(model, task):
    """The values of the config that describe a head.

    Args:
        model: XLNetBackbone, or a task around one.
        task: str, key of _ARCHITECTURES, or None.
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
    labels = None
    if task == "XLNetTextRegressor":
        values["problem_type"] = "regression"
        labels = ["LABEL_0"]
    if "num_classes" in arguments:
        labels = arguments["labels"] or [
            f"LABEL_{i}" for i in range(arguments["num_classes"])
        ]
    if labels:
        values["id2label"] = {str(i): name for i, name in enumerate(labels)}
        values["label2id"] = {name: i for i, name in enumerate(labels)}
    if task in ("XLNetTokenClassifier", "XLNetSpanClassifier"):
        values["classifier_dropout"] = arguments["dropout"]
    if task == "XLNetQuestionAnswering":
        values["start_n_top"] = arguments["num_starts"]
        values["end_n_top"] = arguments["num_ends"]
        values["span_dropout"] = arguments["dropout"]
    return values
