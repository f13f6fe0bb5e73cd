"""A decoder with a cache gives what a forward pass of the whole text gives."""

import numpy as np
import pytest
import tensorflow as tf

from tests.support.bert_models import WITH_BIAS
from tests.support.bert_models import bert_backbone
from tests.support.oracle import SIZES
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from xlnet_tf import XLNetPretrainer
from xlnet_tf.generation.decoders import make_decoder

NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
# float32 sums in another order, on log-probabilities of about 5
TOLERANCE = 1e-5
LENGTHS, STEPS, MEMORY = (4, 7, 2), 4, 5
LONGEST = max(LENGTHS)
PSEUDO_MASK = 8


def pretrainer(objective, **overrides):
    if objective == "pseudo_masked":
        backbone = bert_backbone(**NO_DROPOUT, **overrides)
    else:
        if objective == "causal":
            overrides["attention_type"] = "causal"
        backbone = small_backbone(**NO_DROPOUT, **overrides)
    return randomize(XLNetPretrainer(backbone, objective=objective))


def texts(seed=0):
    """Tokens [B, T + S], and the mask of the prompts, padded on the left."""
    random = np.random.default_rng(seed)
    shape = (len(LENGTHS), LONGEST + STEPS)
    token_ids = random.integers(9, 97, shape).astype("int32")
    mask = np.arange(LONGEST) >= LONGEST - np.array(LENGTHS)[:, None]
    return token_ids, mask.astype("int32")


def log_softmax(logits):
    return as_numpy(tf.nn.log_softmax(logits))


def cached(model, token_ids, features, rows=1, **arguments):
    """Log-probabilities [S, B, V] of the tokens behind the prompts."""
    decoder = make_decoder(model)
    context = decoder.read(features, STEPS, **arguments)
    count = rows * len(token_ids)
    cache, found = decoder.start(context, count, STEPS), []
    for step in range(STEPS):
        token = token_ids[:, LONGEST - 1 + step]
        logits, cache = decoder.step(
            context, cache, np.repeat(token, rows, axis=0), step
        )
        found.append(log_softmax(logits))
    return np.array(found)


def uncached(model, token_ids, **features):
    """Log-probabilities [V] of the token behind a text [T], alone.

    The last `features["count"]` tokens came one after the other.
    """
    count = features.pop("count", 0)
    kind = model.objectives[0].name
    features = {k: v[None] for k, v in features.items()}
    rank = np.r_[[-1] * (len(token_ids) - count), range(count + 1)][None]
    if kind == "causal":
        inputs = {"token_ids": token_ids[None], **features}
        if "segment_ids" in features:
            inputs["segment_ids"] = features["segment_ids"][:, :-1]
        rows = model.backbone(inputs)["content"][:, -1:]
    elif kind == "permutation":
        place = np.array([[len(token_ids)]])
        inputs = {
            "token_ids": np.r_[token_ids, 0][None],
            "factorization_rank": rank,
            "target_positions": place,
            **features,
        }
        rows = model.backbone(inputs)["query"]
    else:
        inputs = {
            "token_ids": np.r_[token_ids, PSEUDO_MASK][None],
            "factorization_rank": rank,
            "is_pseudo": np.arange(len(token_ids) + 1)[None] == len(token_ids),
            **features,
        }
        rows = model.backbone(inputs)["content"][:, -1:]
    return log_softmax(model.logits(rows))[0, 0]


MODELS = {
    "permutation": dict(objective="permutation"),
    "causal": dict(objective="causal"),
    # Without memory, a model sees all before a token, as in its training.
    "same_length": dict(objective="causal", same_length=True, memory_length=0),
    "pseudo_masked": dict(objective="pseudo_masked"),
    "relative_bias": dict(objective="pseudo_masked", **WITH_BIAS),
    "clamped": dict(objective="permutation", clamp_length=3),
    "tied": dict(objective="permutation", untie_biases=False),
}


@pytest.mark.parametrize("name", MODELS)
def test_cached_equals_uncached_each_prompt_alone(name):
    model = pretrainer(**MODELS[name])
    token_ids, mask = texts()
    features = {"token_ids": token_ids[:, :LONGEST], "padding_mask": mask}
    found = cached(model, token_ids, features)
    for row, length in enumerate(LENGTHS):
        begin = LONGEST - length
        for step in range(STEPS):
            text = token_ids[row, begin : LONGEST + step]
            expected = uncached(model, text, count=step)
            np.testing.assert_allclose(
                found[step, row], expected, atol=TOLERANCE
            )


@pytest.mark.parametrize("name", ["permutation", "causal", "pseudo_masked"])
def test_segments_of_prompts_and_of_what_follows(name):
    model = pretrainer(name)
    token_ids, mask = texts()
    segments = np.repeat([[0] * 3 + [1] * 4], 3, axis=0).astype("int32")
    features = {
        "token_ids": token_ids[:, :LONGEST],
        "padding_mask": mask,
        "segment_ids": segments,
        "next_segment": np.full(3, 2),
    }
    found = cached(model, token_ids, features)
    for row, length in enumerate(LENGTHS):
        begin = LONGEST - length
        for step in range(STEPS):
            text = token_ids[row, begin : LONGEST + step]
            of_text = np.r_[segments[row, begin:], [2] * (step + 1)]
            expected = uncached(model, text, count=step, segment_ids=of_text)
            np.testing.assert_allclose(
                found[step, row], expected, atol=TOLERANCE
            )


@pytest.mark.parametrize(
    ("objective", "same_length"),
    [("causal", False), ("causal", True), ("permutation", False)],
)
def test_prompt_in_segments_equals_memory(objective, same_length):
    """Two segments of a prompt, the first as memory of the second."""
    model = pretrainer(objective, memory_length=MEMORY, same_length=same_length)
    random = np.random.default_rng(1)
    token_ids = random.integers(9, 97, (2, 8 + STEPS)).astype("int32")
    decoder = make_decoder(model)
    context = decoder.read({"token_ids": token_ids[:, :8]}, STEPS, 4)
    cache = decoder.start(context, 2, STEPS)
    empty = {}
    if same_length:
        shape = (2, MEMORY, SIZES["hidden_dim"])
        empty = {
            "memories": (np.zeros(shape, "float32"),) * SIZES["num_layers"],
            "memory_mask": np.zeros(shape[:2], bool),
        }
    memories = as_numpy(
        model.backbone(
            {"token_ids": token_ids[:, :4], **empty}, layer_inputs=True
        )["layer_inputs"]
    )
    mask = np.ones((2, 4), bool)
    if same_length:
        # One token of the memory that was empty is left.
        memories = [np.pad(x, [[0, 0], [1, 0], [0, 0]]) for x in memories]
        mask = np.pad(mask, [[0, 0], [1, 0]])
    for step in range(STEPS):
        logits, cache = decoder.step(
            context, cache, token_ids[:, 7 + step], step
        )
        text, row = token_ids[:, 4 : 8 + step], "content"
        features = {"memories": tuple(memories), "memory_mask": mask}
        if objective == "permutation":
            row = "query"
            text = np.pad(text, [[0, 0], [0, 1]])
            rank = np.r_[[-1] * 4, range(step + 1)]
            features["factorization_rank"] = np.stack([rank, rank])
            features["target_positions"] = np.full((2, 1), 4 + step)
        outputs = model.backbone({"token_ids": text, **features})
        expected = log_softmax(model.logits(outputs[row][:, -1:]))[:, 0]
        np.testing.assert_allclose(
            log_softmax(logits), expected, atol=TOLERANCE
        )


@pytest.mark.parametrize("name", ["permutation", "causal"])
def test_a_prompt_of_one_token(name):
    """Nothing of it is in the context: the first step reads it."""
    model = pretrainer(name)
    token_ids, _ = texts()
    token_ids = token_ids[:, LONGEST - 1 :]
    decoder = make_decoder(model)
    context = decoder.read({"token_ids": token_ids[:, :1]}, STEPS)
    cache = decoder.start(context, 3, STEPS)
    for step in range(STEPS):
        logits, cache = decoder.step(context, cache, token_ids[:, step], step)
        for row in range(3):
            expected = uncached(model, token_ids[row, : 1 + step], count=step)
            np.testing.assert_allclose(
                log_softmax(logits)[row], expected, atol=TOLERANCE
            )


@pytest.mark.parametrize("name", ["permutation", "pseudo_masked"])
def test_rows_of_a_prompt_share_its_context(name):
    """Rows of one prompt with other new tokens, as beams have them."""
    model = pretrainer(name)
    token_ids, mask = texts()
    features = {"token_ids": token_ids[:, :LONGEST], "padding_mask": mask}
    decoder = make_decoder(model)
    context = decoder.read(features, STEPS)
    cache = decoder.start(context, 6, STEPS)
    others = token_ids.copy()
    others[:, LONGEST:] = others[::-1, LONGEST:]
    both = np.stack([token_ids, others], axis=1).reshape(6, -1)
    apart = [cached(model, x, features) for x in (token_ids, others)]
    for step in range(STEPS):
        logits, cache = decoder.step(
            context, cache, both[:, LONGEST - 1 + step], step
        )
        found = log_softmax(logits).reshape(3, 2, -1)
        for row in range(2):
            np.testing.assert_allclose(
                found[:, row], apart[row][step], atol=TOLERANCE
            )


def test_a_masked_language_model_cannot_generate():
    model = XLNetPretrainer(bert_backbone(), objective="masked")
    with pytest.raises(ValueError, match="'masked' cannot generate"):
        make_decoder(model)
