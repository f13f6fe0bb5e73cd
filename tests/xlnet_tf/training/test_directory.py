"""Every run: whose directory it is, how it ends, what its errors say."""

import dataclasses
import errno
import json
import os
import re
import sys
import types

import pytest
import tensorflow as tf

import xlnet_tf
from data_pipeline.base.checksums import add_checksums
from data_pipeline.base.checksums import write_listed
from data_pipeline.tasks.catalog import find_task
from data_pipeline.tasks.examples import TextExample
from data_pipeline.tasks.task_data import TaskData
from tests.support import artefacts
from tests.support.training_fixtures import one_device
from xlnet_tf.training import finetune
from xlnet_tf.training import loop
from xlnet_tf.training.directory import check_same
from xlnet_tf.training.directory import claim_identity
from xlnet_tf.training.directory import claimed
from xlnet_tf.training.directory import first_begun
from xlnet_tf.training.directory import opened
from xlnet_tf.training.exports import keep_newest
from xlnet_tf.training.exports import note_export
from xlnet_tf.training.exports import prepare_exports
from xlnet_tf.training.on_tensorflow import TensorFlow
from xlnet_tf.training.settings import FinetuningSettings
from xlnet_tf.weights.tensor_files import digest_of_weights

EXAMPLES = [TextExample(str(i), f"text {i}", None, "no") for i in range(4)]
DATA = TaskData(
    find_task("classification"),
    ("no", "yes"),
    EXAMPLES[:3],
    {"dev": EXAMPLES[3:]},
)
CONFIG = FinetuningSettings(steps=4)


@pytest.fixture
def preset(tmp_path):
    directory = tmp_path / "preset"
    directory.mkdir()
    (directory / "model.weights.h5").write_bytes(b"1")
    (directory / "metadata.json").write_text("{}")
    return directory


@pytest.fixture
def enter(tmp_path, preset):
    """Opens a directory of a run that then has something to lose."""
    directory = tmp_path / "run"

    def open_directory(data=DATA, config=CONFIG, random_start=False):
        settings = dataclasses.replace(
            config,
            output=str(directory),
            preset=str(preset),
            random_start=random_start,
            quiet=True,
        )
        run = loop.Run(settings, TensorFlow(one_device()))
        task = types.SimpleNamespace(settings=settings, data=data)
        directory.mkdir(exist_ok=True)
        identity = finetune.identity_of(task)
        claim_identity(run, identity, finetune.KIND)
        checkpoints = directory / "checkpoints"
        checkpoints.mkdir(exist_ok=True)
        (checkpoints / "ckpt-2.index").touch()
        return directory

    open_directory()
    return open_directory


def test_the_same_run_resumes(enter, preset):
    (preset / "metadata.json").write_text('{"date_saved": "later"}')
    moved = [x._replace(where="elsewhere.tsv, row 9") for x in DATA.train]
    directory = enter(
        data=dataclasses.replace(DATA, train=moved),
        config=dataclasses.replace(CONFIG, patience=3),
    )
    # The settings that it runs with can be given back.
    again = FinetuningSettings.read(directory / "training.json")
    assert again == dataclasses.replace(CONFIG, patience=3)


def test_weights_may_be_named_otherwise(enter):
    """Their digest tells that they are the same."""
    file = enter() / "run.json"
    assert "preset" not in json.loads(file.read_text())


def test_every_difference_is_named(enter, preset):
    for change, message in (
        ({"train": EXAMPLES[1:]}, "other training examples"),
        ({"evaluation": {"dev": EXAMPLES[2:]}}, "other examples to evaluate"),
        ({"evaluation": {"test": EXAMPLES[3:]}}, "other examples to evaluate"),
        ({"labels": ("no", "so")}, r"labels: \['no', 'yes'\] there, .* now"),
    ):
        with pytest.raises(ValueError, match=f"holds another run.*{message}"):
            enter(data=dataclasses.replace(DATA, **change))
    with pytest.raises(ValueError, match="steps: 4 there, 5 now.*dropout: No"):
        enter(config=FinetuningSettings(steps=5, dropout=0.5))
    with pytest.raises(ValueError, match="task: None there, ner now"):
        check_same("run", {}, {"task": "ner"}, (), {})
    # Digests are long, and their beginnings tell them apart.
    with pytest.raises(ValueError) as caught:
        check_same(
            "run", {"a": {"b": "0a" * 32}}, {"a": {"b": "1a" * 32}}, (), {}
        )
    assert "(b: 0a0a0a0a0a0a there, 1a1a1a1a1a1a now)" in str(caught.value)
    (preset / "model.weights.h5").write_bytes(b"2")
    with pytest.raises(ValueError, match="other weights in the preset"):
        enter()


def test_a_run_without_a_step_may_change(enter):
    directory = enter()
    (directory / "checkpoints" / "ckpt-2.index").rename(
        directory / "checkpoints" / "ckpt-0.index"
    )
    enter(config=FinetuningSettings(steps=5))
    written = json.loads((directory / "run.json").read_text())
    assert written["training"]["steps"] == 5
    with pytest.raises(ValueError, match="steps: 5 there, 4 now"):
        enter()
    # Results are something to lose, whatever became of the checkpoints.
    for file in (directory / "checkpoints").iterdir():
        file.unlink()
    (directory / "results.json").write_text("{}")
    with pytest.raises(ValueError, match="steps: 5 there, 4 now"):
        enter()


def test_weights_do_not_matter_to_a_random_start(enter, preset):
    (enter() / "checkpoints" / "ckpt-2.index").unlink()
    for weights in (b"1", b"2"):
        (preset / "model.weights.h5").write_bytes(weights)
        enter(random_start=True)


def test_a_changed_file_is_not_resumed_from(enter):
    write_listed(enter(), {"results.json": {"seed": 0}})
    for name in ("run.json", "training.json", "results.json"):
        file = enter() / name
        text = file.read_text()
        file.write_text(text.replace('"seed": 0', '"seed": 1'))
        with pytest.raises(ValueError, match=f"{name} is damaged"):
            enter()
        file.write_text(text)
    enter()


@pytest.mark.parametrize("version", [None, 2, "1"])
def test_another_format_is_refused(enter, version):
    file = enter() / "run.json"
    facts = json.loads(file.read_text())
    assert facts.pop("format_version") == 1
    if version is not None:
        facts["format_version"] = version
    file.write_text(json.dumps(facts))
    add_checksums(file.parent, ["run.json"])
    shown = (
        "no format" if version is None else f"the format version {version!r}"
    )
    message = (
        f"run/run.json has {shown}.* reads version 1 alone. Write it again"
    )
    with pytest.raises(ValueError, match=message):
        enter()
    with pytest.raises(ValueError, match=message):
        first_begun([file.parent], "results.json")
    # Without a step there is nothing to lose, and the run starts over.
    (file.parent / "checkpoints" / "ckpt-2.index").unlink()
    enter()
    assert json.loads(file.read_text())["format_version"] == 1


def test_one_program_at_a_time(tmp_path):
    directory = tmp_path / "run"
    with claimed(directory):
        (directory / ".tmp-0123-best").mkdir()
        (directory / "best").mkdir()
        message = r"process \d+ on .* is working in .*run.*another --output"
        with pytest.raises(RuntimeError, match=message), claimed(directory):
            pytest.fail("it is taken")
        assert (directory / ".tmp-0123-best").is_dir()
    with pytest.raises(KeyError), claimed(directory):
        assert not (directory / ".tmp-0123-best").exists()
        raise KeyError
    assert [x.name for x in directory.iterdir()] == ["best"]
    with claimed(tmp_path / "new"):
        pass
    assert not (tmp_path / "new").exists()


def test_a_disk_without_locks_is_used_all_the_same(tmp_path, monkeypatch):
    """It is said that nothing keeps a second program out."""
    # The last is of NFS, and has no name in Python.
    numbers = (errno.ENOLCK, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS, 524)
    for number in numbers:

        def cannot(*arguments, number=number):
            raise OSError(number, os.strerror(number))

        monkeypatch.setattr("fcntl.flock", cannot)
        reason = re.escape(os.strerror(number))
        message = f"{tmp_path} is not locked.*{reason}.* no other program"
        for _ in range(2):
            with pytest.warns(UserWarning, match=message) as told:
                with claimed(tmp_path), claimed(tmp_path):
                    pass
            assert len(told) == 2


def test_a_run_says_first_that_it_is_not_locked(tmp_path, capsys, monkeypatch):
    def cannot(*arguments):
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr("fcntl.flock", cannot)
    with opened(tmp_path, is_chief=True, smaller="--batch-size"):
        sys.stderr.write("begins\n")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith(f"warning: {tmp_path} is not locked")
    assert lines[1:] == ["begins"]


def test_exports_of_another_run_are_refused(tmp_path):
    exports, file = tmp_path / "exports", tmp_path / "exports.json"
    prepare_exports(None, file)
    prepare_exports(exports, file)
    for step in (2, 4):
        note_export(exports, step, file)
        (exports / str(step)).mkdir(parents=True)
        prepare_exports(exports, file)  # a kill before it is noted as whole
        keep_newest(exports, step, 3, file)
    (exports / "notes").mkdir()
    prepare_exports(str(exports), file)
    prepare_exports(os.path.relpath(exports), file)
    (exports / "30").mkdir()
    for noted in (file, tmp_path / "other.json"):
        with pytest.raises(
            ValueError, match="exports of another run .*30.*Name"
        ):
            prepare_exports(exports, noted)


def test_a_run_is_not_shorter_than_what_it_has_done(tmp_path):
    checkpoints = tmp_path / "checkpoints"
    checkpoints.mkdir()
    (checkpoints / "ckpt-175.index").write_text("")
    steps = {"training": {"steps": 175}}
    check_same(tmp_path, steps, steps, (), {})
    fewer = {"training": {"steps": 174}}
    with pytest.raises(ValueError, match="is at step 175. .* --steps 174"):
        check_same(tmp_path, steps, fewer, (), {})


def test_a_half_written_export_is_removed(tmp_path):
    exports, file = tmp_path / "exports", tmp_path / "exports.json"
    prepare_exports(None, file)
    for name in ("2", ".tmp-01-2", ".tmp-02-4", ".tmp-03-14"):
        (exports / name).mkdir(parents=True)
    keep_newest(exports, 2, 3, file)
    prepare_exports(None, file)
    note_export(exports, 4, file)
    prepare_exports(None, file)
    left = sorted(x.name for x in exports.iterdir())
    assert left == [".tmp-01-2", ".tmp-03-14", "2"]
    keep_newest(exports, 4, 1, file)
    assert not (exports / "2").exists()


def test_weights_are_known_by_their_values(tmp_path):
    config = xlnet_tf.XLNetConfig(**artefacts.MODEL)
    model = xlnet_tf.XLNetPretrainer(xlnet_tf.XLNetBackbone(config))
    digests = []
    for name in ("one", "two"):
        model.save_to_preset(tmp_path / name)
        digests.append(digest_of_weights(tmp_path / name))
        # Names and hours differ, and so do the files.
        model = xlnet_tf.XLNetPretrainer.from_preset(tmp_path / name)
    assert digests[0] == digests[1]
    for changed in (model.backbone.weights[-1], model.head.bias):
        changed.assign_add(changed + 1)
        model.save_to_preset(tmp_path / "three")
        digests.append(digest_of_weights(tmp_path / "three"))
    assert len(set(digests)) == 3


def test_errors_of_tensorflow_say_what_to_do(tmp_path):
    errors = tf.errors
    for kind, text, expected, message in (
        (
            errors.ResourceExhaustedError,
            "a tensor\nof a layer",
            RuntimeError,
            "out of memory: take a smaller --batch-size or --sequence-length.*"
            "TensorFlow says: a tensor$",
        ),
        (
            errors.ResourceExhaustedError,
            "ckpt; No space left on device",
            OSError,
            "No space left",
        ),
        (
            errors.ResourceExhaustedError,
            "train-00000.tfrecord; Too many open files",
            RuntimeError,
            "may not open more files: raise the limit, .*ulimit -n",
        ),
        (
            errors.UnavailableError,
            "gone",
            RuntimeError,
            "a worker stopped answering",
        ),
        (
            errors.DeadlineExceededError,
            "late",
            RuntimeError,
            "a worker stopped answering",
        ),
        (
            errors.UnavailableError,
            "Error executing an HTTP request",
            RuntimeError,
            "a bucket does not answer",
        ),
        (
            errors.ResourceExhaustedError,
            "train-0; Too many open files",
            RuntimeError,
            "may not open more files: .*ulimit.*says: train-0; Too many",
        ),
        (errors.InternalError, "something\nelse", RuntimeError, "^something$"),
        (errors.InternalError, "", RuntimeError, "^InternalError$"),
    ):
        with pytest.raises(expected, match=message) as caught:
            with opened(tmp_path, True, finetune.SMALLER):
                raise kind(None, None, text)
        assert isinstance(caught.value.__cause__, kind)


def test_errors_of_the_machine_say_what_to_do(tmp_path):
    """Wherever a run meets them, as in its last evaluation."""
    for error, expected, message in (
        (MemoryError(), RuntimeError, "out of memory: take a smaller --batch"),
        (OSError(24, "Too many open files"), RuntimeError, "ulimit -n"),
        (OSError(122, "Disk quota exceeded", "x"), OSError, "No space left"),
        (FileNotFoundError(2, "none", "x"), FileNotFoundError, "none: 'x'"),
        (ValueError("what users did"), ValueError, "what users did"),
    ):
        with pytest.raises(expected, match=message):
            with opened(tmp_path, True, "--batch-size"):
                raise error
