"""Exports of a pretraining run: listing and removing its SavedModels.

The run lists its exports in the file `exports.json` of its directory.
"""

import os
import re

from data_pipeline.base.checksums import verify_checksums
from data_pipeline.base.checksums import write_listed
from data_pipeline.base.files import as_path
from data_pipeline.base.files import is_remote
from data_pipeline.base.files import is_unfinished
from data_pipeline.base.files import read_json_object
from data_pipeline.base.files import remove

EXPORTS_FILE = "exports.json"


def note_export(exports, step, file):
    """Add the next export to the run's list, before the export is written.

    Args:
        exports: path of the directory with an export for each step.
        step: int, the step of the export.
        file: path of the JSON file with the run's list of exports.

    Raises:
        ValueError: if the file is damaged.
    """
    steps = _steps(exports, _read(file))
    noted = {"directory": _place(exports), "steps": steps, "unfinished": step}
    _write(file, noted)


def prepare_exports(exports, file):
    """Refuse exports of another run, and remove this run's unfinished export.

    The version of an export is its step, and a server uses the largest version.
    If a directory had exports of two runs, a server could use the wrong run's
    exports, or one run could replace the other run's exports.

    Args:
        exports: str or path of the directory with an export for each step, or
            None.
        file: path of the JSON file with the run's list of exports.

    Raises:
        ValueError: if the directory has exports that are not in the list, or if
            the file is damaged.
    """
    _remove_unfinished(file)
    directory = as_path(exports or "")
    if not exports or not directory.is_dir():
        return
    noted = _read(file)
    own = {*_steps(directory, noted), noted.get("unfinished")}
    versions = [x.name for x in directory.iterdir() if x.name.isdecimal()]
    others = sorted((x for x in versions if int(x) not in own), key=int)
    if others:
        raise ValueError(
            f"{directory} holds exports of another run ({', '.join(others[:5])}"
            "). Name another --export, or remove them."
        )


def _remove_unfinished(file):
    """Remove the unfinished export of a killed run."""
    noted = _read(file)
    step = noted.get("unfinished")
    directory = as_path(noted.get("directory", ""))
    if step is None or not directory.is_dir():
        return
    for path in list(directory.iterdir()):
        if is_unfinished(path) and re.fullmatch(rf".*-{step}", path.name):
            remove(path)


def keep_newest(exports, step, count, file):
    """Remove the oldest exports of a run; leave all other directories.

    The function also removes the exports of steps after `step`. Otherwise a
    server would use these old exports, because a server uses the export with
    the largest step. A run that resumed from an earlier checkpoint makes these
    exports again.

    Args:
        exports: path of the directory with an export for each step.
        step: int, the step of the newest export.
        count: int, number of exports to keep.
        file: path of the JSON file with the run's list of exports.

    Raises:
        ValueError: if the file is damaged.
    """
    noted = _steps(exports, _read(file))
    steps = [*(x for x in noted if x < step), step]
    lost = [x for x in noted if x > step]
    for other in (*steps[:-count], *lost):
        remove(exports / str(other))
    _write(file, {"directory": _place(exports), "steps": steps[-count:]})


def kept_exports(exports, file):
    """List the kept exports of a run.

    Args:
        exports: str or path of the directory with an export for each step, or
            None.
        file: path of the JSON file with the run's list of exports.

    Returns:
        list of paths of the exports, the newest last.

    Raises:
        ValueError: if the file is damaged.
    """
    exports = as_path(exports or "")
    return [exports / str(step) for step in _steps(exports, _read(file))]


def _steps(exports, noted):
    """Read the steps of a directory's exports from the run's list."""
    is_same = noted.get("directory") == _place(exports)
    return noted["steps"] if is_same else []


def _place(exports):
    """Convert a local path to an absolute path; return a remote path as str."""
    return str(exports) if is_remote(exports) else os.path.abspath(exports)


def _read(file):
    """Read the run's list of exports; return {} if there is no file."""
    if not file.is_file():
        return {}
    try:
        verify_checksums(file.parent, [file.name])
        return read_json_object(file)
    except ValueError:
        raise ValueError(
            f"{file} is damaged: it is not a file of a run. Remove it: the "
            "exports so far are then kept."
        ) from None


def _write(file, noted):
    write_listed(file.parent, {file.name: noted})
