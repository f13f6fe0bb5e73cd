"""`python -m saved_models.export` as it is typed."""

import json
import re
import shutil
import zipfile

import keras
import pytest

import saved_models
import xlnet_tf
from data_pipeline.base.files import copy_tree
from saved_models import export
from saved_models import versions
from saved_models.settings import ExportSettings
from tests.support import artefacts
from tests.support.commands import refused
from tests.support.commands import run
from tests.support.equality import assert_equal
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.record_fixtures import flip_byte
from tests.support.task_export_fixtures import TASKS
from tests.support.task_export_fixtures import shared_task
from tests.support.task_export_fixtures import write_run
from xlnet_tf.loading import load_tokenizer
from xlnet_tf.weights.hugging_face.writer import save_hugging_face


@pytest.fixture(scope="module")
def preset(tmp_path_factory):
    path = tmp_path_factory.mktemp("models") / "preset"
    shared_model().save_to_preset(path, tokenizer=tiny_tokenizer())
    return path


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("run")
    (folder / "spiece.model").write_bytes(tiny_tokenizer().model_proto)
    shared_model().save(folder / "model.keras")
    return folder / "model.keras"


@pytest.fixture
def exports(monkeypatch):
    """What would be exported, without the time that tracing takes."""
    calls = []
    monkeypatch.setattr(
        export,
        "export_model",
        lambda *args, **options: calls.append((*args, options)) or args[2],
    )
    return calls


def exported(exports, *arguments):
    """What the command exports: model, tokenizer, directory, settings."""
    assert run(export.main, *arguments) == 0
    *found, options = exports.pop()
    return (*found, options)


def test_the_public_names():
    assert dir(saved_models)
    assert saved_models.export_model is export.export_model
    assert {"connect", "export_model", "load"} == set(saved_models.__all__)
    assert all(getattr(saved_models, x).__doc__ for x in saved_models.__all__)
    with pytest.raises(
        AttributeError, match="No saved_models attribute exports"
    ):
        saved_models.exports  # noqa: B018


def test_what_is_exported_and_where(capsys, exports, keras_file, tmp_path):
    file = tmp_path / "settings.json"
    file.write_text('{"precision": "int8", "max_batch": 4}')
    model, tokenizer, directory, options = exported(
        exports,
        *("--model", keras_file, "--output", tmp_path / "demo"),
        *("--num-candidates", "2", "--overwrite", "--max-batch", "8"),
        *("--seq-length-buckets", "16,64", "--settings", file),
    )
    assert capsys.readouterr().out == f"wrote {tmp_path / 'demo' / '1'}\n"
    assert_equal(model.weights, shared_model().weights)
    assert tokenizer.digest == tiny_tokenizer().digest
    assert directory == tmp_path / "demo" / "1"
    assert options.pop("overwrite") is True
    assert options.pop("source") == str(keras_file)
    assert ExportSettings(**options) == ExportSettings(
        sequence_length=64,
        num_candidates=2,
        seq_length_buckets=(16, 64),
        precision="int8",
        max_batch=8,
    )
    # The directory that holds model.keras.
    model, *_ = exported(
        exports, "--model", keras_file.parent, "--output", tmp_path
    )
    assert_equal(model.weights, shared_model().weights)


def test_models_in_buckets(bucket, monkeypatch, exports, keras_file, tmp_path):
    monkeypatch.chdir(tmp_path)
    shared_task("classifier").save_to_preset(tmp_path / "run" / "best")
    for source, name, cls in (
        (keras_file.parent, "run", type(shared_model())),
        (tmp_path / "run" / "best", "tuned/best", xlnet_tf.XLNetTextClassifier),
    ):
        copy_tree(source, f"{bucket}/{name}")
        model, tokenizer, directory, options = exported(
            exports,
            *("--model", f"{bucket}/{name}", "--output", f"{bucket}/served"),
        )
        assert type(model) is cls
        assert tokenizer.digest == tiny_tokenizer().digest
        assert str(directory) == f"{bucket}/served/1"
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_the_preset_says_whether_text_is_lower_cased(exports, preset, tmp_path):
    copy = tmp_path / "preset"
    shutil.copytree(preset, copy)
    (copy / "SHA256SUMS").unlink()  # of what is changed here
    arguments = ["--model", copy, "--output", copy]
    for saved, option, expected in (
        (False, [], False),
        (True, [], True),
        (False, ["--lowercase"], True),
    ):
        values = json.dumps({"lowercase": saved})
        (copy / "tokenizer.json").write_text(values, encoding="utf-8")
        _, tokenizer, *_ = exported(exports, *arguments, *option)
        assert tokenizer.lowercase is expected
    # A file of its own does not say so; the model's does.
    values = json.dumps({"lowercase": True})
    (copy / "tokenizer.json").write_text(values, encoding="utf-8")
    arguments += ["--tokenizer", copy / "assets/tokenizer/vocabulary.spm"]
    _, tokenizer, *_ = exported(exports, *arguments)
    assert tokenizer.lowercase


def test_lengths_are_those_of_the_task_unless_given(exports, tmp_path):
    place = tmp_path / "questions"
    shared_task("questions").save_to_preset(place)
    arguments = ["--model", place, "--output", tmp_path / "1"]
    for options, expected in (
        ([], (24, None, None)),
        (["--sequence-length", "90", "--stride", "7"], (90, 7, None)),
        (
            ["--seq-length-buckets", "9,90", "--max-question-length", "64"],
            (90, None, 64),
        ),
    ):
        *_, found = exported(exports, *arguments, *options)
        names = ("sequence_length", "stride", "max_question_length")
        assert tuple(found[name] for name in names) == expected


def test_windows_are_those_of_the_run_unless_given(exports, tmp_path):
    settings = {"format_version": 1}
    settings["training"] = {"long_documents": "windows"}
    shared_task("classifier").save_to_preset(tmp_path / "best")
    shared_task("questions").save_to_preset(tmp_path / "questions")

    def window_stride(*options, name="best"):
        arguments = ["--model", tmp_path / name, "--output", tmp_path / "1"]
        *_, found = exported(exports, *arguments, *options)
        return found["window_stride"]

    for stride, options, expected in (
        (7, [], 7),
        (None, [], 12),  # half the sequence, as in fine-tuning
        (7, ["--window-stride", "3"], 3),
        (None, ["--sequence-length", "12"], 6),
        (11, ["--seq-length-buckets", "6,12"], 6),  # 11 has no room in 12
        (10, ["--seq-length-buckets", "6,12"], 10),
    ):
        settings["training"]["stride"] = stride
        (tmp_path / "run.json").write_text(json.dumps(settings))
        assert window_stride(*options) == expected
    # Questions are read in windows of their own.
    assert window_stride(name="questions") is None
    (tmp_path / "run.json").unlink()
    assert window_stride() is None


def test_the_directory_of_a_run_says_which_task_it_is(tmp_path):
    for name in TASKS:
        run_directory, task = tmp_path / name, shared_task(name)
        if name == "questions":  # as a run sets them
            values = {"null_threshold": -1.5, "max_answer_length": 3}
            task = type(task).from_config({**task.get_config(), **values})
        write_run(run_directory, task)
        for path in (run_directory, run_directory / "best"):
            model, _ = export.load_model(path)
            assert type(model) is type(shared_task(name))
            is_questions = name == "questions"
            expected = (-1.5, 3) if is_questions else (None, None)
            assert expected == (
                getattr(model, "null_threshold", None),
                getattr(model, "max_answer_length", None),
            )
            tokenizer = load_tokenizer(path)
            assert tokenizer.digest == tiny_tokenizer().digest


def test_directories_of_others_say_which_task_it_is(tmp_path):
    # Of a width that those models have: a multiple of the number of heads.
    config = xlnet_tf.XLNetConfig(**artefacts.MODEL)
    for cls in (
        xlnet_tf.XLNetPretrainer,
        xlnet_tf.XLNetTextRegressor,
        xlnet_tf.XLNetQuestionAnswering,
    ):
        model = cls(xlnet_tf.XLNetBackbone(config))
        save_hugging_face(model, tmp_path / cls.__name__)
        assert type(export.load_model(tmp_path / cls.__name__)[0]) is cls
    spans = xlnet_tf.XLNetSpanClassifier(xlnet_tf.XLNetBackbone(config))
    spans.save_to_preset(tmp_path / "ours")
    save_hugging_face(spans, tmp_path / "theirs")
    for directory in ("ours", "theirs"):
        with pytest.raises(
            ValueError,
            match="a XLNetSpanClassifier cannot be exported; these can",
        ):
            export.load_model(tmp_path / directory)
    file = tmp_path / "XLNetTextRegressor" / "config.json"
    config = json.loads(file.read_text())
    del config["architectures"]
    file.write_text(json.dumps(config))
    (file.parent / "SHA256SUMS").unlink()
    with pytest.raises(ValueError, match="several heads.*xlnet_tf.convert"):
        export.load_model(file.parent)


def test_next_version(tmp_path):
    for there, name, expected in (
        ([], "new", "new/1"),
        (["9", "10", "x", ".11.temporary"], "demo", "demo/11"),
        (["3"], "other/2", "other/2"),
    ):
        for version in there:
            (tmp_path / name.split("/")[0] / version).mkdir(parents=True)
        assert versions.next_version(tmp_path / name) == tmp_path / expected


# name -> (what happens to the model's file, what the error says)
DAMAGE = {
    "missing": (lambda file: file.unlink(), "holds no model that is known"),
    "cut off": (
        lambda file: file.write_bytes(file.read_bytes()[:-100]),
        "model.keras is not a .keras file",
    ),
    "text": (lambda file: file.write_text("no"), "is not a .keras file"),
    "damaged": (
        # Inside of the weights.
        lambda file: flip_byte(file, file.stat().st_size // 2),
        "model.keras is not a .keras file",
    ),
    "empty": (
        lambda file: zipfile.ZipFile(file, "w").close(),
        "model.keras is not a .keras file",
    ),
    "other": (
        lambda file: keras.Sequential([keras.layers.Input((3,))]).save(file),
        "holds a keras.Sequential, and files of models have no such objects",
    ),
    "no tokenizer": (
        lambda file: (file.parent / "spiece.model").unlink(),
        "there is no tokenizer .*--tokenizer",
    ),
    "bad tokenizer": (
        lambda file: (file.parent / "spiece.model").write_text("pieces"),
        "must be a SentencePiece model",
    ),
}


def test_what_takes_time_is_said(exports, preset, tmp_path, told):
    command = ("--model", preset, "--output", tmp_path / "tiny")
    line = "tracing and writing the model, which takes from seconds to minutes"
    assert told(export.main, *command) == f"{line}\n"
    assert told(export.main, *command, "--quiet") == ""


def test_export_refuses(capsys, tmp_path, keras_file):
    for name, (prepare, message) in DAMAGE.items():
        folder = tmp_path / name
        shutil.copytree(keras_file.parent, folder)
        prepare(folder / "model.keras")
        options = ("--model", folder, "--output", tmp_path / "1")
        line = refused(capsys, export.main, *options)
        assert re.search(message, line), (name, line)
    (tmp_path / "2").mkdir()
    for options, message in (
        (("--model", tmp_path / "gone"), "there is no model at .*gone"),
        (("--output", tmp_path / "2"), "2 exists. Give the next version, or"),
        (("--precision", "int4"), "`precision` must be one of"),
        (("--settings", tmp_path / "gone"), "no file of settings at .*gone"),
    ):
        line = refused(
            capsys,
            export.main,
            *("--quiet", "--model", keras_file),
            *("--output", tmp_path / "1", *options),
        )
        assert re.search(message, line), line
    assert not (tmp_path / "1").exists()
