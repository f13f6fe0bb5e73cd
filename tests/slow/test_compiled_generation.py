"""Generation compiled by XLA, with shapes unknown before, and in an export."""

import pytest
import tensorflow as tf

from saved_models.client.operations import check_operations
from tests.saved_models.signatures.test_generate import STEPS
from tests.saved_models.signatures.test_generate import generated
from tests.support.export_fixtures import export
from tests.xlnet_tf.generation.test_generator import PROMPTS
from tests.xlnet_tf.generation.test_generator import few_beams
from tests.xlnet_tf.generation.test_generator import model_of
from xlnet_tf.generation import search


def test_beam_search_compiles():
    """The loop of beams and the kept keys and values, in one program."""
    model = model_of("permutation")
    few_beams(
        model, [[12, 13], [14, 15]], 1.0, is_static=True, jit_compile=True
    )


def test_beam_search_of_unknown_shapes():
    """As in an export; the library's loop then grows its texts."""
    few_beams(
        model_of("permutation"), [[12, 13], [14, 15]], 1.0, is_static=False
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
        state = search.begin(decoder, context, history, 4)

        @tf.function(jit_compile=jit_compile, autograph=False)
        def function(state):
            return search.extend(
                *(decoder, context, state, uniforms),
                *(generator.settings, generator.symbols, 4),
            )

        return function(state)["history"].numpy().tolist()

    assert extend(True) == extend(False)


def test_a_written_export_generates_by_known_operations(tmp_path):
    """Draws, stop strings and bad prompts, from the SavedModel itself."""
    model = model_of("permutation")
    stop = generated(model, [PROMPTS[0]])[0][0][0][3:5]
    signatures = export(
        model,
        tmp_path / "tiny" / "1",
        generation={"max_new_tokens": STEPS, "top_k": 9, "stop": [stop]},
    )
    function = signatures["generate"]

    def texts(prompts, seeds):
        answer = function(
            text=tf.constant(prompts), seed=tf.constant(seeds, tf.int64)
        )
        return {name: x.numpy() for name, x in answer.items()}

    several = texts([PROMPTS[0]] * 9, range(9))
    assert len(set(several["generated"][:, 0])) > 2
    assert not any(stop.encode() in x for x in several["generated"][:, 0])
    # A row does not depend on its place, or on who else asks.
    alone = texts([PROMPTS[0]], [5])
    assert alone["generated"][0] == several["generated"][5]
    answer = texts(["", PROMPTS[0], "b " * 99], [0, 5, 0])
    assert answer["generated"][1] == alone["generated"][0]
    assert answer["generated"][[0, 2]].tolist() == [[b""], [b""]]
    assert answer["num_tokens"][[0, 2]].tolist() == [[0], [0]]
    assert answer["error"].tolist() == [
        b"the prompt is empty",
        b"",
        b"the prompt has more than 47 tokens",
    ]
    check_operations(tmp_path / "tiny" / "1")
    ops = {x.op for x in function.graph.as_graph_def().node}
    assert not {x for x in ops if "Xla" in x}
