"""`python -m saved_models.export` as it is typed."""

import json
import re
import shutil
import zipfile

import keras
import numpy as np
import pytest

from data_pipeline.command_line import run
from saved_models import export
from saved_models import versions
from saved_models.settings import ExportSettings
from tests.support.export_fixtures import pretrainer
from tests.support.export_fixtures import refused
from tests.support.export_fixtures import tiny_tokenizer
from tests.support.task_export_fixtures import make
from tests.support.task_export_fixtures import shared_task


@pytest.fixture(scope="module")
def model():
    return pretrainer(num_layers=1)


@pytest.fixture(scope="module")
def preset(tmp_path_factory, model):
    path = tmp_path_factory.mktemp("models") / "preset"
    model.save_to_preset(path, tokenizer=tiny_tokenizer())
    return path


@pytest.fixture(scope="module")
def keras_file(tmp_path_factory, model):
    folder = tmp_path_factory.mktemp("run")
    (folder / "spiece.model").write_bytes(tiny_tokenizer().model_proto)
    model.save(folder / "model.keras")
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


def same_weights(model, other):
    pairs = zip(model.weights, other.weights, strict=True)
    return all(np.array_equal(a.numpy(), b.numpy()) for a, b in pairs)


def test_export_says_where(capsys, exports, preset, tmp_path):
    arguments = ["--model", str(preset), "--output", str(tmp_path / "demo")]
    assert run(export.main, arguments) == 0
    assert capsys.readouterr().out == f"wrote {tmp_path / 'demo' / '1'}\n"


def test_export_of_a_keras_file(exports, keras_file, model, tmp_path):
    run(
        export.main,
        ["--model", str(keras_file), "--output", str(tmp_path / "5")]
        + ["--num-candidates", "2", "--overwrite", "--max-batch", "8"]
        + ["--seq-length-buckets", "16,64", "--precision", "int8"],
    )
    ((found, tokenizer, directory, options),) = exports
    assert same_weights(found, model)
    assert tokenizer.digest == tiny_tokenizer().digest
    assert directory == tmp_path / "5"
    assert options.pop("overwrite") is True
    assert options.pop("source") == str(keras_file)
    assert ExportSettings(**options) == ExportSettings(
        sequence_length=64,
        num_candidates=2,
        seq_length_buckets=(16, 64),
        precision="int8",
        max_batch=8,
    )


def test_export_of_a_run(exports, keras_file, model, tmp_path):
    """The directory that holds model.keras."""
    arguments = ["--model", str(keras_file.parent), "--output", str(tmp_path)]
    run(export.main, arguments)
    assert same_weights(exports[0][0], model)


@pytest.mark.parametrize(
    ("saved", "option", "expected"),
    [(False, [], False), (True, [], True), (False, ["--lowercase"], True)],
)
def test_the_preset_says_whether_text_is_lower_cased(
    exports, preset, tmp_path, saved, option, expected
):
    copy = tmp_path / "preset"
    shutil.copytree(preset, copy)
    values = json.dumps({"lowercase": saved})
    (copy / "tokenizer.json").write_text(values, encoding="utf-8")
    run(export.main, ["--model", str(copy), "--output", str(copy), *option])
    assert exports[0][1].lowercase is expected


def exported_task(exports, directory, name, *options):
    """The preprocessor and the settings of an export of a task's preset."""
    if not directory.exists():
        shared_task(name).save_to_preset(directory)
    arguments = ["--model", str(directory), "--output", str(directory / "1")]
    assert run(export.main, [*arguments, *options]) == 0
    model, _, _, settings = exports.pop()
    del settings["overwrite"], settings["source"]
    return model.preprocessor, ExportSettings.for_model(model, **settings)


def test_lengths_are_those_of_the_task_unless_given(exports, tmp_path):
    place = tmp_path / "questions"
    preprocessor, settings = exported_task(exports, place, "questions")
    assert settings.sequence_length == 24
    assert (preprocessor.stride, preprocessor.max_question_length) == (5, 6)
    preprocessor, settings = exported_task(
        exports,
        place,
        "questions",
        *("--sequence-length", "90", "--stride", "7"),
        *("--max-question-length", "64"),
    )
    assert settings.sequence_length == 90
    assert (preprocessor.stride, preprocessor.max_question_length) == (7, 64)
    preprocessor, settings = exported_task(
        exports,
        place,
        "questions",
        *("--seq-length-buckets", "50,90", "--max-question-length", "64"),
    )
    assert settings.sequence_length == preprocessor.sequence_length == 90
    assert (preprocessor.stride, preprocessor.max_question_length) == (5, 64)

    place = tmp_path / "classifier"
    assert exported_task(exports, place, "classifier")[1].sequence_length == 24
    option = ["--seq-length-buckets", "8,40"]
    _, settings = exported_task(exports, place, "classifier", *option)
    assert settings.sequence_length == 40
    _, settings = exported_task(
        exports, place, "classifier", "--sequence-length", "31"
    )
    assert settings.sequence_length == 31


def test_a_setting_that_the_task_does_not_have(capsys, tmp_path, model):
    output = ["--output", tmp_path / "1", "--stride", "7"]
    model.backbone.save(tmp_path / "model.keras")
    (tmp_path / "spiece.model").write_bytes(tiny_tokenizer().model_proto)
    line = refused(capsys, export.main, "--model", tmp_path, *output)
    assert "reads no questions: leave --stride" in line
    shared_task("classifier").save_to_preset(tmp_path / "task")
    line = refused(capsys, export.main, "--model", tmp_path / "task", *output)
    assert "has no setting stride; it has sequence_length" in line


@pytest.mark.parametrize(
    ("stride", "options", "expected"),
    [
        (7, [], 7),
        (None, [], 12),  # half the sequence, as in fine-tuning
        (7, ["--window-stride", "3"], 3),
        (None, ["--sequence-length", "12"], 6),
        (11, ["--seq-length-buckets", "6,12"], 6),  # 11 has no room in 12
        (10, ["--seq-length-buckets", "6,12"], 10),
    ],
)
def test_windows_are_those_of_the_run_unless_given(
    exports, tmp_path, stride, options, expected
):
    settings = {"training": {"long_documents": "windows", "stride": stride}}
    (tmp_path / "run.json").write_text(json.dumps(settings))
    place = tmp_path / "best"
    _, settings = exported_task(exports, place, "classifier", *options)
    assert settings.window_stride == expected
    place = tmp_path / "questions"  # which are read in windows of their own
    assert not exported_task(exports, place, "questions")[1].window_stride
    (tmp_path / "run.json").unlink()
    _, settings = exported_task(exports, tmp_path / "best", "classifier")
    assert settings.window_stride is None


def test_windows_of_a_model_of_long_texts(exports, tmp_path):
    place = tmp_path / "task"
    task = make("classifier")
    task.preprocessor = task.preprocessor.with_settings(sequence_length=1024)
    task.save_to_preset(place)
    options = ["--window-stride", "600"]
    _, settings = exported_task(exports, place, "classifier", *options)
    assert (settings.sequence_length, settings.window_stride) == (1024, 600)


def test_windows_of_what_is_not_a_text(capsys, tmp_path):
    shared_task("questions").save_to_preset(tmp_path / "task")
    line = refused(
        capsys,
        export.main,
        *("--model", tmp_path / "task", "--output", tmp_path / "1"),
        *("--window-stride", "7"),
    )
    assert "`window_stride` is for classifiers and regressors of te" in line
    assert not (tmp_path / "1").exists()


def test_windows_that_leave_gaps(capsys, tmp_path):
    shared_task("classifier").save_to_preset(tmp_path / "task")
    line = refused(
        capsys,
        export.main,
        *("--model", tmp_path / "task", "--output", tmp_path / "1"),
        *("--window-stride", "23"),
    )
    assert "`window_stride` must lie between 1 and 22" in line


@pytest.mark.parametrize(
    ("there", "name", "expected"),
    [
        ([], "demo", "demo/1"),
        (["9", "10", "x", ".11.temporary"], "demo", "demo/11"),
        (["3"], "demo/2", "demo/2"),
    ],
)
def test_next_version(tmp_path, there, name, expected):
    for version in there:
        (tmp_path / "demo" / version).mkdir(parents=True)
    assert versions.next_version(tmp_path / name) == tmp_path / expected


@pytest.mark.parametrize(
    ("prepare", "message"),
    [
        ("missing", "there is no model at .*gone"),
        ("empty", "holds no model that is known"),
        ("truncated", "model.keras is not a .keras file"),
        ("text", "model.keras is not a .keras file"),
        ("damaged", "model.keras is not a .keras file"),
        ("empty archive", "model.keras is not a .keras file"),
        ("other model", "a Sequential cannot be exported; these can: XLNetP"),
        ("no tokenizer", "there is no tokenizer .*--tokenizer"),
        ("bad tokenizer", "must be a SentencePiece model"),
        ("version", "1 exists. Give the next version, or --overwrite"),
    ],
)
def test_export_refuses(capsys, tmp_path, keras_file, prepare, message):
    copy = tmp_path / "model.keras"
    shutil.copy(keras_file, copy)
    shutil.copy(keras_file.parent / "spiece.model", tmp_path)
    output = tmp_path / "demo" / "1"
    if prepare == "missing":
        copy = tmp_path / "gone"
    elif prepare == "empty":
        copy = tmp_path / "folder"
        copy.mkdir()
    elif prepare == "truncated":
        copy.write_bytes(copy.read_bytes()[:-100])
    elif prepare == "damaged":
        content = bytearray(copy.read_bytes())
        content[len(content) // 2] ^= 0xFF  # inside of the weights
        copy.write_bytes(content)
    elif prepare == "empty archive":
        zipfile.ZipFile(copy, "w").close()
    elif prepare == "text":
        copy.write_text("no model")
    elif prepare == "other model":
        other = keras.Sequential([keras.layers.Input((3,))])
        other.save(copy)
    elif prepare == "no tokenizer":
        (tmp_path / "spiece.model").unlink()
    elif prepare == "bad tokenizer":
        (tmp_path / "spiece.model").write_text("pieces")
    elif prepare == "version":
        output.mkdir(parents=True)
    line = refused(capsys, export.main, "--model", copy, "--output", output)
    assert re.search(message, line), line
