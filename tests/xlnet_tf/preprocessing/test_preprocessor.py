"""Preprocessors: raw strings to features, against the tokenizer in Python."""

import json

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from data_pipeline.base.checksums import add_checksums
from data_pipeline.tokenization.tokenizer import Tokenizer
from tests.data_pipeline.features.test_packing import NAMES
from tests.data_pipeline.features.test_packing import oracle
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.samples import TEXTS
from tests.support.samples import tiny_sentences
from tests.support.tensor_sizes import recorded_sizes
from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.preprocessing.texts import XLNetTextClassifierPreprocessor
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor

CLASSES = (
    XLNetTextClassifierPreprocessor,
    XLNetMultipleChoicePreprocessor,
    XLNetTokenClassifierPreprocessor,
    XLNetRankerPreprocessor,
)
LENGTH = 29
PAIRS = list(zip(tiny_sentences(11), [*TEXTS[:10], "", " "][:11], strict=True))
FIRSTS, SECONDS = ([pair[side] for pair in PAIRS] for side in range(2))


def make(cls=XLNetTextClassifierPreprocessor, **settings):
    return cls(tiny_tokenizer(), **{"sequence_length": LENGTH, **settings})


def encode(text):
    return tiny_tokenizer().encode(text)


def check(features, rows):
    """Features equal the sequences of the oracle, in any number of axes."""
    for name in NAMES:
        expected = np.array([row[name] for row in rows])
        found = np.reshape(features[name], expected.shape)
        np.testing.assert_array_equal(found, expected, name)


def in_a_data_set(preprocessor, *data, batch_size=4):
    """What the preprocessor gives in `map`, all batches together."""
    data = tf.data.Dataset.from_tensor_slices(data if data[1:] else data[0])
    batches = list(data.batch(batch_size).map(preprocessor))
    return keras.tree.map_structure(
        lambda *parts: np.concatenate(parts), *batches
    )


def classifier_rows(is_pair):
    return [
        oracle(encode(first), encode(second) if is_pair else None, LENGTH)
        for first, second in PAIRS
    ]


def test_texts_and_pairs_become_the_released_sequences():
    for x in (
        FIRSTS,
        np.array(FIRSTS),
        np.array(FIRSTS, object),
        tf.constant(FIRSTS),
        (FIRSTS,),
        {"text": FIRSTS},
        {"text": FIRSTS, "text_pair": None},
    ):
        check(make()(x), classifier_rows(False))
    for x in (
        (FIRSTS, SECONDS),
        [FIRSTS, SECONDS],
        [np.array(FIRSTS), tf.constant(SECONDS)],
        {"text_pair": SECONDS, "text": FIRSTS},
    ):
        check(make()(x), classifier_rows(True))


def test_equal_texts_are_tokenized_once():
    preprocessor, seen = make(), []
    tokenize = preprocessor.graph_tokenizer

    def counted(texts):
        seen.extend(text.decode() for text in texts.numpy())
        return tokenize(texts)

    preprocessor.graph_tokenizer = counted
    found = preprocessor.tokenize(["ba co", "fi", "ba co"])
    assert seen == ["ba co", "fi"]
    assert found.to_list() == [encode(x) for x in ("ba co", "fi", "ba co")]


def test_a_single_text_has_no_batch_axis():
    rows = classifier_rows(True)
    features = make()((FIRSTS[3], SECONDS[3]))
    assert features["token_ids"].shape == (LENGTH,)
    check(features, rows[3:4])
    check(make()(FIRSTS[3]), classifier_rows(False)[3:4])


def test_labels_and_weights_go_through():
    preprocessor = make()
    assert set(preprocessor(FIRSTS)) == set(NAMES)
    features, labels = preprocessor(FIRSTS, [1] * 11)
    assert labels == [1] * 11
    features, labels, weights = preprocessor(FIRSTS, [1] * 11, [0.5] * 11)
    assert weights == [0.5] * 11
    check(features, classifier_rows(False))


def test_texts_in_a_data_set():
    labels = np.arange(11)
    preprocessor = make()
    features, y = in_a_data_set(preprocessor, (FIRSTS, SECONDS), labels)
    check(features, classifier_rows(True))
    np.testing.assert_array_equal(y, labels)
    # Made inside of a data set first, and used outside then.
    check(preprocessor(FIRSTS), classifier_rows(False))
    single = tf.data.Dataset.from_tensor_slices(FIRSTS).map(preprocessor)
    check(next(iter(single.batch(11))), classifier_rows(False))


def test_settings_change_the_sequences():
    preprocessor = make(truncate="only_second")
    row = oracle(
        encode(FIRSTS[0]), encode(SECONDS[0]), 17, "left", "only_second"
    )
    preprocessor.sequence_length = 17
    check(preprocessor((FIRSTS[:1], SECONDS[:1])), [row])
    longest = make(pad_to_longest=True, sequence_length=500)(["ba", "ba co"])
    assert longest["token_ids"].shape == (2, len(encode("ba co")) + 2)


def test_an_empty_batch_has_no_rows():
    for value in make(pad_to_longest=True)([]).values():
        assert value.shape == (0, 2)


def choice_data():
    options = [["ba", "co de", "1,"], ["", "po", FIRSTS[4]]]
    return {
        "context": FIRSTS[:2],
        "question": ["co", FIRSTS[3]],
        "options": options,
    }


def question_with(question, option):
    """As `get_examples` of the released run_race.py."""
    if "_" in question:
        return question.replace("_", option)
    return " ".join([question, option])


def choice_rows(data, longest, ask=question_with):
    rows = []
    kept = min(longest, LENGTH - 4)
    for number, options in enumerate(data["options"]):
        for option in options:
            second = encode(ask(data["question"][number], option))
            first = encode(data["context"][number])
            rows.append(
                oracle(first, second[-kept:], LENGTH, "left", "only_first")
            )
    return rows


def test_every_option_is_a_sequence():
    data = choice_data()
    single = {name: value[1] for name, value in data.items()}
    for longest in (5, 128):
        rows = choice_rows(data, longest)
        preprocessor = make(
            XLNetMultipleChoicePreprocessor, max_question_length=longest
        )
        features = preprocessor(data)
        assert features["token_ids"].shape == (2, 3, LENGTH)
        check(features, rows)
        check(in_a_data_set(preprocessor, data), rows)
        check(preprocessor(single), rows[3:])


def test_options_fill_the_blanks_of_questions():
    questions = ["_", "", "ba _ co", "_ fi _.", "po\n__", "ba co", "Gu _"]
    data = {
        "context": FIRSTS[:7],
        "question": questions,
        "options": [["a_b", "ba ba"], *[["co,", ""]] * 6],
    }
    behind = choice_rows(data, 128, ask="{} {}".format)
    rows = choice_rows(data, 128)
    assert sum(a != b for a, b in zip(rows, behind, strict=True)) >= 10
    preprocessor = make(XLNetMultipleChoicePreprocessor)
    check(preprocessor(data), rows)
    check(in_a_data_set(preprocessor, data), rows)
    check(preprocessor.with_settings(fill_blanks=False)(data), behind)


WORDS = [FIRSTS[0].split(), ["1,", "x3,"], [], ["Ba", "\u200b", "co"]]
WORDS.append(" ".join(FIRSTS[1:6]).split())  # longer than a sequence
TAGS = [[n % 5 + 1 for n in range(len(words))] for words in WORDS]
TAGS[0][1] = -100


def token_rows():
    """Sequences, labels and weights by loops."""
    sequences, labels, weights = [], [], []
    for words, tags in zip(WORDS, TAGS, strict=True):
        ids, row_labels, row_weights = [], [], []
        for word, tag in zip(words, tags, strict=True):
            pieces = encode(word) or [0]  # what is dropped is unknown
            ids += pieces
            row_labels += [max(tag, 0)] * len(pieces)
            row_weights += [int(tag >= 0), *[0] * (len(pieces) - 1)]
        sequences.append(oracle(ids, None, LENGTH, "right"))
        for values, row in ((labels, row_labels), (weights, row_weights)):
            row = row[: LENGTH - 2]
            values.append(row + [0] * (LENGTH - len(row)))
    return sequences, np.array(labels), np.array(weights)


def test_labels_of_words_belong_to_their_first_pieces():
    preprocessor = make(XLNetTokenClassifierPreprocessor)
    sequences, labels, weights = token_rows()
    words, tags = tf.ragged.constant(WORDS), tf.ragged.constant(TAGS)
    for features, y, sample_weight in (
        preprocessor(WORDS, TAGS),
        preprocessor(words, tags),
        preprocessor(words.to_tensor(), tags.to_tensor()),
        in_a_data_set(preprocessor, words, tags),
    ):
        check(features, sequences)
        np.testing.assert_array_equal(y, labels)
        np.testing.assert_array_equal(sample_weight, weights)
    check(preprocessor(WORDS), sequences)
    first = preprocessor.first_pieces(WORDS)
    assert (np.array(first) >= weights).all()
    assert np.sum(first) == np.sum(weights) + 1  # but for the hidden label
    # One sentence
    features, y, sample_weight = preprocessor(WORDS[1], TAGS[1])
    check(features, sequences[1:2])
    np.testing.assert_array_equal(y, labels[1])
    np.testing.assert_array_equal(sample_weight, weights[1])


def test_weights_of_words_and_of_sentences_count():
    preprocessor = make(XLNetTokenClassifierPreprocessor)
    weights = token_rows()[2]
    of_sentences = [0.5, 0, 1, 2, 3]
    found = preprocessor(WORDS, TAGS, of_sentences)[2]
    np.testing.assert_allclose(found, weights * np.array(of_sentences)[:, None])
    of_words = [[float(n) for n in range(len(words))] for words in WORDS]
    found = np.array(preprocessor(WORDS, TAGS, of_words)[2])
    assert found[4][weights[4] == 1].tolist() == of_words[4][: sum(weights[4])]


def test_documents_of_a_query_are_its_options():
    preprocessor = make(XLNetRankerPreprocessor)
    documents = [["ba", FIRSTS[1]], [], ["co", "", SECONDS[2]]]
    relevance = [[0, 2], [], [1, 0, 0]]
    data = {"query": FIRSTS[:3], "documents": documents}
    filled = [row + [""] * (3 - len(row)) for row in documents]
    rows = [
        oracle(encode(query), encode(document), LENGTH)
        for query, row in zip(FIRSTS, filled, strict=False)
        for document in row
    ]
    mask = [[1, 1, 0], [0, 0, 0], [1, 1, 1]]
    for features, y in (
        preprocessor(data, relevance),
        in_a_data_set(
            preprocessor,
            {**data, "documents": tf.ragged.constant(documents)},
            tf.ragged.constant(relevance),
            batch_size=3,
        ),
    ):
        check(features, rows)
        np.testing.assert_array_equal(features["document_mask"], mask)
        np.testing.assert_array_equal(y, [[0, 2, 0], [0, 0, 0], [1, 0, 0]])
        assert y.dtype == "float32"
    features = preprocessor({"query": FIRSTS[:3], "documents": filled})
    check(features, rows)
    assert np.all(features["document_mask"])


def test_memory_grows_with_the_texts_and_not_with_their_product():
    long, many = "ba " * 2000, ["co"] * 100
    for cls, x in (
        (XLNetRankerPreprocessor, {"query": [long], "documents": [many]}),
        (
            XLNetMultipleChoicePreprocessor,
            {"context": [long], "question": ["a"], "options": [many]},
        ),
    ):
        preprocessor = cls(tiny_tokenizer(), sequence_length=16)
        with recorded_sizes() as sizes:
            preprocessor(x)
        assert max(sizes) < 50_000, cls


def test_configs_and_presets_make_the_same_preprocessor(tmp_path):
    tokenizer = Tokenizer.from_model_proto(
        tiny_tokenizer().model_proto, lowercase=True
    )
    for cls in CLASSES:
        preprocessor = cls(
            tokenizer,
            sequence_length=31,
            truncate="only_second",
            pad_to_longest=True,
        )
        saved = keras.saving.serialize_keras_object(preprocessor)
        assert saved["registered_name"] == f"xlnet_tf>{cls.__name__}"
        saved = json.loads(json.dumps(saved))
        again = keras.saving.deserialize_keras_object(saved)
        assert type(again) is cls
        assert again.get_config() == preprocessor.get_config()
        directory = tmp_path / cls.__name__
        preprocessor.save_to_preset(directory)
        again = cls.from_preset(directory)
        assert again.get_config() == preprocessor.get_config()
        other = cls.from_preset(directory, sequence_length=77)
        assert (other.sequence_length, other.truncate) == (77, "only_second")
        for other in set(CLASSES) - {cls}:
            assert other.from_preset(directory).sequence_length == 512


def test_a_directory_without_settings_gives_the_defaults(tmp_path):
    (tmp_path / "spiece.model").write_bytes(tiny_tokenizer().model_proto)
    found = XLNetTextClassifierPreprocessor.from_preset(tmp_path)
    expected = XLNetTextClassifierPreprocessor(tiny_tokenizer())
    assert found.get_config() == expected.get_config()


def test_settings_of_another_format_are_refused(tmp_path):
    make().save_to_preset(tmp_path)
    file = tmp_path / "preprocessor.json"
    saved = json.loads(file.read_text())
    assert saved.pop("format_version") == 1
    for version, shown in ({}, "no form"), ({"format_version": 2}, "the .* 2,"):
        file.write_text(json.dumps({**saved, **version}))
        add_checksums(tmp_path, [file.name])
        with pytest.raises(ValueError, match=f"r.json has {shown}.*version 1"):
            XLNetTextClassifierPreprocessor.from_preset(tmp_path)


def test_damaged_settings_are_named(tmp_path):
    make().save_to_preset(tmp_path)
    (tmp_path / "preprocessor.json").write_text("[1]")
    with pytest.raises(ValueError, match="preprocessor.json is damaged"):
        XLNetTextClassifierPreprocessor.from_preset(tmp_path)


def test_wrong_input_is_named():
    texts, choices, _, ranker = CLASSES
    for cls, x, error, message in (
        (
            texts,
            [1, 2],
            TypeError,
            "`text` must be strings. Received: 1, example 0",
        ),
        (
            texts,
            ["a", None],
            TypeError,
            "`text` must be strings. Received: None, example 1 from 0",
        ),
        (
            texts,
            pd.Series(["a", "b", float("nan")]),
            TypeError,
            "`text` must be strings. Received: nan, example 2 from 0",
        ),
        (
            texts,
            [("a", "b"), ("c", "d")],
            ValueError,
            r"a list of pairs. Give two batches .* Received: \('a', 'b'\)",
        ),
        (
            texts,
            ("a", "b", "c"),
            ValueError,
            "two batches .* Received: 3 batches",
        ),
        (texts, np.array([["a", "b"]]), ValueError, "1 axes. Received: 2 axes"),
        (
            texts,
            {"texts": ["a"]},
            ValueError,
            "parts text, text_pair .opt.*: texts",
        ),
        (
            choices,
            ["a"],
            TypeError,
            "dict of context, question, options. .* list",
        ),
        (
            ranker,
            {"query": ["a"]},
            ValueError,
            "query, documents. Received: query",
        ),
    ):
        with pytest.raises(error, match=message):
            make(cls)(x)


def test_wrong_settings_are_named():
    with pytest.raises(TypeError, match="must be a data_pipeline.Tokenizer"):
        XLNetTextClassifierPreprocessor("spiece.model")
    with pytest.raises(ValueError, match="above 2: .* sequence_length=2"):
        make(sequence_length=2)
    preprocessor = make()
    with pytest.raises(ValueError, match="sequence_length=1"):
        preprocessor.sequence_length = 1


def test_labels_that_do_not_fit_their_words_are_named():
    preprocessor = make(XLNetTokenClassifierPreprocessor)
    with pytest.raises(tf.errors.InvalidArgumentError, match="one label for"):
        preprocessor([["ba", "co"]], [[1]])
