"""Contender that generates tokens with this library, after a prompt."""

import tensorflow as tf

from benchmarks.contenders.ours import objective_config
from benchmarks.workload import batches
from xlnet_tf import XLNetPretrainer
from xlnet_tf.generation import search
from xlnet_tf.generation.decoders import make_decoder
from xlnet_tf.generation.settings import GenerationSettings
from xlnet_tf.generation.settings import Symbols
from xlnet_tf.model.backbones import make_backbone

FRAMEWORK = "tensorflow"


def next_tokens(model, objective, num_prompt, num_new, jit_compile):
    """Set up greedy search after a prompt whose keys and values are cached.

    Args:
        objective: str, name of an objective.
        num_prompt, num_new: ints, numbers of prompt tokens and new tokens.
    """
    backbone = "bert" if objective == "pseudo_masked" else "xlnet"
    config = objective_config(
        objective, backbone, model, num_prompt + num_new + 1
    )
    decoder = make_decoder(
        XLNetPretrainer(make_backbone(config), objective=objective)
    )
    # With a minimum number of tokens, no text ends early.
    settings = GenerationSettings(
        max_new_tokens=num_new, min_new_tokens=num_new
    )
    symbols = Symbols(model["vocabulary_size"])
    token_ids, _ = batches.token_batch(model, 1, num_prompt)
    read = tf.function(decoder.read, autograph=False)
    context = read({"token_ids": tf.constant(token_ids)}, num_new)
    state = search.begin(decoder, context, tf.constant(token_ids), num_new)
    uniforms = tf.zeros([1, num_new])

    @tf.function(autograph=False, jit_compile=jit_compile)
    def extend(context, state):
        return search.extend(
            decoder, context, state, uniforms, settings, symbols, num_new
        )

    return lambda: extend(context, state)["history"].numpy()
