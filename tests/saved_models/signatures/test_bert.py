"""Signatures of a BERT: the class token first, padding on the right."""

import numpy as np
import pytest

import xlnet_tf
from saved_models import export
from saved_models.settings import ExportSettings
from saved_models.signatures.serving_model import ServedModel
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.task_export_fixtures import LENGTH
from tests.support.task_export_fixtures import TEXTS
from tests.support.task_export_fixtures import ask
from tests.support.task_export_fixtures import close
from tests.support.task_export_fixtures import made
from tests.support.task_export_fixtures import predict
from tests.support.task_export_fixtures import softmax


def backbone():
    config = xlnet_tf.BertConfig.from_size(
        "tiny", vocabulary_size=300, max_positions=LENGTH, num_layers=1
    )
    return xlnet_tf.BertBackbone(config)


def task(cls, **arguments):
    """The task with random weights, compiled to run eagerly."""
    made = randomize(cls(backbone(), **arguments))
    settings = {"sequence_length": LENGTH, "layout": "bert"}
    made.preprocessor = cls.preprocessor_cls(tiny_tokenizer(), **settings)
    made.compile(run_eagerly=True)
    return made


def test_words_have_the_tags_of_their_own_pieces():
    tagger = task(xlnet_tf.XLNetTokenClassifier, num_classes=5)
    words = [["ba", "cofi", "gu"], ["haje"], ["ki", "lo", "muna", "po"]]
    best = predict(tagger, words).argmax(-1)
    first = as_numpy(tagger.preprocessor.first_pieces(words))
    texts = [" ".join(some) for some in words]
    found = ask(made(tagger)["serving_default"].function, text=texts)
    assert len(np.unique(best)) > 1
    for row, some in enumerate(words):
        expected = best[row, np.flatnonzero(first[row])]
        names = [tag.decode() for tag in found["tags"][row, : len(some)]]
        assert names == [str(tag) for tag in expected]


def test_int8():
    """Every matrix by outputs, those back from the heads too."""
    classifier = task(xlnet_tf.XLNetTextClassifier, num_classes=3)
    expected = softmax(predict(classifier, {"text": TEXTS}))
    signatures = made(classifier, precision="int8")
    found = ask(signatures["serving_default"].function, text=TEXTS)
    np.testing.assert_allclose(found["scores"], expected, atol=0.05)
    assert (found["scores"] != expected).any()
    served = ServedModel(classifier.backbone, "int8")
    for weight, _, scale in served._quantized:
        rows = "embeddings" in weight.path
        shape = (weight.shape[0], 1) if rows else (1, *weight.shape[1:])
        assert scale.shape == shape


def test_a_classifier_without_a_preprocessor():
    classifier = task(xlnet_tf.XLNetTextClassifier, num_classes=3)
    expected = softmax(predict(classifier, {"text": TEXTS}))
    assert expected.std(axis=0).min() > 1e-3
    classifier.preprocessor = None
    signatures = made(classifier)
    found = ask(signatures["serving_default"].function, text=TEXTS)
    close(found["scores"], expected)
    card = signatures["ids"]
    assert "0 for the first [CLS], 0 for padding" in card.meaning["segment_ids"]
    assert card.meaning["padding_mask"].endswith("padding comes last")
    (example, *_) = card.examples
    assert example["token_ids"][0, [0, -1]].tolist() == [3, 4]
    assert not example["segment_ids"].any()


def test_sequences_have_no_more_tokens_than_positions(tmp_path):
    model = backbone()
    assert ExportSettings().for_model(model).sequence_length == LENGTH
    place = tmp_path / "1"
    for settings in (
        {"sequence_length": LENGTH + 1},
        {"seq_length_buckets": (8, LENGTH + 1)},
    ):
        with pytest.raises(ValueError, match="at most the positions of the mo"):
            export.export_model(model, tiny_tokenizer(), place, **settings)
        assert not place.exists()
