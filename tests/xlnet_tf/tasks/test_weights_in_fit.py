"""Which labels count in `fit`, and how much: on features."""

import keras
import numpy as np
import pytest

import xlnet_tf
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.artefacts import TOKENIZER
from tests.support.oracle import as_numpy
from tests.support.oracle import small_backbone
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor

SCORES = np.array([1.0, 2.0, 3.0, 10.0], "float32")


@pytest.fixture
def token_ids():
    return np.random.default_rng(1).integers(9, 90, (4, 8))


@pytest.mark.parametrize("jit_compile", [False, True])
def test_tags_below_zero_do_not_count(token_ids, jit_compile):
    """As those of Hugging Face's data, which are -100."""
    tags = np.random.default_rng(2).integers(0, 3, (4, 8))
    tags[:, ::2] = -100
    model = xlnet_tf.XLNetTokenClassifier(small_backbone(), 3)
    model.compile(jit_compile=jit_compile, run_eagerly=not jit_compile)
    inputs = {"token_ids": token_ids}
    logits = as_numpy(model(inputs))
    losses = keras.losses.sparse_categorical_crossentropy(
        np.maximum(tags, 0), logits, from_logits=True
    )
    for weights in (np.ones(4), np.array([1.0, 0.0, 2.0, 1.0])):
        asked = (tags >= 0) * weights[:, None]
        found = model.test_on_batch(
            inputs, tags, sample_weight=weights, return_dict=True
        )
        expected = (as_numpy(losses) * asked).sum() / asked.sum()
        assert found["loss"] == pytest.approx(expected, rel=1e-5)
        right = (logits.argmax(-1) == tags) * asked
        assert found["accuracy"] == pytest.approx(right.sum() / asked.sum())


def test_rows_of_scores_are_weighed_under_any_loss(token_ids):
    model = xlnet_tf.XLNetTextRegressor(small_backbone())
    inputs = {"token_ids": token_ids}
    errors = as_numpy(model(inputs)) - SCORES
    weights = np.array([1.0, 0.0, 0.0, 0.0])
    for loss, of_rows in (("mse", errors**2), ("mae", abs(errors))):
        model.compile(loss=loss, metrics=None, run_eagerly=True)
        found = model.test_on_batch(inputs, SCORES, sample_weight=weights)
        assert found == pytest.approx((of_rows * weights).mean(), rel=1e-5)


def test_class_weights_of_several_labels_are_refused(token_ids):
    for model, y in (
        (xlnet_tf.XLNetTokenClassifier(small_backbone(), 3), token_ids * 0),
        (xlnet_tf.XLNetQuestionAnswering(small_backbone()), None),
    ):
        with pytest.raises(ValueError, match="`class_weight` needs one class"):
            model.fit({"token_ids": token_ids}, y, class_weight={0: 1.0})


def test_words_of_batches_of_several_lengths():
    preprocessor = XLNetTokenClassifierPreprocessor(
        Tokenizer(TOKENIZER), 16, pad_to_longest=True
    )
    size = preprocessor.tokenizer.vocabulary_size
    backbone = small_backbone(vocabulary_size=size)
    model = xlnet_tf.XLNetTokenClassifier(
        backbone, 3, preprocessor=preprocessor
    )
    words = [["ba"], ["co", "d"], ["ba", "b", "f", "g", "co"]]
    alone = [model.predict_labels([row])[0] for row in words]
    assert model.predict_labels(words, batch_size=1) == alone
    assert [len(row) for row in alone] == [1, 2, 5]
    # "" is no word, wherever it stands.
    ((one, none, *others, last),) = model.predict_labels(
        [["ba", "", "b", "f", "g", "co", ""]]
    )
    assert [one, *others] == alone[2] and none is last is None


def test_names_of_labels_may_be_an_array(tmp_path):
    xlnet_tf.XLNetPretrainer(small_backbone()).save_to_preset(tmp_path / "a")
    model = xlnet_tf.XLNetTextClassifier.from_preset(
        tmp_path / "a", labels=np.unique(["b", "a"])
    )
    assert list(model.labels) == ["a", "b"]


def test_bad_lengths():
    backbone = small_backbone(memory_length=3)
    for length in (0, -4, 4.0):
        with pytest.raises(ValueError, match="`segment_length` must be an int"):
            xlnet_tf.XLNetTextClassifier(backbone, 2, segment_length=length)
    # Fewer tokens than answers that are asked for.
    model = xlnet_tf.XLNetQuestionAnswering(small_backbone())
    found = model({"token_ids": np.array([[17, 4, 3]])})
    assert found["start_top_scores"].shape == (1, 3)
