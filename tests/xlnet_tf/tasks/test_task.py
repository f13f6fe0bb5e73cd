"""Every task: its outputs, its dropout, its files and its presets."""

import functools
import json

import keras
import numpy as np
import pytest

import xlnet_tf
from tests.support.oracle import T
from tests.support.oracle import as_numpy
from tests.support.oracle import largest_difference
from tests.support.oracle import randomize
from tests.support.oracle import small_backbone
from tests.support.oracle import small_features
from xlnet_tf import XLNetMultipleChoice
from xlnet_tf import XLNetQuestionAnswering
from xlnet_tf import XLNetSpanClassifier
from xlnet_tf import XLNetTextClassifier
from xlnet_tf import XLNetTextRegressor
from xlnet_tf import XLNetTokenClassifier

# Keras copies tensors in a way that NumPy 2 does not like.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")
# Seven rows: no axis of the outputs is as long.
ROWS, OPTIONS = 7, 3
LABELS = ["no", "maybe", "it depends", "rather", "yes"]
LABELLED = dict(num_classes=5, labels=LABELS)
TASKS = {
    "classifier": (XLNetTextClassifier, LABELLED),
    "regressor": (XLNetTextRegressor, dict(summary="mean")),
    "choice": (XLNetMultipleChoice, dict(summary="first", projection=False)),
    "tokens": (XLNetTokenClassifier, LABELLED),
    "spans": (XLNetSpanClassifier, dict(dropout=0.1)),
    "questions": (
        XLNetQuestionAnswering,
        dict(num_starts=4, num_ends=2, inner_dim=26),
    ),
    "labelled questions": (XLNetQuestionAnswering, dict(num_starts=4)),
}
SHAPES = {
    "classifier": (ROWS, 5),
    "regressor": (ROWS,),
    "choice": (ROWS, OPTIONS),
    "tokens": (ROWS, T, 5),
    "spans": {"start_logits": (ROWS, T), "end_logits": (ROWS, T)},
    "questions": {
        "class_logits": (ROWS,),
        "start_top_scores": (ROWS, 4),
        "start_top_positions": (ROWS, 4),
        "end_top_scores": (ROWS, 4, 2),
        "end_top_positions": (ROWS, 4, 2),
    },
    "labelled questions": {
        "class_logits": (ROWS,),
        "start_scores": (ROWS, T),
        "end_scores": (ROWS, T),
    },
}


@pytest.fixture(scope="module")
def models():
    """A function that gives the model of a task, made once; read only."""
    return functools.cache(make)


def make(task, seed=0, dtype=None, **overrides):
    cls, arguments = TASKS[task]
    backbone = small_backbone(dtype=dtype, **overrides)
    return randomize(cls(backbone, **arguments), seed)


def features_of(task):
    """Rows of ragged padding, on either side."""
    rows = ROWS * (OPTIONS if task == "choice" else 1)
    features = small_features(batch=rows)
    names = ("token_ids", "segment_ids", "padding_mask")
    features = {name: features[name] for name in names}
    if task == "choice":
        return {
            name: value.reshape(ROWS, OPTIONS, T)
            for name, value in features.items()
        }
    if "questions" in task:
        answer_mask = np.zeros((ROWS, T), "int32")
        answer_mask[:, 4:11] = 1
        answer_mask[0, 5] = 0
        features["answer_mask"] = answer_mask
        features["class_index"] = np.arange(ROWS).astype("int32")
    if task == "labelled questions":
        features["start_positions"] = np.arange(4, 4 + ROWS).astype("int32")
    return features


def seeded(features, seed):
    return {**features, "dropout_seed": np.array([seed, 7], "int32")}


def test_outputs_have_the_documented_shapes_and_types(models):
    for task, shapes in SHAPES.items():
        outputs = as_numpy(models(task)(features_of(task)))
        assert keras.tree.map_structure(np.shape, outputs) == shapes, task
        values = outputs if isinstance(outputs, dict) else {"": outputs}
        for name, value in values.items():
            expected = "int32" if name.endswith("positions") else "float32"
            assert value.dtype == expected, (task, name)


def test_alone_equals_batched(models):
    for task in TASKS:
        model, features = models(task), features_of(task)
        batched = as_numpy(model(features))
        for row in (0, 1, ROWS - 1):
            alone = model({k: v[row : row + 1] for k, v in features.items()})
            expected = keras.tree.map_structure(
                lambda value, row=row: value[row : row + 1], batched
            )
            assert largest_difference(alone, expected) < 1e-5, (task, row)


def test_padding_that_is_cut_off_does_not_matter(models):
    for task in ("classifier", "tokens"):
        model, features = models(task), features_of(task)
        logits = as_numpy(model(features))
        for row in range(1, ROWS, 2):  # padded on the left
            width = int((features["padding_mask"][row] == 0).sum())
            assert width >= 2
            cut = {k: v[row : row + 1, width:] for k, v in features.items()}
            del cut["padding_mask"]
            is_text = task == "classifier"
            expected = logits[row] if is_text else logits[row, width:]
            assert largest_difference(model(cut)[0], expected) < 1e-5, task


def test_the_config_makes_the_same_task(models):
    for task in TASKS:
        model = models(task)
        config = json.loads(json.dumps(model.get_config()))
        again = type(model).from_config(config)
        assert again.config == model.config, task
        assert again.get_config() == model.get_config(), task
        shapes = [[w.shape for w in m.weights] for m in (model, again)]
        assert shapes[0] == shapes[1], task
        paths = [[w.path for w in m.head.weights] for m in (model, again)]
        assert paths[0] == paths[1], task


def test_a_keras_file_gives_the_same_bits(models, tmp_path):
    for task in TASKS:
        model, features = models(task), features_of(task)
        model.save(tmp_path / "task.keras")
        again = keras.models.load_model(tmp_path / "task.keras")
        assert type(again) is type(model)
        assert largest_difference(again(features), model(features)) == 0, task
        assert again.get_config() == model.get_config(), task


def test_outputs_of_low_precision_are_float32_and_near(models):
    # Not "questions", whose best spans may be others where scores are close.
    for task in ("classifier", "tokens", "labelled questions"):
        features = features_of(task)
        mixed = make(task, dtype="mixed_bfloat16")
        assert mixed.head.compute_dtype == "bfloat16"
        exact, near = (
            as_numpy(models(task)(features)),
            as_numpy(mixed(features)),
        )
        if not isinstance(exact, dict):
            exact, near = {"": exact}, {"": near}
        for name, value in exact.items():
            if not name.endswith("positions"):
                assert near[name].dtype == "float32", (task, name)
                shown = value > -1e29
                error = np.abs(near[name] - value)[shown]
                assert 0 < error.max() < 0.15, (task, name)


def test_a_seed_decides_the_dropout(models):
    for task in TASKS:
        model, features = models(task), features_of(task)
        first = model(seeded(features, 1), training=True)
        again = model(seeded(features, 1), training=True)
        other = model(seeded(features, 2), training=True)
        assert largest_difference(first, again) == 0, task
        assert largest_difference(first, other) > 1e-3, task
    unseeded = [model(features, training=True) for _ in range(2)]
    assert largest_difference(*unseeded) > 1e-3


def test_dropout_of_the_head_follows_the_seed():
    """The head drops too, where the backbone drops nothing."""
    for task in ("classifier", "tokens", "questions"):
        model = make(task, dropout=0.0, attention_dropout=0.0)
        features = features_of(task)
        calm = model(features)
        first = model(seeded(features, 1), training=True)
        again = model(seeded(features, 1), training=True)
        other = model(seeded(features, 2), training=True)
        assert largest_difference(first, again) == 0, task
        assert largest_difference(first, other) > 1e-3, task
        assert largest_difference(first, calm) > 1e-3, task
        assert largest_difference(model(seeded(features, 1)), calm) == 0, task


def test_a_head_is_kept_where_it_fits(models, tmp_path):
    for task in ("classifier", "tokens"):
        model, features = models(task), features_of(task)
        model.save_to_preset(tmp_path / task)
        make_again = functools.partial(type(model).from_preset, tmp_path / task)
        other = make_again(num_classes=3)
        assert (other.num_classes, other.labels) == (3, None), task
        assert other(features).shape[-1] == 3, task
        assert not as_numpy(other.head.logits_dense.bias).any(), task
        pairs = [m.backbone.trainable_weights for m in (other, model)]
        assert largest_difference(*pairs) == 0, task
        again = make_again(num_classes=5)
        assert again.labels == LABELS, task
        assert largest_difference(again(features), model(features)) == 0, task
        renamed = make_again(labels=list("abcde"))
        assert renamed.labels == list("abcde"), task
        assert largest_difference(renamed(features), model(features)) == 0, task


def test_the_head_of_another_task_is_not_taken(models, tmp_path):
    models("regressor").save_to_preset(tmp_path)
    model = XLNetMultipleChoice.from_preset(tmp_path)
    assert not as_numpy(model.head.logits_dense.bias).any()
    with pytest.raises(
        ValueError, match="no head for XLNetTokenClassifier, so"
    ):
        XLNetTokenClassifier.from_preset(tmp_path)


def test_summaries_are_as_documented():
    content = np.random.default_rng(0).normal(size=(3, T, 38))
    vectors = {
        "last": content[:, -1],
        "first": content[:, 0],
        "mean": content.mean(axis=1),
    }
    backbone = small_backbone()
    content = content.astype("float32")
    for summary, projection, activation in (
        ("last", True, "tanh"),
        ("first", True, None),
        ("mean", False, "tanh"),
        ("last", False, None),
    ):
        model = XLNetTextClassifier(
            backbone,
            num_classes=5,
            summary=summary,
            projection=projection,
            activation=activation,
        )
        head = randomize(model).head
        expected = vectors[summary]
        if projection:
            kernel = as_numpy(head.summary_dense.kernel)
            expected = expected @ kernel + as_numpy(head.summary_dense.bias)
        if activation:
            expected = np.tanh(expected)
        found = as_numpy(head.summarize(content))
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5)
        kernel, bias = map(as_numpy, head.logits_dense.weights)
        logits = as_numpy(head(content))
        np.testing.assert_allclose(logits, expected @ kernel + bias, atol=1e-5)


def test_arguments_that_are_refused():
    for cls, arguments, message in (
        (
            XLNetTextRegressor,
            dict(summary="max"),
            "one of last, first, mean. R",
        ),
        (
            XLNetTextRegressor,
            dict(activation="relu"),
            '`activation` of the summary must be "tanh"',
        ),
        (
            XLNetTextClassifier,
            dict(num_classes=5, labels=["no", "yes"]),
            "`labels` must name all 5 classes. Received: 2 labels, no, yes",
        ),
        (
            XLNetTokenClassifier,
            dict(num_classes=5, labels=["no", "yes"]),
            "`labels` must name all 5 classes. Received: 2 labels, no, yes",
        ),
    ):
        with pytest.raises(ValueError, match=message):
            cls(small_backbone(), **arguments)
    with pytest.raises(ValueError, match="outputs are logits.*='softmax'"):
        XLNetTextClassifier(small_backbone(), 2, activation="softmax")


def test_a_tokenizer_has_its_place_named():
    for name in ("XLNetTokenizer", "Tokenizer"):
        with pytest.raises(AttributeError, match="`data_pipeline.Tokenizer`"):
            getattr(xlnet_tf, name)


def test_misspelt_arguments_are_named(tmp_path):
    backbone = small_backbone()
    XLNetTextRegressor(backbone).save_to_preset(tmp_path)
    make = XLNetTextClassifier.from_preset
    for arguments, error, message in (
        (dict(num_clases=2), TypeError, "no argument `num_clases`; did you "),
        (dict(num_labels=2), TypeError, "you mean `num_classes`?"),
        (dict(num_classes=2, sumary="last"), TypeError, "mean `summary`?"),
        (dict(num_classes=2, sed=1), TypeError, "you mean `seed`?"),
        (dict(num_classes=2, memory_lengt=4), TypeError, "`memory_length`?"),
        (dict(classes=2), ValueError, "num_classes. Received: classes"),
        (
            dict(num_classes=2, activation="softmax"),
            ValueError,
            "gives logits, of which `predict_labels`.*='softmax'",
        ),
    ):
        with pytest.raises(error, match=message):
            make(tmp_path, **arguments)
    for name in ("num_clases", "num_labels"):
        with pytest.raises(TypeError, match="you mean `num_classes`?"):
            XLNetTextClassifier(backbone, **{name: 2})

    class Named(XLNetTextClassifier):
        def __init__(self, backbone, colour, **kwargs):
            self.shade = kwargs.pop("shade", None)
            super().__init__(backbone, **kwargs)

    named = Named(backbone, colour="red", shade="dark", num_classes=2)
    assert named.shade == "dark" and named.num_classes == 2


def test_answers_lie_where_they_may(models):
    features = features_of("questions")
    answers = as_numpy(models("questions")(features))
    for row, mask in enumerate(features["answer_mask"]):
        assert mask[answers["start_top_positions"][row]].all()
        assert mask[answers["end_top_positions"][row]].all()
    for name in ("start_top_scores", "end_top_scores"):
        assert (np.diff(answers[name], axis=-1) <= 0).all(), "best first"


def test_the_best_answers_are_those_of_all_scores(models):
    """Top scores are the largest of the scores that labels condition."""
    model = models("labelled questions")
    features = features_of("labelled questions")
    inference = {k: v for k, v in features.items() if k != "start_positions"}
    best = as_numpy(model(inference))
    for rank in range(4):
        starts = best["start_top_positions"][:, rank]
        scores = as_numpy(model({**features, "start_positions": starts}))
        one = scores["start_scores"][np.arange(ROWS), starts]
        np.testing.assert_allclose(one, best["start_top_scores"][:, rank])
        ends = np.sort(scores["end_scores"], axis=-1)[:, :-6:-1]
        np.testing.assert_allclose(
            ends, best["end_top_scores"][:, rank], rtol=0, atol=1e-5
        )
        assert np.exp(scores["end_scores"]).sum() == pytest.approx(ROWS, 1e-5)


def test_defaults_of_questions_are_anywhere_and_the_last_token(models):
    model = models("questions")
    features = features_of("questions")
    del features["answer_mask"], features["class_index"]
    explicit = {
        **features,
        "answer_mask": np.ones((ROWS, T), "int32"),
        "class_index": np.full(ROWS, T - 1, "int32"),
    }
    assert largest_difference(model(features), model(explicit)) == 0


def test_the_class_token_is_read_at_its_index(models):
    model, features = models("questions"), features_of("questions")
    at = [
        as_numpy(model({**features, "class_index": np.full(ROWS, place)}))
        for place in (0, 5)
    ]
    assert (np.abs(at[0]["class_logits"] - at[1]["class_logits"]) > 1e-4).all()
    for row, place in ((0, 0), (5, 5)):  # as `features_of` counts them
        expected = at[place // 5]["class_logits"][row]
        np.testing.assert_array_equal(
            as_numpy(model(features))["class_logits"][row], expected
        )
    del at[0]["class_logits"], at[1]["class_logits"]
    assert largest_difference(*at) == 0


def test_the_mask_embedding_is_no_variable_of_a_task_without_targets(models):
    model = models("classifier")
    unused = model.backbone.mask_embedding
    assert any(v is unused for v in model.weights)
    for variables in (model.trainable_variables, model.trainable_weights):
        assert not any(v is unused for v in variables)
        assert len(variables) == len(model.weights) - 1


def test_a_task_learns_in_fit():
    model = make("classifier", num_layers=1, dropout=0.0, attention_dropout=0.0)
    features = features_of("classifier")
    labels = np.arange(ROWS) % 5
    model.compile(
        keras.optimizers.Adam(2e-2),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        run_eagerly=True,  # tracing takes longer than the training
    )
    history = model.fit(features, labels, epochs=10, verbose=0).history["loss"]
    assert history[-1] < 0.2 < 1 < history[0]


def test_a_loss_and_metrics_of_the_users_own():
    model = make("classifier", num_layers=1)
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    metric = keras.metrics.SparseTopKCategoricalAccuracy(2, name="best_two")
    model.compile(loss=loss, metrics=["accuracy", metric], run_eagerly=True)
    x, y = features_of("classifier"), np.arange(ROWS) % 5
    before = model.evaluate(x, y, verbose=0, return_dict=True)
    assert set(before) == {"loss", "accuracy", "best_two"}
    history = model.fit(x, y, epochs=2, verbose=0).history
    assert set(history) == set(before)
    after = model.evaluate(x, y, verbose=0, return_dict=True)
    assert after["loss"] < before["loss"]


def test_losses_of_probabilities_are_refused():
    losses = keras.losses
    model = make("classifier", num_layers=1)
    for loss, advice in (
        (
            "sparse_categorical_crossentropy",
            "Leave it out, or give keras.losses.SparseCategoricalCrossentropy"
            "(from_logits=True). Received: loss='sparse_categorical_crossent",
        ),
        ("bce", "BinaryCrossentropy(from_logits=True). Received: loss='bce'"),
        ("SparseCategoricalCrossentropy", "(from_logits=True)"),
        ("kl_divergence", "Leave it out. Received: loss='kl_divergence'"),
        (losses.SparseCategoricalCrossentropy(), "=sparse_categorical_cross"),
        (losses.categorical_crossentropy, "loss=categorical_crossentropy."),
        (losses.KLDivergence(), "Received: loss=kl_divergence."),
        ([losses.BinaryCrossentropy()], "BinaryCrossentropy(from_logits=T"),
    ):
        with pytest.raises(ValueError, match="`loss` must take logits") as told:
            model.compile(loss=loss)
        assert advice in str(told.value), loss
        assert not model.compiled
    for loss in (
        *("auto", None, "mse", "hinge", losses.Hinge()),
        losses.BinaryFocalCrossentropy(from_logits=True),
        lambda y_true, y_pred: y_pred,
    ):
        model.compile(loss=loss)
    config = {"optimizer": "sgd", "loss": "sparse_categorical_crossentropy"}
    with pytest.raises(ValueError, match="`loss` must take logits"):
        model.compile_from_config(config)
