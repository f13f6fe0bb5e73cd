"""What Keras users give `fit`, `evaluate` and `compile` of tasks."""

import keras
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.oracle import as_numpy
from tests.support.oracle import randomize
from tests.support.raw_strings import LABELS
from tests.support.raw_strings import TEXTS
from tests.support.raw_strings import backbone
from tests.support.raw_strings import classifier
from tests.support.raw_strings import preprocessor
from tests.support.raw_strings import quick
from tests.support.raw_strings import tagger
from xlnet_tf.preprocessing.choices import XLNetMultipleChoicePreprocessor
from xlnet_tf.preprocessing.choices import XLNetRankerPreprocessor
from xlnet_tf.tasks.losses import ListwiseLoss


class Batches(keras.utils.PyDataset):
    """Batches of texts, or of what a function makes of them."""

    def __init__(self, make=list, **kwargs):
        super().__init__(**kwargs)
        self.make = make
        self.epochs = 0

    def __len__(self):
        return 2

    def __getitem__(self, index):
        rows = slice(5 * index, 5 * index + 5)
        return self.make(TEXTS[rows]), np.array(LABELS[rows])

    def on_epoch_end(self):
        self.epochs += 1


def test_generators_and_py_datasets_of_texts():
    task = quick(classifier(dropout=0.0))
    expected = task.evaluate(TEXTS, LABELS, batch_size=5, verbose=0)
    logits = task.predict(TEXTS, verbose=0)
    for make in (list, np.array, task.preprocessor):
        batches = Batches(make)
        found = task.evaluate(batches, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
        found = task.predict(batches, verbose=0)
        np.testing.assert_allclose(found, logits, atol=1e-5)
        found = task.evaluate((x for x in batches), steps=2, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-5)
    texts = ((TEXTS[:5],) for _ in range(2))
    found = task.predict(texts, steps=2, verbose=0)
    np.testing.assert_allclose(found, [*logits[:5]] * 2, atol=1e-5)
    batches = Batches(workers=2)
    history = task.fit(
        batches, epochs=2, validation_data=Batches(), verbose=0
    ).history
    assert batches.epochs >= 2
    assert history["loss"][1] < history["loss"][0]
    found = task.evaluate(TEXTS, LABELS, batch_size=5, verbose=0)
    np.testing.assert_allclose(history["val_loss"][-1], found[0], rtol=1e-5)


def test_labels_in_lists_beside_features():
    task = quick(classifier(dropout=0.0))
    features = task.preprocessor(TEXTS)
    expected = task.evaluate(features, np.array(LABELS), verbose=0)
    for labels in (LABELS, [float(x) for x in LABELS], list(np.array(LABELS))):
        found = task.evaluate(features, labels, verbose=0)
        np.testing.assert_allclose(found, expected, rtol=1e-6)
    weights = [1.0] * 10
    validation = (features, LABELS, weights)
    task.fit(
        features,
        [bool(x) for x in LABELS],
        sample_weight=weights,
        validation_data=validation,
        verbose=0,
    )


def test_metrics_of_tags_count_the_first_piece_of_each_word():
    task = tagger()
    words, tags = [["ba", "code", "fi"], ["gu"]], [[1, -100, 2], [0]]
    for given in (["accuracy"], "accuracy"):
        task.compile(metrics=given, run_eagerly=True)
        metrics = task.evaluate(words, tags, verbose=0, return_dict=True)
        assert set(metrics) == {"loss", "accuracy"}
    predicted = sum(task.predict_labels(words, verbose=0), [])
    pairs = zip(predicted, sum(tags, []), strict=True)
    right = [found == tag for found, tag in pairs if tag >= 0]
    np.testing.assert_allclose(metrics["accuracy"], np.mean(right))


def test_metrics_of_a_regression_are_means_over_the_rows():
    task = randomize(
        xlnet_tf.XLNetTextRegressor(backbone(), preprocessor=preprocessor())
    )
    y, weights = np.arange(10.0), np.arange(10.0)
    task.compile(
        metrics=["mae", keras.metrics.R2Score()],
        weighted_metrics=["mse"],
        run_eagerly=True,
    )
    found = task.evaluate(
        TEXTS, y, 4, sample_weight=weights, verbose=0, return_dict=True
    )
    errors = task.predict(TEXTS, verbose=0) - y
    np.testing.assert_allclose(found["mae"], abs(errors).mean(), rtol=1e-5)
    expected = np.average(errors**2, weights=weights)
    np.testing.assert_allclose(found["mse"], expected, rtol=1e-5)
    expected = 1 - (errors**2).sum() / ((y - y.mean()) ** 2).sum()
    np.testing.assert_allclose(found["r2_score"], expected, rtol=1e-4)


def test_class_weights_by_name():
    weights = {0: 1.0, 1: 3.0}
    losses = []
    for given in (weights, {"neg": 1.0, "pos": 3.0}, {0: 1.0, "pos": 3.0}):
        task = quick(classifier(labels=["neg", "pos"], dropout=0.0))
        fitted = task.fit(TEXTS, LABELS, class_weight=given, verbose=0)
        losses.append(fitted.history["loss"][0])
    # Threads add in any order.
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)
    with pytest.raises(ValueError, match="labels of the model .neg, pos.*'x'"):
        task.fit(TEXTS, LABELS, class_weight={"x": 1.0})
    # Those that are left out weigh 1, the last ones too.
    task = quick(classifier(labels=["neg", "pos"], dropout=0.0))
    fitted = task.fit(TEXTS, LABELS, class_weight={0: 1.0}, verbose=0)
    plain = quick(classifier(labels=["neg", "pos"], dropout=0.0))
    expected = plain.fit(TEXTS, LABELS, verbose=0).history["loss"]
    assert fitted.history["loss"] == pytest.approx(expected)


def test_names_of_equal_numbers_are_one_class():
    task = classifier(labels=["0", "1.0"])
    found = task.numbered(["0", "0.0", "1", "1.0"])
    assert found.tolist() == [0, 0, 1, 1]
    with pytest.raises(ValueError, match="labels of the model.*'01'"):
        task.numbered(["0", "01"])


def test_labels_in_rows_of_one_and_alone():
    """One after the other, of which Keras would make labels of no rank."""
    task = quick(classifier(dropout=0.0))
    for y in (LABELS, np.array(LABELS)[:, None], LABELS):
        np.testing.assert_array_equal(task.numbered(y), LABELS)
        fitted = task.fit(TEXTS, y, verbose=0).history["loss"]
        assert np.isfinite(fitted).all()


def test_labels_of_losses_of_your_own():
    """Their numbers are theirs: -1 for unknown, 0 and 1 of one class."""
    task = classifier(dropout=0.0)
    loss = keras.losses.SparseCategoricalCrossentropy
    task.compile("adam", loss(from_logits=True, ignore_class=-1))
    y = np.array(LABELS)
    y[0] = -1
    data = tf.data.Dataset.from_tensor_slices((TEXTS, y)).batch(len(y))
    whole = task.evaluate(TEXTS[1:], LABELS[1:], verbose=0)
    for arguments in ((TEXTS, y), (data,)):
        loss = task.evaluate(*arguments, verbose=0)
        assert loss == pytest.approx(whole, rel=1e-3)
    binary = xlnet_tf.XLNetTextClassifier(
        backbone(), 1, preprocessor=preprocessor()
    )
    binary.compile("adam", keras.losses.BinaryCrossentropy(from_logits=True))
    assert np.isfinite(binary.evaluate(TEXTS, LABELS, verbose=0))


def test_flags_of_a_data_frame():
    """A column for each label, in any order, or numbered; or one of lists."""
    names = ["arts", "news"]
    task = xlnet_tf.XLNetMultiLabelClassifier(
        backbone(), 2, labels=names, preprocessor=preprocessor()
    )
    flags = pd.DataFrame({"news": [0, 1], "arts": [1, 1]})
    expected = [[1, 0], [1, 1]]
    other = flags[names].rename(columns={"arts": 0, "news": 1})
    lists = pd.DataFrame({"labels": [["arts"], ["news", "arts"]]})
    for y in (flags, flags[names], other, lists):
        np.testing.assert_array_equal(task.numbered(y), expected)
    renamed = flags.rename(columns={"arts": "Arts"})
    with pytest.raises(ValueError, match="labels of the model, arts, news"):
        task.numbered(renamed)
    quick(task).fit(pd.Series(TEXTS[:2]), flags, verbose=0)


def test_class_weights_need_one_class_for_each_row():
    ranker = xlnet_tf.XLNetRanker(
        backbone(), preprocessor=preprocessor(XLNetRankerPreprocessor)
    )
    several = xlnet_tf.XLNetMultiLabelClassifier(
        backbone(), 3, preprocessor=preprocessor()
    )
    regressor = xlnet_tf.XLNetTextRegressor(
        backbone(), preprocessor=preprocessor()
    )
    chooser = xlnet_tf.XLNetMultipleChoice(
        backbone(), preprocessor=preprocessor(XLNetMultipleChoicePreprocessor)
    )
    queries = {"query": ["ba"], "documents": [["co", "de"]]}
    options = {"question": ["ba"], "options": [["co", "de"]]}
    for task, x, y in (
        (chooser, options, [1]),
        (ranker, queries, [[1, 0]]),
        (several, TEXTS[:1], [[1, 0, 1]]),
        (regressor, TEXTS[:2], [0.5, 1.0]),
    ):
        with pytest.raises(ValueError, match="one class for each row, which"):
            task.fit(x, y, class_weight={0: 1.0, 1: 2.0})
    with pytest.raises(ValueError, match="from 0 to 1. Received: 5"):
        classifier().fit(TEXTS[:2], [0, 1], class_weight={5: 2.0})


def test_relevance_belongs_to_documents():
    of_strings = preprocessor(XLNetRankerPreprocessor)
    task = quick(xlnet_tf.XLNetRanker(backbone(), preprocessor=of_strings))
    x = {"query": ["ba", "co"], "documents": [["a", "b", "c"], ["a", "b"]]}
    for y in ([[1, 0, 0], [0, 1, 1]], [[1, 0], [0, 1]]):
        with pytest.raises(Exception, match="one relevance for each document"):
            task.fit(x, y, verbose=0)
    with pytest.raises(
        ValueError, match="at least 0. Received: -1, query 0, document 2"
    ):
        task.fit(x, [[1, 0, -1], [0, 1]])
    y = [[1, 0, 2], [0, 1]]
    task.fit(x, y, validation_data=(x, y), verbose=0)
    for wrong in (-1.0, np.nan):
        y = np.array([[1, 0], [0, wrong]])
        pairs = {"query": ["ba", "co"], "documents": [["a", "b"]] * 2}
        with pytest.raises(
            ValueError, match="at least 0. Received: .* query 1"
        ):
            task.fit(pairs, y)
        data = tf.data.Dataset.from_tensor_slices((pairs, y)).batch(2)
        with pytest.raises(
            tf.errors.InvalidArgumentError, match="finite numbers of at least 0"
        ):
            task.fit(data, verbose=0)
    nothing = {"query": ["ba", "co"], "documents": [["a"], []]}
    task.fit(nothing, [[1], []], verbose=0)
    scores = np.array([[0.5, 0.1, -1e30]], "float32")
    loss = ListwiseLoss()
    found = [loss(np.array([[1.0, 0, y]], "float32"), scores) for y in (0, 1)]
    np.testing.assert_array_equal(*map(as_numpy, found))


def test_labels_of_several_classes_are_checked():
    task = quick(
        xlnet_tf.XLNetMultiLabelClassifier(
            backbone(), 3, labels=["a", "b", "c"], preprocessor=preprocessor()
        )
    )
    message = "for each of 3 classes. Received: "
    for y in (
        [0, 1],
        np.array([[0, 1, 2]] * 2),
        [[1, 0], [0, 1]],
        [[-1, 0, 1]],
    ):
        with pytest.raises(ValueError, match=message):
            task.fit(TEXTS[: len(y)], y)
    for y in ([[0, 0.5, 1]] * 2, np.eye(3)[:2], [["a", "c"], []], ["a", "b"]):
        task.train_on_batch(TEXTS[:2], y)
    unknown = [[-1, 0, 1]] * 2
    data = tf.data.Dataset.from_tensor_slices((TEXTS[:2], unknown)).batch(2)
    with pytest.raises(tf.errors.InvalidArgumentError, match="0 or 1 for each"):
        task.fit(data, verbose=0)
    # A loss of one's own may know other numbers.
    task.compile(loss="mse", run_eagerly=True)
    for given in ((data,), (TEXTS[:2], unknown)):
        assert np.isfinite(task.evaluate(*given, verbose=0)[0])


def test_metrics_of_several_labels_are_of_logits():
    task = xlnet_tf.XLNetMultiLabelClassifier(
        backbone(), 3, preprocessor=preprocessor()
    )
    randomize(task)
    y = np.eye(3)[:2]
    accuracy = np.mean((task.predict(TEXTS[:2], verbose=0) > 0) == y)
    assert 0 < accuracy < 1
    names = ["accuracy", "binary_accuracy"]
    right = [keras.metrics.Precision(0.0), keras.metrics.AUC(from_logits=True)]
    task.compile(metrics=names + right, run_eagerly=True)
    found = task.evaluate(TEXTS[:2], y, verbose=0, return_dict=True)
    np.testing.assert_allclose([found[x] for x in names], accuracy, rtol=1e-6)
    for metric, message in (
        (keras.metrics.Precision(), r"Precision\(thresholds=0.0\)"),
        (keras.metrics.BinaryAccuracy(), r"BinaryAccuracy\(threshold=0.0\)"),
        (keras.metrics.AUC(), r"AUC\(from_logits=True\)"),
    ):
        with pytest.raises(ValueError, match=message):
            task.compile(metrics=[metric])


def test_what_is_missing_is_named():
    spans = xlnet_tf.XLNetQuestionAnswering(backbone())
    features = {"token_ids": np.array([[9, 10, 11, 4, 13, 4, 3]])}
    features["start_positions"] = np.array([1])
    with pytest.raises(ValueError, match="`answer_start`. Received: none"):
        spans.fit(features, verbose=0)


def test_labels_are_different_names():
    for labels in (np.array([1, 0]), ["a", "a"]):
        with pytest.raises(
            ValueError, match="`labels` must be different names"
        ):
            xlnet_tf.XLNetTextClassifier(backbone(), 2, labels=labels)


def test_a_text_has_one_number():
    task = xlnet_tf.XLNetTextRegressor(backbone(), preprocessor=preprocessor())
    with pytest.raises(ValueError, match="one number for each text.*2, 2"):
        task.fit(TEXTS[:2], np.zeros([2, 2]))


def test_answers_that_do_not_stand_in_the_context():
    x = {"question": ["a", "b"], "context": ["It was Rome.", "In 1923."]}
    y = {"answer_start": [7, 3], "answer_text": ["Rome", "1923"]}
    task = xlnet_tf.XLNetQuestionAnswering(backbone())
    assert task.numbered(y, x) is y
    with pytest.warns(UserWarning, match="1 of 2 answers .*'1923' at 2"):
        task.numbered({**y, "answer_start": [7, 2]}, x)
    with pytest.raises(ValueError, match="2 of 2 answers .*'Rome' at 6"):
        task.numbered({**y, "answer_start": np.array([6, 2])}, x)
    nothing = {"answer_start": [-1, 3], "answer_text": ["", "1923"]}
    assert task.numbered(nothing, x) is nothing
    for text in ("", " ", "\u200b"):
        none = {"answer_start": [0, 3], "answer_text": [text, "1923"]}
        message = "1 of 2 answers have an `answer_start` and no text.*'It was"
        with pytest.warns(UserWarning, match=message):
            task.numbered(none, x)
    # As the preprocessor does, without the blanks around an answer.
    blanks = {"answer_start": [6, 2], "answer_text": [" Rome ", " 1923"]}
    assert task.numbered(blanks, x) is blanks


def test_decay_by_layer_inside_of_a_loss_scale():
    """Frozen layers count, whatever is around the optimizer."""
    task = classifier()
    inner = xlnet_tf.optimizer.AdamW(1e-3, layer_decay=0.5)
    task.compile(keras.optimizers.LossScaleOptimizer(inner))
    assert inner.num_layers == task.config.num_layers


def test_weights_without_a_place_in_a_preset_are_not_lost(tmp_path):
    class Wider(xlnet_tf.XLNetTextClassifier):
        def __init__(self, *args, **kwargs):
            super().__init__(*args, **kwargs)
            self.extra = keras.layers.Dense(2, name="extra")
            self.extra.build((None, 2))

    task = Wider(backbone(), num_classes=2)
    with pytest.raises(ValueError, match="no place: .*extra/kernel"):
        task.save_to_preset(tmp_path / "preset")
    assert not (tmp_path / "preset").exists()
