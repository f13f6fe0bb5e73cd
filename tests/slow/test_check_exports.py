"""Exports of fine-tuning runs, checked on the examples of their tasks."""

import pytest

from data_pipeline.base.command_line import run
from saved_models import export
from tests.support.task_export_fixtures import finetuned

# task -> outputs that are compared: texts, words, options and windows
OUTPUTS = {
    "classification": ["label", "scores"],
    "multi-label": ["chosen", "scores"],
    "ner": ["tags"],
    "race": ["answer", "scores"],
    "squad-2.0": ["answer", "null_score"],
}


@pytest.mark.parametrize("task", OUTPUTS)
def test_an_export_answers_as_its_run(capsys, tmp_path, task):
    lengths = {}
    if task.startswith("squad"):
        lengths = {"sequence_length": 90, "max_question_length": 64}
        lengths["stride"] = 128
    directory, files, _ = finetuned(tmp_path, task, **lengths)
    for name in ("float32", "int8"):
        options = ["--model", directory, "--output", tmp_path / name]
        options += ["--precision", name, "--check", files, "--quiet"]
        capsys.readouterr()
        assert run(export.main, [str(x) for x in options]) == 0
        _, *lines = capsys.readouterr().out.splitlines()
        assert sorted(line.split()[0] for line in lines) == OUTPUTS[task]
        for line in lines:
            if name == "float32" and line.endswith("differ"):
                assert line.split()[1:3] == ["0", "of"]
