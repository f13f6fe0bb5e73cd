"""Contenders that classify one long document, read in three ways.

Shapes: T tokens of a segment or window, W windows, C classes.
"""

import numpy as np
import tensorflow as tf

from benchmarks.contenders.ours import check_room
from benchmarks.workload import batches
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetConfig
from xlnet_tf import XLNetTextClassifier

FRAMEWORK = "tensorflow"

_CLASSES = 2


def segments(model, length, segment_length, memory_length):
    """Set up classification of a document in segments, with memory."""
    classifier = _classifier(model, segment_length, memory_length)
    forward = _compiled(classifier)
    token_ids = _document(model, length)
    return lambda: forward(token_ids).numpy()


def windows(model, length, segment_length):
    """Set up classification by mean logits of windows that overlap by half."""
    forward = _compiled(_classifier(model))
    token_ids = _document(model, length)
    pieces = [
        token_ids[:, begin : begin + segment_length]
        for begin in window_starts(length, segment_length)
    ]
    return lambda: np.mean([forward(ids).numpy() for ids in pieces], axis=0)


def one_piece(model, length):
    """Set up classification of a whole document as a single sequence.

    Raises:
        NotAvailable: if the attention scores would not fit into RAM.
    """
    check_room(model, length)
    forward = _compiled(_classifier(model))
    token_ids = _document(model, length)
    return lambda: forward(token_ids).numpy()


def segments_gradient(model, length, segment_length, memory_length):
    """Set up the gradients of a training step, in segments, with dropout."""
    classifier = _classifier(model, segment_length, memory_length)
    variables = [v.value for v in classifier.trainable_variables]

    @tf.function(jit_compile=True)
    def gradients(token_ids, seed):
        features = {"token_ids": token_ids, "dropout_seed": seed}
        with tf.GradientTape() as tape:
            logits = classifier(features, training=True)
            loss = -tf.reduce_sum(tf.nn.log_softmax(logits)[:, 0])
        return [
            tf.convert_to_tensor(gradient)
            for gradient in tape.gradient(loss, variables)
        ]

    token_ids, seed = _document(model, length), tf.constant([1, 2])
    return lambda: gradients(token_ids, seed)[0].numpy()


def window_starts(length, window):
    """Compute the starts of windows that overlap by half their length."""
    last = max(length - window, 0)
    return [*range(0, last, max(1, window // 2)), last]


def _classifier(model, segment_length=None, memory_length=0):
    config = XLNetConfig(**model, memory_length=memory_length)
    return XLNetTextClassifier(
        XLNetBackbone(config, seed=0),
        num_classes=_CLASSES,
        segment_length=segment_length,
    )


def _compiled(classifier):
    return tf.function(
        lambda token_ids: classifier({"token_ids": token_ids}, training=False),
        jit_compile=True,
    )


def _document(model, length):
    return tf.constant(batches.token_batch(model, 1, length)[0])
