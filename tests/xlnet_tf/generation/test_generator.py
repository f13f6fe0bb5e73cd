"""`generate` on raw strings: greedy, random, beams, ends, bad prompts."""

import gc
import itertools

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tokenization.symbols import SEP_ID
from tests.support.bert_models import bert_backbone
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.generation.decoders import make_decoder
from xlnet_tf.generation.methods import following
from xlnet_tf.generation.search import beam_search
from xlnet_tf.generation.settings import GenerationSettings
from xlnet_tf.generation.settings import Symbols
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor

PROMPTS = ["ba co", "b", "co ba d f"]
SIZES = dict(vocabulary_size=PIECES, num_layers=1)


def model_of(objective, seed=0, **overrides):
    if objective == "pseudo_masked":
        backbone = bert_backbone(seed, **{**SIZES, "max_positions": 32})
    else:
        kind = "causal" if objective == "causal" else "bidirectional"
        backbone = small_backbone(
            seed, **{**SIZES, "attention_type": kind, **overrides}
        )
    layout = backbone.config.layout
    return randomize(
        XLNetPretrainer(
            backbone,
            objective=objective,
            preprocessor=XLNetTextClassifierPreprocessor(
                tiny_tokenizer(), sequence_length=16, layout=layout
            ),
        ),
        seed,
    )


pytestmark = pytest.mark.usefixtures("eager_functions")


def test_a_generator_keeps_its_model():
    # As in `xlnet_tf.load(path).text_generator()`.
    generator = model_of("permutation").text_generator(max_new_tokens=2)
    gc.collect()
    assert len(list(generator.all(PROMPTS))) == 3


@pytest.fixture(scope="module")
def model():
    return model_of("permutation")


def log_probabilities_of(model, prompt, new):
    """Log-probabilities [N, S + 1, V] behind a prompt and N texts [N, S]."""
    decoder = make_decoder(model)
    steps = new.shape[1] + 1
    context = decoder.read({"token_ids": np.array([prompt], "int32")}, steps)
    cache, found = decoder.start(context, len(new), steps), []
    token = np.full(len(new), prompt[-1], "int32")
    for step in range(steps):
        logits, cache = decoder.step(context, cache, token, step)
        found.append(as_numpy(tf.nn.log_softmax(logits)))
        if step < steps - 1:
            token = new[:, step]
    return np.stack(found, axis=1)


@pytest.mark.parametrize(
    "objective", ["permutation", "causal", "pseudo_masked"]
)
def test_greedy_search_takes_the_likeliest_token_of_each_prompt_alone(
    objective,
):
    model = model_of(objective)
    generator = model.text_generator(max_new_tokens=5, batch_size=2)
    for prompt, (text,) in generator.all(PROMPTS):
        new = np.array([text.token_ids], "int32")
        values = log_probabilities_of(model, generator.encode(prompt), new)[0]
        values = values[: len(text.token_ids) + text.has_ended]
        blocked = generator.symbols.blocked(PIECES)
        best = np.where(blocked, -np.inf, values).argmax(axis=1)
        assert best[: len(text.token_ids)].tolist() == text.token_ids
        likelihood = values[np.arange(len(best)), best].sum()
        assert text.log_probability == pytest.approx(likelihood, abs=1e-4)
    batch = model.generate(PROMPTS, max_new_tokens=5)
    alone = [model.generate(x, max_new_tokens=5) for x in PROMPTS]
    assert batch == alone
    assert all(x.startswith(y) for x, y in zip(batch, PROMPTS, strict=True))


def test_random_texts_depend_on_seed_and_place_alone(model):
    settings = dict(temperature=1.5, max_new_tokens=6)

    def texts(**others):
        return model.generate(PROMPTS, **{**settings, **others})

    assert texts() == texts(batch_size=1)
    assert texts() != texts(seed=1)
    several = texts(num_sequences=3)
    assert all(len(set(x)) > 1 for x in several)
    # The first of several is the only one of one, whatever its likelihood.
    assert all(x in y for x, y in zip(texts(), several, strict=True))


def test_a_stream_is_the_text(model):
    generator = model.text_generator(max_new_tokens=6)
    token_ids = generator.encode(PROMPTS[0])
    parts = list(generator.stream(token_ids))
    assert len(parts) > 2
    whole = model.generate(PROMPTS[0], strip_prompt=True, max_new_tokens=6)
    assert "".join(parts) == whole


def test_tokens_behind_a_stop_string_do_not_count(model):
    """Whenever the texts were looked at."""

    def first_text(**settings):
        generator = model.text_generator(**settings)
        ((_, texts),) = generator.all(PROMPTS[:1])
        return texts[0]

    whole = first_text(max_new_tokens=12)
    stop = whole.text[5:7]
    found = first_text(max_new_tokens=12, stop=(stop,))
    count = len(found.token_ids)
    assert found.text == whole.text.partition(stop)[0]
    assert count < len(whole.token_ids)
    decode = model.preprocessor.tokenizer.decode
    assert stop in f" {decode(found.token_ids)}"
    assert stop not in f" {decode(found.token_ids[:-1])}"
    short = first_text(max_new_tokens=count)
    assert short.token_ids == found.token_ids
    assert found.log_probability == pytest.approx(
        short.log_probability, abs=1e-5
    )


def test_a_text_ends_before_a_stop_string(model):
    whole = model.generate(PROMPTS, strip_prompt=True, max_new_tokens=12)
    stop = whole[0][5:7]
    cut = model.generate(
        PROMPTS, strip_prompt=True, max_new_tokens=12, stop=(stop,)
    )
    expected = [x.partition(stop)[0] for x in whole]
    assert cut == expected
    assert len(cut[0]) < len(whole[0])


def test_a_stream_never_shows_a_stop_string(model):
    settings = dict(max_new_tokens=6, strip_prompt=True)
    whole = model.generate("ba b", **settings)
    stop = whole[len(whole) // 2 :][:5]  # of several tokens
    expected = model.generate("ba b", stop=stop, **settings)
    assert expected == whole[: whole.index(stop)]
    generator = model.text_generator(max_new_tokens=6, stop=stop)
    found = generator.stream(generator.encode("ba b"))
    assert "".join(found) == expected
    # One that only begins is shown.
    generator = model.text_generator(max_new_tokens=6, stop=whole[-2:] + "~")
    assert "".join(generator.stream(generator.encode("ba b"))) == whole


def test_minimum_and_ngrams_hold_in_every_strategy(model):
    for others in ({}, dict(num_beams=3), dict(top_k=4)):
        generator = model.text_generator(
            max_new_tokens=7, min_new_tokens=7, no_repeat_ngram=1, **others
        )
        for prompt, texts in generator.all(PROMPTS):
            for text in texts:
                whole = [*generator.encode(prompt), *text.token_ids]
                assert len(text.token_ids) == 7
                new = text.token_ids
                assert len(set(new)) == 7
                assert not set(new) & set(whole[:-7])


def best_texts(model, prompt, num_steps, alpha, few):
    """All texts of the tokens `few` that end: sorted (score, tokens)."""
    ends = [3, 4, 7]
    rows = list(itertools.product(few, repeat=num_steps - 1))
    values = log_probabilities_of(model, prompt, np.array(rows, "int32"))
    # Beam search gives what is blocked to the others.
    allowed = np.isin(np.arange(PIECES), [*few, *ends])
    values = np.where(allowed, values, -np.inf)
    values -= np.log(np.exp(values).sum(axis=-1, keepdims=True))
    found = {}
    for row, tokens in enumerate(rows):
        before = 0.0
        for step in range(num_steps):
            norm = ((5 + step + 1) / 6) ** alpha
            for end in ends:
                score = (before + values[row, step, end]) / norm
                found[(*tokens[:step], end)] = score
            if step < num_steps - 1:
                before += values[row, step, tokens[step]]
    return sorted(((x, y) for y, x in found.items()), reverse=True)


def few_beams(model, prompts, alpha, is_static, jit_compile=False):
    """Asserts that beam search finds the best of all texts of few tokens."""
    few = [9, 10, 11]
    blocked = np.ones(PIECES, bool)
    blocked[[*few, 3, 4, 7]] = False

    class Few(Symbols):
        def blocked(self, vocabulary_size):
            return blocked

    settings = GenerationSettings(
        num_beams=12, length_penalty=alpha, max_new_tokens=3
    )
    decoder = make_decoder(model)

    def search(history):
        context = decoder.read({"token_ids": history}, 3)
        return beam_search(
            *(decoder, context, history, 3, settings, Few(PIECES))
        )

    shape = [2, 2] if is_static else [None, None]
    function = tf.function(
        search,
        input_signature=[tf.TensorSpec(shape, tf.int32)],
        jit_compile=jit_compile,
    )
    tokens, scores = function(tf.constant(prompts))
    for row, prompt in enumerate(prompts):
        expected = best_texts(model, prompt, 3, alpha, few)[:6]
        found = [tuple(x for x in y if x >= 0) for y in tokens[row].numpy()]
        assert found[:6] == [x for _, x in expected]
        np.testing.assert_allclose(
            scores[row, :6], [x for x, _ in expected], atol=1e-4
        )


@pytest.mark.parametrize("alpha", [0.0, 1.0])
def test_beam_search_finds_the_best_of_all_texts(model, alpha):
    few_beams(model, [[12, 13], [14, 15]], alpha, is_static=True)


def test_beams_of_which_none_ends_are_answered(model):
    found = model.generate(
        PROMPTS,
        num_beams=3,
        num_sequences=3,
        max_new_tokens=4,
        min_new_tokens=4,
        early_stopping=True,
    )
    assert [len(x) for x in found] == [3, 3, 3]
    assert all(len(set(x)) == 3 for x in found)


def test_more_beams_find_no_worse_text(model):
    scores = []
    for num_beams in (1, 2, 8):
        generator = model.text_generator(
            max_new_tokens=4, min_new_tokens=4, num_beams=num_beams
        )
        scores.append([x[0].log_probability for _, x in generator.all(PROMPTS)])
    # With a minimum no text ends, so that all have four tokens; one beam is
    # the greedy search, whose values are of the model without the rules.
    assert (np.array(scores[2]) >= np.array(scores[1]) - 1e-5).all()


def test_a_bad_prompt_leaves_the_others_answered(model):
    prompts = ["", PROMPTS[0], "b " * 40]
    settings = dict(max_prompt_tokens=20, max_new_tokens=3)
    expected = model.generate(PROMPTS[0], **settings)
    with pytest.warns(UserWarning) as found:
        texts = model.generate(prompts, **settings)
    assert texts == [None, expected, None]
    messages = [str(x.message) for x in found]
    assert len(messages) == 2
    assert "this one is empty" in messages[0]
    assert "at most 20 tokens" in messages[1]
    with pytest.raises(ValueError, match="this one is empty"):
        model.generate(" ")
    with pytest.raises(TypeError, match="of type bytes"):
        model.generate(b"b")
    with pytest.raises(ValueError, match="did you mean max_new_tokens"):
        model.generate("b", max_tokens=2)


def test_a_blank_at_the_end_of_a_prompt_is_no_second_one():
    for prompt, text, expected in (
        ("ba ", " co", "co"),
        ("ba", " co", " co"),
        ("ba\n", " co", "co"),
        ("ba ", "co", "co"),
        ("", " co", " co"),
    ):
        assert following(prompt, text) == expected


def test_positions_of_a_bert_bound_the_prompt():
    model = model_of("pseudo_masked")
    with pytest.raises(ValueError, match="at most 24 tokens"):
        model.generate("b " * 30, max_new_tokens=8)


def test_models_that_cannot_generate_say_why(model):
    with pytest.raises(ValueError, match="needs a model with memory"):
        model.generate("b", segment_length=4)
    masked = XLNetPretrainer(
        bert_backbone(), objective="masked", preprocessor=None
    )
    with pytest.raises(ValueError, match="needs the tokenizer"):
        masked.generate("b")


def test_models_of_both_directions_read_forwards():
    """Released ones reverse half of a batch in training."""
    found = [
        model_of("permutation", reverse_half_batch=both)
        for both in (False, True)
    ]
    one, other = (x.generate(PROMPTS, max_new_tokens=4) for x in found)
    assert one == other
    one, other = (x.score(PROMPTS) for x in found)
    for x, y in zip(one, other, strict=True):
        assert x.log_probability == pytest.approx(y.log_probability, abs=1e-4)


def test_long_prompts_are_read_in_segments():
    model = model_of("causal", memory_length=64)
    prompt = "ba co d f " * 6
    whole = model.generate(prompt, max_new_tokens=5)
    parts = model.generate(prompt, max_new_tokens=5, segment_length=8)
    # The memory holds all of it, so that nothing is lost.
    assert parts == whole


def test_graphs_generate_the_same(model):
    settings = dict(max_new_tokens=4, top_k=5)
    expected = model.generate(PROMPTS, **settings)
    tf.config.run_functions_eagerly(False)
    assert model.generate(PROMPTS, **settings) == expected
    # Prompts of other lengths are no reason to trace again.
    assert model.generate(PROMPTS[:1], **settings) == expected[:1]


def test_settings_that_no_graph_depends_on_compile_nothing(model):
    programs = model.text_generator(max_new_tokens=3)._programs
    others = dict(seed=5, batch_size=2, stop=("x",), max_prompt_tokens=9)
    same = model.text_generator(max_new_tokens=3, **others)
    assert same._programs is programs
    assert model.text_generator(max_new_tokens=4)._programs is not programs


def test_early_stopping_takes_fewer_steps():
    model = model_of("permutation")
    bias = model.head.bias.numpy()
    bias[SEP_ID] += 2  # texts end soon
    model.head.bias.assign(bias)
    steps = {}
    for early in (False, True):
        generator = model.text_generator(
            num_beams=3,
            num_sequences=3,
            max_new_tokens=12,
            length_penalty=1.0,
            early_stopping=early,
        )
        decoder, calls = generator.decoder, []
        step = decoder.step
        decoder.step = lambda *x, step=step, calls=calls: (
            calls.append(1) or step(*x)
        )
        (texts,) = generator.generate([generator.encode(PROMPTS[0])])
        assert all(text.has_ended for text in texts)
        steps[early] = len(calls)
    assert steps[True] < steps[False]
