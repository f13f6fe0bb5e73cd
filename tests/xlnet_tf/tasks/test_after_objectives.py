"""Tasks from presets of every objective, each in the layout of its model."""

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.support.equality import assert_equal
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf import XLNetPretrainer
from xlnet_tf.weights import own

LENGTH = 32
SIZES = dict(
    vocabulary_size=300,
    num_layers=1,
    num_heads=2,
    hidden_dim=16,
    intermediate_dim=32,
    dropout=0.0,
    attention_dropout=0.0,
    initializer_range=0.2,
)
TEXTS = list(tiny_sentences(6))
WORDS = [text.split()[:4] for text in TEXTS]
EXAMPLES = {
    "XLNetTextClassifier": (TEXTS, np.arange(6) % 2, {"num_classes": 2}),
    "XLNetTextRegressor": (
        (TEXTS, TEXTS[::-1]),
        np.arange(6, dtype="float32") / 3,
        {},
    ),
    "XLNetTokenClassifier": (
        tf.ragged.constant(WORDS),
        tf.ragged.constant([[len(w) % 3 for w in some] for some in WORDS]),
        {"num_classes": 3},
    ),
    "XLNetQuestionAnswering": (
        {"question": [text[:6] for text in TEXTS], "context": TEXTS},
        {
            "answer_start": np.array([0] * 6),
            "answer_text": [text.split()[0] for text in TEXTS],
        },
        {},
    ),
}


def backbone(objective):
    if objective in ("masked", "pseudo_masked"):
        config = xlnet_tf.BertConfig(**SIZES, max_positions=3 * LENGTH)
        return xlnet_tf.BertBackbone(config)
    attention = "causal" if objective == "causal" else "bidirectional"
    return xlnet_tf.XLNetBackbone(
        xlnet_tf.XLNetConfig(**SIZES, head_dim=8, attention_type=attention)
    )


@pytest.mark.parametrize(
    ("objective", "names"),
    [
        ("permutation", list(EXAMPLES)[:1]),
        ("causal", list(EXAMPLES)[1:2]),
        ("masked", list(EXAMPLES)[2:3]),
        # In BERT's layout, and by the weights' names as `masked`.
        ("pseudo_masked", list(EXAMPLES)[3:]),
    ],
)
def test_tasks_learn_from_a_preset(objective, names, tmp_path):
    keras.utils.set_random_seed(1)
    pretrained = XLNetPretrainer(backbone(objective), objective=objective)
    pretrained.save_to_preset(tmp_path)
    own.write_tokenizer(Tokenizer.from_model_proto(tiny_model()), tmp_path)
    is_bert = "masked" in objective
    for name in names:
        x, y, arguments = EXAMPLES[name]
        task = getattr(xlnet_tf, name).from_preset(tmp_path, **arguments)
        assert_equal(task.backbone.weights, pretrained.backbone.weights)
        settings = {"sequence_length": LENGTH}
        if name == "XLNetQuestionAnswering":
            settings.update(stride=8, max_question_length=8)
        task.preprocessor = task.preprocessor.with_settings(**settings)
        assert task.preprocessor.layout == ("bert" if is_bert else "xlnet")
        batch = task.preprocessor(x, y)
        task.compile(keras.optimizers.Adam(1e-2), run_eagerly=True)
        losses = [np.ravel(task.train_on_batch(*batch))[0] for _ in range(5)]
        assert losses[-1] < 0.9 * losses[0], (name, losses)
