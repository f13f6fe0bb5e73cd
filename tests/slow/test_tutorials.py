"""The notebooks of docs/tutorials run in an empty folder as they are written.

They are made smaller by the replacements and nothing else. Those that need no
devices of their own share a kernel, which imports TensorFlow once.
"""

import os

import nbclient
import nbformat
import pytest
from jupyter_client.manager import KernelManager

from tests.conftest import ROOT
from tests.support.preloaded import preloaded_python

# Beside them no other test that takes gigabytes in a process of its own.
pytestmark = pytest.mark.xdist_group("gigabytes")
FOLDER = ROOT / "docs" / "tutorials"
SMALLER = {
    "STEPS = 500": "STEPS = 4",
    "EPOCHS = 3": "EPOCHS = 1",
    "EPOCHS = 6": "EPOCHS = 0.5",
    "range(320)": "range(64)",
    ', *folder.glob("*/*.py")': "",
    "--recipe quick": "--recipe quick --set num_layers=1 --no-jit-compile "
    "--batch-size 4 --evaluation-steps 2",
}
# What they set cannot be set in a kernel that has computed something.
OF_THEIR_OWN = ("devices",)
SHARED = ("own_text", "csv_file", "long_documents", "hugging_face", "serving")


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """Variables of the kernels, with a `python` for their commands."""
    folder = tmp_path_factory.mktemp("bin")
    paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, paths)),
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    for name in ("XLNET_TF_TEXT", "XLNET_TF_PRESET", "TF_CONFIG"):
        variables.pop(name, None)
    with preloaded_python(folder, variables) as python:
        yield {**variables, "PATH": f"{python.parent}:{variables['PATH']}"}


@pytest.fixture(scope="module")
def kernel(environment):
    """A started kernel."""
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment)
    yield manager
    manager.shutdown_kernel(now=True)


def run(notebook, manager, folder):
    """What a notebook prints in a folder; raises where a cell fails."""
    # A kernel that was used has names, and the folder of before.
    start = f"%reset -f\nimport os\nos.chdir({str(folder)!r})"
    notebook.cells.insert(0, nbformat.v4.new_code_cell(start))
    for cell in notebook.cells[1:]:
        for long, short in SMALLER.items():
            cell.source = cell.source.replace(long, short)
    client = nbclient.NotebookClient(notebook, km=manager, timeout=900)
    try:
        client.execute()
    finally:
        client.kc.stop_channels()
    return "\n".join(
        output.get("text", "") or str(output.get("data", ""))
        for cell in notebook.cells
        if cell.cell_type == "code"
        for output in cell.outputs
    )


def read(name):
    """A notebook of the tutorials."""
    return nbformat.read(FOLDER / f"{name}.ipynb", as_version=4)


def test_every_tutorial_is_run():
    names = {file.stem for file in FOLDER.glob("*.ipynb")}
    assert names == {*SHARED, *OF_THEIR_OWN}
    sources = "\n".join(cell.source for x in names for cell in read(x).cells)
    for long in SMALLER:
        assert long in sources, long


def test_a_failing_cell_fails(kernel, tmp_path):
    """Commands included, whichever of a cell it is."""
    for source in ("1 / 0", "%%bash\nset -e\nfalse\ntrue"):
        cells = [nbformat.v4.new_code_cell(source)]
        notebook = nbformat.v4.new_notebook(cells=cells)
        with pytest.raises(nbclient.exceptions.CellExecutionError):
            run(notebook, kernel, tmp_path)


def test_own_text(kernel, tmp_path):
    printed = run(read("own_text"), kernel, tmp_path)
    assert "image/png" in printed
    assert (tmp_path / "exports/mine/1/saved_model.pb").is_file()


def test_csv_file(kernel, tmp_path):
    printed = run(read("csv_file"), kernel, tmp_path)
    assert " of 40 right" in printed
    assert (tmp_path / "exports/reviews/1/saved_model.pb").is_file()


def test_long_documents(kernel, tmp_path):
    printed = run(read("long_documents"), kernel, tmp_path)
    for way in ("truncate", "windows", "memory"):
        assert f"\n{way} 0." in printed or f"\n{way} 1." in printed


def test_hugging_face(kernel, tmp_path):
    for name in ("torch", "transformers"):
        pytest.importorskip(name, reason="it compares with transformers")
    assert "equal" in run(read("hugging_face"), kernel, tmp_path)


def test_serving(kernel, tmp_path):
    printed = run(read("serving"), kernel, tmp_path)
    assert "▁States" in printed and "whole" in printed
    assert "at most 4194304 bytes of text in a request" in printed
    assert sorted(x.name for x in (tmp_path / "exports/fill").iterdir()) == [
        "1",
        "2",
    ]


def test_devices(environment, tmp_path):
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env=environment)
    try:
        printed = run(read("devices"), manager, tmp_path)
    finally:
        manager.shutdown_kernel(now=True)
    assert "export TF_CONFIG=" in printed
