"""Writer of model directories for Hugging Face's `from_pretrained`."""

import fnmatch
import math
import warnings

import numpy as np
from safetensors.numpy import save_file

from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.directories import written_directory
from data_pipeline.base.files import as_path
from data_pipeline.base.files import write_json
from xlnet_tf.config import BertConfig
from xlnet_tf.weights.hugging_face import bert
from xlnet_tf.weights.hugging_face import xlnet
from xlnet_tf.weights.hugging_face.source import CONFIG_FILE
from xlnet_tf.weights.hugging_face.source import no_head
from xlnet_tf.weights.source import RELEASED_CONFIG_FILE
from xlnet_tf.weights.source import backbone_of
from xlnet_tf.weights.source import head_of
from xlnet_tf.weights.source import lost_settings
from xlnet_tf.weights.table import check_writable
from xlnet_tf.weights.table import tensors
from xlnet_tf.weights.tensor_files import WEIGHTS_FILE

# Transposed tensors are copies; shards of this size limit their memory.
SHARD_BYTES = 512 * 2**20


_READ_AS = {"XLNetRanker": "XLNetMultipleChoice"}


def save_hugging_face(model, path, shard_bytes=SHARD_BYTES):
    """Write a model in Hugging Face's format.

    The config is in `config.json`, and the weights are in `model.safetensors`
    or in shards with an index. The tanh form of GELU is written as "gelu_new",
    so that Hugging Face's code computes the same outputs. An XLNet's attention
    dropout is written as `attention_dropout` if it differs from `dropout`.
    Hugging Face's code ignores this field.

    Args:
        model: a backbone, or a task.
        path: str or path of a directory, which is made if missing.
        shard_bytes: int, maximum size of a weight file.

    Raises:
        ValueError: if LoRA is enabled, weights are quantized, Hugging Face has
            no equivalent model or head, or the directory has a model in the
            released format.
    """
    path = as_path(path)
    check_writable(model)
    if (path / RELEASED_CONFIG_FILE).exists():
        raise ValueError(
            f"{path} holds a {RELEASED_CONFIG_FILE}, which would be read "
            "instead of the new files. Choose another directory."
        )
    names = bert if isinstance(model.config, BertConfig) else xlnet
    values = names.config_values(model)
    backbone, head = backbone_of(model), head_of(model)
    weights = names.backbone_weights(backbone, names.SCOPE if head else "")
    if head is not None:
        hidden_dim = model.config.hidden_dim
        if head.arguments.get("inner_dim", hidden_dim) != hidden_dim:
            raise no_head(model)
        weights += names.head_weights(model)
        objective = "permutation" if names is xlnet else "masked"
        if lost := lost_settings(model, objective, _READ_AS):
            warnings.warn(
                f"{path} does not keep {', '.join(lost)}; give them again when "
                "you read it.",
                stacklevel=2,
            )
    shards = _shards(weights, shard_bytes)
    files = [WEIGHTS_FILE]
    if len(shards) > 1:
        count = len(shards)
        files = [
            f"model-{i + 1:05d}-of-{count:05d}.safetensors"
            for i in range(count)
        ]
    with written_directory(path, _is_of_a_model) as new:
        for name, shard in zip(files, shards, strict=True):
            arrays = {
                # `.numpy()` would copy the tensor.
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
                        for name, shard in zip(files, shards, strict=True)
                        for weight in shard
                    },
                },
            )
        write_json(new / CONFIG_FILE, values)


def _is_of_a_model(name):
    """Whether a file may belong to an earlier model in the directory."""
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
