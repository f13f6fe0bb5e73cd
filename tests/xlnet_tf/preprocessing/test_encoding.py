"""Encoded examples of tasks, against plain loops over a tokenizer's lists."""

import functools

import numpy as np
import pytest

from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.data_pipeline.features.test_packing import oracle
from tests.support.samples import tiny_model
from tests.support.samples import tiny_sentences
from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor

SEP, CLS = 4, 3
TEXTS, CHOICES, RANKINGS, TOKENS = (
    XLNetTextClassifierPreprocessor,
    XLNetMultipleChoicePreprocessor,
    XLNetRankerPreprocessor,
    XLNetTokenClassifierPreprocessor,
)


@pytest.fixture(scope="module")
def tokenizer():
    return Tokenizer.from_model_proto(tiny_model())


@pytest.fixture(scope="module")
def make(tokenizer):
    """Function that makes a preprocessor of a class."""
    return lambda cls, *length, **settings: cls(tokenizer, *length, **settings)


@pytest.fixture(scope="module")
def texts():
    return list(tiny_sentences(40))


def sequences(rows, name="token_ids"):
    return rows.sequences[name].to_list()


def packed(*arguments):
    """Real tokens of the oracle's sequence, and their segments."""
    row = oracle(*arguments)
    length = sum(row["padding_mask"])
    return row["token_ids"][-length:], row["segment_ids"][-length:]


def test_texts_and_pairs(make, tokenizer, texts):
    examples = [
        TextExample(str(i), text, texts[-i] if i % 3 else None, "xy"[i % 2])
        for i, text in enumerate(texts)
    ]
    rows = make(TEXTS, 17).encode(examples, ("x", "y"), training=True)
    tokens, segments = [], []
    for example in examples:
        pair = example.text_pair
        row, segment = packed(
            tokenizer.encode(example.text),
            None if pair is None else tokenizer.encode(pair),
            17,
        )
        tokens.append(row)
        segments.append(segment)
    assert sequences(rows) == tokens
    assert sequences(rows, "segment_ids") == segments
    full = sum(len(row) == 17 for row in tokens)
    assert rows.notes == [
        f"cut       {full} of 40 texts fill 17 tokens, and what is beyond is "
        "not read; see --sequence-length and --long-documents"
    ]
    assert not make(TEXTS, 17).encode(examples, ("x", "y")).notes
    assert rows.dense["label"].tolist() == [i % 2 for i in range(len(texts))]
    assert rows.side == "left"
    assert rows.fillers == {"token_ids": 0, "segment_ids": 4}


def test_windows_cover_a_text(make, tokenizer, texts):
    long = " ".join(texts[:6])
    examples = [TextExample("0", long, None, 1.5), TextExample("1", "", None)]
    rows = make(TEXTS, 12).encode(examples, stride=7)
    ids = tokenizer.encode(long)
    wanted = [ids[:10]]
    while 7 * len(wanted) + 10 < len(ids) + 7:
        wanted.append(ids[7 * len(wanted) :][:10])
    assert sequences(rows) == [[*x, SEP, CLS] for x in [*wanted, []]]
    assert wanted[-1][-1] == ids[-1]
    assert rows.dense["example"].tolist() == [0] * len(wanted) + [1]
    np.testing.assert_allclose(
        rows.dense["row_weight"], [1 / len(wanted)] * len(wanted) + [1]
    )
    assert rows.dense["label"][0] == 1.5
    assert np.isnan(rows.dense["label"][-1])


def test_options_of_questions(make, tokenizer, texts):
    examples = [
        ChoiceExample(
            str(i), texts[i], texts[i + 9], tuple(texts[i : i + 4]), i
        )
        for i in range(4)
    ]
    rows = make(CHOICES, 19, max_question_length=8).encode(examples)
    tokens = []
    for example in examples:
        for option in example.options:
            second = tokenizer.encode(f"{example.question} {option}")[-8:]
            first = tokenizer.encode(example.context)[: 16 - len(second)]
            tokens.append([*first, SEP, *second, SEP, CLS])
    assert sequences(rows) == tokens
    assert rows.options == 4
    assert rows.dense["label"].tolist() == [0, 1, 2, 3]


def test_documents_of_queries(make, tokenizer, texts):
    examples = [
        RankingExample(
            f"q{i % 2}", texts[i % 2], f"d{i}", texts[i], float(i < 5)
        )
        for i in range(14)
    ]
    rows = make(RANKINGS, 18).encode(examples, num_documents=3)
    mask = rows.dense["document_mask"] > 0
    # Every document once; rows that hold one query; all have a relevant one.
    assert sorted(rows.dense["example"][mask].tolist()) == list(range(14))
    for row in range(len(rows)):
        assert len({i % 2 for i in rows.dense["example"][row]}) == 1
    assert (rows.dense["label"].max(axis=1) > 0).sum() == 5
    flat = rows.dense["example"].reshape(-1)
    for tokens, index in zip(sequences(rows), flat, strict=True):
        query = tokenizer.encode(examples[index].query)
        document = tokenizer.encode(examples[index].document)
        assert tokens == packed(query, document, 18)[0]


def test_tags_of_words(make, tokenizer, texts):
    examples = [
        TokensExample(
            str(i),
            tuple(text.split()),
            tuple("BO"[j % 2] for j in range(len(text.split()))),
        )
        for i, text in enumerate(texts[:9])
    ]
    examples.append(TokensExample("none", (), ()))
    # Words without pieces have a tag too.
    odd = ("ba", "\u200b", "", "co")
    examples.append(TokensExample("odd", odd, tuple("OBOB")))
    rows = make(TOKENS, 15).encode(examples, ("O", "B"), training=True)
    for index, example in enumerate(examples):
        pieces, labels = [], []
        for word, tag in zip(example.words, example.tags, strict=True):
            ids = tokenizer.encode(word) or [0]
            pieces += ids
            labels += [("O", "B").index(tag)] + [-1] * (len(ids) - 1)
        pieces, labels = pieces[:13], labels[:13]
        assert sequences(rows)[index] == [*pieces, SEP, CLS]
        assert sequences(rows, "token_labels")[index] == [*labels, -1, -1]
        kept = sum(label >= 0 for label in labels)
        assert rows.dense["words"][index] == kept
        assert sum(sequences(rows, "is_first_piece")[index]) == kept
    assert rows.side == "right"
    words = sum(len(one.words) for one in examples)
    lost = words - rows.dense["words"].sum()
    assert lost > 0
    assert rows.notes[0].startswith(f"cut       {lost} of {words} words, of ")
    assert rows.fillers["token_labels"] == -1


def test_lone_surrogates_are_unknown_characters(make, tokenizer):
    text = "ba \ud83d co"
    rows = make(TEXTS, 12).encode([TextExample("0", text, None, 1.0)])
    assert sequences(rows) == [[*tokenizer.encode(text), SEP, CLS]]


def test_errors(make):
    one = functools.partial(TextExample, "0", "a", None)
    for cls, length, examples, options, message in (
        (
            TEXTS,
            9,
            [one("z", "a.tsv, row 7")],
            {"labels": ("x",)},
            "a.tsv, row 7: the label 'z' is none of those known: x",
        ),
        (
            TOKENS,
            9,
            [TokensExample("0", ("a",), ("B",), "b, row 2")],
            {"labels": ("O",)},
            "b, row 2: the label 'B' is none of those known: O",
        ),
        (
            TEXTS,
            9,
            [TextExample("0", "a", "b", 1.0)],
            {"stride": 2},
            "windows are for single texts",
        ),
        (
            TEXTS,
            9,
            [one(1.0)],
            {"stride": 8},
            "`stride` must lie between 1 and 7",
        ),
        (TEXTS, 9, [], {}, "no examples to encode"),
        (
            CHOICES,
            19,
            [
                ChoiceExample("0", "a", "b", ("c", "d")),
                ChoiceExample("1", "a", "b", ("c",), where="r.txt"),
            ],
            {},
            "r.txt: 1 options, where the first example has 2",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            make(cls, length).encode(examples, **options)
