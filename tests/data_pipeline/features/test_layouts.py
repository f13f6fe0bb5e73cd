"""BERT's layout: the class token in front, padding on the right."""

import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.features.answers import best_spans
from data_pipeline.pretraining import PretrainingData
from data_pipeline.tokenization.symbols import LAYOUTS
from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models.signatures.embedding import padded
from saved_models.signatures.embedding import with_ends
from tests.support.record_fixtures import write_set
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences

CLS, SEP = 3, 4


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


def unpadded(features):
    """Lists of the tokens and segments of each row."""
    mask = np.asarray(features["padding_mask"]).astype(bool)
    return [
        [
            np.asarray(features[name])[row][real].tolist()
            for row, real in enumerate(mask)
        ]
        for name in ("token_ids", "segment_ids")
    ]


def in_front(ids, segments):
    """BERT's sequence of an XLNet's: its class token comes first."""
    assert ids[-1] == CLS and segments[-1] == 2
    return [CLS, *ids[:-1]], [0, *segments[:-1]]


def test_a_text_and_a_pair(tokenizer):
    make = xlnet_tf.XLNetTextClassifierPreprocessor
    preprocessor = make(tokenizer, 12, layout="bert")
    a, b = tokenizer.encode("ba co"), tokenizer.encode("fi")
    features = preprocessor({"text": ["ba co"], "text_pair": ["fi"]})
    ids = [CLS, *a, SEP, *b, SEP]
    missing = [0] * (12 - len(ids))
    assert features["token_ids"].numpy().tolist() == [ids + missing]
    segments = [0] * (len(a) + 2) + [1] * (len(b) + 1)
    assert features["segment_ids"].numpy().tolist() == [segments + missing]
    mask = [1] * len(ids) + missing
    assert features["padding_mask"].numpy().tolist() == [mask]
    alone = preprocessor(["ba co"])["token_ids"].numpy().tolist()
    assert alone == [[CLS, *a, SEP] + [0] * (10 - len(a))]


def test_all_preprocessors_hold_the_tokens_of_xlnets_layout(tokenizer):
    """Cut alike too; the class token is in front, and so labels move by one."""
    texts = list(tiny_sentences(8))
    words = tf.ragged.constant([text.split() for text in texts])
    tags = tf.ragged.range(words.row_lengths())
    for make, x, y in (
        ("TextClassifier", (texts, texts[::-1]), None),
        ("MultipleChoice", {
            "context": texts, "question": texts,
            "options": [texts[:2]] * 8,
        }, None),
        ("Ranker", {"query": texts, "documents": [texts[:3]] * 8}, None),
        ("TokenClassifier", words, tags),
    ):  # fmt: skip
        make = getattr(xlnet_tf, f"XLNet{make}Preprocessor")
        found, expected = (
            make(tokenizer, 14, layout=layout)(x, y)
            for layout in ("bert", "xlnet")
        )
        if y is not None:
            (found, *moved), (expected, *labels) = found, expected
            for one, other in zip(moved, labels, strict=True):
                np.testing.assert_array_equal(one[:, 1:], other[:, :-1])
                assert not np.any(one[:, 0])
        found, expected = (
            unpadded({k: np.reshape(v, (-1, 14)) for k, v in x.items()
                      if k != "document_mask"})
            for x in (found, expected)
        )  # fmt: skip
        rows = [in_front(*row) for row in zip(*expected, strict=True)]
        assert found == [list(column) for column in zip(*rows, strict=True)]


def test_windows_of_questions(tokenizer):
    """Labels move by one, and predictions at moved places answer alike."""
    sentences = list(tiny_sentences(6))
    contexts = [" ".join(sentences[i:]) for i in range(4)]
    questions = sentences[:4]
    starts = np.array([0, 8, contexts[2].index(" ", 40) + 1, -1])
    y = {
        "answer_start": starts,
        "answer_text": [
            contexts[i][s : s + 9].strip() if s >= 0 else ""
            for i, s in enumerate(starts)
        ],
    }
    x = {"question": questions, "context": contexts}
    make = xlnet_tf.XLNetQuestionAnsweringPreprocessor
    bert, xlnet = (
        make(tokenizer, 30, stride=7, max_question_length=9, layout=layout)
        for layout in ("bert", "xlnet")
    )
    windows, others = bert.windows(x), xlnet.windows(x)
    found, expected = unpadded(windows.features), unpadded(others.features)
    rows = [in_front(*row) for row in zip(*expected, strict=True)]
    assert found == [list(column) for column in zip(*rows, strict=True)]
    assert len(rows) > 6 and not windows.features["class_index"].numpy().any()
    # The class token, which stands for no answer, may be one, as there.
    mask = windows.features["answer_mask"].numpy()
    other = others.features["answer_mask"].numpy()
    assert (mask[:, 0] == 1).all()
    np.testing.assert_array_equal(mask.sum(1), other.sum(1))

    labels, other_labels = bert(x, y)[1], xlnet(x, y)[1]
    has_answer = other_labels["is_impossible"].numpy() == 0
    assert has_answer.any() and not has_answer.all()
    for name in ("start_positions", "end_positions"):
        one, other = labels[name].numpy(), other_labels[name].numpy()
        np.testing.assert_array_equal(one[has_answer], other[has_answer] + 1)
        np.testing.assert_array_equal(one[~has_answer], 0)

    random = np.random.default_rng(0)
    count, width = len(rows), 5
    outputs = {
        "start_top_scores": random.normal(size=(count, width)),
        "start_top_positions": random.integers(0, 20, (count, width)),
        "end_top_scores": random.normal(size=(count, width, width)),
        "end_top_positions": random.integers(0, 20, (count, width, width)),
        "class_logits": random.normal(size=count),
    }
    outputs = {
        k: v.astype("int32" if "positions" in k else "float32")
        for k, v in outputs.items()
    }
    moved = {k: v + ("positions" in k) for k, v in outputs.items()}
    found = best_spans(moved, windows, contexts)
    expected = best_spans(outputs, others, contexts)
    assert (expected["begin"].numpy() >= 0).any()
    for name, value in expected.items():
        np.testing.assert_array_equal(found[name], value)


def test_exports_read_texts_in_the_layout_of_the_model():
    ids = tf.ragged.constant([[9, 10, 11], [12]], tf.int32)
    layout = LAYOUTS["bert"]
    features = padded(with_ends(ids, 4, layout), 1, layout)
    assert features["token_ids"].numpy().tolist() == [
        [CLS, 9, 10, SEP],
        [CLS, 12, SEP, 0],
    ]
    assert not features["segment_ids"].numpy().any()


def test_records_are_read_with_the_class_token_in_front(tmp_path):
    write_set(tmp_path / "set")
    found, expected = (
        next(iter(PretrainingData(tmp_path / "set", 4, objective="causal",
                                  layout=layout).dataset()))
        for layout in ("bert", "xlnet")
    )  # fmt: skip
    np.testing.assert_array_equal(
        found["token_ids"], np.roll(expected["token_ids"], 1, axis=1)
    )
    segments = np.roll(expected["segment_ids"], 1, axis=1)
    segments[:, 0] = 0
    np.testing.assert_array_equal(found["segment_ids"], segments)


def test_a_layout_that_does_not_fit_is_refused(tokenizer):
    make = xlnet_tf.XLNetTextClassifierPreprocessor
    with pytest.raises(ValueError, match="`layout` must be one of xlnet, bert"):
        make(tokenizer, layout="gpt")
    sizes = dict(vocabulary_size=300, max_positions=16)
    config = xlnet_tf.BertConfig.from_size("tiny", **sizes)
    backbone = xlnet_tf.BertBackbone(config)
    with pytest.raises(ValueError, match="Give the preprocessor layout='bert'"):
        xlnet_tf.XLNetTextClassifier(backbone, 2, preprocessor=make(tokenizer))
    with pytest.raises(ValueError, match="at most the positions of the model"):
        preprocessor = make(tokenizer, 17, layout="bert")
        xlnet_tf.XLNetTextClassifier(backbone, 2, preprocessor=preprocessor)
    task = xlnet_tf.XLNetTextClassifier(
        backbone, 2, preprocessor=make(tokenizer, 16, layout="bert")
    )
    assert task.get_config()["summary"] == "first"
    pretrainer = xlnet_tf.XLNetPretrainer(backbone, next_sentence_weight=0.5)
    assert pretrainer.next_sentence_head.summary == "first"
