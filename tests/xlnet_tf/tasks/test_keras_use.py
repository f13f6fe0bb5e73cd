"""What Keras lets users do with a model: each works, or is refused."""

import importlib.util

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from tests.support.oracle import B
from tests.support.oracle import M
from tests.support.oracle import P
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from tests.support.oracle import with_targets
from xlnet_tf.optimizer import layer_factors

TEXTS = ("token_ids", "segment_ids", "padding_mask")


def pretrainer(**overrides):
    return randomize(xlnet_tf.XLNetPretrainer(small_backbone(**overrides)))


def labelled():
    return with_targets(small_features())


def texts():
    return {k: v for k, v in small_features().items() if k in TEXTS}


def classifier(**arguments):
    return xlnet_tf.XLNetTextClassifier(small_backbone(), 2, **arguments)


def eagerly(model, **arguments):
    model.compile(run_eagerly=True, **arguments)
    return model


@pytest.mark.usefixtures("frozen_heap")
def test_quantized_models_score_as_before():
    """Eight bits a weight are right to a few per cent, four to a third."""
    features = labelled()
    starts = {**texts(), "start_positions": np.array([3, 5, 7])}
    for mode, loss_error, score_error in (("int8", 0.1, 0.1), ("int4", 1, 1)):
        model = pretrainer()
        expected = as_numpy(model(features))
        model.quantize(mode)
        found = as_numpy(model(features))
        assert abs(found["loss"] - expected["loss"]) < loss_error, mode
        answers = randomize(xlnet_tf.XLNetQuestionAnswering(small_backbone()))
        expected = as_numpy(answers(starts))
        answers.quantize(mode)
        found = as_numpy(answers(starts))
        for name in ("start_scores", "end_scores"):
            error = np.abs(found[name] - expected[name]).max()
            assert 0 < error < score_error, (mode, name)


def test_functions_are_compiled_again_where_the_computation_changed():
    model = randomize(
        xlnet_tf.XLNetPretrainer(
            small_backbone(memory_length=M), next_sentence_weight=0.5
        )
    )
    model.compile()
    made = {}

    def remade():
        for name in ("train", "test", "predict"):
            getattr(model, f"make_{name}_function")()
        before = dict(made)
        for name in ("train", "test", "predict"):
            made[name] = getattr(model, f"{name}_function")
        return [made[name] is not before.get(name) for name in made]

    assert remade() == [True] * 3
    assert remade() == [False] * 3
    model.attach_memory(B)
    assert remade() == [True] * 3
    model.attach_memory(B, mask_unwritten=True)
    assert remade() == [True] * 3
    for name, value in (
        ("rematerialize", True),
        ("attention_kernel", "plain"),
    ):
        setattr(model.backbone, name, value)
        assert remade() == [True] * 3, name
        assert remade() == [False] * 3, name
    model.backbone.block_0.intermediate.quantize("int8")
    assert remade() == [True] * 3
    model.backbone.block_0.output_dense.enable_lora(2)
    assert remade() == [True] * 3
    for layer in (model.backbone.block_1, model):
        layer.trainable = False
        assert remade() == [True] * 3, layer
    model.objectives[1].weight = 2.0
    assert remade() == [True] * 3
    assert remade() == [False] * 3
    model.memory = None
    assert remade() == [True] * 3


def test_whole_segments_are_remembered(tmp_path):
    config = dict(memory_length=12, reuse_length=5)
    with pytest.raises(ValueError, match="whole segments: give `reuse_length="):
        xlnet_tf.XLNetTextClassifier(
            small_backbone(**config), 2, segment_length=7
        )
    # All of a segment's tokens: as good as 0.
    xlnet_tf.XLNetTextClassifier(small_backbone(**config), 2, segment_length=5)
    pretrainer(**config).save_to_preset(tmp_path / "run")
    make = xlnet_tf.XLNetTextClassifier.from_preset
    model = make(tmp_path / "run", num_classes=2, segment_length=7)
    assert (model.config.reuse_length, model.config.memory_length) == (0, 12)
    with pytest.raises(ValueError, match="Received: segment_length=7, reuse_l"):
        make(tmp_path / "run", num_classes=2, segment_length=7, reuse_length=5)


def test_arguments_have_the_places_of_keras():
    model, x, y = eagerly(classifier()), texts(), np.array([0, 1, 1])
    model.fit(x, y, 2, 1, 0)
    expected = model.evaluate(x, y, batch_size=2, verbose=0)
    np.testing.assert_allclose(model.evaluate(x, y, 2, 0), expected, atol=1e-6)
    weights = np.array([1.0, 0, 0])
    loss = model.evaluate(x, y, 2, 0, weights)[0]
    assert abs(loss - expected[0]) > 1e-5
    assert model.predict(x, 2, 0, 1).shape == (2, 2)
    assert set(model.test_on_batch(x, y, weights, True)) == {"loss", "accuracy"}
    assert set(model.train_on_batch(x, y, None, {0: 1.0, 1: 2.0}, True)) == {
        "loss",
        "accuracy",
    }


def test_a_pretrainer_refuses_what_it_would_ignore():
    model = pretrainer()
    for name, value in (
        ("loss", "mse"),
        ("metrics", ["accuracy"]),
        ("weighted_metrics", ["accuracy"]),
        ("loss_weights", [1.0]),
    ):
        with pytest.raises(ValueError, match=f"no `{name}` in `compile`"):
            model.compile(**{name: value})
    eagerly(model)
    x = labelled()
    with pytest.raises(ValueError, match="the feature `target_weights`"):
        model.fit(x, sample_weight=np.zeros(B), verbose=0)
    with pytest.raises(ValueError, match="leave `sample_weight` and `class_w"):
        model.fit(x, np.zeros(B), sample_weight=np.zeros(B), verbose=0)
    with pytest.raises(ValueError, match="need the feature `target_ids`"):
        model.fit(x["token_ids"], verbose=0)


def test_regularizers_are_added_to_the_loss():
    x, y = texts(), np.array([0, 1, 1])
    answers = {
        "start_positions": np.array([3, 4, 5]),
        "end_positions": np.array([4, 5, 5]),
    }
    for model, data in (
        (pretrainer(), (labelled(),)),
        (classifier(), (x, y)),
        (xlnet_tf.XLNetSpanClassifier(small_backbone()), (x, answers)),
    ):
        eagerly(model)
        before = model.test_on_batch(*data, return_dict=True)["loss"]
        kernel = model.backbone.block_0.intermediate.kernel
        kernel.regularizer = keras.regularizers.L2(0.5)
        after = model.test_on_batch(*data, return_dict=True)["loss"]
        added = 0.5 * np.square(as_numpy(kernel)).sum()
        np.testing.assert_allclose(after - before, added, rtol=1e-4)


def test_rows_of_questions_are_weighed():
    labels = dict(
        start_positions=np.array([2, 4, 5]),
        end_positions=np.array([3, 5, 5]),
        is_impossible=np.array([0, 0, 1]),
    )
    x = {**texts(), "start_positions": labels["start_positions"]}
    weights = np.array([1.0, 0, 2])
    for cls in (xlnet_tf.XLNetSpanClassifier, xlnet_tf.XLNetQuestionAnswering):
        model = eagerly(randomize(cls(small_backbone())))
        expected = model.test_on_batch(x, labels, weights)
        loss = model.evaluate(x, labels, B, 0, weights)
        np.testing.assert_allclose(loss, expected, rtol=1e-5)
        assert abs(loss - model.evaluate(x, labels, B, 0)) > 1e-3
        assert model.evaluate(x, labels, B, 0, np.zeros(B)) == 0


def test_token_ids_alone_may_be_a_tensor():
    ids = small_features()["token_ids"]
    backbone = small_backbone()
    for model in (
        pretrainer(),
        classifier(),
        xlnet_tf.XLNetTextRegressor(backbone),
        xlnet_tf.XLNetTokenClassifier(backbone, 3),
        xlnet_tf.XLNetQuestionAnswering(backbone),
    ):
        expected = model({"token_ids": ids})
        assert largest_difference(model(ids), expected) == 0
        for value in keras.tree.flatten(as_numpy(model(ids, training=True))):
            assert np.isfinite(value).all(), type(model)
    options = np.stack([ids, ids], axis=1)
    for cls in (xlnet_tf.XLNetMultipleChoice, xlnet_tf.XLNetRanker):
        model = cls(small_backbone())
        assert model(options).shape == (B, 2)
        with pytest.raises(ValueError, match=r"\[B, O, T\]. Received: shape="):
            model(ids)


def test_wrong_features_are_refused_before_anything_is_compiled():
    task, backbone = classifier(), small_backbone()
    task.compile("sgd")
    model = pretrainer()
    model.compile("sgd")
    rows, labels = texts(), np.zeros(B, "int32")

    def wrong(name, value, features=rows):
        array = np.array(features[name], np.array(value).dtype)
        array.flat[-1] = value
        return {**features, name: array}

    for name, value in (
        ("token_ids", -1),
        ("token_ids", 97),
        ("token_ids", 2**32 + 3),
        ("token_ids", 1.5),
        ("segment_ids", 2.0),
        ("padding_mask", np.nan),
        ("padding_mask", 3),
    ):
        x = wrong(name, value)
        for call in (
            lambda x: task.fit(x, labels),
            lambda x: task.fit(rows, labels, validation_data=(x, labels)),
            lambda x: task.fit(x for x in [(x, labels)] * 2),
            lambda x: task.evaluate(x, labels),
            lambda x: task.predict(x),
            lambda x: task.train_on_batch(x, labels),
            lambda x: task.test_on_batch(x, labels),
            lambda x: task.predict_on_batch(x),
            lambda x: backbone.predict(x),
            lambda x: backbone.predict_on_batch(x),
        ):
            with pytest.raises(ValueError, match=f"`{name}` must .*Received:"):
                call(x)
    targets = labelled()
    for name, value in (
        ("target_positions", T),
        ("target_positions", -1),
        ("target_ids", -100),
        ("factorization_rank", 2**32),
        ("factorization_rank", 0.5),
        ("is_reversed", 2),
        ("padding_mask", np.nan),
    ):
        x = wrong(name, value, targets)
        for call in (model.fit, model.evaluate, model.predict, model):
            with pytest.raises(ValueError, match=f"`{name}` must .*Received:"):
                call(x)
    eagerly(task)
    for name, value, limits in (
        ("token_ids", -1, "0 to 96"),
        ("token_ids", 97, "0 to 96"),
        ("token_ids", 2**32 + 3, "0 to 96"),
        ("segment_ids", 2**32, "-2147483648 to 2147483647"),
    ):
        x = wrong(name, np.int64(value))
        for batch, call in (
            ((x, labels), task.fit),
            ((x, labels), task.evaluate),
            (x, task.predict),
            (x, backbone.predict),
        ):
            data = tf.data.Dataset.from_tensor_slices(batch).batch(2)
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=rf"`{name}` must be from {limits}. Received: .*{value}\]",
            ):
                call(data, verbose=0)
    x = wrong("target_positions", T, targets)
    rows_of_x = tf.data.Dataset.from_tensor_slices(x)
    shapes = {k: [None] * (v.ndim - 1) for k, v in x.items()}
    for data in (rows_of_x.batch(B), rows_of_x.padded_batch(B, shapes)):
        for call in (model.fit, model.predict, backbone.predict):
            with pytest.raises(
                tf.errors.InvalidArgumentError,
                match=rf"must be from 0 to {T - 1}. Received: .*{T}\]",
            ):
                call(data, verbose=0)
    data = tf.data.Dataset.from_tensor_slices(wrong("token_ids", 1.5))
    for call in (task.predict, backbone.predict):
        with pytest.raises(ValueError, match="`token_ids` must have a type"):
            call(data.batch(2), verbose=0)
    data = tf.data.Dataset.from_tensor_slices((rows, labels)).batch(2)
    expected = task.evaluate(rows, labels, batch_size=2, verbose=0)
    np.testing.assert_allclose(task.evaluate(data, verbose=0), expected, 1e-5)
    answers = xlnet_tf.XLNetQuestionAnswering(backbone)
    for name, value in (
        ("class_index", T),
        ("start_positions", -1),
        ("answer_mask", 0.5),
    ):
        array = rows["padding_mask"] if name == "answer_mask" else labels
        x = wrong(name, value, {**rows, name: array})
        for call in (answers, answers.predict):
            with pytest.raises(ValueError, match=f"`{name}` must .*Received:"):
                call(x)


def test_predict_leaves_out_what_would_fill_the_machine():
    model = eagerly(pretrainer(memory_length=M))
    features = labelled()
    found = model.predict(features, batch_size=2, verbose=0)
    assert {name: value.shape for name, value in found.items()} == {
        "query": (B, P, 38),
        "token_loss": (B, P),
        "token_correct": (B, P),
    }
    expected = model(features)
    for name, value in found.items():
        assert largest_difference(value, expected[name]) < 1e-5, name
    found = model.predict(texts(), batch_size=2, verbose=0)
    assert {name: value.shape for name, value in found.items()} == {
        "content": (B, T, 38)
    }


def test_callbacks_may_set_the_learning_rate():
    model = eagerly(classifier())
    model.fit(
        texts(),
        np.array([0, 1, 1]),
        epochs=2,
        verbose=0,
        callbacks=[
            keras.callbacks.LearningRateScheduler(lambda epoch, rate: rate / 2),
            keras.callbacks.ReduceLROnPlateau(
                "loss", factor=0.1, patience=1, min_delta=100
            ),
        ],
    )
    rate = as_numpy(model.optimizer.learning_rate)
    np.testing.assert_allclose(rate, 1.25e-5, rtol=1e-5)


def test_the_default_rate_is_by_width():
    for width, expected in ((38, 5e-4), (256, 5e-4), (258, 2e-5)):
        backbone = small_backbone(num_layers=1, hidden_dim=width)
        model = xlnet_tf.XLNetTextClassifier(backbone, 2)
        model.compile()
        rate = as_numpy(model.optimizer.learning_rate)
        np.testing.assert_allclose(rate, expected, rtol=1e-5)


class Killed(Exception):
    """Raised by a callback, as a kill would end a fit."""


def test_callbacks_of_keras_work_together(tmp_path):
    """A fit that ends in its second epoch goes on there, and stops early."""
    x, y = texts(), np.array([0, 1, 1])

    def fit(model, epochs, callbacks=()):
        model.fit(
            *(x, y, B),
            epochs=epochs,
            verbose=0,
            callbacks=callbacks,
            validation_data=(x, y),
            shuffle=False,
        )
        return model

    def fresh():
        # Keras does not save how far dropout has drawn.
        backbone = small_backbone(
            num_layers=1, dropout=0.0, attention_dropout=0.0
        )
        keras.utils.set_random_seed(1)
        return eagerly(xlnet_tf.XLNetTextClassifier(backbone, 2, dropout=0.0))

    def callbacks():
        made = [
            keras.callbacks.BackupAndRestore(tmp_path / "backup"),
            keras.callbacks.ModelCheckpoint(tmp_path / "{epoch}.keras"),
            keras.callbacks.CSVLogger(tmp_path / "log.csv", append=True),
            # No later epoch is so much better.
            keras.callbacks.EarlyStopping(
                patience=1, min_delta=100, restore_best_weights=True
            ),
        ]
        if importlib.util.find_spec("tensorboard"):
            made.append(keras.callbacks.TensorBoard(tmp_path / "board"))
        return made

    def kill(epoch, logs=None):
        if epoch == 1:
            raise Killed

    begun = [*callbacks(), keras.callbacks.LambdaCallback(on_epoch_begin=kill)]
    with pytest.raises(Killed):
        fit(fresh(), 9, begun)
    begun[2].csv_file.close()
    model = fit(fresh(), 9, callbacks())
    lines = (tmp_path / "log.csv").read_text().splitlines()
    assert lines[0].startswith("epoch,accuracy,loss,val_accuracy,val_loss")
    assert [line.split(",")[0] for line in lines[1:]] == ["0", "1", "2"]
    assert not (tmp_path / "backup").exists()
    if (tmp_path / "board").exists():
        for part in ("train", "validation"):
            assert list((tmp_path / "board" / part).glob("events.*")), part
    # The second epoch was the first that this early stopping saw.
    kept = keras.models.load_model(tmp_path / "2.keras")
    assert largest_difference(kept.weights, model.weights) == 0
    last = keras.models.load_model(tmp_path / "3.keras")
    assert largest_difference(last.weights, model.weights) > 1e-4
    whole = fit(fresh(), 2)
    assert largest_difference(kept.weights, whole.weights) < 1e-6


def test_layers_are_counted_where_the_top_ones_are_frozen():
    model = pretrainer()
    paths = [v.path for v in model.trainable_variables]
    expected = dict(
        zip(paths, layer_factors(model.trainable_variables, 0.5), strict=True)
    )
    model.backbone.block_1.trainable = False
    eagerly(model, optimizer=xlnet_tf.AdamW(0.1, layer_decay=0.5))
    model.optimizer.build(model.trainable_variables)
    factors = model.optimizer._factors
    for variable, factor in zip(
        model.trainable_variables, factors, strict=True
    ):
        assert factor == expected[variable.path], variable.path
    again = xlnet_tf.AdamW.from_config(model.optimizer.get_config())
    assert again.num_layers == 2


def test_exports_take_every_feature_that_a_task_reads():
    backbone = small_backbone()
    for model, further in (
        (backbone, []),
        (xlnet_tf.XLNetTextClassifier(backbone, 2), []),
        (xlnet_tf.XLNetPretrainer(backbone), ["target_positions"]),
        (xlnet_tf.XLNetMultipleChoice(backbone), []),
        (xlnet_tf.XLNetRanker(backbone), ["document_mask"]),
        (
            xlnet_tf.XLNetQuestionAnswering(backbone),
            ["answer_mask", "class_index"],
        ),
    ):
        specs = model.input_signature()
        assert list(specs) == [*TEXTS, *further], type(model)
        model(
            {
                key: np.ones([7 if x is None else x for x in spec.shape], "i4")
                for key, spec in specs.items()
            }
        )


def test_features_of_an_export_have_their_names(tmp_path):
    model = xlnet_tf.XLNetPretrainer(small_backbone(num_layers=1))
    model.export(tmp_path / "export", verbose=False)
    found = tf.saved_model.load(tmp_path / "export")
    signature = found.signatures["serving_default"].structured_input_signature
    assert set(signature[1]) == {*TEXTS, "target_positions"}


def test_a_mode_that_no_model_has_is_refused():
    for model in (small_backbone(), classifier()):
        with pytest.raises(ValueError, match='float8.*Give "int8" or "int4"'):
            model.quantize("float8")


def test_a_preset_takes_the_arguments_of_its_backbone(tmp_path):
    classifier().save_to_preset(tmp_path)
    model = xlnet_tf.XLNetTextClassifier.from_preset(
        tmp_path,
        seed=3,
        rematerialize=True,
        attention_kernel="plain",
        dtype="mixed_bfloat16",
    )
    backbone = model.backbone
    assert backbone.seed == 3 and backbone.attention_kernel == "plain"
    assert backbone.rematerialize
    assert backbone.compute_dtype == model.head.compute_dtype == "bfloat16"


def test_no_precision_means_that_of_the_backbone():
    backbone = small_backbone(dtype="mixed_bfloat16")
    for model in (
        xlnet_tf.XLNetTextClassifier(backbone, 2, dtype=None),
        xlnet_tf.XLNetPretrainer(backbone, dtype=None),
    ):
        assert model.compute_dtype == model.head.compute_dtype == "bfloat16"


def test_numbers_of_numpy_make_heads(tmp_path):
    for cls, arguments in (
        (xlnet_tf.XLNetTextClassifier, dict(num_classes=np.int64(3))),
        (xlnet_tf.XLNetTokenClassifier, dict(num_classes=np.int32(3))),
        (xlnet_tf.XLNetQuestionAnswering, dict(inner_dim=np.int64(8))),
    ):
        model = cls(small_backbone(), dropout=np.float32(0.25), **arguments)
        model.save_to_preset(tmp_path)
        again = cls.from_preset(tmp_path)
        assert largest_difference(again(texts()), model(texts())) == 0, cls


def test_an_argument_that_resembles_another_is_refused(tmp_path):
    """In a constructor, and of a preset, whose config has arguments too."""
    backbone = small_backbone()
    task = xlnet_tf.XLNetTextClassifier(backbone, 2)
    task.save_to_preset(tmp_path / "preset")
    ways = (
        lambda **given: xlnet_tf.XLNetTextClassifier(backbone, **given),
        lambda **given: xlnet_tf.XLNetTextClassifier.from_preset(
            tmp_path / "preset", **given
        ),
    )
    for name, meant in (
        ("num_clases", "num_classes"),
        ("num_labels", "num_classes"),
        ("segment_lenght", "segment_length"),
    ):
        message = f"XLNetTextClassifier has no argument `{name}`; did you mean "
        for make in ways:
            with pytest.raises(TypeError, match=f"{message}`{meant}`"):
                make(**{name: 2})
    # What its bases take is not refused, nor what the config does.
    named = ways[0](
        num_classes=2, name="mine", trainable=False, dtype="float32"
    )
    assert (named.name, named.trainable) == ("mine", False)
    assert ways[1](attention_dropout=0.5).config.attention_dropout == 0.5
    with pytest.raises(TypeError, match="did you mean `attention_dropout`"):
        ways[1](attention_droput=0.5)
    with pytest.raises((TypeError, ValueError), match="nonsense"):
        ways[0](num_classes=2, nonsense=1)
