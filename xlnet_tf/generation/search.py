"""Search for the next tokens: greedy search, sampling and beam search.

This file contains the rules that change logits (such as `no_repeat_ngram`), the
choice of one token, and the loop of greedy search and sampling. Beam search
uses Model Garden's `SequenceBeamSearch`, which needs TensorFlow.

Shapes: B examples, K beams, N rows, T tokens of a prompt, W tokens of a
history, S steps, V vocabulary.
"""

import keras
import tensorflow as tf
from keras import ops

_IMPOSSIBLE = -1e9
_LOWEST_TEMPERATURE = 1e-30  # float32 can still divide by this


def without_rules(token):
    """Encode a token as a history entry that the rules ignore."""
    return -2 - token


def token_of(entry):
    """Decode the token of a history entry, -1 for an empty entry."""
    return ops.maximum(entry, -2 - entry)


def apply_rules(logits, history, length, new_tokens, settings, symbols):
    """Apply the rules in the settings to logits.

    Args:
        logits: float32 tensor of shape [N, V].
        history: int32 tensor of shape [N, W], earlier tokens. -1 means no
            token; tokens that the rules ignore are encoded by `without_rules`.
        length: int32 scalar, number of filled columns of `history`.
        new_tokens: int32 scalar, number of new tokens so far.
        settings: GenerationSettings.
        symbols: Symbols of `xlnet_tf.generation.settings`.

    Returns:
        float32 tensor of shape [N, V].
    """
    num_rows, vocabulary_size = ops.shape(logits)
    columns = ops.arange(ops.shape(history)[1], dtype="int32")
    seen = (history >= 0) & (columns < length)
    if settings.repetition_penalty != 1:
        there = _any_token(history, seen, num_rows, vocabulary_size)
        penalty = settings.repetition_penalty
        penalised = ops.where(logits > 0, logits / penalty, logits * penalty)
        logits = ops.where(there, penalised, logits)
    blocked = ops.convert_to_tensor(symbols.blocked(logits.shape[1]))[None]
    if settings.min_new_tokens:
        ends = ops.convert_to_tensor(symbols.ends(logits.shape[1]))[None]
        early = new_tokens < settings.min_new_tokens
        blocked = blocked | (ends & early)
    if settings.no_repeat_ngram:
        repeats = _completes_ngram(
            history, seen, length, settings.no_repeat_ngram
        )
        blocked = blocked | _any_token(
            history, repeats, num_rows, vocabulary_size
        )
    return ops.where(blocked, _IMPOSSIBLE, logits)


def _any_token(history, chosen, num_rows, vocabulary_size):
    """Mark the tokens at chosen places of the history, bool [N, V]."""
    row = ops.arange(num_rows, dtype="int32")[:, None]
    row = ops.broadcast_to(row, ops.shape(history))
    places = ops.stack([row, ops.maximum(history, 0)], axis=-1)
    counts = ops.scatter(
        places, ops.cast(chosen, "int32"), (num_rows, vocabulary_size)
    )
    return counts > 0


def _completes_ngram(history, seen, length, size):
    """Mark history tokens that would complete a repeated n-gram, bool [N, W].

    These tokens follow an earlier copy of the last `size` - 1 tokens.
    """
    width = ops.shape(history)[1]
    matches = seen & (ops.arange(width, dtype="int32") >= size - 1)
    for back in range(1, size):
        last = ops.take(history, ops.maximum(length - back, 0), axis=1)
        before = ops.roll(history, back, axis=1)
        matches = matches & (before == last[:, None]) & (before >= 0)
    return matches


def choose(logits, uniform, settings):
    """Choose the next token of every row.

    Args:
        logits: float32 tensor of shape [N, V], the result of `apply_rules`.
        uniform: float32 tensor of shape [N], random numbers in [0, 1).
        settings: GenerationSettings.

    Returns:
        int32 tensor of shape [N].
    """
    if not settings.samples:
        return ops.cast(ops.argmax(logits, axis=-1), "int32")
    is_possible = logits > _IMPOSSIBLE
    # Logits up to 0 stay below infinity at a low temperature.
    logits = logits - ops.max(logits, axis=-1, keepdims=True)
    logits = logits / max(settings.temperature, _LOWEST_TEMPERATURE)
    # At a high temperature, forbidden logits would become close to the allowed
    # logits.
    logits = ops.where(is_possible, logits, _IMPOSSIBLE)
    size = logits.shape[-1]
    if settings.top_k and settings.top_k < size:
        least = ops.top_k(logits, k=settings.top_k)[0][:, -1:]
        logits = ops.where(logits < least, _IMPOSSIBLE, logits)
    probabilities = ops.softmax(logits, axis=-1)
    if settings.top_p < 1:
        falling = ops.flip(ops.sort(probabilities, axis=-1), axis=-1)
        before = ops.cumsum(falling, axis=-1)[:, :-1]
        before = ops.pad(before, [[0, 0], [1, 0]])
        kept = ops.where(before < settings.top_p, falling, 2.0)
        least = ops.min(kept, axis=-1, keepdims=True)
        probabilities = ops.where(probabilities < least, 0.0, probabilities)
    # Each token has an interval of [0, sum) as long as its probability. The
    # chosen token is the token whose interval contains the random number. A
    # token of probability 0 has an empty interval.
    ends = ops.cumsum(probabilities, axis=-1)
    place = uniform[:, None] * ends[:, -1:]
    token = ops.sum(ops.cast(ends <= place, "int32"), axis=-1)
    tokens = ops.arange(size, dtype="int32")
    last = ops.max(ops.where(probabilities > 0, tokens, 0), axis=-1)
    return ops.minimum(token, last)


def begin(decoder, context, prompt, num_steps):
    """Make the state of the search before the first new token.

    Args:
        decoder: Decoder.
        context: dict, the result of `Decoder.read` for B prompts.
        prompt: int32 tensor of shape [N, T], with N / B adjacent rows for each
            prompt; -1 for no token.
        num_steps: int, S, maximum number of new tokens.

    Returns:
        dict of `cache` (result of `Decoder.start`), `index` (int32 [], number
        of steps so far), `history` (int32 [N, T + S]), `is_done` (bool [N]) and
        `log_probabilities` (float32 [N, S], for the new tokens).
    """
    num_rows = ops.shape(prompt)[0]
    unwritten = ops.full([num_rows, num_steps], -1, "int32")
    return {
        "index": ops.zeros((), "int32"),
        "history": ops.concatenate([prompt, unwritten], axis=1),
        "log_probabilities": ops.zeros([num_rows, num_steps]),
        "is_done": ops.zeros([num_rows], "bool"),
        "cache": decoder.start(context, num_rows, num_steps),
    }


def extend(decoder, context, state, uniforms, settings, symbols, last_step):
    """Add tokens until `last_step`, or until all rows have ended.

    Args:
        decoder: Decoder.
        context: dict, the result of `Decoder.read`.
        state: dict, the result of `begin` or `extend`.
        uniforms: float32 tensor of shape [N, S], random numbers in [0, 1).
        settings: GenerationSettings.
        symbols: Symbols of `xlnet_tf.generation.settings`.
        last_step: int32 scalar, at most S.

    Returns:
        dict, the new state.
    """
    num_steps = ops.shape(uniforms)[1]
    num_prompt = ops.shape(state["history"])[1] - num_steps

    def goes_on(state):
        return (state["index"] < last_step) & ~ops.all(state["is_done"])

    def step(state):
        index, history = state["index"], state["history"]
        place = num_prompt + index
        token = token_of(ops.take(history, place - 1, axis=1))
        logits, cache = decoder.step(
            context, state["cache"], ops.maximum(token, 0), index
        )
        uniform = ops.take(uniforms, index, axis=1)
        chosen = choose(
            apply_rules(logits, history, place, index, settings, symbols),
            uniform,
            settings,
        )
        log_probability = ops.take_along_axis(
            ops.log_softmax(logits), chosen[:, None], axis=1
        )[:, 0]
        was_done = state["is_done"]
        chosen = ops.where(was_done, -1, chosen)
        log_probability = ops.where(was_done, 0.0, log_probability)
        ends = ops.convert_to_tensor(symbols.end_ids, "int32")
        is_end = ops.any(chosen[:, None] == ends, axis=1)
        return {
            "index": index + 1,
            "history": _put(history, place, chosen),
            "log_probabilities": _put(
                state["log_probabilities"], index, log_probability
            ),
            "is_done": was_done | is_end,
            "cache": cache,
        }

    return ops.while_loop(goes_on, lambda state: (step(state),), (state,))[0]


def _put(rows, column, values):
    columns = ops.arange(ops.shape(rows)[1], dtype="int32")
    return ops.where(columns == column, values[:, None], rows)


def check_beams(num_beams):
    """Refuse beam search on JAX: Model Garden's code needs TensorFlow.

    Raises:
        ValueError: if `num_beams` is above 1 on JAX.
    """
    backend = keras.backend.backend()
    if num_beams > 1 and backend != "tensorflow":
        raise ValueError(
            "beam search is Model Garden's, which needs TensorFlow: give "
            "`num_beams` 1 (greedy search), or set KERAS_BACKEND=tensorflow. "
            f"Received: num_beams={num_beams}, KERAS_BACKEND={backend}."
        )


# The library's score of a beam without a text.
_NO_TEXT = -1e6


def beam_search(decoder, context, prompt, num_steps, settings, symbols):
    """Find the likeliest continuations of prompts by beam search.

    The best texts come first. If any text of a prompt has ended, only the ended
    texts of this prompt are returned; otherwise all texts of this prompt have S
    tokens. Rules such as `no_repeat_ngram` distribute the probability of
    forbidden tokens over the allowed tokens.

    Args:
        decoder, context, settings, symbols: see `extend`.
        prompt: int32 tensor of shape [B, T], -1 for no token.
        num_steps: int, S, maximum number of new tokens.

    Returns:
        (tokens, scores). Tokens are int32 [B, K, S], -1 after the end. Scores
        are float32 [B, K], log-probabilities divided by the length penalty,
        -inf for a missing text.

    Source: https://arxiv.org/abs/1609.08144, section 7.
    """
    search = _search_class()
    batch_size = tf.shape(prompt)[0]
    num_prompt = tf.shape(prompt)[1]
    dtype = context["keys"][0].dtype

    def next_logits(token_ids, index, cache):
        token = token_ids[:, -1]
        place = num_prompt + index
        history = cache["history"]
        columns = tf.range(tf.shape(history)[1])
        # The library's cache has one dtype, and float32 holds every id. The
        # history has the prompt's last token, maybe encoded by `without_rules`.
        is_new = (columns == place - 1) & (index > 0)
        history = tf.where(is_new, tf.cast(token, tf.float32)[:, None], history)
        kept = {
            name: [tf.cast(x, dtype) for x in cache[name]]
            for name in ("keys", "values")
        }
        logits, kept = decoder.step(context, kept, token, index)
        logits = apply_rules(
            logits,
            tf.cast(history, tf.int32),
            place,
            index,
            settings,
            symbols,
        )
        kept = {
            name: [tf.cast(x, tf.float32) for x in values]
            for name, values in kept.items()
        }
        return logits, {**kept, "history": history}

    empty = decoder.start(context, batch_size, num_steps)
    cache = {
        name: [tf.cast(x, tf.float32) for x in values]
        for name, values in empty.items()
    }
    unwritten = tf.fill([batch_size, num_steps], -1)
    history = tf.concat([prompt, unwritten], axis=1)
    cache["history"] = tf.cast(history, tf.float32)
    is_static = prompt.shape.is_fully_defined()
    beams, scores = search(
        next_logits,
        decoder.config.vocabulary_size,
        settings.num_beams,
        settings.length_penalty,
        num_steps,
        list(symbols.end_ids),
        padded_decode=is_static,
        stops_early=settings.early_stopping,
    ).search(token_of(prompt[:, -1]), cache)
    return _of_ended(beams[:, :, 1:], scores, num_steps, settings, symbols)


def length_penalty(lengths, alpha):
    """Compute the length penalty, the divisor of a text's log-probability.

    Args:
        lengths: float tensor or number, numbers of tokens of the texts.
        alpha: float, `length_penalty` of GenerationSettings.

    Returns:
        tensor or number of the same shape.

    Source: https://arxiv.org/abs/1609.08144, equation 14.
    """
    return ((5 + lengths) / 6) ** alpha


def _of_ended(tokens, scores, num_steps, settings, symbols):
    """Clear tokens after the end token; apply the penalty to unended texts.

    Model Garden has already divided the scores of ended texts by the length
    penalty. This function divides the scores of all other texts.
    """
    missing = num_steps - tf.shape(tokens)[2]
    tokens = tf.pad(tokens, [[0, 0], [0, 0], [0, missing]], constant_values=-1)
    is_end = tf.reduce_any(
        tokens[..., None] == tf.constant(symbols.end_ids), axis=-1
    )
    ended_before = tf.cumsum(tf.cast(is_end, tf.int32), axis=2, exclusive=True)
    tokens = tf.where(ended_before > 0, -1, tokens)
    # This comparison comes before the division, because a large penalty would
    # bring the score of a missing text above the limit.
    is_text = scores > _NO_TEXT
    # If no text has ended, the library's scores are log-probabilities without
    # the length penalty.
    has_ended = tf.reduce_any(is_end, axis=2)
    longest = length_penalty(num_steps, settings.length_penalty)
    scores = tf.where(has_ended, scores, scores / longest)
    scores = tf.where(is_text, scores, float("-inf"))
    return tf.where(is_text[..., None], tokens, -1), scores


# AutoGraph must not convert this function, because it defines a class.
@tf.autograph.experimental.do_not_convert
def _search_class():
    from official.nlp.modeling.ops import beam_search as library

    keys = library._StateKeys

    class Search(library.SequenceBeamSearch):
        """Beam search of Model Garden, with early stopping."""

        def __init__(self, *arguments, stops_early, **kwargs):
            super().__init__(*arguments, **kwargs)
            self._stops_early = stops_early

        def _continue_search(self, state):
            goes_on = super()._continue_search(state)
            if not self._stops_early:
                return goes_on
            return goes_on & ~tf.reduce_all(state[keys.FINISHED_FLAGS])

    return Search
