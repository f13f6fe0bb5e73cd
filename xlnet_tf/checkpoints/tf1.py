"""The released TensorFlow 1 checkpoints.

Names and layouts follow zihangdai/xlnet. Biases and segment encodings are
stacked over layers there, `[L, N, H]` and `[L, 2, N, H]`; tied biases have no
layer axis. Kernels have our shapes.
"""

import pathlib

import numpy as np
import tensorflow as tf

TRANSFORMER = "model/transformer"
# A cut data file is an IndexError.
_DAMAGE = (tf.errors.OpError, IndexError, ValueError)


def variable_table(model):
    """Which released variable, and which layer of it, fills each of ours.

    Args:
        model: XLNetBackbone, or a task around one.

    Returns:
        list of (name, layer, variable): released name (str), index into its
        first axis (int) or None for all of it, Keras variable.

    Source: the variable scopes in `modeling.py` of the released code.
    """
    backbone = getattr(model, "backbone", model)
    table = [
        (
            f"{TRANSFORMER}/word_embedding/lookup_table",
            None,
            backbone.token_embedding.embeddings,
        ),
        (f"{TRANSFORMER}/mask_emb/mask_emb", None, backbone.mask_embedding),
    ]
    if backbone.shared_biases is not None:
        table += _biases(backbone.shared_biases, None)
    for layer, block in enumerate(backbone.blocks):
        attention = block.attention
        if backbone.shared_biases is None:
            table += _biases(attention.biases, layer)
        table.append(
            (f"{TRANSFORMER}/seg_embed", layer, attention.segment_encoding)
        )
        scope = f"{TRANSFORMER}/layer_{layer}"
        table += [
            (f"{scope}/{name}", None, variable)
            for name, variable in _layer_variables(block)
        ]
    if model is not backbone and hasattr(model, "logits"):
        table.append(("model/lm_loss/bias", None, model.head.bias))
    return table


def _biases(biases, layer):
    return [
        (f"{TRANSFORMER}/r_w_bias", layer, biases.content_bias),
        (f"{TRANSFORMER}/r_r_bias", layer, biases.position_bias),
        (f"{TRANSFORMER}/r_s_bias", layer, biases.segment_bias),
    ]


def _layer_variables(block):
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


def load_tf1_checkpoint(model, path):
    """Fills a model from a released checkpoint.

    Args:
        model: XLNetBackbone or XLNetPretrainer.
        path: path of a directory with one `*.ckpt*.index`, or the prefix of a
            checkpoint.

    Raises:
        FileNotFoundError: if there is no checkpoint.
        ValueError: if variables are missing or their shapes differ; all are
            listed together.
    """
    prefix = _prefix(pathlib.Path(path))
    try:
        reader = tf.train.load_checkpoint(prefix)
    except _DAMAGE as error:
        raise _damaged(prefix, error) from error
    shapes = reader.get_variable_to_shape_map()
    values, problems = [], []
    for name, layer, variable in variable_table(model):
        if name not in shapes:
            problems.append(f"{name} is missing")
            continue
        try:
            value = reader.get_tensor(name)
        except _DAMAGE as error:
            raise _damaged(prefix, error) from error
        if layer is not None:
            if layer >= len(value):
                problems.append(f"{name} has {len(value)} layers only")
                continue
            value = value[layer]
        if name.endswith("mask_emb/mask_emb"):
            value = np.reshape(value, [-1])  # [1, 1, D] there
        if tuple(value.shape) != tuple(variable.shape):
            problems.append(
                f"{name} has the shape {value.shape}, not "
                f"{tuple(variable.shape)}"
            )
            continue
        values.append((variable, value))
    if problems:
        raise ValueError(
            f"{prefix} does not fit the config beside it: "
            f"{'; '.join(dict.fromkeys(problems))}."
        )
    for variable, value in values:
        variable.assign(value)


def _damaged(prefix, error):
    return ValueError(
        f"{prefix} cannot be read as a TensorFlow checkpoint: {error}."
    )


def _prefix(path):
    if not path.is_dir():
        return str(path)
    found = sorted(path.glob("*.ckpt*.index"))
    if not found:
        raise FileNotFoundError(
            f"{path} holds no TensorFlow checkpoint (*.ckpt*.index beside "
            "*.ckpt*.data-*)."
        )
    if len(found) > 1:
        names = ", ".join(f.name.removesuffix(".index") for f in found)
        raise ValueError(
            f"{path} holds several checkpoints: {names}. Give the prefix of "
            "one, or leave only one in the directory."
        )
    return str(found[0]).removesuffix(".index")
