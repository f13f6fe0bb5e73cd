"""Greedy search and sampling, as a loop in the graph.

Shapes: N rows, W tokens of a history, S steps, V vocabulary.
"""

import tensorflow as tf

from xlnet_tf.generation.samplers import apply_rules
from xlnet_tf.generation.samplers import choose
from xlnet_tf.generation.samplers import token_of


def begin(decoder, context, prompt, num_steps):
    """State before the first new token.

    Args:
        decoder: Decoder.
        context: dict of `Decoder.read`, of B prompts.
        prompt: int32 tensor of shape [N, T], N / B rows of each prompt side
            by side; -1 where there is no token.
        num_steps: int, S.

    Returns:
        dict of tensors: `index` int32 [], steps that are done; `history` int32
        [N, T + S]; `log_probabilities` float32 [N, S], of the new tokens under
        the model; `is_done` bool [N]; and the cache.
    """
    num_rows = tf.shape(prompt)[0]
    unwritten = tf.fill([num_rows, num_steps], -1)
    return {
        "index": tf.constant(0),
        "history": tf.concat([prompt, unwritten], axis=1),
        "log_probabilities": tf.zeros([num_rows, num_steps]),
        "is_done": tf.zeros([num_rows], tf.bool),
        "cache": decoder.start(context, num_rows, num_steps),
    }


def extend(decoder, context, state, uniforms, settings, symbols, last_step):
    """Add tokens until `last_step`, or until every row has ended.

    Args:
        decoder: Decoder.
        context: dict of `Decoder.read`.
        state: dict of `begin` or of `extend`.
        uniforms: float32 tensor of shape [N, S], in [0, 1).
        settings: GenerationSettings.
        symbols: Symbols of `xlnet_tf.generation.symbols`.
        last_step: int32 scalar, at most S.

    Returns:
        dict, the new state.
    """
    num_steps = tf.shape(uniforms)[1]
    num_prompt = tf.shape(state["history"])[1] - num_steps

    def goes_on(state):
        return (state["index"] < last_step) & ~tf.reduce_all(state["is_done"])

    def step(state):
        index, history = state["index"], state["history"]
        place = num_prompt + index
        token = token_of(tf.gather(history, place - 1, axis=1))
        logits, cache = decoder.step(
            context, state["cache"], tf.maximum(token, 0), index
        )
        uniform = tf.gather(uniforms, index, axis=1)
        chosen = choose(
            apply_rules(logits, history, place, index, settings, symbols),
            uniform,
            settings,
        )
        log_probability = tf.gather(
            tf.nn.log_softmax(logits), chosen, axis=1, batch_dims=1
        )
        was_done = state["is_done"]
        chosen = tf.where(was_done, -1, chosen)
        log_probability = tf.where(was_done, 0.0, log_probability)
        is_end = tf.reduce_any(
            chosen[:, None] == tf.constant(symbols.end_ids), axis=1
        )
        return {
            "index": index + 1,
            "history": _put(history, place, chosen),
            "log_probabilities": _put(
                state["log_probabilities"], index, log_probability
            ),
            "is_done": was_done | is_end,
            "cache": cache,
        }

    return tf.while_loop(
        goes_on,
        lambda state: (step(state),),
        (state,),
        parallel_iterations=1,
    )[0]


def _put(rows, column, values):
    columns = tf.range(tf.shape(rows)[1])
    return tf.where(columns == column, values[:, None], rows)
