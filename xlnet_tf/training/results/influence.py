"""Influence of each word of a text on an answer, computed from gradients.

Shapes: X examples, B rows of a batch, T tokens, D model dim, C classes.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from data_pipeline.features.batches import Batches
from data_pipeline.features.batches import bucket_lengths
from data_pipeline.tokenization.symbols import BLANK
from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import SEP_ID
from xlnet_tf.model.compiled import compiled

_BATCH_SIZE = 8
SEPARATOR = "|"  # shown between a text and its pair


def influence_of_words(kind, examples, labels, weights):
    """Compute the influence of each word on a weighted sum of logits.

    The influence of a token is the scalar product of two vectors: its
    embedding, and the gradient of the sum of logits with respect to this
    embedding. The influence of a word is the sum of its tokens' influences.

    Args:
        kind: TaskOfTexts with its model, which has a preprocessor.
        examples: list of X TextExample, at least one.
        labels: tuple of str, the classes, or None.
        weights: array [X, C], the weights of the logits in the sum. For
            regression tasks [X].

    Returns:
        list of X lists of (word, influence). The result is None for a model
        that reads texts in segments or has 8-bit embeddings.

    Source: Denil et al., 2014, https://arxiv.org/abs/1412.6815.
    """
    model = kind.model
    table = model.backbone.token_embedding.embeddings
    if model.segment_length or not isinstance(table, keras.Variable):
        return None
    table = ops.convert_to_numpy(ops.cast(table, "float32"))
    gradient = _gradient_of_embeddings(kind)
    # The model needs no labels here, because the weights contain the truth.
    unlabelled = [example._replace(label=None) for example in examples]
    rows = model.preprocessor.encode(unlabelled, labels)
    batches = Batches(
        rows, _BATCH_SIZE, bucket_lengths(model.preprocessor.sequence_length)
    )
    weights = np.asarray(weights, np.float32)
    words_of_examples = [[] for _ in examples]
    for features in batches.evaluation():
        features = {name: value.numpy() for name, value in features.items()}
        place, token_ids = features["row_index"], features["token_ids"]
        vectors = table[token_ids]  # [B, T, D]
        slopes = gradient(
            ops.zeros(vectors.shape),
            keras.tree.map_structure(ops.convert_to_tensor, features),
            ops.convert_to_tensor(weights[np.maximum(place, 0)]),
        )
        products = (ops.convert_to_numpy(slopes) * vectors).sum(axis=-1)
        mask = features["padding_mask"] > 0
        for row, index in enumerate(place):
            if index >= 0:
                words_of_examples[index] = _words(
                    model.preprocessor.tokenizer,
                    token_ids[row, mask[row]],
                    products[row, mask[row]],
                )
    return words_of_examples


def _gradient_of_embeddings(kind):
    """Make a function that computes gradients for the tokens' embeddings.

    The function has the arguments zeros [B, T, D], features and weights. It
    returns the gradient [B, T, D] of the weighted sum of logits. The zeros are
    added to the tokens' embeddings. Each position then has its own gradient,
    even if a token is repeated.
    """
    model = kind.model
    embedding = model.backbone.token_embedding

    def total(added, features, weights):
        call = embedding.call

        def call_and_add(token_ids):
            rows = call(token_ids)
            return rows + ops.cast(added, rows.dtype)

        embedding.call = call_and_add
        try:
            return ops.sum(kind.outputs_of(features) * weights)
        finally:
            del embedding.call

    if keras.backend.backend() == "jax":
        import jax

        return compiled(jax.grad(total), model)

    def gradient(added, *others):
        with tf.GradientTape(watch_accessed_variables=False) as tape:
            tape.watch(added)
            value = total(added, *others)
        return tape.gradient(value, added)

    return gradient


def _words(tokenizer, token_ids, products):
    """Join a sequence's tokens to words; return (word, influence) pairs."""
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
