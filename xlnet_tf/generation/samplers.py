"""The choice of the next token: rules, then the likeliest or a random one.

Shapes: N rows, W tokens of a history, V vocabulary.
"""

import tensorflow as tf

_IMPOSSIBLE = -1e9
_LOWEST_TEMPERATURE = 1e-30  # what float32 can divide by


def without_rules(token):
    """An entry of a history for a token that the rules do not count."""
    return -2 - token


def token_of(entry):
    """The token of an entry of a history, -1 where there is none."""
    return tf.maximum(entry, -2 - entry)


def apply_rules(logits, history, length, new_tokens, settings, symbols):
    """Logits under the rules of the settings.

    Args:
        logits: float32 tensor of shape [N, V].
        history: int32 tensor of shape [N, W], -1 where there is no token, and
            `without_rules` of tokens that do not count.
        length: int32 scalar; tokens from there on do not exist yet.
        new_tokens: int32 scalar, tokens that the text already got.
        settings: GenerationSettings.
        symbols: Symbols of `xlnet_tf.generation.symbols`.

    Returns:
        float32 tensor of shape [N, V].
    """
    num_rows, vocabulary_size = tf.unstack(tf.shape(logits))
    columns = tf.range(tf.shape(history)[1])
    seen = (history >= 0) & (columns < length)
    if settings.repetition_penalty != 1:
        there = _any_token(history, seen, num_rows, vocabulary_size)
        penalty = settings.repetition_penalty
        penalised = tf.where(logits > 0, logits / penalty, logits * penalty)
        logits = tf.where(there, penalised, logits)
    blocked = tf.constant(symbols.blocked(logits.shape[1]))[None]
    if settings.min_new_tokens:
        ends = tf.constant(symbols.ends(logits.shape[1]))[None]
        early = new_tokens < settings.min_new_tokens
        blocked = blocked | (ends & early)
    if settings.no_repeat_ngram:
        repeats = _completes_ngram(
            history, seen, length, settings.no_repeat_ngram
        )
        blocked = blocked | _any_token(
            history, repeats, num_rows, vocabulary_size
        )
    return tf.where(blocked, _IMPOSSIBLE, logits)


def _any_token(history, chosen, num_rows, vocabulary_size):
    """bool [N, V], whether a token stands at one of the chosen places."""
    row = tf.broadcast_to(tf.range(num_rows)[:, None], tf.shape(history))
    places = tf.stack([row, tf.maximum(history, 0)], axis=-1)
    counts = tf.scatter_nd(
        places, tf.cast(chosen, tf.int32), [num_rows, vocabulary_size]
    )
    return counts > 0


def _completes_ngram(history, seen, length, size):
    """bool [N, W], places that follow a copy of the last n - 1 tokens."""
    width = tf.shape(history)[1]
    matches = seen & (tf.range(width) >= size - 1)
    for back in range(1, size):
        last = tf.gather(history, tf.maximum(length - back, 0), axis=1)
        before = tf.roll(history, back, axis=1)
        matches = matches & (before == last[:, None]) & (before >= 0)
    return matches


def choose(logits, uniform, settings):
    """The next token of every row.

    Args:
        logits: float32 tensor of shape [N, V], of `apply_rules`.
        uniform: float32 tensor of shape [N], in [0, 1), what a random token
            follows from.
        settings: GenerationSettings.

    Returns:
        int32 tensor of shape [N].
    """
    if not settings.samples:
        return tf.argmax(logits, axis=-1, output_type=tf.int32)
    is_possible = logits > _IMPOSSIBLE
    # Below zero, so that a low temperature makes no logit infinite.
    logits -= tf.reduce_max(logits, axis=-1, keepdims=True)
    logits /= max(settings.temperature, _LOWEST_TEMPERATURE)
    # A high one would bring those near that rules forbid.
    logits = tf.where(is_possible, logits, _IMPOSSIBLE)
    size = logits.shape[-1]
    if settings.top_k and settings.top_k < size:
        least = tf.math.top_k(logits, k=settings.top_k).values[:, -1:]
        logits = tf.where(logits < least, _IMPOSSIBLE, logits)
    probabilities = tf.nn.softmax(logits, axis=-1)
    if settings.top_p < 1:
        falling = tf.sort(probabilities, axis=-1, direction="DESCENDING")
        before = tf.cumsum(falling, axis=-1, exclusive=True)
        kept = tf.where(before < settings.top_p, falling, 2.0)
        least = tf.reduce_min(kept, axis=-1, keepdims=True)
        probabilities = tf.where(probabilities < least, 0.0, probabilities)
    # The token in whose part of [0, sum) the random number falls. A token of
    # no probability has no part.
    ends = tf.cumsum(probabilities, axis=-1)
    place = uniform[:, None] * ends[:, -1:]
    token = tf.reduce_sum(tf.cast(ends <= place, tf.int32), axis=-1)
    last = tf.reduce_max(
        tf.where(probabilities > 0, tf.range(size), 0), axis=-1
    )
    return tf.minimum(token, last)
