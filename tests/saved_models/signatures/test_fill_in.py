"""Signatures of a pretrainer, unsaved: blanks, embeddings, memory."""

import numpy as np
import pytest
import tensorflow as tf

from data_pipeline.tokenization.symbols import CLS_ID
from data_pipeline.tokenization.symbols import MASK_ID
from data_pipeline.tokenization.symbols import SEP_ID
from data_pipeline.tokenization.symbols import SPECIAL_IDS
from saved_models.signatures import signatures_for
from tests.support.export_fixtures import CANDIDATES
from tests.support.export_fixtures import LENGTH
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import TOLERANCE
from tests.support.export_fixtures import ask
from tests.support.export_fixtures import check_fill_in
from tests.support.export_fixtures import encoded
from tests.support.export_fixtures import log_probabilities
from tests.support.export_fixtures import module_of
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.tensor_sizes import recorded_sizes
from tests.support.training_fixtures import tiny_config
from xlnet_tf import XLNetBackbone
from xlnet_tf import XLNetPretrainer

SHORT = "ba <mask> co"
TEXTS = (
    "Bacode fi guha.",
    "Ba co <mask> fi, in 1, 9 code.",
    "<mask> sela <mask> wa größer <mask>",
    "",
    # only the blank is special in a text
    "Co <sep> ba <mask> fi <cls> </s> <pad> <unk> <eop> .",
)
BLANKS = [0, 1, 3, 0, 1]
MEMORY, WIDTH = 6, 22
# Tokens of each segment of two documents that are read in one batch.
SEGMENTS = ([9, 4, 0, 3, 7], [2, 11, 5, 1, 8])


@pytest.fixture(scope="module")
def model():
    model = pretrainer()
    model.attach_memory(2)  # of training alone: an export remembers nothing
    return model


@pytest.fixture(scope="module")
def module(model):
    return module_of(model)


def test_blanks_are_filled_as_the_model_would(module, model):
    together = ask(module.fill_in, TEXTS)
    assert together["pieces"].shape == (len(TEXTS), 3, CANDIDATES)
    assert list(together["count"]) == BLANKS
    for row, text in enumerate(TEXTS):
        if BLANKS[row]:
            check_fill_in(together, row, log_probabilities(model, text))
    alone = ask(module.fill_in, TEXTS[2:3])
    check_fill_in(alone, 0, log_probabilities(model, TEXTS[2]))
    pieces = np.vectorize(tiny_tokenizer().id_to_piece)(together["token_ids"])
    np.testing.assert_array_equal(
        np.char.decode(together["pieces"].astype(bytes), "utf-8"), pieces
    )
    broken = ask(module.fill_in, [b"ba \xff co <mask> \xe2\x82"])
    replaced = ask(module.fill_in, ["ba \ufffd co <mask> \ufffd"])
    np.testing.assert_array_equal(broken["token_ids"], replaced["token_ids"])


def test_blanks_are_filled_with_text(module):
    """Not with <sep>, nor with tokens that are no pieces, however likely."""
    config = tiny_config(vocabulary_size=PIECES + 64, num_layers=1)
    wider = module_of(randomize(XLNetPretrainer(XLNetBackbone(config))))
    for signatures, size in ((module, PIECES), (wider, PIECES + 64)):
        values = np.zeros([1, 1, size], "float32")
        values[..., list(SPECIAL_IDS.values())] = 5.0
        values[..., PIECES:] = 5.0
        values[..., 17] = 1.0
        found = signatures._best(tf.constant(values))
        best = found["token_ids"].numpy().ravel()
        assert best[0] == 17
        assert not np.isin(best, list(SPECIAL_IDS.values())).any()
        assert best.max() < PIECES
    assert ask(wider.fill_in, TEXTS[1:2])["token_ids"].max() < PIECES


def test_any_blank_after_a_mask_begins_a_word(module):
    texts = ["ba <mask>" + blank + ", co" for blank in " \u00a0\u3000"]
    found = ask(module.fill_in, texts)["log_probabilities"]
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], atol=1e-6)


def test_ids_are_filled_as_text_is(module, model):
    features, blanks = encoded(TEXTS[2])
    # A row with fewer targets repeats one; padding follows the shorter text.
    short, (blank,) = encoded(SHORT)
    padding = features["token_ids"].shape[1] - short["token_ids"].shape[1]
    assert padding > 0
    pad = ((0, 0), (0, padding))
    rows = {
        name: np.concatenate([features[name], np.pad(short[name], pad)])
        for name in ("token_ids", "segment_ids")
    }
    rows["padding_mask"] = np.ones_like(rows["token_ids"])
    rows["padding_mask"][1, -padding:] = 0
    rows["target_positions"] = np.array([blanks, [blank] * 3])

    def fill(**changed):
        return module.fill_in_ids(
            **{n: tf.constant(x, tf.int32) for n, x in (rows | changed).items()}
        )["log_probabilities"].numpy()

    answer = fill()
    assert answer.shape == (2, 3, PIECES)
    for row, text in enumerate((TEXTS[2], SHORT)):
        expected = log_probabilities(model, text)
        expected = np.broadcast_to(expected, (3, PIECES))
        np.testing.assert_allclose(answer[row], expected, atol=TOLERANCE)
    # The tokens at the blanks and in padding are not seen, others are.
    other = rows["token_ids"].copy()
    other[0, blanks] = [31, 87, 155]
    other[1, blank] = 44
    other[1, -padding:] = 99
    np.testing.assert_allclose(fill(token_ids=other), answer, atol=1e-6)
    other[0, blanks[0] + 1] = 131
    assert np.abs(fill(token_ids=other) - answer)[0].max(-1).min() > 1e-3
    for changed, message in (
        ({"target_positions": [[0], [-1]]}, "must be from 0 to T - 1"),
        ({"target_positions": [[0]]}, "must have a row for each row of"),
        ({"segment_ids": [[0]]}, "`segment_ids` must have the shape"),
        ({"token_ids": other + 300}, "to 299; some are too large"),
        ({"token_ids": other - 300}, "to 299; some are negative"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            fill(**changed)


def test_embeddings_are_the_content_stream(module, model):
    texts = [text.replace("<mask>", "de") for text in TEXTS]
    together = ask(module.embed, texts)
    width = together["token_ids"].shape[1]
    by_ids = {
        name: tf.constant(together[name])
        for name in ("token_ids", "padding_mask")
    }
    by_ids["segment_ids"] = tf.where(by_ids["token_ids"] == CLS_ID, 2, 0)
    # Whatever is not 0 is a token.
    by_ids["padding_mask"] *= tf.range(1, width + 1)
    by_ids = as_numpy(module.embed_ids(**by_ids))
    for row, text in enumerate(texts):
        features, _ = encoded(text)
        tokens = features["token_ids"].shape[1]
        real = slice(0, tokens)
        np.testing.assert_array_equal(
            together["token_ids"][row, real], features["token_ids"][0]
        )
        np.testing.assert_array_equal(
            together["padding_mask"][row], np.arange(width) < tokens
        )
        content = as_numpy(model(features)["content"])[0]
        for answer in (together, by_ids):
            of_text = answer["embeddings"][row, real]
            np.testing.assert_allclose(of_text, content, atol=TOLERANCE)
            mean = answer["mean_embedding"][row]
            np.testing.assert_allclose(mean, content.mean(0), atol=TOLERANCE)
        # Only the text's own end is special, whatever the text holds.
        special = np.isin(features["token_ids"][0], [SEP_ID, CLS_ID, MASK_ID])
        assert special.sum() == 2
    # A backbone serves the same, and alone is as in a batch.
    backbone = module_of(model.backbone)
    assert "fill_in" not in backbone.signatures()
    alone = ask(backbone.embed, texts[1:2])["embeddings"][0]
    expected = together["embeddings"][1, : len(alone)]
    np.testing.assert_allclose(alone, expected, atol=TOLERANCE)


def test_positions_that_are_answered_with_the_whole_vocabulary(module):
    ids = tf.fill([2, 3], 9)
    match = "at most 4096 target positions in a request"
    with pytest.raises(tf.errors.InvalidArgumentError, match=match):
        module.fill_in_ids(ids, ids * 0, ids, tf.zeros([2, 3000], tf.int32))


def test_what_is_refused_takes_no_memory():
    module = module_of(max_request_tokens=2000)
    texts = ["<mask> " * 60, *[""] * 999]
    memory = dict.fromkeys(("memories", "memory_mask"))
    for function, others in (
        (module.fill_in, {}),
        (module.embed, {}),
        (module.document_segment, memory),
    ):
        with (
            recorded_sizes() as sizes,
            pytest.raises(
                tf.errors.InvalidArgumentError,
                match="at most 2000 tokens in a request, padding included",
            ),
        ):
            function(tf.constant(texts), **others)
        # 1000 sequences of 47 tokens would take 376,000 bytes.
        assert max(sizes) < 60_000


def test_long_and_empty_texts(module, model):
    text = "Ba <mask> co" + " bacode fi" * 40 + " <mask>"
    outputs = ask(module.fill_in, [text, "ba"])
    check_fill_in(outputs, 0, log_probabilities(model, text))
    embedded = ask(module.embed, [text, "ba"])
    assert embedded["token_ids"].shape == (2, LENGTH)
    assert list(embedded["token_ids"][0, -2:]) == [SEP_ID, CLS_ID]
    outputs = ask(module.embed, [""])
    assert outputs["token_ids"].tolist() == [[SEP_ID, CLS_ID]]


def test_a_row_does_not_depend_on_its_place():
    # In training, the second half of such a model's batches reads backwards.
    module = module_of(pretrainer(num_layers=1, reverse_half_batch=True))
    alone = ask(module.embed, ["ba co fi"])["embeddings"]
    twice = ask(module.embed, ["ba co fi"] * 2)["embeddings"]
    for row in range(2):
        np.testing.assert_allclose(twice[row], alone[0], atol=1e-6)


def test_weights_that_do_not_learn_are_served():
    model = pretrainer(num_layers=1)
    expected = log_probabilities(model, SHORT)
    model.backbone.token_embedding.trainable = False
    module = module_of(model)
    check_fill_in(ask(module.fill_in, [SHORT]), 0, expected)


def no_memory(rows):
    return {
        "memories": tf.zeros([rows, 2, MEMORY, WIDTH]),
        "memory_mask": tf.zeros([rows, MEMORY], tf.int32),
    }


def remembered(answer):
    return {name: answer[name] for name in ("memories", "memory_mask")}


def by_backbone(model, segments):
    """Content of each segment of one document, without any padding."""
    # The pretrainer remembers the first 7 tokens of a segment, for it reads
    # the rest again; a document is read once.
    config = model.config.replace(memory_length=MEMORY, reuse_length=0)
    backbone = XLNetBackbone(config)
    backbone.set_weights(model.backbone.get_weights())
    memories = None
    for segment in segments:
        if not len(segment):
            yield np.zeros([0, WIDTH]), memories
            continue
        outputs = backbone({"token_ids": segment[None], "memories": memories})
        memories = outputs["memories"]
        yield as_numpy(outputs["content"])[0], memories


def test_segments_equal_the_backbone_with_memory(model):
    random = np.random.default_rng(0)
    documents = [
        [random.integers(9, PIECES, length).astype("int32") for length in row]
        for row in SEGMENTS
    ]
    module = module_of(model, sequence_length=13, memory_length=MEMORY)
    expected = [list(by_backbone(model, document)) for document in documents]
    memory = no_memory(2)
    for number, segments in enumerate(zip(*documents, strict=True)):
        longest = max(map(len, segments))
        ids = np.zeros([2, longest], "int32")
        mask = np.zeros([2, longest], "int32")
        for row, segment in enumerate(segments):
            ids[row, : len(segment)] = segment
            mask[row, : len(segment)] = 1
        answer = as_numpy(
            module.document_segment_ids(
                tf.constant(ids), tf.constant(mask), **memory
            )
        )
        memory = {k: tf.constant(v) for k, v in remembered(answer).items()}
        for row in range(2):
            content, memories = expected[row][number]
            np.testing.assert_allclose(
                answer["embeddings"][row][mask[row] > 0], content, atol=2e-5
            )
            mean = content.mean(0) if len(content) else np.zeros(WIDTH)
            np.testing.assert_allclose(
                answer["mean_embedding"][row], mean, atol=2e-5
            )
            count = memories[0].shape[1]
            assert answer["memory_mask"][row].tolist() == (
                [0] * (MEMORY - count) + [1] * count
            )
            for layer, states in enumerate(memories):
                np.testing.assert_allclose(
                    answer["memories"][row, layer, MEMORY - count :],
                    as_numpy(states)[0],
                    atol=2e-5,
                )


def test_text_segments(model):
    module = module_of(model, sequence_length=13, memory_length=MEMORY)
    texts = ["ba co fi", "", "<cls> ba", "ba co " * 9]
    answer = module.document_segment(tf.constant(texts), **no_memory(4))
    for row, text in enumerate(texts):
        ids = tiny_tokenizer().encode(text)
        real = answer["padding_mask"][row].numpy() > 0
        assert answer["token_ids"][row].numpy()[real].tolist() == ids[:13]
        dropped = max(0, len(ids) - 13)
        assert int(answer["dropped_tokens"][row]) == dropped
    assert dropped > 0
    again = module.document_segment(tf.constant([""] * 4), **remembered(answer))
    for name, value in remembered(answer).items():
        np.testing.assert_array_equal(again[name], value)
    for ids, mask, message in (
        ([[9] * 3], [[0, 1, 1]], "must be 1s and then 0s"),
        ([[9]] * 2, [[1]] * 2, "`memories` must have a row for each document"),
    ):
        with pytest.raises(tf.errors.InvalidArgumentError, match=message):
            module.document_segment_ids(
                tf.constant(ids), tf.constant(mask), **no_memory(1)
            )


def test_the_memory_is_that_of_the_model_or_of_the_settings():
    def length_of(model, **settings):
        module = module_of(model, sequence_length=13, **settings)
        found = module.signatures()
        if "document_segment" not in found:
            return None
        return found["document_segment"].inputs["memories"].shape[2]

    without = pretrainer(num_layers=1, memory_length=0, reuse_length=0)
    assert length_of(shared_model()) == MEMORY
    assert length_of(shared_model(), memory_length=4) == 4
    assert length_of(shared_model(), memory_length=0) is None
    assert length_of(without) == 13  # the longest segment


def test_what_has_no_signatures():
    with pytest.raises(ValueError, match="a type cannot be exported; these"):
        signatures_for(XLNetPretrainer)
    with pytest.raises(ValueError, match="between 1 and 291, the pieces"):
        module_of(num_candidates=301)
