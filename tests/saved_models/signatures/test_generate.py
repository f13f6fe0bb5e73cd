"""The signature `generate` answers as `generate` does."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models.client.operations import ALLOWED
from saved_models.settings import ExportSettings
from saved_models.signatures import signatures_for
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import ask
from tests.support.export_fixtures import module_of
from tests.support.samples import tiny_model
from tests.support.training_fixtures import tiny_config
from tests.xlnet_tf.generation.test_generator import PROMPTS
from tests.xlnet_tf.generation.test_generator import model_of
from tests.xlnet_tf.tasks.test_seq2seq import SOURCES
from tests.xlnet_tf.tasks.test_seq2seq import P
from tests.xlnet_tf.tasks.test_seq2seq import task_of as seq2seq_of
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf import XLNetTextClassifierPreprocessor
from xlnet_tf.generation.settings import GenerationSettings
from xlnet_tf.objectives import PseudoMasked

STEPS = 5


def generated(model, prompts=PROMPTS, **settings):
    """Texts, log-probabilities, whether they ended, tokens of `generate`."""
    generator = model.text_generator(max_new_tokens=STEPS, **settings)
    rows = [texts for _, texts in generator.all(prompts)]
    return (
        [[x.text for x in row] for row in rows],
        np.array([[x.log_probability for x in row] for row in rows]),
        [[int(x.has_ended) for x in row] for row in rows],
        [[len(x.token_ids) for x in row] for row in rows],
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
    texts, values, ended, sizes = generated(model, **settings)
    assert texts_of(answer) == texts
    np.testing.assert_allclose(answer["log_probabilities"], values, atol=1e-4)
    assert answer["has_ended"].tolist() == ended
    assert answer["num_tokens"].tolist() == sizes
    assert answer["error"].tolist() == [b""] * 3


def test_a_model_without_memory_sees_all_before_a_token():
    model = model_of("causal", same_length=True, memory_length=0)
    module = module_of(model, generation={"max_new_tokens": STEPS})
    answer = ask(module.signatures()["generate"].function, PROMPTS)
    texts, values, *_ = generated(model)
    assert texts_of(answer) == texts
    np.testing.assert_allclose(answer["log_probabilities"], values, atol=1e-4)


def test_bytes_of_characters():
    """Of one that the vocabulary lacks, and of one that is cut."""
    proto = tiny_model(byte_fallback=True, vocab_size=600)
    tokenizer = Tokenizer.from_model_proto(proto)
    first, second = map(tokenizer.piece_to_id, ("<0xD0>", "<0x96>"))
    config = tiny_config(
        vocabulary_size=600, num_layers=1, attention_type="causal"
    )
    model = XLNetPretrainer(XLNetBackbone(config), objective="causal")
    model.preprocessor = XLNetTextClassifierPreprocessor(tokenizer)
    bias = np.zeros(600, "float32")
    bias[[first, second]] = 50, 40
    model.head.bias.assign(bias)
    for steps, expected in ((2, "\u0416"), (1, "\ufffd")):
        settings = {"max_new_tokens": steps, "no_repeat_ngram": 1}
        exported = ExportSettings(sequence_length=16, generation=settings)
        module = signatures_for(model)(
            model, tokenizer, exported.for_model(model)
        )
        answer = ask(module.signatures()["generate"].function, ["ba"])
        (text,) = model.generate(["ba"], strip_prompt=True, **settings)
        assert texts_of(answer) == [[text]] and text == expected
    model = XLNetPretrainer(
        XLNetBackbone(tiny_config(vocabulary_size=600, num_layers=1)),
        preprocessor=model.preprocessor,
    )
    bias[first] = 0
    model.head.bias.assign(bias)
    assert model.fill("ba <mask>").text == "ba \ufffd"


def test_no_blanks_are_filled_by_what_has_not_learnt_to():
    """As `fill` refuses; the model generates."""
    backbone = model_of("pseudo_masked").backbone
    names = {}
    for losses in ("both", "autoencoding", "partially_autoregressive"):
        model = XLNetPretrainer(backbone, objective=PseudoMasked(losses))
        generation = {} if losses == "autoencoding" else {"max_new_tokens": 2}
        module = module_of(
            model, sequence_length=24, generation=generation or None
        )
        signatures = module.signatures()
        names[losses] = set(signatures)
        is_filled = signatures["serving_default"] is signatures.get("fill_in")
        assert is_filled == (losses != "partially_autoregressive")
    blanks = {"fill_in", "fill_in_ids"}
    assert names["both"] - names["autoencoding"] == {"generate"}
    assert names["both"] - names["partially_autoregressive"] == blanks
    assert signatures["serving_default"] is signatures["embed"]


def test_longer_texts_score_higher_if_wanted():
    """Texts of several lengths, of which the order changes with the penalty."""
    model = model_of("causal")
    orders, served = [], []
    for alpha in (0.0, 4.0):
        settings = dict(num_sequences=6, temperature=3.0, stop=tuple("aio"))
        settings |= {"length_penalty": alpha, "seed": 5}
        generator = model.text_generator(max_new_tokens=STEPS, **settings)
        ((_, found),) = generator.all(PROMPTS[:1])
        assert len({len(x.token_ids) for x in found}) > 1
        scores = [x.score for x in found]
        assert scores == sorted(scores, reverse=True)
        same = [x.score == x.log_probability for x in found]
        assert all(same) == (not alpha)
        orders.append([x.log_probability for x in found])
        settings["max_new_tokens"] = STEPS
        generate = module_of(model, generation=settings).signatures()
        answer = generate["generate"].function(
            text=tf.constant(PROMPTS[:1]), seed=tf.constant([5], tf.int64)
        )
        served.append(answer["log_probabilities"].numpy()[0].tolist())
    for first, second in (orders, served):
        assert first == sorted(first, reverse=True) != second
        assert sorted(first) == sorted(second)


@pytest.mark.parametrize("beams", [1, 2])
def test_a_text_is_counted_up_to_its_stop_string(beams):
    """Of two that overlap, the one that is complete first cuts it."""
    model = model_of("causal")
    settings = {"no_repeat_ngram": 1, "num_beams": beams}
    ((text,), *_), *_ = generated(model, **settings)
    stops = (text[-1], text[2:-1], text[1:4])
    settings["stop"] = stops
    module = module_of(model, generation={"max_new_tokens": STEPS, **settings})
    # As it is exported: traced, for any number of texts.
    traced = tf.function(
        module.signatures()["generate"].function,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    answer = ask(traced, PROMPTS)
    texts, values, ended, sizes = generated(model, **settings)
    assert texts_of(answer) == texts and texts[0] == [text[:1]]
    np.testing.assert_allclose(answer["log_probabilities"], values, atol=1e-4)
    assert answer["has_ended"].tolist() == ended and ended[0] == [1]
    assert answer["num_tokens"].tolist() == sizes and sizes[0][0] < STEPS


def test_the_package_loads_what_it_exports():
    """No operation but those that `saved_models.load` runs."""
    model = model_of("causal")
    for settings in ({"top_k": 4, "stop": ("a",)}, {"num_beams": 2}):
        module = module_of(model, generation={"max_new_tokens": 2, **settings})
        signature = module.signatures()["generate"]
        function = tf.function(signature.function, autograph=False)
        graph = function.get_concrete_function(
            **signature.inputs
        ).graph.as_graph_def()
        held = {x.op for x in graph.node}
        held |= {x.op for f in graph.library.function for x in f.node_def}
        assert "ReduceJoin" in held
        assert held <= ALLOWED


def test_a_request_has_only_so_many_tokens():
    module = module_of(
        model_of("causal"),
        max_request_tokens=3 * (4 + STEPS),
        generation={"max_new_tokens": STEPS},
    )
    function = module.signatures()["generate"].function
    ask(function, PROMPTS[:1] * 2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="padding and new"):
        ask(function, PROMPTS[:1] * 9)


@pytest.mark.parametrize("kind", ["query", "pseudo"])
def test_targets_of_sources(kind):
    task = seq2seq_of(kind)
    sources = [*SOURCES, "ba co " * 30]
    for settings in ({}, {"generation": {"max_new_tokens": 3, "stop": ("a",)}}):
        module = module_of(task, sequence_length=24, **settings)
        signatures = module.signatures()
        assert signatures["serving_default"] is signatures["generate"]
        answer = ask(signatures["generate"].function, ["", *sources])
        wanted = settings.get("generation", {})
        defaults = GenerationSettings().to_dict() if settings else {}
        texts = task.generate(sources, **{**defaults, **wanted})
        assert texts_of(answer)[1:] == [[text] for text in texts]
        assert answer["error"][0] == b"the source is empty"
        assert set(answer["error"][1:].tolist()) == {b""}
    with pytest.raises(ValueError, match="at least 3 above the length of a"):
        module_of(task, sequence_length=P + 2)


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
