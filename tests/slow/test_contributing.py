"""A contributor's way: an objective and a setting, as the documents say.

In a copy of the sources. No quick test adds anything, and so none notices a
registry, a list of choices or a frozen file that the documents do not name.
"""

import ast
import json
import shutil

import pytest

from tests.conftest import ROOT
from tests.slow.test_documents import blocks
from tests.support.commands import python
from tests.support.run_fixtures import arguments
from tests.support.run_fixtures import write_configs
from tests.support.run_fixtures import write_records

# Class of the example -> folder of its file, and what stands before it there.
PLACES = {
    "LastTokenReader": (
        "data_pipeline/objectives",
        """import dataclasses

import tensorflow as tf

from data_pipeline.objectives.reader import ObjectiveReader


@dataclasses.dataclass(frozen=True)
""",
    ),
    "LastToken": (
        "xlnet_tf/objectives",
        "from xlnet_tf.objectives.objective import TokenPrediction\n\n\n",
    ),
}
# File -> a line of it, and what replaces that line.
LINES = {
    "data_pipeline/objectives/__init__.py": (
        "READERS = {\n",
        'READERS = {\n    "last_token": "last_token.LastTokenReader",\n',
    ),
    "xlnet_tf/objectives/__init__.py": (
        "\nOBJECTIVES = {\n",
        "from xlnet_tf.objectives.last_token import LastToken\n\n"
        'OBJECTIVES = {\n    "last_token": LastToken,\n',
    ),
    "xlnet_tf/training/settings.py": (
        "    steps: int = setting(",
        '    added: int = setting(1, "of an example", POSITIVE)\n'
        "    steps: int = setting(",
    ),
}


@pytest.fixture
def checkout(tmp_path):
    """Path of a copy of the sources, with the objective and the setting."""
    copy = tmp_path / "copy"
    for name in ("xlnet_tf", "data_pipeline", "saved_models", "tests"):
        shutil.copytree(
            ROOT / name,
            copy / name,
            ignore=shutil.ignore_patterns("__pycache__", "slow", "torture"),
        )
    _, body = blocks("docs/objectives.md")["objective"]
    classes = {
        node.name: ast.get_source_segment(body, node)
        for node in ast.parse(body).body
        if isinstance(node, ast.ClassDef)
    }
    assert classes.keys() == PLACES.keys()
    for name, (folder, head) in PLACES.items():
        file = copy / folder / "last_token.py"
        file.write_text(f"{head}{classes[name]}\n", encoding="utf-8")
    for name, (old, new) in LINES.items():
        text = (copy / name).read_text(encoding="utf-8")
        assert text.count(old) == 1
        (copy / name).write_text(text.replace(old, new), encoding="utf-8")
    return copy


def test_additions_train(checkout, tmp_path):
    def run(*command):
        python("-m", *command, cwd=checkout)

    output = tmp_path / "run"
    run(
        "xlnet_tf.train",
        *write_configs(tmp_path, objective="last_token", added=5),
        *arguments(write_records(tmp_path), output, steps=2),
    )
    settings = json.loads((output / "training.json").read_text())
    assert (settings["objective"], settings["added"]) == ("last_token", 5)
    assert "last_token" in (output / "preset/task.json").read_text()

    file = checkout / "tests/golden/options.json"
    assert "--added" not in json.loads(file.read_text())["xlnet_tf.train"]
    run("tests.house.options")
    options = json.loads(file.read_text())["xlnet_tf.train"]
    assert options["--added"] == "value"
