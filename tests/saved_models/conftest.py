"""Two exports, written once for all tests and workers, read only."""

import pytest

from data_pipeline.base.command_line import run
from saved_models import export
from tests.support.export_fixtures import artefact
from tests.support.export_fixtures import export as write_export
from tests.support.export_fixtures import shared_model
from tests.support.export_fixtures import signatures_of
from tests.support.task_export_fixtures import shared_task
from tests.support.task_export_fixtures import write_run


@pytest.fixture(scope="session")
def pretrainer_export(tmp_path_factory):
    """tiny/3, the SavedModel of `shared_model`."""

    def write(folder):
        write_export(shared_model(), folder / "tiny" / "3")

    return artefact(tmp_path_factory, "pretrainer", write) / "tiny" / "3"


@pytest.fixture(scope="session")
def pretrainer_signatures(pretrainer_export):
    return signatures_of(pretrainer_export)


@pytest.fixture(scope="session")
def classifier_export(tmp_path_factory):
    """served/1, by the command from the directory of a run."""

    def write(folder):
        write_run(folder / "run", shared_task("classifier"))
        arguments = ["--model", str(folder / "run")]
        arguments += ["--output", str(folder / "served")]
        arguments += ["--seq-length-buckets", "12,24", "--max-batch", "2"]
        assert run(export.main, arguments) == 0

    folder = artefact(tmp_path_factory, "classifier", write)
    return folder / "served" / "1"


@pytest.fixture(scope="session")
def classifier_signatures(classifier_export):
    return signatures_of(classifier_export)
