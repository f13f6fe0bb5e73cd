"""The presets that come with the package."""

import pytest

import xlnet_tf
from data_pipeline.base import models
from data_pipeline.base.checksums import CHECKSUMS_FILE
from data_pipeline.base.files import names_below
from data_pipeline.base.files import size_of
from data_pipeline.tokenization.hugging_face import read_tokenizer

pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def test_the_small_english_model_fills_in_words_and_is_small():
    assert models.shipped_names() == ["xlnet_tiny_en"]
    directory = models.SHIPPED / "xlnet_tiny_en"
    names = names_below(directory)
    assert CHECKSUMS_FILE in names and "README.md" in names
    assert sum(size_of(directory / name) for name in names) < 8e6
    model = xlnet_tf.XLNetPretrainer.from_preset("xlnet_tiny_en")
    assert model.backbone.config.vocabulary_size == (
        read_tokenizer("xlnet_tiny_en").vocabulary_size
    )
    right = 0
    for text, word in (
        ("The capital of the United <mask> is a city.", "States"),
        ("She opened the door and went out <mask> the garden.", "into"),
        ("He was born in the <mask> of Paris.", "city"),
        ("The war began in 1914 and <mask> in 1918.", "ended"),
        ("There were many people in <mask> room.", "the"),
        ("He put his hand in <mask> pocket.", "his"),
    ):
        filled = model.fill(text).text
        right += filled == text.replace("<mask>", word)
    assert right >= 4, right


def test_the_small_english_model_is_fitted_in_python():
    model = xlnet_tf.XLNetTextClassifier.from_preset(
        "xlnet_tiny_en", num_classes=2
    )
    model.preprocessor.sequence_length = 16
    logits = model.predict(["A fine film.", "A bad one."], verbose=0)
    assert logits.shape == (2, 2)
