"""Exports answer as their models, hold what servers need, and appear whole."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_text

import saved_models
import xlnet_tf
from data_pipeline.base.checksums import add_checksums
from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.files import copy_tree
from data_pipeline.tokenization.tokenizer import Tokenizer
from saved_models import export
from saved_models import model_card
from saved_models import warm_up
from saved_models.client.operations import check_operations
from saved_models.export import export_model
from saved_models.settings import ExportSettings
from saved_models.signatures import signatures_for
from saved_models.signatures.fill_in import PretrainerSignatures
from saved_models.signatures.signature import Signature
from saved_models.versions import latest_version
from saved_models.versions import next_version
from tests.support import task_export_fixtures as tasks
from tests.support.export_fixtures import ALLOWED_TEXT_OPS
from tests.support.export_fixtures import PIECES
from tests.support.export_fixtures import PYTHON_OPS
from tests.support.export_fixtures import TEXT_OPS
from tests.support.export_fixtures import all_ops
from tests.support.export_fixtures import ask
from tests.support.export_fixtures import check_fill_in
from tests.support.export_fixtures import check_no_rows
from tests.support.export_fixtures import foreign
from tests.support.export_fixtures import log_probabilities
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.samples import tiny_model

PACKAGE = pathlib.Path(model_card.__file__).parent
TEXTS = ["Ba co <mask> fi, 9 code <mask>", "", "größer \u2028 <mask>"]

pytestmark = pytest.mark.xdist_group("exports")


@pytest.fixture(params=["pretrainer", "classifier"])
def exported(request):
    """Path and signatures of an export."""
    name = request.param
    return (
        request.getfixturevalue(f"{name}_export"),
        request.getfixturevalue(f"{name}_signatures"),
    )


def test_a_pretrainer_answers_as_the_model(pretrainer_signatures):
    for name in ("serving_default", "fill_in"):
        answer = ask(pretrainer_signatures[name], TEXTS)
        assert answer["count"].tolist() == [2, 0, 1]
        for row in (0, 2):
            expected = log_probabilities(shared_model(), TEXTS[row])
            check_fill_in(answer, row, expected)


def test_a_classifier_answers_as_the_model(classifier_signatures):
    """In buckets, in batches of two, and as it was fine-tuned."""
    task = tasks.shared_task("classifier")
    for signature, x in (
        ("serving_default", {"text": tasks.TEXTS}),
        ("pairs", {"text": tasks.TEXTS, "text_pair": tasks.OTHERS}),
    ):
        logits = tasks.predict(task, x)
        answer = tasks.ask(classifier_signatures[signature], **x)
        tasks.close(answer["scores"], tasks.softmax(logits))
        best = [tasks.LABELS[i] for i in logits.argmax(-1)]
        assert tasks.decoded(answer["label"]) == best


def test_no_rows_give_no_answers(exported):
    check_no_rows(exported[1])


def test_signatures_have_the_documented_names_and_types(pretrainer_signatures):
    text = {"text": tf.string}
    ids = dict.fromkeys(["token_ids", "segment_ids", "padding_mask"], tf.int32)
    filled = {
        "pieces": tf.string,
        "token_ids": tf.int32,
        "log_probabilities": tf.float32,
        "count": tf.int32,
    }
    vectors = dict.fromkeys(["embeddings", "mean_embedding"], tf.float32)
    encoded_text = {"token_ids": tf.int32, "padding_mask": tf.int32}
    memory = {"memories": tf.float32, "memory_mask": tf.int32}
    expected = {
        "serving_default": (text, filled),
        "fill_in": (text, filled),
        "embed": (text, vectors | encoded_text),
        "fill_in_ids": (
            ids | {"target_positions": tf.int32},
            {"log_probabilities": tf.float32},
        ),
        "embed_ids": (ids, vectors),
        "document_segment": (
            text | memory,
            vectors | encoded_text | memory | {"dropped_tokens": tf.int32},
        ),
        "document_segment_ids": (encoded_text | memory, vectors | memory),
    }
    found = {}
    for name, function in pretrainer_signatures.items():
        _, inputs = function.structured_input_signature
        outputs = function.structured_outputs
        assert all(spec.shape[0] is None for spec in inputs.values())
        # `saved_model_cli show` knows the rank of everything.
        assert all(spec.shape.rank for spec in outputs.values())
        found[name] = tuple(
            {key: spec.dtype for key, spec in specs.items()}
            for specs in (inputs, outputs)
        )
    assert found == expected


def test_only_ops_that_a_server_has(exported, tmp_path):
    directory, _ = exported
    ops = all_ops(directory)
    assert {"Einsum", "GatherV2"} <= ops  # functions were read
    assert TEXT_OPS <= foreign(ops) <= ALLOWED_TEXT_OPS
    assert not ops & PYTHON_OPS
    check_operations(directory)

    class Module(tf.Module):
        @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
        def call(self, text):
            words = tensorflow_text.WhitespaceTokenizer().tokenize(text)
            return tf.numpy_function(len, [words.flat_values], tf.int64)

    # Others would be seen.
    tf.saved_model.save(Module(), tmp_path / "1")
    ops = all_ops(tmp_path / "1")
    assert any(op.startswith("TFText>") for op in foreign(ops))
    assert ops & PYTHON_OPS


def test_the_card_and_its_examples(exported):
    directory, signatures = exported
    extra = directory / "assets.extra"
    card = json.loads((extra / "model_card.json").read_text("utf-8"))
    is_task = directory.name == "1"
    task = tasks.shared_task("classifier")
    model = task if is_task else shared_model()
    assert card["model"] == type(model).__name__
    assert card["vocabulary"] == {
        "sha256": tiny_tokenizer().digest,
        "size": PIECES,
        "lowercase": False,
        "keep_accents": False,
    }
    assert card["config"]["vocabulary_size"] == PIECES
    if not is_task:
        assert card["config"]["memory_length"] == 6  # as it was
        assert card["num_parameters"] == 11652
        assert card["training"] is None
    assert set(card["signatures"]) == set(signatures)
    for name, described in card["signatures"].items():
        function = signatures[name]
        specs = function.structured_input_signature[1]
        for side, expected in (
            ("inputs", specs),
            ("outputs", function.structured_outputs),
        ):
            assert {
                key: (value["dtype"], value["shape"])
                for key, value in described[side].items()
            } == {
                key: (spec.dtype.name, spec.shape.as_list())
                for key, spec in expected.items()
            }
            assert all(v["meaning"] for v in described[side].values())
        request = described["example_request"]
        assert request["signature_name"] == name
        answer = function(
            **{
                key: tf.constant(value, specs[key].dtype)
                for key, value in request["inputs"].items()
            }
        )
        assert {len(value) for value in answer.values()} == {1}


def test_settings_can_be_given_back(classifier_export):
    file = classifier_export / "assets.extra" / "settings.json"
    settings = ExportSettings.read(file)
    assert settings == ExportSettings(
        sequence_length=24, seq_length_buckets=(12, 24), max_batch=2
    )
    card = json.loads(file.with_name("model_card.json").read_text("utf-8"))
    memory = {"memory_length": settings.memory_of(shared_model().config)}
    expected = json.loads(json.dumps(settings.to_dict()))
    assert {**card["export"], **memory} == {**expected, **memory}
    assert ExportSettings.read(file, {"max_batch": 3}).max_batch == 3


def test_another_format_is_refused(classifier_export, tmp_path):
    path = shutil.copytree(classifier_export, tmp_path / "copy" / "1")
    name = "assets.extra/model_card.json"
    card = json.loads((path / name).read_text("utf-8"))
    assert card.pop("format_version") == 1
    for version, shown in ({}, "no form"), ({"format_version": 2}, "the .* 2,"):
        (path / name).write_text(json.dumps({**card, **version}))
        add_checksums(path, [name])
        message = f"1/{name} has {shown}.* reads version 1 alone. Write it"
        with pytest.raises(ValueError, match=message):
            saved_models.load(path.parent)


def test_training_facts(tmp_path):
    assert model_card.training_facts(None) is None
    assert model_card.training_facts(tmp_path) is None
    run = {"format_version": 1, "steps": 9}
    (tmp_path / "run.json").write_text(json.dumps(run), encoding="utf-8")
    assert model_card.training_facts(tmp_path) == {"run": run}
    lines = [
        {"kind": "train", "step": 4, "loss": 5.0},
        {"kind": "eval", "step": 4, "loss": 5.5},
        {"kind": "train", "step": 9, "loss": 3.0},
    ]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    (tmp_path / "metrics.jsonl").write_text(text + '{"kind": "tr')
    expected = {"run": run, "last": lines[2], "last_evaluation": lines[1]}
    for source in (tmp_path, tmp_path / "preset", tmp_path / "model.keras"):
        assert model_card.training_facts(source) == expected


def records(directory):
    file = directory / "assets.extra" / "tf_serving_warmup_requests"
    return [r.numpy() for r in tf.data.TFRecordDataset(str(file))]


def test_warm_up_requests(exported):
    directory, signatures = exported
    found = records(directory)
    name = directory.parent.name.encode()
    for key in signatures:
        # ModelSpec: the name, then field 3 with its length.
        spec = b"\n" + bytes([len(name)]) + name
        spec += b"\x1a" + bytes([len(key)]) + key.encode()
        count = sum(spec in record for record in found)
        # One for each bucket, and of texts the example too.
        buckets = 2 if directory.name == "1" else 0
        assert count == (buckets + (key != "ids") if buckets else 1)
    # Zeros of a memory are not written out.
    assert max(map(len, found)) < 500
    prediction_log_pb2 = pytest.importorskip(
        "tensorflow_serving.apis.prediction_log_pb2",
        reason="needs tensorflow-serving-api",
    )
    for record in found:
        log = prediction_log_pb2.PredictionLog.FromString(record)
        request = log.predict_log.request
        inputs = {
            key: tf.constant(tf.make_ndarray(tensor))
            for key, tensor in request.inputs.items()
        }
        outputs = signatures[request.model_spec.signature_name](**inputs)
        assert all(len(value) == 1 for value in outputs.values())


def test_the_bytes_are_those_of_the_official_messages():
    predict_pb2 = pytest.importorskip(
        "tensorflow_serving.apis.predict_pb2",
        reason="needs tensorflow-serving-api",
    )
    from tensorflow_serving.apis import prediction_log_pb2

    for inputs in (
        {"text": np.array([b"ba \xff", b"", "größer".encode()])},
        {"ids": np.array([[1, 2]], "int32"), "a": np.zeros([2, 3], "f4")},
        {"text": np.array([b"x" * 300])},
        {"memories": np.arange(6, dtype="float32").reshape(1, 2, 3)},
    ):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "tiny"
        request.model_spec.signature_name = "embed"
        for name, array in inputs.items():
            request.inputs[name].CopyFrom(warm_up.tensor_proto(array))
            back = tf.make_ndarray(request.inputs[name])
            np.testing.assert_array_equal(back, array)
        log = prediction_log_pb2.PredictionLog(
            predict_log=prediction_log_pb2.PredictLog(request=request)
        )
        assert warm_up.prediction_log("tiny", "embed", inputs) == (
            log.SerializeToString(deterministic=True)
        )


def test_signatures_that_no_server_would_take(tmp_path):
    signature = Signature(len, {}, "", {}, [{}] * 1001)
    with pytest.raises(ValueError, match="1001 warm-up requests.*reads 1000"):
        warm_up.write_requests(tmp_path, "tiny", {"a": signature})
    spec = {"text_bytes": tf.TensorSpec([None], tf.string)}
    with pytest.raises(ValueError, match="'text_bytes' must not end in '_byt"):
        Signature(tf.identity, spec, "", {}, [])
    text = {"text": tf.TensorSpec([None], tf.string)}
    bad = Signature(lambda text: {"a_bytes": text}, text, "", {}, [])
    with pytest.raises(ValueError, match="'a_bytes' must not end in '_bytes'"):
        bad.concrete()
    silent = Signature(lambda text: {"a": text}, text, "", {"text": "x"}, [])
    with pytest.raises(ValueError, match="needs a line in `meaning`.*: a"):
        silent.concrete()
    with pytest.raises(ValueError, match="an example must give text"):
        Signature(tf.identity, text, "", {}, [{"a": 1}])


@pytest.fixture
def without_graphs(monkeypatch):
    """Makes an export quick: a file of one word for the graph."""

    def save(module, path, functions):
        assert functions == {}
        tf.io.gfile.makedirs(path)
        tf.io.write_file(f"{path}/saved_model.pb", "graph")

    monkeypatch.setattr(PretrainerSignatures, "signatures", lambda self: {})
    monkeypatch.setattr(tf.saved_model, "save", save)


def test_a_server_sees_the_old_version_or_the_whole_new_one(
    tmp_path, monkeypatch, without_graphs
):
    name = tmp_path / "new" / "tiny"
    path = export_model(shared_model(), tiny_tokenizer(), next_version(name))
    assert path == name / "1"
    assert [p.name for p in name.iterdir()] == ["1"]
    seen = []

    def look(module, path, functions):
        tf.io.gfile.makedirs(path)
        seen.append(latest_version(name))
        tf.io.write_file(f"{path}/saved_model.pb", "new graph")
        seen.append(latest_version(name))

    monkeypatch.setattr(tf.saved_model, "save", look)
    export_model(shared_model(), tiny_tokenizer(), next_version(name))
    assert seen == [name / "1"] * 2
    assert latest_version(name) == name / "2"
    assert sorted(f.name for f in (name / "2").rglob("*")) == [
        "SHA256SUMS",
        "assets.extra",
        "batching_params.pbtxt",
        "model_card.json",
        "saved_model.pb",
        "settings.json",
        "tf_serving_warmup_requests",
    ]


def test_an_existing_version_is_kept_or_replaced(
    tmp_path, monkeypatch, without_graphs
):
    directory = tmp_path / "1"
    directory.mkdir()
    (directory / "old").write_text("old")

    def export(**options):
        export_model(shared_model(), tiny_tokenizer(), directory, **options)

    with pytest.raises(FileExistsError, match="1 exists. Give the next ver"):
        export()
    save = tf.saved_model.save
    for error in (OSError, KeyboardInterrupt):

        def stop(module, path, functions, error=error):
            save(module, path, functions)
            raise error("stopped")

        monkeypatch.setattr(tf.saved_model, "save", stop)
        with pytest.raises(error, match="stopped"):
            export(overwrite=True)
        assert [p.name for p in tmp_path.rglob("*")] == ["1", "old"]
    monkeypatch.setattr(tf.saved_model, "save", save)
    export(overwrite=True)
    assert not (directory / "old").exists()
    assert (directory / "saved_model.pb").is_file()
    assert [p.name for p in tmp_path.iterdir()] == ["1"]


def test_of_two_exports_at_once_one_is_refused(
    tmp_path, monkeypatch, without_graphs
):
    save = tf.saved_model.save
    directory = next_version(tmp_path / "tiny")

    def export(**options):
        export_model(shared_model(), tiny_tokenizer(), directory, **options)

    def other_first(module, path, functions):
        monkeypatch.setattr(tf.saved_model, "save", save)
        export(num_candidates=3)
        save(module, path, functions)

    def candidates():
        file = directory / "assets.extra" / "settings.json"
        verify_checksums(directory)
        return ExportSettings.read(file).num_candidates

    monkeypatch.setattr(tf.saved_model, "save", other_first)
    with pytest.raises(FileExistsError, match="1 exists. Give the next versi"):
        export(num_candidates=4)
    assert candidates() == 3

    def other_overwrites(module, path, functions):
        monkeypatch.setattr(tf.saved_model, "save", save)
        export(num_candidates=5, overwrite=True)
        save(module, path, functions)

    monkeypatch.setattr(tf.saved_model, "save", other_overwrites)
    # Of two that overwrite the last one is left, whole.
    export(num_candidates=6, overwrite=True)
    assert candidates() == 6
    assert [p.name for p in directory.parent.iterdir()] == ["1"]


def test_another_backend_exports_by_a_process_of_tensorflow(
    tmp_path, monkeypatch, without_graphs
):
    """Which gets the model and all settings, and whose error is told."""
    started, models = [], []

    def write(model, *others, **settings):
        models.append(model)
        return export_model(model, *others, **settings)

    def run(command, env, input, **others):
        started.append(env["KERAS_BACKEND"])
        with monkeypatch.context() as patch:
            patch.setattr("keras.backend.backend", lambda: "tensorflow")
            patch.setattr(export, "export_model", write)
            export.export_preset(json.loads(input))
        return subprocess.CompletedProcess(command, 0, stderr="")

    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    monkeypatch.setattr(subprocess, "run", run)
    place = tmp_path / "tiny" / "1"
    settings = {"num_candidates": 6, "sequence_length": 16}
    config, tokenizer = shared_model().config, tiny_tokenizer()
    backbone = xlnet_tf.XLNetBackbone(config, dtype="mixed_bfloat16")
    model = xlnet_tf.XLNetPretrainer(backbone)
    assert export_model(model, tokenizer, place, **settings) == place
    card = json.loads((place / "assets.extra/model_card.json").read_text())
    assert card["model"] == "XLNetPretrainer"
    assert models[0].backbone.dtype_policy.name == "mixed_bfloat16"
    assert settings.items() <= card["export"].items()
    assert started == ["tensorflow"]

    def fail(command, **others):
        text = "noise\nerror: No space left\n"
        return subprocess.CompletedProcess(command, 1, stderr=text)

    monkeypatch.setattr(subprocess, "run", fail)
    with pytest.raises(RuntimeError, match="1 ended .* status 1: No space"):
        export_model(model, tokenizer, place, overwrite=True)


def test_another_process_does_not_know_a_class_of_ones_own(
    tmp_path, monkeypatch
):
    class Mine(xlnet_tf.XLNetPretrainer):
        pass

    class Own(xlnet_tf.objectives.Causal):
        name = "own"

    backbone = xlnet_tf.XLNetBackbone(shared_model().config)
    causal = {**shared_model().config.to_dict(), "attention_type": "causal"}
    causal = xlnet_tf.XLNetBackbone(xlnet_tf.XLNetConfig(**causal))
    monkeypatch.setattr("keras.backend.backend", lambda: "jax")
    for model, name in (
        (Mine(backbone), "Mine"),
        (xlnet_tf.XLNetPretrainer(causal, objective=Own()), "Own"),
    ):
        with pytest.raises(ValueError, match=f"does not know the class {name}"):
            export_model(model, tiny_tokenizer(), tmp_path / "tiny" / "1")


def test_a_process_that_exports_ends_with_its_parent():
    pipe, end = os.pipe()
    command = [sys.executable, "-c", export._PROGRAM, str(pipe)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, pass_fds=[pipe]
    ) as process:
        os.close(end)
        assert process.wait(60) == 1
    os.close(pipe)


def test_exports_in_buckets(
    bucket, tmp_path, monkeypatch, classifier_export, without_graphs
):
    """Written, listed and read there, and nothing is made beside them."""
    monkeypatch.chdir(tmp_path)
    export = f"{bucket}/tiny"
    for version in ("1", "2"):
        directory = next_version(export)
        export_model(shared_model(), tiny_tokenizer(), directory)
        assert str(latest_version(export)) == f"{export}/{version}"
    verify_checksums(f"{export}/2")
    with pytest.raises(FileExistsError, match="ram://.*1 exists. Give the ne"):
        export_model(shared_model(), tiny_tokenizer(), f"{export}/1")
    copy_tree(classifier_export, f"{bucket}/served/1")
    predictor = saved_models.load(f"{bucket}/served")
    assert predictor(["ba co"])["label"].shape == (1,)
    assert not list(tmp_path.iterdir())


def test_what_an_export_says_of_batches(tmp_path, without_graphs):
    for settings, rows in (({}, 32), ({"max_batch": 64}, 64)):
        directory = next_version(tmp_path)
        export_model(shared_model(), tiny_tokenizer(), directory, **settings)
        rules = (directory / "batching_params.pbtxt").read_text()
        assert f"max_execution_batch_size {{ value: {rows} }}" in rules
    # Requests with different numbers of these cannot be joined.
    for name in ("choice", "ranker"):
        assert not signatures_for(tasks.shared_task(name)).joins_requests
    assert signatures_for(tasks.shared_task("tagger")).joins_requests


def test_what_is_refused_before_anything_is_written(tmp_path, without_graphs):
    for name, settings, message in (
        ("demo", {}, "must end in a version number.*demo/1"),
        ("1.0", {}, "must end in a version number"),
        ("-1", {}, "must end in a version number"),
        ("\u00b2", {}, "must end in a version number"),
        ("1", {"num_candidates": 0}, "`num_candidates` must be a positive in"),
        ("1", {"num_candidates": 301}, "`num_candidates` .* between 1 and 291"),
        ("1", {"stride": 3}, "XLNetPretrainer reads no questions: leave --st"),
        ("1", {"window_stride": 3}, "is for classifiers and regressors of te"),
        (PACKAGE / "serving" / "1", {}, "must not be named serving in .*code"),
        (PACKAGE / "client" / "1", {}, "must not be named client in"),
        (PACKAGE / "signatures" / "1", {}, "must not be named signatures"),
    ):
        with pytest.raises(ValueError, match=message):
            export_model(
                shared_model(), tiny_tokenizer(), tmp_path / name, **settings
            )
    other = Tokenizer.from_model_proto(tiny_model(vocab_size=310))
    with pytest.raises(
        ValueError, match="tokenizer has 310 pieces and the model 300 tokens"
    ):
        export_model(shared_model(), other, tmp_path / "1")
    assert not list(tmp_path.iterdir())
    # Elsewhere these are names like others.
    for name in ("serving", "saved_models/client"):
        export_model(shared_model(), tiny_tokenizer(), tmp_path / name / "1")
