"""Generation compiled by XLA, of static shapes, equals it without."""

import pytest
import tensorflow as tf

from tests.generation.test_generate import PROMPTS
from tests.generation.test_generate import few_beams
from tests.generation.test_generate import model_of
from xlnet_tf.generation import sampling


def test_beam_search_compiles():
    """The loop of beams and the kept keys and values, in one program."""
    model = model_of("permutation")
    few_beams(
        model, [[12, 13], [14, 15]], 1.0, is_static=True, jit_compile=True
    )


@pytest.mark.parametrize(
    "objective", ["permutation", "causal", "pseudo_masked"]
)
def test_sampling_compiles(objective):
    model = model_of(objective)
    generator = model.text_generator(max_new_tokens=4, top_k=5)
    features, history = generator._batch([generator.encode(x) for x in PROMPTS])
    decoder = generator.decoder
    context = decoder.read(features, 4)
    uniforms = tf.random.stateless_uniform([3, 4], [1, 2])

    def extend(jit_compile):
        state = sampling.begin(decoder, context, history, 4)

        @tf.function(jit_compile=jit_compile, autograph=False)
        def function(state):
            return sampling.extend(
                *(decoder, context, state, uniforms),
                *(generator.settings, generator.symbols, 4),
            )

        return function(state)["history"].numpy().tolist()

    assert extend(True) == extend(False)
