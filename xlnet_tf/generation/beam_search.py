"""Beam search, by Model Garden's `SequenceBeamSearch`.

Shapes: B examples, K beams, T tokens of a prompt, S steps, V vocabulary.
"""

import tensorflow as tf

from xlnet_tf.generation.samplers import apply_rules
from xlnet_tf.generation.samplers import token_of

# The library gives scores this low to beams without a text.
_NO_TEXT = -1e6


def beam_search(decoder, context, prompt, num_steps, settings, symbols):
    """The likeliest texts that follow prompts, best first.

    Texts that have ended come first; where none has, those after S tokens.
    Rules, such as `no_repeat_ngram`, give the probability of what they forbid
    to the other tokens.

    Args:
        decoder: Decoder.
        context: dict of `Decoder.read`.
        prompt: int32 tensor of shape [B, T], -1 where there is no token.
        num_steps: int, S.
        settings: GenerationSettings.
        symbols: Symbols of `xlnet_tf.generation.symbols`.

    Returns:
        (int32 tensor of shape [B, K, S], new tokens, -1 behind the end; float32
        tensor of shape [B, K], sums of log-probabilities divided by the length
        penalty; -inf for a text that there is not).

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
        # Beam search keeps one type of numbers; float32 holds every id.
        # That of the prompt is there, perhaps as one without rules.
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
    found, scores = search(
        next_logits,
        decoder.config.vocabulary_size,
        settings.num_beams,
        settings.length_penalty,
        num_steps,
        list(symbols.end_ids),
        padded_decode=is_static,
        stops_early=settings.early_stopping,
    ).search(token_of(prompt[:, -1]), cache)
    return _of_ended(found[:, :, 1:], scores, num_steps, settings, symbols)


def length_penalty(lengths, alpha):
    """Divisors of the log-probabilities of texts, in beam search.

    Args:
        lengths: float tensor or number, tokens of the texts.
        alpha: float, `length_penalty` of GenerationSettings.

    Returns:
        tensor or number of the same shape.

    Source: https://arxiv.org/abs/1609.08144, equation 14.
    """
    return ((5 + lengths) / 6) ** alpha


def _of_ended(tokens, scores, num_steps, settings, symbols):
    """Cut tokens at the end symbol; put the scores of texts on one scale."""
    missing = num_steps - tf.shape(tokens)[2]
    tokens = tf.pad(tokens, [[0, 0], [0, 0], [0, missing]], constant_values=-1)
    is_end = tf.reduce_any(
        tokens[..., None] == tf.constant(symbols.end_ids), axis=-1
    )
    ended_before = tf.cumsum(tf.cast(is_end, tf.int32), axis=2, exclusive=True)
    tokens = tf.where(ended_before > 0, -1, tokens)
    # If no text has ended, the library gives plain log-probabilities.
    has_ended = tf.reduce_any(is_end, axis=2)
    longest = length_penalty(num_steps, settings.length_penalty)
    scores = tf.where(has_ended, scores, scores / longest)
    is_text = scores > _NO_TEXT
    scores = tf.where(is_text, scores, float("-inf"))
    return tf.where(is_text[..., None], tokens, -1), scores


# Called while a graph is traced, and defines a class.
@tf.autograph.experimental.do_not_convert
def _search_class():
    from official.nlp.modeling.ops import beam_search as library

    keys = library._StateKeys

    class Search(library.SequenceBeamSearch):
        """The library's search, which may stop before the best is certain."""

        def __init__(self, *arguments, stops_early, **kwargs):
            super().__init__(*arguments, **kwargs)
            self._stops_early = stops_early

        def _continue_search(self, state):
            goes_on = super()._continue_search(state)
            if not self._stops_early:
                return goes_on
            return goes_on & ~tf.reduce_all(state[keys.FINISHED_FLAGS])

    return Search
