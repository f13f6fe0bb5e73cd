"""Devices, tiers and artefacts that all tests share.

Three tiers: tests of values and eager models; tests that read an artefact
(below) and only assert; slow tests, which are those below `tests/slow`.
"""

import gc
import os
import pathlib
import signal

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import pytest

from tests.support.artefacts import TOKENIZER
from tests.support.artefacts import Artefacts
from tests.support.artefacts import ByName
from tests.support.preloaded import divide_cpu

ROOT = pathlib.Path(__file__).resolve().parents[1]
SLOW = ROOT / "tests" / "slow"
_QUICK_COMPILATION = "--xla_backend_optimization_level=0"
# Fixture -> group of tests that one process runs, one after the other: an
# artefact is made by the process that needs it, and no other waits for it.
GROUPS = {
    "finetuned": "finetuned",
    "exported": "finetuned",
    "resumed": "pretrained",
    "pretrained": "pretrained",
    "records": "pretrained",
}
# Files that take minutes are begun first, so that no process is left alone with
# one at the end.
LONGEST = (
    *("test_bucket.py", "test_documents.py", "test_exports.py"),
    *("test_jax_backend.py", "test_jax_training.py", "test_multi_worker.py"),
    *("test_record_processes.py", "test_replicas.py"),
)


def pytest_addoption(parser):
    parser.addoption(
        "--run-slow", action="store_true", help="run tests marked slow too"
    )


def pytest_configure(config):
    # A shell without job control starts what runs in the background with
    # Ctrl-C ignored, and so would be every process that a test starts.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    # Much of the slow tests' time is LLVM's, on programs that run for less than
    # it takes to optimise them. XLA's own passes, which fuse and reorder, stay,
    # and the default tier compiles as users do.
    flags = os.environ.get("XLA_FLAGS", "")
    if config.getoption("--run-slow") and _QUICK_COMPILATION not in flags:
        os.environ["XLA_FLAGS"] = f"{flags} {_QUICK_COMPILATION}".strip()
    if keras.backend.backend() != "tensorflow":
        return
    divide_cpu(2)  # for the tests of replicas


def pytest_ignore_collect(collection_path, config):
    # Their imports, of peers above all, take as long as hundreds of tests.
    if SLOW in (collection_path, *collection_path.parents):
        return None if config.getoption("--run-slow") else True
    return None


@pytest.hookimpl(tryfirst=True)  # before xdist reads the groups
def pytest_collection_modifyitems(config, items):
    skip = pytest.mark.skip(reason="slow: give --run-slow")
    for item in items:
        if SLOW in item.path.parents:
            item.add_marker("slow")
        # Keywords have the names of folders too, of the clone among them.
        is_slow = item.get_closest_marker("slow") is not None
        if is_slow and not config.getoption("--run-slow"):
            item.add_marker(skip)
        names = [GROUPS[x] for x in GROUPS if x in item.fixturenames]
        group = names[0] if names else str(item.path.relative_to(ROOT))
        # xdist would make a group of its own of two names.
        if not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=_order)


def _order(item):
    """Groups that take longest first; "gigabytes" runs one test at a time."""
    (group,) = item.get_closest_marker("xdist_group").args
    needs_artefact = bool(set(GROUPS) & set(item.fixturenames))
    is_long = item.path.name in LONGEST
    return group != "gigabytes", not needs_artefact, not is_long


def pytest_collection_finish(session):
    # Without groups every process makes the fixtures of all files.
    is_grouped = getattr(session.config.option, "loadgroup", False)
    if is_grouped and any("@" not in item.nodeid for item in session.items):
        raise pytest.UsageError(
            "pytest-xdist has lost the groups of tests, as with pytest 9.2. "
            "Install the versions of constraints.txt."
        )


@pytest.fixture(autouse=True)
def fixed_seed():
    """The same random weights in every run of a test that names no seed."""
    keras.utils.set_random_seed(1)


@pytest.fixture
def eager_functions():
    """No graphs: tracing takes longer than a few steps of a tiny model."""
    import tensorflow as tf

    tf.config.run_functions_eagerly(True)
    yield
    tf.config.run_functions_eagerly(False)


@pytest.fixture
def prompt_progress(monkeypatch):
    """Lines of progress do not wait for some seconds to pass."""
    from data_pipeline.base import progress

    monkeypatch.setattr(progress, "_LINE_SECONDS", 0.0)


@pytest.fixture
def told(prompt_progress, capsys):
    """Function that runs a command and returns what it says beside results."""

    def call(main, *arguments):
        capsys.readouterr()
        assert not main([str(x) for x in arguments])
        text = capsys.readouterr().err
        assert "\r" not in text
        return text

    return call


@pytest.fixture(scope="session")
def shared():
    """Path of the data that is too big or not free to be in the project."""
    path = ROOT.parent / "shared"
    if not path.is_dir():
        pytest.skip(f"there is no {path.name}/ beside the project")
    return path


@pytest.fixture(scope="session")
def artefacts(tmp_path_factory):
    """Artefacts of this test run, shared by its processes."""
    base = tmp_path_factory.getbasetemp()
    if "PYTEST_XDIST_WORKER" in os.environ:
        base = base.parent
    return Artefacts(base / "artefacts")


@pytest.fixture(scope="session")
def tiny_tokenizer():
    """Path of a SentencePiece model of 300 pieces, cased."""
    return TOKENIZER


@pytest.fixture(scope="session")
def records(artefacts):
    """Directory of `build_records`: 300 sentences, records of 32 tokens.

    Splits `train` and `validation` (a fifth), compact, one direction.
    """
    return artefacts.get("records")


@pytest.fixture(scope="session")
def pretrained(artefacts):
    """Output of `train`: 6 steps of a one-layer model with memory.

    One device, batches of 4, and after every 2 steps a progress line, an
    evaluation and a checkpoint (2, 4 and 6 are kept). It holds `run.json`,
    `metrics.jsonl`, `train/` and `eval/` for TensorBoard, `checkpoints/`,
    `best/`, `best.json`, `model.keras`, `spiece.model` and `preset/`.
    """
    return artefacts.get("pretrained")


@pytest.fixture(scope="session")
def resumed(artefacts):
    """Output of the same command, resumed after it was killed at step 2.

    It began with the checkpoint of step 2, and with a log that lacks the
    evaluation of that step. What it holds equals `pretrained`.
    """
    return artefacts.get("resumed")


@pytest.fixture(scope="session")
def finetuned(artefacts):
    """Outputs of `finetune` from `pretrained`, 4 steps on kept data.

    `finetuned["classification"]` learns two classes of texts,
    `finetuned["questions"]` SQuAD 2.0. Each holds `run.json`, `results.json`,
    `metrics.jsonl`, `best/`, `model.keras`, `held_out_predictions.jsonl` and
    `predictions.jsonl` of the same examples, and `report.html`; classification
    also `report.txt` and `confusion_matrix.png`, questions the files of the
    official format.
    """
    return ByName(artefacts, "finetuned")


@pytest.fixture(scope="session")
def exported(artefacts):
    """Directories of `export`, each with the version `1`.

    `exported["pretrainer"]` is `pretrained`, `exported["classifier"]` is
    `finetuned["classification"]`, for texts of 32 tokens.
    """
    return ByName(artefacts, "exported")


@pytest.fixture
def frozen_heap():
    """Objects that are there stay out of the garbage collector's way.

    Keras collects garbage for every layer that it quantizes, which takes
    seconds where many tests have left models behind.
    """
    gc.freeze()
    yield
    gc.unfreeze()


@pytest.fixture
def bucket(monkeypatch, tmp_path):
    """Path of a bucket, str: TensorFlow's file system in memory.

    It is another one than that of `gs://` in its scheme, and in that it writes
    behind the content of a file that exists; so the file is removed first.
    """
    import tensorflow as tf
    from etils.epath import backend
    from etils.epath import gpath
    from etils.epath import register

    for name, value in {
        "_URI_PREFIXES": (*gpath._URI_PREFIXES, "ram://"),
        "_URI_SCHEMES": gpath._URI_SCHEMES | {"ram"},
        "_URI_MAP_ROOT": {**gpath._URI_MAP_ROOT, "ram://": "/ram/"},
        "_PREFIX_TO_BACKEND": {
            **gpath._PREFIX_TO_BACKEND,
            "ram": backend.tf_backend,
        },
    }.items():
        monkeypatch.setattr(gpath, name, value)
    kind = type(backend.tf_backend)
    open_file = kind.open

    def open_anew(self, path, mode):
        path = str(path)
        is_there = path.startswith("ram:") and tf.io.gfile.exists(path)
        if "w" in mode and is_there:
            tf.io.gfile.remove(path)
        return open_file(self, path, mode)

    monkeypatch.setattr(kind, "open", open_anew)
    copy = kind.copy

    def copy_anew(self, path, target, overwrite):
        if tf.io.gfile.exists(target):
            tf.io.gfile.remove(target)
        return copy(self, path, target, overwrite)

    monkeypatch.setattr(kind, "copy", copy_anew)
    monkeypatch.setitem(
        register._URI_PREFIXES_TO_CLS, "ram://", gpath.PosixGPath
    )
    return f"ram://{tmp_path.name}-{os.getpid()}"
