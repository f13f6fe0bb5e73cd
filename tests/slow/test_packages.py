"""The packages as others meet them: a wheel, and Keras in a fresh process."""

import tarfile
import zipfile

import xlnet_tf
from tests.conftest import ROOT
from tests.support import finetuning_fixtures as fixtures
from tests.support.commands import python
from tests.support.wheel import build

PACKAGES = ("data_pipeline", "saved_models", "xlnet_tf")


def test_what_a_release_uploads_holds_the_packages_and_nothing_else(tmp_path):
    archive, wheel = build(tmp_path)
    python("-m", "twine", "check", "--strict", archive, wheel)
    with tarfile.open(archive) as file:
        sources = {x.partition("/")[2] for x in file.getnames()}
    assert {"README.md", "constraints.txt", "docs/training.md"} <= sources
    with zipfile.ZipFile(wheel) as file:
        names = {x for x in file.namelist() if ".dist-info/" not in x}
        scripts = file.read(
            next(x for x in file.namelist() if x.endswith("entry_points.txt"))
        ).decode()
    # Exports of the user's lie beside the code that writes them.
    kept = {"signatures", "client", "serving"}
    expected = {
        path.relative_to(ROOT).as_posix()
        for package in PACKAGES
        for path in (ROOT / package).rglob("*")
        if path.is_file()
        and "__pycache__" not in path.parts
        and (
            package != "saved_models"
            or path.parent == ROOT / package
            or path.relative_to(ROOT / package).parts[0] in kept
        )
    }
    assert names == expected
    for package in PACKAGES:
        assert f"{package}/py.typed" in names
    assert scripts.count("xlnet = ") == 1


def test_keras_finds_the_classes_in_a_fresh_process(tmp_path):
    """Whatever is imported first, and though no class was used before."""
    pretrainer = fixtures.write_preset(tmp_path / "preset")
    names = "pretrainer.keras", "classifier.keras"
    model = xlnet_tf.XLNetPretrainer.from_preset(pretrainer)
    model.save(tmp_path / names[0])
    model = xlnet_tf.XLNetTextClassifier.from_preset(pretrainer, num_classes=2)
    model.save(tmp_path / names[1])
    for number, imports in enumerate(
        (
            "import xlnet_tf; xlnet_tf.StatefulMemory; import keras",
            "import tensorflow, keras; from xlnet_tf import XLNetConfig",
        )
    ):
        name = names[number]
        program = (
            f"{imports}\n"
            f"model = keras.models.load_model({str(tmp_path / name)!r})\n"
            "print(type(model).__module__.split('.')[0])"
        )
        result = python("-c", program)
        assert result.stdout == "xlnet_tf\n", (imports, result.stderr[-2000:])


def test_every_module_is_imported_first_where_keras_is_there():
    """Then one import brings in every class, which need that module whole."""
    program = (
        "import importlib, os, sys\n"
        "import keras, tensorflow_text\n"
        "for name in sys.argv[1:]:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        importlib.import_module(name)\n"
        "        os._exit(0)\n"
        "    if os.waitpid(child, 0)[1]:\n"
        "        print(name)\n"
    )
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for package in ("data_pipeline", "saved_models")
        for path in (ROOT / package).rglob("*.py")
    ]
    result = python("-c", program, *modules, status=None)
    assert (result.returncode, result.stdout) == (0, ""), result.stderr[-2000:]
