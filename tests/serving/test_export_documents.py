"""`document_segment` reads a document as the backbone does with memory."""

import numpy as np
import pytest
import tensorflow as tf

from saved_models.settings import ExportSettings
from saved_models.signatures import signatures_for
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from xlnet_tf import XLNetBackbone

MEMORY, WIDTH = 6, 22
# Tokens of each segment of two documents that are read in one batch.
LENGTHS = ([9, 4, 0, 3, 7], [2, 11, 5, 1, 8])


@pytest.fixture(scope="module")
def model():
    return pretrainer()


def signatures(model, **settings):
    settings = ExportSettings(sequence_length=13, **settings)
    return signatures_for(model)(model, tiny_tokenizer(), settings)


def no_memory(rows, layers=2):
    return {
        "memories": tf.zeros([rows, layers, MEMORY, WIDTH]),
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


def documents():
    random = np.random.default_rng(0)
    return [
        [random.integers(9, PIECES, length).astype("int32") for length in row]
        for row in LENGTHS
    ]


@pytest.mark.parametrize("settings", [{}, {"max_batch": 1}])
def test_segments_equal_the_backbone_with_memory(model, settings):
    module = signatures(model, memory_length=MEMORY, **settings)
    expected = [list(by_backbone(model, document)) for document in documents()]
    memory = no_memory(2)
    for number, segments in enumerate(zip(*documents(), strict=True)):
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


def test_text_is_cut_into_tokens_alone(model):
    module = signatures(model, memory_length=MEMORY)
    texts = ["ba co fi", "", "<cls> ba"]
    answer = module.document_segment(tf.constant(texts), **no_memory(3))
    for row, text in enumerate(texts):
        ids = tiny_tokenizer().encode(text)
        real = answer["padding_mask"][row].numpy() > 0
        assert answer["token_ids"][row].numpy()[real].tolist() == ids[:13]
        dropped = max(0, len(ids) - 13)
        assert int(answer["dropped_tokens"][row]) == dropped
    again = module.document_segment(tf.constant([""] * 3), **remembered(answer))
    for name, value in remembered(answer).items():
        np.testing.assert_array_equal(again[name], value)
    long = module.document_segment(tf.constant(["ba co " * 9]), **no_memory(1))
    ids = tiny_tokenizer().encode("ba co " * 9)
    assert int(long["dropped_tokens"][0]) == len(ids) - 13 > 0


def test_padding_before_the_text_is_refused(model):
    ids = tf.fill([1, 3], 9)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="must be 1s and then 0s"
    ):
        signatures(model, memory_length=MEMORY).document_segment_ids(
            ids, tf.constant([[0, 1, 1]]), **no_memory(1)
        )


def test_the_memory_is_that_of_the_model_or_of_the_settings():
    def length_of(model, **settings):
        found = signatures(model, **settings).signatures()
        if "document_segment" not in found:
            return None
        return found["document_segment"].inputs["memories"].shape[2]

    without = pretrainer(num_layers=1, memory_length=0, reuse_length=0)
    assert length_of(shared_model()) == MEMORY
    assert length_of(shared_model(), memory_length=4) == 4
    assert length_of(shared_model(), memory_length=0) is None
    assert length_of(without) == 13  # the longest segment
