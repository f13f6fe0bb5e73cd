"""Tasks on raw strings: fit, evaluate, predict, and their files."""

import collections.abc
import importlib.util
import json

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.equality import assert_equal
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import randomize
from tests.support.raw_strings import LABELS
from tests.support.raw_strings import LENGTH
from tests.support.raw_strings import TEXTS
from tests.support.raw_strings import backbone
from tests.support.raw_strings import classifier
from tests.support.raw_strings import expected_logits
from tests.support.raw_strings import preprocessor
from tests.support.raw_strings import quick
from tests.support.raw_strings import tagger
from tests.support.training_fixtures import tiny_config
from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.preprocessing.fit_input import check_labels
from xlnet_tf.preprocessing.fit_input import keras_input
from xlnet_tf.preprocessing.tokens import XLNetTokenClassifierPreprocessor
from xlnet_tf.tasks import losses


@pytest.fixture(scope="module")
def learned():
    """A classifier that was fitted on strings, and how that went."""
    task = quick(classifier(dropout=0.0))
    # Few epochs: in each the iterators take longer than the steps.
    history = task.fit(
        np.array(TEXTS * 4),
        np.array(LABELS * 4),
        batch_size=4,
        epochs=4,
        validation_data=(TEXTS[3:7], LABELS[3:7]),
        verbose=0,
    )
    return task, history.history


def test_a_classifier_learns_from_strings(learned):
    _, history = learned
    assert history["loss"][-1] < 0.1 < history["loss"][0]
    assert history["accuracy"][-1] == history["val_accuracy"][-1] == 1
    assert len(history["val_loss"]) == 4


def test_predictions_are_those_of_the_features(learned):
    task, _ = learned
    expected = expected_logits(task, TEXTS)
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(3)
    for x in (TEXTS, np.array(TEXTS, object), data, task.preprocessor(TEXTS)):
        batch_size = None if x is data else 4
        found = task.predict(x, batch_size=batch_size, verbose=0)
        np.testing.assert_allclose(found, expected, atol=1e-5)
    found = task.predict_on_batch(TEXTS)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_evaluation_does_not_count_what_fills_up_the_last_batch(learned):
    task, _ = learned
    logits = expected_logits(task, TEXTS)
    wrong = [1 - LABELS[0], *LABELS[1:]]
    expected = np.mean(logits.argmax(-1) == wrong)
    for y, weights in ((wrong, None), ([*wrong, 0, 0], [1] * 10 + [0, 0])):
        x = TEXTS + ["ba"] * (len(y) - 10)
        found = task.evaluate(
            x, y, 4, sample_weight=weights, verbose=0, return_dict=True
        )
        np.testing.assert_allclose(found["accuracy"], expected, atol=1e-6)
    # One batch with fillers has the loss of the batch without them.
    rows = [
        task.test_on_batch(TEXTS, wrong)[0],
        task.test_on_batch(x, y, np.array(weights, "float32"))[0],
    ]
    log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    loss = -log_shares[np.arange(10), wrong].mean()
    np.testing.assert_allclose(rows, loss, rtol=1e-4)


def test_a_task_that_was_not_compiled_compiles_itself():
    task = classifier()
    found = task.evaluate(TEXTS, LABELS, verbose=0, return_dict=True)
    assert set(found) == {"loss", "accuracy"}
    assert isinstance(task.optimizer, xlnet_tf.optimizer.AdamW)
    rate = keras.ops.convert_to_numpy(task.optimizer.learning_rate)
    np.testing.assert_allclose(rate, 5e-4)  # that of a small model
    before = [as_numpy(w) for w in task.trainable_weights]
    task.train_on_batch(TEXTS, np.array(LABELS))
    assert largest_difference(task.trainable_weights, before) > 0


def test_the_last_examples_are_for_validation():
    task = quick(classifier(dropout=0.0))
    history = task.fit(
        (TEXTS, TEXTS), LABELS, validation_split=0.3, verbose=0, batch_size=7
    )
    expected = as_numpy(task(task.preprocessor((TEXTS[7:], TEXTS[7:]))))
    found = history.history["val_accuracy"]
    assert found == [pytest.approx(np.mean(expected.argmax(-1) == 1))]


def test_only_data_of_the_user_are_tuned_by_tensorflow():
    task = classifier()
    for size in (4, 10):  # in several batches and in one
        of_lists = keras_input(task, TEXTS, LABELS, batch_size=size)[0]
        assert of_lists.options().autotune.enabled is False
    users = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS)).batch(4)
    options = keras_input(task, users)[0].options()
    assert options.autotune.enabled is None


def test_strings_of_one_batch_are_read_without_a_graph():
    task, in_graphs = classifier(), []
    features = task.preprocessor.features

    def recorded(x):
        in_graphs.append(tf.inside_function())
        return features(x)

    task.preprocessor.features = recorded
    for size in (4, 10):
        data = keras_input(task, TEXTS, LABELS, batch_size=size)[0]
        # The same for any number of texts, so that steps are traced once.
        assert data.element_spec[0]["token_ids"].shape == (None, LENGTH)
    assert in_graphs == [True, False]


def test_features_go_past_the_preprocessor():
    task = quick(classifier())
    features = as_numpy(task.preprocessor(TEXTS))
    task.preprocessor = None
    task.fit(features, np.array(LABELS), verbose=0)
    assert task.predict(features["token_ids"], verbose=0).shape == (10, 2)
    with pytest.raises(ValueError, match="XLNetTextClassifier has no prep"):
        task.predict(TEXTS)


def test_losses_of_tokens_are_means_over_words():
    task = xlnet_tf.XLNetTokenClassifier(
        backbone(),
        5,
        preprocessor=preprocessor(XLNetTokenClassifierPreprocessor),
    )
    words, tags = [["ba", "code", "fi"], ["gu"]], [[1, -100, 4], [2]]
    task.compile(run_eagerly=True)
    features, labels, weights = task.preprocessor(words, tags)
    logits = as_numpy(task(features)).astype("float64")
    log_shares = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    rows, columns = np.nonzero(np.array(weights))
    assert len(rows) == 3
    expected = -log_shares[rows, columns, np.array(labels)[rows, columns]]
    found = task.test_on_batch(words, tags, return_dict=True)
    np.testing.assert_allclose(found["loss"], expected.mean(), rtol=1e-4)


def test_scores_of_fillers_are_hidden_and_the_loss_is_listwise():
    task = randomize(xlnet_tf.XLNetRanker(backbone()))
    of_strings = preprocessor(XLNetRankerPreprocessor)
    data = {"query": ["ba", "co"], "documents": [["ba", "co", "fi"], ["de"]]}
    relevance = [[1.0, 3.0, 0.0], [0.0]]
    features, y = of_strings(data, relevance)
    scores = as_numpy(task(features))
    assert (scores[1, 1:] == np.float32(-1e30)).all()
    whole = {k: v for k, v in features.items() if k != "document_mask"}
    np.testing.assert_array_equal(as_numpy(task(whole))[0], scores[0])
    log_shares = scores[0] - np.log(np.exp(scores[0]).sum())
    expected = -(0.25 * log_shares[0] + 0.75 * log_shares[1])
    found = losses.ListwiseLoss()(y, scores)  # the second query teaches nothing
    np.testing.assert_allclose(found, expected / 2, rtol=1e-5)
    places = np.argsort(-scores[0]).tolist()
    rank = 1 + min(places.index(0), places.index(1))
    found = as_numpy(losses.reciprocal_rank(y, scores))
    np.testing.assert_allclose(found, [1 / rank, 0])


class Column(collections.abc.Sequence):
    """A sequence that is no list, as a column of Hugging Face's `datasets`."""

    def __init__(self, values):
        self._values = values

    def __len__(self):
        return len(self._values)

    def __getitem__(self, place):
        return self._values[place]


def test_labels_may_be_names():
    task = quick(classifier(labels=["neg", "pos"], dropout=0.0))
    names = [("neg", "pos")[i] for i in LABELS]
    numbers = task.evaluate(TEXTS, LABELS, verbose=0)
    features = task.preprocessor(TEXTS)
    for x, y in (
        (TEXTS, names),
        (np.array(TEXTS), np.array(names)),
        (TEXTS, np.array(names, object)),
        (TEXTS, tf.constant(names)),
        (features, np.array(names)),
        (TEXTS, [[name] for name in names]),
        (Column(TEXTS), Column(names)),
        (Column(TEXTS), Column(LABELS)),
    ):
        found = task.evaluate(x, y, verbose=0)
        np.testing.assert_allclose(found, numbers, rtol=1e-5)
    assert task.test_on_batch(TEXTS, names)[0] == pytest.approx(numbers[0])
    history = task.fit(
        TEXTS, names, epochs=1, validation_data=(TEXTS, names), verbose=0
    ).history
    assert history["loss"][0] == pytest.approx(numbers[0], rel=1e-4)
    best = task.predict(TEXTS, verbose=0).argmax(-1)
    found = task.predict_labels(TEXTS, verbose=0)
    assert found == [("neg", "pos")[i] for i in best]
    task.labels = None
    assert task.predict_labels(TEXTS, verbose=0) == best.tolist()


def objects(rows):
    """An array of lists, as a column of a data frame has them."""
    array = np.empty(len(rows), object)
    array[:] = rows
    return array


def test_tags_of_words_may_be_names():
    names = ["O", "B-x", "I-x"]
    task = tagger(labels=names)
    words = [["who", "sat"], ["a", "b", "c"], ["mat"]]
    numbers = [[0, 1], [2, 0, -1], [1]]
    expected = task.evaluate(words, tf.ragged.constant(numbers), verbose=0)
    tags = [["O", "B-x"], ["I-x", "O", None], ["B-x"]]
    empty = [[tag or "" for tag in row] for row in tags]
    dense = [["O", "B-x", ""], ["I-x", "O", ""], ["B-x", "", ""]]
    padded = [[*row, "", ""][:3] for row in words]
    for x, y in (
        (words, tags),
        (words, empty),
        (tf.ragged.constant(words), tf.ragged.constant(empty)),
        (np.array(padded), np.array(dense)),
        (objects(words), objects(tags)),
        (objects(words), objects([np.array(row) for row in numbers])),
        (words, [np.array(row) for row in numbers]),
    ):
        found = task.evaluate(x, y, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    history = task.fit(words, tags, epochs=1, verbose=0).history
    assert history["loss"][0] == pytest.approx(expected[0], rel=1e-4)
    for wrong, labels in ((["O", "?"], names), (["O", "B-x"], None)):
        with pytest.raises(ValueError, match="Received: '.*', example 1 from"):
            tagger(labels=labels).fit(words[:2], [[None, None], wrong])
    message = "one label for each word.* 2 labels of 3 words, example 1 from 0"
    for y in ([[0, 1], [2, 0]], [["O", "O"], ["O", "O"]]):
        with pytest.raises(ValueError, match=message):
            task.fit(words[:2], y)


def test_tags_are_predicted_for_words():
    task = tagger(labels=["O", "B-x", "I-x"])
    words = [["who", "sat"], ["a"] * 40, ["mat"]]
    best = task.predict(words, verbose=0).argmax(-1)
    first = np.asarray(task.preprocessor.first_pieces(words)) > 0
    found = task.predict_labels(words, verbose=0)
    assert [len(row) for row in found] == [2, 40, 1]
    read = [[x for x in row if x is not None] for row in found]
    assert len(read[1]) < 16 and found[1][len(read[1]) :] == (
        [None] * (40 - len(read[1]))
    )
    for row, tags in enumerate(read):
        assert tags == [task.labels[i] for i in best[row][first[row]]]
    labels, task.labels = task.labels, None
    numbers = {None: None, **{name: i for i, name in enumerate(labels)}}
    assert task.predict_labels(words, verbose=0) == [
        [numbers[name] for name in row] for row in found
    ]
    with pytest.raises(ValueError, match="takes words"):
        task.predict_labels(task.preprocessor(words))


def test_labels_that_a_model_does_not_have_are_named():
    named, plain = classifier(labels=["neg", "pos"]), classifier()
    for task, y, message in (
        (
            named,
            ["pos", "neg", "?"] * 4,
            r"model, neg, pos\. Received: '\?', ex",
        ),
        (named, ["pos", 1], "Received: .1., example 1 from 0"),
        (plain, ["pos"] * 10, "names of classes, and the model has none"),
        (plain, [0, 1, 2], "classes from 0 to 1. Received: 2, example 2 from"),
        (plain, np.array([[0], [-1]]), "Received: -1, example 1 from 0"),
        (plain, [0.0, np.nan], "Received: nan, example 1 from 0"),
        # As columns of data frames may hold numbers.
        (plain, np.array([0, 3], object), "Received: 3, example 1 from 0"),
        (plain, np.array([0, 0.5], object), "integers. Received: 0.5, exam"),
        (plain, np.array([0, None], object), "Received: None, example 1"),
    ):
        for call in (task.fit, task.evaluate, task.train_on_batch):
            with pytest.raises(ValueError, match=message):
                call(TEXTS[: len(y)], y)
        with pytest.raises(ValueError, match=message):
            task.fit(TEXTS, LABELS, validation_data=(TEXTS[: len(y)], y))
    # Of a loss of one's own.
    one_hot = np.eye(2)[LABELS]
    assert plain.numbered(one_hot) is one_hot
    regressor = xlnet_tf.XLNetTextRegressor(
        backbone(), preprocessor=preprocessor()
    )
    words = [["who", "sat"], ["mat"]]
    for task, x, y, message in (
        (regressor, TEXTS, ["a"] * 10, "finite numbers. Received: 'a', exam"),
        (regressor, TEXTS[:2], [1.0, np.nan], "Received: nan, example 1 from"),
        (regressor, TEXTS[:2], [None, 0], "Received: None, example 0 from 0"),
        (regressor, TEXTS[:2], np.array([[0], [np.inf]]), "Received: inf, ex"),
        (tagger(), words, [[0, 1], [3]], "tags of at most 2. Received: 3, ex"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(x, y)
    for y in ([1, 2.5], np.array([[1], [2]]), np.array([1, 0.5], object)):
        assert regressor.numbered(y) is y


def test_labels_of_data_sets_are_checked():
    task = quick(classifier())
    regressor = quick(
        xlnet_tf.XLNetTextRegressor(backbone(), preprocessor=preprocessor())
    )
    features = task.preprocessor(TEXTS[:2])
    words = tf.ragged.constant([["who", "sat"], ["mat"]])
    tags = tf.ragged.constant([[0, 1], [5]])
    for model, x, y, message in (
        (task, TEXTS[:2], [0, 3], "classes from 0 to 1. Received:. .3"),
        (task, features, [[-1], [0]], "classes from 0 to 1. Received:. .-1"),
        (regressor, TEXTS[:2], [0, np.nan], "finite numbers. Rec.*nan"),
        (tagger(), words, tags, "tags of at most 2. Received:. .5"),
    ):
        data = tf.data.Dataset.from_tensor_slices((x, y)).batch(2)
        for call in (model.fit, model.evaluate):
            with pytest.raises(tf.errors.InvalidArgumentError, match=message):
                call(data, verbose=0)
    for y in (np.eye(2)[LABELS], np.array(LABELS)[:, None], LABELS):
        data = tf.data.Dataset.from_tensor_slices((TEXTS, y, LABELS)).batch(4)
        limits = task.label_range(data)
        checked = check_labels(data, *limits)
        assert checked.element_spec == data.element_spec
        for found, expected in zip(checked, data, strict=True):
            assert_equal(found, expected)


def test_right_options_and_positions_are_checked():
    preprocess = preprocessor(XLNetMultipleChoicePreprocessor)
    task = quick(
        xlnet_tf.XLNetMultipleChoice(backbone(), preprocessor=preprocess)
    )
    x = {"context": ["ba", "co"], "question": ["fi", "de"]}
    x["options"] = [["ba", "co"], ["gu", "fi"]]
    message = "`y` must be options from 0 to 1. Received: 2, example 1 from 0"
    arrays = {name: np.array(part) for name, part in x.items()}
    for one in (x, arrays, preprocess(x)):
        for call in (task.fit, task.evaluate, task.train_on_batch):
            with pytest.raises(ValueError, match=message):
                call(one, [0, 2])
    with pytest.raises(ValueError, match=message):
        task.fit(x, [0, 1], validation_data=(x, [0, 2]))
    data = tf.data.Dataset.from_tensor_slices((x, [-1, 0])).batch(2)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="options from 0 to 1. Rec.*-1"
    ):
        task.fit(data, verbose=0)
    task.evaluate(x, [0, 1], verbose=0)
    x["options"] = [["ba"], ["gu", "fi"]]
    with pytest.raises(ValueError, match="equally many options for each q"):
        task.predict(x)

    spans = quick(xlnet_tf.XLNetQuestionAnswering(backbone()))
    features = {"token_ids": np.array([[9, 10, 11, 4, 13, 4, 3]])}
    y = {"start_positions": [2], "end_positions": [7]}
    with pytest.raises(ValueError, match="positions from 0 to 6. Received: 7"):
        spans.fit(features, y)


@pytest.mark.parametrize("as_data_set", [False, True])
def test_scores_of_queries_with_fewer_documents_are_filled_up(
    as_data_set, monkeypatch
):
    of_strings = preprocessor(XLNetRankerPreprocessor)
    task = randomize(xlnet_tf.XLNetRanker(backbone(), preprocessor=of_strings))
    x = {"query": ["ba", "co"], "documents": [["ba"], ["co", "fi", "de"]]}
    expected = np.where(
        [[True, False, False], [True] * 3],
        as_numpy(task(of_strings(x))),
        np.float32(-1e30),
    )
    if as_data_set:
        ragged = {name: tf.ragged.constant(part) for name, part in x.items()}
        x = tf.data.Dataset.from_tensor_slices(ragged).batch(1)
        found = task.predict(x, verbose=0)
    else:
        found = task.predict(x, batch_size=1, verbose=0)
        # As on JAX, where Keras joins batches of one width only.
        monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
        same = task.predict(x, batch_size=1, verbose=0)
        np.testing.assert_allclose(same, expected, rtol=1e-5)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


class Frame(dict):
    """As data frames hold columns."""

    @property
    def columns(self):
        return list(self)


def test_a_data_frame_of_one_column_is_that_column():
    task = quick(classifier())
    texts = np.array(TEXTS, object)
    expected = task.predict(TEXTS, verbose=0)
    frame = Frame(text=texts)
    np.testing.assert_allclose(task.predict(frame, verbose=0), expected)
    np.testing.assert_allclose(task.predict_on_batch(frame), expected)
    valid = (frame, LABELS)
    found = task.fit(frame, LABELS, validation_data=valid, verbose=0).history
    assert set(found) >= {"loss", "val_loss"}
    for nothing in (np.array([], object), np.array([], "U1")):
        assert task.preprocessor(nothing)["token_ids"].shape[0] == 0
    for missing in ([None, "b"], ["b", None]):
        with pytest.raises(TypeError, match="`text` must be strings. Received"):
            task.predict(np.array(missing, object))
    with pytest.raises(ValueError, match="one column .* Received: .* a, b"):
        task.predict(Frame(a=texts, b=texts))


def test_questions_have_the_released_loss():
    task = xlnet_tf.XLNetQuestionAnswering(backbone(), dropout=0.0)
    task = quick(randomize(task))
    features = as_numpy(preprocessor()(TEXTS[:3]))
    y = {
        "start_positions": np.array([9, 8, 10], "int32"),
        "end_positions": np.array([10, 9, 10], "int32"),
        "is_impossible": np.array([0, 0, 1], "float32"),
    }
    features["start_positions"] = y["start_positions"]
    outputs = as_numpy(task(features))
    share = 1 / (1 + np.exp(-outputs["class_logits"]))
    right = np.where(y["is_impossible"], share, 1 - share)
    rows = np.arange(3)
    expected = -0.5 * np.mean(
        outputs["start_scores"][rows, y["start_positions"]]
        + outputs["end_scores"][rows, y["end_positions"]]
        + np.log(right)
    )
    found = task.evaluate(features, y, verbose=0)
    np.testing.assert_allclose(found, expected, rtol=1e-4)
    task.fit(features, y, verbose=0)
    del features["start_positions"]
    with pytest.raises(ValueError, match="must hold `start_positions` too"):
        task.evaluate(features, y, verbose=0)
    simple = quick(xlnet_tf.XLNetSpanClassifier(backbone()))
    del y["is_impossible"]
    assert simple.evaluate(features, y, verbose=0) > 0
    del y["end_positions"]
    with pytest.raises(ValueError, match="Received: start_positions"):
        losses.SpanLoss()(y, as_numpy(simple(features)))


def test_a_keras_file_keeps_strings_and_compilation(learned, tmp_path):
    task, _ = learned
    task.save(tmp_path / "task.keras")
    again = keras.models.load_model(tmp_path / "task.keras")
    assert again.get_config() == task.get_config()
    np.testing.assert_array_equal(
        again.predict(TEXTS, verbose=0), task.predict(TEXTS, verbose=0)
    )
    assert again.compiled
    assert again.optimizer.get_config() == task.optimizer.get_config()
    assert (
        largest_difference(again.optimizer.variables, task.optimizer.variables)
        == 0
    )
    again.fit(TEXTS, LABELS, verbose=0)


def test_a_preset_keeps_the_preprocessor(learned, tmp_path):
    task, _ = learned
    task.save_to_preset(tmp_path)
    again = xlnet_tf.XLNetTextClassifier.from_preset(tmp_path)
    assert again.preprocessor.get_config() == task.preprocessor.get_config()
    np.testing.assert_array_equal(
        expected_logits(again, TEXTS), expected_logits(task, TEXTS)
    )
    # The vocabulary is in one place alone.
    for name in ("task.json", "preprocessor.json"):
        assert (tmp_path / name).stat().st_size < 4000, name
    bare = xlnet_tf.XLNetTextClassifier.from_preset(tmp_path, preprocessor=None)
    assert bare.preprocessor is None
    mine = preprocessor()
    own = xlnet_tf.XLNetTextClassifier.from_preset(tmp_path, preprocessor=mine)
    assert own.preprocessor is mine
    other = xlnet_tf.XLNetRanker.from_preset(tmp_path)
    assert type(other.preprocessor) is XLNetRankerPreprocessor
    assert other.preprocessor.sequence_length == 512
    bare.save_to_preset(tmp_path)
    assert not (tmp_path / "preprocessor.json").exists()


def test_a_tokenizer_of_another_model_is_not_taken(tmp_path):
    small = xlnet_tf.XLNetBackbone(tiny_config(vocabulary_size=50))
    with pytest.raises(ValueError, match="has 300 pieces and the model 50"):
        xlnet_tf.XLNetTextRegressor(small, preprocessor=preprocessor())
    # A table that is filled up, or has added tokens, is a little larger.
    filled = xlnet_tf.XLNetBackbone(tiny_config(vocabulary_size=320))
    xlnet_tf.XLNetTextRegressor(filled, preprocessor=preprocessor())
    large = xlnet_tf.XLNetBackbone(tiny_config(vocabulary_size=600))
    with pytest.warns(UserWarning, match="300 pieces and the model 600 tokens"):
        xlnet_tf.XLNetTextRegressor(large, preprocessor=preprocessor())
    small.save_to_preset(tmp_path, tokenizer=tiny_tokenizer())
    with pytest.warns(UserWarning, match="no preprocessor: .* 300 pieces"):
        task = xlnet_tf.XLNetTextRegressor.from_preset(tmp_path)
    assert task.preprocessor is None


def test_labels_must_fit_the_head_that_is_loaded(tmp_path):
    names = ["no", "maybe"]
    classifier(labels=names).save_to_preset(tmp_path)
    make = xlnet_tf.XLNetTextClassifier.from_preset
    assert make(tmp_path).labels == names
    assert make(tmp_path, labels=["a", "b"]).labels == ["a", "b"]
    with pytest.raises(ValueError, match="all 2 classes of the head in .* 3 l"):
        make(tmp_path, labels=["a", "b", "c"])
    with pytest.raises(ValueError, match="in the order of the head .*: no, ma"):
        make(tmp_path, labels=names[::-1])
    new = make(tmp_path, labels=["a", "b", "c"], num_classes=3)
    assert new.labels == ["a", "b", "c"]
    saved = json.loads((tmp_path / "task.json").read_text())
    assert saved["config"]["labels"] == names
    (tmp_path / "task.json").unlink()
    again = make(tmp_path, labels=["a", "b", "c"], verify=False)
    assert again.num_classes == 3


def test_a_lone_surrogate_is_replaced():
    """As by the commands: UTF-8 has none."""
    task = quick(classifier())
    expected = task.predict(["a \ufffd", "b"], verbose=0)
    for texts in (["a \ud83d", "b"], np.array(["a \ud83d", "b"])):
        np.testing.assert_array_equal(task.predict(texts, verbose=0), expected)
    words = [["a", "\ufffd"], ["b"]]
    expected = tagger().preprocessor(words)["token_ids"]
    words[0][1] = "\ud83d"
    found = tagger().preprocessor(words)["token_ids"]
    np.testing.assert_array_equal(found, expected)


def test_wrong_data_is_named():
    task = classifier()
    names = ("x", "y", "batch_size", "epochs", "validation_split")
    for arguments, message in (
        (("a text", 1), "put a single text into a list"),
        (([], []), "`x` must hold one example or more. Received: an empty"),
        ((TEXTS, LABELS[1:]), "same number of examples. Received: 10, 9"),
        ((TEXTS[:1], [0], None, 1, 0.5), "leave examples to train on"),
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(**dict(zip(names, arguments, strict=False)))
    for wrong, kind in (
        ([1, 2, 3], "list of int"),
        ((1.5,), "tuple of float"),
        ([[1, 2], [3, 4]], "list of int"),
        ([None], "list of NoneType"),
    ):
        with pytest.raises(TypeError, match=f"texts .str.*Received: a {kind}"):
            task.predict(wrong)
    for call in (tagger().predict_labels, tagger().predict):
        with pytest.raises(ValueError, match="list of words for each text"):
            call(["who sat"])


def test_a_task_is_not_called_on_strings():
    task = classifier()
    for x in (TEXTS[:1], "ba", np.array(TEXTS), {"text": TEXTS}):
        with pytest.raises(TypeError, match="Give these to `predict`"):
            task(x)


def test_wrong_data_sets_are_named():
    task = classifier()
    data = tf.data.Dataset.from_tensor_slices((TEXTS, TEXTS))
    for call in (task.predict, task.fit):
        with pytest.raises(ValueError, match="must be numbers.*are strings"):
            call(data.batch(2))
    data = tf.data.Dataset.from_tensor_slices((TEXTS, LABELS))
    with pytest.raises(ValueError, match="must give batches"):
        task.fit(data)
    with pytest.raises(ValueError, match="leave `y`, .* out"):
        task.fit(data.batch(2), batch_size=2)
    with pytest.raises(ValueError, match="needs lists or arrays"):
        task.fit(data.batch(2), validation_split=0.5)


def test_without_tensorflow_text_tasks_take_features_alone(
    tmp_path, monkeypatch
):
    task = classifier()
    task.save_to_preset(tmp_path / "preset")
    task.save(tmp_path / "task.keras")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util,
        "find_spec",
        lambda name, *_: None if name == "tensorflow_text" else find(name, *_),
    )
    for again in (
        xlnet_tf.XLNetTextClassifier.from_preset(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "task.keras"),
    ):
        assert again.preprocessor is None
