"""Contender with KerasHub's XLNetBackbone, which has only a content stream."""

import keras_hub
import tensorflow as tf

from benchmarks.workload import batches

FRAMEWORK = "tensorflow"


def inference(model, batch_size, num_tokens, jit_compile):
    """Set up inference of the content stream."""
    backbone = keras_hub.models.XLNetBackbone(
        vocabulary_size=model["vocabulary_size"],
        num_layers=model["num_layers"],
        num_heads=model["num_heads"],
        hidden_dim=model["hidden_dim"],
        intermediate_dim=model["intermediate_dim"],
    )
    token_ids, segment_ids = map(
        tf.constant, batches.token_batch(model, batch_size, num_tokens)
    )
    inputs = {
        "token_ids": token_ids,
        "segment_ids": segment_ids,
        "padding_mask": tf.ones_like(token_ids),
    }

    @tf.function(jit_compile=jit_compile)
    def forward(inputs):
        return backbone(inputs, training=False)

    return lambda: forward(inputs).numpy()
