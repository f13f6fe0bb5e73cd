"""The loss of each task over rows, its answers as JSON, and their metrics."""

import json
import math
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import KINDS
from data_pipeline.tasks.examples import ChoiceExample
from data_pipeline.tasks.examples import RankingExample
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.examples import TokensExample
from tests.support.oracle import as_numpy
from tests.support.oracle import small_backbone
from xlnet_tf.tasks import task_kind
from xlnet_tf.tasks.multi_label_classifier import XLNetMultiLabelClassifier
from xlnet_tf.training.settings import FinetuningSettings

RANDOM = np.random.default_rng(5)
LABELS = ("no", "yes", "maybe")
TAGS = ("O", "B-x", "I-x")


@pytest.fixture(scope="module")
def models():
    """dict of TaskKind around a model by kind of task; read only."""
    backbone = small_backbone(num_layers=1)
    arguments = {
        "classification": {"num_classes": 3, "labels": LABELS},
        "multi_label": {"num_classes": 3, "labels": LABELS},
        "token_classification": {"num_classes": 3, "labels": TAGS},
    }
    return {
        kind: around(task_kind(kind), backbone, **arguments.get(kind, {}))
        for kind in KINDS
    }


def around(kind, *arguments, **keywords):
    return kind(kind.model_class(*arguments, **keywords))


def encoded(**dense):
    dense = {name: np.array(value) for name, value in dense.items()}
    return types.SimpleNamespace(dense=dense, sequences={})


def test_every_kind_of_task_has_a_class():
    for kind in KINDS:
        assert task_kind(kind).name == kind
        for spec in map(find_task, ("rte", "sts-b", "race", "ner", "ranking")):
            if spec.kind == kind:
                names = task_kind(kind).metric_names
                assert {x.split("@")[0] for x in spec.metrics} <= set(names)
    with pytest.raises(ValueError, match="no such kind.*'sorting'"):
        task_kind("sorting")


def test_sums_of_losses_are_those_that_compile_takes(models):
    labels = {
        "classification": np.array([2, 0, 1, 1]),
        "multi_label": np.array(
            [[1, 0, 1], [0, 0, 0], [1, 1, 1], [0, 1, 0]], "float32"
        ),
        "regression": np.array([2.0, 0.5, -1.0, 1.0], "float32"),
        "multiple_choice": np.array([2, 0, 1, 1]),
        "ranking": np.array(
            [[2, 0, 1], [1, 0, 0], [0, 0, 0], [3, 3, 3]], "float32"
        ),
    }
    weights = np.array([1.0, 0.25, 0.0, 3.0], "float32")
    for kind, label in labels.items():
        shape = (4,) if kind == "regression" else (4, 3)
        outputs = RANDOM.normal(size=shape).astype("float32")
        features = {"label": label, "row_weight": weights}
        model = models[kind]
        loss, weight = as_numpy(model.loss_sums(outputs, features))
        mean = model.model.default_loss()(label, outputs, sample_weight=weights)
        assert weight == weights.sum(), kind
        assert loss / weight == pytest.approx(float(mean), rel=1e-6), kind
    outputs = np.log([[0.5, 0.25, 0.25], [0.125, 0.25, 0.625]])
    features = {"label": np.array([1, 0]), "row_weight": np.array([2.0, 1.0])}
    loss, _ = models["classification"].loss_sums(outputs, features)
    assert float(loss) == pytest.approx(2 * math.log(4) + math.log(8))


def test_the_loss_of_tokens_is_that_of_words(models):
    labels = np.array([[-1, 2, -1, 0], [1, -1, -1, -1]])
    outputs = RANDOM.normal(size=(2, 4, 3)).astype("float32")
    loss, weight = as_numpy(
        models["token_classification"].loss_sums(
            outputs, {"token_labels": labels}
        )
    )
    shares = np.log(np.exp(outputs).sum(-1))
    expected = sum(
        shares[row, place] - outputs[row, place, labels[row, place]]
        for row, place in ((0, 1), (0, 3), (1, 0))
    )
    assert weight == 3
    assert loss == pytest.approx(expected, rel=1e-5)


def test_a_batch_may_hold_more_than_the_model_reads(models):
    model = models["classification"]
    features = {"token_ids": np.array([[7, 8, 4, 3]])}
    more = {**features, "label": np.array([1]), "row_index": np.array([0])}
    outputs = model.model(features)
    np.testing.assert_array_equal(model.outputs_of(more), outputs)
    more = {
        "token_ids": np.array([[[7, 4, 8, 4, 3], [7, 4, 9, 4, 3]]]),
        "document_mask": np.array([[1, 0]]),
        "label": np.zeros((1, 2)),
    }
    assert as_numpy(models["ranking"].outputs_of(more))[0, 1] == -1e30


def decode(model, collected, rows, examples):
    collected = {name: np.array(x) for name, x in collected.items()}
    decoded = model.decode(collected, rows, examples)
    assert json.loads(json.dumps(decoded)) == decoded
    return decoded


def test_windows_of_a_text_are_averaged(models):
    examples = [TextExample("a", "", None, "yes"), TextExample("b", "")]
    rows = encoded(example=[0, 0, 1])
    half = math.log(0.5)
    logits = [[0, 2 * half, 0], [0, 0, 2 * half], [0, 3.0, 0]]
    found = decode(models["classification"], {"logits": logits}, rows, examples)
    assert [x["id"] for x in found] == ["a", "b"]
    assert [x["label"] for x in found] == ["no", "yes"]
    assert found[0]["probabilities"] == pytest.approx(
        {"no": 0.5, "yes": 0.25, "maybe": 0.25}
    )
    found = decode(
        models["regression"], {"logits": [1.0, 2.0, 7.5]}, rows, examples
    )
    assert found == [{"id": "a", "score": 1.5}, {"id": "b", "score": 7.5}]


def test_metrics_of_classes_and_numbers(models):
    examples = [TextExample(str(i), "", None, x) for i, x in enumerate("0110")]
    decoded = [
        {"id": x.id, "label": label, "probabilities": {"0": 0.5, "1": 0.5}}
        for x, label in zip(examples, "0111", strict=True)
    ]
    spec = find_task("mrpc")
    found = models["classification"].score(spec, examples, decoded, ("0", "1"))
    assert list(found) == list(spec.metrics)
    assert found["accuracy"] == 0.75 and found["f1"] == pytest.approx(0.8)
    turned = models["classification"].score(spec, examples, decoded, "10")
    assert turned["f1"] == pytest.approx(2 / 3)  # of the class "0"

    decoded = [{"id": x.id, "score": 2.0 * int(x.label)} for x in examples]
    found = models["regression"].score(find_task("sts-b"), examples, decoded)
    errors = ("mean_absolute_error", "root_mean_squared_error")
    apart = [found.pop(name) for name in errors]  # 0 or 1 of each
    assert apart == pytest.approx([0.5, math.sqrt(0.5)])
    assert found.pop("r2") == pytest.approx(-1.0)
    assert found == pytest.approx({"pearson": 1.0, "spearman": 1.0})
    same = [x._replace(label="1") for x in examples]
    with pytest.warns(UserWarning, match="undefined, and given as 0"):
        found = models["regression"].score(find_task("sts-b"), same, decoded)
    assert found["r2"] == 0


def test_any_number_of_classes(models):
    model = models["multi_label"]
    examples = [
        TextExample("a", "", None, ("no", "yes")),
        TextExample("b", "", None, ()),
        TextExample("c", "", None, ("maybe",)),
    ]
    third = math.log(0.5)  # of a probability
    logits = [[0.0, 5, third], [third, third, third], [5, -5, third]]
    rows = encoded(example=[0, 1, 2])
    decoded = decode(model, {"logits": logits}, rows, examples)
    assert [x["labels"] for x in decoded] == [["no", "yes"], [], ["no"]]
    assert decoded[1] == {
        "id": "b",
        "labels": [],
        "threshold": 0.5,
        "probabilities": pytest.approx(dict.fromkeys(LABELS, 1 / 3)),
    }
    spec = find_task("multi-label")
    found = model.score(spec, examples, decoded, LABELS)
    assert list(found) == ["micro_f1", "macro_f1", "average_precision"]
    assert found["micro_f1"] == pytest.approx(2 / 3)  # 2 of 3, and of 3
    assert found["macro_f1"] == pytest.approx((2 / 3 + 1 + 0) / 3)
    # By probability: yes, a wrong one, no, and five of which one is right.
    assert found["average_precision"] == pytest.approx(
        (1 / 2 + 2 / 3 + 3 / 8) / 3
    )
    none = [x._replace(label=()) for x in examples]
    assert set(model.score(spec, none, decoded).values()) == {0}
    # The loss is the mean over the classes.
    outputs = np.array([[0.0, math.log(3), -math.log(3)]], "float32")
    features = {
        "label": np.array([[1, 1, 1]], "float32"),
        "row_weight": np.array([2.0], "float32"),
    }
    loss, weight = as_numpy(model.loss_sums(outputs, features))
    expected = -2 * (math.log(0.5) + math.log(0.75) + math.log(0.25)) / 3
    assert (loss, weight) == (pytest.approx(expected), 2)


def test_several_labels_by_name(models):
    model = models["multi_label"].model
    found = model.numbered([["no"], [], ["maybe", "yes"]])
    np.testing.assert_array_equal(found, [[1, 0, 0], [0, 0, 0], [0, 1, 1]])
    numbers = np.eye(3)
    assert model.numbered(numbers) is numbers
    assert model.numbered([[0, 1, 1]]) == [[0, 1, 1]]
    with pytest.raises(ValueError, match="no, yes, maybe. Received: '.', exam"):
        model.numbered([["no"], ["?"]])


def test_a_model_of_several_labels_is_kept(models, tmp_path):
    made = XLNetMultiLabelClassifier(
        small_backbone(num_layers=1), 3, labels=LABELS, threshold=0.25
    )
    features = {"token_ids": np.array([[17, 21, 4, 3]])}
    made.save_to_preset(tmp_path / "preset")
    made.save(tmp_path / "model.keras")
    kept = (
        XLNetMultiLabelClassifier.from_preset(tmp_path / "preset"),
        xlnet_tf.load(tmp_path / "preset"),
        keras.models.load_model(tmp_path / "model.keras"),
    )
    for model in kept:
        assert type(model) is XLNetMultiLabelClassifier
        assert model.labels == list(LABELS) and model.threshold == 0.25
        np.testing.assert_allclose(model(features), made(features), atol=1e-6)
    logits = np.array([[0.0, -1, -2], [-2, -2, -2]])  # 0.27 of -1
    made.predict = lambda x, *arguments: logits
    assert made.predict_labels(["a", "b"]) == [["no", "yes"], []]
    assert made.predict_labels(["a", "b"], threshold=0.4) == [["no"], []]
    with pytest.raises(ValueError, match="threshold"):
        XLNetMultiLabelClassifier(made.backbone, 3, threshold=1.5)


def test_outputs_that_are_not_numbers_are_refused(models):
    message = "1 of 2 examples are not numbers: the training has diverged"
    texts = [TextExample(str(i), "", None, "yes") for i in range(2)]
    options = [ChoiceExample(str(i), "", "", ("a", "b", "c"), 1) for i in "ab"]
    documents = [RankingExample("q", "", str(i), "", 1.0) for i in range(2)]
    windows = encoded(example=[0, 1])
    ranked = encoded(example=[[0, 1]], document_mask=[[1, 1]])
    wrong = math.nan
    for kind, spec, logits, rows, examples in (
        ("classification", "rte", [[1.0, 2, 3], [1, 2, wrong]], windows, texts),
        ("regression", "sts-b", [1.0, math.inf], windows, texts),
        (
            "multiple_choice",
            "race",
            [[1.0, 2, 3], [1, 2, wrong]],
            None,
            options,
        ),
        ("ranking", "ranking", [[wrong, 1.0]], ranked, documents),
    ):
        model = models[kind]
        collected = {"logits": np.array(logits)}
        decoded = model.decode(collected, rows, examples)
        if kind == "regression":
            examples = [x._replace(label=1.0) for x in examples]
        with pytest.raises(ValueError, match=message):
            model.score(find_task(spec), examples, decoded, LABELS)


def test_answers_to_options_by_group(models):
    model = models["multiple_choice"]
    examples = [
        ChoiceExample("a", "", "", ("x", "y"), 1, "middle"),
        ChoiceExample("b", "", "", ("x", "y"), 1, "high"),
    ]
    logits = [[0, math.log(3)], [math.log(4), 0]]
    decoded = decode(model, {"logits": logits}, None, examples)
    assert decoded == [
        {
            "id": "a",
            "answer": 1,
            "option": "y",
            "probabilities": pytest.approx([0.25, 0.75]),
        },
        {
            "id": "b",
            "answer": 0,
            "option": "x",
            "probabilities": pytest.approx([0.8, 0.2]),
        },
    ]
    found = model.score(find_task("race"), examples, decoded)
    assert found == {"accuracy": 0.5, "accuracy_middle": 1, "accuracy_high": 0}
    examples = [x._replace(group="") for x in examples]
    assert list(model.score(find_task("dream"), examples, decoded)) == [
        "accuracy"
    ]


def test_documents_are_ranked_by_query(models):
    """Queries in two rows, of which fillers and order do not count."""
    model = models["ranking"]
    examples = [
        RankingExample(query, "", name, "", relevance)
        for query, name, relevance in (
            ("a", "1", 1.0),
            ("b", "1", 0.0),
            ("a", "2", None),
            ("b", "2", 2.0),
            ("a", "3", 1.0),
        )
    ]
    rows = encoded(
        example=[[4, 0], [2, 2], [3, 1]], document_mask=[[1, 1], [1, 0], [1, 1]]
    )
    logits = [[5.0, 1.0], [2.0, 99.0], [4.0, 3.0]]
    decoded = decode(model, {"logits": logits}, rows, examples)
    assert decoded[2] == {"query_id": "a", "document_id": "2", "score": 2.0}
    assert [x["score"] for x in decoded] == [1, 3, 2, 4, 5]
    first = (1 + 1 / 2) / (1 + 1 / math.log2(3))
    found = model.score(find_task("ranking"), examples, decoded)
    assert found["ndcg@10"] == pytest.approx((first + 1) / 2)
    assert list(found) == ["ndcg@10", "ndcg@20"]


def test_words_that_were_not_read_have_no_tag(models):
    model = models["token_classification"]
    examples = [
        TokensExample("a", ("New", "York", "is"), ("B-x", "I-x", "O")),
        TokensExample("b", ("big",), ("B-x",)),
    ]
    first = tf.ragged.constant([[1, 0, 1, 0], [1, 0, 0]], tf.uint8)
    rows = encoded()
    rows.sequences["is_first_piece"] = first
    tags = [[1, 0, 2, 0, 9], [0, 1, 1, 1, 9]]
    decoded = decode(model, {"tags": tags}, rows, examples)
    words = ["New", "York", "is"]
    assert decoded == [
        {"id": "a", "words": words, "tags": ["B-x", "I-x", "O"]},
        {"id": "b", "words": ["big"], "tags": ["O"]},
    ]
    found = model.score(find_task("ner"), examples, decoded, TAGS)
    assert found == {"entity_f1": pytest.approx(2 / 3)}


def test_tags_are_collected_in_one_length(models):
    kind = models["token_classification"]
    model = kind.model
    model.preprocessor = types.SimpleNamespace(
        sequence_length=6,
        layout="xlnet",
        tokenizer=types.SimpleNamespace(vocabulary_size=9),
    )
    outputs = keras.ops.one_hot(np.array([[2, 0, 1], [1, 1, 0]]), 3)
    tags = as_numpy(kind.collect(outputs)["tags"])
    model.preprocessor = None
    np.testing.assert_array_equal(
        tags, [[2, 0, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0]]
    )


def test_settings_of_a_run():
    """Constructor, preprocessor and encoding, by task and config."""
    lengths = {"segment_length": 24, "memory_length": 24, "reuse_length": 0}
    classes = {"num_classes": 3, "labels": LABELS}
    memory = {"long_documents": "memory"}
    windows = {"long_documents": "windows"}
    for name, settings, arguments, length, encoding in (
        ("ner", {}, classes, 24, {}),
        ("race", {}, {}, 24, {}),
        ("ranking", {"num_documents": 5}, {}, 24, {"num_documents": 5}),
        ("rte", {}, {**classes, "segment_length": None}, 24, {}),
        ("rte", memory, {**classes, **lengths}, 8 * 24, {}),
        ("regression", {**memory, "document_length": 100}, lengths, 100, {}),
        ("regression", windows, {"segment_length": None}, 24, {"stride": 12}),
        (
            "regression",
            {**windows, "stride": 5},
            {"segment_length": None},
            24,
            {"stride": 5},
        ),
    ):
        spec = find_task(name)
        config = FinetuningSettings(sequence_length=24, **settings)
        task = task_kind(spec.kind)
        assert task.arguments_for(spec, config, LABELS) == arguments, name
        found = task.preprocessor_settings(spec, config)
        filled = {"fill_blanks": True} if name == "race" else {}
        assert found == {"sequence_length": length, **filled}, name
        assert task.encoding_arguments(spec, config) == encoding, name
    config = FinetuningSettings()
    found = task.preprocessor_settings(spec, config)["sequence_length"]
    assert found == spec.sequence_length


def test_long_documents_are_texts_with_a_class_or_number():
    config = FinetuningSettings(long_documents="windows")
    for name in ("ner", "race", "squad-2.0", "ranking"):
        spec = find_task(name)
        with pytest.raises(ValueError, match=f"'windows' for the task {name}"):
            task_kind(spec.kind).arguments_for(spec, config, LABELS)
