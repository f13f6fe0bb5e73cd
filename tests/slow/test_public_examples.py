"""The examples in the docstrings of public names run.

What no quick test holds: that a user who copies one gets what it shows. They
build, save and train models, one by one.
"""

import inspect
import textwrap
import traceback

import keras
import numpy as np

import data_pipeline
import saved_models
import xlnet_tf
from tests.house.test_public_names import FENCE
from tests.house.test_public_names import public


def test_examples_run(tmp_path, monkeypatch):
    """Each in an empty folder, with the packages, keras and np at hand."""
    wrong = []
    for name, value in public().items():
        for number, example in enumerate(FENCE.findall(inspect.getdoc(value))):
            folder = tmp_path / f"{name}-{number}"
            folder.mkdir()
            monkeypatch.chdir(folder)
            names = {
                "__name__": "example",
                "data_pipeline": data_pipeline,
                "keras": keras,
                "np": np,
                "saved_models": saved_models,
                "xlnet_tf": xlnet_tf,
            }
            try:
                exec(compile(textwrap.dedent(example), name, "exec"), names)
            except Exception:
                wrong.append(f"{name}\n{traceback.format_exc(limit=-3)}")
    assert not wrong, "\n".join(wrong)
