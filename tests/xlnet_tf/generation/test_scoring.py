"""Scores of texts under any order, and joint fillings of blanks."""

import itertools

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SEP_ID
from tests.support.export_fixtures import PIECES
from tests.support.oracle import as_numpy
from tests.xlnet_tf.generation.test_generator import model_of
from xlnet_tf import XLNetPretrainer
from xlnet_tf.generation.filling import Filler
from xlnet_tf.generation.filling import parse
from xlnet_tf.objectives import Causal
from xlnet_tf.objectives import Permutation
from xlnet_tf.objectives import PseudoMasked

TEXTS = ["ba co d", "b co", "co ba d f ba"]
# float32 sums in another order, on sums of some ten logarithms of about 5
TOLERANCE = 1e-4

pytestmark = pytest.mark.usefixtures("eager_functions")


@pytest.fixture(scope="module")
def model():
    return model_of("permutation")


@pytest.fixture(scope="module")
def pseudo_masked():
    return model_of("pseudo_masked")


def ids_of(model, text):
    return model.preprocessor.tokenizer.encode(text)


def sequence(ids):
    """Features of a text as XLNet has them, alone and without padding."""
    segments = [0] * (len(ids) + 1) + [2]
    return {
        "token_ids": np.array([[*ids, SEP_ID, CLS_ID]], "int32"),
        "segment_ids": np.array([segments], "int32"),
    }


def log_probability(model, text, steps, targets=None):
    """By one row, its order written out: float."""
    ids = ids_of(model, text)
    targets = range(len(ids)) if targets is None else targets
    features = sequence(ids)
    rank = np.full(features["token_ids"].shape, -1, "int32")
    rank[0, list(targets)] = steps
    features |= {
        "factorization_rank": rank,
        "target_positions": np.array([list(targets)], "int32"),
        "target_ids": np.array([[ids[x] for x in targets]], "int32"),
    }
    return -float(as_numpy(model(features)["token_loss"]).sum())


@pytest.mark.parametrize(
    ("order", "steps"),
    [
        ("forward", np.arange),
        ("backward", lambda count: np.arange(count)[::-1]),
        ("independent", lambda count: np.zeros(count, int)),
        (lambda count: np.arange(count) // 2, lambda x: np.arange(x) // 2),
    ],
)
def test_scores_of_a_batch_are_those_of_each_text(model, order, steps):
    found = model.score(TEXTS, order, batch_size=2)
    for text, score in zip(TEXTS, found, strict=True):
        count = len(ids_of(model, text))
        expected = log_probability(model, text, steps(count))
        assert score.num_tokens == count
        assert score.log_probability == pytest.approx(expected, abs=TOLERANCE)
        assert score.perplexity == pytest.approx(np.exp(-expected / count))
    alone = model.score(TEXTS[0], order).log_probability
    assert alone == pytest.approx(found[0].log_probability, abs=TOLERANCE)


def test_random_orders_are_averaged(model):
    score = model.score(TEXTS[0], "random", num_orders=3, seed=1)
    assert len(set(score.log_probabilities)) == 3
    mean = np.mean(score.log_probabilities)
    assert score.log_probability == pytest.approx(mean)
    # Wherever the text stands.
    again = model.score(["co", TEXTS[0]], "random", num_orders=3, seed=1)
    assert again[1].log_probabilities == pytest.approx(
        score.log_probabilities, abs=TOLERANCE
    )
    count = score.num_tokens
    steps = np.random.default_rng([1, 0, 2]).permutation(count)
    assert score.log_probabilities[2] == pytest.approx(
        log_probability(model, TEXTS[0], steps), abs=TOLERANCE
    )


def test_spans_are_scored_given_the_rest(model):
    text = TEXTS[0]
    tokenizer = model.preprocessor.tokenizer
    _, places = tokenizer.encode_with_offsets(text)
    # A piece that is a blank alone has no characters.
    targets = [x for x, (begin, end) in enumerate(places) if begin < end][:2]
    spans = [places[x] for x in targets]
    found = model.score(text, "backward", spans=spans)
    expected = log_probability(model, text, [1, 0], targets)
    assert found.num_tokens == 2
    assert found.log_probability == pytest.approx(expected, abs=TOLERANCE)


def test_a_causal_model_scores_forward():
    model = model_of("causal")
    for text, score in zip(TEXTS, model.score(TEXTS), strict=True):
        ids = np.array([ids_of(model, text)], "int32")
        outputs = model({"token_ids": ids[:, :-1], "target_ids": ids[:, 1:]})
        expected = -float(as_numpy(outputs["token_loss"]).sum())
        assert score.log_probability == pytest.approx(expected, abs=TOLERANCE)
    with pytest.raises(ValueError, match="only in the order 'forward'"):
        model.score(TEXTS, "backward")
    with pytest.raises(ValueError, match="the first token of a text, and"):
        model.score(model.preprocessor.tokenizer.decode([5]))


def test_a_model_that_sees_equally_many_keys_scores_what_it_generates():
    """Behind three tokens of memory, which are empty at first."""
    settings = {"memory_length": 3, "same_length": True}
    model = model_of("causal", **settings)
    generator = model.text_generator(max_new_tokens=4)
    ids = ids_of(model, TEXTS[2])
    ((found,),) = generator.generate([ids])
    assert len(found.token_ids) == 4
    ends = np.cumsum([0, *map(len, [TEXTS[2]])])
    whole = TEXTS[2] + found.text
    assert ids_of(model, whole) == [*ids, *found.token_ids]
    score = model.score(whole, spans=[(int(ends[1]), len(whole))])
    assert score.num_tokens == 4
    assert score.log_probability == pytest.approx(
        found.log_probability, abs=TOLERANCE
    )
    other = model_of("causal", memory_length=3)
    assert other.score(whole).log_probability != pytest.approx(
        model.score(whole).log_probability, abs=1e-2
    )


def test_rows_that_were_not_trained_predict_nothing():
    """[P] without the loss of blocks; [M] without that of autoencoding."""
    model = model_of("pseudo_masked")
    alone = {
        losses: XLNetPretrainer(
            model.backbone,
            objective=PseudoMasked(losses),
            preprocessor=model.preprocessor,
        )
        for losses in ("autoencoding", "partially_autoregressive")
    }
    of_blanks = alone["autoencoding"]
    with pytest.raises(ValueError, match="only in the order 'independent'"):
        of_blanks.score(TEXTS[0])
    assert of_blanks.score(TEXTS[0], "independent").num_tokens
    assert of_blanks.fill("b <mask>").text
    with pytest.raises(ValueError, match="cannot generate"):
        of_blanks.generate(TEXTS[0], max_new_tokens=2)
    of_blocks = alone["partially_autoregressive"]
    assert of_blocks.generate(TEXTS[0], max_new_tokens=2)
    with pytest.raises(ValueError, match="after a blank"):
        of_blocks.fill("b <mask>")


@pytest.mark.parametrize("base", [Causal, Permutation, PseudoMasked])
def test_an_objective_of_ones_own_scores_as_its_base(base):
    class Own(base):
        name = "own"

    model = model_of(base.name)
    own = XLNetPretrainer(
        model.backbone, objective=Own(), preprocessor=model.preprocessor
    )
    own.head.set_weights(model.head.get_weights())
    for order in ("forward",) if base is Causal else ("forward", "backward"):
        expected = model.score(TEXTS, order)
        found = own.score(TEXTS, order)
        assert [x.log_probability for x in found] == pytest.approx(
            [x.log_probability for x in expected], abs=TOLERANCE
        )


@pytest.mark.parametrize("order", ["forward", "backward"])
def test_pseudo_masks_score_any_order(pseudo_masked, order):
    model = pseudo_masked
    found = model.score(TEXTS, order)
    for text, score in zip(TEXTS, found, strict=True):
        ids = ids_of(model, text)
        count = len(ids)
        steps = np.arange(count)[:: 1 if order == "forward" else -1]
        outputs = model(
            {
                "token_ids": np.array([[CLS_ID, *[MASK_ID] * count, SEP_ID]]),
                "target_positions": np.arange(1, count + 1)[None],
                "target_ids": np.array([ids]),
                "target_blocks": steps[None],
            }
        )
        losses = as_numpy(outputs["partially_autoregressive_loss"])
        assert score.log_probability == pytest.approx(
            -float(losses.sum()), abs=TOLERANCE
        )


def test_orders_and_texts_that_do_not_fit(model):
    for order, message in (
        ("left", "must be one of forward, backward"),
        ([0, 1], "for each of the"),
        (lambda count: -np.ones(count, int), "not be negative"),
    ):
        with pytest.raises(ValueError, match=message):
            model.score(TEXTS[0], order)
    with pytest.raises(ValueError, match="unless order='random'"):
        model.score(TEXTS[0], num_orders=2)
    with pytest.raises(ValueError, match="a token to be scored"):
        model.score(["", TEXTS[0]])
    with pytest.raises(ValueError, match="`batch_size` must be at least 1"):
        model.score(TEXTS[0], batch_size=0)
    with pytest.raises(ValueError, match="`num_fillings` must be at least 1"):
        model.fill("b <mask>", num_fillings=0)
    with pytest.raises(TypeError, match="list of str. Received: 3 of type int"):
        model.score(3)
    with pytest.raises(ValueError, match="lie in its text"):
        model.score(TEXTS[0], spans=[(0, 99)])


def probabilities(model, ids, waiting):
    """Log-probabilities [P, V] at blanks [P], given all other tokens."""
    features = sequence(ids)
    rank = np.full(features["token_ids"].shape, -1, "int32")
    rank[0, waiting] = 0
    positions = np.array([waiting], "int32")
    outputs = model.backbone(
        {**features, "factorization_rank": rank, "target_positions": positions}
    )
    return as_numpy(tf.nn.log_softmax(model.logits(outputs["query"])))[0]


def test_filling_finds_the_best_of_all_tokens_and_orders(model):
    few = [9, 10, 11, 12]
    filler = Filler(model, model.preprocessor.tokenizer)
    filler._blocked = ~np.isin(np.arange(PIECES), few)
    text = "ba <mask> co <mask> d"
    ids, blanks = filler._tokens(*[parse(text, 1)[0], [1, 1]])
    expected = {}
    for order in itertools.permutations(range(2)):
        for tokens in itertools.product(few, repeat=2):
            row, value = list(ids), 0.0
            for step, number in enumerate(order):
                waiting = [blanks[x] for x in order[step:]]
                values = probabilities(model, row, waiting)
                value += float(values[0, tokens[number]])
                row[blanks[number]] = tokens[number]
            if value > expected.get(tokens, (-np.inf,))[0]:
                expected[tokens] = value, list(order)
    best = sorted(expected.values(), reverse=True)
    found = filler.fill(text, num_beams=16, max_blank_tokens=1)
    assert len(found) == 16
    for filling, (value, order) in zip(found[:5], best, strict=False):
        assert filling.log_probability == pytest.approx(value, abs=TOLERANCE)
        assert filling.order == order


def test_blanks_of_several_lengths(model):
    found = model.fill("ba <mask:1-3> d <mask:2>", num_fillings=20)
    assert {x.num_tokens for x in found} == {3, 4, 5}
    scores = [x.score for x in found]
    assert scores == sorted(scores, reverse=True)
    for filling in found:
        assert filling.text.startswith("ba ")
        assert sorted(filling.order) == list(range(filling.num_tokens))
        assert len(filling.parts) == 2
    assert model.fill("ba <mask:1-3> d <mask:2>").text == found[0].text


def test_masked_models_fill_in_too(pseudo_masked):
    found = pseudo_masked.fill(["ba <mask> d", "<mask:2>"])
    assert [x.num_tokens for x in found] == [1, 2]
    with pytest.raises(ValueError, match="after a blank"):
        model_of("causal").fill("ba <mask>")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ba", "must have a blank"),
        ("ba <mask:9>", "from 1 to 8 tokens"),
        ("ba <mask:0>", "from 1 to 8 tokens"),
        ("ba <mask:3-2>", "smaller number first"),
        ("<mask:1-8> <mask:1-8> <mask:1-8>", "512"),
    ],
)
def test_blanks_that_do_not_fit_leave_the_others_answered(model, text, message):
    with pytest.raises(ValueError, match=message):
        model.fill(text)
    with pytest.warns(UserWarning, match=message):
        first, second = model.fill([text, "ba <mask>"])
    assert first is None
    assert second.num_tokens == 1
