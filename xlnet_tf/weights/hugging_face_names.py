"""What Hugging Face calls the weights of an XLNet.

Kernels of the attention have our shapes, those of dense layers are transposed;
biases of the attention always belong to a layer.
"""

from xlnet_tf.weights.source import Weight


def backbone_weights(backbone, scope):
    """Which tensor fills each variable of a backbone.

    Args:
        backbone: XLNetBackbone.
        scope: str, "transformer." in a task, "" in a backbone alone.

    Returns:
        list of Weight. Tied biases stand there once a layer.
    """
    weights = [
        Weight(
            f"{scope}word_embedding.weight", backbone.token_embedding.embeddings
        ),
        Weight(f"{scope}mask_emb", backbone.mask_embedding, leading_ones=2),
    ]
    for layer, block in enumerate(backbone.blocks):
        weights += _block(f"{scope}layer.{layer}", block)
    return weights


def _block(scope, block):
    attention = block.attention
    inside = f"{scope}.rel_attn"
    return [
        Weight(f"{inside}.q", attention.query_projection.kernel),
        Weight(f"{inside}.k", attention.key_projection.kernel),
        Weight(f"{inside}.v", attention.value_projection.kernel),
        Weight(f"{inside}.r", attention.position_projection.kernel),
        Weight(f"{inside}.o", attention.output_projection.kernel),
        Weight(f"{inside}.r_w_bias", attention.biases.content_bias),
        Weight(f"{inside}.r_r_bias", attention.biases.position_bias),
        Weight(f"{inside}.r_s_bias", attention.biases.segment_bias),
        Weight(f"{inside}.seg_embed", attention.segment_encoding),
        *_norm(f"{inside}.layer_norm", block.attention_norm),
        *_dense(f"{scope}.ff.layer_1", block.intermediate),
        *_dense(f"{scope}.ff.layer_2", block.output_dense),
        *_norm(f"{scope}.ff.layer_norm", block.output_norm),
    ]


def head_weights(task):
    """Which tensor fills each variable of a task's head.

    Args:
        task: a task of ours.

    Returns:
        list of Weight.

    Raises:
        ValueError: if Hugging Face has no such head.
    """
    head = task.head
    if hasattr(head, "summary_dense"):
        weights = _dense("logits_proj", head.logits_dense)
        if head.summary_dense is not None:
            weights += _dense("sequence_summary.summary", head.summary_dense)
        return weights
    if hasattr(head, "end_inner") and head.inner_dim == task.config.hidden_dim:
        return [
            *_dense("start_logits.dense", head.start_dense),
            *_dense("end_logits.dense_0", head.end_inner),
            *_norm("end_logits.LayerNorm", head.end_norm),
            *_dense("end_logits.dense_1", head.end_dense),
            *_dense("answer_class.dense_0", head.class_inner),
            *_dense("answer_class.dense_1", head.class_dense),
        ]
    if hasattr(task, "logits") and not head.has_transform:
        return [Weight("lm_loss.bias", head.bias)]
    if hasattr(head, "logits_dense"):
        name = "classifier" if hasattr(task, "num_classes") else "qa_outputs"
        return _dense(name, head.logits_dense)
    raise ValueError(
        f"Hugging Face has no head like that of {type(task).__name__} with "
        "these arguments. Save the backbone, or choose another format."
    )


def _dense(name, layer):
    weights = [Weight(f"{name}.weight", layer.kernel, is_transposed=True)]
    if layer.use_bias:
        weights.append(Weight(f"{name}.bias", layer.bias))
    return weights


def _norm(name, layer):
    return [
        Weight(f"{name}.weight", layer.gamma),
        Weight(f"{name}.bias", layer.beta),
    ]
