"""Influence of each word of a text on an answer, by gradients.

Shapes: X examples, B rows of a batch, T tokens, D model dim, C classes.
"""

import keras
import numpy as np
import tensorflow as tf

from data_pipeline.features.batches import Batches
from data_pipeline.features.batches import bucket_lengths
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID

_BATCH_SIZE = 8
SEPARATOR = "|"  # between a text and its pair


def influence_of_words(kind, examples, labels, weights):
    """Words as they were read, with their influence on a sum of logits.

    The influence of a token is the product of its embedding and the gradient
    with respect to it; that of a word is the sum over its pieces.

    Args:
        kind: TaskOfTexts, around a model with a preprocessor.
        examples: list of X TextExample, one at least.
        labels: tuple of str, the classes, or None.
        weights: array [X, C] or, for numbers, [X]: of the sum of logits that
            is asked about.

    Returns:
        list of X lists of (word, influence), or None for a model that reads
        in segments or whose embeddings have no gradients, as of 8 bits.

    Source: Denil et al., 2014, https://arxiv.org/abs/1412.6815.
    """
    model = kind.model
    table = model.backbone.token_embedding.embeddings
    if model.segment_length or not isinstance(table, keras.Variable):
        return None
    table = table.value
    # The truth is given by the weights.
    asked = [example._replace(label=None) for example in examples]
    rows = model.preprocessor.encode(asked, labels)
    batches = Batches(
        rows, _BATCH_SIZE, bucket_lengths(model.preprocessor.sequence_length)
    )
    weights = np.asarray(weights, np.float32)
    found = [[] for _ in examples]
    for features in batches.evaluation():
        place = features["row_index"].numpy()
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(table)
            logits = kind.outputs_of(features)
            total = tf.reduce_sum(logits * weights[np.maximum(place, 0)])
        gradient = tape.gradient(total, table)
        token_ids = features["token_ids"].numpy()
        if not isinstance(gradient, tf.IndexedSlices):
            return None
        vectors = tf.gather(table, gradient.indices)
        products = tf.reduce_sum(
            tf.cast(gradient.values, "float32") * tf.cast(vectors, "float32"),
            axis=-1,
        )
        if int(tf.size(products)) != token_ids.size:
            return None
        products = products.numpy().reshape(token_ids.shape)
        mask = features["padding_mask"].numpy() > 0
        for row, index in enumerate(place):
            if index >= 0:
                found[index] = _words(
                    model.preprocessor.tokenizer,
                    token_ids[row, mask[row]],
                    products[row, mask[row]],
                )
    return found


def _words(tokenizer, token_ids, products):
    """list of (str, float), the words of a sequence."""
    words = []
    for index, value in zip(token_ids.tolist(), products.tolist(), strict=True):
        if index in (CLS_ID, SEP_ID):
            if index == SEP_ID:
                words.append([SEPARATOR, 0.0])
            continue
        piece = tokenizer.id_to_piece(index)
        if piece.startswith(BLANK) or not words or words[-1][0] == SEPARATOR:
            words.append([piece.lstrip(BLANK), value])
        else:
            words[-1][0] += piece
            words[-1][1] += value
    while words and words[-1][0] == SEPARATOR:
        words.pop()
    return [(word, value) for word, value in words]
