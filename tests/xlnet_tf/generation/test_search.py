"""The rules for the next token, how it is drawn, and beam search."""

import types

import numpy as np
import pytest
import tensorflow as tf

from xlnet_tf.generation.search import apply_rules
from xlnet_tf.generation.search import beam_search
from xlnet_tf.generation.search import choose
from xlnet_tf.generation.settings import GenerationSettings
from xlnet_tf.generation.settings import Symbols

SIZE = 20
SYMBOLS = Symbols(num_pieces=18)


def rules(logits, history, length, new_tokens=5, **settings):
    found = apply_rules(
        *(tf.constant(logits, tf.float32), tf.constant(history)),
        *(tf.constant(length), tf.constant(new_tokens)),
        *(GenerationSettings(**settings), SYMBOLS),
    )
    return found.numpy()


def test_control_symbols_and_missing_pieces_are_never_chosen():
    found = rules(np.zeros((1, SIZE)), [[9, 10, -1]], 2)[0]
    # <sep>, <cls> and <eod> end a text; 18 and 19 are no pieces.
    assert np.flatnonzero(found < -1e8).tolist() == [0, 1, 2, 5, 6, 8, 18, 19]
    early = rules(np.zeros((1, SIZE)), [[9, 10, -1]], 2, 1, min_new_tokens=2)[0]
    assert (early[[3, 4, 7]] < -1e8).all()
    late = rules(np.zeros((1, SIZE)), [[9, 10, -1]], 2, 2, min_new_tokens=2)[0]
    assert (late[[3, 4, 7]] == 0).all()


def test_repetition_penalty_is_that_of_ctrl():
    logits = np.linspace(-2, 2, SIZE, dtype="float32")[None]
    history = [[-1, 9, 12, 15, -1]]
    found = rules(logits, history, 4, repetition_penalty=1.5)[0]
    expected = logits[0].copy()
    for token in (9, 12, 15):
        factor = 1 / 1.5 if expected[token] > 0 else 1.5
        expected[token] *= factor
    kept = found > -1e8
    np.testing.assert_allclose(found[kept], expected[kept], rtol=1e-6)


@pytest.mark.parametrize("size", [1, 2, 3])
def test_no_ngram_comes_twice(size):
    random = np.random.default_rng(size)
    history = random.integers(9, 13, (6, 12)).astype("int32")
    history[:, :2] = -1  # padding of the prompt
    length = 10
    history[:, length:] = -1
    found = rules(np.zeros((6, SIZE)), history, length, no_repeat_ngram=size)
    for row in range(6):
        text = history[row, 2:length].tolist()
        there = {tuple(text[i : i + size]) for i in range(len(text) - size + 1)}
        for token in range(9, 18):
            repeats = tuple([*text, token][-size:]) in there
            assert (found[row, token] < -1e8) == repeats


def drawn(logits, count=4000, **settings):
    """Shares of the tokens among random ones."""
    uniform = np.random.default_rng(0).random(count, np.float32)
    tokens = choose(
        tf.repeat(tf.constant([logits], tf.float32), count, axis=0),
        tf.constant(uniform),
        GenerationSettings(sample=True, **settings),
    )
    return np.bincount(tokens, minlength=len(logits)) / count


def test_random_tokens_follow_the_probabilities():
    shares = np.array([0.5, 0.3, 0.15, 0.05])
    logits = np.log(shares)
    # Three standard deviations of a share of 4000 draws.
    bound = 3 * np.sqrt(shares.max() * (1 - shares.max()) / 4000)

    def close(found, expected):
        np.testing.assert_allclose(found, expected, atol=bound)

    close(drawn(logits), shares)
    close(drawn(logits, temperature=0.5), shares**2 / (shares**2).sum())
    close(drawn(logits, top_k=2), [0.625, 0.375, 0, 0])
    # 0.5 and 0.3 are too few for 0.85, with 0.15 they are enough.
    close(drawn(logits, top_p=0.85), [0.5 / 0.95, 0.3 / 0.95, 0.15 / 0.95, 0])
    close(drawn(logits, top_p=0.01), [1, 0, 0, 0])
    assert drawn(logits, top_p=0.85)[3] == 0 == drawn(logits, top_k=2)[2]


def test_no_temperature_brings_back_a_forbidden_token():
    logits = [1.0, -1e9, 3.0, 2.0]  # as by `apply_rules`
    for temperature in (1.0, 1e9, 1e30):
        shares = drawn(logits, temperature=temperature)
        assert shares[1] == 0 and shares[0] > 0
    assert abs(shares[0] - 1 / 3) < 0.03


def test_the_likeliest_token_without_sampling():
    logits = tf.constant([[0.0, 2.0, 1.0], [3.0, 2.0, 1.0]])
    found = choose(logits, tf.zeros(2), GenerationSettings())
    assert found.numpy().tolist() == [1, 0]
    # As a temperature of almost nothing.
    for temperature in (1e-9, 1e-38, 1e-300):
        settings = GenerationSettings(temperature=temperature)
        found = choose(100 * logits, tf.fill([2], 0.9), settings)
        assert found.numpy().tolist() == [1, 0]


class ConstantDecoder:
    """Decoder with the same logits for each token."""

    config = types.SimpleNamespace(vocabulary_size=SIZE)

    def __init__(self, logits):
        self.logits = tf.constant([logits], tf.float32)

    def start(self, context, batch_size, num_steps):
        return {name: [tf.zeros([batch_size, 1])] for name in context}

    def step(self, context, kept, token, index):
        return tf.repeat(self.logits, tf.shape(token)[0], axis=0), kept


@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0, 2.0])
def test_beams_without_a_text_are_missing_at_every_length_penalty(alpha):
    logits = np.full(SIZE, -20.0)
    # Only the best of the 4 beams ends, in the last of 64 steps.
    end = SYMBOLS.end_ids[-1]
    logits[9:18] = 0
    logits[9] = 5
    logits[end] = 0.01
    empty = tf.zeros([1, 1])
    tokens, scores = beam_search(
        ConstantDecoder(logits),
        {"keys": [empty], "values": [empty]},
        tf.constant([[9, 9]]),
        64,
        GenerationSettings(
            num_beams=4, min_new_tokens=63, length_penalty=alpha
        ),
        SYMBOLS,
    )
    assert tokens[0, 0].numpy().tolist() == [9] * 63 + [end]
    assert np.isfinite(scores).tolist() == [[True, False, False, False]]
    assert (tokens[0, 1:].numpy() == -1).all()


def test_numbers_of_numpy_are_numbers():
    settings = GenerationSettings(seed=np.int64(3), top_p=np.float32(0.5))
    assert settings == GenerationSettings(seed=3, top_p=0.5)
    with pytest.raises(TypeError, match="seed"):
        GenerationSettings(seed=np.arange(2))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (dict(num_beams=2, top_k=3), "draws nothing at random"),
        (dict(num_sequences=2), "as many beams"),
        (dict(min_new_tokens=9, max_new_tokens=8), "not be above"),
        (dict(stop=("",)), "at least one character"),
        (dict(top_p=0.0), r"in \(0, 1\]"),
        (dict(max_new_tokens=0), "positive integer"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(ValueError, match=message):
        GenerationSettings(**settings)
