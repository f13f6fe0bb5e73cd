"""The signature `generate` answers as `generate` does."""

import numpy as np
import pytest
import tensorflow as tf

from saved_models.settings import ExportSettings
from tests.generation.test_generate import PROMPTS
from tests.generation.test_generate import model_of
from tests.support.export_fixtures import ALLOWED_TEXT_OPS
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import PYTHON_OPS
from tests.support.export_fixtures import ask
from tests.support.export_fixtures import export
from tests.support.export_fixtures import module_of

STEPS = 5


def generated(model, prompts=PROMPTS, **settings):
    """(texts, log-probabilities, whether they ended) of `generate`."""
    generator = model.text_generator(max_new_tokens=STEPS, **settings)
    rows = [texts for _, texts in generator.all(prompts)]
    return (
        [[x.text for x in row] for row in rows],
        np.array([[x.log_probability for x in row] for row in rows]),
        [[int(x.has_ended) for x in row] for row in rows],
    )


def texts_of(answer):
    return [[x.decode() for x in row] for row in answer["generated"]]


@pytest.mark.parametrize(
    ("objective", "settings"),
    [
        ("permutation", {}),
        ("permutation", dict(num_beams=3, num_sequences=2, length_penalty=1.0)),
        ("causal", dict(no_repeat_ngram=1, min_new_tokens=3)),
        ("pseudo_masked", {}),
    ],
)
def test_signature_equals_generate(objective, settings):
    model = model_of(objective)
    # Positions of a BERT are fewer than the tokens of other exports.
    module = module_of(
        model,
        sequence_length=24 if objective == "pseudo_masked" else LENGTH,
        generation={"max_new_tokens": STEPS, **settings},
    )
    answer = ask(module.signatures()["generate"].function, PROMPTS)
    texts, values, ended = generated(model, **settings)
    assert texts_of(answer) == texts
    np.testing.assert_allclose(answer["log_probabilities"], values, atol=1e-4)
    assert answer["has_ended"].tolist() == ended
    assert answer["error"].tolist() == [b""] * 3


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
    graph = function.graph.as_graph_def()
    ops = {x.op for x in graph.node}
    ops |= {x.op for f in graph.library.function for x in f.node_def}
    assert not ops & PYTHON_OPS
    assert {x for x in ops if "entence" in x} <= ALLOWED_TEXT_OPS
    assert not {x for x in ops if "Xla" in x}


def test_settings_of_generation_are_checked():
    settings = ExportSettings(generation={"max_new_tokens": 7, "top_k": 2})
    assert settings.generation.samples
    # What an export writes beside itself can be read again.
    assert ExportSettings(**settings.to_dict()) == settings
    with pytest.raises(ValueError, match="positive integer"):
        ExportSettings(generation={"max_new_tokens": 0})
    with pytest.raises(ValueError, match="leave `segment_length`"):
        module_of(
            model_of("causal", memory_length=4),
            generation={"segment_length": 4},
        )
